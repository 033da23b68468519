package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A framedAttack is a request over HTTP/2 or HTTP/3. Its fields are names and values
// in turn, and the token replaces AUTH. A body and trailers may follow.
type framedAttack struct {
	fields   []string
	body     string
	trailers []string
	pass     bool   // passes with a token
	either   bool   // may pass with a token, with a part of its body
	start    string // how the request that the backend receives starts
	only     int    // the version of HTTP; 0 for both
}

func framedAttacks() map[string]framedAttack {
	const auth = "Bearer AUTH"
	attacks := map[string]framedAttack{}
	request := func(method, path string, more ...string) []string {
		return append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", path, "authorization", auth}, more...)
	}
	add := func(name string, a framedAttack) { attacks[name] = a }
	// Paths.
	for path, got := range map[string]string{
		"/x#y": "/x%23y", "/x?#y": "/x?#y", "/x?": "/x?", "//x": "//x", "/x\\y": "/x%5Cy", "/x;y": "/x;y", "/x%00": "/x%00", "/%0d%0aX-Profile-Mnemocode:%20mallory": "/%0d%0aX-Profile-Mnemocode:%20mallory",
		"/\xff": "/%FF", "/" + strings.Repeat("x", 5000): "/" + strings.Repeat("x", 5000), "/x y": "/x%20y", "/x HTTP/1.1": "/x%20HTTP/1.1", "//acme/x": "//acme/x", "/x?a b": "",
	} {
		add("path "+path, framedAttack{fields: request("GET", path), pass: got != "", start: "GET " + got + " HTTP/1.1\r\n"})
	}
	for _, path := range []string{"", "x", "?x", "#", "acme/x", "http:acme/x", "http://umbra/x", "http:acme/v2/auth/login", "x:y", "/x\x00", "/x\r\nX-Profile-Mnemocode: mallory", "/x HTTP/1.1\r\nX-Profile-Mnemocode: mallory\r\n\r\nGET /hidden", "/x\n", "/x\x7f", "/%", "/%zz", "/acme/v2/auth/x"} {
		add("no path "+path, framedAttack{fields: request("GET", path)})
	}
	add("path *", framedAttack{fields: request("OPTIONS", "*"), pass: true, start: "OPTIONS * HTTP/1.1\r\n", only: 3}) // the servers of HTTP/1 and HTTP/2 answer it themselves
	// Methods.
	for _, method := range []string{"get", "PROPFIND", "PRI", "M-SEARCH", "connect", "!#$%&'*+-.^_`|~1"} {
		add("method "+method, framedAttack{fields: request(method, "/x"), pass: true, start: method + " /x HTTP/1.1\r\n"})
	}
	for _, method := range []string{"", "TRACE", "GET /hidden HTTP/1.1\r\nX-Profile-Mnemocode: mallory\r\n\r\nGET", "GET\r\n", "GET ", " GET", "G\x00T", "GE(T", strings.Repeat("LONG", 9), "CONNECT"} {
		add("no method "+method, framedAttack{fields: request(method, "/x")})
	}
	connect := func(more ...string) framedAttack {
		return framedAttack{fields: append([]string{":method", "CONNECT", ":authority", "localhost"}, more...)}
	}
	add("CONNECT", connect("authorization", auth))
	add("CONNECT with a path", connect(":path", "/x", "authorization", auth))
	for _, protocol := range []string{"connect-udp", "connect-ip", "webtransport", "WebSocket", "websocket, x", "h2c", "http", "", "websocket\r\nX-Profile-Mnemocode: mallory"} {
		add("extended CONNECT "+protocol, connect(":scheme", "https", ":path", "/x", ":protocol", protocol, "authorization", auth))
	}
	for _, path := range []string{"/acme/v2/auth/login", "//acme/v2/auth/login", "/umbra%2fx", "http:acme/x"} {
		if a := connect(":scheme", "https", ":path", path, ":protocol", "websocket"); !strings.HasPrefix(path, "/umbra") {
			a.fields = append(a.fields, "authorization", auth)
			add("extended CONNECT "+path, a)
		} else {
			add("extended CONNECT without a token "+path, a)
		}
	}
	add("protocol of another method", framedAttack{fields: append([]string{":protocol", "websocket"}, request("GET", "/x")...)})
	// Pseudo-headers.
	for _, name := range []string{":method", ":path", ":authority", ":scheme"} {
		fields := request("GET", "/x")
		value := fields[slices.Index(fields, name)+1]
		add("two of "+name, framedAttack{fields: append([]string{name, value}, fields...)})
		add("another "+name, framedAttack{fields: append([]string{name, value + "x"}, fields...)})
		add("late "+name, framedAttack{fields: append(slices.Clone(fields), name, value)})
		i := slices.Index(fields, name)
		without := slices.Delete(slices.Clone(fields), i, i+2)
		if name != ":authority" {
			add("no "+name, framedAttack{fields: without, pass: false, only: map[string]int{":scheme": 2}[name]})
		}
		add("only a late "+name, framedAttack{fields: append(without, name, value)})
		add("no value of "+name, framedAttack{fields: append([]string{name, ""}, without...), only: map[string]int{":authority": 3, ":scheme": 2}[name]})
	}
	add("status", framedAttack{fields: append([]string{":status", "200"}, request("GET", "/x")...)})
	add("unknown pseudo-header", framedAttack{fields: append([]string{":x-profile-mnemocode", "mallory"}, request("GET", "/x")...)})
	for _, scheme := range []string{"http", "https", "HTTP"} {
		a := framedAttack{fields: request("GET", "/x"), pass: true, start: "GET /x HTTP/1.1\r\n"}
		a.fields[3] = scheme
		if scheme == "HTTP" {
			a.only = 3
		}
		add("scheme "+scheme, a)
	}
	for _, authority := range []string{"a b", "x\r\nX-Profile-Mnemocode: mallory", "x/umbra/x?", "x\x00", "...", "x#y", "a@b@c"} {
		a := framedAttack{fields: request("GET", "/x")}
		a.fields[5] = authority
		add("authority "+authority, a)
	}
	add("two hosts", framedAttack{fields: request("GET", "/x", "host", "other", "host", "umbra"), only: 3})
	add("another host", framedAttack{fields: request("GET", "/x", "host", "other"), only: 3})
	// Fields.
	name := "x-profile-mnemocode"
	for _, bad := range []string{"X-Profile-Mnemocode", "x-Profile-mnemocode", name + " ", " " + name, name + ":", name + "\x00", name + "\r\nx", "x profile mnemocode", "x\x7f", "", "x-y:z\r\n" + name, "\xef\xbb\xbf" + name, "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"} {
		add("name "+bad, framedAttack{fields: request("GET", "/x", bad, "mallory")})
	}
	for _, bad := range []string{"z\r\n" + name + ": mallory", "z\n" + name + ": mallory", "z\r" + name + ": mallory", "z\x00", "\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n", "z\x7f"} {
		add("value "+bad, framedAttack{fields: request("GET", "/x", "x-y", bad)})
		add("value of its own "+bad, framedAttack{fields: request("GET", "/x", name, bad)})
	}
	add("te", framedAttack{fields: request("GET", "/x", "te", "trailers, "+name), only: 3})
	for _, good := range []string{"", "mallory", " mallory ", "alice, mallory", "\xe9\xff", "\tmallory", strings.Repeat("m", 3000)} {
		add("forged "+good, framedAttack{fields: request("GET", "/x", name, good, name, good, "x-company-code", good, "x-company_code", good), pass: true, start: "GET /x HTTP/1.1\r\n"})
	}
	add("what proxies tell each other", framedAttack{fields: request("GET", "/x", "x-original-url", "/acme/v2/auth/login", "x-rewrite-url", "/umbra/x", "x-script-name", "/umbra", "script-name", "/umbra", "path-info", "/umbra/x", "x-http-method-override", "OPTIONS", "forwarded", "for=127.0.0.1", "x-forwarded-for", "127.0.0.1", "x-forwarded-user", "mallory", "early-data", "1", "incremental", "?1"),
		pass: true, start: "GET /x HTTP/1.1\r\n"})
	// Credentials.
	add("two tokens", framedAttack{fields: request("GET", "/x", "authorization", auth)})
	add("a token and another", framedAttack{fields: request("GET", "/x", "authorization", "Basic x")})
	add("an empty second", framedAttack{fields: request("GET", "/x", "authorization", "")})
	add("a token as trailer", framedAttack{fields: request("POST", "/x", "trailer", "authorization")[:8], body: "abc", trailers: []string{"authorization", auth}})
	// Bodies.
	hidden := "GET /hidden HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer AUTH\r\n\r\n"
	add("a body", framedAttack{fields: request("POST", "/x"), body: "abc" + hidden, pass: true, start: "POST /x HTTP/1.1\r\n"})
	add("a body that ends as chunks do", framedAttack{fields: request("POST", "/x"), body: "0\r\n\r\n" + hidden, pass: true, start: "POST /x HTTP/1.1\r\n"})
	add("a body of a GET", framedAttack{fields: request("GET", "/x"), body: "0\r\n\r\n" + hidden, pass: true, start: "GET /x HTTP/1.1\r\n"})
	add("a body of a HEAD", framedAttack{fields: request("HEAD", "/x"), body: hidden, pass: true, start: "HEAD /x HTTP/1.1\r\n"})
	add("a length and its body", framedAttack{fields: request("POST", "/x", "content-length", "3"), body: "abc", pass: true, start: "POST /x HTTP/1.1\r\n"})
	for _, length := range []string{"0", "2", "4000", "-1", "+3", "0x3", "3, 3", "9223372036854775808", "x", "3\r\n"} {
		add("a wrong length "+length, framedAttack{fields: request("POST", "/x", "content-length", length), body: "abc" + hidden, either: true, start: "POST /x HTTP/1.1\r\n"})
	}
	add("two lengths", framedAttack{fields: request("POST", "/x", "content-length", "3", "content-length", "0"), body: "abc", either: true, start: "POST /x HTTP/1.1\r\n"})
	add("chunks", framedAttack{fields: request("POST", "/x", "transfer-encoding", "chunked", "content-length", "0"), body: "0\r\n\r\n" + hidden})
	for _, bad := range [][]string{{":path", "/hidden"}, {"x-sum", "9\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n"}, {"X-Profile-Mnemocode", "mallory"}} {
		add(fmt.Sprintf("bad trailers %q", bad), framedAttack{fields: request("POST", "/x", "trailer", "x-sum"), body: "abc", trailers: bad})
	}
	add("trailers that are framing", framedAttack{fields: request("POST", "/x", "trailer", "x-sum"), body: "abc", trailers: []string{"content-length", "9", "x-sum", "9"}})
	return attacks
}

