package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// navigates are the headers of a browser that navigates to a page.
const navigates = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\n"

// wantRedirect checks that the answer redirects a browser to this address.
func (a answer) wantRedirect(to string) {
	a.t.Helper()
	a = a.wantStatus(http.StatusSeeOther)
	a.wantHeader("Location", to)
	if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Vary") != "Authorization, Cookie" || len(a.Body) > 0 || a.Header["Content-Type"] != nil {
		a.t.Errorf("got %v %s", a.Header, a.Body)
	}
}

// Contract, section 13: a navigation without a valid session is redirected to the
// login page, with the address that it wanted. Other requests get the same answer as
// before.
func TestABrowserWithoutASessionIsSentToTheLoginPage(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra, handler: `
		login_page umbra acme
		public /open/*
		fresh 1h /fresh /acme/fresh`})
	s.run("where to", func(t *testing.T) {
		for uri, to := range map[string]string{
			"/":                             "/umbra/login?return_to=%2F",
			"/orders?page=2&sort=a%20b":     "/umbra/login?return_to=%2Forders%3Fpage%3D2%26sort%3Da%2520b",
			"/acme/orders":                  "/acme/login?return_to=%2Facme%2Forders",
			"/acme":                         "/acme/login?return_to=%2Facme",
			"/nobody/x":                     "/umbra/login?return_to=%2Fnobody%2Fx",
			"//evil.example/x":              "/umbra/login",
			"/.//evil.example":              "/umbra/login",
			"/%5Cevil.example":              "/umbra/login",
			"/" + strings.Repeat("x", 8192): "/umbra/login",
			"/" + strings.Repeat("x", 8191): "/umbra/login?return_to=%2F" + strings.Repeat("x", 8191),
			"/x?" + strings.Repeat("x", 99): "/umbra/login?return_to=%2Fx%3F" + strings.Repeat("x", 99),
		} {
			s.ask("GET", uri, navigates).wantRedirect(to)
			s.ask("HEAD", uri, navigates).wantRedirect(to)
		}
		s.ask("GET", "http://evil.example/x", navigates).wantRedirect("/umbra/login?return_to=%2Fx")
		s.ask("GET", "/acme;x/../umbra/y", navigates).want(wire.ErrHeaderMissing) // its company depends on who reads the path
	})
	s.run("with a session that is not good", func(*testing.T) {
		ended := s.moved("frank")
		a, _ := s.session("DELETE", "acme", ended+"Sec-Fetch-Site: same-origin\r\n")
		a.wantStatus(200)
		step := "Cookie: " + cookieName + "=" + s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token() + "\r\n"
		for how, cookie := range map[string]string{
			"ended": ended, "of a step": step, "none": "Cookie: " + cookieName + "=\r\n", "two": step + step,
			"another company's": s.moved("alice@example.com"),
		} {
			s.run(how, func(*testing.T) {
				s.ask("GET", "/umbra/x", navigates+cookie).wantRedirect("/umbra/login?return_to=%2Fumbra%2Fx")
			})
		}
	})
	s.run("with a session that is too old", func(*testing.T) {
		old := s.begun("mgs_", record.Authorized, time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour))
		cookie := "Cookie: " + cookieName + "=" + old + "\r\n"
		s.ask("GET", "/x", navigates+cookie).wantStatus(200)
		s.ask("GET", "/acme/fresh", navigates+cookie).wantRedirect("/acme/login?return_to=%2Facme%2Ffresh&fresh=3600")
		s.ask("GET", "/fresh", cookie).want(wire.ErrSessionInvalid)
		s.ask("GET", "/fresh", navigates).wantRedirect("/umbra/login?return_to=%2Ffresh")
	})
	s.run("who is answered as ever", func(t *testing.T) {
		for how, headers := range map[string]string{
			"a program":     "Accept: */*\r\n",
			"a script":      "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n",
			"an image":      "Accept: image/avif,*/*\r\nSec-Fetch-Mode: no-cors\r\n",
			"EventSource":   "Accept: text/event-stream\r\n",
			"a WebSocket":   navigates + "Connection: Upgrade\r\nUpgrade: websocket\r\n",
			"nothing asked": "",
		} {
			if a := s.ask("GET", "/x", headers).want(wire.ErrHeaderMissing); a.Header["Location"] != nil {
				t.Errorf("%s: %v", how, a.Header)
			}
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			s.ask(method, "/x", navigates).want(wire.ErrHeaderMissing)
		}
		s.ask("GET", "/x", navigates+bearer(strings.Replace(s.login("frank"), "mgs_", "mgs_A", 1))).want(wire.ErrTokenInvalid)
		s.ask("GET", "/x", navigates+"Authorization: Basic eDp5\r\n").wantStatus(303) // of a password for the whole site
		s.ask("TRACE", "/x", navigates).wantStatus(405)
		s.ask("GET", "/acme/v2/auth/x", navigates).want(wire.ErrNoRoute)
		s.ask("GET", "/open/x", navigates).wantStatus(200)
		s.ask("GET", "/x", navigates+s.moved("frank")).wantStatus(200)
	})
}

