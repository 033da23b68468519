package integration

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A storeFault is a fault of a server, or of the connection of all nodes to it. Package store
// tests more of them.
type storeFault struct {
	name        string
	begin, heal func(*servers, []*way)
	slow        bool // not down: some requests succeed
	forgets     bool // the sessions are gone afterwards
}

func onEach(do func(*way)) func(*servers, []*way) {
	return func(_ *servers, ways []*way) {
		for _, w := range ways {
			do(w)
		}
	}
}

var healRedis = onEach(func(w *way) { w.redis.Heal() })

var redisFaults = []storeFault{
	{name: "black hole", begin: onEach(func(w *way) { w.redis.Blackhole() }), heal: healRedis},
	{
		name: "killed and restarted", forgets: true,
		begin: func(s *servers, _ []*way) { s.redis.Kill() },
		heal:  func(s *servers, _ []*way) { must(s.t, s.redis.Start()) },
	},
}

var healPostgres = onEach(func(w *way) { w.postgres.Heal() })

var postgresFaults = []storeFault{
	{name: "black hole", begin: onEach(func(w *way) { w.postgres.Blackhole() }), heal: healPostgres},
	{name: "slow", begin: onEach(func(w *way) { w.postgres.Delay(30 * time.Millisecond) }), heal: healPostgres, slow: true},
	{
		name:  "killed and restarted",
		begin: func(s *servers, _ []*way) { s.postgres.Stop() },
		heal:  func(s *servers, _ []*way) { must(s.t, s.postgres.Start()) },
	},
}

// faulty starts two nodes that reach the servers through proxies.
func (s *servers) faulty(c siteConfig) (*site, []*way) {
	s.t.Helper()
	ways := []*way{s.newWay(), s.newWay()}
	all := s.start(c, s.through(ways[0]), s.through(ways[1]))
	s.t.Cleanup(func() {
		healRedis(s, ways)
		healPostgres(s, ways)
	})
	return all, ways
}

// During any fault of Redis, no revoked session passes. Once a node can no longer
// receive revocations, no session passes at all. Every request is answered in time,
// and everything works again soon after the fault.
func TestFaultsOfRedis(t *testing.T) {
	t.Parallel()
	s := sharedServers(t)
	all, ways := s.faulty(siteConfig{company: roomy + account("alice", "") + account("dave", "must_set_password")})
	for _, f := range redisFaults {
		all.run(f.name, func(t *testing.T) {
			live, ended := all.login("alice"), all.login("alice")
			all.remember(live, ended)
			all.nodes[0].post("auth/logout", ended, nil).wantState(record.None)
			all.hears(all.nodes[1], ended)

			f.begin(s, ways)
			began := time.Now()
			for ; time.Since(began) < trustedWithin+time.Second; time.Sleep(20 * time.Millisecond) { // leave CPU to others
				for _, node := range all.nodes {
					asked := time.Since(began)
					switch a := all.timely(func() answer { return node.get("/", live) }); {
					case a.Status == http.StatusOK && asked > trustedWithin:
						t.Errorf("it passes %v after the fault", asked)
					case a.Status != http.StatusOK && a.Status != http.StatusServiceUnavailable:
						t.Errorf("got %d %s", a.Status, a.Body)
					}
					all.timely(func() answer { return node.get("/", ended) }).wantStatus(http.StatusServiceUnavailable)
				}
				all.timely(func() answer { return all.credentials("alice", testPassword) }).want(wire.ErrUnavailable)
				all.timely(func() answer { return all.post("auth/logout", ended, nil) }).want(wire.ErrUnavailable)
			}
			storetest.Together(100, func(int) answer { // requests don't queue up
				return all.timely(func() answer { return all.get("/", live) }).want(wire.ErrUnavailable)
			})

			f.heal(s, ways)
			all.normally(func(node *site) bool {
				if !f.forgets && node.get("/", live).Status != http.StatusOK {
					return false
				}
				return node.credentials("alice", testPassword).Status == http.StatusOK
			})
			for _, node := range all.nodes {
				node.get("/", ended).want(wire.ErrTokenInvalid)
			}
			token := all.login("alice")
			all.remember(token)
			all.nodes[1].post("auth/logout", token, nil).wantState(record.None)
			all.hears(all.nodes[0], token)
		})
	}
	all.run("only the subscription is lost, so no revocation is missed", func(*testing.T) {
		for range 5 {
			token, other := all.login("alice"), all.login("alice")
			all.remember(token, other)
			s.redis.Ask(t, "client", "kill", "type", "pubsub")
			all.nodes[0].post("auth/logout", token, nil).wantState(record.None)
			all.hears(all.nodes[1], token)
			all.remember(other)
		}
	})
	all.run("an answer that does not reach the node is no success", func(*testing.T) {
		all.post("auth/logout", all.login("alice"), nil).wantState(record.None) // caches the script in Redis
		token := all.login("alice")
		all.remember(token)
		ways[0].redis.CutAnswerTo("mnemogate:") // the channel of revocations
		all.nodes[0].post("auth/logout", token, nil).want(wire.ErrUnavailable)
		all.nodes[0].get("/", token).want(wire.ErrTokenInvalid) // although the client got no success
		all.hears(all.nodes[1], token)
		ways[0].redis.Heal()

		setting := all.nodes[1].credentials("dave", testPassword).wantState(record.SetPassword).token()
		ways[0].postgres.CutAnswerTo("")
		all.nodes[0].post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).want(wire.ErrUnavailable)
		ways[0].postgres.Heal()
	})
}