func eachFramedRequest(t *testing.T, s *h3site) {
	token := s.login("alice@example.com")
	before, sent := len(s.backend.requests()), 0
	send := func(version int, a framedAttack, token string) (got []string, status, body string, err error) {
		// The backend may receive a request after the client got the refusal.
		sent++
		number := fmt.Sprint(sent)
		defer func() {
			got = slices.DeleteFunc(s.backend.requests(), func(raw string) bool { return !strings.Contains(raw, "\r\nX-Attack: "+number+"\r\n") })
		}()
		fields := append(slices.Clone(a.fields), "x-attack", number)
		for i, field := range fields {
			fields[i] = strings.ReplaceAll(field, "AUTH", token)
		}
		if token == "" {
			for i := slices.Index(fields, "authorization"); i >= 0; i = slices.Index(fields, "authorization") {
				fields = slices.Delete(fields, i, i+2)
			}
		}
		content := strings.ReplaceAll(a.body, "AUTH", token)
		open := slices.Contains(fields, "CONNECT") // and waits for the server's response
		c := s.framed(version)
		c.headers(content == "" && a.trailers == nil && !open, fields...)
		if content != "" {
			c.data(content, a.trailers == nil && !open)
		}
		if a.trailers != nil {
			c.headers(true, a.trailers...)
		}
		status, body, err = c.read("")
		return got, status, body, err
	}
	for name, a := range framedAttacks() {
		for version := 2; version <= 3; version++ {
			if a.only != 0 && a.only != version {
				continue
			}
			s.run(fmt.Sprintf("HTTP/%d %.200q", version, name), func(t *testing.T) {
				got, status, body, err := send(version, a, "")
				if len(got) != 0 || strings.HasPrefix(status, "2") {
					t.Errorf("without a token: the application got %q; the answer is %s %q %v", got, status, body, err)
				}
				got, status, body, err = send(version, a, token)
				if len(got) == 0 && (a.either || !a.pass) {
					if strings.HasPrefix(status, "2") {
						t.Errorf("it is refused with %s %q %v", status, body, err)
					}
					return
				}
				if len(got) != 1 || !a.either && (!a.pass || status != "200" || err != nil) {
					t.Fatalf("the application got %q; the answer is %s %q %v", got, status, body, err)
				}
				_, content, err := identities[0].check(got[0])
				if err != nil || !strings.HasPrefix(got[0], a.start) {
					t.Errorf("the application got %q, want %q: %v", got[0], a.start, err)
				}
				if want := strings.ReplaceAll(a.body, "AUTH", token); content != want && !(a.either && strings.HasPrefix(want, content)) {
					t.Errorf("the application got the body %q, want %q", content, want)
				}
			})
		}
	}
	for _, raw := range s.backend.requests()[before:] {
		if _, _, err := identities[0].check(raw); err != nil || strings.Contains(raw[:strings.Index(raw, "\r\n")], "hidden") || !strings.Contains(raw, "\r\nX-Attack: ") {
			t.Errorf("the application got %q: %v", raw, err)
		}
	}
}
