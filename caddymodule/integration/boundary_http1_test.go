package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// An h1attack is a request over HTTP/1. The token replaces AUTH. The request that
// the backend must never receive asks for /hidden.
type h1attack struct {
	raw  string
	pass int  // how many requests with a token reach the backend
	last bool // the connection ends after it
}

func h1attacks() map[string]h1attack {
	const get, post, x = "GET /x HTTP/1.1\r\nHost: x\r\nAUTH", "POST /x HTTP/1.1\r\nHost: x\r\nAUTH", " HTTP/1.1\r\nHost: x\r\nAUTH\r\n"
	const hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\nAUTHX-Profile-Mnemocode: mallory\r\n\r\n"
	attacks := map[string]h1attack{}
	add := func(pass int, format string, parts ...string) {
		for _, part := range parts {
			raw := fmt.Sprintf(format, part)
			attacks[raw] = h1attack{raw: raw, pass: pass}
		}
	}
	// Other protocols.
	add(1, get+"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: %s\r\n\r\n",
		"h2c", "H2C", "h2", "HTTP/2.0", "TLS/1.0", "connect-udp", "connect-ip", "IRC/6.9", "h2c, websocket", "websocket, h2c", "websocket\r\nUpgrade: h2c", "h2c\r\nUpgrade: websocket", "", "websocket/13", "websocket x")
	add(1, get+"%s\r\n\r\n", "Connection: Upgrade", "Upgrade: websocket", "Upgrade: websocket\r\nConnection: X-Profile-Mnemocode", "Connection: Upgrade, close, X-Profile-Mnemocode\r\nUpgrade: h2c")
	add(1, get+"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n%s", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	// Methods. Caddy does not answer invalid ones.
	add(1, "%s"+" /x"+x, "get", "HEAD", "OPTIONS", "PROPFIND", "M-SEARCH", "QUERY", "PRI", "SSTP_DUPLEX_POST", "!#$%&'*+-.^_`|~1", "CONNECTX", "trace", "connect")
	add(0, "%s"+" /x"+x, "CONNECT", "TRACE", "", " GET", "G\x00T", "GE(T", "GET,POST", "\"GET\"", strings.Repeat("LONG", 9))
	add(0, "CONNECT %s"+x, "x", "x:443", "127.0.0.1:80", "http://x/x", "*", "/acme/v2/auth/login")
	// Credentials.
	add(0, get+"%s\r\n\r\n", "Authorization: Bearer x", "authorization: Basic x", "AUTHORIZATION:", "X-Y: z\r\nAUTHZ", "Authorization: Bearer mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", " , Bearer x", "\tx")
	add(1, get+"%s\r\n\r\n", "Authorization_: Bearer x", "X-Authorization: Bearer x", "Proxy-Authorization: Basic x", "Cookie: Authorization=x", "X-Api-Key: x\r\nX-Api-Key: y")
	// Framings.
	add(1, post+"%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Content-Length: 13\r\nTransfer-Encoding: chunked",
		"Content-Length: 0\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 1000000", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ", "Content-Length: 13", "Content-Length: 13\r\nContent-Length: 13", "X-Y: z\r\n Content-Length: 0\r\nContent-Length: 13")
	add(0, post+"%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+hidden, "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: chunked;x", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: gzip", "Transfer-Encoding: \"chunked\"",
		"Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked", "Transfer-Encoding: chunk\r\n ed", "Transfer-Encoding: chun\x00ked", "Transfer-Encoding: chunked\rx",
		"Content-Length: 13\r\nContent-Length: 14", "Content-Length: 13, 13", "Content-Length: +13", "Content-Length: -13", "Content-Length: 0x0d", "Content-Length: 1 3", "Content-Length: 1_3", "Content-Length: 13.0", "Content-Length: 18446744073709551629", "Content-Length: \xd9\xa1", "Content-Length : 13", "Content-Length: 13\x00")
	add(0, post+"Transfer-Encoding: chunked\r\n\r\n%s"+hidden, "-3\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "10000000000000003\r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3\r\nabc0\r\n\r\n", "g\r\n",
		"3\nabc\n0\n\n", "3;\nx\r\nabc\r\n0\r\n\r\n", "3;x\rabc\r\n0\r\n\r\n", "\r\n0\r\n\r\n", "0\r\nbad trailer\r\n\r\n")
	add(1, post+"Transfer-Encoding: chunked\r\n\r\n%s", "3;x=y\r\nabc\r\n0\r\n\r\n", "003\r\nabc\r\n000;last\r\n\r\n", "3\r\nabc\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: identity\r\nHost: y\r\nConnection: close\r\nX-Profile-Mnemocode: mallory\r\n\r\n")
	attacks["chunks in HTTP/1.0"] = h1attack{raw: "POST /x HTTP/1.0\r\nHost: x\r\nAUTHTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + hidden, pass: 1, last: true}
	attacks["a body in HTTP/1.0"] = h1attack{raw: "POST /x HTTP/1.0\r\nHost: x\r\nAUTHContent-Length: 3\r\n\r\nabc" + hidden, pass: 1, last: true}
	add(1, "GET /x HTTP/1.1\r\nHost: x\r\nAUTHContent-Length: 3\r\nExpect: %s\r\n\r\nabc", "100-continue", "100-Continue", "100-continue, x")
	add(0, "GET /x HTTP/1.1\r\nHost: x\r\nAUTHContent-Length: 3\r\nExpect: %s\r\n\r\nabc"+hidden, "200-ok", "x")
	// Targets.
	add(1, "GET %s"+x, "http://x/x", "HTTP://X/x", "https://x/x", "http://other.example.com/x", "http://other.example.com", "http://acme", "http://acme?x", "http://user:password@x/x", "http://[::1]:80/x", "http://x:/x", "ftp://x/x", "x://y/z",
		"http:/x", "http:///x", "*", "//x/x", "//acme/x", "/x#y", "/x?", "/x??", "/x?#", "/x%00", "/x%0d%0aX-Profile-Mnemocode:%20mallory", "http://x/x#y", "/x\\y", "/\xff")
	add(0, "GET %s"+x, "http:acme/x", "http:x", "x:y", "urn:acme:x", "data:,x", "mailto:alice@example.com", "HTTP:acme/v2/auth/login", "x", "?x", "#x", "acme/x", "", "/x y", "/x\x00", "/x\x7f", "/x\ty", "http://x y/", "http://[::1/x", "http://x\x00/", "%%2fx", "/x HTTP/1.1", ":80/x", "://x", "/%", "/%%zz")
	// Hosts.
	add(1, "GET http://%s/x HTTP/1.1\r\nHost: acme\r\nAUTHX-Forwarded-Host: x\r\n\r\n", "x", "localhost", "127.0.0.1", "umbra:1")
	add(0, "GET /x HTTP/1.1\r\nAUTH%s\r\n", "", "Host:\r\n", "Host: x\r\nHost: x\r\n", "Host: x\r\nhost: y\r\n", "Host: x y\r\n", "Host: x/y\r\n", "Host: x\x00\r\n", "Host: a@b\r\n", "Host: ...\r\n", "Host: x\r\n\ty\r\n", "Host : x\r\n", "Host: x#y\r\n", "Host: x\\y\r\n")
	// Headers that proxies send each other.
	add(1, get+"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /acme/v2/auth\r\nX-Forwarded-Uri: /public\r\nX-Forwarded-User: mallory\r\nForwarded: for=127.0.0.1;host=x\r\nX-Real-Ip: 127.0.0.1\r\n"+
		"X-Original-URL: %[1]s\r\nX-Rewrite-URL: %[1]s\r\nX-Original-Uri: %[1]s\r\nX-Script-Name: %[1]s\r\nSCRIPT_NAME: %[1]s\r\nPATH_INFO: %[1]s\r\nX-HTTP-Method-Override: OPTIONS\r\nX-HTTP-Method: POST\r\nX-Method-Override: TRACE\r\nMax-Forwards: 0\r\nEarly-Data: 1\r\nIncremental: ?1\r\n\r\n",
		"/acme/v2/auth/login", "/umbra/x", "/")
	// Malformed headers.
	id := "X-Profile-Mnemocode"
	add(0, get+"%s\r\n\r\n"+hidden, id+" : mallory", id+"\t: mallory", " "+id+": mallory\x00", id+"\x00: mallory", id+": mal\x00lory", "\x00"+id+": mallory", "X-Y: z\r"+id+": mallory", id, ": mallory", id+"\x0b: mallory", "\xef\xbb\xbf"+id+": mallory",
		id+"\xa0: mallory", "X\u2010Profile-Mnemocode: mallory", "X-Profile-Mnemocode\u017f: mallory", "("+id+"): mallory", id+"=mallory", "X Profile Mnemocode: mallory", "X/Profile/Mnemocode: mallory", "X[Profile]Mnemocode: mallory", "X-Y: z\x7f")
	add(0, "GET /x HTTP/1.1\r\n%s\r\nHost: x\r\nAUTH\r\n", " "+id+": mallory", "\tx", "\x0b"+id+": mallory")
	add(1, get+"%s\r\n\r\n", id+": mallory", "X-Y: z\r\n "+id+": mallory", "X-Y: z\r\n\t"+id+": mallory", id+":\r\n mallory", "X-Y: z\n"+id+": mallory", id+":mallory\n"+id+":\tmallory", id+":", id+": \xe9\xff", id+": mallory, alice", "X-Y: \t z \t", "X-Y: \\\"; "+id+": mallory",
		strings.Repeat("X", 6_000)+": y", "X-Y: "+strings.Repeat("z", 6_000), id+strings.Repeat("-", 6_000)+": mallory", id+": "+strings.Repeat("m", 6_000), strings.Repeat(id+": mallory\r\n", 200)+"X-Y: z")
	add(0, get+"%s\r\n\r\n", strings.Repeat("X", 2<<20)+": y", "X-Y: "+strings.Repeat("z", 2<<20))
	// Request lines.
	add(0, "%s", "GET /x\r\n\r\n", "GET /x HTTP/1.1 \r\nHost: x\r\nAUTH\r\n", "GET  /x HTTP/1.1\r\nHost: x\r\nAUTH\r\n", "GET\t/x\tHTTP/1.1\r\nHost: x\r\nAUTH\r\n", "GET /x HTTP/1.10\r\nHost: x\r\nAUTH\r\n", "GET /x HTTP/2.0\r\nHost: x\r\nAUTH\r\n", "GET /x http/1.1\r\nHost: x\r\nAUTH\r\n",
		"GET /x HTTP/1,1\r\nHost: x\r\nAUTH\r\n", "GET /x HTTP/0.9\r\nHost: x\r\nAUTH\r\n", "GET /x HTTP/\r\nHost: x\r\nAUTH\r\n", "\x16\x03\x01\x00\x05GET /x HTTP/1.1\r\nHost: x\r\nAUTH\r\n", "\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\nAUTH\r\n", "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /x HTTP/1.1\r\nHost: x\r\nAUTH\r\n")
	add(1, "%s", "GET /x HTTP/1.1\nHost: x\nAUTH\n", "GET /x HTTP/1.9\r\nHost: x\r\nAUTH\r\n")
	attacks["HTTP/1.0 without Host"] = h1attack{raw: "GET /x HTTP/1.0\r\nAUTH\r\n" + hidden, pass: 1, last: true}
	return attacks
}

func TestEachRequestIsRefusedOrHasOneIdentity(t *testing.T) {
	t.Parallel()
	s := startBoundary(t, "")
	s.run("HTTP/1", func(t *testing.T) { eachRequestOverHTTP1(t, s, h1attacks()) })
	s.run("HTTP/2 and HTTP/3", func(t *testing.T) { eachFramedRequest(t, s) })
}

func TestEachRequestInFullDuplexIsRefusedOrHasOneIdentity(t *testing.T) {
	t.Parallel()
	attacks := h1attacks() // without a body, there is nothing that it changes
	maps.DeleteFunc(attacks, func(_ string, a h1attack) bool {
		raw := strings.ToLower(a.raw)
		return !strings.Contains(raw, "content-length") && !strings.Contains(raw, "transfer-encoding")
	})
	eachRequestOverHTTP1(t, startBoundary(t, "enable_full_duplex"), attacks)
}

func eachRequestOverHTTP1(t *testing.T, s *h3site, attacks map[string]h1attack) {
	authorization := "Authorization: Bearer " + s.login("alice@example.com") + "\r\n"
	const last = "GET /last HTTP/1.1\r\nHost: x\r\nAUTHConnection: close\r\n\r\n"
	for name, attack := range attacks {
		s.run(fmt.Sprintf("%.200s", name), func(t *testing.T) {
			raw := attack.raw
			if !attack.last {
				raw += last
			}
			var answers string
			got := s.seen(func() { answers = s.spill(strings.ReplaceAll(raw, "AUTH", "")) })
			if len(got) != 0 {
				t.Errorf("without a token: the application got %q; the answers are %.1000q", got, answers)
			}
			got = s.seen(func() { answers = s.spill(strings.ReplaceAll(raw, "AUTH", authorization)) })
			if len(got) != attack.pass || attack.pass == 0 && strings.HasPrefix(answers, "HTTP/1.1 2") {
				t.Errorf("the application got %q, want %d requests; the answers are %.1000q", got, attack.pass, answers)
			}
			for _, raw := range got {
				if strings.Contains(raw, " /hidden ") {
					t.Errorf("the application got what was hidden; the answers are %.1000q", answers)
				}
				if _, _, err := identities[0].check(raw); err != nil {
					t.Errorf("%v; the application got %q", err, raw)
				}
			}
		})
	}
}
