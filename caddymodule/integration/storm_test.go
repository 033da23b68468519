package integration

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var stormFor = flag.Duration("storm", 4*time.Second, "how long TestLoginStorm storms")

// A storm has stormTimes as many logins as the site can serve, and at least
// stormRate a second, because the measurement is low on a busy machine.
const (
	stormTimes = 10
	stormRate  = 500
)

// With oneSlot, Caddy computes one hash at a time, as on two CPUs. More CPUs serve more
// logins than the tests send.
const oneSlot = "GOMAXPROCS=2"

// refusedPause is the pause before a refused client tries again. Without it, this
// process would compete with Caddy for the CPU, and hashing would get the least.
var refusedPause = 250 * time.Millisecond * time.Duration(raceSlows)

// If a company has far more logins than the machine can hash, no protected request
// fails. Excess logins get service.unavailable, memory stays bounded, and users of
// another company log in as usual. For a minute:
//
//	go test ./caddymodule/integration -run LoginStorm -v -storm 1m
func TestLoginStorm(t *testing.T) { onEachDeployment(t, loginStorm) }

func loginStorm(t *testing.T, start starter) {
	limits := strings.Replace(roomy, "argon2id 64 1 1 insecure", "argon2id 19456 2 1", 1)
	s := start(t, siteConfig{
		company: limits + account("alice", ""),
		more:    "company calm {\napi_key " + testKey + limits + account("bea", "") + "}\n",
		env:     []string{oneSlot, "GOGC=100"}, // the default, since the test judges the use of memory
	})
	c := &http.Client{Timeout: client.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer c.CloseIdleConnections()
	login := func(company, loginID string) (answer, error) {
		return exchanged(t, c, s.postRequest(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword}))
	}
	session := s.login("alice")
	if a, err := login("calm", "bea"); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%v, %d %s", err, a.Status, a.Body)
	}
	able := capacity(t, func() bool {
		a, err := login("acme", "alice")
		return err == nil && a.Status == http.StatusOK
	})
	var resident []int64
	for _, node := range s.all() {
		resident = append(resident, node.memory("VmRSS"))
	}

	var work sync.WaitGroup
	stop := make(chan struct{})
	every := func(pause time.Duration, do func(n int)) {
		work.Go(func() {
			ticks := time.NewTicker(pause)
			defer ticks.Stop()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-ticks.C:
					do(n)
				}
			}
		})
	}
	var passed, calm atomic.Int64
	load := &loading{site: s}
	load.startWorkers()
	every(20*time.Millisecond, func(int) {
		a, err := exchanged(t, c, s.getRequest("/acme/orders", session))
		if a.fails(wire.ErrUnavailable) && strings.Contains(s.log(), "no revocations are received") { // so each request needs Redis
			load.unavailable.Add(1)
		} else if err != nil || a.Status != http.StatusOK {
			t.Errorf("a protected request: %v, %d %s", err, a.Status, a.Body)
		}
		passed.Add(1)
	})
	var calmFailed sync.Map
	every(time.Millisecond, func(int) {
		a, err := login("calm", "bea")
		if err != nil || a.Status != http.StatusOK {
			calmFailed.LoadOrStore(fmt.Sprint(err, a.Status, string(a.Body)), true)
		} else {
			calm.Add(1)
		}
	})
	o := &stormOutcomes{t: t, counts: map[string]int{}}
	under := make(chan struct{}, 4000) // more than fit into a queue; a limit for this process
	every(time.Second/time.Duration(max(stormRate, stormTimes*able)), func(n int) {
		select {
		case under <- struct{}{}:
		default:
			return
		}
		work.Go(func() {
			defer func() { <-under }()
			loginID := "alice"
			if n%2 == 1 {
				loginID = fmt.Sprint("nobody-", n)
			}
			began := time.Now()
			a, err := login("acme", loginID)
			o.note(a, err, time.Since(began))
		})
	})
	time.Sleep(*stormFor)
	close(stop)
	work.Wait()
	load.stopWorkers()

	t.Logf("%d logins a second can be served; of the storm's %v; the longest until one was refused took %v, until one was served %v; %d protected requests, %d logins of the other company",
		able, o.counts, o.refused, o.served, passed.Load(), calm.Load())
	if o.counts[wire.ErrUnavailable.Code] == 0 || o.counts["success"] == 0 {
		t.Error("this was no storm, or nobody got through")
	}
	report := t.Errorf
	if able < 20 { // other processes use the CPUs, and one hash may take as long as a login may wait
		report = t.Logf
	}
	calmFailed.Range(func(what, _ any) bool {
		report("a login of the other company: %v", what)
		return true
	})
	if calm.Load() == 0 {
		t.Error("nobody of the other company got through")
	}
	for i, node := range s.all() {
		peak := node.memory("VmHWM")
		t.Logf("node %d: at most %.0f MiB resident, %.0f MiB before", i, mebibytes(peak), mebibytes(resident[i]))
		if limit := resident[i] + 256<<20 + 4*(19<<20); peak > limit {
			t.Errorf("node %d needed %.0f MiB, more than %.0f", i, mebibytes(peak), mebibytes(limit))
		}
	}
	s.get("/", session).wantStatus(http.StatusOK)
	s.login("alice")
}

