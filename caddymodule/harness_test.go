package caddymodule

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	// Of Caddy's own modules those that the tests use, without file_server: what its
	// templates import takes most of the time in which a process starts. What needs
	// it is tested in gate.
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents/eventsconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode/gzip"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode/zstd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/logging"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy/forwardauth"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls/standardstek"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// TestMain lets the test binary be the Caddy that the tests talk to: a process
// of its own, with listeners that it is handed, so that no port can clash.
func TestMain(m *testing.M) {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" {
		caddycmd.Main()
		return
	}
	os.Setenv("GORACE", "atexit_sleep_ms=20") // each process would stay for a second longer
	code := storetest.Run(m)
	closeChromium()
	os.Exit(code)
}

const (
	testKey      = "test-api-key"
	testPassword = "correct horse battery"
	smsSecret    = "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0cw=="
)

// A site is a running Caddy with mnemogate in front of a raw backend; or it
// stands for several, see startNodes.
type site struct {
	t       *testing.T
	URL     string
	addr    string
	dir     string
	backend *rawBackend
	sms     *webhookSink // also gets the mails
	cmd     *exec.Cmd
	exited  chan struct{}
	ln      *os.File   // fd/3
	more    []*os.File // fd/4 and on
	config  string
	base    string // base_path
	env     []string
	program string // the Caddy that start runs; empty for this one

	nodes  []*site // that take turns with requests; nil if the site is one itself
	turns  atomic.Int64
	beside func() openStores // nil for those in its file
	shared *servers          // set where a test kills them
	outbox flows.Outbox      // of backlog

	logMu sync.Mutex
	logs  bytes.Buffer
}

// A siteConfig is what differs from site to site: lines of Caddyfile.
type siteConfig struct {
	stores  string // replaces stores.SQLite
	global  string // in the global option mnemogate, before the companies
	company string // in company acme, in addition to its API key
	more    string // further companies
	handler string // in the directive mnemogate
	servers string // in the global option servers
	site    string // replaces the site's directives; BACKEND is the backend's address
	env     []string
	files   []*os.File // fd/4 and on
}

// cheapHashing is what hashes cost where a site does not say it in global: most
// tests are not about their strength.
const cheapHashing = `
		password {
			argon2id 64 1 1 insecure
		}`

// realHashing is what they cost by default.
const realHashing = `
		password {
			argon2id 19456 2 1
		}`

func (c siteConfig) caddyfile(dir, sink, backend string) string {
	if c.site == "" {
		c.site = "mnemogate {\n" + c.handler + "\n}\nreverse_proxy BACKEND"
	}
	if !strings.Contains(c.global, "password {") {
		c.global += cheapHashing
	}
	if c.stores == "" {
		c.stores = "store sqlite " + dir + "/mnemogate.db"
	}
	return fmt.Sprintf(`{
	admin unix/%[1]s/admin.sock
	persist_config off
	auto_https off
	servers {
		protocols h1 h2 h2c
		%[6]s
	}
	log {
		output stderr
		level DEBUG
	}
	mnemogate {
		%[10]s
		sms webhook %[2]s {
			secret %[3]s
		}
		mail webhook %[2]s {
			secret %[3]s
		}
		recovery {
			methods PHONE MAIL QUESTION
			link https://app.example.com/recover#{token}
		}
		%[4]s
		company acme {
			api_key %[8]s
			%[5]s
		}
		%[7]s
	}
}
http:// {
	bind fd/3
	%[9]s
}
`, dir, sink, smsSecret, c.global, c.company, c.servers, c.more, testKey, strings.ReplaceAll(c.site, "BACKEND", backend), c.stores)
}

// caddysOwnRace is in the report of a race of Caddy 2.11 with itself: it copies
// its reverse proxy while a reload writes its timer, and its TLS app while that
// starts.
var caddysOwnRace = regexp.MustCompile(`reverseproxy\.\(\*Handler\)\.cleanupConnections|caddytls\.\(\*TLS\)\.onEvent`)

var basePathOf = regexp.MustCompile(`\bbase_path (\S+)`)

// startSite runs Caddy with the configuration until the test ends.
func startSite(t *testing.T, c siteConfig) *site {
	t.Helper()
	return startSiteWith(t, c, newRawBackend(t), newWebhookSink(t))
}

