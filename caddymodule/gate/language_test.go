package gate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAcceptLanguageIsReadInItsOrder(t *testing.T) {
	for header, want := range map[string]string{
		"":                                 "[]",
		"lt":                               "[lt]",
		"en;q=0.5, lt-LT, de;q=0.8":        "[lt-LT de en]",
		"fr;q=0, lt":                       "[lt]",
		"lt,":                              "[lt]",
		"lt;q=x":                           "[]",
		"a\x00b":                           "[]",
		strings.Repeat("lt,", 100) + "de":  "[lt lt lt lt lt lt lt lt lt lt]",
		strings.Repeat("lt,", 1000) + "de": "[]",
	} {
		r := &http.Request{Header: http.Header{"Accept-Language": {header}}}
		if got := fmt.Sprint(languagesOf(r)()); got != want {
			t.Errorf("%.40q: got %s, want %s", header, got, want)
		}
	}
	lines := &http.Request{Header: http.Header{"Accept-Language": {"en;q=0.1", "lt"}}}
	if got := fmt.Sprint(languagesOf(lines)()); got != "[lt en]" {
		t.Errorf("two lines: got %s", got)
	}
}

// FuzzAcceptLanguage: whatever is sent, few languages come of it, and soon.
func FuzzAcceptLanguage(f *testing.F) {
	f.Add("en-US,en;q=0.9,lt;q=0.8,*;q=0.1")
	f.Add("zh-Hant-TW-u-co-stroke-x-private;q=1.0")
	f.Add(strings.Repeat("-", 500))
	f.Add("i-klingon, sgn-BE-FR, art-lojban, x-y, und, mul")
	f.Fuzz(func(t *testing.T, header string) {
		r := &http.Request{Header: http.Header{"Accept-Language": {header}}}
		start := time.Now()
		if got := languagesOf(r)(); len(got) > maxLanguages || len(header) > maxAcceptLanguage && got != nil {
			t.Errorf("%q is read as %d languages", header, len(got))
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%q took %v", header, d)
		}
	})
}
