package message

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"regexp"
	"strconv"
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
	IsCode    bool          // it is the code alone
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
	if m.HTML, err = fill(tmpl, data.of(m), mailFields); err != nil {
		return fmt.Errorf("filling in %s: %w", mailHTML, err)
	}
	return nil
}

// of returns the data with what a mail says.
func (data mailData) of(m *Message) mailData {
	data.Subject, data.Link, data.Button = m.Subject, template.URL(m.Link), cmp.Or(data.Button, m.Subject)
	data.Color = cmp.Or(m.Color, defaultColor)
	data.OnColor = onColor(data.Color)
	for _, text := range blankLines.Split(m.Text, -1) {
		html := linked(text, m.Link, data.Support)
		data.Paragraphs = append(data.Paragraphs, paragraph{html, text == m.Link, text == m.Code, text == data.Details})
	}
	return data
}

var blankLines = regexp.MustCompile(`\n\s*\n`)

// linked returns a text as HTML, in which the addresses that are URLs are links. The
// beginning of a longer address is none.
func linked(text string, addresses ...string) template.HTML {
	html := words.ReplaceAllStringFunc(text, func(word string) string {
		for _, address := range addresses {
			before, after, found := strings.Cut(word, address)
			if found && strings.Contains(address, "://") && !goesOn.MatchString(after) {
				shown := template.HTMLEscapeString(address)
				return template.HTMLEscapeString(before) + `<a href="` + shown + `" style="color: inherit">` + shown + `</a>` + template.HTMLEscapeString(after)
			}
		}
		return template.HTMLEscapeString(word)
	})
	return template.HTML(strings.ReplaceAll(html, "\n", "<br>\n"))
}

var (
	words  = regexp.MustCompile(`[^\s<>"]+|[<>"]`)
	goesOn = regexp.MustCompile(`[\w/]`)
)

// onColor returns the color for text on a color like #336699: white, or black where that
// has more contrast.
func onColor(color string) string {
	if y, _ := Luminance(color); y > .179 { // known, because it was checked
		return "#000000"
	}
	return "#ffffff"
}

// Luminance returns the relative luminance of a color in hexadecimal digits, as WCAG 2.2
// defines it.
func Luminance(color string) (y float64, known bool) {
	digits, hex := strings.CutPrefix(strings.TrimSpace(color), "#")
	if len(digits) == 3 {
		digits = digits[:1] + digits[:2] + digits[1:] + digits[2:]
	}
	n, err := strconv.ParseUint(digits, 16, 24)
	if !hex || err != nil {
		return 0, false
	}
	for i, weight := range []float64{.0722, .7152, .2126} {
		part := float64(n>>(8*i)&255) / 255
		if part <= .04045 {
			part /= 12.92
		} else {
			part = math.Pow((part+.055)/1.055, 2.4)
		}
		y += weight * part
	}
	return y, true
}

// loadHTML parses a mailHTML and tests it.
func loadHTML(source string) (text, error) {
	tmpl, err := template.New(mailHTML).Parse(source)
	if err != nil {
		return nil, invalid(err)
	}
	sample := &Message{Subject: "A subject", Text: "A text\n\n" + sampleText.Link, Link: sampleText.Link}
	html, err := fill(tmpl, mailData{textData: sampleText}.of(sample), mailFields)
	if err == nil {
		_, err = fill(tmpl, mailData{textData: textData{Company: "acme"}}.of(&Message{Text: "A text"}), mailFields) // a test mail has no more
	}
	switch {
	case err != nil:
		return nil, err
	case !strings.Contains(html, "A text"):
		return nil, errors.New("it does not show the text; add {{range .Paragraphs}}<p>{{.HTML}}</p>{{end}}")
	case !strings.Contains(html, "https://app.example.com/recover#"):
		return nil, errors.New(`it does not show the link; add {{if .Link}}<a href="{{.Link}}">{{.Button}}</a>{{end}}`)
	}
	return tmpl, nil
}
