package integration

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// An answer is the response to a request.
type answer struct {
	t      *testing.T
	Status int
	Header http.Header
	Body   []byte
	JSON   map[string]any
	Closes bool // the server closes the connection

	took  time.Duration
	held  time.Duration // for how long the machine has stalled meanwhile
	again func() answer // sends the request once more, and no more often; nil if it can't be sent again
}

// repeatable returns the answer to a request that was sent at began, and that ask sends again.
// The function stalled was begun then, too.
func (a answer) repeatable(began time.Time, stalled func() time.Duration, ask func() answer) answer {
	a.took, a.held = time.Since(began), stalled()
	var next *answer
	a.again = func() answer {
		if next == nil {
			next = new(ask())
		}
		return *next
	}
	return a
}

// What the whole run has repeated, and for how long the machine has stalled meanwhile.
var (
	repeated   atomic.Int64
	runStalled = sync.OnceValue(storetest.WatchStalls)
)

// mayRepeat reports whether the run may repeat another request, because of what it was told. It
// repeats at most 30, and one for each second that the machine has stalled.
func mayRepeat(t *testing.T, told string) bool {
	t.Helper()
	n, stalled := repeated.Add(1), runStalled()()
	t.Logf("request %d to repeat, on a machine that has stalled for %v: %s", n, stalled, told)
	return n <= 30+int64(stalled.Seconds())
}

// inTime repeats a request whose store or hash was too late because the machine was busy. A store
// that is late by the product's limits takes 250 ms or more; a first answer that came sooner is
// final.
func (a answer) inTime() answer {
	a.t.Helper()
	for n := 0; n < 5 && a.again != nil && (a.took > 200*time.Millisecond && a.held > a.took/8 || n > 0) && a.Status == http.StatusServiceUnavailable &&
		(a.str("error_code") == wire.ErrUnavailable.Code || a.str("error") != "") && mayRepeat(a.t, string(a.Body)); n++ {
		time.Sleep(time.Duration(n) * 500 * time.Millisecond)
		a = a.again()
	}
	return a
}

// expected is like inTime, but an answer that is wanted is final.
func (a answer) expected(status int) answer {
	a.t.Helper()
	if a.Status == status {
		a.again = nil
	}
	return a.inTime()
}

func (a answer) str(field string) string {
	s, _ := a.JSON[field].(string)
	return s
}

func (a answer) token() string {
	a.t.Helper()
	a = a.inTime()
	if a.str("session_token") == "" {
		a.t.Fatalf("no session_token in %d %s", a.Status, a.Body)
	}
	return a.str("session_token")
}

// want checks that the answer is this error, with its code and status.
func (a answer) want(e *wire.Error) answer {
	a.t.Helper()
	a = a.expected(e.Status)
	if a.str("error_code") != e.Code || a.Status != e.Status || a.str("status") != "error" || a.str("message") == "" {
		a.t.Fatalf("got %d %s, want %d %s", a.Status, a.Body, e.Status, e.Code)
	}
	return a
}

// wantState checks that the answer is a success that leads to the state.
func (a answer) wantState(state record.State) answer {
	a.t.Helper()
	a = a.inTime()
	if a.Status != http.StatusOK || a.str("status") != "success" || a.str("session_state") != string(state) {
		a.t.Fatalf("got %d %s, want 200 with session_state %q", a.Status, a.Body, state)
	}
	return a
}

// wantReason checks the reason of an error.
func (a answer) wantReason(reason string) answer {
	a.t.Helper()
	a = a.inTime()
	if a.str("reason") != reason {
		a.t.Errorf("got %d %s, want the reason %q", a.Status, a.Body, reason)
	}
	return a
}

// wantField checks a field of the answer, which is nil if it is null or missing.
func (a answer) wantField(name string, value any) answer {
	a.t.Helper()
	a = a.inTime()
	if a.JSON[name] != value {
		a.t.Errorf("%s is %v, want %v, in %d %s", name, a.JSON[name], value, a.Status, a.Body)
	}
	return a
}

// wantBody checks that the answer contains a text.
func (a answer) wantBody(text string) answer {
	a.t.Helper()
	a = a.inTime()
	if !strings.Contains(string(a.Body), text) {
		a.t.Errorf("got %d %s, want %s", a.Status, a.Body, text)
	}
	return a
}

// wantHeader checks the first header of a name, which is missing if value is empty.
func (a answer) wantHeader(name, value string) answer {
	a.t.Helper()
	a = a.inTime()
	if got := a.Header.Get(name); got != value {
		a.t.Errorf("%s is %q, want %q, in %d %v %.500s", name, got, value, a.Status, a.Header, a.Body)
	}
	return a
}

// wantScope checks that the session is not enough, for this reason.
func (a answer) wantScope(reason, challenge string) {
	a.t.Helper()
	a.want(wire.ErrSessionInvalid).wantReason(reason).wantHeader("WWW-Authenticate", `Bearer realm="mnemogate", error=`+challenge)
}

type fields = map[string]any

// post calls an auth route of acme, with its key.
func (s *site) post(route, token string, body fields) answer {
	s.t.Helper()
	return s.postTo("acme", testKey, route, token, body)
}

func (s *site) postTo(company, key, route, token string, body fields) answer {
	s.t.Helper()
	return s.do(s.postRequest(company, key, route, token, body))
}

