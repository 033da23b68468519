package message

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode"
)

//go:embed texts
var builtinTexts embed.FS

// textNames are the file names that LoadTexts knows: the type of a message, and sms or
// mail.
var textNames = func() []string {
	names := []string{textName(OTPLogin, false), textName(OTPRecovery, false), textName(RecoveryLink, true), textName(WelcomeLink, true)}
	for _, notice := range Notices {
		names = append(names, textName(notice, false), textName(notice, true))
	}
	return append(names, lastText)
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
	templates map[string]*template.Template            // by file name: for all languages
	locales   map[string]map[string]*template.Template // by language tag, then by file name
}

// timeFormat is how texts write a time, in any language. The time zone of the reader is
// unknown.
const timeFormat = "2006-01-02 15:04 UTC"

// textData is the data of a template.
type textData struct {
	Company string // what people call it
	Code    string // of the otp templates
	Link    string // of the link templates
	Minutes int    // how long the code or link is valid, rounded up
	Until   string // when the code or link expires
	// Of the notices:
	Time    string // when it happened
	Device  string // such as "Firefox (Windows)"; empty if it is unknown
	Address string // of the client; empty for a change by an operator or backend
	Details string // these three, as far as they are known
	Support string // where users get help; empty if unknown
}

// textFields are the fields of textData, as templates write them.
var textFields = func() (names []string) {
	for field := range reflect.TypeFor[textData]().Fields() {
		names = append(names, "."+field.Name)
	}
	return names
}()

// sampleText is the data with which every template is tested when it is loaded.
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

// DefaultTexts returns the built-in texts. They are in English, French, German,
// Lithuanian and Spanish; readers of other languages get English.
func DefaultTexts() *Texts { return defaultTexts() }

var defaultTexts = sync.OnceValue(func() *Texts {
	inside, err := fs.Sub(builtinTexts, "texts")
	if err != nil {
		panic(err)
	}
	builtin, err := loadDirectory(inside, "texts")
	if err != nil {
		panic(err)
	}
	builtin.templates = builtin.locales["en"]
	return &Texts{[]directory{builtin}}
})

