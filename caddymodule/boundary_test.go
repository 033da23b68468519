package caddymodule

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"github.com/mnemogate/mnemogate/flows"
)

// Contract, 7: nothing but this module sets or unsets the identity headers.
// Here every spelling of their names is tried, over every version of HTTP.

// separators are the characters that a header's name may have, but for letters
// and digits.
const separators = "-_.!#$%&'*+^`|~"

// everySpelling returns a header's name with every combination of separators
// for its dashes, in one case after the other.
func everySpelling(name string) []string {
	all := []string{""}
	for part := range strings.SplitSeq(name, "-") {
		var longer []string
		for _, begun := range all {
			if begun == "" {
				longer = append(longer, part)
				continue
			}
			for _, c := range separators {
				longer = append(longer, begun+string(c)+part)
			}
		}
		all = longer
	}
	swapped := func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r ^ 0x20
		}
		return r
	}
	for i, spelling := range all {
		switch i % 4 {
		case 1:
			all[i] = strings.ToLower(spelling)
		case 2:
			all[i] = strings.ToUpper(spelling)
		case 3:
			all[i] = strings.Map(swapped, spelling)
		}
	}
	return append(all, strings.ToLower(name), strings.ToUpper(name), strings.Map(swapped, name))
}

func everySpellingOf(names ...string) (all []string) {
	for _, name := range names {
		all = append(all, everySpelling(name)...)
	}
	return all
}

// An identity is what the application must be told, and under which names.
type identity struct {
	path                   string // where mnemogate is so configured
	userHeader, user       string
	companyHeader, company string
	profile                []string // the lines of it
}

var profileHeaders = []string{"X-Profile-Email", "X-Profile-Phone", "X-Profile-Role"}

// all are the names under which the application is told something.
func (id identity) all() []string {
	return append([]string{id.userHeader, id.companyHeader}, profileHeaders...)
}

var identities = []identity{
	{"/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme", nil},
	{"/named/", "X-User-Id2", "alice", "Tenant-", "acme", nil},
	{"/buffered/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme", nil},
	{"/profile/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme",
		[]string{"X-Profile-Email: alice@example.com", "X-Profile-Phone: +37060000001", "X-Profile-Role: B%C3%BCro%20100%25"}},
}

// startBoundary runs one site with all identities, which lets through all
// header names that Caddy can be made to let through.
func startBoundary(t *testing.T, servers string) *h3site {
	var underscores, dots []string
	for _, id := range identities[:2] {
		for _, name := range everySpellingOf(id.all()...) {
			switch name = strings.ToLower(name); {
			case strings.Contains(name, "*"): // Caddy takes these for patterns
			case strings.Contains(name, "_"):
				underscores = append(underscores, name)
			case strings.Contains(name, "."):
				dots = append(dots, name)
			}
		}
	}
	s := startHTTP3(t, siteConfig{
		company: people,
		servers: "expected_underscore_headers " + strings.Join(underscores, " ") + "\nexpected_dot_headers " + strings.Join(dots, " ") + "\n" + servers,
		site: `
		handle /named/* {
			mnemogate {
				header x-User-ID2
				company_header Tenant-
			}
			reverse_proxy BACKEND
		}
		handle /profile/* {
			mnemogate {
				forward role email phone
			}
			reverse_proxy BACKEND
		}
		handle /buffered/* {
			mnemogate
			reverse_proxy BACKEND {
				request_buffers 4KiB
			}
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`,
	})
	s.update("alice", true, func(a *flows.Account) { a.Role = "Büro 100%" })
	return s
}

// check finds fault with the raw bytes that the application got: they must be
// one request, with the identity and nothing like it, not even as a trailer.
func (id identity) check(raw string) (*http.Request, string, error) {
	reader := bufio.NewReader(strings.NewReader(raw))
	r, err := http.ReadRequest(reader)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, "", err
	}
	if _, err := reader.Peek(1); err != io.EOF {
		return nil, "", errors.New("something stands behind the request")
	}
	head, _, _ := strings.Cut(raw, "\r\n\r\n")
	want := append([]string{id.companyHeader + ": " + id.company, id.userHeader + ": " + id.user}, id.profile...)
	slices.Sort(want)
	if got := linesNamed(head, id.all()...); !slices.Equal(got, want) {
		return nil, "", fmt.Errorf("it has %q, want %q", got, want)
	}
	var trailers strings.Builder
	_ = r.Trailer.Write(&trailers)
	for name := range r.Trailer {
		trailers.WriteString(name + ":\r\n") // may be announced only
	}
	if got := linesNamed(trailers.String(), id.all()...); got != nil {
		return nil, "", fmt.Errorf("it has the trailers %q", got)
	}
	return r, string(body), nil
}

