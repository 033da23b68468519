package integration

import (
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// Important spellings of paths, as raw requests: invalid spellings of a route are
// never forwarded, and no path passes without a token.
func TestNoSpellingPassesWithoutAToken(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra, site: `
		route /route/* {
			mnemogate
			reverse_proxy BACKEND
		}
		handle /handle/* {
			reverse_proxy BACKEND
			mnemogate
		}
		handle_path /stripped/* {
			mnemogate
			reverse_proxy BACKEND
		}
		@named header X-Named *
		handle @named {
			mnemogate
			reverse_proxy BACKEND
		}
		handle /based/* {
			mnemogate {
				base_path /based
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	token := s.login("alice@example.com")
	authorized := "Authorization: Bearer " + token + "\r\n"
	ask := func(method, uri, headers string) answer {
		s.t.Helper()
		return s.exchange(method + " " + uri + " HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n" + headers + "\r\n")
	}
	passes := func(uri, headers string) {
		s.t.Helper()
		if a := ask("GET", uri, authorized+headers); a.Status != 200 || !strings.Contains(string(a.Body), "\r\nX-Profile-Mnemocode: alice\r\n") {
			s.t.Errorf("with a token: got %d %s", a.Status, a.Body)
		}
	}
	for _, uri := range []string{
		"/", "/x", "/acme/x", "//", "/.", "/..", "/%2e%2e/x", "/%", "/%zz", "/x%00", "/x\\y", "/x;y", "*", "http://other.example.com", "http://other.example.com/x",
		"/acme/v2/auth", "/acme/v2/Auth/login", "/acme/v2/auth/../x", "/route/x", "/route/../x", "/handle/x", "/handle/%2e%2e/x", "/stripped/", "/stripped/x",
		"/stripped", "/stripped/stripped/x", "/STRIPPED/x", "/based/x", "/based", "/route/acme/v2/auth/login", "/x?/acme/v2/auth/login", "/x?token=" + token,
	} {
		s.run("no token "+uri, func(t *testing.T) {
			before := len(s.backend.requests())
			a := ask("GET", uri, "")
			if strings.HasPrefix(uri, "/%") && a.Status == 400 && a.JSON == nil { // net/http does not accept it as a request
				return
			}
			a.want(wire.ErrHeaderMissing)
			a = ask("GET", uri, "X-Named: 1\r\n")
			a.want(wire.ErrHeaderMissing)
			if len(s.backend.requests()) != before {
				t.Error("it went to the application")
			}
		})
	}
	for _, uri := range []string{"/x", "//", "/%2e%2e/x", "/acme/v2/auth", "/acme/x", "//acme/x", "/%61cme/x", "/route/x", "/handle/x", "/stripped/x", "/based/acme/x", "/umbraX/x",
		"/x/../acme/y", "http://other.example.com/x", "http://other.example.com"} {
		s.run("token "+uri, func(t *testing.T) {
			passes(uri, "")
			passes(uri, "X-Named: 1\r\n")
		})
	}
	for _, uri := range []string{"/umbra/x", "//umbra/x", "/%75mbra/x", "/umbra;x/y", "/acme/../umbra/x", "/umbra/%2e%2e/acme/x", "/umbra%2fx/../acme/x",
		"/stripped/umbra/x", "/based/umbra/x", "/based/../umbra/x", "http://acme/umbra/x"} {
		s.run("other company's "+uri, func(t *testing.T) {
			before := len(s.backend.requests())
			ask("GET", uri, authorized).want(wire.ErrTokenInvalid)
			if len(s.backend.requests()) != before {
				t.Error("it went to the application")
			}
		})
	}
	for _, uri := range []string{"/acme/v2/auth/", "/acme/v2/auth/none", "/acme/v2/auth/login/", "//acme/v2/auth/login", "/acme/v2/auth%2flogin", "/acme/v2/x/%2e%2e/auth/login",
		`/acme/v2/auth\login`, "/acme/v2/auth/login;x", "/acme/v2/auth/login%00", "/nobody/v2/auth/x", "/based/%61cme/v2/auth/login",
		"http:acme/v2/auth/login", "http:acme/x", "x:y"} {
		s.run("404 "+uri, func(t *testing.T) {
			before := len(s.backend.requests())
			for _, method := range []string{"GET", "POST", "OPTIONS", "CONNECT"} {
				if method == "CONNECT" && !strings.HasPrefix(uri, "/") {
					continue // then it is an absolute URL
				}
				a := ask(method, uri, authorized+"X-Api-Key: "+testKey+"\r\nContent-Length: 0\r\n")
				a.want(wire.ErrNoRoute)
			}
			if len(s.backend.requests()) != before {
				t.Error("it went to the application")
			}
		})
	}
	for _, uri := range []string{"/acme/v2/auth/login", "/nobody/v2/auth/login", "/stripped/acme/v2/auth/login", "/based/acme/v2/auth/login", "http://example.com/acme/v2/auth/login"} {
		s.run("405 "+uri, func(t *testing.T) {
			before := len(s.backend.requests())
			for _, method := range []string{"GET", "PUT", "OPTIONS", "TRACE", "CONNECT", "post", "PATCH"} {
				if method == "CONNECT" && !strings.HasPrefix(uri, "/") {
					continue
				}
				a := ask(method, uri, authorized+"X-HTTP-Method-Override: POST\r\nX-Method-Override: POST\r\nX-Api-Key: wrong\r\n")
				a.want(wire.ErrMethod)
				if a.Header.Get("Allow") != "POST" {
					t.Errorf("%s: Allow is %q", method, a.Header.Get("Allow"))
				}
			}
			if a := ask("HEAD", uri, authorized); a.Status != 405 || a.Header.Get("Allow") != "POST" {
				t.Errorf("HEAD: got %d, Allow %q", a.Status, a.Header.Get("Allow"))
			}
			ask("POST", uri, "Content-Length: 0\r\n").want(wire.ErrAPIKeyMissing)
			if len(s.backend.requests()) != before {
				t.Error("it went to the application")
			}
		})
	}
}
