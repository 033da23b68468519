package integration

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var (
	reloads   = flag.Int("reloads", 10, "how many reloads TestReloadsLoseNothing makes")
	handovers = flag.Int("handovers", 40, "how many reloads TestWhoWaitedForAReloadIsAnswered makes")
)

// startPlain starts a Caddy without mnemogate: a bare reverse proxy.
func startPlain(t *testing.T, proxy string) *site {
	t.Helper()
	return startCaddyfile(t, `{
	admin unix/DIR/admin.sock
	persist_config off
	auto_https off
	servers {
		protocols h1 h2 h2c
	}
	log {
		output stderr
		level INFO
	}
}
http:// {
	bind fd/3
	respond /generation 0
	`+proxy+`
}
`, nil)
}

var generation = regexp.MustCompile(`(respond /generation|api_key generation-)( ?)\d+`)

// reloadNext loads a configuration that differs from the previous one.
func (s *site) reloadNext(n int) {
	s.t.Helper()
	next := generation.ReplaceAllString(s.config, fmt.Sprintf("${1}${2}%d", n))
	if next == s.config {
		s.t.Fatal("the configuration has nothing to change")
	}
	s.config = next
	s.postConfig("text/caddyfile", next).wantStatus(http.StatusOK)
}

// postConfig loads a configuration like caddy reload --force, but faster.
func (s *site) postConfig(contentType, config string) answer {
	s.t.Helper()
	return s.askAdmin(func() *http.Request {
		r := get(http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://127.0.0.1/load", strings.NewReader(config)))(s.t)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Cache-Control", "must-revalidate")
		return r
	})
}

// askAdmin sends a request to the admin endpoint, again if it is dropped: each reload
// replaces the endpoint.
func (s *site) askAdmin(request func() *http.Request) answer {
	s.t.Helper()
	for tries := 1; ; tries++ {
		c := s.adminClient()
		a, err := exchanged(s.t, c, request())
		c.CloseIdleConnections()
		if err == nil {
			return a
		}
		if !isDropped(err) || tries == 5 {
			s.t.Fatal(err)
		}
	}
}

// streamsStay is a reverse proxy that keeps streams open over reloads, and closes
// idle connections to the backend soon.
const streamsStay = `reverse_proxy BACKEND {
	stream_close_delay 1h
	transport http {
		keepalive 1s
	}
}`

// However often Caddy reloads, no session, counter, lock or code is lost, and open
// streams continue. No more requests fail than with a bare reverse proxy, and
// nothing leaks. For the full test:
//
//	go test ./caddymodule/integration -run ReloadsLoseNothing -v -reloads 100
func TestReloadsLoseNothing(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, reloadsLoseNothing)
}