// passes checks that an answer is the application's, to one request that it
// got with one true identity.
func (id identity) passes(t *testing.T, how string, a answer) {
	t.Helper()
	if a.Status != 200 {
		t.Errorf("%s: got %d %s", how, a.Status, a.Body)
	} else if _, _, err := id.check(string(a.Body)); err != nil {
		t.Errorf("%s: %v; the application got %q", how, err, a.Body)
	}
}

// An h1conn is a connection that carries one request after the other.
type h1conn struct {
	s      *site
	conn   net.Conn
	reader *bufio.Reader
}

func (c *h1conn) ask(raw string) answer {
	c.s.t.Helper()
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.s.addr)
		if err != nil {
			c.s.t.Fatal(err)
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c.conn, raw); err != nil {
		c.s.t.Fatal(err)
	}
	method, _, _ := strings.Cut(raw, " ")
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		c.s.t.Fatalf("no answer to %q: %v", raw, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.s.t.Fatalf("the answer to %q breaks off: %v", raw, err)
	}
	if response.Close {
		c.close()
	}
	return newAnswer(c.s.t, response, body)
}

func (c *h1conn) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func TestNoSpellingOfAnIdentityHeaderReachesTheApplication(t *testing.T) {
	t.Parallel()
	s := startBoundary(t, "")
	token := s.login("alice@example.com")
	h3 := s.h3client()
	// over sends a request by HTTP/2 or HTTP/3.
	over := func(t *testing.T, c *http.Client, method, path, body string, header, trailer http.Header) answer {
		t.Helper()
		url := s.URL
		if c == h3 {
			url = "https://localhost"
		}
		var reader io.Reader
		if body != "" {
			reader = io.MultiReader(strings.NewReader(body)) // of no known length
		}
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, reader)
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = trailer
		for name, values := range header {
			r.Header[name] = values
		}
		r.Header["Authorization"] = []string{"Bearer " + token}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		got, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return newAnswer(t, response, got)
	}
	for _, id := range identities {
		s.run(id.path, func(t *testing.T) {
			names := everySpellingOf(id.userHeader, id.companyHeader)
			if id.profile != nil {
				names = everySpellingOf(profileHeaders...)
			}
			start := " " + id.path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n"
			h1 := &h1conn{s: s.site}
			defer h1.close()
			s.run("alone", func(t *testing.T) { // of several Caddy drops some itself
				for _, name := range names {
					id.passes(t, name, h1.ask("GET"+start+name+": mallory\r\n\r\n"))
					lower := http.Header{strings.ToLower(name): {"mallory"}}
					id.passes(t, name+" over HTTP/2", over(t, h2client, "GET", id.path, "", lower, nil))
					id.passes(t, name+" over HTTP/3", over(t, h3, "GET", id.path, "", lower, nil))
				}
			})
			s.run("many", func(t *testing.T) {
				for names := range slices.Chunk(names, 40) { // as many as the limits let through
					var forged, announced strings.Builder
					together, trailer := http.Header{}, http.Header{"X-Sum": {"9"}}
					fields := []string{":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", id.path, "authorization", "Bearer " + token}
					trailers := []string{"x-sum", "9"}
					for _, name := range names {
						forged.WriteString(name + ": mallory\r\n")
						announced.WriteString("Trailer: " + name + "\r\n")
						together[strings.ToLower(name)] = []string{"mallory", "eve"}
						trailer[http.CanonicalHeaderKey(name)] = []string{"mallory"}
						trailers = append(trailers, strings.ToLower(name), "mallory")
					}
					list := strings.Join(names, ", ")

					id.passes(t, "headers", h1.ask("GET"+start+forged.String()+forged.String()+"\r\n"))
					id.passes(t, "headers of HTTP/2", over(t, h2client, "GET", id.path, "", together, nil))
					id.passes(t, "headers of HTTP/3", over(t, h3, "GET", id.path, "", together, nil))

					id.passes(t, "in Connection", h1.ask("GET"+start+"Connection: keep-alive, "+list+"\r\n\r\n"))
					id.passes(t, "in Connections", h1.ask("GET"+start+"Connection: "+strings.Join(names, "\r\nConnection: ")+"\r\n\r\n"))
					id.passes(t, "in Connection, with the headers", h1.ask("GET"+start+"Connection: "+list+"\r\n"+forged.String()+"\r\n"))

					const chunk = "3\r\nabc\r\n0\r\n"
					chunked := start + "Transfer-Encoding: chunked\r\n"
					for how, raw := range map[string]string{
						"trailers, announced":             announced.String() + "Trailer: X-Sum\r\n\r\n" + chunk + forged.String() + "X-Sum: 9\r\n\r\n",
						"trailers, announced and headers": announced.String() + forged.String() + "Trailer: X-Sum\r\n\r\n" + chunk + forged.String() + "X-Sum: 9\r\n\r\n",
						"trailers, announced in one line": "Trailer: X-Sum, " + list + "\r\n\r\n" + chunk + "X-Sum: 9\r\n" + forged.String() + "\r\n",
						"trailers, another announced":     "Trailer: X-Sum\r\n\r\n" + chunk + "X-Sum: 9\r\n" + forged.String() + "\r\n",
					} {
						a := h1.ask("POST" + chunked + raw)
						if id.passes(t, how, a); !strings.Contains(string(a.Body), "\r\nX-Sum: 9\r\n") {
							t.Errorf("%s: the other trailer is lost: %q", how, a.Body)
						}
					}
					id.passes(t, "trailers, not announced", h1.ask("POST"+chunked+"\r\n"+chunk+forged.String()+"\r\n"))
					id.passes(t, "trailers, announced only", h1.ask("POST"+chunked+announced.String()+"\r\n"+chunk+"\r\n"))
					id.passes(t, "trailers, no body", h1.ask("POST"+chunked+announced.String()+"\r\n0\r\n"+forged.String()+"\r\n"))
					id.passes(t, "trailers announced behind a body of known length", h1.ask("POST"+start+announced.String()+"Content-Length: 3\r\n\r\nabc"))
					for version, c := range map[string]*http.Client{"HTTP/2": h2client, "HTTP/3": h3} {
						id.passes(t, "trailers of "+version, over(t, c, "POST", id.path, "abc", nil, trailer))
						id.passes(t, "headers and trailers of "+version, over(t, c, "POST", id.path, "abc", together, trailer))
					}
					for _, announced := range [][]string{nil, {"trailer", "x-sum"}, {"trailer", names[0]}} {
						how := fmt.Sprintf(", announced: %q", announced)
						fields := append(slices.Clone(fields), announced...)
						c2, c3 := s.h2(), s.h3()
						c2.headers(false, fields...)
						c2.data("abc", false)
						c2.headers(true, trailers...)
						status, body := c2.answer("")
						id.passesRaw(t, "raw trailers of HTTP/2"+how, status, body)
						c3.headers(fields...)
						c3.write(h3data, []byte("abc"))
						c3.headers(trailers...)
						_ = c3.stream.Close()
						status, body, err := c3.answer("")
						if err != nil {
							t.Fatal(err)
						}
						id.passesRaw(t, "raw trailers of HTTP/3"+how, status, body)
					}
				}
			})
		})
	}
}

