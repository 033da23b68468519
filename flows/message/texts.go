package message

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode"
	"unicode/utf8"
)

//go:embed texts
var builtinTexts embed.FS

// textNames are the file names that LoadTexts knows: the type of a message, and sms or
// mail.
var textNames = func() []string {
	names := []string{textName(OTPLogin, false), textName(OTPRecovery, false), textName(OTPStepUp, false), textName(RecoveryLink, true), textName(WelcomeLink, true),
		textName(ContactCode, false), textName(ContactCode, true)}
	for _, notice := range Notices {
		names = append(names, textName(notice, false), textName(notice, true))
	}
	return append(names, lastText, mailHTML)
}()

// lastText is added to a mail with Message.Last.
const lastText = "notices.last.txt"

func textName(typ string, mail bool) string {
	if mail {
		return typ + ".mail.txt"
	}
	return typ + ".sms.txt"
}

// Texts holds a template for each type of SMS and mail.
type Texts struct {
	directories []directory // the first that has a text decides
}

// A directory of templates.
type directory struct {
	templates map[string]text            // by file name: for all languages
	locales   map[string]map[string]text // by language tag, then by file name
	lang      string                     // of templates; empty if unknown
}

// A text is a template of text/template or, for mailHTML, of html/template.
type text interface {
	Name() string
	Execute(w io.Writer, data any) error
}

// timeFormat is how texts write a time, in any language. The time zone of the reader is
// unknown.
const timeFormat = "2006-01-02 15:04 UTC"

// textData is the data of a template.
type textData struct {
	Company string // what people call it
	Code    string // of the otp and contact.code templates
	Link    string // of the link templates
	Minutes int    // how long the code or link is valid, rounded up
	Until   string // when the code or link expires
	// Of the notices:
	Time    string // when it happened
	Device  string // such as "Firefox (Windows)"; empty if it is unknown
	Address string // of the client; empty for a change by an operator or backend
	Details string // these three, as far as they are known
	// Of all:
	Support string // where users get help; empty if unknown
}

// textFields returns the fields that the texts of this name have, as templates write them.
func textFields(name string) []string {
	switch {
	case hasCode(name):
		return []string{".Company", ".Support", ".Code", ".Minutes", ".Until"}
	case hasLink(name):
		return []string{".Company", ".Support", ".Link", ".Minutes", ".Until"}
	default:
		return []string{".Company", ".Support", ".Time", ".Device", ".Address", ".Details"}
	}
}

func hasCode(name string) bool {
	return strings.HasPrefix(name, "otp.") || strings.HasPrefix(name, ContactCode)
}

func hasLink(name string) bool { return strings.Contains(name, ".link.") }

// fieldsOf returns the fields of a struct, as templates write them.
func fieldsOf(data reflect.Type) (names []string) {
	for _, field := range reflect.VisibleFields(data) {
		if !field.Anonymous {
			names = append(names, "."+field.Name)
		}
	}
	return names
}

// sampleText and leastText are the data with which every template is tested when it is
// loaded. The least is what a notice has of a change by an operator, and a link that is valid
// for long.
var sampleText = textData{
	Company: "acme",
	Code:    "123456",
	Link:    "https://app.example.com/recover#{token}",
	Minutes: 5,
	Until:   "2026-01-02 15:04 UTC",
	Time:    "2026-01-02 15:04 UTC",
	Device:  "Firefox (Windows)",
	Address: "192.0.2.1",
	Details: "2026-01-02 15:04 UTC, Firefox (Windows), 192.0.2.1",
	Support: "https://acme.example/help",
}

var leastText = func() textData {
	least := sampleText
	least.Support, least.Device, least.Address, least.Details = "", "", "", least.Time
	least.Minutes = 1440
	return least
}()

// DefaultTexts returns the built-in texts. They are in English, French, German,
// Lithuanian and Spanish; readers of other languages get English.
var DefaultTexts = sync.OnceValue(func() *Texts {
	inside, err := fs.Sub(builtinTexts, "texts")
	if err != nil {
		panic(err)
	}
	builtin, err := loadDirectory(inside, "texts")
	if err != nil {
		panic(err)
	}
	maps.Copy(builtin.templates, builtin.locales["en"])
	builtin.lang = "en"
	return &Texts{[]directory{builtin}}
})

