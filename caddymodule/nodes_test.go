package caddymodule

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A starter starts a site, or nodes that are like one.
type starter = func(*testing.T, siteConfig) *site

// onEachDeployment runs a test on all deployments, which behave alike.
func onEachDeployment(t *testing.T, test func(*testing.T, starter)) {
	for _, d := range []struct {
		name  string
		start starter
	}{
		{"embedded", startSite},
		{"two nodes", startNodes},
	} {
		t.Run(d.name, func(t *testing.T) { test(t, d.start) })
	}
}

// startNodes starts two nodes that share PostgreSQL and Redis. The requests to
// what it returns take turns between them.
func startNodes(t *testing.T, c siteConfig) *site {
	t.Helper()
	s := sharedServers(t)
	return s.start(c, s.direct(), s.direct())
}

// servers are what nodes share.
type servers struct {
	t        *testing.T
	postgres *storetest.Postgres
	redis    *storetest.Redis
	schema   string
}

// sharedServers are PostgreSQL that is never stopped, and a Redis.
func sharedServers(t *testing.T) *servers {
	t.Helper()
	postgres := storetest.SharedPostgres(t)
	return &servers{t: t, postgres: postgres, redis: storetest.StartRedis(t), schema: postgres.NewSchema(t)}
}

// ownServers may be stopped.
func ownServers(t *testing.T) *servers {
	t.Helper()
	return &servers{t: t, postgres: storetest.OwnPostgres(t), redis: storetest.StartRedis(t), schema: "public"}
}

// direct is the part of a node's Caddyfile that leads to the servers.
func (s *servers) direct() string {
	return fmt.Sprintf("store postgres %q\nsessions redis %s", s.postgres.DSN(s.schema), s.redis.URL())
}

// through is direct by way of proxies.
func (s *servers) through(w *way) string {
	return fmt.Sprintf("store postgres %q\nsessions redis redis://%s", s.postgres.DSNThrough(w.postgres, s.schema), w.redis.Addr())
}

// A way is what lies between a node and the servers.
type way struct{ postgres, redis *storetest.Proxy }

func (s *servers) newWay() *way {
	return &way{
		postgres: storetest.NewProxy(s.t, "unix", s.postgres.Socket()),
		redis:    storetest.NewProxy(s.t, "unix", s.redis.Socket()),
	}
}

// start starts a node for each of these parts of a Caddyfile.
func (s *servers) start(c siteConfig, nodes ...string) *site {
	s.t.Helper()
	all := &site{t: s.t, backend: newRawBackend(s.t), sms: newWebhookSink(s.t)}
	for _, stores := range nodes {
		c.stores = stores
		all.nodes = append(all.nodes, startSiteWith(s.t, c, all.backend, all.sms))
	}
	all.beside = sync.OnceValue(s.open)
	return all
}

// open opens the stores beside the nodes.
func (s *servers) open() openStores {
	s.t.Helper()
	accounts, err := store.OpenPostgres(s.postgres.DSN(s.schema), store.PostgresOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = accounts.Close() })
	sessions, err := store.OpenRedis(store.RedisOptions{URLs: []string{s.redis.URL()}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = sessions.Close() })
	startShared(s.t, accounts, sessions)
	return struct {
		*store.Postgres
		*store.Redis
	}{accounts, sessions}
}

// startShared starts stores as the nodes that share them do.
func startShared(t testing.TB, accounts *store.Postgres, sessions *store.Redis) {
	t.Helper()
	storetest.Started(t, accounts.Start)
	name, err := store.Deployment(t.Context(), accounts.Accounts())
	if err != nil {
		t.Fatal(err)
	}
	sessions.SetDeployment(name)
	storetest.Started(t, sessions.Start)
}

// What is promised: an answer in this time, no trust for longer than that, and
// all is normal again so soon.
const (
	answerWithin  = 2 * time.Second
	trustedWithin = 2 * time.Second
	normalWithin  = 5 * time.Second
	heardWithin   = time.Second // 100 ms at p99: see TestLogoutIsHeard
)