// encoded returns a request's body as JSON, or "" if there is none.
func (s *site) encoded(body any) string {
	s.t.Helper()
	if f, ok := body.(fields); body == nil || ok && f == nil {
		return ""
	}
	return string(get(json.Marshal(body))(s.t))
}

func (s *site) postRequest(company, key, route, token string, body fields) *http.Request {
	s.t.Helper()
	r := s.request(http.MethodPost, "/"+company+"/v2/"+route, s.encoded(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// get sends a request to the backend.
func (s *site) get(path, token string) answer {
	s.t.Helper()
	return s.do(s.getRequest(path, token))
}

func (s *site) getRequest(path, token string) *http.Request {
	s.t.Helper()
	r := s.request(http.MethodGet, path, "")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func (s *site) request(method, path, body string) *http.Request {
	s.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	url := s.URL
	if n := int64(len(s.nodes)); n > 0 {
		url = s.nodes[s.turns.Add(1)%n].URL
	}
	return get(http.NewRequestWithContext(s.t.Context(), method, url+path, reader))(s.t)
}

// client follows no redirects, because API clients must not need to.
var client = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (s *site) do(r *http.Request) answer {
	s.t.Helper()
	began, stalled := time.Now(), storetest.WatchStalls()
	return get(s.try(client, r))(s.t).repeatable(began, stalled, func() answer {
		r := r.Clone(r.Context())
		if r.GetBody != nil {
			r.Body, _ = r.GetBody()
		}
		return s.do(r)
	})
}

// try is like do, but returns an error if Caddy does not answer.
func (s *site) try(c *http.Client, r *http.Request) (answer, error) {
	s.t.Helper()
	a, err := exchanged(s.t, c, r)
	if err != nil {
		return a, err
	}
	if a.Header.Get("Content-Type") == "application/json" {
		caching := "no-store"
		if a.JSON["keys"] != nil && a.Status == http.StatusOK {
			caching = "public, max-age=300" // public keys
		}
		for name, want := range map[string]string{"Cache-Control": caching, "X-Content-Type-Options": "nosniff"} {
			if got := a.Header.Get(name); got != want {
				s.t.Errorf("%s %s: %s is %q, want %q", r.Method, r.URL.Path, name, got, want)
			}
		}
	}
	s.checkDocumented(r, a)
	if a.Status == http.StatusServiceUnavailable {
		s.t.Cleanup(func() {
			if s.t.Failed() {
				s.t.Logf("%s %s got 503: %s", r.Method, r.URL.Path, s.refusals())
			}
		})
	}
	return a, nil
}

// exchange sends raw bytes as a request over a new connection, and reads the
// response.
func (s *site) exchange(raw string) answer {
	s.t.Helper()
	c, began, stalled := &h1conn{s: s}, time.Now(), storetest.WatchStalls()
	defer c.close()
	a := c.ask(raw).repeatable(began, stalled, func() answer { return s.exchange(raw) })
	if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw))); err == nil {
		s.checkDocumented(r, a)
	}
	return a
}

// newAnswer returns the answer for a response whose body was read. JSON is nil
// unless the body is JSON.
func newAnswer(t *testing.T, response *http.Response, body []byte) answer {
	a := answer{t: t, Status: response.StatusCode, Header: response.Header, Body: body, Closes: response.Close}
	if err := json.Unmarshal(body, &a.JSON); err != nil && len(body) > 0 && response.Header.Get("Content-Type") == "application/json" {
		t.Errorf("%s is not JSON: %v", body, err)
	}
	return a
}

// An h1conn is a connection that sends one request after another.
type h1conn struct {
	s      *site
	conn   net.Conn
	reader *bufio.Reader
}

func (c *h1conn) ask(raw string) answer {
	c.s.t.Helper()
	if c.conn == nil {
		c.conn = c.s.dial()
		c.reader = bufio.NewReader(c.conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	get(io.WriteString(c.conn, raw))(c.s.t)
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

// dial opens a connection.
func (s *site) dial() net.Conn {
	s.t.Helper()
	conn := get(net.Dial("tcp", s.addr))(s.t)
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// open sends a GET over a new connection. When the response has begun, it returns
// the connection and a reader of the body.
func (s *site) open(path, headers string, status int) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, reader, _ := s.begin(path, headers, status)
	return conn, reader
}

// begin is like open, but also returns the response.
func (s *site) begin(path, headers string, status int) (net.Conn, *bufio.Reader, *http.Response) {
	s.t.Helper()
	conn := s.dial()
	s.t.Cleanup(func() { _ = conn.Close() })
	get(io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"))(s.t)
	reader := bufio.NewReader(conn)
	response := get(http.ReadResponse(reader, nil))(s.t)
	if response.StatusCode != status {
		s.t.Fatalf("got %s, want %d", response.Status, status)
	}
	if status != http.StatusSwitchingProtocols {
		reader = bufio.NewReader(response.Body)
	}
	return conn, reader, response
}

// meanwhile calls f in the background. The function that it returns waits for the result.
func meanwhile[T any](t *testing.T, f func() T) func() T {
	done := make(chan T, 1)
	go func() {
		defer close(done) // also if f fails the test, which ends the goroutine
		done <- f()
	}()
	return func() T {
		t.Helper()
		result, ok := <-done
		if !ok {
			t.FailNow()
		}
		return result
	}
}

// login logs in an account that needs only a password, and returns its token.
func (s *site) login(loginID string) string {
	s.t.Helper()
	return s.post("auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword}).wantState(record.Authorized).token()
}