// LoadTexts returns the built-in texts. Files in dir replace them: otp.login.sms.txt,
// otp.recovery.sms.txt, otp.stepup.sms.txt, recovery.link.mail.txt, welcome.link.mail.txt,
// contact.code.sms.txt, contact.code.mail.txt and, for each of Notices, such as
// notice.password_changed, an .sms.txt and a .mail.txt. To the last mail before notices are
// held back, notices.last.txt is added.
//
// Each file is a text/template that may use .Company (its name) and .Support (where users
// get help; may be empty). Codes and links have .Code or .Link, .Minutes (how long it is
// valid) and .Until (when it expires, as 2006-01-02 15:04 UTC). Notices have .Time, .Device
// and .Address, and .Details with all three. Times are in UTC.
//
// A mail begins with a line "Subject: …". A line "Button: …" can follow, which labels the button
// for the link in HTML; by default, the subject does. After an empty line comes the text. Any
// other .txt or .html file, and a template that fails, is an error. Files with other extensions
// are ignored.
//
// The file mail.html, an html/template, is the HTML of all mails. Besides the fields
// above, it has .Subject, .Button, .Lang, .Color, .OnColor and .Paragraphs of the text,
// each with .HTML, .IsLink (the link alone), .IsCode (the code alone) and .IsDetails.
//
// Subdirectories named by language tags, such as lt or pt-BR, contain the same files for
// readers of these languages.
func LoadTexts(dir string) (*Texts, error) {
	own, err := loadDirectory(os.DirFS(dir), dir)
	if err != nil {
		return nil, err
	}
	return &Texts{append([]directory{own}, DefaultTexts().directories...)}, nil
}

// loadDirectory loads the texts of a directory. Errors name it as dir.
func loadDirectory(files fs.FS, dir string) (directory, error) {
	templates, dirs, err := loadTexts(files, dir)
	if err != nil {
		return directory{}, err
	}
	d := directory{templates: templates, locales: map[string]map[string]text{}}
	for _, name := range dirs {
		path := filepath.Join(dir, name)
		inside, err := fs.Sub(files, name)
		if err != nil {
			return directory{}, err
		}
		texts, _, err := loadTexts(inside, path)
		if err != nil {
			return directory{}, err
		}
		tag, err := ParseLocale(name)
		locale := tag.String()
		switch {
		case len(texts) == 0:
			continue // the directory is for something else
		case err != nil:
			return directory{}, fmt.Errorf("texts in %s: the directory's name is not a language tag like lt or pt-BR; give it one", path)
		case d.locales[locale] != nil:
			return directory{}, fmt.Errorf("texts in %s: another directory has the same language; keep only one", path)
		}
		d.locales[locale] = texts
	}
	return d, nil
}

// loadTexts returns the texts in a directory by file name, and the names of its
// subdirectories.
func loadTexts(files fs.FS, dir string) (texts map[string]text, dirs []string, err error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory of texts %s: %w", dir, err)
	}
	texts = map[string]text{}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(dir, name)
		if ext := filepath.Ext(name); ext != ".txt" && ext != ".html" {
			// entry.IsDir would miss Kubernetes mounts, which are symbolic links. The
			// files that Kubernetes keeps next to them begin with a dot.
			if info, err := fs.Stat(files, name); err == nil && info.IsDir() && name[0] != '.' {
				dirs = append(dirs, name)
			}
			continue
		}
		if !slices.Contains(textNames, name) {
			return nil, nil, fmt.Errorf("text %s: no message has this name; use one of %s, or give other files another extension",
				path, strings.Join(textNames, ", "))
		}
		if texts[name], err = loadText(files, name); err != nil {
			return nil, nil, fmt.Errorf("text %s: %w", path, err)
		}
	}
	return texts, dirs, nil
}

// loadText parses a file and tests the template.
func loadText(files fs.FS, name string) (text, error) {
	source, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	if !utf8.Valid(source) || slices.Contains(source, 0) { // UTF-16 in ASCII is valid UTF-8
		return nil, errors.New("it is not in UTF-8; save it as UTF-8")
	}
	content := strings.TrimPrefix(string(source), "\ufeff") // the byte order mark of some editors
	content = strings.ReplaceAll(content, "\r\n", "\n")
	if name == mailHTML {
		return loadHTML(content)
	}
	tmpl, err := template.New(name).Option("missingkey=error").Parse(content)
	if err != nil {
		return nil, invalid(err)
	}
	if err := try(tmpl, sampleText); err != nil {
		return nil, err
	}
	if err := try(tmpl, leastText); err != nil {
		return nil, fmt.Errorf("with .Minutes above 120, or if .Support, and in a notice .Device and .Address, are empty: %w", err)
	}
	return tmpl, nil
}

// try tests a template with the data that its messages have. The others are missing in a map.
func try(tmpl text, all textData) error {
	name, data := tmpl.Name(), map[string]any{}
	for _, field := range textFields(name) {
		data[field[1:]] = reflect.ValueOf(all).FieldByName(field[1:]).Interface()
	}
	sample, err := execute(tmpl, data)
	switch {
	case err != nil:
		return err
	case hasCode(name) && !strings.Contains(sample.text, all.Code):
		return errors.New("it does not show the code; add {{.Code}}")
	case hasLink(name) && !strings.Contains(sample.text, all.Link):
		return errors.New("it does not show the link; add {{.Link}}")
	}
	return nil
}

