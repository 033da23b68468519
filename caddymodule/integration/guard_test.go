package integration

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// umbra is a second company.
var umbra = "company umbra {\napi_key other-key\ncaptcha off\n" + account("zoe", "") + "}\n"

func (s *site) doH2(r *http.Request) answer {
	s.t.Helper()
	return get(exchanged(s.t, h2client, r))(s.t)
}

// Contract, section 7: browser caches never share an answer of the backend between
// users. Other values of Vary are kept.
func TestAnswersVaryByToken(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		mnemogate {
			cors https://app.example.com
			public /open
		}
		handle /broken {
			reverse_proxy 127.0.0.1:1
		}
		handle /missing {
			error 404
		}
		handle /greeting {
			respond hello
		}
		handle /nothing {
		}
		handle /header/* {
			uri strip_prefix /header
			header Vary X-Before
			reverse_proxy BACKEND
		}
		handle /down/* {
			uri strip_prefix /down
			reverse_proxy BACKEND {
				header_down Vary X-Down
			}
		}
		handle /encoded/* {
			uri strip_prefix /encoded
			encode gzip
			reverse_proxy BACKEND
		}
		handle {
			reverse_proxy BACKEND
		}
		handle_errors 404 {
			respond "no such page"
		}`})
	token := s.login("alice@example.com")
	raw := func(head, body string) string {
		return "/raw?answer=" + url.QueryEscape("HTTP/1.1 "+head+"\r\n\r\n"+body)
	}
	private := raw("200 OK\r\nCache-Control: private, max-age=60\r\nContent-Length: 2", "ok")
	accepting := raw("200 OK\r\nVary: Accept-Language\r\nVary: X-Tenant, X-Other\r\nContent-Length: 2", "ok")
	for _, test := range []struct {
		name, path string
		status     int
		want       []string // in addition to Origin, which cors puts first
	}{
		{"private", private, 200, nil},
		{"with a Vary of its own", accepting, 200, []string{"Accept-Language", "X-Tenant, X-Other"}},
		{"by anything", raw("200 OK\r\nVary: *\r\nContent-Length: 2", "ok"), 200, []string{"*"}},
		{"not modified", raw("304 Not Modified\r\nETag: \"1\"\r\nVary: Accept", ""), 304, []string{"Accept"}},
		{"without content", raw("204 No Content", ""), 204, nil},
		{"behind early hints", raw("103 Early Hints\r\nVary: X-Early\r\n\r\nHTTP/1.1 200 OK\r\nVary: Accept\r\nContent-Length: 2", "ok"), 200, []string{"Accept"}},
		{"in chunks, with trailers", raw("200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\nX-Sum: 9\r\n\r\n"), 200, nil},
		{"an error", raw("500 Oops\r\nContent-Length: 2", "no"), 500, nil},
		{"no application", "/broken", 502, nil},
		{"an error of Caddy's", "/missing", 404, nil},
		{"no handler", "/nothing", 200, nil},
		{"Caddy's own", "/greeting", 200, nil},
		{"header_down", "/down" + private, 200, []string{"X-Down"}},
		{"encode", "/encoded" + raw("200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000", strings.Repeat("compress me ", 200)[:2000]), 200, []string{"Accept-Encoding"}},
	} {
		s.run(test.name, func(t *testing.T) {
			want := slices.Concat([]string{"Origin"}, test.want, []string{"Authorization"})
			r := s.getRequest(test.path, token)
			r.Header.Set("Accept-Encoding", "gzip")
			a := s.do(r).wantStatus(test.status)
			if !slices.Equal(a.Header["Vary"], want) {
				t.Errorf("Vary is %q, want %q", a.Header["Vary"], want)
			}
			cache := "private" // a CDN may ignore Vary
			if strings.Contains(test.path, "max-age") {
				cache = "private, max-age=60"
			}
			if got := a.Header["Cache-Control"]; !slices.Equal(got, []string{cache}) {
				t.Errorf("Cache-Control is %q, want %q", got, cache)
			}
			r = s.getRequest(test.path, token)
			r.Header.Set("Accept-Encoding", "gzip")
			if a := s.doH2(r).wantStatus(test.status); !slices.Equal(a.Header["Vary"], want) {
				t.Errorf("HTTP/2: Vary is %q, want %q", a.Header["Vary"], want)
			}
		})
	}
	s.run("early hints reach no HTTP/1 cache, which may take them for the answer", func(t *testing.T) {
		for want, do := range map[string]func(*http.Request) answer{"[]": s.do, "[100 103]": s.doH2} {
			var early []int
			r := s.getRequest(raw("100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2", "ok"), token)
			a := do(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
				early = append(early, status)
				return nil
			}}))).wantStatus(200)
			if got := fmt.Sprint(early); got != want || a.Header["Link"] != nil {
				t.Errorf("got %s and then %v, want %s", got, a.Header, want)
			}
		}
	})
	s.run("a header directive replaces only what it knows of", func(t *testing.T) {
		if got, want := s.get("/header"+private, token).wantStatus(200).Header["Vary"], []string{"X-Before", "Authorization"}; !slices.Equal(got, want) {
			t.Errorf("Vary is %q, want %q", got, want)
		}
	})
	s.run("Cache-Control of its own", func(t *testing.T) {
		for _, own := range []string{"max-age=60", "max-age=0, must-revalidate", "no-cache", `private="Set-Cookie"`, "Public, max-age=60", "max-age=1,s-maxage=5", "no-store", "PRIVATE"} {
			want := []string{own}
			if strings.HasPrefix(own, "max-age=60") || strings.HasSuffix(own, "must-revalidate") || own == "no-cache" || strings.Contains(own, "Cookie") { // a CDN would keep it although it came with a cookie
				want = append(want, "private")
			}
			a := s.get(raw("200 OK\r\nCache-Control: "+own+"\r\nContent-Length: 2", "ok"), token).wantStatus(200)
			if got := a.Header["Cache-Control"]; !slices.Equal(got, want) {
				t.Errorf("%s: Cache-Control is %q, want %q", own, got, want)
			}
		}
	})
	s.run("without a user", func(t *testing.T) {
		if a := s.get("/open", "").wantStatus(200); a.Header["Cache-Control"] != nil {
			t.Errorf("Cache-Control is %q", a.Header["Cache-Control"])
		}
	})
	want := []string{"Origin", "Authorization"}
	authorized := "Authorization: Bearer " + token + "\r\n"
	s.run("HEAD", func(t *testing.T) {
		a := s.exchange("HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + authorized + "\r\n").wantStatus(200)
		if !slices.Equal(a.Header["Vary"], want) {
			t.Errorf("Vary is %q, want %q", a.Header["Vary"], want)
		}
	})
	s.run("streams", func(t *testing.T) {
		for path, status := range map[string]int{"/sse": 200, "/download": 200, "/socket": 101} {
			upgrade := ""
			if status == 101 {
				upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
			}
			if _, _, response := s.begin(path, upgrade+authorized, status); !slices.Equal(response.Header["Vary"], want) {
				t.Errorf("%s: Vary is %q, want %q", path, response.Header["Vary"], want)
			}
		}
	})
	s.run("refusals", func(t *testing.T) {
		for _, a := range []answer{
			s.get("/x", "").want(wire.ErrHeaderMissing),
			s.get("/x", someToken).want(wire.ErrTokenInvalid),
			s.exchange("TRACE /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + authorized + "\r\n").want(wire.ErrMethod),
		} {
			if !slices.Equal(a.Header["Vary"], want) {
				t.Errorf("%s: Vary is %q, want %q", a.Body, a.Header["Vary"], want)
			}
		}
	})
}

// What reaches the backend, and what is refused. One site serves all requests.
func TestGuard(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{
		company: people, more: umbra + "company brief {\napi_key brief-key\ncaptcha off\nsession {\nlifetime 1ms\n}\n" + account("bea", "") + "}",
		env: []string{"GODEBUG=http2xconnect=1"}, // WebSockets over HTTP/2
	})
	s.run("only WebSockets are upgraded", func(t *testing.T) { onlyWebSocketsAreUpgraded(t, s) })
	s.run("protected paths refuse", func(t *testing.T) { protectedPathRefuses(t, s) })
	s.run("CONNECT and TRACE are refused", func(t *testing.T) { connectAndTraceAreRefused(t, s) })
	s.run("pipelined requests are answered one by one", func(t *testing.T) { pipelinedRequestsAreAnsweredOneByOne(t, s) })
	s.run("without options, paths and protocols are the application's", func(t *testing.T) { withoutOptionsAllIsTheApplications(t, s) })
}

// Contract, section 7: Connection keeps only close, keep-alive and upgrade, and
// Upgrade only websocket.
func onlyWebSocketsAreUpgraded(t *testing.T, s *site) {
	token := s.login("alice@example.com")
	start := "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n"
	for headers, upgraded := range map[string]bool{
		"Connection: Upgrade\r\nUpgrade: websocket\r\n":                                         true,
		"Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n":                             true,
		"Connection: keep-alive\r\nConnection: X-Other, UPGRADE\r\nUpgrade: websocket\r\n":      true,
		"Connection: close\r\nUpgrade: websocket\r\n":                                           false,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n":   false,
		"Connection: Upgrade, close\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n":                  false,
		"Connection: Upgrade, close\r\n":                                                        false,
		"Connection: Upgrade, X-Other, close\r\nUpgrade: h2c\r\nX-Other: stays\r\nTE: gzip\r\n": false,
	} {
		s.run(headers, func(t *testing.T) {
			if upgraded {
				conn, _ := s.open("/", headers+"Authorization: Bearer "+token+"\r\n", 101)
				_ = conn.Close()
			} else {
				s.exchange(start + headers + "\r\n").wantStatus(200)
			}
			got := s.backend.last()
			if lines := linesNamed(got, "Upgrade"); upgraded && !slices.Equal(lines, []string{"Upgrade: websocket"}) || !upgraded && lines != nil {
				t.Errorf("the application got %q", lines)
			}
			if lines := linesNamed(got, "Connection"); upgraded && !slices.Equal(lines, []string{"Connection: Upgrade"}) || !upgraded && lines != nil {
				t.Errorf("the application got %q", lines)
			}
			if strings.Contains(headers, "stays") && linesNamed(got, "X-Other") == nil {
				t.Error("Connection made a header disappear")
			}
		})
	}
	s.run("none without a token", func(t *testing.T) {
		unreached := s.unreached()
		s.exchange("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").want(wire.ErrHeaderMissing)
		s.exchange("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n").want(wire.ErrHeaderMissing)
		unreached()
	})
}

// Contract, sections 2, 3 and 7: the answers to requests without a valid token.
func protectedPathRefuses(t *testing.T, s *site) {
	token, zoe, expired := s.login("alice@example.com"), s.loginAt("umbra", "other-key", "zoe"), s.loginAt("brief", "brief-key", "bea")
	step := s.post("auth/login", "", fields{"login_id": "carol@example.com"}).wantState(record.CheckPassword).token()
	ended := s.login("frank")
	s.post("auth/logout", ended, nil).wantState(record.None)
	flipped := token[:len(token)-1] + string(token[len(token)-1]+1) // another encoding of the same bytes

	tests := []struct {
		name, headers string
		want          *wire.Error
	}{
		{"nothing", "", wire.ErrHeaderMissing},
		{"a cookie", "Cookie: Authorization=Bearer " + token + "; session_token=" + token + "\r\n", wire.ErrHeaderMissing},
		{"other headers", "Proxy-Authorization: Bearer " + token + "\r\nX-Authorization: Bearer " + token + "\r\nX-Auth-Token: " + token + "\r\n", wire.ErrHeaderMissing},
		{"an identity", "X-Profile-Mnemocode: alice\r\nX-Company-Code: acme\r\n", wire.ErrHeaderMissing},
		{"an API key", "X-Api-Key: " + testKey + "\r\n", wire.ErrHeaderMissing},
		{"an empty header", "Authorization:\r\n", wire.ErrHeaderInvalid},
		{"another scheme", "Authorization: Basic " + token + "\r\n", wire.ErrHeaderInvalid},
		{"two headers", bearer(token) + bearer(token), wire.ErrHeaderInvalid},
		{"two headers, the first good", bearer(token) + "authorization: Basic x\r\n", wire.ErrHeaderInvalid},
		{"no such token", bearer("mgs_" + strings.Repeat("A", 43)), wire.ErrTokenInvalid},
		{"nothing like a token", bearer("x"), wire.ErrTokenInvalid},
		{"the token in another spelling", bearer(flipped), wire.ErrTokenInvalid},
		{"the token with padding", bearer(token + "="), wire.ErrTokenInvalid},
		{"the token in another case", bearer(strings.ToUpper(token)), wire.ErrTokenInvalid},
		{"an ended session", bearer(ended), wire.ErrTokenInvalid},
		{"another company's token", bearer(zoe), wire.ErrTokenInvalid},
		{"an expired session of another company", bearer(expired), wire.ErrTokenInvalid},
		{"a session on its way", bearer(step), wire.ErrSessionInvalid},
	}
	check := func(t *testing.T, a answer, want *wire.Error) answer {
		t.Helper()
		a.want(want).wantChallenge()
		for name, value := range map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
			if got := a.Header[name]; !slices.Equal(got, []string{value}) {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
		return a
	}
	unreached := s.unreached()
	for _, test := range tests {
		s.run(test.name, func(t *testing.T) {
			got := check(t, s.exchange("GET /acme/x?Authorization=Bearer+"+token+"&access_token="+token+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+test.headers+"\r\n"), test.want)
			// Other methods and requests that pretend to be another request are
			// refused, too.
			for _, method := range []string{"OPTIONS", "POST", "DELETE", "PROPFIND", "get", "LONG-AND-UNKNOWN"} {
				check(t, s.exchange(method+" http://other.example.com/acme/x HTTP/1.1\r\nHost: y\r\nConnection: close\r\nContent-Length: 0\r\n"+
					"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /public\r\nX-Original-URL: /acme/v2/auth/login\r\n"+
					"X-Rewrite-URL: /public\r\nX-HTTP-Method-Override: OPTIONS\r\nOrigin: http://x\r\nAccess-Control-Request-Method: GET\r\n"+test.headers+"\r\n"), test.want)
			}
			head := s.exchange("HEAD /acme/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + test.headers + "\r\n")
			if head.Status != test.want.Status || head.Header.Get("Www-Authenticate") != got.Header.Get("Www-Authenticate") || len(head.Body) != 0 {
				t.Errorf("HEAD: got %d %v %q", head.Status, head.Header, head.Body)
			}
			if strings.Contains(test.name, "another company") || strings.Contains(test.name, "other company's") {
				return // if the path names no company, any company's is accepted
			}
			check(t, s.exchange("GET /x HTTP/1.0\r\n"+test.headers+"\r\n"), test.want)
		})
	}
	s.run("an expired session", func(t *testing.T) {
		for _, path := range []string{"/brief/x", "/x"} {
			check(t, s.get(path, expired), wire.ErrTokenExpired)
		}
	})
	unreached()
	s.run("and what passes", func(t *testing.T) {
		for _, test := range []struct{ path, token, user, company string }{
			{"/acme/x", token, "alice", "acme"}, {"/x", token, "alice", "acme"}, {"/", zoe, "zoe", "umbra"}, {"/umbra", zoe, "zoe", "umbra"}, {"/Acme/x", zoe, "zoe", "umbra"},
		} {
			for _, method := range []string{"GET", "OPTIONS", "PROPFIND", "get", "M-SEARCH"} {
				a := s.exchange(method + " " + test.path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nauthorization: bEARER " + test.token + "\r\n\r\n").wantStatus(200)
				for _, line := range []string{method + " " + test.path + " HTTP/1.1", "X-Profile-Mnemocode: " + test.user, "X-Company-Code: " + test.company} {
					if !slices.Contains(strings.Split(string(a.Body), "\r\n"), line) {
						t.Errorf("the application got %q, want a line %q", a.Body, line)
					}
				}
			}
		}
	})
}

// Contract, section 7: CONNECT and TRACE get 405, with or without a token.
func connectAndTraceAreRefused(t *testing.T, s *site) {
	token := s.login("alice@example.com")
	unreached := s.unreached()
	for _, start := range []string{"TRACE /x", "TRACE *", "CONNECT /x", "CONNECT example.com:443", "CONNECT 127.0.0.1:1", "TRACE http://example.com/"} {
		start += " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		for _, headers := range []string{"", bearer(token)} {
			if a := s.exchange(start + headers + "\r\n").want(wire.ErrMethod); !strings.HasPrefix(a.Header.Get("Allow"), "GET, ") {
				t.Errorf("%s: Allow is %q", start, a.Header.Get("Allow"))
			}
		}
		s.exchange(start + ":protocol: websocket\r\n\r\n").wantStatus(400)
	}
	open := func(fields ...string) *h2conn {
		c := s.h2()
		c.headers(false, append([]string{":method", "CONNECT", ":authority", "x"}, fields...)...)
		return c
	}
	extended := []string{":scheme", "http", ":path", "/acme/x", ":protocol", "websocket", "sec-websocket-version", "13"}
	for status, fields := range map[string][][]string{
		"401": {extended},
		"405": {
			{"authorization", "Bearer " + token},
			{":scheme", "http", ":path", "/x", ":protocol", "connect-udp", "authorization", "Bearer " + token},
			{":scheme", "http", ":path", "/acme/v2/auth/login", ":protocol", "websocket"},
		},
	} {
		for _, fields := range fields {
			if got, body := open(fields...).answer(""); got != status || !strings.Contains(body, `"error_code"`) {
				t.Errorf("%q: got %s %s, want %s", fields, got, body, status)
			}
		}
	}
	unreached()
	// RFC 8441: a WebSocket over HTTP/2.
	c := open(append(extended, "authorization", "Bearer "+token, "x-profile-mnemocode", "mallory")...)
	c.data("ping", false)
	if status, body := c.answer("ping"); status != "200" || body != "ping" {
		t.Errorf("WebSocket over HTTP/2: got %s %q", status, body)
	}
	got := s.backend.last()
	if !strings.HasPrefix(got, "GET /acme/x HTTP/1.1\r\n") || !slices.Equal(linesNamed(got, "X-Profile-Mnemocode", "Upgrade"), []string{"Upgrade: websocket", "X-Profile-Mnemocode: alice"}) {
		t.Errorf("the application got %q", got)
	}
}

// Without their options, these paths are the application's, and protocols of WebSockets
// are neither checked nor removed.
func withoutOptionsAllIsTheApplications(t *testing.T, s *site) {
	token := s.login("alice@example.com")
	for _, path := range []string{"/acme/v2/me/x", "/acme/login", "/acme/logout", "/acme/v2/page/1/page.css"} {
		s.get(path, "").want(wire.ErrHeaderMissing)
		if a := s.get(path, token).wantStatus(200); !strings.HasPrefix(string(a.Body), "GET "+path+" ") {
			t.Errorf("the application got %s", a.Body)
		}
	}
	s.ask("POST", "/acme/v2/stepup", "Content-Length: 0\r\n").want(wire.ErrHeaderMissing)
	s.ask("POST", "/acme/v2/stepup", bearer(token)+"Content-Length: 0\r\n").wantStatus(200) // nothing may ask for one
	s.me("GET", "sessions", "", nil).want(wire.ErrHeaderMissing)
	s.ask("GET", "/", handshake("chat, mnemogate.bearer."+token)).want(wire.ErrHeaderMissing)
	s.open("/", bearer(token)+handshake("chat, mnemogate.bearer.x"), 101)
	if got := linesNamed(s.backend.last(), "Sec-WebSocket-Protocol"); !slices.Equal(got, []string{"Sec-WebSocket-Protocol: chat, mnemogate.bearer.x"}) {
		t.Errorf("the application got %q", got)
	}
}
