package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
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

	// Only the modules of Caddy that the tests use. file_server is missing: its
	// templates take most of the time in which a process starts. What needs it is
	// tested in package gate.
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents/eventsconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode/gzip"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode/zstd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/intercept"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/logging"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/requestbody"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy/forwardauth"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls/standardstek"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	_ "github.com/mnemogate/mnemogate/caddymodule"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// TestMain runs the tests or, if MNEMOGATE_TEST_CADDY is set, Caddy. So the test
// binary is also the Caddy under test, in a process of its own. It inherits its
// listeners, so that ports can't conflict.
func TestMain(m *testing.M) {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" {
		caddycmd.Main()
		return
	}
	os.Setenv("GORACE", "atexit_sleep_ms=20 no_huge_pages_for_shadow=0") // as in .ci/run
	code := storetest.Run(m)
	closeChromium()
	os.Exit(code)
}

const (
	testKey      = "test-api-key"
	testPassword = "correct horse battery"
	smsSecret    = "whsec_dGhlIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw=="
)

// A site is a running Caddy with mnemogate in front of a raw backend. It may also
// represent several of them; see startNodes.
type site struct {
	t       *testing.T
	URL     string
	addr    string
	dir     string
	backend *rawBackend
	sms     *webhookSink // also receives the mails
	cmd     *exec.Cmd
	exited  chan struct{}
	ln      *os.File   // fd/3
	more    []*os.File // from fd/4 on
	config  string
	base    string // base_path
	env     []string
	program string          // the Caddy to run; empty for the test binary
	stderr  *os.File        // Caddy's; nil if the site reads it
	within  func(*exec.Cmd) // changes the world of a command, or nil
	unraced bool            // see siteConfig

	nodes  []*site // they serve the requests in turn; nil for a single node
	turns  atomic.Int64
	beside func() openStores // opens the stores; nil if they are in the site's directory
	shared *servers          // set by tests that kill them
	outbox record.Outbox     // used by backlog

	logMu sync.Mutex
	logs  bytes.Buffer
}

// A siteConfig holds the parts of the Caddyfile that differ between sites.
type siteConfig struct {
	stores  string // replaces stores.SQLite
	global  string // in the global option mnemogate, before the companies
	company string // in company acme, in addition to its API key
	more    string // further companies
	handler string // in the directive mnemogate
	servers string // in the global option servers
	site    string // replaces the site's directives; BACKEND is the backend's address
	env     []string
	files   []*os.File // from fd/4 on
	audit   bool       // the audit log is also written to where runConsoles expects it
	unraced bool       // Caddy runs without the race detector
}

// cheapHashing sets the cost of hashes, unless the site sets it in global. Most
// tests don't depend on the strength of hashes.
const cheapHashing = `
		password {
			argon2id 64 1 1 insecure
		}`

// realHashing sets the default cost.
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
	if c.audit {
		c.servers += "\n}\nlog audit {\ninclude mnemogate.audit\noutput file " + dir + "/audit.log"
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

// caddysOwnRace matches the report of a data race within Caddy 2.11. Caddy copies
// its reverse proxy while a reload writes its timer, and its TLS app while the app
// starts.
var caddysOwnRace = regexp.MustCompile(`reverseproxy\.\(\*Handler\)\.cleanupConnections|caddytls\.\(\*TLS\)\.onEvent`)

var basePathOf = regexp.MustCompile(`\bbase_path (\S+)`)

// startSite starts Caddy with the configuration and stops it when the test ends.
func startSite(t *testing.T, c siteConfig) *site {
	t.Helper()
	return startSiteWith(t, c, newRawBackend(t), newWebhookSink(t))
}

func startSiteWith(t *testing.T, c siteConfig, backend *rawBackend, sms *webhookSink) *site {
	t.Helper()
	return startWith(t, &site{backend: backend, sms: sms, env: c.env, more: c.files, unraced: c.unraced}, func(s *site) string {
		return c.caddyfile(s.dir, s.sms.URL, s.backend.addr)
	})
}

// startWith starts a site with a whole Caddyfile and stops it when the test ends.
func startWith(t *testing.T, s *site, caddyfile func(*site) string) *site {
	t.Helper()
	launchWith(t, s, caddyfile)
	s.waitUntilLive()
	return s
}

// launchWith is like startWith, but does not wait until the config is live.
func launchWith(t *testing.T, s *site, caddyfile func(*site) string) {
	t.Helper()
	s.t, s.dir = t, shortTempDir(t)
	s.addr, s.ln = listener(t)
	s.URL = "http://" + s.addr
	s.config = caddyfile(s)
	if found := basePathOf.FindStringSubmatch(s.config); found != nil {
		s.base = found[1]
	}
	s.writeCaddyfile()
	s.launch()
	t.Cleanup(s.end)
}

// end stops Caddy, and fails the test if the race detector has found something in this
// process or one before it.
func (s *site) end() {
	if s.cmd != nil {
		s.stop(syscall.SIGTERM)
	}
	for _, file := range get(filepath.Glob(s.dir + "/race.*"))(s.t) {
		for _, report := range strings.Split(string(get(os.ReadFile(file))(s.t)), "WARNING: DATA RACE")[1:] {
			race, _, _ := strings.Cut(report, "==================")
			if !caddysOwnRace.MatchString(race) {
				s.t.Errorf("a data race in caddy:%s", race)
			}
		}
	}
}

func (s *site) writeCaddyfile() {
	must(s.t, os.WriteFile(s.dir+"/Caddyfile", []byte(s.config), 0o600))
}

// listener opens a port for a Caddy process to inherit.
func listener(t *testing.T) (addr string, file *os.File) {
	t.Helper()
	ln := get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	file = get(ln.(*net.TCPListener).File())(t)
	t.Cleanup(func() { _ = file.Close() })
	return ln.Addr().String(), file
}

// run runs a subtest that uses the site. Subtests of one site must not run in
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

// report makes t the test that the site reports failures to.
func (s *site) report(t *testing.T) {
	s.t = t
	for _, node := range s.nodes {
		node.t = t
	}
}

// start runs Caddy on the site's listener and waits until its config is live.
func (s *site) start() {
	s.t.Helper()
	s.launch()
	s.waitUntilLive()
}

func (s *site) launch() {
	s.t.Helper()
	s.cmd = s.caddy("run", "--config", s.dir+"/Caddyfile")
	if racedCaddy != "" && s.program == "" && !s.unraced {
		s.cmd.Path = racedCaddy
	}
	s.cmd.Env = append(s.cmd.Env, "GORACE="+os.Getenv("GORACE")+" log_path="+s.dir+"/race")
	s.cmd.ExtraFiles = append([]*os.File{s.ln}, s.more...)
	s.cmd.Stderr = s
	s.cmd.Stdout = s
	if s.stderr != nil {
		s.cmd.Stderr = s.stderr
	}
	var err error
	if s.exited, err = storetest.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) waitUntilLive() {
	s.t.Helper()
	live := false
	defer func() {
		if !live {
			s.t.Logf("caddy says:\n%s", s.log())
		}
	}()
	storetest.Eventually(s.t, time.Minute, "start of caddy", func() bool {
		ended := s.hasEnded() // before its log is read
		if live = strings.Contains(s.log(), "serving initial configuration"); ended && !live {
			s.t.Fatal("caddy ended at its start")
		}
		return live
	})
}

// hasEnded reports whether Caddy has ended.
func (s *site) hasEnded() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// caddy returns a command that runs the Caddy under test.
func (s *site) caddy(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(s.program, os.Args[0]), args...)
	cmd.Env = append(os.Environ(), "MNEMOGATE_TEST_CADDY=1",
		"XDG_DATA_HOME="+s.dir+"/data", "XDG_CONFIG_HOME="+s.dir+"/config", "HOME="+s.dir)
	cmd.Env = append(cmd.Env, s.env...)
	if s.within != nil {
		s.within(cmd)
	}
	return cmd
}

