package message

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"regexp"
	"strings"
)

// mailHTML is the file name of the template for the HTML of all mails. It shows the
// paragraphs of a mail's text, so that each text is written only once.
const mailHTML = "mail.html"

// defaultColor is that of the login page.
const defaultColor = "#2f5fb3"

// mailData is the data of mailHTML.
type mailData struct {
	textData
	Lang           string // the language tag of the text; empty if unknown
	Subject        string
	Paragraphs     []paragraph
	Link           template.URL // empty for none
	Button         string       // what the button for the link says
	Color, OnColor string       // of the button, and of text on it
}

// A paragraph of a mail's text.
type paragraph struct {
	HTML      template.HTML // with line breaks, and the addresses of links and support as links
	IsLink    bool          // it is the link alone
	IsDetails bool          // it says when something happened, and from where
}

var mailFields = fieldsOf(reflect.TypeFor[mailData]())

// RenderHTML sets the HTML of a mail from its Text, which is written in lang. Locales are
// as in Render, which calls it for all mails with a template.
func (t *Texts) RenderHTML(m *Message, lang string, locales ...string) error {
	return t.renderHTML(m, mailData{textData: textData{Company: cmp.Or(m.Name, m.Company)}, Lang: lang}, locales)
}

func (t *Texts) renderHTML(m *Message, data mailData, locales []string) (err error) {
	tmpl, _ := t.find(mailHTML, locales)
	data.Subject, data.Link, data.Button = m.Subject, template.URL(m.Link), cmp.Or(data.Button, m.Subject)
	data.Color = cmp.Or(m.Color, defaultColor)
	data.OnColor = onColor(data.Color)
	for _, text := range blankLines.Split(m.Text, -1) {
		html := linked(text, cmp.Or(m.Link, data.Support))
		data.Paragraphs = append(data.Paragraphs, paragraph{html, text == m.Link, text == data.Details})
	}
	if m.HTML, err = executeHTML(tmpl, data); err != nil {
		return fmt.Errorf("filling in %s: %w", mailHTML, err)
	}
	return nil
}

var blankLines = regexp.MustCompile(`\n\s*\n`)

// linked returns a text as HTML, in which an address is a link if programs can open it.
func linked(text, address string) template.HTML {
	html := strings.ReplaceAll(template.HTMLEscapeString(text), "\n", "<br>\n")
	scheme := ""
	if isEmail := strings.Contains(address, "@"); isEmail && !strings.Contains(address, ":") {
		scheme = "mailto:"
	}
	if scheme == "" && !strings.Contains(address, "://") || strings.Contains(address, " ") {
		return template.HTML(html)
	}
	shown := template.HTMLEscapeString(address)
	return template.HTML(strings.ReplaceAll(html, shown, `<a href="`+scheme+shown+`" style="color: inherit">`+shown+`</a>`))
}

// onColor returns the color for text on a color like #336699: white, or black where that
// has more contrast (WCAG 2.2, relative luminance).
func onColor(color string) string {
	var r, g, b uint8
	_, _ = fmt.Sscanf(color, "#%02x%02x%02x", &r, &g, &b) // it was checked
	linear := func(part uint8) float64 { return math.Pow(float64(part)/255, 2.2) }
	if .2126*linear(r)+.7152*linear(g)+.0722*linear(b) > .179 {
		return "#000000"
	}
	return "#ffffff"
}

// sampleMail is the data with which mailHTML is tested when it is loaded.
var sampleMail = mailData{
	textData:   sampleText,
	Lang:       "en",
	Subject:    "A subject",
	Paragraphs: []paragraph{{HTML: "A paragraph"}, {HTML: "Its link", IsLink: true}},
	Link:       template.URL("https://app.example.com/recover#token"),
	Button:     "Open it",
	Color:      defaultColor,
	OnColor:    onColor(defaultColor),
}

// loadHTML parses a mailHTML and tests it.
func loadHTML(source string) (text, error) {
	tmpl, err := template.New(mailHTML).Parse(source)
	if err != nil {
		return nil, fmt.Errorf("it is not a valid template; correct it: %w", err)
	}
	html, err := executeHTML(tmpl, sampleMail)
	switch {
	case err != nil:
		return nil, err
	case !strings.Contains(html, string(sampleMail.Paragraphs[0].HTML)):
		return nil, errors.New("it does not show the text; add {{range .Paragraphs}}<p>{{.HTML}}</p>{{end}}")
	case !strings.Contains(html, string(sampleMail.Link)):
		return nil, errors.New(`it does not show the link; add {{if .Link}}<a href="{{.Link}}">{{.Button}}</a>{{end}}`)
	}
	return tmpl, nil
}

func executeHTML(tmpl text, data mailData) (string, error) {
	var out strings.Builder
	if err := tmpl.Execute(&out, data); err != nil {
		return "", fmt.Errorf("use only %s: %w", strings.Join(mailFields, ", "), err)
	}
	return out.String(), nil
}