func reloadsLoseNothing(t *testing.T, start starter) {
	t.Parallel()
	c := survivorConfig()
	c.env = []string{"GOGC=100"} // so that garbage does not look like a leak
	c.global += "session {\ntemporary 15m\nstream_recheck 6s\n}\notp {\nttl 10m\n}"
	c.company += trafficAccounts() + account("streamer", "")
	c.more += "company other {\napi_key generation-0\n}\n"
	c.site = "mnemogate\n" + streamsStay
	s := start(t, c)
	plain := startPlain(t, streamsStay)
	nodes := s.all()
	checks := prepare(s)

	token := s.login("streamer")
	var streams, plainStreams []*flowing
	for _, node := range nodes {
		streams = append(streams, node.streams(token)...)
	}
	plainStreams = plain.streams(token)
	ours, bare := newTraffic(s, false), newTraffic(plain, true)
	n := 0
	reload := func() {
		n++
		ours.whileAsking(20)
		bare.whileAsking(20)
		for _, node := range nodes {
			node.reloadNext(n)
		}
		plain.reloadNext(n)
	}

	// What the first few reloads leave is not a leak.
	under := func(reloads int) {
		ours.begin()
		bare.begin()
		for range reloads {
			reload()
		}
		ours.end()
		bare.end()
	}
	under(3)
	settled := func() []vitals {
		all := append(slices.Clone(nodes), plain)
		return storetest.Together(len(all), func(i int) vitals { return all[i].settled() })
	}
	before := settled()
	under(*reloads)
	after := settled()
	t.Logf("plain Caddy: %d of %d requests and %d of %d to the admin endpoint were dropped; %v, and then %v",
		bare.dropped.Load(), bare.asked.Load(), bare.adminDropped.Load(), bare.adminAsked.Load(), before[len(nodes)], after[len(nodes)])
	t.Logf("with mnemogate: %d of %d, and %d of %d",
		ours.dropped.Load(), ours.asked.Load(), ours.adminDropped.Load(), ours.adminAsked.Load())
	for i, node := range nodes {
		before, after := before[i], after[i]
		t.Logf("node %d: %v, and then %v", i, before, after)
		few := 3 + *reloads/3 // some come and go; a leak in each reload would be more
		if after.goroutines > before.goroutines+few || after.descriptors > before.descriptors+few {
			t.Errorf("goroutines or descriptors have grown: %s\n%s",
				strings.Join(node.openFiles(), " "), node.fromAdmin("/debug/pprof/goroutine?debug=1"))
		}
		if after.heap > before.heap+(8<<20) || after.resident > before.resident+(64<<20) {
			t.Errorf("memory has grown:\n%s", node.fromAdmin("/debug/pprof/heap?debug=1"))
		}
	}
	// Which connections end during a reload is chance, which evens out over more
	// reloads.
	each, chance := int64(len(nodes)), int64(3+*reloads/5) // plain Caddy was reloaded once when all nodes were
	for rounds := int64(1); ; rounds++ {
		requests, admin := ours.dropped.Load(), ours.adminDropped.Load()
		ofPlain, adminOfPlain := bare.dropped.Load(), bare.adminDropped.Load()
		if requests <= each*(ofPlain+rounds*chance) && admin <= each*(adminOfPlain+rounds*chance) {
			break
		}
		t.Logf("%d requests and %d admin calls were dropped, and %d and %d by plain Caddy", requests, admin, ofPlain, adminOfPlain)
		if rounds == 3 {
			t.Error("more are dropped than by plain Caddy")
			break
		}
		under(*reloads)
	}

	for _, f := range plainStreams {
		f.lives(t)
	}
	for _, f := range streams {
		f.lives(t)
	}
	for _, node := range nodes { // the new configuration starts everything else before it fails
		if a := node.postConfig("text/caddyfile", node.config+"\nhttp://192.0.2.1:1 {\nbind 192.0.2.1\n}\n"); a.Status == http.StatusOK {
			t.Error("a site got an address that this machine does not have")
		}
	}
	s.check(checks)
	s.post("auth/logout", token, nil).wantState(record.None)
	for _, f := range streams {
		select {
		case <-f.ended:
		case <-time.After(30 * time.Second):
			t.Errorf("%s was not cut after the logout", f.kind)
		}
	}
}

// Streams survive a pause of the process, for example while its machine is moved,
// although their sessions are not checked meanwhile.
func TestPauseCutsNoStream(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{global: "session {\nstream_recheck 800ms\n}", company: roomy + account("alice", "")})
	streams := s.streams(s.login("alice"))
	for range 3 {
		if err := storetest.Freeze(s.cmd.Process); err != nil {
			storetest.SkipOrFail(t, fmt.Sprintf("a process can't be stopped for a while here: %v", err))
		}
		time.Sleep(time.Second)
		_ = storetest.Thaw(s.cmd.Process)
		time.Sleep(time.Second) // by now the streams were checked
		for _, f := range streams {
			f.lives(t)
		}
	}
}