func (s *site) stop(signal os.Signal) {
	_ = s.cmd.Process.Signal(signal)
	defer func() { _ = s.cmd.Process.Kill() }() // if it does not end
	storetest.Eventually(s.t, 20*time.Second, "end of caddy", s.hasEnded)
}

// restart kills Caddy as a power cut would, and starts it again.
func (s *site) restart() {
	s.t.Helper()
	s.stop(syscall.SIGKILL)
	s.startAgain()
}

// startAgain starts Caddy again with an empty log, and waits for its stores.
func (s *site) startAgain() {
	s.t.Helper()
	s.clearLog()
	s.start()
	s.waitForStores()
}

func (s *site) clearLog() {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.logs.Reset()
}

// whileStopped stops all nodes, calls f, and starts the nodes again.
func (s *site) whileStopped(f func()) {
	s.t.Helper()
	for _, node := range s.all() {
		node.stop(syscall.SIGTERM)
	}
	f()
	for _, node := range s.all() {
		node.startAgain()
	}
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

// Write appends to Caddy's log.
func (s *site) Write(p []byte) (int, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.logs.Write(p)
}

// log returns what Caddy has logged, on all nodes.
func (s *site) log() string {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	logs := wholeLines(s.logs.String())
	for _, node := range s.nodes {
		logs += node.log()
	}
	return logs
}

// wholeLines leaves out the line that Caddy is still writing.
func wholeLines(log string) string { return log[:strings.LastIndexByte(log, '\n')+1] }

// tells waits until a text appears in Caddy's log, which arrives through a pipe.
func (s *site) tells(text string) {
	s.t.Helper()
	storetest.Eventually(s.t, 20*time.Second, text+" in the log", func() bool { return strings.Contains(s.log(), text) })
}

// openStores are the stores of a site, opened by the test as an operator's tool
// would.
type openStores interface {
	Accounts() record.Accounts
	Sessions() record.Sessions
}

func (s *site) accounts() record.Accounts { return s.store().Accounts() }

func (s *site) store() openStores {
	s.t.Helper()
	if s.beside != nil {
		return s.beside()
	}
	db := sqlite.Open(s.dir + "/mnemogate.db")
	must(s.t, db.Start(s.t.Context()))
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

// update changes an account of acme in the store, without revoking its sessions.
func (s *site) update(mnemocode string, change func(*record.Account)) {
	s.t.Helper()
	db, ctx := s.store(), s.t.Context()
	a := get(db.Accounts().ByMnemocode(ctx, "acme", mnemocode))(s.t)
	get(db.Accounts().Update(ctx, "acme", a.ID, func(a *record.Account) (bool, error) {
		change(a)
		return false, nil
	}))(s.t)
}

var must = storetest.Must

// get returns the value of a call, or ends the test if the call has failed.
func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// shortTempDir is like t.TempDir, but the path is short enough for a Unix socket.
func shortTempDir(t *testing.T) string { return tempDirIn(t, "") }

func tempDirIn(t *testing.T, parent string) string {
	dir := get(os.MkdirTemp(parent, "mg"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Clean(dir)
}