// LoadTexts returns the built-in texts. Files in dir replace them: otp.login.sms.txt,
// otp.recovery.sms.txt, recovery.link.mail.txt, welcome.link.mail.txt and, for each of
// Notices, such as notice.password_changed, an .sms.txt and a .mail.txt. To the last mail
// before notices are held back, notices.last.txt is added.
//
// Each file is a text/template that may use .Company (its name), .Code, .Link, .Minutes
// (how long the code or link is valid) and .Until (when it expires, as 2006-01-02 15:04
// UTC). Notices have .Time, .Device and .Address, .Details with all three, and .Support
// (where users get help; may be empty). The first line of a mail is "Subject: …", the second is empty, and the rest is the text. Any other
// .txt file, and a template that fails, is an error. Files with other extensions are
// ignored.
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
	d := directory{templates, map[string]map[string]*template.Template{}}
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
func loadTexts(files fs.FS, dir string) (texts map[string]*template.Template, dirs []string, err error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory of texts %s: %w", dir, err)
	}
	texts = map[string]*template.Template{}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(dir, name)
		if filepath.Ext(name) != ".txt" {
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
func loadText(files fs.FS, name string) (*template.Template, error) {
	source, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	text := strings.TrimPrefix(string(source), "\ufeff") // the byte order mark of some editors
	tmpl, err := template.New(name).Parse(strings.ReplaceAll(text, "\r\n", "\n"))
	if err != nil {
		return nil, fmt.Errorf("it is not a valid template; correct it: %w", err)
	}
	_, text, err = execute(tmpl, sampleText)
	switch {
	case err != nil:
		return nil, err
	case strings.HasPrefix(name, "otp.") && !strings.Contains(text, sampleText.Code):
		return nil, errors.New("it does not show the code; add {{.Code}}")
	case strings.Contains(name, ".link.") && !strings.Contains(text, sampleText.Link):
		return nil, errors.New("it does not show the link; add {{.Link}}")
	}
	return tmpl, nil
}

// find returns the text with this name, or nil.
func (t *Texts) find(name string, locales []string) *template.Template {
	for _, d := range t.directories {
		if tmpl := d.find(name, locales); tmpl != nil {
			return tmpl
		}
	}
	return nil
}

// find returns the text with this name in the first locale that has it. A locale also
// stands for the wider ones: lt-LT for lt. If none has it, find returns the text for all
// languages, or nil.
func (d directory) find(name string, locales []string) *template.Template {
	for _, locale := range locales {
		for locale != "" {
			if tmpl := d.locales[locale][name]; tmpl != nil {
				return tmpl
			}
			locale = locale[:max(0, strings.LastIndexByte(locale, '-'))]
		}
	}
	return d.templates[name]
}

// execute returns a message's text and, for a mail, its subject.
func execute(tmpl *template.Template, data textData) (subject, text string, err error) {
	var out strings.Builder
	if err := tmpl.Execute(&out, data); err != nil {
		return "", "", fmt.Errorf("use only %s: %w", strings.Join(textFields, ", "), err)
	}
	text = out.String()
	if strings.HasSuffix(tmpl.Name(), ".mail.txt") {
		if subject, text, err = cutSubject(text); err != nil {
			return "", "", err
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", "", errors.New("it is empty; write the text of the message")
	}
	return subject, text, nil
}

// cutSubject splits the output of a mail's template. A subject can't contain a line break,
// since the line after it must be empty.
func cutSubject(mail string) (subject, text string, err error) {
	head, text, ok := strings.Cut(mail, "\n\n")
	subject, named := strings.CutPrefix(head, "Subject:")
	subject = strings.TrimSpace(subject)
	if !ok || !named || subject == "" || strings.ContainsFunc(subject, unicode.IsControl) {
		return "", "", errors.New(`begin it with one line "Subject: …" and an empty line`)
	}
	return subject, text, nil
}

// Render sets the Text of m and, if m goes to an email address, its Subject. The locales
// are those of the reader, the best first; any may be empty.
func (t *Texts) Render(m *Message, now time.Time, locales ...string) error {
	data := textData{Company: cmp.Or(m.Name, m.Company), Code: m.Code, Link: m.Link, Minutes: minutesUntil(m.Expires, now)}
	if !m.Expires.IsZero() {
		data.Until = m.Expires.UTC().Format(timeFormat)
	}
	if !m.Time.IsZero() {
		data.Time, data.Device, data.Address = m.Time.UTC().Format(timeFormat), Device(m.Notice.UserAgent), m.Notice.Address
		known := []string{data.Time, data.Device, data.Address}
		data.Details = strings.Join(slices.DeleteFunc(known, func(s string) bool { return s == "" }), ", ")
		data.Support = m.Support
	}
	name := textName(m.Type, strings.Contains(m.To, "@"))
	tmpl := t.find(name, locales)
	if tmpl == nil {
		return fmt.Errorf("there is no text %s", name)
	}
	subject, text, err := execute(tmpl, data)
	if err != nil {
		return fmt.Errorf("wording %s: %w", name, err)
	}
	if m.Code != "" && m.Origin != "" {
		text = withOrigin(text, m.Origin, m.Code)
	}
	if m.Last {
		_, last, err := execute(t.find(lastText, locales), data)
		if err != nil {
			return fmt.Errorf("wording %s: %w", lastText, err)
		}
		text += "\n\n" + last
	}
	m.Subject, m.Text = subject, text
	return nil
}

// minutesUntil returns the minutes until expires, rounded up so that no message says
// "valid for 0 min". It returns 0 for a message that never expires.
func minutesUntil(expires, now time.Time) int {
	if expires.IsZero() {
		return 0
	}
	return max(1, int((expires.Sub(now)+time.Minute-1)/time.Minute))
}