// timely asks something and checks that the answer comes in time and, where it
// is service.unavailable, says when to come again.
func (s *site) timely(ask func() answer) answer {
	s.t.Helper()
	began, stalled := time.Now(), storetest.WatchStalls()
	a := ask()
	took, stall := time.Since(began), stalled()
	if took > answerWithin+stall {
		s.t.Errorf("an answer took %v, of which the machine is to blame for %v: %d %s", took, stall, a.Status, a.Body)
	}
	if a.Status == http.StatusServiceUnavailable && (a.str("error_code") != flows.ErrUnavailable.Code || a.Header.Get("Retry-After") == "") {
		s.t.Errorf("got 503 %s with Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	return a
}

// remember has each node ask for a session that it then remembers.
func (s *site) remember(tokens ...string) {
	s.t.Helper()
	for _, node := range s.nodes {
		for _, token := range tokens {
			for range 2 {
				if a := node.get("/", token); a.Status != http.StatusOK {
					s.t.Fatalf("got %d %s, want 200", a.Status, a.Body)
				}
			}
		}
	}
}

// hears waits until a node refuses a token that was ended elsewhere.
func (s *site) hears(node *site, token string) {
	s.t.Helper()
	storetest.Eventually(s.t, heardWithin, "refusal", func() bool {
		return node.get("/", token).str("error_code") == flows.ErrTokenInvalid.Code
	})
}

// normally waits until all nodes do what they should.
func (s *site) normally(is func(node *site) bool) {
	s.t.Helper()
	healed, stalled := time.Now(), storetest.WatchStalls()
	for _, node := range s.nodes {
		storetest.Eventually(s.t, time.Minute, "return to normal", func() bool { return is(node) })
	}
	took, stall := time.Since(healed), stalled()
	s.t.Logf("normal again after %v, of which the machine is to blame for %v", took, stall)
	if took > normalWithin+stall {
		s.t.Error("that is too late")
	}
}

func (s *site) credentials(login, password string) answer {
	s.t.Helper()
	return s.post("auth/checkcredentials", "", fields{"login_id": login, "password": password})
}

// A session that ends is ended: at once on the node that ended it, and soon
// after on the others, which remember it.
func TestWhatEndsOnOneNodeEndsOnAll(t *testing.T) {
	t.Parallel()
	all := startNodes(t, siteConfig{company: roomy +
		account("alice", "phone +37060000001") + account("bob", "question Cat? Whiskers")})
	one, two := all.nodes[0], all.nodes[1]
	refused := func(token string) {
		all.t.Helper()
		one.get("/", token).want(flows.ErrTokenInvalid) // that is where it ended
		all.hears(two, token)
	}
	both := func(loginID string) (tokens [2]string) {
		all.t.Helper()
		tokens = [2]string{one.login(loginID), two.login(loginID)}
		all.remember(tokens[:]...)
		return tokens
	}
	all.run("logout", func(*testing.T) {
		tokens := both("alice")
		one.post("auth/logout", tokens[0], nil).wantState(flows.None)
		refused(tokens[0])
		all.remember(tokens[1])
		two.post("auth/logout", tokens[1], nil).wantState(flows.None)
		two.get("/", tokens[1]).want(flows.ErrTokenInvalid)
		all.hears(one, tokens[1])
	})
	all.run("a new password", func(*testing.T) {
		tokens := both("bob")
		recovery := two.post("auth/recovery/recover", "", fields{"login_id": "bob", "captcha_response": "any", "method": "QUESTION"}).token()
		setting := one.post("auth/recovery/checkquestion", recovery, fields{"control_answer": "Whiskers"}).token()
		one.post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).wantState(flows.None)
		for _, token := range tokens {
			refused(token)
		}
	})
	for name, change := range map[string]func(){
		"a new phone":        func() { one.admin("PATCH", "accounts/alice", fields{"primary_phone": "+37060000009"}).wantStatus(200) },
		"sessions ended":     func() { one.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(204) },
		"all sessions ended": func() { one.admin("DELETE", "sessions", nil).wantStatus(204) },
		"a new role":         func() { one.admin("PATCH", "accounts/alice", fields{"role": rand.Text()}).wantStatus(200) },
		"each session ended": func() {
			for _, session := range one.admin("GET", "accounts/alice/sessions", nil).JSON["sessions"].([]any) {
				one.admin("DELETE", "accounts/alice/sessions/"+session.(fields)["session_id"].(string), nil).wantStatus(204)
			}
		},
		"restricted account": func() { one.admin("PATCH", "accounts/alice", fields{"status": "restricted"}).wantStatus(200) },
	} {
		all.run(name, func(*testing.T) {
			one.admin("PATCH", "accounts/alice", fields{"status": "active"}).wantStatus(200)
			tokens := both("alice")
			change()
			for _, token := range tokens {
				refused(token)
			}
		})
	}
}

var logouts = flag.Int("logouts", 50, "how many logouts TestLogoutIsHeard measures; the figures in docs/many-nodes.md are of 1000")

// How long after the answer to a logout another node, which remembers the
// session, lets it pass, while both are busy. For the figures:
//
//	go test ./caddymodule -run LogoutIsHeard -v -logouts 1000
func TestLogoutIsHeard(t *testing.T) {
	all := startNodes(t, siteConfig{company: roomy + account("alice", "") + account("bob", "")})
	one, two := all.nodes[0], all.nodes[1]
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	var passed atomic.Int64
	for range 4 {
		token := all.login("bob")
		load.Go(func() {
			for ctx.Err() == nil {
				if a := all.get("/", token); a.Status != http.StatusOK {
					t.Errorf("under load: %d %s", a.Status, a.Body)
					return
				}
				passed.Add(1)
			}
		})
	}
	began := time.Now()
	var after, until []time.Duration
	for range *logouts {
		token := all.login("alice")
		all.remember(token)
		one.post("auth/logout", token, nil).wantState(flows.None)
		answered := time.Now()
		late := time.Duration(0)
		for {
			asked := time.Since(answered)
			if two.get("/", token).Status != http.StatusOK {
				break
			}
			late = asked
			if late > heardWithin {
				t.Fatalf("passes %v after the logout", late)
			}
		}
		until = append(until, late)
		after = append(after, time.Since(answered))
	}
	rate := float64(passed.Load()) / time.Since(began).Seconds()
	slices.Sort(after)
	slices.Sort(until)
	at := func(sorted []time.Duration, share float64) time.Duration {
		return sorted[int(share*float64(len(sorted)-1))]
	}
	t.Logf("%d logouts under %.0f requests/s: refused elsewhere after p50 %v, p99 %v, at most %v, the request that was refused included; "+
		"the last request that passed was sent after p99 %v, at most %v",
		len(after), rate, at(after, 0.5), at(after, 0.99), at(after, 1), at(until, 0.99), at(until, 1))
}

// What a node has answered holds at the others when it is killed.
func TestNodeIsKilled(t *testing.T) {
	t.Parallel()
	all := startNodes(t, siteConfig{company: roomy + account("alice", "")})
	one, two := all.nodes[0], all.nodes[1]
	live, ended := one.login("alice"), one.login("alice")
	all.remember(live, ended)
	half := one.post("auth/login", "", fields{"login_id": "alice"}).token()
	one.post("auth/logout", ended, nil).wantState(flows.None)
	one.stop(syscall.SIGKILL)
	all.hears(two, ended)
	if a := two.get("/", live); a.Status != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Status, a.Body)
	}
	two.post("auth/checkpassword", half, fields{"password": testPassword}).wantState(flows.Authorized)
	two.post("auth/logout", live, nil).wantState(flows.None)
	one.start()
	for _, token := range []string{live, ended, half} {
		one.get("/", token).want(flows.ErrTokenInvalid)
	}
	all.remember(two.login("alice"))
}

