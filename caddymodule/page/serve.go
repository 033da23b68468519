package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/encode"
	"golang.org/x/text/language"
)

// A View is the data for the page of one request.
type View struct {
	Kind    string // login, logout or security: the last segment of its path
	Company string // its code
	Name    string // what people call the company
	Base    string // the path prefix of /{company_code} on this site
	Key     string // the API key of this page
	Captcha string // the company's kind of captcha, such as turnstile
	Cookie  bool   // whether the request brought a session's cookie

	Language language.Tag // one of the page's
	Config   any          // client.json, in this language; nil lets the page ask for it
}

// languageCookie holds the language that the user has chosen on the page (frame.js).
const languageCookie = "mnemogate-language"

// LanguageOf returns the language that the address of a page asks for or else that the
// user has chosen; empty for none.
func LanguageOf(r *http.Request) string {
	asked := r.URL.Query().Get("lang")
	if chosen, err := r.Cookie(languageCookie); asked == "" && err == nil {
		return chosen.Value
	}
	return asked
}

// Prefix is the path of the files below /{company_code}/. The version and the file's
// name follow it.
const Prefix = "v2/page/"

// origins lists the origins of scripts and frames that each kind of captcha needs.
var origins = map[string]struct{ script, style, frame, connect string }{
	"turnstile": {script: "https://challenges.cloudflare.com", frame: "https://challenges.cloudflare.com"},
	"hcaptcha": {
		script: "https://hcaptcha.com https://*.hcaptcha.com", style: "https://hcaptcha.com https://*.hcaptcha.com",
		frame: "https://hcaptcha.com https://*.hcaptcha.com", connect: "https://hcaptcha.com https://*.hcaptcha.com",
	},
	"recaptcha": {
		script:  "https://www.google.com/recaptcha/ https://www.gstatic.com/recaptcha/",
		frame:   "https://www.google.com/recaptcha/ https://recaptcha.google.com/recaptcha/",
		connect: "https://www.google.com/recaptcha/",
	},
}

// HasWidget reports whether the page shows this kind of captcha in its provider's
// widget, which needs a site key.
func HasWidget(kind string) bool { return origins[kind].frame != "" }

// policy is the Content-Security-Policy of the page. The operator's style sheet may
// bring fonts.
func policy(captcha string, styled bool) string {
	with := origins[captcha]
	directives := []string{
		"default-src 'none'",
		"script-src 'self' " + with.script,
		"style-src 'self' " + with.style,
		"img-src 'self'",
		"connect-src 'self' " + with.connect,
		"worker-src 'self'",
		"form-action 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}
	if styled {
		directives = append(directives, "font-src 'self'")
	}
	if with.frame != "" {
		directives = append(directives, "frame-src "+with.frame)
	}
	for i, d := range directives {
		directives[i] = strings.TrimSpace(d)
	}
	return strings.Join(directives, "; ")
}

func (p *Page) render(v View) ([]byte, error) {
	config, err := json.Marshal(v.Config) // it escapes what could end a script
	if err != nil {
		return nil, err
	}
	lang := v.Language.String()
	texts := p.texts[lang]
	var body bytes.Buffer
	err = html.Execute(&body, map[string]any{
		"Lang": lang, "Dir": direction(lang), "Title": cmp.Or(p.title, v.Name), "Untitled": p.untitled, "Kind": v.Kind,
		"Files": p.filesAt(v.Base, v.Company), "Modules": scripts(v.Kind), "Images": p.files, "Styled": p.styled(),
		"Key": v.Key, "Cookie": v.Cookie, "Links": p.configs[lang].Links, "Config": template.JS(config),
		"Texts": template.JS(p.files[textsFile(v.Kind, lang)].plain), "Heading": texts[v.Kind+".heading"], "Unscripted": texts["noscript"], "Slow": texts["loading.slow"],
		"Language": texts["language.choose"], "Languages": p.languageChoices(lang),
	})
	return body.Bytes(), err
}

// Serve answers with the page at /{company_code}/{kind}.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, v View) {
	body, err := p.render(v)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", v.Language.String())
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", policy(v.Captcha, p.styled()))
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	if HasWidget(v.Captcha) {
		header.Set("Referrer-Policy", "strict-origin") // a provider checks which site it is on
	}
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()")
	header.Add("Vary", "Accept-Language, Cookie")
	send(w, r, body, func() []byte { return packPage(body) })
}

// IconURL returns the address of the icon of a company's provider, or "" if it has
// none. base is as in View.
func (p *Page) IconURL(base, company string, provider int) string {
	name := IconName(company, provider)
	if p.files[name] == nil {
		return ""
	}
	return p.filesAt(base, company) + name
}

// filesAt returns the address of the files, as seen from a company.
func (p *Page) filesAt(base, company string) string {
	return base + "/" + company + "/" + Prefix + p.version + "/"
}

// ServeFile answers with a file, if there is one. name is the part of the path after Prefix.
func (p *Page) ServeFile(w http.ResponseWriter, r *http.Request, name string) (found bool) {
	version, name, _ := strings.Cut(name, "/")
	f := p.files[name]
	if f == nil {
		return false
	}
	keep := "no-cache" // for another version, which another node may have
	if version == p.version {
		keep = "public, max-age=31536000, immutable"
	}
	f.serve(w, r, keep)
	return true
}

// scripts lists the modules of a kind of page. The first one starts it.
func scripts(kind string) []string {
	if kind == "security" {
		return append([]string{"security.js", "device.js"}, preloaded...)
	}
	return append([]string{"page.js", "journey.js"}, preloaded...)
}

// preloaded lists the modules that the page loads, so that a browser can load them
// at once.
var preloaded = []string{"client.js", "ui.js", "texts.js", "frame.js", "returnto.js", "screens.js", "captcha.js", "passkey.js"}

func (f *file) serve(w http.ResponseWriter, r *http.Request, keep string) {
	header := w.Header()
	header.Set("Cache-Control", keep)
	header.Set("ETag", f.etag)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Type", f.contentType)
	if strings.HasPrefix(f.contentType, "image/") {
		header.Set("Cross-Origin-Resource-Policy", "cross-origin")           // apps show the icons of providers
		header.Set("Content-Security-Policy", "default-src 'none'; sandbox") // an SVG can be a page of its own
	}
	if match := r.Header.Get("If-None-Match"); match != "" && strings.Contains(match, f.etag) {
		header.Add("Vary", "Accept-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, r, f.plain, func() []byte { return f.gzipped })
}

// send sends content, in its gzipped form if there is one and the client accepts it.
func send(w http.ResponseWriter, r *http.Request, content []byte, gzipped func() []byte) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	if slices.Contains(encode.AcceptedEncodings(r, nil), "gzip") {
		if packed := gzipped(); packed != nil {
			header.Set("Content-Encoding", "gzip")
			content = packed
		}
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(content) // the client may be gone
	}
}
