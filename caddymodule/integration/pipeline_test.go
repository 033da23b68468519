package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// Pipelined requests are each answered correctly, and the rest of a refused request
// is not taken for another request.
func pipelinedRequestsAreAnsweredOneByOne(t *testing.T, s *site) {
	auth := "Authorization: Bearer " + s.login("alice@example.com") + "\r\n"
	good := "GET /a HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"
	last := "GET /last HTTP/1.1\r\nHost: x\r\n" + auth + "Connection: close\r\n\r\n"
	const (
		open  = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
		post  = "POST /a HTTP/1.1\r\nHost: x\r\n"
		login = "POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Api-Key: " + testKey + "\r\n"
		body  = `{"login_id":"alice@example.com"}` // 32 bytes
		chunk = "Transfer-Encoding: chunked\r\n\r\n"
	)
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }
	for name, test := range map[string]struct {
		raw      string
		statuses []int // the last one, 200, is for a request after it, unless the connection was closed
		passed   int
	}{
		"in turn":                             {open + good + open + good, []int{401, 200, 401, 200, 200}, 2},
		"a refused HEAD":                      {strings.Replace(open, "GET", "HEAD", 1) + good, []int{401, 200, 200}, 1},
		"refused, no body":                    {post + length("") + good, []int{401, 200, 200}, 1},
		"refused, a body":                     {post + length(good), []int{401}, 0},
		"refused, chunks":                     {post + chunk + "5\r\nabcde\r\n0\r\n\r\n" + good, []int{401}, 0},
		"refused, a body of a GET":            {"GET /a HTTP/1.1\r\nHost: x\r\n" + length(good), []int{401}, 0},
		"refused, a body that was not wanted": {post + "Expect: 100-continue\r\n" + length(good), []int{401}, 0},
		"refused, an upgrade and a body":      {"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + length(good), []int{401}, 0},
		"refused, a body that does not end":   {post + "Content-Length: 1000000\r\n\r\n" + good, []int{401}, 0},
		"a bad token and a body":              {post + "Authorization: Bearer x\r\n" + length(good), []int{401}, 0},
		"TRACE and a body":                    {"TRACE /a HTTP/1.1\r\nHost: x\r\n" + auth + length(good), []int{405}, 0},
		"no route and a body":                 {strings.Replace(login, "login", "none", 1) + length(good), []int{404}, 0},
		"no method of a route and a body":     {strings.Replace(login, "POST", "PUT", 1) + length(good), []int{405}, 0},
		"no API key and a body":               {strings.Replace(login, testKey, "x", 1) + length(good), []int{401}, 0},
		"too large a body":                    {login + length(strings.Repeat(good, 500)), []int{413}, 0},
		"no JSON":                             {strings.Replace(login, "application/json", "text/plain", 1) + length(good), []int{415}, 0},
		"a body that is read and wrong":       {login + length(good) + open, []int{400, 401, 200}, 0},
		"a body that is read":                 {login + length(body) + open + login + length(body) + good, []int{200, 401, 200, 200, 200}, 1},
		"chunks that are read":                {login + chunk + "20\r\n" + body + "\r\n0\r\n\r\n" + open, []int{200, 401, 200}, 0},
		"chunks that are malformed":           {login + chunk + "20\r\n" + body + "0\r\n\r\n" + good, []int{400}, 0},
		"passed, a body":                      {post + auth + length(good) + open, []int{200, 401, 200}, 1},
		"passed, chunks":                      {post + auth + chunk + "5\r\nabcde\r\n0\r\n\r\n" + open, []int{200, 401, 200}, 1},
		"passed, a body that was wanted":      {post + auth + "Expect: 100-continue\r\n" + length(good) + open, []int{100, 200, 401, 200}, 1},
		"passed, chunks that are malformed":   {post + auth + chunk + "5\r\nabcde0\r\n\r\n" + good, []int{502}, 0},
		"passed, trailers that are malformed": {post + auth + chunk + "5\r\nabcde\r\n0\r\nx\r\n\r\n" + good, []int{502}, 0},
	} {
		s.run(name, func(t *testing.T) {
			var answers string
			got := s.seen(func() { answers = s.spill(test.raw + last) })
			var statuses []int
			method, _, _ := strings.Cut(test.raw, " ")
			for reader := bufio.NewReader(strings.NewReader(answers)); ; method = "GET" {
				response, err := http.ReadResponse(reader, &http.Request{Method: method})
				if err != nil {
					break
				}
				statuses = append(statuses, response.StatusCode)
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Fatalf("the answers are %q: %v", answers, err)
				}
			}
			if !slices.Equal(statuses, test.statuses) || len(got) != test.passed {
				t.Errorf("got %v, want %v; the application got %q", statuses, test.statuses, got)
			}
			for _, raw := range got {
				if _, _, err := identities[0].check(raw); err != nil {
					t.Errorf("%v; the application got %q", err, raw)
				}
			}
		})
	}
}