// A storeFault is something that befalls a server, or the way of all nodes to it.
type storeFault struct {
	name        string
	begin, heal func(*servers, []*way)
	slow        bool // not down: some succeed
	empties     bool // what Redis had is gone
}

func onEach(do func(*way)) func(*servers, []*way) {
	return func(_ *servers, ways []*way) {
		for _, w := range ways {
			do(w)
		}
	}
}

func restarted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var healRedis = onEach(func(w *way) { w.redis.Heal() })

var redisFaults = []storeFault{
	{name: "black hole", begin: onEach(func(w *way) { w.redis.Blackhole() }), heal: healRedis},
	{name: "refused", begin: onEach(func(w *way) { w.redis.Refuse() }), heal: healRedis},
	{name: "slow", begin: onEach(func(w *way) { w.redis.Delay(400 * time.Millisecond) }), heal: healRedis},
	{name: "frozen", begin: func(s *servers, _ []*way) { s.redis.Freeze() }, heal: func(s *servers, _ []*way) { s.redis.Thaw() }},
	{
		name: "killed and restarted", empties: true,
		begin: func(s *servers, _ []*way) { s.redis.Kill() },
		heal:  func(s *servers, _ []*way) { restarted(s.t, s.redis.Start()) },
	},
}

var healPostgres = onEach(func(w *way) { w.postgres.Heal() })

