package integration

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
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A starter starts a site, or several nodes that behave like one.
type starter = func(*testing.T, siteConfig) *site

// deployments must behave the same. The race detector watches one of the three Caddys.
var deployments = []struct {
	name  string
	start starter
}{
	{"embedded", func(t *testing.T, c siteConfig) *site {
		c.unraced = true
		return startSite(t, c)
	}},
	{"two nodes", startNodes},
}

// onEachDeployment runs a test on all deployments.
func onEachDeployment(t *testing.T, test func(*testing.T, starter)) {
	for _, d := range deployments {
		t.Run(d.name, func(t *testing.T) { test(t, d.start) })
	}
}

// startNodes starts two nodes that share PostgreSQL and Redis. The site that it
// returns sends requests to them in turn.
func startNodes(t *testing.T, c siteConfig) *site {
	t.Helper()
	s := sharedServers(t)
	return s.start(c, s.direct(), s.direct())
}

// waitForStores waits for the stores of a node that is up. On a busy machine they may not
// answer in time at first.
func (s *site) waitForStores() {
	s.t.Helper()
	if strings.Contains(s.log(), "a store can't be reached") {
		storetest.Eventually(s.t, time.Minute, "answer of all stores", func() bool { return strings.Contains(s.log(), "all stores can be reached now") })
	}
}

// servers are the servers that nodes share.
type servers struct {
	t        *testing.T
	postgres *storetest.Postgres
	redis    *storetest.Redis
	schema   string
}

// sharedServers returns a PostgreSQL that must not be stopped, and a Redis.
func sharedServers(t *testing.T) *servers {
	t.Helper()
	postgres := storetest.SharedPostgres(t)
	return &servers{t: t, postgres: postgres, redis: storetest.StartRedis(t), schema: postgres.NewSchema(t)}
}

// ownServers returns servers that the test may stop.
func ownServers(t *testing.T) *servers {
	t.Helper()
	return &servers{t: t, postgres: storetest.OwnPostgres(t), redis: storetest.StartRedis(t), schema: "public"}
}

// direct returns the part of a node's Caddyfile that connects to the servers
// directly.
func (s *servers) direct() string {
	return fmt.Sprintf("store postgres %q\nsessions redis %s", s.postgres.DSN(s.schema), s.redis.URL())
}

// through is like direct, but connects through proxies.
func (s *servers) through(w *way) string {
	return fmt.Sprintf("store postgres %q\nsessions redis redis://%s", s.postgres.DSNThrough(w.postgres, s.schema), w.redis.Addr())
}

// A way holds the proxies between a node and the servers.
type way struct{ postgres, redis *storetest.Proxy }

func (s *servers) newWay() *way {
	return &way{
		postgres: storetest.NewProxy(s.t, "unix", s.postgres.Socket()),
		redis:    storetest.NewProxy(s.t, "unix", s.redis.Socket()),
	}
}

// start starts a node for each of the given parts of a Caddyfile, and waits for their stores.
func (s *servers) start(c siteConfig, nodes ...string) *site {
	s.t.Helper()
	all := s.startAnyway(c, nodes...)
	for _, node := range all.nodes {
		node.waitForStores()
	}
	return all
}

// startAnyway is like start, but waits for no stores.
func (s *servers) startAnyway(c siteConfig, nodes ...string) *site {
	s.t.Helper()
	all := &site{t: s.t, backend: newRawBackend(s.t), sms: newWebhookSink(s.t)}
	for i, stores := range nodes {
		c.stores, c.unraced = stores, i > 0
		all.nodes = append(all.nodes, startSiteWith(s.t, c, all.backend, all.sms))
	}
	all.dir = all.nodes[0].dir // commands and the admin API use the first node
	all.beside = sync.OnceValue(s.open)
	return all
}

// open opens the stores that the nodes use.
func (s *servers) open() openStores {
	s.t.Helper()
	accounts := get(postgres.Open(s.postgres.DSN(s.schema), postgres.Options{}))(s.t)
	s.t.Cleanup(func() { _ = accounts.Close() })
	patient := redis.Limits{Attempt: 30 * time.Second, Call: time.Minute, Replicas: 10 * time.Second} // busy machines may stop the server
	sessions := get(redis.OpenWithin(patient, redis.Options{URLs: []string{s.redis.URL()}}))(s.t)
	s.t.Cleanup(func() { _ = sessions.Close() })
	startShared(s.t, accounts, sessions)
	type (
		postgresStore = postgres.Store
		redisStore    = redis.Store
	)
	return struct {
		*postgresStore
		*redisStore
	}{accounts, sessions}
}