// A store that was replaced closes only after the requests that use it, however long
// they wait for others. If it comes back, its contents are still there.
func TestChangedStoreDrainsBeforeItCloses(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	c := siteConfig{
		global: "session {\nstream_recheck 200ms\n}",
		company: roomy + "sms webhook " + g.URL + "/sms {\nsecret " + smsSecret + "\ntimeout 30s\n}\n" +
			trafficAccounts() + account("alice", "") + "account bob {\nphone +37060000002\n}\n" +
			account("carol", "phone +37060000003\nsecond_factor"),
	}
	s := startSite(t, c)
	first := s.config
	other := strings.Replace(first, "/mnemogate.db", "/other.db", 1)
	token := s.login("alice")
	half := s.post("auth/login", "", fields{"login_id": "carol"}).token()
	stream := s.stream("SSE", token)
	stream.lives(t)

	// Logins continue meanwhile; their sessions may be in either store.
	load := &loading{site: s}
	load.startWorkers()
	defer load.stopWorkers()
	load.workers.Go(func() {
		fresh := &http.Client{Timeout: client.Timeout, Transport: &http.Transport{DisableKeepAlives: true}}
		for ; !load.over(); pace() {
			r := s.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": "load-0", "password": testPassword})
			if a, err := exchanged(t, fresh, r); err == nil {
				load.good(a, "a login while the store changes")
			} else if !isDropped(err) {
				t.Errorf("a login while the store changes: %v", err)
			}
		}
	})

	// Two requests that have read from the store, and will write to it, wait for an
	// SMS.
	g.behave(g.hang)
	begun := g.count("/sms")
	slow := make(chan answer, 2)
	ask := func(route, token string, body fields) {
		r := s.postRequest("acme", testKey, route, token, body)
		a, err := exchanged(t, client, r)
		if err != nil {
			t.Error(err)
		}
		slow <- a
	}
	go ask("auth/login", "", fields{"login_id": "+37060000002"})
	go ask("auth/checkpassword", half, fields{"password": testPassword})
	s.eventually("message to the gateway", func() bool { return g.count("/sms") == begun+2 })

	s.postConfig("text/caddyfile", other).wantStatus(http.StatusOK)
	s.eventually("refusal by the other store", func() bool {
		a, err := exchanged(t, client, s.getRequest("/", token))
		return err == nil && a.str("error_code") == wire.ErrTokenInvalid.Code
	})
	time.Sleep(6 * time.Second) // a store is kept for 5 s in any case
	g.behave(nil)
	var codes []string // tokens that wait for a code
	for range 2 {
		codes = append(codes, (<-slow).wantState(record.CheckOTP).token())
	}
	s.eventually("end of the store that nobody uses", func() bool { return !s.holds("mnemogate.db") })
	select {
	case <-stream.ended: // its session is not in the other store
	case <-time.After(30 * time.Second):
		t.Error("a stream outlives the store of its session")
	}

	s.postConfig("text/caddyfile", first).wantStatus(http.StatusOK)
	s.eventually("session of before", func() bool {
		a, err := exchanged(t, client, s.getRequest("/", token))
		return err == nil && a.Status == http.StatusOK
	})
	for _, token := range codes {
		s.post("auth/renewotp", token, nil).wantState(record.None)
		s.post("auth/checkotp", token, fields{"otp": g.last("code")}).wantState(record.Authorized)
	}
}

// A reload to a store that can't be used fails, and the config that runs stays: the address or
// the password of the new one may be wrong. If the present stores are gone, the new config loads.
func TestReloadToAStoreThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	way := servers.newWay()
	c := siteConfig{company: roomy + account("alice", ""), stores: servers.direct()}
	all := servers.start(c, c.stores, servers.through(way))
	node, cut := all.nodes[0], all.nodes[1]
	all.waitForStores()
	cut.waitForStores()
	token := node.login("alice")
	nowhere := strings.TrimPrefix(nobodyListens(t), "http://")
	postgres, _, _ := strings.Cut(c.stores, "sessions")
	for name, stores := range map[string]string{
		"the address of Redis":      postgres + "sessions redis redis://" + nowhere,
		"the password of Redis":     postgres + "sessions redis redis://someone:wrong@" + way.redis.Addr(),
		"the address of PostgreSQL": "store postgres postgres://u@" + nowhere + "/x?sslmode=disable\nsessions redis redis://" + way.redis.Addr(),
	} {
		c.stores = stores
		if err := node.reload(c); err == nil || !strings.Contains(err.Error(), "the config that runs stays") {
			t.Errorf("%s: got %v", name, err)
		}
		node.get("/", token).wantStatus(http.StatusOK)
	}
	way.redis.Refuse()
	must(t, cut.reload(c))
}

// A reload that connects to the same Redis in another way cuts no stream of a valid session,
// although the connections of before are closed. A logout still does.
func TestStreamsOutliveTheConnectionsToTheirStore(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	c := siteConfig{global: "session {\nstream_recheck 1s\n}", company: roomy + account("alice", "")}
	all := servers.start(c, servers.direct())
	node := all.nodes[0]
	token := all.login("alice")
	stream := node.stream("SSE", token)
	stream.lives(t)
	connections := func() []string {
		return regexp.MustCompile(`(?m)^id=\d+`).FindAllString(servers.redis.Ask(t, "CLIENT", "LIST"), -1)
	}
	before := connections()
	c.stores = servers.direct() + "?pool_size=7"
	must(t, node.reload(c))
	all.eventually("end of the former connections", func() bool {
		return !slices.ContainsFunc(connections(), func(id string) bool { return slices.Contains(before, id) })
	})
	time.Sleep(2 * time.Second)
	stream.lives(t)
	all.post("auth/logout", token, nil).wantState(record.None)
	stream.isCut(t)
}