func (id identity) passesRaw(t *testing.T, how, status, body string) {
	t.Helper()
	if status != "200" {
		t.Errorf("%s: got %s %s", how, status, body)
	} else if _, _, err := id.check(body); err != nil {
		t.Errorf("%s: %v; the application got %q", how, err, body)
	}
}

// Contract, 7: what is decided on as a header, or set by the proxy, comes from no
// trailer, also where forward_authorization sends the header on.
func TestNoTrailerPassesForAHeader(t *testing.T) {
	t.Parallel()
	s := startHTTP3(t, siteConfig{
		company: people,
		servers: "trusted_proxies static 127.0.0.0/8",
		site: `
		handle /forwarded {
			mnemogate {
				forward_authorization
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`,
	})
	token := s.login("alice@example.com")
	names := []string{"Authorization", "X-Api-Key", "Cookie", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix",
		"Forwarded", "Via", "Host", "Content-Type", "Proxy-Authorization", "Origin", "Early-Data",
		"x_forwarded_for", "X_API_KEY", "authorization", "x-Forwarded_Port"}
	for _, path := range []string{"/x", "/forwarded"} {
		check := func(t *testing.T, how, status, raw string) {
			t.Helper()
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
			if status != "200" || err != nil {
				t.Fatalf("%s: got %s %q, %v", how, status, raw, err)
			}
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Fatal(err)
			}
			for name, values := range r.Trailer {
				if name != "X-Sum" {
					t.Errorf("%s: the application got the trailer %s: %q", how, name, values)
				}
			}
			if strings.Contains(raw, "mallory") {
				t.Errorf("%s: the application got %q", how, raw)
			}
			if want := path == "/forwarded"; want != (r.Header.Get("Authorization") == "Bearer "+token) {
				t.Errorf("%s: Authorization is %q", how, r.Header["Authorization"])
			}
		}
		fields := []string{":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", path, "authorization", "Bearer " + token}
		for _, announced := range []string{"", "X-Sum", strings.Join(names, ", "), "X-Sum, " + strings.Join(names, ", ")} {
			how := fmt.Sprintf("%s, announced: %q", path, announced)
			header, fields := "", slices.Clone(fields)
			if announced != "" {
				header = "Trailer: " + announced + "\r\n"
				fields = append(fields, "trailer", announced)
			}
			trailer, trailers := "X-Sum: 9\r\n", []string{"x-sum", "9"}
			for _, name := range names {
				trailer += name + ": mallory\r\n"
				if httpguts.ValidTrailerHeader(name) { // others the server takes in HTTP/1 only
					trailers = append(trailers, strings.ToLower(name), "mallory")
				}
			}
			s.run(how, func(t *testing.T) {
				a := s.exchange("POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + token + "\r\n" +
					"Transfer-Encoding: chunked\r\n" + header + "\r\n3\r\nabc\r\n0\r\n" + trailer + "\r\n")
				check(t, "HTTP/1.1", fmt.Sprint(a.Status), string(a.Body))
				if strings.HasPrefix(announced, "X-Sum") && !strings.Contains(string(a.Body), "\r\nX-Sum: 9\r\n") {
					t.Errorf("the other trailer is lost: %q", a.Body)
				}
				c2, c3 := s.h2(), s.h3()
				c2.headers(false, fields...)
				c2.data("abc", false)
				c2.headers(true, trailers...)
				status, body := c2.answer("")
				check(t, "HTTP/2", status, body)
				c3.headers(fields...)
				c3.write(h3data, []byte("abc"))
				c3.headers(trailers...)
				_ = c3.stream.Close()
				status, body, err := c3.answer("")
				if err != nil {
					t.Fatal(err)
				}
				check(t, "HTTP/3", status, body)
			})
		}
	}
}