var postgresFaults = []storeFault{
	{name: "black hole", begin: onEach(func(w *way) { w.postgres.Blackhole() }), heal: healPostgres},
	{name: "refused", begin: onEach(func(w *way) { w.postgres.Refuse() }), heal: healPostgres},
	{name: "slow", begin: onEach(func(w *way) { w.postgres.Delay(30 * time.Millisecond) }), heal: healPostgres, slow: true},
	{name: "far too slow", begin: onEach(func(w *way) { w.postgres.Delay(1500 * time.Millisecond) }), heal: healPostgres},
	{
		name:  "killed and restarted",
		begin: func(s *servers, _ []*way) { s.postgres.Stop() },
		heal:  func(s *servers, _ []*way) { restarted(s.t, s.postgres.Start()) },
	},
}

// faulty starts two nodes behind proxies, on servers that may be killed.
func faulty(t *testing.T, c siteConfig) (*servers, *site, []*way) {
	t.Helper()
	s := ownServers(t)
	ways := []*way{s.newWay(), s.newWay()}
	all := s.start(c, s.through(ways[0]), s.through(ways[1]))
	t.Cleanup(func() {
		healRedis(s, ways)
		healPostgres(s, ways)
	})
	return s, all, ways
}

// Whatever befalls Redis: no session passes that was ended, none at all once a
// node can't hear what ends, every caller is answered in time, and soon after
// all is normal.
func TestFaultsOfRedis(t *testing.T) {
	s, all, ways := faulty(t, siteConfig{company: roomy + account("alice", "")})
	for _, f := range redisFaults {
		all.run(f.name, func(t *testing.T) {
			s.t = t
			live, ended := all.login("alice"), all.login("alice")
			all.remember(live, ended)
			all.nodes[0].post("auth/logout", ended, nil).wantState(flows.None)
			all.hears(all.nodes[1], ended)

			f.begin(s, ways)
			began := time.Now()
			for time.Since(began) < trustedWithin+time.Second {
				for _, node := range all.nodes {
					asked := time.Since(began)
					switch a := all.timely(func() answer { return node.get("/", live) }); {
					case a.Status == http.StatusOK && asked > trustedWithin:
						t.Errorf("it passes %v after the fault", asked)
					case a.Status != http.StatusOK && a.Status != http.StatusServiceUnavailable:
						t.Errorf("got %d %s", a.Status, a.Body)
					}
					if a := all.timely(func() answer { return node.get("/", ended) }); a.Status != http.StatusServiceUnavailable {
						t.Errorf("the ended session: %d %s", a.Status, a.Body)
					}
				}
				all.timely(func() answer { return all.credentials("alice", testPassword) }).want(flows.ErrUnavailable)
				all.timely(func() answer { return all.post("auth/logout", ended, nil) }).want(flows.ErrUnavailable)
			}
			together(100, func(int) answer { // no queue that grows
				return all.timely(func() answer { return all.get("/", live) }).want(flows.ErrUnavailable)
			})

			f.heal(s, ways)
			all.normally(func(node *site) bool {
				if !f.empties && node.get("/", live).Status != http.StatusOK {
					return false
				}
				return node.credentials("alice", testPassword).Status == http.StatusOK
			})
			for _, node := range all.nodes {
				node.get("/", ended).want(flows.ErrTokenInvalid)
			}
			token := all.login("alice")
			all.remember(token)
			all.nodes[1].post("auth/logout", token, nil).wantState(flows.None)
			all.hears(all.nodes[0], token)
		})
	}
}