// A notice that is on its way during a reload arrives, even if Caddy is stopped just afterwards.
func TestANoticeOutlivesAReloadBeforeAStop(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := startSite(t, siteConfig{company: roomy + "sms webhook " + g.URL + "/sms {\nsecret " + smsSecret + "\ntimeout 30s\n}\n" + account("alice", "phone +37060000003")})
	s.login("alice")
	var arrived atomic.Bool
	g.behave(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * time.Second):
			arrived.Store(true)
		case <-r.Context().Done():
		}
	})
	s.admin("PATCH", "accounts/alice", fields{"password": "another password"}).wantStatus(http.StatusOK)
	s.eventually("notice on its way", func() bool { return g.count("/sms") == 1 })
	must(t, s.load())
	s.stop(syscall.SIGTERM)
	if !arrived.Load() {
		t.Error("the notice did not arrive")
	}
}

// An invalid configuration, whatever is wrong with it, leaves the previous one
// running: its sites, its admin API and its metrics.
func TestBrokenConfigLeavesTheOldOneRunning(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, brokenConfigLeavesTheOldOneRunning)
}

func brokenConfigLeavesTheOldOneRunning(t *testing.T, start starter) {
	s := start(t, siteConfig{company: roomy + trafficAccounts() + account("alice", "")})
	load := newTraffic(s, false)
	load.begin()
	defer load.end()
	node := s.all()[0]
	token := node.login("alice")
	works := func(after string) {
		t.Helper()
		// A reload may end connections, even if it fails. A node that shares
		// Redis remembers no session until its subscription works.
		s.eventually("answer, and remembered session, after "+after, func() bool {
			a, err := exchanged(t, client, node.getRequest("/", token))
			return err == nil && a.Status == http.StatusOK && node.scrape()["mnemogate_memory_sessions"] >= 1
		})
		if a := node.admin("GET", "accounts/alice", nil).wantStatus(http.StatusOK); a.str("profile_mnemocode") != "alice" {
			t.Errorf("after %s the admin API answers %s", after, a.Body)
		}
		const logins = `mnemogate_requests_total{company="acme",result="success",route="checkcredentials"}`
		before := node.scrape()
		node.login("alice")
		now := node.scrape()
		if now["mnemogate_up"] != 1 || before[logins] < 1 || now[logins] <= before[logins] {
			t.Errorf("after %s the metrics are not those of what runs: up %v, logins %v and then %v", after,
				now["mnemogate_up"], before[logins], now[logins])
		}
	}
	works("the start")
	good := node.config
	broken := func(old, new string) string {
		config := strings.Replace(good, old, new, 1)
		if config == good {
			t.Fatalf("the configuration has no %q", old)
		}
		return config
	}
	notDirectory := node.dir + "/no-directory"
	writeFile(t, notDirectory, "")
	// with returns the valid configuration as JSON, with a value inserted into
	// its apps.
	with := func(path ...any) string {
		var config map[string]any
		must(t, json.Unmarshal([]byte(node.fromAdmin("/config/")), &config))
		at, last := config["apps"].(map[string]any), len(path)-2
		for _, name := range path[:last] {
			at = at[name.(string)].(map[string]any)
		}
		at[path[last].(string)] = path[last+1]
		b := get(json.Marshal(config))(t)
		return string(b)
	}
	server := func(server fields) string { return with("http", "servers", "other", server) }
	for _, b := range []struct{ name, contentType, config string }{
		{"an unknown option", "text/caddyfile", broken("company acme", "smoke signals\ncompany acme")},
		{"a secret that is not there", "text/caddyfile", broken("secret "+smsSecret, "secret {env.MNEMOGATE_TEST_NOT_SET}")},
		{"another app that fails", "application/json", with("tls", fields{"certificates": fields{
			"load_files": []fields{{"certificate": notDirectory, "key": notDirectory}},
		}})},
		{"another handler that fails", "application/json", server(fields{
			"listen": []string{"127.0.0.1:0"}, "routes": []fields{{"handle": []fields{{"handler": "smoke"}}}},
		})},
		{"an address that can't be had", "application/json", server(fields{"listen": []string{"192.0.2.1:1"}})},
		{"a store that can't be opened", "application/json", with("mnemogate", "store", fields{
			"module": "sqlite", "file": notDirectory + "/x.db",
		})},
		{"an unknown field", "application/json", with("mnemogate", "smoke", "signals")},
		{"no companies", "application/json", with("mnemogate", "companies", fields{})},
	} {
		if a := node.postConfig(b.contentType, b.config); a.Status == http.StatusOK {
			t.Errorf("%s: the configuration was loaded", b.name)
		}
		works(b.name)
	}
	node.postConfig("text/caddyfile", good).wantStatus(http.StatusOK)
	works("a good one")
}

