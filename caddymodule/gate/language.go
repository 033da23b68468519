package gate

import (
	"net/http"
	"strings"

	"golang.org/x/text/language"
)

// Limits for Accept-Language. Browsers send about a hundred bytes with up to ten
// languages, and each language costs a search through every text.
const (
	maxAcceptLanguage = 512
	maxLanguages      = 10
)

// languagesOf returns a function that parses Accept-Language when it is called. It
// ignores a header that is malformed or too long.
func languagesOf(r *http.Request) func() []language.Tag {
	return func() []language.Tag {
		header := strings.Join(r.Header["Accept-Language"], ",")
		if len(header) > maxAcceptLanguage {
			return nil
		}
		tags, _, err := language.ParseAcceptLanguage(header)
		if err != nil {
			return nil
		}
		return tags[:min(len(tags), maxLanguages)]
	}
}