// A node that is cut off from Redis, alone, can't hear what ends on the others.
func TestNodeThatCannotHearPassesNobody(t *testing.T) {
	_, all, ways := faulty(t, siteConfig{company: roomy + account("alice", "")})
	deaf, other := all.nodes[0], all.nodes[1]
	for name, begin := range map[string]func(){
		"black hole": ways[0].redis.Blackhole,
		"forgotten by a firewall": func() {
			ways[0].redis.Forget()
			ways[0].redis.Blackhole()
		},
	} {
		all.run(name, func(t *testing.T) {
			token := all.login("alice")
			all.remember(token)
			begin()
			began := time.Now()
			other.post("auth/logout", token, nil).wantState(flows.None)
			for time.Since(began) < trustedWithin+500*time.Millisecond {
				asked := time.Since(began)
				if a := all.timely(func() answer { return deaf.get("/", token) }); a.Status == http.StatusOK && asked > trustedWithin {
					t.Errorf("it passes %v later", asked)
				}
				other.get("/", token).want(flows.ErrTokenInvalid)
			}
			ways[0].redis.Heal()
			healed, watch := time.Now(), storetest.StartWatch()
			for deaf.get("/", token).str("error_code") != flows.ErrTokenInvalid.Code {
				if a := deaf.get("/", token); a.Status == http.StatusOK || watch.Took() > normalWithin {
					t.Fatalf("%v after it hears again: %d %s", time.Since(healed), a.Status, a.Body)
				}
			}
		})
	}
}

// What is lost with a subscription alone: nothing.
func TestKilledSubscriptionMissesNothing(t *testing.T) {
	t.Parallel()
	s, all, _ := faulty(t, siteConfig{company: roomy + account("alice", "")})
	for range 5 {
		token, other := all.login("alice"), all.login("alice")
		all.remember(token, other)
		s.redis.Ask(t, "client", "kill", "type", "pubsub")
		all.nodes[0].post("auth/logout", token, nil).wantState(flows.None)
		all.hears(all.nodes[1], token)
		all.remember(other)
	}
}

// Locks and passwords that don't work any more live with the account: whoever
// empties Redis has no more guesses than before.
func TestLocksSurviveAnEmptyRedis(t *testing.T) {
	t.Parallel()
	s := sharedServers(t)
	all := s.start(siteConfig{
		company: strings.Replace(roomy, "lock_after 10", "lock_after 3", 1) + account("alice", "") + account("bob", ""),
		more: `company strict {
			api_key ` + testKey + `
			captcha off
			limits {
				lock_after 3
				disable_after 3
				lock_for 1s
			}
			` + account("alice", "") + `
		}`,
	}, s.direct(), s.direct())
	strict := func(password string) answer {
		return all.postTo("strict", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": password})
	}
	for range 3 {
		all.credentials("alice", "a wrong password").want(flows.ErrCredentialsInvalid)
		strict("a wrong password").want(flows.ErrCredentialsInvalid)
	}
	for range 2 {
		all.credentials("bob", "a wrong password").want(flows.ErrCredentialsInvalid)
	}
	token := all.login("bob")
	all.remember(token)
	for range 2 {
		all.credentials("bob", "a wrong password").want(flows.ErrCredentialsInvalid)
	}
	s.redis.Ask(t, "flushall")
	for _, node := range all.nodes {
		all.hears(node, token)
	}
	time.Sleep(1100 * time.Millisecond) // lock_for of strict
	all.credentials("alice", testPassword).want(flows.ErrRestricted)
	strict(testPassword).want(flows.ErrRestricted)
	all.credentials("bob", "a wrong password").want(flows.ErrCredentialsInvalid)
	all.credentials("bob", testPassword).want(flows.ErrRestricted)
}

// Whatever befalls PostgreSQL: those who have logged in go on, those who want
// to are answered in time, and soon after all is normal.
func TestFaultsOfPostgres(t *testing.T) {
	s, all, ways := faulty(t, siteConfig{company: hurried +
		account("alice", "phone +37060000001\nsecond_factor") + account("bob", "")})
	for _, f := range postgresFaults {
		all.run(f.name, func(t *testing.T) {
			s.t = t
			live, ended, spare := all.login("bob"), all.login("bob"), all.login("bob")
			all.remember(live, spare)
			all.post("auth/logout", ended, nil).wantState(flows.None)
			half := all.post("auth/login", "", fields{"login_id": "alice"}).token()
			passes := func() {
				t.Helper()
				for _, node := range all.nodes {
					if a := all.timely(func() answer { return node.get("/", live) }); a.Status != http.StatusOK {
						t.Errorf("the protected path: %d %s", a.Status, a.Body)
					}
					all.timely(func() answer { return node.get("/", ended) }).want(flows.ErrTokenInvalid)
				}
			}

			f.begin(s, ways)
			unavailable := 0
			for i, a := range together(60, func(i int) answer {
				return all.timely(func() answer {
					switch i % 3 {
					case 0:
						return all.credentials("bob", testPassword)
					case 1:
						return all.post("auth/login", "", fields{"login_id": "alice"})
					}
					return all.post("auth/checkpassword", half, fields{"password": testPassword})
				})
			}) {
				switch {
				case a.Status == http.StatusServiceUnavailable:
					unavailable++
				case !f.slow:
					t.Errorf("call %d: %d %s", i, a.Status, a.Body)
				}
			}
			if f.slow && unavailable == 60 {
				t.Error("none was answered otherwise")
			}
			passes()
			all.post("auth/logout", spare, nil).wantState(flows.None) // which needs no account

			f.heal(s, ways)
			all.normally(func(node *site) bool {
				return node.credentials("bob", testPassword).Status == http.StatusOK
			})
			passes()
		})
	}
}

// An answer that is lost between the server and a node is no success.
func TestLostAnswerOfAStoreIsNoSuccess(t *testing.T) {
	t.Parallel()
	_, all, ways := faulty(t, siteConfig{company: roomy + account("alice", "") + account("dave", "must_set_password")})
	all.post("auth/logout", all.login("alice"), nil).wantState(flows.None) // so that Redis has the script
	token := all.login("alice")
	all.remember(token)
	ways[0].redis.CutAnswerTo("mnemogate:") // the channel on which endings are told
	all.nodes[0].post("auth/logout", token, nil).want(flows.ErrUnavailable)
	all.nodes[0].get("/", token).want(flows.ErrTokenInvalid) // though nobody could say so
	all.hears(all.nodes[1], token)
	ways[0].redis.Heal()

	setting := all.nodes[1].credentials("dave", testPassword).wantState(flows.SetPassword).token()
	ways[0].postgres.CutAnswerTo("")
	all.nodes[0].post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).want(flows.ErrUnavailable)
	ways[0].postgres.Heal()
}