func startSiteWith(t *testing.T, c siteConfig, backend *rawBackend, sms *webhookSink) *site {
	t.Helper()
	s := &site{t: t, dir: shortTempDir(t), backend: backend, sms: sms, env: c.env, more: c.files}
	s.addr, s.ln = listener(t)
	s.URL = "http://" + s.addr
	s.config = c.caddyfile(s.dir, s.sms.URL, s.backend.addr)
	if found := basePathOf.FindStringSubmatch(s.config); found != nil {
		s.base = found[1]
	}
	s.writeCaddyfile()
	s.start()
	t.Cleanup(func() {
		s.stop(syscall.SIGTERM)
		for _, report := range strings.Split(s.log(), "WARNING: DATA RACE")[1:] {
			race, _, _ := strings.Cut(report, "==================")
			if !caddysOwnRace.MatchString(race) {
				t.Errorf("a data race in caddy:%s", race)
			}
		}
	})
	return s
}

func (s *site) writeCaddyfile() {
	if err := os.WriteFile(s.dir+"/Caddyfile", []byte(s.config), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// listener opens a port to be handed over to a Caddy.
func listener(t *testing.T) (addr string, file *os.File) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err = ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return ln.Addr().String(), file
}

// run is a subtest that talks to the site. Subtests of one site don't run in
// parallel.
func (s *site) run(name string, f func(t *testing.T)) {
	s.t.Helper()
	outer := s.t
	defer s.report(outer)
	outer.Run(name, func(t *testing.T) {
		s.report(t)
		f(t)
	})
}

// report makes t the test that hears of what fails.
func (s *site) report(t *testing.T) {
	s.t = t
	for _, node := range s.nodes {
		node.t = t
	}
}

// start runs Caddy on the site's listener and waits until its config is live.
func (s *site) start() {
	s.t.Helper()
	s.cmd = s.caddy("run", "--config", s.dir+"/Caddyfile")
	s.cmd.ExtraFiles = append([]*os.File{s.ln}, s.more...)
	s.cmd.Stderr = s
	s.cmd.Stdout = s
	var err error
	if s.exited, err = storetest.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(s.log(), "serving initial configuration") {
		select {
		case <-s.exited:
			s.t.Fatalf("caddy ended at its start:\n%s", s.log())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("caddy does not come up:\n%s", s.log())
		}
	}
}

// caddy is a command of the Caddy under test.
func (s *site) caddy(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(s.program, os.Args[0]), args...)
	cmd.Env = append(os.Environ(), "MNEMOGATE_TEST_CADDY=1",
		"XDG_DATA_HOME="+s.dir+"/data", "XDG_CONFIG_HOME="+s.dir+"/config", "HOME="+s.dir)
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

func (s *site) stop(signal os.Signal) {
	_ = s.cmd.Process.Signal(signal)
	select {
	case <-s.exited:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		s.t.Error("caddy did not end")
	}
}

// restart kills Caddy as a power cut would the process, and starts it anew.
func (s *site) restart() {
	s.t.Helper()
	s.stop(syscall.SIGKILL)
	s.startAgain()
}

// startAgain is start with a log of its own.
func (s *site) startAgain() {
	s.t.Helper()
	s.logMu.Lock()
	s.logs.Reset()
	s.logMu.Unlock()
	s.start()
}

// reload loads another configuration into the running Caddy.
func (s *site) reload(c siteConfig) error {
	s.t.Helper()
	s.config = c.caddyfile(s.dir, s.sms.URL, s.backend.addr)
	return s.load()
}

// load loads s.config into the running Caddy.
func (s *site) load() error {
	s.t.Helper()
	s.writeCaddyfile()
	out, err := s.caddy("reload", "--force", "--config", s.dir+"/Caddyfile", "--address", "unix/"+s.dir+"/admin.sock").CombinedOutput()
	client.CloseIdleConnections() // the old config closes its own, perhaps just when one is used again
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Write takes Caddy's log.
func (s *site) Write(p []byte) (int, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.logs.Write(p)
}

func (s *site) log() string {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.logs.String()
}

// tells waits until a text is in Caddy's log, which comes by a pipe.
func (s *site) tells(text string) {
	s.t.Helper()
	storetest.Eventually(s.t, 20*time.Second, text+" in the log", func() bool { return strings.Contains(s.log(), text) })
}

// openStores are a site's, opened beside it, as an operator's tool would.
type openStores interface {
	Accounts() flows.Accounts
	Sessions() flows.Sessions
}

func (s *site) accounts() flows.Accounts { return s.store().Accounts() }

func (s *site) store() openStores {
	s.t.Helper()
	if s.beside != nil {
		return s.beside()
	}
	db := store.OpenSQLite(s.dir + "/mnemogate.db")
	if err := db.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

// update changes an account of acme, and has its sessions ended if it asks to.
func (s *site) update(mnemocode string, ending bool, change func(*flows.Account)) {
	s.t.Helper()
	db, ctx := s.store(), s.t.Context()
	a, err := db.Accounts().ByMnemocode(ctx, "acme", mnemocode)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err = db.Accounts().Update(ctx, "acme", a.ID, func(a *flows.Account) (bool, error) {
		change(a)
		return ending, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if ending {
		if err := db.Sessions().End(ctx, time.Now(), flows.Ending{Company: "acme", Account: a.ID, Epoch: a.Epoch}); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // by when Caddy must have heard of what another process ended
	}
}

// An answer is what came back.
type answer struct {
	t      *testing.T
	Status int
	Header http.Header
	Body   []byte
	JSON   map[string]any
	Closes bool // the connection
}

func (a answer) str(field string) string {
	s, _ := a.JSON[field].(string)
	return s
}

func (a answer) token() string {
	a.t.Helper()
	if a.str("session_token") == "" {
		a.t.Fatalf("no session_token in %d %s", a.Status, a.Body)
	}
	return a.str("session_token")
}

// want checks an error's code and status.
func (a answer) want(e *flows.Error) answer {
	a.t.Helper()
	if a.str("error_code") != e.Code || a.Status != e.Status || a.str("status") != "error" || a.str("message") == "" {
		a.t.Fatalf("got %d %s, want %d %s", a.Status, a.Body, e.Status, e.Code)
	}
	return a
}

// wantState checks a success.
func (a answer) wantState(state flows.State) answer {
	a.t.Helper()
	if a.Status != http.StatusOK || a.str("status") != "success" || a.str("session_state") != string(state) {
		a.t.Fatalf("got %d %s, want 200 with session_state %q", a.Status, a.Body, state)
	}
	return a
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

func (s *site) postRequest(company, key, route, token string, body fields) *http.Request {
	s.t.Helper()
	raw := ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		raw = string(b)
	}
	r := s.request(http.MethodPost, "/"+company+"/v2/"+route, raw)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// get asks the application behind the site.
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
	r, err := http.NewRequestWithContext(s.t.Context(), method, url+path, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// client follows no redirects, as no API client should have to.
var client = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (s *site) do(r *http.Request) answer {
	s.t.Helper()
	a, err := s.try(client, r)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// try is do where Caddy may not answer at all.
func (s *site) try(c *http.Client, r *http.Request) (answer, error) {
	s.t.Helper()
	response, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{t: s.t, Status: response.StatusCode, Header: response.Header, Body: body}
	if response.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(body, &a.JSON); err != nil {
			s.t.Fatalf("%s is not JSON: %v", body, err)
		}
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
			if got := response.Header.Get(name); got != want {
				s.t.Errorf("%s %s: %s is %q, want %q", r.Method, r.URL.Path, name, got, want)
			}
		}
	}
	s.checkDocumented(r, a)
	return a, nil
}

// exchange sends the very bytes of a request over a connection of its own, and
// reads one answer.
func (s *site) exchange(raw string) answer {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, raw); err != nil {
		s.t.Fatal(err)
	}
	method, _, _ := strings.Cut(raw, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("no answer to %q: %v", raw, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("the answer to %q breaks off: %v", raw, err)
	}
	a := newAnswer(s.t, response, body)
	if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw))); err == nil {
		s.checkDocumented(r, a)
	}
	return a
}

// newAnswer makes an answer of a response whose body was read. One that is not
// JSON has no fields.
func newAnswer(t *testing.T, response *http.Response, body []byte) answer {
	a := answer{t: t, Status: response.StatusCode, Header: response.Header, Body: body, Closes: response.Close}
	_ = json.Unmarshal(body, &a.JSON)
	return a
}

// open sends a GET over a connection of its own, and returns that and what the
// body is read from once an answer has begun.
func (s *site) open(path, headers string, status int) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"); err != nil {
		s.t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if response.StatusCode != status {
		s.t.Fatalf("got %s, want %d", response.Status, status)
	}
	if status != http.StatusSwitchingProtocols {
		reader = bufio.NewReader(response.Body)
	}
	return conn, reader
}

// login takes an account with a password to authorized.
func (s *site) login(loginID string) string {
	s.t.Helper()
	a := s.post("auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword})
	return a.wantState(flows.Authorized).token()
}

// A webhookSink is an SMS and mail gateway that checks signatures as the
// Standard Webhooks specification has it.
type webhookSink struct {
	*httptest.Server
	t        *testing.T
	mu       sync.Mutex
	messages []map[string]any
	status   int // answered if not 0
}

func newWebhookSink(t *testing.T) *webhookSink {
	s := &webhookSink{t: t}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *webhookSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	secret, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(smsSecret, "whsec_"))
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
		s.t.Errorf("webhook-signature is %q, want %q", r.Header.Get("webhook-signature"), want)
	}
	message := map[string]any{}
	if err := json.Unmarshal(body, &message); err != nil {
		s.t.Errorf("webhook body %s: %v", body, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, message)
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
}

// answer sets the status of the answers to come.
func (s *webhookSink) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// of returns the messages of a type so far.
func (s *webhookSink) of(kind string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []map[string]any
	for _, m := range s.messages {
		if m["type"] == kind {
			found = append(found, m)
		}
	}
	return found
}

// last returns a field of the newest message of a type.
func (s *webhookSink) last(kind, field string) string {
	s.t.Helper()
	messages := s.of(kind)
	if len(messages) == 0 {
		s.t.Fatalf("no %s was sent", kind)
	}
	value, _ := messages[len(messages)-1][field].(string)
	return value
}

// linkToken is the token in the newest recovery link.
func (s *webhookSink) linkToken() string {
	s.t.Helper()
	_, token, _ := strings.Cut(s.last("recovery.link", "link"), "#")
	return token
}

// A rawBackend answers every request with the very bytes that it got. A
// WebSocket handshake it accepts and then echoes; /sse it answers with an
// event every 20 ms, /download as slowly but with a length, /pending not at
// all, /cors with headers for browsers, and /raw with the bytes in its query.
type rawBackend struct {
	t    *testing.T
	addr string
	mu   sync.Mutex
	seen []string
}

func newRawBackend(t *testing.T) *rawBackend {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &rawBackend{t: t, addr: ln.Addr().String()}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go b.serve(conn)
		}
	}()
	return b
}