// capacity measures the number of logins per second, at least one.
func capacity(t *testing.T, login func() bool) int {
	t.Helper()
	var served atomic.Int64
	var work sync.WaitGroup
	began := time.Now()
	for range 4 {
		work.Go(func() {
			for time.Since(began) < time.Second {
				if login() {
					served.Add(1)
				}
			}
		})
	}
	work.Wait()
	return max(1, int(float64(served.Load())/time.Since(began).Seconds()))
}

type stormOutcomes struct {
	t               *testing.T
	mu              sync.Mutex
	counts          map[string]int
	refused, served time.Duration // the longest durations
}

// note records an answer of the storm.
func (o *stormOutcomes) note(a answer, err error, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.t.Errorf("no answer: %v", err)
		return
	}
	outcome := slices.Collect(maps.Keys(outcomes([]answer{a})))[0]
	o.counts[outcome]++
	switch {
	case a.Status == http.StatusServiceUnavailable && outcome == wire.ErrUnavailable.Code && a.Header.Get("Retry-After") != "":
		o.refused = max(o.refused, took)
	case outcome == "success" || outcome == wire.ErrCredentialsInvalid.Code:
		o.served = max(o.served, took)
	default:
		o.t.Errorf("the storm got %d %s", a.Status, a.Body)
	}
}

// One address with 140 connections to each node and the correct password, and one
// /48 of IPv6 with unknown login ids, do not delay the company's other users. In
// company acme that is because clients take turns; limited also has
// logins_per_address. For a minute each:
//
//	go test ./caddymodule/integration -run HoldsUpOnlyItself -v -storm 1m
func TestOneClientHoldsUpOnlyItself(t *testing.T) { onEachDeployment(t, oneClientHoldsUpOnlyItself) }

func oneClientHoldsUpOnlyItself(t *testing.T, start starter) {
	// These hashes are cheap enough for a busy machine to compute some in the 2 s.
	const hashing = "password {\nargon2id 7168 2 1 insecure\n}\n"
	users := account("alice", "") + account("bea", "")
	s := start(t, siteConfig{
		servers: "trusted_proxies static 127.0.0.1/32",
		env:     []string{oneSlot},
		company: hurried + users,
		more:    "company limited {\napi_key " + testKey + "\ncaptcha off\n" + hashing + users + "}\n",
	})
	c := &http.Client{Timeout: client.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer c.CloseIdleConnections()
	// login returns the status of a login from an address.
	login := func(company, address, loginID, password string) int {
		r := s.postRequest(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": password})
		r.Header.Set("X-Forwarded-For", address)
		a, err := exchanged(t, c, r)
		if err != nil {
			t.Errorf("no answer: %v", err)
		}
		return a.Status
	}
	for company, refusal := range map[string]int{"acme": http.StatusServiceUnavailable, "limited": http.StatusTooManyRequests} {
		for range s.all() { // the first hash of a node starts a process
			if status := login(company, "198.51.100.251", "bea", testPassword); status != http.StatusOK {
				t.Fatalf("%s: before the storm a user is answered %d", company, status)
			}
		}
		var work sync.WaitGroup
		stop := make(chan struct{})
		loop := func(connections int, do func()) {
			for range connections {
				work.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							do()
						}
					}
				})
			}
		}
		var mu sync.Mutex // guards storm and users
		storm, others := map[int]int{}, []time.Duration(nil)
		attack := func(address, loginID, password string) {
			status := login(company, address, loginID, password)
			mu.Lock()
			storm[status]++
			mu.Unlock()
			if status == refusal {
				time.Sleep(refusedPause)
			}
		}
		loop(140*len(s.all()), func() { attack("203.0.113.7", "alice", testPassword) })
		loop(20, func() {
			n := rand.N(1 << 16)
			attack(fmt.Sprintf("2001:db8:1:%x::1", n), fmt.Sprint("nobody-", n), "a wrong one")
		})
		loop(1, func() {
			began := time.Now()
			status := login(company, fmt.Sprintf("198.51.100.%d", rand.N(250)), "bea", testPassword)
			took := time.Since(began)
			if status != http.StatusOK {
				t.Errorf("%s: another user is answered %d after %v", company, status, took)
			}
			mu.Lock()
			defer mu.Unlock()
			others = append(others, took)
		})
		time.Sleep(*stormFor)
		close(stop)
		work.Wait()
		slices.Sort(others)
		p50, p99 := others[len(others)/2], others[len(others)*99/100]
		t.Logf("%s: %d logins of other users, p50 %v, p99 %v; the storm was answered %v", company, len(others), p50, p99, storm)
		if p99 >= 2*time.Second {
			t.Errorf("%s: p99 of other users is %v", company, p99)
		}
		if storm[refusal] == 0 {
			t.Errorf("%s: this was no storm: %v", company, storm)
		}
	}
}