// Nodes start while the servers are down, and work once they are up; also all
// at once, on a database that has nothing.
func TestNodesStartBeforeTheirServers(t *testing.T) {
	t.Parallel()
	s := ownServers(t)
	s.postgres.Stop()
	s.redis.Kill()
	all := s.start(siteConfig{company: roomy + account("alice", "")}, s.direct(), s.direct(), s.direct())
	for _, node := range all.nodes {
		all.timely(func() answer { return node.credentials("alice", testPassword) }).want(flows.ErrUnavailable)
		all.timely(func() answer { return node.get("/", "mgs_"+strings.Repeat("A", 43)) }).want(flows.ErrUnavailable)
	}
	restarted(t, s.redis.Start())
	all.timely(func() answer { return all.credentials("alice", testPassword) }).want(flows.ErrUnavailable)
	restarted(t, s.postgres.Start())
	all.normally(func(node *site) bool { return node.credentials("alice", testPassword).Status == http.StatusOK })
	for _, node := range all.nodes {
		if log := node.log(); strings.Contains(log, "a configured account was not created") || strings.Contains(log, "hunter2") {
			t.Errorf("the log of a node:\n%s", log)
		}
	}
	token := all.login("alice")
	all.remember(token)
}

// A config is loaded while PostgreSQL is away; what it adds is there later.
func TestReloadWithoutPostgres(t *testing.T) {
	t.Parallel()
	s := sharedServers(t)
	w := s.newWay()
	c := siteConfig{company: roomy + account("alice", "")}
	all := s.start(c, s.through(w))
	node := all.nodes[0]
	live := node.login("alice")
	w.postgres.Blackhole()
	c.stores, c.company = s.through(w), c.company+account("bob", "")
	if err := node.reload(c); err != nil {
		t.Fatal(err)
	}
	if a := node.timely(func() answer { return node.get("/", live) }); a.Status != http.StatusOK {
		t.Errorf("the protected path: %d %s", a.Status, a.Body)
	}
	node.timely(func() answer { return node.credentials("bob", testPassword) }).want(flows.ErrUnavailable)
	w.postgres.Heal()
	storetest.Eventually(t, seedAgainAfter+normalWithin, "new account", func() bool {
		return node.credentials("bob", testPassword).Status == http.StatusOK
	})
	node.login("alice")
}
