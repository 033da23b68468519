package wire

import (
	"github.com/mnemogate/mnemogate/flows/message"
	"golang.org/x/text/language"
)

// A Disclaimer is a legal text that users must accept, each version anew.
type Disclaimer struct {
	Code        string `json:"code"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Link        string `json:"link"`
	Version     string `json:"-"`

	// What is read in other languages; nil for nothing.
	Titles       *message.Translations `json:"-"`
	Descriptions *message.Translations `json:"-"`
	Links        *message.Translations `json:"-"`
}

// In returns the disclaimer as readers of these languages, the best first, are
// shown it.
func (d Disclaimer) In(languages []language.Tag) Disclaimer {
	d.Title = d.Titles.Or(d.Title, languages)
	d.Description = d.Descriptions.Or(d.Description, languages)
	d.Link = d.Links.Or(d.Link, languages)
	d.Titles, d.Descriptions, d.Links = nil, nil, nil
	return d
}

// Translated reports whether there is a choice.
func (d Disclaimer) Translated() bool {
	return d.Titles != nil || d.Descriptions != nil || d.Links != nil
}