// During any fault of PostgreSQL, users who are logged in stay logged in, and logins
// are answered in time. Everything works again soon after the fault.
func TestFaultsOfPostgres(t *testing.T) {
	t.Parallel()
	s := ownServers(t)
	all, ways := s.faulty(siteConfig{company: hurried + account("alice", "phone +37060000001\nsecond_factor") + account("bob", "")})
	for _, f := range postgresFaults {
		all.run(f.name, func(t *testing.T) {
			live, ended, spare := all.login("bob"), all.login("bob"), all.login("bob")
			all.remember(live, spare)
			all.post("auth/logout", ended, nil).wantState(record.None)
			half := all.post("auth/login", "", fields{"login_id": "alice"}).token()
			passes := func() {
				t.Helper()
				for _, node := range all.nodes {
					all.timely(func() answer { return node.get("/", live) }).wantStatus(http.StatusOK)
					all.timely(func() answer { return node.get("/", ended) }).want(wire.ErrTokenInvalid)
				}
			}

			f.begin(s, ways)
			unavailable := 0
			for i, a := range storetest.Together(60, func(i int) answer {
				return all.timely(func() answer {
					switch i % 4 {
					case 0:
						return all.credentials("bob", testPassword)
					case 1:
						return all.post("auth/login", "", fields{"login_id": "alice"})
					case 2:
						return all.get("/", half)
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
			all.post("auth/logout", spare, nil).wantState(record.None) // it does not need the account

			f.heal(s, ways)
			all.normally(func(node *site) bool {
				return node.credentials("bob", testPassword).Status == http.StatusOK
			})
			passes()
		})
	}
}

// Nodes start while the servers are down, at the same time on an empty database, and work after
// the servers are up. Health tells of each outage, while nodes stay ready that have worked.
func TestNodesStartBeforeTheirServers(t *testing.T) {
	t.Parallel()
	s := ownServers(t)
	s.postgres.Stop()
	s.redis.Kill()
	all := s.startAnyway(siteConfig{company: roomy + account("alice", ""), handler: "health /health"}, s.direct(), s.direct())
	healthy := func(status, ready int) {
		t.Helper()
		for _, node := range all.nodes {
			node.wantHealth(t, status)
			storetest.Eventually(t, 20*time.Second, fmt.Sprint("ready as ", ready), func() bool {
				return node.ask("GET", "/health?ready", "").Status == ready && node.adminRaw("GET", "health?ready", "").Status == ready
			})
		}
	}
	healthy(http.StatusServiceUnavailable, http.StatusServiceUnavailable) // before the first start of the service
	for _, node := range all.nodes {
		all.timely(func() answer { return node.credentials("alice", testPassword) }).want(wire.ErrUnavailable)
		all.timely(func() answer { return node.get("/", someToken) }).want(wire.ErrUnavailable)
	}
	must(t, s.redis.Start())
	all.timely(func() answer { return all.credentials("alice", testPassword) }).want(wire.ErrUnavailable)
	must(t, s.postgres.Start())
	all.normally(func(node *site) bool { return node.credentials("alice", testPassword).Status == http.StatusOK })
	all.wantNoneLogged("a configured account was not created", "hunter2")
	token := all.login("alice")
	all.remember(token)
	healthy(http.StatusOK, http.StatusOK)
	s.postgres.Stop()
	healthy(http.StatusServiceUnavailable, http.StatusOK)
	all.remember(token)
	must(t, s.postgres.Start())
	healthy(http.StatusOK, http.StatusOK)

	all.run("a PostgreSQL that takes no writes, such as a standby", func(t *testing.T) {
		const setting = "ALTER DATABASE postgres SET default_transaction_read_only = "
		s.postgres.Exec(t, setting+"on")
		node := s.startAnyway(siteConfig{company: roomy + account("alice", "")}, s.direct()).nodes[0]
		node.credentials("alice", testPassword).want(wire.ErrUnavailable)
		node.doctor(1, "read only connection", "the server that answers takes no writes: see that the primary runs")
		s.postgres.Exec(t, "SET default_transaction_read_only = off", setting+"off")
		storetest.Eventually(t, 10*time.Second, "login once it takes writes", func() bool {
			return node.credentials("alice", testPassword).Status == http.StatusOK
		})
	})
}

// A config can be loaded while a server is down, and uses the stores of the one before.
func TestReloadWithoutAServer(t *testing.T) {
	t.Parallel()
	s := sharedServers(t)
	w := s.newWay()
	c := siteConfig{company: roomy + account("alice", "")}
	all := s.start(c, s.through(w))
	node := all.nodes[0]
	live, leaving := all.login("alice"), all.login("alice")
	all.remember(live, leaving)
	passes := func(t *testing.T) {
		t.Helper()
		node.timely(func() answer { return node.get("/", live) }).wantStatus(http.StatusOK)
	}
	all.run("Redis is not asked, so a late answer refuses no request", func(t *testing.T) {
		node.clearLog()
		w.redis.Blackhole()
		must(t, node.load())
		w.redis.Heal()
		passes(t)
		if log := node.log(); strings.Contains(log, "a store can't be reached") {
			t.Errorf("the reload has asked Redis:\n%s", log)
		}
	})
	all.run("without PostgreSQL, users can log out, and added accounts are created later", func(t *testing.T) {
		w.postgres.Blackhole()
		c.stores, c.company = s.through(w), c.company+account("bob", "")
		must(t, node.reload(c))
		passes(t)
		node.timely(func() answer { return node.post("auth/logout", leaving, nil) }).wantState(record.None)
		for _, a := range storetest.Together(20, func(int) answer { // those that wait for another wait as long
			return node.timely(func() answer { return node.credentials("bob", testPassword) })
		}) {
			a.want(wire.ErrUnavailable)
		}
		w.postgres.Heal()
		storetest.Eventually(t, seedAgainAfter+normalWithin, "new account", func() bool {
			return node.credentials("bob", testPassword).Status == http.StatusOK
		})
		node.login("alice")
	})
	all.run("a store logs to the config that runs, although an earlier one has created it", func(t *testing.T) {
		file := node.dir + "/next.log"
		node.config = strings.Replace(node.config, "output stderr", "output file "+file, 1)
		must(t, node.load())
		w.redis.Blackhole()
		storetest.Eventually(t, time.Minute, "a warning", func() bool {
			log, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(log), `"mnemogate.sessions.redis","msg":"no revocations are received`)
		})
		w.redis.Heal()
	})
}