// seen runs do and returns what the application got meanwhile, but for the
// requests for /last.
func (s *site) seen(do func()) []string {
	before := len(s.backend.requests())
	do()
	return slices.DeleteFunc(s.backend.requests()[before:], func(raw string) bool { return strings.HasPrefix(raw, "GET /last ") })
}

// spill sends bytes over a connection of its own, and reads all answers.
func (s *site) spill(raw string) string {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, raw) }() // that it reads on is not said
	answers, err := io.ReadAll(conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		s.t.Fatalf("the connection stays open; the answers are %q", answers)
	}
	return string(answers)
}

// An h1attack is what a client sends over HTTP/1, with the token where it says
// AUTH. What the application must never get asks for /hidden.
type h1attack struct {
	raw  string
	pass int  // how many requests with a token the application gets
	last bool // nothing can follow on the connection
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
	// Methods. Those that are none are not even answered here.
	add(1, "%s"+" /x"+x, "get", "HEAD", "OPTIONS", "PROPFIND", "M-SEARCH", "QUERY", "PRI", "SSTP_DUPLEX_POST", "!#$%&'*+-.^_`|~1", "CONNECTX", "trace", "connect")
	add(0, "%s"+" /x"+x, "CONNECT", "TRACE", "", " GET", "G\x00T", "GE(T", "GET,POST", "\"GET\"", strings.Repeat("LONG", 9))
	add(0, "CONNECT %s"+x, "x", "x:443", "127.0.0.1:80", "http://x/x", "*", "/acme/v2/auth/login")
	// Credentials.
	add(0, get+"%s\r\n\r\n", "Authorization: Bearer x", "authorization: Basic x", "AUTHORIZATION:", "X-Y: z\r\nAUTHZ", "Authorization: Bearer mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", " , Bearer x", "\tx")
	add(1, get+"%s\r\n\r\n", "Authorization_: Bearer x", "X-Authorization: Bearer x", "Proxy-Authorization: Basic x", "Cookie: Authorization=x", "X-Api-Key: x\r\nX-Api-Key: y")
	// Framings.
	add(1, post+"%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Content-Length: 13\r\nTransfer-Encoding: chunked",
		"Content-Length: 0\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 1000000", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ", "Content-Length: 13", "Content-Length: 13\r\nContent-Length: 13")
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
	// What proxies tell each other.
	add(1, get+"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /acme/v2/auth\r\nX-Forwarded-Uri: /public\r\nX-Forwarded-User: mallory\r\nForwarded: for=127.0.0.1;host=x\r\nX-Real-Ip: 127.0.0.1\r\n"+
		"X-Original-URL: %[1]s\r\nX-Rewrite-URL: %[1]s\r\nX-Original-Uri: %[1]s\r\nX-HTTP-Method-Override: OPTIONS\r\nX-HTTP-Method: POST\r\nX-Method-Override: TRACE\r\nMax-Forwards: 0\r\nEarly-Data: 1\r\nIncremental: ?1\r\n\r\n",
		"/acme/v2/auth/login", "/umbra/x", "/")
	// What is no header.
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

func TestEachRequestOverHTTP1IsRefusedOrHasOneIdentity(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]string{"plain": "", "full duplex": "enable_full_duplex"} {
		t.Run(name, func(t *testing.T) { eachRequestOverHTTP1(t, startBoundary(t, servers)) })
	}
}

func eachRequestOverHTTP1(t *testing.T, s *h3site) {
	authorization := "Authorization: Bearer " + s.login("alice@example.com") + "\r\n"
	const last = "GET /last HTTP/1.1\r\nHost: x\r\nAUTHConnection: close\r\n\r\n"
	for name, attack := range h1attacks() {
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

// A framedAttack is what a client sends over HTTP/2 and HTTP/3: fields, given
// as name and value in turn, with the token where it says AUTH, then a body and
// trailers.
type framedAttack struct {
	fields   []string
	body     string
	trailers []string
	pass     bool   // with a token
	either   bool   // with a token it may pass, with a part of its body
	start    string // of what the application then gets
	only     int    // the version of HTTP it is meant for, if not both
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
	add("path *", framedAttack{fields: request("OPTIONS", "*"), pass: true, start: "OPTIONS * HTTP/1.1\r\n", only: 3}) // HTTP/1's and 2's server answers it itself
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
	add("what proxies tell each other", framedAttack{fields: request("GET", "/x", "x-original-url", "/acme/v2/auth/login", "x-rewrite-url", "/umbra/x", "x-http-method-override", "OPTIONS", "forwarded", "for=127.0.0.1", "x-forwarded-for", "127.0.0.1", "x-forwarded-user", "mallory", "early-data", "1", "incremental", "?1"),
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

func TestEachRequestOverHTTP2And3IsRefusedOrHasOneIdentity(t *testing.T) {
	t.Parallel()
	s := startBoundary(t, "")
	token := s.login("alice@example.com")
	sent := 0
	send := func(version int, a framedAttack, token string) (got []string, status, body string, err error) {
		// A request can arrive at the application after its refusal did here.
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
		open := slices.Contains(fields, "CONNECT") // and waits for what the server says
		if version == 3 {
			c := s.h3()
			c.headers(fields...)
			if content != "" {
				c.write(h3data, []byte(content))
			}
			if a.trailers != nil {
				c.headers(a.trailers...)
			}
			if !open {
				_ = c.stream.Close()
			}
			status, body, err = c.answer("")
			return got, status, body, err
		}
		c := s.h2()
		c.headers(content == "" && a.trailers == nil && !open, fields...)
		if content != "" {
			c.data(content, a.trailers == nil)
		}
		if a.trailers != nil {
			c.headers(true, a.trailers...)
		}
		status, body, err = c.ending()
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
	for _, raw := range s.backend.requests() {
		if _, _, err := identities[0].check(raw); err != nil || strings.Contains(raw[:strings.Index(raw, "\r\n")], "hidden") || !strings.Contains(raw, "\r\nX-Attack: ") {
			t.Errorf("the application got %q: %v", raw, err)
		}
	}
}

// ending reads up to the answer's end, or that of the stream or connection.
func (c *h2conn) ending() (status, body string, err error) {
	c.t.Helper()
	for {
		frame, err := c.framer.ReadFrame()
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			c.t.Fatalf("no answer: %v", err)
		}
		if err != nil {
			return status, body, fmt.Errorf("%w: %w", errReset, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == 1 && status == "" {
				status = f.PseudoValue("status")
			}
		case *http2.DataFrame:
			body += string(f.Data())
		case *http2.RSTStreamFrame:
			return status, body, fmt.Errorf("%w: %v", errReset, f.ErrCode)
		case *http2.GoAwayFrame:
			return status, body, fmt.Errorf("%w: %v", errReset, f.ErrCode)
		}
		if h := frame.Header(); h.StreamID == 1 && h.Flags.Has(http2.FlagDataEndStream) {
			return status, body, nil
		}
	}
}