// startShared starts the stores like nodes that share them.
func startShared(t testing.TB, accounts *postgres.Store, sessions *redis.Store) {
	t.Helper()
	storetest.Started(t, accounts.Start)
	name := get(store.Deployment(t.Context(), accounts.Accounts()))(t)
	sessions.SetDeployment(name)
	storetest.Started(t, sessions.Start)
}

// These are the promised times: for an answer, for how long a node trusts its
// memory, and until everything works again.
const (
	answerWithin  = 2 * time.Second
	trustedWithin = 2 * time.Second
	normalWithin  = 5 * time.Second
	heardWithin   = time.Second // 100 ms at p99: see TestLogoutIsHeard
)

// timely calls ask and checks that the answer comes in time, and that
// service.unavailable has a Retry-After.
func (s *site) timely(ask func() answer) answer {
	s.t.Helper()
	began, stalled := time.Now(), storetest.WatchStalls()
	a := ask()
	took, stall := time.Since(began), stalled()
	if took > answerWithin+stall {
		s.t.Errorf("an answer took %v, of which the machine is to blame for %v: %d %s", took, stall, a.Status, a.Body)
	}
	if a.Status == http.StatusServiceUnavailable && (a.str("error_code") != wire.ErrUnavailable.Code || a.Header.Get("Retry-After") == "") {
		s.t.Errorf("got 503 %s with Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	return a
}

// remember makes each node remember the sessions.
func (s *site) remember(tokens ...string) {
	s.t.Helper()
	for _, node := range s.all() {
		for _, token := range tokens {
			for range 2 {
				node.get("/", token).wantStatus(http.StatusOK)
			}
		}
	}
}

// gone waits until each node refuses the tokens.
func (s *site) gone(tokens ...string) {
	s.t.Helper()
	for _, node := range s.all() {
		for _, token := range tokens {
			s.hears(node, token)
		}
	}
}

// hears waits until a node refuses a token that was revoked on another one.
func (s *site) hears(node *site, token string) {
	s.t.Helper()
	storetest.Eventually(s.t, heardWithin, "refusal", func() bool {
		return node.get("/", token).str("error_code") == wire.ErrTokenInvalid.Code
	})
}

// normally waits until all nodes work again.
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

// A session is revoked at once on the node that revokes it, and soon afterwards on
// the others, although they remember it.
func TestWhatEndsOnOneNodeEndsOnAll(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, whatEndsOnOneNodeEndsOnAll)
}

func whatEndsOnOneNodeEndsOnAll(t *testing.T, start starter) {
	all := start(t, siteConfig{company: roomy + account("bob", "question Cat? Whiskers")})
	one, two := all.all()[0], all.all()[len(all.all())-1]
	refused := func(token string) {
		all.t.Helper()
		one.get("/", token).want(wire.ErrTokenInvalid) // the session was revoked here
		all.hears(two, token)
	}
	both := func(loginID string) (tokens [2]string) {
		all.t.Helper()
		tokens = [2]string{one.login(loginID), two.login(loginID)}
		all.remember(tokens[:]...)
		return tokens
	}
	patch := func(change fields) { one.admin("PATCH", "accounts/alice", change).wantStatus(200) }
	again := func() { patch(with(alice, fields{"status": "active", "second_factor": false})) }
	one.admin("POST", "accounts", alice).wantStatus(201)
	all.run("logout", func(*testing.T) {
		tokens := both("alice")
		one.post("auth/logout", tokens[0], nil).wantState(record.None)
		refused(tokens[0])
		all.remember(tokens[1])
		two.post("auth/logout", tokens[1], nil).wantState(record.None)
		two.get("/", tokens[1]).want(wire.ErrTokenInvalid)
		all.hears(one, tokens[1])
	})
	all.run("a new password", func(*testing.T) {
		tokens := both("bob")
		recovery := two.post("auth/recovery/recover", "", fields{"login_id": "bob", "captcha_response": "any", "method": "QUESTION"}).token()
		setting := one.post("auth/recovery/checkquestion", recovery, fields{"control_answer": "Whiskers"}).token()
		one.post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).wantState(record.None)
		for _, token := range tokens {
			refused(token)
		}
	})
	for name, end := range map[string]func(){
		"restricted":       func() { patch(fields{"status": "restricted"}) },
		"another phone":    func() { patch(fields{"primary_phone": "+37060012346"}) },
		"no phone":         func() { patch(fields{"primary_phone": nil}) },
		"another role":     func() { patch(fields{"role": rand.Text()}) },
		"another email":    func() { patch(fields{"primary_email": "liz@example.com"}) },
		"a second factor":  func() { patch(fields{"second_factor": true}) },
		"another password": func() { patch(fields{"password": "another one"}) },
		"another hash":     func() { patch(fields{"password_hash": "$2y$10$srNl09aPtc2qr.0Vl.NtjekJRt/NxRxYQm3qd3OvfcKsJgVnr6.Ve"}) },
		"no password":      func() { patch(fields{"password": nil}) },
		"another mnemocode": func() {
			patch(fields{"profile_mnemocode": "liz"})
			one.admin("PATCH", "accounts/liz", fields{"profile_mnemocode": "alice"}).wantStatus(200)
		},
		"the account's sessions": func() { one.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(204) },
		"all sessions":           func() { one.admin("DELETE", "sessions", nil).wantStatus(204) },
	} {
		all.run(name, func(*testing.T) {
			again()
			tokens, step := both("alice"), two.post("auth/login", "", fields{"login_id": "alice"}).wantState(record.CheckPassword).token()
			end()
			for _, token := range tokens {
				refused(token)
			}
			invalid := wire.ErrTokenInvalid
			if name == "restricted" {
				invalid = wire.ErrUserRestricted
			}
			for _, node := range all.all() {
				node.post("auth/checkpassword", step, fields{"password": testPassword}).want(invalid)
			}
		})
	}
	all.run("each session", func(*testing.T) {
		again()
		tokens := both("alice")
		for _, session := range one.admin("GET", "accounts/alice/sessions", nil).JSON["sessions"].([]any) {
			one.admin("DELETE", "accounts/alice/sessions/"+session.(fields)["session_id"].(string), nil).wantStatus(204)
		}
		for _, token := range tokens {
			refused(token)
		}
	})
	all.run("other changes end none", func(*testing.T) {
		again()
		token := one.login("alice")
		for _, change := range []fields{
			{"login_name": "liz"}, {"login_name": "alice"}, {"must_set_password": true}, {"must_set_password": false},
			{"control_question": "Cat?", "control_answer": "Tom"}, {"oauth_identities": []fields{{"provider_id": 1, "subject": "a"}}},
			{"disclaimers_accepted": []fields{{"code": "terms", "version": "1"}}}, {"status": "active"}, {"primary_phone": "0037060012345"},
		} {
			patch(change)
			all.remember(token)
		}
		one.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
		one.admin("POST", "accounts/alice/backup-codes", nil).wantStatus(200)
		all.remember(token)
	})
	all.run("sessions are listed, and links end with them", func(t *testing.T) {
		one.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(204)
		one.login("alice")
		one.post("auth/login", "", fields{"login_id": "alice"}).wantState(record.CheckPassword) // is no session yet
		one.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "x", "method": "MAIL"}).wantStatus(200)
		link := all.sms.linkToken()
		list := one.admin("GET", "accounts/alice/sessions", nil).wantStatus(200)
		if sessions := list.JSON["sessions"].([]any); len(sessions) != 1 || sessions[0].(fields)["session_state"] != "authorized" || strings.Contains(string(list.Body), "mgs_") {
			t.Errorf("got %s", list.Body)
		}
		one.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(204)
		two.post("auth/recovery/checklink", "", fields{"token": link}).want(wire.ErrTokenInvalid)
		if list := one.admin("GET", "accounts/alice/sessions", nil); string(list.Body) != "{\"sessions\":[]}\n" {
			t.Errorf("got %s", list.Body)
		}
	})
}

var logouts = flag.Int("logouts", 50, "how many logouts TestLogoutIsHeard measures; for figures, at least 1000")

// This measures how long after the answer to a logout another node, which remembers
// the session, still lets it pass, while both are busy. For the figures:
//
//	go test ./caddymodule/integration -run LogoutIsHeard -v -logouts 1000
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
				if a := all.get("/", token).inTime(); a.Status != http.StatusOK {
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
		one.post("auth/logout", token, nil).wantState(record.None)
		answered, stalled := time.Now(), storetest.WatchStalls()
		late := time.Duration(0)
		for {
			asked := time.Since(answered)
			if two.get("/", token).Status != http.StatusOK {
				break
			}
			if late = asked; late > time.Minute {
				break
			}
		}
		if stall := stalled(); late > heardWithin+stall {
			t.Fatalf("passes %v after the logout, on a machine that stalls for %v", late, stall)
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
