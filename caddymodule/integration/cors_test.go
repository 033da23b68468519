package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Contract, section 7: with cors, preflights of listed origins are answered on auth
// routes and protected paths. Answers to listed origins have the headers that
// browsers need.
func TestListedOriginsAreAnswered(t *testing.T) {
	t.Parallel()
	const listed, unlisted = "https://app.example.com", "https://evil.example.com"
	s := startSite(t, siteConfig{company: people, site: `
		mnemogate {
			cors ` + listed + ` http://localhost:5173
		}
		header /added Access-Control-Allow-Origin *
		handle /broken {
			reverse_proxy 127.0.0.1:1
		}
		handle /missing {
			error 404
		}
		handle /greeting {
			respond hello
		}
		handle {
			reverse_proxy BACKEND
		}`})
	token := s.login("alice@example.com")
	ask := func(method, path, origin string, headers ...string) answer {
		s.t.Helper()
		r := s.request(method, path, "")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		for pair := range slices.Chunk(headers, 2) {
			r.Header.Set(pair[0], pair[1])
		}
		return s.do(r)
	}
	asked := func(a answer, allowed string) {
		a.t.Helper()
		var want []string
		if allowed != "" {
			want = []string{allowed}
		}
		if got := a.Header["Access-Control-Allow-Origin"]; !slices.Equal(got, want) {
			a.t.Errorf("Access-Control-Allow-Origin is %q, want %q", got, want)
		}
		if !strings.Contains(strings.Join(a.Header["Vary"], ","), "Origin") {
			a.t.Errorf("Vary is %q", a.Header["Vary"])
		}
		if exposed := strings.Join(a.Header["Access-Control-Expose-Headers"], ","); allowed != "" && a.JSON != nil && !strings.Contains(exposed, "WWW-Authenticate") {
			a.t.Errorf("Access-Control-Expose-Headers is %q", exposed)
		}
	}
	s.run("preflights", func(t *testing.T) {
		unreached := s.unreached()
		for _, path := range []string{"/acme/v2/auth/login", "/nobody/v2/auth/login", "/acme/v2/auth/none", "/acme/x", "/", "/added"} {
			for _, origin := range []string{listed, "http://localhost:5173"} {
				a := ask("OPTIONS", path, origin, "Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "authorization,x-api-key")
				asked(a.wantStatus(http.StatusNoContent), origin)
				for name, want := range map[string]string{"Allow-Methods": "PATCH", "Allow-Headers": "authorization,x-api-key", "Max-Age": "600", "Allow-Credentials": ""} {
					if got := a.Header.Get("Access-Control-" + name); got != want {
						t.Errorf("%s: %s is %q, want %q", path, name, got, want)
					}
				}
			}
		}
		preflight := []string{"Access-Control-Request-Method", "POST"}
		for _, origin := range []string{unlisted, "null", "", listed + ":443", strings.ToUpper(listed), "http://app.example.com", listed + ", " + unlisted} {
			asked(ask("OPTIONS", "/acme/v2/auth/login", origin, preflight...).want(wire.ErrMethod), "")
			asked(ask("OPTIONS", "/acme/x", origin, preflight...).want(wire.ErrHeaderMissing), "")
		}
		// Only some OPTIONS requests are preflights, and no other method is.
		asked(ask("OPTIONS", "/acme/x", listed).want(wire.ErrHeaderMissing), listed)
		asked(ask("OPTIONS", "/acme/v2/auth/login", listed).want(wire.ErrMethod), listed)
		asked(ask("GET", "/acme/x", listed, preflight...).want(wire.ErrHeaderMissing), listed)
		a := s.exchange("OPTIONS / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: " + listed + "\r\nOrigin: " + listed + "\r\nAccess-Control-Request-Method: GET\r\n\r\n")
		asked(a.want(wire.ErrHeaderMissing), "")
		unreached()
	})
	s.run("our answers", func(*testing.T) {
		asked(ask("POST", "/acme/v2/auth/login", listed).want(wire.ErrAPIKeyMissing), listed)
		asked(ask("POST", "/acme/v2/auth/logout", listed, "X-Api-Key", testKey).want(wire.ErrHeaderMissing), listed)
		asked(ask("GET", "/acme/v2/auth/none", listed).want(wire.ErrNoRoute), listed)
		asked(ask("POST", "/acme/v2/auth/logout", listed, "X-Api-Key", testKey, "Authorization", "Bearer "+s.login("frank")).wantState(record.None), listed)
		asked(ask("GET", "/x", unlisted).want(wire.ErrHeaderMissing), "")
		asked(ask("GET", "/x", "").want(wire.ErrHeaderMissing), "")
	})
	s.run("the application's answers", func(t *testing.T) {
		authorized := []string{"Authorization", "Bearer " + token}
		for path, status := range map[string]int{"/": 200, "/cors": 200, "/greeting": 200, "/added": 200, "/missing": 404, "/broken": 502} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				a := ask(method, path, listed, authorized...).wantStatus(status)
				asked(a, listed)
				if path == "/cors" {
					if got := a.Header.Values("Access-Control-Allow-Credentials"); got != nil {
						t.Errorf("the credentials that the application allows others are allowed %s", listed)
					}
					if got := strings.Join(a.Header["Access-Control-Expose-Headers"], ","); !strings.Contains(got, "X-Total") || !strings.Contains(got, "Retry-After") {
						t.Errorf("Access-Control-Expose-Headers is %q", got)
					}
					if got := strings.Join(a.Header["Vary"], ","); !strings.Contains(got, "Accept") {
						t.Errorf("Vary is %q", got)
					}
				}
			}
		}
		asked(ask("GET", "/", unlisted, authorized...).wantStatus(200), "")
		// The backend may allow other origins itself.
		if a := ask("GET", "/cors", unlisted, authorized...); len(a.Header["Access-Control-Allow-Origin"]) != 2 {
			t.Errorf("got %q", a.Header["Access-Control-Allow-Origin"])
		}
		conn, _ := s.open("/", "Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: "+listed+"\r\nAuthorization: Bearer "+token+"\r\n", 101)
		_ = conn.Close()
		_, sse := s.open("/sse", "Origin: "+listed+"\r\nAuthorization: Bearer "+token+"\r\n", 200)
		if line, err := sse.ReadString('\n'); err != nil || line != "data: tick\n" {
			t.Errorf("got %q, %v", line, err)
		}
	})
}
