package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/caddymodule/gate"
)

// Contract, section 7: only this module sets or removes the identity headers. These
// tests try every spelling of their names over every version of HTTP.

// separators are the characters that the name of a header may contain, other than
// letters and digits.
const separators = "-_.!#$%&'*+^`|~"

// everySpelling returns the name of a header with every combination of separators in
// place of its first two dashes. A third one becomes the same as the first. The letter
// case varies.
func everySpelling(name string) []string {
	all := []string{""}
	for i, part := range strings.Split(name, "-") {
		var longer []string
		for _, begun := range all {
			if begun == "" {
				longer = append(longer, part)
				continue
			}
			for _, c := range separators {
				if i > 2 {
					c = rune(begun[strings.IndexAny(begun, separators)])
					longer = append(longer, begun+string(c)+part)
					break
				}
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

// mistakable returns what a lenient backend may make of a header's name.
func mistakable(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// linesNamed returns the header and trailer lines of a raw request whose name a
// backend might mistake for one of names.
func linesNamed(raw string, names ...string) []string {
	guarded := map[string]bool{}
	for _, name := range names {
		guarded[mistakable(name)] = true
	}
	var found []string
	for line := range strings.SplitSeq(raw, "\r\n") {
		if name, _, ok := strings.Cut(line, ":"); ok && guarded[mistakable(name)] {
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return found
}

// spellings returns names that might be mistaken for a header's name. They have
// other characters in place of one or all dashes, and other letter cases.
func spellings(name string) []string {
	all := []string{name, strings.ToLower(name), strings.ToUpper(name)}
	for _, c := range "!#$%&'*+.^_`|~-" {
		all = append(all, strings.ReplaceAll(name, "-", string(c)), strings.Replace(name, "-", string(c), 1),
			strings.ToUpper(strings.ReplaceAll(name, "-", string(c))))
	}
	return all
}

// An identity is what the backend must receive, and in which headers.
type identity struct {
	path                   string // the path with this configuration
	userHeader, user       string
	companyHeader, company string
	profile                []string // its further header lines
	forged                 []string // what clients send, unless it is the two headers
}

// profileHeaders are those of the option forward, and that of an actor.
var profileHeaders = slices.DeleteFunc(new(gate.Handler).IdentityHeaders(), func(name string) bool {
	return !strings.HasPrefix(name, "X-Profile-") || name == "X-Profile-Mnemocode"
})

// guardedHeaders never reach the backend from a client, whatever the names of the
// identity headers.
var guardedHeaders = slices.Concat([]string{"X-Company-Code", "X-Mnemogate-Assertion", "X-Profile-Mnemocode"}, rewriteHeaders, profileHeaders)

// rewriteHeaders make some backends use another path.
var rewriteHeaders = []string{"X-Original-Uri", "X-Original-Url", "X-Rewrite-Url", "X-Script-Name", "Script-Name", "Path-Info"}

// all returns the names that a client can't use.
func (id identity) all() []string {
	all := slices.Concat([]string{id.userHeader, id.companyHeader}, guardedHeaders, id.forged)
	slices.Sort(all)
	return slices.Compact(all)
}

var identities = []identity{
	{"/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme", nil, nil},
	{"/named/", "X-User-Id2", "alice", "Tenant-", "acme", nil, nil},
	{"/buffered/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme", nil, nil},
	{"/profile/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme",
		[]string{"X-Profile-Email: alice@example.com", "X-Profile-Phone: +37060000001", "X-Profile-Role: B%C3%BCro%20100%25"}, guardedHeaders},
	{"/proof/", "X-Profile-Mnemocode", "alice", "X-Company-Code", "acme", []string{"X-Proof: (an assertion)"}, []string{"X-Proof", "X-Mnemogate-Assertion"}},
}

// startBoundary starts a site with all identities. It allows every header name
// that Caddy can be configured to allow.
func startBoundary(t *testing.T, servers string) *h3site {
	var underscores, dots []string
	for _, name := range everySpellingOf(append(identities[1].all(), "X-Proof")...) {
		switch name = strings.ToLower(name); {
		case strings.Contains(name, "*"): // Caddy treats these as patterns
		case strings.Contains(name, "_"):
			underscores = append(underscores, name)
		case strings.Contains(name, "."):
			dots = append(dots, name)
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
		handle /proof/* {
			mnemogate {
				assertion app {
					header X-Proof
				}
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
	s.admin("PATCH", "accounts/alice", fields{"role": "Büro 100%"}).wantStatus(200)
	return s
}

// anAssertion matches a JWT.
var anAssertion = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]{86}`)

// check checks the raw bytes that the backend received. They must be one request
// with the identity and without a similar header or trailer.
func (id identity) check(raw string) (*http.Request, string, error) {
	raw = anAssertion.ReplaceAllString(raw, "(an assertion)")
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
		trailers.WriteString(name + ":\r\n") // it may only be announced
	}
	if got := linesNamed(trailers.String(), id.all()...); got != nil {
		return nil, "", fmt.Errorf("it has the trailers %q", got)
	}
	return r, string(body), nil
}

// passes checks that the answer is the backend's, and that the backend received one
// request with the right identity.
func (id identity) passes(t *testing.T, how string, a answer) {
	t.Helper()
	if a.Status != 200 {
		t.Errorf("%s: got %d %s", how, a.Status, a.Body)
	} else if _, _, err := id.check(string(a.Body)); err != nil {
		t.Errorf("%s: %v; the application got %q", how, err, a.Body)
	}
}

func TestNoSpellingOfAnIdentityHeaderReachesTheApplication(t *testing.T) {
	t.Parallel()
	s := startBoundary(t, "")
	for _, id := range identities {
		s.run(id.path, func(t *testing.T) { noSpellingReaches(t, s, id) })
	}
}

// noSpellingReaches tries all spellings of an identity's headers.
func noSpellingReaches(t *testing.T, s *h3site, id identity) {
	token := s.login("alice@example.com")
	h3 := s.h3client()
	// over sends a request over HTTP/2 or HTTP/3.
	over := func(t *testing.T, c *http.Client, method, path, body string, header, trailer http.Header) answer {
		t.Helper()
		url := s.URL
		if c == h3 {
			url = "https://localhost"
		}
		var reader io.Reader
		if body != "" {
			reader = io.MultiReader(strings.NewReader(body)) // of unknown length
		}
		r := get(http.NewRequestWithContext(t.Context(), method, url+path, reader))(t)
		r.Trailer = trailer
		for name, values := range header {
			r.Header[name] = values
		}
		r.Header["Authorization"] = []string{"Bearer " + token}
		response := get(c.Do(r))(t)
		defer response.Body.Close()
		got := get(io.ReadAll(response.Body))(t)
		return newAnswer(t, response, got)
	}
	names := everySpellingOf(id.userHeader, id.companyHeader)
	if id.forged != nil {
		names = everySpellingOf(id.forged...)
	}
	names = some(names)
	start := " " + id.path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n"
	h1 := &h1conn{s: s.site}
	defer h1.close()
	s.run("alone", func(t *testing.T) { // if there are several, Caddy drops some itself
		for _, name := range names {
			id.passes(t, name, h1.ask("GET"+start+name+": mallory\r\n\r\n"))
			lower := http.Header{strings.ToLower(name): {"mallory"}}
			id.passes(t, name+" over HTTP/2", over(t, h2client, "GET", id.path, "", lower, nil))
			id.passes(t, name+" over HTTP/3", over(t, h3, "GET", id.path, "", lower, nil))
		}
	})
	s.run("similar names stay, and credentials go", func(t *testing.T) {
		a := h1.ask("GET" + start + "X-" + id.userHeader + ": 1\r\n" + id.userHeader + "-2: 2\r\n" + id.userHeader[1:] + ": 3\r\nX-Api-Key: " + testKey + "\r\nx-api-key: other\r\n\r\n")
		id.passes(t, "similar names", a)
		if got := linesNamed(string(a.Body), "X-"+id.userHeader, id.userHeader+"-2", id.userHeader[1:], "X-Api-Key", "Authorization"); len(got) != 3 {
			t.Errorf("the application got %q", got)
		}
	})
	s.run("many", func(t *testing.T) {
		for names := range slices.Chunk(names, 40) { // as many as the limits allow
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
			id.passes(t, "headers of HTTP/1.0", h1.ask("GET"+strings.Replace(start, "1.1", "1.0", 1)+forged.String()+"\r\n"))
			id.passes(t, "headers of HTTP/2", over(t, h2client, "GET", id.path, "", together, nil))
			id.passes(t, "headers of HTTP/3", over(t, h3, "GET", id.path, "", together, nil))

			id.passes(t, "in Connection", h1.ask("GET"+start+"Connection: keep-alive, "+list+"\r\n\r\n"))
			id.passes(t, "in Connection, with odd values", h1.ask("GET"+start+"Connection: upgrade,, "+list+" ,\tclose\r\nProxy-Connection: "+list+"\r\n\r\n"))
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
				s.sendTrailers(fields, trailers, func(version, status, body string) {
					t.Helper()
					id.passes(t, "raw trailers of "+version+how, rawAnswer(t, status, body))
				})
			}
		}
	})
}

// Contract, section 7: a trailer never replaces a header that decides on the request
// or that the proxy sets, not even if forward_authorization forwards the header.
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
			get(io.ReadAll(r.Body))(t)
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
				if httpguts.ValidTrailerHeader(name) { // the server accepts others only in HTTP/1
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
				s.sendTrailers(fields, trailers, func(version, status, body string) {
					t.Helper()
					check(t, version, status, body)
				})
			})
		}
	}
}

// seen calls do and returns the requests that the backend received meanwhile, except
// those for /last.
func (s *site) seen(do func()) []string {
	before := len(s.backend.requests())
	do()
	return slices.DeleteFunc(s.backend.requests()[before:], func(raw string) bool { return strings.HasPrefix(raw, "GET /last ") })
}

// spill sends bytes over a new connection and reads all responses.
func (s *site) spill(raw string) string {
	s.t.Helper()
	conn := s.dial()
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, raw) }() // ignore errors: the server may stop reading
	answers, err := io.ReadAll(conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		s.t.Fatalf("the connection stays open; the answers are %q", answers)
	}
	return string(answers)
}