// The address of the login page includes the prefix that other directives have
// removed from the path. A rewritten path is not the address that the browser
// wanted.
func TestTheLoginPageIsWhereTheBrowserFindsIt(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra, site: `
		handle_path /app/* {
			mnemogate {
				login_page acme
				base_path /api
				company acme
			}
			reverse_proxy BACKEND
		}
		handle /keyed/* {
			mnemogate {
				login_page acme
				require_api_key
			}
			reverse_proxy BACKEND
		}
		handle {
			rewrite /old/* /new?{query}
			mnemogate {
				login_page acme
			}
			reverse_proxy BACKEND
		}`})
	s.ask("GET", "/app/x?y", navigates).wantRedirect("/app/api/acme/login?return_to=%2Fapp%2Fx%3Fy")
	s.ask("GET", "//app/x", navigates).wantRedirect("/api/acme/login")
	s.ask("GET", "/app/api/umbra/x", navigates).want(wire.ErrHeaderMissing) // nobody can use this path
	s.ask("GET", "/old/x?y", navigates).wantRedirect("/acme/login?return_to=%2Fold%2Fx%3Fy")
	// A navigation never has an API key, even if the user is logged in.
	s.ask("GET", "/keyed/x", navigates).want(wire.ErrAPIKeyMissing)
	s.ask("GET", "/keyed/x", navigates+sessionKey).wantRedirect("/acme/login?return_to=%2Fkeyed%2Fx")
}

// A provider with response_mode form_post lets the browser post its answer to the login
// page. The form leads to the page, with what the page reads and nothing else. Without such
// a provider nothing can be posted there.
func TestTheLoginPageTakesAProvidersForm(t *testing.T) {
	t.Parallel()
	provider := func(more string) string {
		return "oauth 1 oidc https://id.example.com {\nclient_id a\nclient_secret b\nredirect_uri https://app.example.com/api/acme/login\n" + more + "\n}\n"
	}
	s := startSite(t, siteConfig{company: people + provider("response_mode form_post"),
		more: strings.Replace(umbra, "captcha off", "captcha off\n"+provider(""), 1) + "\ncompany none {\napi_key off\ncaptcha off\n}\n", handler: "base_path /api\nlogin_page acme umbra none"})
	const form = "Content-Type: application/x-www-form-urlencoded\r\n"
	post := func(path, headers, body string) answer {
		return s.ask("POST", path, fmt.Sprintf("Origin: https://id.example.com\r\nSec-Fetch-Site: cross-site\r\n%sContent-Length: %d\r\n\r\n%s", headers, len(body), body))
	}
	leads := func(path, body, to string) {
		t.Helper()
		a := post(path, form, body)
		for name, want := range map[string]string{"Location": to, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
			if got := a.Header.Get(name); a.Status != http.StatusSeeOther || got != want {
				t.Errorf("%.60q: %d, %s: %.120q, want %.120q", body, a.Status, name, got, want)
			}
		}
		if len(a.Body) > 0 || a.Header["Set-Cookie"] != nil {
			t.Errorf("%.60q: %s %s", body, a.Header, a.Body)
		}
	}
	leads("/api/acme/login", "code=c%2B1&state=s-1&user=%7B%22email%22%3A%22eve%40example.com%22%7D&id_token=x", "/api/acme/login?code=c%2B1&state=s-1")
	leads("/api/acme/login?return_to=//evil.example", "state=s-1&error=user_cancelled_authorize&iss=https%3A%2F%2Fid.example.com&return_to=%2F%2Fevil.example",
		"/api/acme/login?error=user_cancelled_authorize&iss=https%3A%2F%2Fid.example.com&state=s-1")
	leads("/api/acme/login", "error=%22%3E%3Cscript%3E%0d%0aLocation:%20https://evil.example&state=%00%ff",
		"/api/acme/login?error=%22%3E%3Cscript%3E%0D%0ALocation%3A+https%3A%2F%2Fevil.example&state=%00%FF")
	leads("/api/acme/login", "code="+strings.Repeat("x", 4096), "/api/acme/login?code="+strings.Repeat("x", 4096))

	for _, address := range []string{"acme/login?error=access_denied", "acme/login?error=hidden", "acme/logout?error=invalid_request", "none/login?error=invalid_client",
		"acme/login?error=invalid_scope&error_description=hidden&state=hidden"} {
		s.get("/api/"+address, "").wantStatus(http.StatusOK)
	}
	s.tells(`"company":"acme","error":"invalid_scope","advice":"if nobody can log in with the provider, check scope`)
	if lines := strings.Count(s.log(), "a browser came back with a provider's error"); lines != 1 || strings.Contains(s.log(), "hidden") {
		t.Errorf("%d lines about errors in addresses, want one:\n%s", lines, s.log())
	}

	for _, body := range []string{"", "state=s-1", "code=a&code=b", "code=a&state=s&state=t", "code=a&state=%zz", "code=a;state=b", "Code=a", "code[]=a",
		"code=" + strings.Repeat("x", 9<<10), "code=" + strings.Repeat("%01", 4<<10)} {
		post("/api/acme/login", form, body).want(wire.ErrValidation).wantHeader("Location", "")
	}
	post("/api/acme/login", form, "code=a&user="+strings.Repeat("x", 16<<10)).want(wire.ErrTooLarge)
	for _, headers := range []string{"", "Content-Type: application/json\r\n", "Content-Type: text/plain\r\n", form + form, form + "Content-Encoding: gzip\r\n",
		"Content-Type: multipart/form-data; boundary=x\r\n", "Content-Type: application/x-www-form-urlencoded; charset=utf-16\r\n"} {
		post("/api/acme/login", headers, "code=a").want(wire.ErrMediaType)
	}
	for _, path := range []string{"/api/umbra/login", "/api/acme/logout"} {
		post(path, form, "code=a&state=b").want(wire.ErrMethod).wantHeader("Allow", "GET, HEAD")
	}
	s.ask("PUT", "/api/acme/login", "").want(wire.ErrMethod).wantHeader("Allow", "GET, HEAD, POST")
	post("/api/acme/login/", form, "code=a&state=b").want(wire.ErrHeaderMissing)
	s.get("/api/acme/login", "").wantStatus(http.StatusOK)
}