// The limit of the memory of sessions is that of the config that runs, also if another
// failed to load.
func TestTheCacheIsThatOfTheRunningConfig(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{global: "cache 1000", company: roomy + account("alice", "")})
	tokens := make([]string, 40) // more of one account than are its share of 1000
	for i := range tokens {
		tokens[i] = s.login("alice")
	}
	remembered := func() float64 {
		for _, token := range tokens {
			s.get("/", token).wantStatus(http.StatusOK)
		}
		return s.scrape()["mnemogate_memory_sessions"]
	}
	more := strings.Replace(s.config, "cache 1000", "cache 1000000", 1)
	for name, broken := range map[string]string{
		"Provision": strings.Replace(more, "company acme", "audit_keep 1m\ncompany acme", 1),
		"Start":     more + "\nhttp://192.0.2.1:1 {\nbind 192.0.2.1\n}\n",
	} {
		if a := s.postConfig("text/caddyfile", broken); a.Status == http.StatusOK {
			t.Error("the broken configuration was loaded")
		}
		s.eventually("few remembered sessions, after a failure of "+name, func() bool {
			n := remembered()
			return n > 0 && n <= 20
		})
	}
	s.postConfig("text/caddyfile", more).wantStatus(http.StatusOK)
	s.eventually("larger memory", func() bool { return remembered() == float64(len(tokens)) })
}

// A lateListener closes late, as listeners sometimes do on a busy machine.
type lateListener struct{ net.Listener }

func (l lateListener) Close() error {
	time.Sleep(50 * time.Millisecond)
	return l.Listener.Close()
}

type lateListeners struct{}

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" {
		caddy.RegisterModule(new(lateListeners))
	}
}

func (*lateListeners) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.late", New: func() caddy.Module { return new(lateListeners) }}
}

func (*lateListeners) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.Next(); return nil }

func (*lateListeners) WrapListener(l net.Listener) net.Listener { return lateListener{l} }

// A client that connects after a reload is always answered. With plain Caddy it may
// not be, because the old server may accept the connection while it shuts down. For
// a comparison:
//
//	go test ./caddymodule/integration -run WhoWaitedForAReload -v -handovers 2000
func TestWhoWaitedForAReloadIsAnswered(t *testing.T) {
	t.Parallel()
	// dropped counts the requests without an answer. They are sent at once after each
	// reload, over a connection each.
	dropped := func(s *site, reloads int, requests map[string]string) (lost map[string]int) {
		lost = map[string]int{}
		for range reloads {
			s.postConfig("text/caddyfile", s.config).wantStatus(http.StatusOK)
			conns := map[string]net.Conn{}
			for what := range requests {
				conn := get(net.Dial("tcp", s.addr))(t)
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
				conns[what] = conn
			}
			for what, conn := range conns {
				_, err := io.WriteString(conn, requests[what])
				if err == nil {
					_, err = http.ReadResponse(bufio.NewReader(conn), nil)
				}
				_ = conn.Close()
				if isDropped(err) {
					lost[what]++
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		return lost
	}
	config := siteConfig{company: people}
	s := startSite(t, config)
	none := func(reloads int, when string) {
		if lost := dropped(s, reloads, map[string]string{
			"protected":  "GET /acme/orders HTTP/1.1\r\nHost: x\r\n" + bearer(s.login("alice@example.com")) + "\r\n",
			"refused":    "GET /acme/orders HTTP/1.1\r\nHost: x\r\n\r\n",
			"auth route": "POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		}); len(lost) > 0 {
			t.Errorf("of %d each were dropped%s: %v", reloads, when, lost)
		}
	}
	none(*handovers, "")
	config.servers = "listener_wrappers {\nlate\n}"
	must(t, s.reload(config))
	none(5, ", where the old server closes late")
	if testing.Verbose() {
		t.Logf("plain Caddy: of %d each were dropped: %v", *handovers, dropped(startPlain(t, "reverse_proxy BACKEND"), *handovers, map[string]string{
			"reverse_proxy": "GET /acme/orders HTTP/1.1\r\nHost: x\r\n\r\n",
			"respond":       "GET /generation HTTP/1.1\r\nHost: x\r\n\r\n",
		}))
	}
}