// A cannedBackend answers the first request on each connection with fixed bytes, and
// accepts everything after it.
type cannedBackend struct {
	addr   string
	answer string
	mu     sync.Mutex
	got    bytes.Buffer
}

func (b *cannedBackend) serve(conn net.Conn) {
	defer conn.Close()
	for answered, buffer := false, make([]byte, 4096); ; {
		n, err := conn.Read(buffer)
		b.mu.Lock()
		b.got.Write(buffer[:n])
		b.mu.Unlock()
		if err != nil {
			return
		}
		if !answered {
			answered = true
			_, _ = io.WriteString(conn, b.answer)
		}
	}
}

// A backend that does not switch protocols receives only the request. What follows
// on the client's connection are ordinary requests.
func TestAnUpgradeThatIsNotMadeIsNoTunnel(t *testing.T) {
	t.Parallel()
	answers := map[string]int{
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                                                                     200,
		"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n":          426,
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno":                                                            403,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n":                                  0,
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                                                                         0,
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n":         426,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n":         400,
		"HTTP/1.1 204 No Content\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n":                                     204,
		"HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\nX-Company-Code: x\r\n\r\nok": 200,
	}
	var backends []*cannedBackend
	var site strings.Builder
	for answer := range answers {
		b := &cannedBackend{answer: answer}
		b.addr = serveTCP(t, b.serve)
		fmt.Fprintf(&site, "handle /%d {\nmnemogate\nreverse_proxy %s\n}\n", len(backends), b.addr)
		backends = append(backends, b)
	}
	s := startSite(t, siteConfig{company: people, site: site.String() + "handle {\nmnemogate\nreverse_proxy BACKEND\n}"})
	authorization := "Authorization: Bearer " + s.login("alice@example.com") + "\r\n"
	for i, b := range backends {
		s.run(b.answer, func(t *testing.T) {
			var got string
			seen := s.seen(func() {
				got = s.spill(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n%sConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n\r\n", i, authorization) +
					"GET /hidden HTTP/1.1\r\nHost: x\r\nX-Profile-Mnemocode: mallory\r\nConnection: close\r\n\r\n")
			})
			if len(seen) != 0 {
				t.Errorf("the application got %q", seen)
			}
			if want := answers[b.answer]; want != 0 && (!strings.Contains(got, fmt.Sprintf("HTTP/1.1 %d ", want)) || !strings.Contains(got, wire.ErrHeaderMissing.Code)) {
				t.Errorf("got %q, want %d and a refusal", got, want)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if raw := b.got.String(); strings.Contains(raw, "hidden") || strings.Count(raw, " HTTP/1.1\r\n") != 1 || strings.Contains(raw, "mallory") {
				t.Errorf("what did not switch got %q", raw)
			}
		})
	}
}

// RFC 9220: a WebSocket over HTTP/3. The backend receives one identity and exactly
// the data of the client.
func TestWebSocketOverHTTP3(t *testing.T) {
	t.Parallel()
	s := startHTTP3(t, siteConfig{company: people, site: "mnemogate\nreverse_proxy BACKEND"})
	fields := []string{":method", "CONNECT", ":scheme", "https", ":authority", "localhost", ":path", "/acme/x", ":protocol", "websocket",
		"sec-websocket-version", "13", "x-profile-mnemocode", "mallory", "x-company-code", "umbra"}
	c := s.h3()
	c.headers(false, fields...)
	if status, body, err := c.read(""); status != "401" || !strings.Contains(body, wire.ErrHeaderMissing.Code) {
		t.Errorf("without a token: got %s %q %v", status, body, err)
	}
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
	c = s.h3()
	c.headers(false, append(fields, "authorization", "Bearer "+s.login("alice@example.com"))...)
	const told = "GET /hidden HTTP/1.1\r\nX-Profile-Mnemocode: mallory\r\n\r\n" // only the two ends may interpret it
	c.data(told, false)
	if status, body, err := c.read(told); status != "200" || body != told || err != nil {
		t.Errorf("got %s %q %v", status, body, err)
	}
	got := s.backend.requests()
	if len(got) != 1 {
		t.Fatalf("the application got %q", got)
	}
	head, _, _ := strings.Cut(got[0], "\r\n\r\n")
	if _, _, err := identities[0].check(head + "\r\n\r\n"); err != nil || !strings.HasPrefix(head, "GET /acme/x HTTP/1.1\r\n") {
		t.Errorf("%v; the application got %q", err, head)
	}
	_ = c.stream.SetDeadline(time.Now())
}
