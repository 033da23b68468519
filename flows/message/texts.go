package message

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode"
)

//go:embed texts/*.txt
var builtinTexts embed.FS

// textNames are the file names that LoadTexts knows: the type of a message, and sms or
// mail.
var textNames = []string{
	textName(OTPLogin, false),
	textName(OTPRecovery, false),
	textName(RecoveryLink, true),
	textName(WelcomeLink, true),
	textName(NoticePasswordChanged, false),
	textName(NoticePasswordChanged, true),
	textName(NoticeIdentityBound, false),
	textName(NoticeIdentityBound, true),
}

func textName(typ string, mail bool) string {
	if mail {
		return typ + ".mail.txt"
	}
	return typ + ".sms.txt"
}

// Texts holds a template for each type of SMS and mail.
type Texts struct {
	templates map[string]*template.Template            // by file name
	locales   map[string]map[string]*template.Template // by language tag, then by file name
}

// textData is the data of a template.
type textData struct {
	Company string // what people call it
	Code    string // of the otp templates
	Link    string // of the link templates
	Minutes int    // how long the code or link is valid, rounded up
}

// sampleText is the data with which every template is tested when it is loaded.
var sampleText = textData{
	Company: "acme",
	Code:    "123456",
	Link:    "https://app.example.com/recover#{token}",
	Minutes: 5,
}

// DefaultTexts returns the built-in texts, in English.
func DefaultTexts() *Texts { return defaultTexts() }

var defaultTexts = sync.OnceValue(func() *Texts {
	t := &Texts{templates: map[string]*template.Template{}}
	for _, name := range textNames {
		tmpl, err := loadText(builtinTexts, "texts/"+name, name)
		if err != nil {
			panic(err)
		}
		t.templates[name] = tmpl
	}
	return t
})

// LoadTexts returns the built-in texts, with those replaced for which dir has a file:
// otp.login.sms.txt, otp.recovery.sms.txt, recovery.link.mail.txt,
// welcome.link.mail.txt, notice.password_changed.sms.txt,
// notice.password_changed.mail.txt, notice.identity_bound.sms.txt and
// notice.identity_bound.mail.txt.
//
// Each file is a text/template that may use .Company (its name), .Code, .Link and
// .Minutes (how long the code or link is valid). The first line of a mail is
// "Subject: …", the second is empty, and the rest is the text. Any other .txt file, and a
// template that fails, is an error. Files with other extensions are ignored.
//
// Subdirectories named by language tags, such as lt or pt-BR, contain the same files for
// readers of these languages.
func LoadTexts(dir string) (*Texts, error) {
	t := &Texts{locales: map[string]map[string]*template.Template{}}
	own, dirs, err := loadTexts(dir)
	if err != nil {
		return nil, err
	}
	t.templates = maps.Clone(DefaultTexts().templates)
	maps.Copy(t.templates, own)
	for _, name := range dirs {
		inside := filepath.Join(dir, name)
		texts, _, err := loadTexts(inside)
		if err != nil {
			return nil, err
		}
		tag, err := ParseLocale(name)
		locale := tag.String()
		switch {
		case len(texts) == 0:
			continue // the directory is for something else
		case err != nil:
			return nil, fmt.Errorf("texts in %s: the directory's name is no language tag like lt or pt-BR; give it one", inside)
		case t.locales[locale] != nil:
			return nil, fmt.Errorf("texts in %s: another directory is of the same language; leave one of them", inside)
		}
		t.locales[locale] = texts
	}
	return t, nil
}

// loadTexts returns the texts in a directory by file name, and the names of its
// subdirectories.
func loadTexts(dir string) (texts map[string]*template.Template, dirs []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory of texts: %w", err)
	}
	texts = map[string]*template.Template{}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(dir, name)
		if filepath.Ext(name) != ".txt" {
			// entry.IsDir would miss Kubernetes mounts, which are symbolic links. The
			// files that Kubernetes keeps next to them begin with a dot.
			if info, err := os.Stat(path); err == nil && info.IsDir() && name[0] != '.' {
				dirs = append(dirs, name)
			}
			continue
		}
		if !slices.Contains(textNames, name) {
			return nil, nil, fmt.Errorf("text %s: no message has this name; use one of %s, or another extension for what is no text",
				path, strings.Join(textNames, ", "))
		}
		if texts[name], err = loadText(os.DirFS(dir), name, name); err != nil {
			return nil, nil, fmt.Errorf("text %s: %w", path, err)
		}
	}
	return texts, dirs, nil
}

// loadText parses a file and tests the template.
func loadText(dir fs.FS, path, name string) (*template.Template, error) {
	source, err := fs.ReadFile(dir, path)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	text := strings.TrimPrefix(string(source), "\ufeff") // the byte order mark of some editors
	tmpl, err := template.New(name).Parse(strings.ReplaceAll(text, "\r\n", "\n"))
	if err != nil {
		return nil, fmt.Errorf("it is no template, correct the place that is named: %w", err)
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

// find returns the text with this name in the first locale that has it. A locale also
// stands for the wider ones: lt-LT for lt. If none has it, find returns the text for all
// languages.
func (t *Texts) find(name string, locales []string) *template.Template {
	for _, locale := range locales {
		for locale != "" {
			if tmpl := t.locales[locale][name]; tmpl != nil {
				return tmpl
			}
			locale = locale[:max(0, strings.LastIndexByte(locale, '-'))]
		}
	}
	return t.templates[name]
}

// execute returns a message's text and, for a mail, its subject.
func execute(tmpl *template.Template, data textData) (subject, text string, err error) {
	var out strings.Builder
	if err := tmpl.Execute(&out, data); err != nil {
		return "", "", fmt.Errorf("use only .Company, .Code, .Link and .Minutes: %w", err)
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