// salted returns hashes of backup codes with different salts. Checking a code needs a
// hash for each salt. With 600,000 iterations, this takes a minute.
func salted(iterations int) (hashes []string) {
	for i := range 100 {
		hashes = append(hashes, fmt.Sprintf("$pbkdf2-sha256$%d$MDEyMzQ1N%03d$%043d", iterations, i, 0))
	}
	return hashes
}

// A company whose accounts have expensive hashes delays its own logins. It delays another company's logins by one hash at most.
func TestExpensiveHashesHoldUpNoOtherCompany(t *testing.T) {
	s := startSite(t, siteConfig{
		env:     []string{oneSlot},
		company: hurried + account("alice", "") + "account bob {\nphone +37060000002\n}\n",
		more:    "company calm {\napi_key " + testKey + roomy + account("bea", "") + "}\n",
	})
	// busy waits until n logins wait for a hash or have one computed.
	busy := func(n int) {
		t.Helper()
		s.eventually(fmt.Sprint(n, " hashes at work or waiting"), func() bool { return s.scrape()["mnemogate_hash_queue"] >= float64(n) })
	}
	try := func(company, loginID string) answer {
		t.Helper()
		return s.postTo(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword})
	}
	calm := func() {
		t.Helper()
		try("calm", "bea").wantState(record.Authorized)
	}
	calm() // the first hash starts a process

	s.run("backup codes, each with a salt of its own", func(t *testing.T) {
		bob := get(s.accounts().ByMnemocode(t.Context(), "acme", "bob"))(t)
		must(t, s.accounts().SetBackupCodes(t.Context(), bob, salted(600_000/raceSlows)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		token := s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantState(record.CheckOTP).token()
		r := s.postRequest("acme", testKey, "auth/checkotp", token, fields{"backup_code": "ABCDE-FGHIJ"})
		var all sync.WaitGroup
		all.Go(func() {
			if a, err := s.try(client, r.WithContext(ctx)); err == nil {
				t.Errorf("an answer before its client gave up: %d %s", a.Status, a.Body)
			}
		})
		busy(1)
		for range 8 {
			for company, loginID := range map[string]string{"calm": "bea", "acme": "alice"} { // alice has bob's company and even his address
				storetest.Eventually(t, 5*time.Second, "login of "+loginID, func() bool { return try(company, loginID).Status == http.StatusOK })
			}
		}
		cancel()
		all.Wait()
		s.eventually("end of the hashing when the clients were gone", func() bool { return s.scrape()["mnemogate_hash_queue"] == 0 })
	})

	s.run("passwords", func(t *testing.T) {
		iterations := 200_000 / raceSlows
		key := get(pbkdf2.Key(sha512.New, testPassword, []byte("0123456789abcdef"), iterations, sha512.Size))(t)
		base64 := base64.RawStdEncoding.EncodeToString
		s.update("alice", func(a *record.Account) {
			a.PasswordHash = fmt.Sprintf("$pbkdf2-sha512$%d$%s$%s", iterations, base64([]byte("0123456789abcdef")), base64(key))
		})
		const logins = 24 // if each had to wait for all of these, most would time out
		var all sync.WaitGroup
		for range logins {
			all.Go(func() {
				a := s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword})
				if a.str("session_state") != string(record.Authorized) && a.str("error_code") != wire.ErrUnavailable.Code {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			})
		}
		busy(2)
		for range logins {
			all.Go(calm)
		}
		all.Wait()
	})
}

// While any number of calls to the accounts API wait for PostgreSQL, users log in.
func TestAFloodOfTheAccountsAPIHoldsUpNoLogin(t *testing.T) {
	t.Parallel()
	shared := sharedServers(t)
	start := func(_ *testing.T, c siteConfig) *site { return shared.start(c, shared.direct()) }
	s := accountsSite(t, start, allKeys, siteConfig{company: account("alice", "") + account("bob", "")})
	s.login("alice")
	locker := get(pgx.Connect(t.Context(), shared.postgres.DSN(shared.schema)))(t)
	defer locker.Close(t.Context())
	get(locker.Exec(t.Context(), "BEGIN"))(t)
	get(locker.Exec(t.Context(), "SELECT FROM accounts WHERE mnemocode = 'bob' FOR UPDATE"))(t)
	var flood sync.WaitGroup
	for range 40 {
		flood.Go(func() { s.api(keyOfAll, "PATCH", "acme/accounts/bob", fields{"role": "editor"}) })
	}
	s.eventually("calls that wait for the lock", func() bool {
		var waiting int
		err := locker.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting)
		return err == nil && waiting >= 4
	})
	for range 5 {
		s.credentials("alice", testPassword).wantState(record.Authorized)
	}
	get(locker.Exec(t.Context(), "ROLLBACK"))(t)
	flood.Wait()
	s.api(keyOfAll, "PATCH", "acme/accounts/bob", fields{"role": "editor"}).wantStatus(200)
}
