package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/text/language"
)

// The preview shows every screen in every state without accounts. It serves the page
// as it is, and a script that answers the page's requests in the browser. The states
// are in preview/scenes.js.

//go:embed preview
var previews embed.FS

// schemes are the color schemes of the preview. Each replaces the media queries with
// which the page follows the user's scheme.
var schemes = map[string]*strings.Replacer{
	"auto":  strings.NewReplacer(),
	"light": strings.NewReplacer("(prefers-color-scheme: dark)", "(max-width: 0)", "(prefers-color-scheme: light)", "(min-width: 0)", "light dark", "light"),
	"dark":  strings.NewReplacer("(prefers-color-scheme: dark)", "(min-width: 0)", "(prefers-color-scheme: light)", "(max-width: 0)", "light dark", "dark"),
}

// Preview returns a server of the preview of a page with these options. name is what
// people call the company. The screens are at /{scheme}/{scene}/login, logout or
// security. / lists them and the mails.
func Preview(o Options, name string, mails Mails) (http.Handler, error) {
	p, err := New(o)
	if err != nil {
		return nil, fmt.Errorf("login_page: %w", err)
	}
	mux := http.NewServeMux()
	if err := mails.preview(mux, name); err != nil {
		return nil, err
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/preview/", http.StatusFound))
	mux.Handle("GET /preview/", http.FileServerFS(previews))
	mux.HandleFunc("GET /config", jsonOf(func(r *http.Request) any { return p.Config(understood(r)) }))
	mux.HandleFunc("GET /languages", jsonOf(func(*http.Request) any { return p.languages }))
	for scheme, replacer := range schemes {
		pages := func(kind string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				view := View{
					Kind: kind, Company: r.PathValue("scene"), Name: name, Base: "/" + scheme, Key: "preview", Cookie: r.URL.Query().Has("cookie"),
					Language: p.Language(r.URL.Query().Get("lang"), understood(r)),
				}
				edit(w, r, replacer, func(w http.ResponseWriter) { p.Serve(w, r, view) })
			}
		}
		for _, kind := range []string{"login", "logout", "security"} {
			mux.HandleFunc("GET /"+scheme+"/{scene}/"+kind, pages(kind))
		}
		mux.HandleFunc("GET /"+scheme+"/{scene}/"+Prefix+"{name...}", func(w http.ResponseWriter, r *http.Request) {
			edit(w, r, replacer, func(w http.ResponseWriter) { p.ServeFile(w, r, r.PathValue("name")) })
		})
	}
	return mux, nil
}

// understood returns the languages of a browser.
func understood(r *http.Request) []language.Tag {
	tags, _, _ := language.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	return tags
}

// jsonOf answers with a value as JSON.
func jsonOf(value func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value(r)) // the browser may be gone
	}
}

// edit serves a page or file with the color scheme of the preview, and lets the
// preview show it in a frame.
func edit(w http.ResponseWriter, r *http.Request, scheme *strings.Replacer, serve func(http.ResponseWriter)) {
	r.Header.Del("Accept-Encoding")
	var content bytes.Buffer
	recorder := caddyhttp.NewResponseRecorder(w, &content, func(int, http.Header) bool { return true })
	serve(recorder)
	h := w.Header()
	body := content.Bytes()
	if strings.HasPrefix(h.Get("Content-Type"), "text/") {
		const script = `<script type="module" src=`
		body = []byte(scheme.Replace(strings.Replace(content.String(), script, script+`"/preview/preview.js"></script>`+"\n"+script, 1)))
	}
	h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"), "frame-ancestors 'none'", "frame-ancestors 'self'", 1))
	h.Del("X-Frame-Options")
	h.Del("Content-Length")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(recorder.Status())
	_, _ = w.Write(body) // the browser may be gone
}
