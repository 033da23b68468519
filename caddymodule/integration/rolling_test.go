package integration

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var (
	oldProgram = flag.String("old", "", "the last release's program, made by its xcaddy.sh, with which TestRollingUpgrade and TestUpgradeAndBack begin and to which they go back; without it only this version's nodes are replaced")
	rollFor    = flag.Duration("roll", 300*time.Millisecond, "how long TestRollingUpgrade leaves nodes alone before it replaces the next")
)

// Nodes behind a balancer are replaced one by one. No session is lost, and clients
// notice nothing. Logins continue from one version to the other: their steps, codes and logouts may reach
// either node.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	nodes := rollingNodes(t, servers, *oldProgram)
	shown := readExample(t, "balancer.Caddyfile", nodes, "health_interval 1s", "health_interval 200ms")
	s := startCaddyfile(t, "{\nadmin unix/DIR/admin.sock\npersist_config off\nauto_https off\n}\nhttp:// {\nbind fd/3\n"+directivesOf(t, shown)+"}\n", nil)
	s.sms, s.backend = nodes[0].sms, nodes[0].backend
	s.checkBalancer(t)
	load := newRollingLoad(t, s, nodes)
	defer load.client.CloseIdleConnections()
	load.begin()
	load.leave("at first")
	versions := []string{""}
	if *oldProgram != "" {
		versions = []string{"", *oldProgram, ""} // upgrade, downgrade, and upgrade again
	}
	for _, version := range versions {
		for i, node := range nodes {
			node.stop(syscall.SIGTERM)
			load.leave(fmt.Sprint("without node ", i))
			node.program = version
			node.startAgain()
			load.leave(fmt.Sprintf("with node %d as %q", i, version))
		}
	}
	load.end()
}

const rollers = 3 // of each kind of client

// newNode returns a node that is not started yet. It has a port of its own, on which
// nothing listens while the node is stopped.
func newNode(t *testing.T, c siteConfig, backend *rawBackend, sms *webhookSink) *site {
	t.Helper()
	port := storetest.FreePorts(t, 1)[0]
	addr := fmt.Sprint("127.0.0.1:", port)
	s := &site{t: t, dir: shortTempDir(t), addr: addr, URL: "http://" + addr, backend: backend, sms: sms}
	s.config = strings.NewReplacer("http:// {", fmt.Sprintf("http://:%d {", port), "bind fd/3", "bind 127.0.0.1", "persist_config off", "persist_config off\nshutdown_delay 1s").
		Replace(c.caddyfile(s.dir, s.sms.URL, s.backend.addr))
	s.writeCaddyfile()
	t.Cleanup(s.end)
	return s
}

// A rollingLoad sends requests to a balancer all the time: with kept sessions, and
// logins.
type rollingLoad struct {
	loading          // the site is the balancer
	replaced []*site // the nodes, which may be stopped
	client   *http.Client
	kept     []string

	asked, logins atomic.Int64
	mu            sync.Mutex
	dropped       []string // requests that no node has answered
	slowest       time.Duration
	last          time.Time // the time of the last answer
	pause         time.Duration
}

// newRollingLoad returns the load for a balancer of nodes. It has not begun.
func newRollingLoad(t *testing.T, s *site, nodes []*site) *rollingLoad {
	t.Helper()
	load := &rollingLoad{loading: loading{site: s}, replaced: nodes, client: &http.Client{Timeout: client.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 4 * rollers}}}
	for i := range 20 {
		load.kept = append(load.kept, s.login(fmt.Sprint("user-", i%rollers)))
	}
	return load
}

func (l *rollingLoad) begin() {
	l.startWorkers()
	l.last = time.Now()
	for i := range rollers {
		l.workers.Go(func() {
			for n := i; !l.over(); n++ {
				l.succeeds("a session that is kept", l.getRequest("/orders", l.kept[n%len(l.kept)]))
			}
		})
		l.workers.Go(func() {
			for !l.over() {
				l.round(fmt.Sprint("roller-", i), fmt.Sprint("+3706000000", i))
			}
		})
	}
}

// round logs in with password and SMS, uses the session and logs out. Then each node
// that runs refuses the session that it remembers.
func (l *rollingLoad) round(loginID, phone string) {
	token := ""
	step := func(route string, body fields, state record.State) bool {
		a, ok := l.succeeds(route, l.postRequest("acme", testKey, route, token, body))
		if ok && a.str("session_state") != string(state) {
			l.t.Errorf("%s: %s", route, a.Body)
		}
		token = a.str("session_token")
		return ok
	}
	l.hashing.Lock()
	coded := step("auth/login", fields{"login_id": loginID}, record.CheckPassword) && step("auth/checkpassword", fields{"password": testPassword}, record.CheckOTP)
	l.hashing.Unlock()
	if !coded || !step("auth/checkotp", fields{"otp": l.sms.codeTo(phone)}, record.Authorized) {
		return
	}
	authorized := token
	l.succeeds("after a login", l.getRequest("/orders", authorized))
	for _, node := range l.replaced {
		_, _ = exchanged(l.t, l.client, node.getRequest("/orders", authorized)) // it remembers the session, if it runs
	}
	if !step("auth/logout", nil, record.None) {
		return
	}
	for _, node := range l.replaced {
		storetest.Eventually(l.t, heardWithin, "refusal", func() bool {
			a, err := exchanged(l.t, l.client, node.getRequest("/orders", authorized))
			return err != nil || a.str("error_code") == wire.ErrTokenInvalid.Code || a.Status == http.StatusServiceUnavailable
		})
	}
	l.logins.Add(1)
}

// succeeds is like ask, but the answer must be a success.
func (l *rollingLoad) succeeds(what string, r *http.Request) (answer, bool) {
	a, ok := l.ask(r)
	return a, ok && l.good(a, what)
}

// ask sends a request to the balancer. It counts as dropped if no node has answered.
func (l *rollingLoad) ask(r *http.Request) (a answer, ok bool) {
	l.asked.Add(1)
	pace()
	began := time.Now()
	a, err := exchanged(l.t, l.client, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.slowest, l.pause, l.last = max(l.slowest, now.Sub(began)), max(l.pause, now.Sub(l.last)), now
	if err == nil && a.Status < 500 || a.str("error_code") == wire.ErrUnavailable.Code {
		return a, true
	}
	l.dropped = append(l.dropped, fmt.Sprintf("%s %s after %v: %d %v", r.Method, r.URL.Path, now.Sub(began), a.Status, err))
	return a, false
}

// leave lets the nodes run for a while.
func (l *rollingLoad) leave(when string) {
	l.t.Helper()
	time.Sleep(*rollFor)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%s: %d requests, %d logins, %d dropped; slowest %v, longest without an answer %v",
		when, l.asked.Swap(0), l.logins.Swap(0), len(l.dropped), l.slowest.Round(time.Millisecond), l.pause.Round(time.Millisecond))
	l.slowest, l.pause = 0, 0
}

func (l *rollingLoad) end() {
	l.t.Helper()
	l.stopWorkers()
	for _, dropped := range l.dropped {
		l.t.Error("dropped: ", dropped)
	}
	if len(l.dropped) > 0 {
		l.t.Logf("the balancer's log:\n%s", l.log())
	}
	for _, token := range l.kept {
		l.get("/", token).wantStatus(http.StatusOK)
	}
}
