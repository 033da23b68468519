package page

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// Link is a link to a page of the operator.
type Link struct {
	// The language of the text, such as `de` or `pt-BR`. Users who read the page in
	// this language see only the links of this language. Default: none; these links
	// are for all languages that have no links of their own.
	Language string `json:"language,omitempty"`

	// The text of the link.
	Text string `json:"text"`

	// The address: `https://…`, `mailto:…`, `tel:…`, or a path of this site.
	URL string `json:"url"`

	// Whether errors that only your support can solve show this link. Default: false.
	Support bool `json:"support,omitempty"`
}

// Check refuses a link that the page can't show.
func (l Link) Check() error {
	if l.Language != "" {
		if tag, err := language.Parse(l.Language); err != nil || tag.String() != l.Language {
			return fmt.Errorf("%q is not a language tag; write one like de or pt-BR", l.Language)
		}
	}
	if strings.TrimSpace(l.Text) == "" {
		return errors.New("it has no text; write what users should read, in quotes, before the address")
	}
	if err := cmp.Or(guest.CheckNoPlaceholder(l.Text, "write the text as users read it"), guest.CheckNoPlaceholder(l.URL, "write the address itself")); err != nil {
		return err
	}
	if !isAddress(l.URL) {
		return fmt.Errorf("%q is not an address for a link; write https://…, mailto:…, tel:… or a path of this site, such as /imprint", l.URL)
	}
	return nil
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "https", "http":
		return u.Host != ""
	case "mailto", "tel":
		return u.Opaque != ""
	}
	return u.Scheme == "" && u.Host == "" && strings.HasPrefix(s, "/") && !strings.Contains(s, `\`)
}

// A Config is what the page's options tell clients, as JSON. Its links are for one
// language and do not name it.
type Config struct {
	// The operator's links, such as imprint, privacy policy and support, in the language of
	// Accept-Language. Empty without a login page.
	Links []Link `json:"links"`
	// Where users without an account create one, or null.
	SignUp *Link `json:"signup"`
	// Users can choose to stay logged in: POST session takes remember.
	Remember bool `json:"remember"`
}

// NoConfig is the Config of a site without a page.
var NoConfig = Config{Links: []Link{}}

// Config returns the options in the best of the user's languages.
func (p *Page) Config(understood []language.Tag) Config {
	return p.configs[p.Language("", understood).String()]
}

// readLinks chooses the links of each of the page's languages.
func (p *Page) readLinks(o Options) error {
	if err := cmp.Or(p.checkLinks("link", o.Links), p.checkLinks("signup", o.SignUp)); err != nil {
		return err
	}
	p.configs = map[string]Config{}
	for _, tag := range p.languages {
		c := Config{Links: shown(o.Links, tag), Remember: o.Remember}
		if signUp := shown(o.SignUp, tag); len(signUp) > 0 {
			c.SignUp = &signUp[0]
		}
		p.configs[tag.String()] = c
	}
	return nil
}

func (p *Page) checkLinks(option string, links []Link) error {
	for i, l := range links {
		if err := l.Check(); err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
		if option == "signup" && slices.ContainsFunc(links[:i], func(o Link) bool { return o.Language == l.Language }) {
			return fmt.Errorf("signup: there are two for the same language; remove one, or name its language before the text")
		}
		if l.Language == "" {
			continue
		}
		if _, _, how := p.matcher.Match(language.Make(l.Language)); how == language.No {
			return fmt.Errorf("%s: the page has no texts in %q, so nobody would see %q; add %s.json to texts, or leave the language out", option, l.Language, l.Text, l.Language)
		}
	}
	return nil
}

// shown returns the links of a language. If it has none, these are the links without
// a language or else those of the first link's language.
func shown(links []Link, tag language.Tag) []Link {
	chosen := ""
	if len(links) > 0 && !slices.ContainsFunc(links, func(l Link) bool { return l.Language == "" }) {
		chosen = links[0].Language
	}
	var tags []language.Tag
	for _, l := range links {
		if l.Language != "" {
			tags = append(tags, language.Make(l.Language))
		}
	}
	if len(tags) > 0 {
		if _, i, how := language.NewMatcher(tags).Match(tag); how > language.Low {
			chosen = tags[i].String()
		}
	}
	all := []Link{}
	for _, l := range links {
		if l.Language == chosen {
			l.Language = ""
			all = append(all, l)
		}
	}
	return all
}