// requests returns what came in so far, byte for byte.
func (b *rawBackend) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.seen...)
}

func (b *rawBackend) serve(conn net.Conn) {
	defer conn.Close()
	var raw bytes.Buffer
	reader := bufio.NewReader(io.TeeReader(conn, &raw))
	for {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		got := raw.String()
		raw.Reset()
		b.mu.Lock()
		b.seen = append(b.seen, got)
		b.mu.Unlock()
		switch {
		case r.Header.Get("Upgrade") != "":
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			_, _ = io.Copy(conn, reader)
			return
		case r.URL.Path == "/pending":
			_, _ = io.Copy(io.Discard, reader)
			return
		case r.URL.Path == "/raw":
			_, _ = io.WriteString(conn, r.URL.Query().Get("answer"))
		case r.URL.Path == "/cors":
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nVary: Accept\r\n"+
				"Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Origin: https://other.example.com\r\n"+
				"Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: X-Total\r\n\r\n")
		case r.URL.Path == "/sse" || r.URL.Path == "/download":
			header, part := "Content-Type: text/event-stream", "data: tick\n\n"
			if r.URL.Path == "/download" {
				header, part = "Content-Length: 1000000000", strings.Repeat("data", 10_000) // more than proxies hold back
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", header)
			for err == nil {
				_, err = io.WriteString(conn, part)
				time.Sleep(20 * time.Millisecond)
			}
			return
		case r.Method == http.MethodHead:
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
		default:
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
		}
	}
}

// shortTempDir is t.TempDir with a path that a Unix socket fits into.
func shortTempDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "mg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Clean(dir)
}
