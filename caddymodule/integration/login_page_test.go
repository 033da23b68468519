package integration

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

var (
	fileOfPage = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	keyOfPage  = regexp.MustCompile(`<meta name="mnemogate-key" content="([^"]+)">`)
	inline     = regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?: [^>]*)?>[^<]|javascript:`)
	dataOfPage = regexp.MustCompile(`<script type="application/json" id="given">\{"texts": \{[^<]*</script>`)
)

// loaded requests the login page as a browser does.
func (s *site) loaded(path, headers string) (a answer, markup string) {
	s.t.Helper()
	a = s.ask("GET", path, "Accept: text/html\r\n"+headers)
	if a.Status != http.StatusOK || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		s.t.Fatalf("GET %s: got %d %s\n%s", path, a.Status, a.Header, a.Body)
	}
	return a, string(a.Body)
}

// Texts from the configuration are escaped, and a logo can't run scripts.
func TestTheLoginPageIsServed(t *testing.T) {
	t.Parallel()
	dir, texts := t.TempDir(), t.TempDir()
	writeFile(t, dir+"/logo.svg", `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`)
	writeFile(t, texts+"/ar.json", `{"language": "العربية", "login.heading": "تسجيل الدخول"}`)
	const title = `</title><script>alert(1)</script><img src=x onerror='alert(1)'>`
	s := startSite(t, siteConfig{company: "captcha off", handler: "base_path /api\nlogin_page {\ntitle \"" + title + "\"\nlogo " + dir + "/logo.svg\ntexts " + texts + "\n}"})
	for _, path := range []string{"/api/acme/login?return_to=/x", "/api/acme/logout"} {
		a, markup := s.loaded(path, "")
		if !strings.Contains(markup, html.EscapeString(title)) {
			t.Errorf("%s: the title is missing: %s", path, markup)
		}
		markup = strings.ReplaceAll(markup, html.EscapeString(title), "")
		for name, want := range map[string]string{
			"Cache-Control":              "no-store",
			"X-Frame-Options":            "DENY",
			"X-Content-Type-Options":     "nosniff",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; " +
				"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if found := inline.FindString(dataOfPage.ReplaceAllLiteralString(markup, "")); found != "" {
			t.Errorf("%s: %q stands in the page itself, which its policy forbids", path, found)
		}
		files := fileOfPage.FindAllStringSubmatch(markup, -1)
		if len(files) < 8 {
			t.Errorf("%s names only the files %v", path, files)
		}
		for _, file := range files {
			if !strings.HasPrefix(file[1], "/api/acme/v2/page/") {
				t.Errorf("%s loads %s, which is none of its own", path, file[1])
				continue
			}
			a := s.ask("GET", file[1], "Accept-Encoding: gzip\r\n")
			if a.Status != http.StatusOK || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
				a.Header.Get("X-Content-Type-Options") != "nosniff" || !slices.Contains(a.Header["Vary"], "Accept-Encoding") {
				t.Errorf("%s: got %d %s", file[1], a.Status, a.Header)
			}
			if image := strings.HasPrefix(a.Header.Get("Content-Type"), "image/"); image != (a.Header.Get("Content-Security-Policy") == "default-src 'none'; sandbox") {
				t.Errorf("%s: got %s", file[1], a.Header)
			}
			if same := s.ask("GET", file[1], "If-None-Match: "+a.Header.Get("ETag")+"\r\n"); same.Status != http.StatusNotModified {
				t.Errorf("%s: it has not changed, and is sent again: %d", file[1], same.Status)
			}
		}
	}

	s.run("other paths and methods", func(t *testing.T) {
		s.ask("POST", "/api/acme/login", "Content-Length: 0\r\n").wantStatus(http.StatusMethodNotAllowed).wantHeader("Allow", "GET, HEAD")
		s.ask("GET", "/api/acme/v2/page/1/page.css", "").wantStatus(http.StatusOK).wantHeader("Cache-Control", "no-cache")
		if a := s.ask("GET", "/api/acme/v2/client.js", "Accept-Encoding: gzip;q=0.0, br\r\n"); a.Header.Get("Content-Encoding") != "" {
			t.Error("it was not wanted in gzip")
		}
		for _, path := range []string{"/api/acme/v2/page/1/page.html", "/api/acme/v2/page/1/texts/", "/api/acme/v2/page/"} {
			s.ask("GET", path, "").want(wire.ErrNoRoute).wantHeader("Cache-Control", "no-store")
		}
		for _, path := range []string{"/acme/login", "/api/umbra/login", "/api/acme/login/", "/api/Acme/login", "/api/umbra/v2/page/1/page.css"} {
			s.ask("GET", path, "").want(wire.ErrHeaderMissing)
		}
	})
	s.run("languages", func(t *testing.T) {
		for _, c := range []struct{ path, accept, html, heading string }{
			{"/api/acme/login", "", `<html lang="en" dir="ltr">`, "Log in"},
			{"/api/acme/login", "de-AT,de;q=0.9,en;q=0.8", `<html lang="de" dir="ltr">`, "Anmelden"},
			{"/api/acme/login", "eo, fr;q=0.3, en;q=0.2", `<html lang="fr" dir="ltr">`, "Connexion"},
			{"/api/acme/login", "es-419", `<html lang="es" dir="ltr">`, "Iniciar sesión"},
			{"/api/acme/login", "lt", `<html lang="lt" dir="ltr">`, "Prisijungimas"},
			{"/api/acme/login", "zh", `<html lang="en" dir="ltr">`, "Log in"},
			{"/api/acme/login", "\"<>;;;q=x", `<html lang="en" dir="ltr">`, "Log in"},
			{"/api/acme/login", "ar-EG", `<html lang="ar" dir="rtl">`, "تسجيل الدخول"},
			{"/api/acme/login?lang=lt", "de", `<html lang="lt" dir="ltr">`, "Prisijungimas"},
			{"/api/acme/login?lang=de-AT", "lt", `<html lang="de" dir="ltr">`, "Anmelden"},
			{"/api/acme/login?lang=" + strings.Repeat("de-", 1<<10), "fr", `<html lang="fr" dir="ltr">`, "Connexion"},
			{"/api/acme/login?lang=%3Cscript%3E", "de", `<html lang="de" dir="ltr">`, "Anmelden"},
			{"/api/acme/login", "de\r\nCookie: mnemogate-language=lt", `<html lang="lt" dir="ltr">`, "Prisijungimas"}, // the user has chosen it
			{"/api/acme/login?lang=fr", "de\r\nCookie: mnemogate-language=lt", `<html lang="fr" dir="ltr">`, "Connexion"},
		} {
			a, markup := s.loaded(c.path, "Accept-Language: "+c.accept+"\r\n")
			if !strings.Contains(markup, c.html) || !strings.Contains(markup, "<h1>"+c.heading+"</h1>") || !slices.Contains(a.Header["Vary"], "Accept-Language, Cookie") {
				t.Errorf("%.40s, %s: got %s %s", c.path, c.accept, a.Header, markup)
			}
		}
	})
}

// club is a provider with an icon, for the login page of a company.
func club(id int, company string) string {
	return fmt.Sprintf(`
		oauth %d oauth2 {
			name Club
			icon testdata/logo.svg
			authorize_url https://club.example.com/authorize
			token_url https://club.example.com/token
			userinfo_url https://club.example.com/user
			subject id
			client_id ours
			client_secret hidden
			redirect_uri https://app.example.com/%s/login
		}`, id, company)
}

// Contract, section 16: if there are several companies, a site has the login pages
// of those that login_page names. It accepts no key of another company's page,
// wherever that key was issued.
func TestALoginPageIsOfTheCompaniesThatItNames(t *testing.T) {
	t.Parallel()
	withIcon := strings.TrimSuffix(umbra, "}\n") + club(1, "umbra") + "\n}\n"
	s := startSite(t, siteConfig{company: people, more: withIcon, site: `
		handle_path /both/* {
			mnemogate {
				login_page umbra {
					title "Umbra's own"
				}
				login_page acme {
					logo testdata/logo.svg
					title off
				}
			}
			reverse_proxy BACKEND
		}
		handle_path /one/* {
			mnemogate {
				login_page acme
			}
			reverse_proxy BACKEND
		}
		handle_path /none/* {
			mnemogate
			reverse_proxy BACKEND
		}`})
	keyAt := func(path string) string {
		_, markup := s.loaded(path, "")
		key := keyOfPage.FindStringSubmatch(markup)
		if key == nil {
			t.Fatalf("no key in %s", markup)
		}
		return "X-Api-Key: " + key[1] + "\r\n"
	}
	keys := map[string]string{"acme": keyAt("/one/acme/login"), "umbra": keyAt("/both/umbra/login")}
	keyAt("/both/acme/logout")
	for company, looks := range map[string]string{"umbra": "<div class=\"brand\"><p><bdi>Umbra&#39;s own</bdi></p></div>", "acme": ` alt="acme"></picture></div>`} {
		if _, markup := s.loaded("/both/"+company+"/login", ""); !strings.Contains(strings.ReplaceAll(markup, "\n", ""), looks) {
			t.Errorf("%s: there is no %s in\n%s", company, looks, markup)
		}
	}
	for site, companies := range map[string][]string{"/both": {"acme", "umbra"}, "/one": {"acme"}, "/none": {}} {
		for company, key := range keys {
			good := slices.Contains(companies, company)
			for path, want := range map[string]*wire.Error{
				"POST /v2/auth/login": wire.ErrValidation, "POST /v2/auth/logout": wire.ErrHeaderMissing, "GET /v2/captcha": wire.ErrNoRoute,
				"GET /v2/session": wire.ErrHeaderMissing, "GET /v2/client.json": nil,
			} {
				method, path, _ := strings.Cut(path, " ")
				a := s.ask(method, site+"/"+company+path, key)
				switch {
				case !good:
					a.want(wire.ErrAPIKeyInvalid)
				case want == nil:
					a.wantStatus(200)
				default:
					a.want(want)
				}
			}
			for _, path := range []string{"/login", "/logout", "/v2/page/1/page.css"} {
				if a := s.ask("GET", site+"/"+company+path, ""); good != (a.Status == 200) || !good && a.str("error_code") != wire.ErrHeaderMissing.Code {
					t.Errorf("%s/%s%s: got %d %s", site, company, path, a.Status, a.Body)
				}
			}
			s.ask("GET", site+"/"+company+"/v2/client.js", "").wantStatus(200)
		}
	}
	// No page tells who else there is.
	for page, want := range map[string]int{"/both/umbra": 200, "/both/acme": 404, "/one/acme": 404} {
		s.ask("GET", page+"/v2/page/1/icon-umbra-1", "").wantStatus(want)
	}
	s.ask("GET", "/both/x", navigates).wantRedirect("/both/umbra/login?return_to=%2Fboth%2Fx")
	s.ask("GET", "/both/acme/x", navigates).wantRedirect("/both/acme/login?return_to=%2Fboth%2Facme%2Fx")
	s.ask("GET", "/one/x", navigates).wantRedirect("/one/acme/login?return_to=%2Fone%2Fx")
	s.ask("GET", "/one/umbra/x", navigates).want(wire.ErrHeaderMissing)
	s.ask("GET", "/one/umbra/login", navigates).want(wire.ErrHeaderMissing)
}

// Contract, section 16: the links, the sign-up, the images, the style sheet and the
// choice to stay logged in are the operator's.
func TestTheLoginPageIsTheCompanysOwn(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people + club(3, "acme"), site: `
		handle_path /own/* {
			mnemogate {
				login_page {
					logo testdata/logo.svg
					logo_dark testdata/logo.svg
					favicon testdata/logo.svg
					style testdata/style.css
					link Imprint https://example.com/imprint
					link Help tel:+37060000000 support
					link de Impressum https://example.com/de/impressum
					signup "Create an account" /join
					remember
				}
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate {
				login_page
			}
			reverse_proxy BACKEND
		}`})
	_, english := s.loaded("/own/acme/login", "")
	for _, want := range []string{
		`<a href="https://example.com/imprint" dir="auto">Imprint</a>`, `<a href="tel:&#43;37060000000" dir="auto">Help</a>`, `/favicon">`, `/style/style.css">`,
		`/logo_dark" media="(prefers-color-scheme: dark)">`,
	} {
		if !strings.Contains(english, want) {
			t.Errorf("the page has no %s\n%s", want, english)
		}
	}
	if _, german := s.loaded("/own/acme/login?lang=de", ""); !strings.Contains(german, ">Impressum</a>") || strings.Contains(german, "Imprint") {
		t.Errorf("the German page is %s", german)
	}
	config := func(path string) (c struct {
		Links    []map[string]any
		SignUp   map[string]any
		Remember bool
		OAuth    []struct{ Icon string }
	}) {
		t.Helper()
		must(t, json.Unmarshal(s.ask("GET", path+"/acme/v2/client.json", sessionKey).wantStatus(200).Body, &c))
		return c
	}
	own := config("/own")
	if got := fmt.Sprint(own.Links, own.SignUp, own.Remember); got != "[map[text:Imprint url:https://example.com/imprint] map[support:true text:Help url:tel:+37060000000]] map[text:Create an account url:/join] true" {
		t.Errorf("client.json has %s", got)
	}
	s.ask("GET", own.OAuth[0].Icon, "").wantStatus(200).wantHeader("Content-Type", "image/svg+xml").wantHeader("Cross-Origin-Resource-Policy", "cross-origin")
	if plain := config(""); len(plain.Links) != 0 || plain.SignUp != nil || plain.Remember {
		t.Errorf("the other site's client.json has %+v", plain)
	}
	const asks = "Content-Type: application/json\r\nContent-Length: %d\r\n"
	for _, c := range []struct{ site, body, want string }{
		{"/own", `{"remember":true}`, "; Max-Age=86400; "},
		{"/own", `{"remember":false}`, ""},
		{"/own", "", ""},
		{"", `{"remember":true}`, ""}, // this site does not offer it
	} {
		a := s.ask("POST", c.site+"/acme/v2/session", sessionKey+bearer(s.login("alice@example.com"))+fmt.Sprintf(asks, len(c.body))+"\r\n"+c.body)
		if set := a.wantStatus(200).Header.Get("Set-Cookie"); strings.Contains(set, "Max-Age") != (c.want != "") || !strings.Contains(set, c.want) {
			t.Errorf("%s %s: the cookie is %s", c.site, c.body, set)
		}
	}
	token := s.login("alice@example.com")
	s.ask("POST", "/acme/v2/session", sessionKey+bearer(token)+fmt.Sprintf(asks, 14)+"\r\n"+`{"remember":1}`).wantStatus(400)
	s.get("/", token).wantStatus(200) // it was not exchanged
}
