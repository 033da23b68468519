package page

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/language"
)

// A language with links of its own shows only these. All others show those without a
// language or, if there are none, those of the first link's language.
func TestLinksOfALanguage(t *testing.T) {
	link := func(language, text string) Link { return Link{Language: language, Text: text, URL: "/" + text} }
	for _, c := range []struct {
		links []Link
		want  map[string]string
	}{
		{nil, map[string]string{"en": "", "de": ""}},
		{[]Link{link("", "a"), link("", "b")}, map[string]string{"en": "a b", "de": "a b"}},
		{[]Link{link("", "a"), link("de", "x"), link("", "b"), link("de", "y")}, map[string]string{"en": "a b", "de": "x y", "fr": "a b"}},
		{[]Link{link("fr", "f"), link("de", "x"), link("fr", "g")}, map[string]string{"en": "f g", "de": "x", "fr": "f g"}},
		{[]Link{link("de-AT", "x"), link("", "a")}, map[string]string{"de": "x", "en": "a"}},
	} {
		p := mustNew(t, Options{Links: c.links, SignUp: c.links[:min(len(c.links), 1)]})
		for tag, want := range c.want {
			config := p.Config([]language.Tag{language.Make(tag)})
			var texts []string
			for _, l := range config.Links {
				texts = append(texts, l.Text)
			}
			if got := strings.Join(texts, " "); got != want {
				t.Errorf("%v in %s: %q, want %q", c.links, tag, got, want)
			}
			if (config.SignUp == nil) != (c.links == nil) {
				t.Errorf("%v in %s: sign-up is %v", c.links, tag, config.SignUp)
			}
		}
	}
}

func TestAddressesOfLinks(t *testing.T) {
	for _, good := range []string{"https://example.com/a?b#c", "http://intranet/", "mailto:help@example.com", "tel:+37060000000", "/imprint", "/a/b?c"} {
		if err := (Link{Text: "a", URL: good}).Check(); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "imprint", "javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "//evil.example.com", `/\\evil.example.com`, "https:", "mailto:", "https://[", "\x01javascript:x"} {
		if err := (Link{Text: "a", URL: bad}).Check(); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// The page loads the operator's style sheet last, and serves the files that the sheet
// uses. Nothing comes from another server.
func TestTheStyleOfTheOperator(t *testing.T) {
	dir := t.TempDir()
	write := writer(t, dir)
	write("fonts/brand.woff2", "wOF2")
	write("wave.svg", "<svg></svg>")
	write("page.html", "<html></html>")
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "secret.svg")))
	p := mustNew(t, Options{Style: write("good.css", `/* url(//comment) @import */
		@font-face { font-family: Brand; src: url("fonts/brand.woff2") format("woff2"), URL( 'fonts/brand.woff2' ) }
		main { background: url(wave.svg) ; mask: url(#part) }`)})
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeFile(w, httptest.NewRequest(http.MethodGet, "/", nil), p.version+"/"+path)
		return w
	}
	for path, kind := range map[string]string{"style/style.css": "text/css; charset=utf-8", "style/fonts/brand.woff2": "font/woff2", "style/wave.svg": "image/svg+xml"} {
		if w := get(path); w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: got %d %v", path, w.Code, w.Header())
		}
	}
	w := httptest.NewRecorder()
	p.Serve(w, httptest.NewRequest(http.MethodGet, "/acme/login", nil), View{Kind: "login", Company: "acme", Language: language.English})
	sheets := strings.Split(w.Body.String(), `<link rel="stylesheet" href="`)
	if len(sheets) != 3 || !strings.Contains(sheets[2], "/style/style.css") || !slices.Contains(strings.Split(w.Header().Get("Content-Security-Policy"), "; "), "font-src 'self'") {
		t.Errorf("got %v\n%s", w.Header(), w.Body)
	}
	for sheet, want := range map[string]string{
		`@import "other.css";`:                                 "has @import",
		`@import url(other.css);`:                              "has @import",
		`a { background: url(https://cdn.example.com/a.png) }`: `loads "https://cdn.example.com/a.png", but the page contacts no other server`,
		`a { background: url(//cdn.example.com/a.png) }`:       "contacts no other server",
		`a { background: url("data:image/png;base64,AA") }`:    "contacts no other server",
		`a { background: url(../a.png) }`:                      "next to the style sheet",
		`a { background: url(/a.png) }`:                        "next to the style sheet",
		`a { background: url("my font.woff2") }`:               "name it with letters",
		`a { background: url(none.png) }`:                      "no such file",
		`a { background: url(page.html) }`:                     "is neither a font nor an image",
		`a { background: url(secret.svg) }`:                    "escapes",
	} {
		if _, err := New(Options{Style: write("bad.css", sheet)}); err == nil || !strings.HasPrefix(err.Error(), "style: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", sheet, err, want)
		}
	}
}