func invalid(err error) error { return fmt.Errorf("it is not a valid template; correct it: %w", err) }

// find returns the text with this name, or nil, and its language, if that is known.
func (t *Texts) find(name string, locales []string) (tmpl text, lang string) {
	for _, d := range t.directories {
		if tmpl, lang := d.find(name, locales); tmpl != nil {
			return tmpl, lang
		}
	}
	return nil, ""
}

// find returns the text with this name in the first locale that has it. A locale also
// stands for the wider ones: lt-LT for lt. If none has it, find returns the text for all
// languages, or nil.
func (d directory) find(name string, locales []string) (tmpl text, lang string) {
	for _, locale := range locales {
		for locale != "" {
			if tmpl := d.locales[locale][name]; tmpl != nil {
				return tmpl, locale
			}
			locale = locale[:max(0, strings.LastIndexByte(locale, '-'))]
		}
	}
	return d.templates[name], d.lang
}

// A wording is the output of a template. Only mails have a subject and perhaps a button.
type wording struct{ subject, button, text string }

// execute returns the wording of a message.
func execute(tmpl text, data any) (w wording, err error) {
	if w.text, err = fill(tmpl, data, textFields(tmpl.Name())); err != nil {
		return w, err
	}
	if strings.HasSuffix(tmpl.Name(), ".mail.txt") {
		if w, err = cutHead(w.text); err != nil {
			return w, err
		}
	}
	if w.text = strings.TrimSpace(w.text); w.text == "" {
		return w, errors.New("it is empty; write the text of the message")
	}
	return w, nil
}

// fill executes a template. fields are those of the data.
func fill(tmpl text, data any, fields []string) (string, error) {
	var out strings.Builder
	if err := tmpl.Execute(&out, data); err != nil {
		return "", fmt.Errorf("use only %s: %w", strings.Join(fields, ", "), err)
	}
	return out.String(), nil
}

// cutHead splits the output of a mail's template. What a template inserts can't add a line
// to the head, which has at most two.
func cutHead(mail string) (w wording, err error) {
	head, text, ok := strings.Cut(mail, "\n\n")
	subject, button, second := strings.Cut(head, "\n")
	subject, named := strings.CutPrefix(subject, "Subject:")
	button, labeled := strings.CutPrefix(button, "Button:")
	w = wording{strings.TrimSpace(subject), strings.TrimSpace(button), text}
	if !ok || !named || second && !labeled || w.subject == "" || strings.ContainsFunc(w.subject+w.button, unicode.IsControl) {
		return w, errors.New(`begin it with a line "Subject: …", perhaps a line "Button: …", and an empty line`)
	}
	return w, nil
}

// Render sets the Text of m, its Language and, if m goes to an email address, its Subject and
// HTML. The locales are those of the reader, the best first; any may be empty.
func (t *Texts) Render(m *Message, now time.Time, locales ...string) error {
	data := textData{Company: cmp.Or(m.Name, m.Company), Support: m.Support, Code: m.Code, Link: m.Link, Minutes: minutesUntil(m.Expires, now)}
	if !m.Expires.IsZero() {
		data.Until = m.Expires.UTC().Format(timeFormat)
	}
	if !m.Time.IsZero() {
		data.Time, data.Device, data.Address = m.Time.UTC().Format(timeFormat), Device(m.Notice.UserAgent), m.Notice.Address
		known := []string{data.Time, data.Device, data.Address}
		data.Details = strings.Join(slices.DeleteFunc(known, func(s string) bool { return s == "" }), ", ")
	}
	mail := ByMail(m.To)
	name := textName(m.Type, mail)
	tmpl, lang := t.find(name, locales)
	if tmpl == nil {
		return fmt.Errorf("there is no text %s", name)
	}
	w, err := execute(tmpl, data)
	if err != nil {
		return fmt.Errorf("wording %s: %w", name, err)
	}
	if m.Code != "" && m.Origin != "" {
		w.text = withOrigin(w.text, m.Origin, m.Code)
	}
	if m.Last {
		tmpl, _ := t.find(lastText, locales)
		last, err := execute(tmpl, data)
		if err != nil {
			return fmt.Errorf("wording %s: %w", lastText, err)
		}
		w.text += "\n\n" + last.text
	}
	m.Subject, m.Text, m.Language = w.subject, w.text, lang
	if !mail {
		return nil
	}
	return t.renderHTML(m, mailData{textData: data, Lang: lang, Button: w.button}, locales)
}

// minutesUntil returns the minutes until expires, rounded up so that no message says
// "valid for 0 min". It returns 0 for a message that never expires.
func minutesUntil(expires, now time.Time) int {
	if expires.IsZero() {
		return 0
	}
	return max(1, int((expires.Sub(now)+time.Minute-1)/time.Minute))
}
