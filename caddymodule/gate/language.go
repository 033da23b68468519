package gate

import (
	"net/http"
	"strings"

	"golang.org/x/text/language"
)

// What of Accept-Language is looked at: browsers send about a hundred bytes with up
// to ten languages, and each of them costs a look at every text.
const (
	maxAcceptLanguage = 512
	maxLanguages      = 10
)

// languagesOf reads Accept-Language once it is asked to. A header that can't be read,
// or is too long, says nothing.
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
