package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Disclaimer is a legal text that users must accept.
type Disclaimer struct {
	// The code that clients send to accept it: 1 to 64 characters, unique in a
	// company.
	Code string `json:"code"`

	// The version. Users who accepted another version must accept this one again.
	// Default: empty, which counts as a version, too.
	Version string `json:"version,omitempty"`

	// The texts. A title is required.
	DisclaimerTexts

	// Translations by language tag: `lt`, `pt-BR`. The user's languages are those of
	// Accept-Language, or else the account's `locale`. A text that a translation
	// lacks is taken from above. The language of the texts above is unknown to
	// mnemogate. For example, if they are English and there is a French translation,
	// users who prefer English and then French get French; add `en` to avoid this.
	// Default: none.
	Languages map[string]*DisclaimerTexts `json:"languages,omitempty"`
}

// DisclaimerTexts are the texts of a disclaimer in one language. A translation may
// lack some, which then are those of the disclaimer.
type DisclaimerTexts struct {
	// The title, for display.
	Title string `json:"title,omitempty"`

	// A short description, for display.
	Description string `json:"description,omitempty"`

	// The URL of the full text.
	Link string `json:"link,omitempty"`
}

// disclaimerTexts lists the texts with their Caddyfile names.
var disclaimerTexts = []struct {
	name  string
	value string // its place in the syntax
	in    func(*DisclaimerTexts) *string
	check func(string) error
}{
	{"title", "<text>", func(t *DisclaimerTexts) *string { return &t.Title }, asRead},
	{"description", "<text>", func(t *DisclaimerTexts) *string { return &t.Description }, asRead},
	{"link", "<url>", func(t *DisclaimerTexts) *string { return &t.Link }, guest.CheckURL},
}

func asRead(text string) error { return guest.CheckNoPlaceholder(text, "write it as users read it") }

func (dis *Disclaimer) parse(d *caddyfile.Dispenser) error {
	options := guest.Parsers{}
	var names []string
	for _, text := range disclaimerTexts {
		names = append(names, text.name)
		options[text.name+" [<language>] "+text.value] = func(d *caddyfile.Dispenser) error {
			args := d.RemainingArgs()
			if len(args) < 1 || len(args) > 2 || args[len(args)-1] == "" {
				return guest.ErrArguments
			}
			texts := &dis.DisclaimerTexts
			if len(args) == 2 {
				tag, err := message.ParseLocale(args[0])
				if err != nil {
					return d.Errf("'%s' is not a language: %v; put quotes around a text of several words", args[0], err)
				}
				if texts = dis.Languages[tag.String()]; texts == nil {
					texts = new(DisclaimerTexts)
					dis.Languages[tag.String()] = texts
				}
			}
			to := text.in(texts)
			if *to != "" {
				return d.Err("already specified; remove one")
			}
			*to = args[len(args)-1]
			return guest.Literally(d, *to, text.check)
		}
	}
	return guest.Options(d, options, names...)
}

// check refuses settings that don't fit together. Its errors begin with the name of
// the option.
func (dis *Disclaimer) check() error {
	for _, text := range disclaimerTexts {
		original := *text.in(&dis.DisclaimerTexts)
		if err := checkText(original, text.check); err != nil {
			return fmt.Errorf("%s: %w", text.name, err)
		}
		for _, tag := range slices.Sorted(maps.Keys(dis.Languages)) {
			translation := dis.Languages[tag]
			if translation == nil {
				return fmt.Errorf("languages: %s is null; leave it out", tag)
			}
			translated := *text.in(translation)
			if err := checkText(translated, text.check); err != nil {
				return fmt.Errorf("%s %s: %w", text.name, tag, err)
			}
			if translated != "" && original == "" {
				return fmt.Errorf("%s %s: users who read another language need one, too; add %s without a language", text.name, tag, text.name)
			}
		}
	}
	if dis.Title == "" {
		return errors.New("title is missing: users could not see what they accept; add one")
	}
	seen := map[language.Tag]string{}
	for _, name := range slices.Sorted(maps.Keys(dis.Languages)) {
		tag, err := message.ParseLocale(name)
		if err != nil {
			return fmt.Errorf("'%s' is not a language: %w", name, err)
		}
		if other, ok := seen[tag]; ok {
			return fmt.Errorf("%s and %s are the same language; keep only one", other, name)
		}
		seen[tag] = name
	}
	return nil
}

func checkText(text string, check func(string) error) error {
	if text == "" {
		return nil
	}
	return check(text)
}

// effective returns the disclaimer in the form that clients receive.
func (dis *Disclaimer) effective() wire.Disclaimer {
	var translations []*message.Translations
	for _, text := range disclaimerTexts {
		texts := map[language.Tag]string{}
		for name, translation := range dis.Languages {
			if tag, err := message.ParseLocale(name); err == nil && translation != nil && *text.in(translation) != "" { // check refuses the others
				texts[tag] = *text.in(translation)
			}
		}
		translations = append(translations, message.NewTranslations(texts))
	}
	return wire.Disclaimer{
		Code: dis.Code, Title: dis.Title, Description: dis.Description, Link: dis.Link, Version: dis.Version,
		Titles: translations[0], Descriptions: translations[1], Links: translations[2],
	}
}
