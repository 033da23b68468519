package wire

import (
	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/message"
)

// A Disclaimer is a legal text that users must accept, and again for each new version.
type Disclaimer struct {
	// The code for accept_disclaimers.
	Code string `json:"code"`
	// In the first language of Accept-Language that the company has texts in, or else in the
	// account's. So are description and link.
	Title string `json:"title"`
	// A short description.
	Description string `json:"description"`
	// The URL of the full text.
	Link    string `json:"link"`
	Version string `json:"-"`

	// Translations; nil for none.
	Titles       *message.Translations `json:"-"`
	Descriptions *message.Translations `json:"-"`
	Links        *message.Translations `json:"-"`
}

// In returns the disclaimer in the best of the languages, the preferred one first.
func (d Disclaimer) In(languages []language.Tag) Disclaimer {
	d.Title = d.Titles.Or(d.Title, languages)
	d.Description = d.Descriptions.Or(d.Description, languages)
	d.Link = d.Links.Or(d.Link, languages)
	d.Titles, d.Descriptions, d.Links = nil, nil, nil
	return d
}

// Translated reports whether the disclaimer has translations.
func (d Disclaimer) Translated() bool {
	return d.Titles != nil || d.Descriptions != nil || d.Links != nil
}
