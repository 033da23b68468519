package flows

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
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

// textNames are the files that LoadTexts knows: the type of a message and how
// it travels.
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

// Texts words the messages: a template for each type of SMS and mail.
type Texts struct {
	templates map[string]*template.Template // by file name
}

// textData is what a template may show.
type textData struct {
	Company string // its code
	Code    string // of the otp templates
	Link    string // of the link templates
	Minutes int    // how long the code or link is valid, rounded up
}

// sampleText is what every template is tried with before it is taken.
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
		if err := t.load(builtinTexts, "texts/"+name, name); err != nil {
			panic(err)
		}
	}
	return t
})

// LoadTexts returns the built-in texts with those replaced for which dir holds
// a file: otp.login.sms.txt, otp.recovery.sms.txt, recovery.link.mail.txt,
// welcome.link.mail.txt, notice.password_changed.sms.txt,
// notice.password_changed.mail.txt, notice.identity_bound.sms.txt and
// notice.identity_bound.mail.txt. Each is a
// text/template that may use .Company (its code), .Code, .Link and .Minutes
// (how long the code or link is valid). A mail's first line is "Subject: …",
// its second is empty, and the rest is the text. Any other .txt file, and a
// template that doesn't work, is an error; files with other names are ignored.
func LoadTexts(dir string) (*Texts, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of texts: %w", err)
	}
	t := &Texts{templates: make(map[string]*template.Template)}
	for name, tmpl := range DefaultTexts().templates {
		t.templates[name] = tmpl
	}
	for _, file := range files {
		name := file.Name()
		if filepath.Ext(name) != ".txt" {
			continue
		}
		if !slices.Contains(textNames, name) {
			return nil, fmt.Errorf("text %s: no message has this name; use one of %s, or another extension for what is no text",
				filepath.Join(dir, name), strings.Join(textNames, ", "))
		}
		if err := t.load(os.DirFS(dir), name, name); err != nil {
			return nil, fmt.Errorf("text %s: %w", filepath.Join(dir, name), err)
		}
	}
	return t, nil
}

// load parses a file and tries it out.
func (t *Texts) load(dir fs.FS, path, name string) error {
	source, err := fs.ReadFile(dir, path)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	text := strings.TrimPrefix(string(source), "\ufeff") // the byte order mark of some editors
	tmpl, err := template.New(name).Parse(strings.ReplaceAll(text, "\r\n", "\n"))
	if err != nil {
		return fmt.Errorf("it is no template, correct the place that is named: %w", err)
	}
	t.templates[name] = tmpl
	_, text, err = t.execute(name, sampleText)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(name, "otp.") && !strings.Contains(text, sampleText.Code):
		return errors.New("it does not show the code; add {{.Code}}")
	case strings.Contains(name, ".link.") && !strings.Contains(text, sampleText.Link):
		return errors.New("it does not show the link; add {{.Link}}")
	}
	return nil
}

// execute returns a mail's subject and any message's text.
func (t *Texts) execute(name string, data textData) (subject, text string, err error) {
	tmpl, ok := t.templates[name]
	if !ok {
		return "", "", fmt.Errorf("there is no text %s", name)
	}
	var out strings.Builder
	if err := tmpl.Execute(&out, data); err != nil {
		return "", "", fmt.Errorf("use only .Company, .Code, .Link and .Minutes: %w", err)
	}
	text = out.String()
	if strings.HasSuffix(name, ".mail.txt") {
		if subject, text, err = cutSubject(text); err != nil {
			return "", "", err
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", "", errors.New("it is empty; write the text of the message")
	}
	return subject, text, nil
}

// cutSubject splits what a mail's template has made. A subject can't contain
// a line break, since the line after it must be empty.
func cutSubject(mail string) (subject, text string, err error) {
	head, text, ok := strings.Cut(mail, "\n\n")
	subject, named := strings.CutPrefix(head, "Subject:")
	subject = strings.TrimSpace(subject)
	if !ok || !named || subject == "" || strings.ContainsFunc(subject, unicode.IsControl) {
		return "", "", errors.New(`begin it with one line "Subject: …" and an empty line`)
	}
	return subject, text, nil
}

// render words m: it sets Text and, if m goes to an email address, Subject.
func (t *Texts) render(m *Message, now time.Time) error {
	data := textData{Company: m.Company, Code: m.Code, Link: m.Link, Minutes: minutesUntil(m.Expires, now)}
	name := textName(m.Type, strings.Contains(m.To, "@"))
	subject, text, err := t.execute(name, data)
	if err != nil {
		return fmt.Errorf("wording %s: %w", name, err)
	}
	m.Subject, m.Text = subject, text
	return nil
}

// minutesUntil rounds up, since "valid for 0 min" would puzzle. A message that
// never expires has none.
func minutesUntil(expires, now time.Time) int {
	if expires.IsZero() {
		return 0
	}
	return max(1, int((expires.Sub(now)+time.Minute-1)/time.Minute))
}
