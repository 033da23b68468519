package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The promises: a call is answered within the first time, and calls succeed again
// within the second.
const (
	answerWithin = 2500 * time.Millisecond
	normalWithin = 5 * time.Second
)

// behindProxy opens a store that reaches the server only through a proxy. The store
// has one account.
func behindProxy(t *testing.T, options Options) (*Store, *storetest.Proxy, record.Account) {
	t.Helper()
	s := storetest.SharedPostgres(t)
	proxy := storetest.NewProxy(t, "unix", s.Socket())
	p := startStore(t, s.DSNThrough(proxy, s.NewSchema(t)), options)
	t.Cleanup(proxy.Heal) // before the store is closed
	return p, proxy, create(t, p.Accounts(), plain("acme", "m1"))
}

// trouble makes n concurrent calls, in turn read, write and transact, and returns
// the errors. It fails if a call takes too long or if an error is an answer or
// contains the password.
func trouble(t *testing.T, p *Store, a record.Account, n int) []error {
	t.Helper()
	took := make([]time.Duration, n)
	stalled := storetest.WatchStalls()
	errs := race(n, p.Accounts(), p.Accounts(), func(i int, s record.Accounts) (err error) {
		began := time.Now()
		defer func() { took[i] = time.Since(began) }()
		switch i / 2 % 4 {
		case 0:
			_, err = s.ByID(bg, "acme", a.ID)
		case 1:
			err = s.Accept(bg, "acme", a.ID, []record.Acceptance{{Code: "c", Version: "1", At: t0}})
		case 2:
			err = s.UpdateFailures(bg, t0, record.FailureKey{Company: "acme", LoginID: fmt.Sprint(i)}, record.WrongCodes, add(1))
		case 3:
			_, err = s.Update(bg, "acme", a.ID, nothing)
		}
		return err
	})
	if slowest, stall := slices.Max(took), stalled(); slowest > answerWithin+stall {
		t.Errorf("a call took %v, of which the machine is to blame for %v", slowest, stall)
	}
	for i, err := range errs {
		if err != nil && (record.IsAnswer(err) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("call %d: error %v", i, err)
		}
	}
	return errs
}

// wantNormal waits until all calls succeed again.
func wantNormal(t *testing.T, p *Store, a record.Account) {
	t.Helper()
	healed, watch := time.Now(), storetest.StartWatch()
	for watch.Took() < normalWithin {
		if errors.Join(trouble(t, p, a, 8)...) == nil && errors.Join(trouble(t, p, a, 24)...) == nil {
			t.Logf("normal again after %v", time.Since(healed))
			return
		}
	}
	t.Errorf("not normal after %v: %v", time.Since(healed), errors.Join(trouble(t, p, a, 8)...))
}

func TestPostgresUnderFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		begin  func(*storetest.Proxy)
		errors bool // every call must fail
	}{
		{"refused", (*storetest.Proxy).Refuse, true},
		{"black hole", (*storetest.Proxy).Blackhole, true},
		{"slow", func(p *storetest.Proxy) { p.Delay(50 * time.Millisecond) }, false},
		{"far too slow", func(p *storetest.Proxy) { p.Delay(3 * time.Second) }, true},
		{"cut", (*storetest.Proxy).Cut, false},
		{"forgotten by a firewall", func(p *storetest.Proxy) {
			p.Forget()
			p.Blackhole()
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, proxy, a := behindProxy(t, Options{})
			wantNormal(t, p, a) // fills the pool
			c.begin(proxy)
			for range 2 {
				for _, err := range trouble(t, p, a, 64) {
					if c.errors && err == nil {
						t.Error("a call succeeded")
					}
				}
			}
			proxy.Heal()
			wantNormal(t, p, a)
		})
	}
}

func TestPostgresAfterConnectionsWereForgotten(t *testing.T) {
	t.Parallel()
	p, proxy, a := behindProxy(t, Options{})
	trouble(t, p, a, 200)               // fills the pool
	time.Sleep(1100 * time.Millisecond) // long enough that the pool checks the connections before use
	proxy.Forget()
	watch := storetest.StartWatch()
	for range 10 { // one after the other, as on a quiet node
		if _, err := p.Accounts().ByID(bg, "acme", a.ID); err == nil {
			break
		}
	}
	took := watch.Took()
	t.Logf("normal again after %v", took)
	if took > normalWithin {
		t.Error("that is too late")
	}
	wantNormal(t, p, a)
}

func TestPostgresSlowCallsLeaveOthersAlone(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	p := startStore(t, s.DSN(schema), Options{})
	a, b := create(t, p.Accounts(), plain("acme", "a")), create(t, p.Accounts(), plain("acme", "b"))
	other := startStore(t, s.DSN(schema), Options{})
	storetest.InQuiet(t, 500*time.Millisecond, func() error { // the calls that wait have 2 s
		locked, release := make(chan bool), make(chan bool)
		done, waited := make(chan error, 1), make(chan error)
		go func() {
			_, err := other.Accounts().Update(bg, "acme", a.ID, func(*record.Account) (bool, error) {
				close(locked)
				<-release
				return false, nil
			})
			done <- err
		}()
		select {
		case <-locked:
		case err := <-done:
			return err
		}
		go func() { waited <- errors.Join(trouble(t, p, a, 4)...) }() // more calls than these wait for the lock
		var all error
		for range 20 {
			all = errors.Join(all, p.Accounts().Accept(bg, "acme", b.ID, []record.Acceptance{{Code: "c", Version: "1", At: t0}}))
		}
		close(release)
		return errors.Join(all, <-done, <-waited)
	})
}

// A node that vanishes in a transaction, or whose change function does not return,
// must not block the others for long.
func TestPostgresLocksDoNotOutliveTheirNode(t *testing.T) {
	t.Parallel()
	p, proxy, a := behindProxy(t, Options{})
	direct := startStore(t, storetest.SharedPostgres(t).DSN(p.config.ConnConfig.RuntimeParams["search_path"]), Options{})
	_, err := p.Accounts().Update(bg, "acme", a.ID, func(*record.Account) (bool, error) {
		proxy.Blackhole()
		return false, nil
	})
	if err == nil || record.IsAnswer(err) {
		t.Errorf("Update into a black hole: %v", err)
	}
	for watch := storetest.StartWatch(); watch.Took() < normalWithin; {
		if _, err = direct.Accounts().Update(bg, "acme", a.ID, nothing); err == nil {
			return
		}
	}
	t.Errorf("still locked: %v", err)
}

// commitSent is in each request that commits: the name under which pgx prepares COMMIT.
var commitSent = fmt.Sprintf("stmtcache_%x", sha256.Sum256([]byte("COMMIT")))[:len("stmtcache_")+48]

func TestPostgresReportsAnAmbiguousCommitAsAnError(t *testing.T) {
	subject := record.FailureKey{Company: "acme", LoginID: "x"}
	for _, c := range []struct {
		name    string
		request string // whose answer is cut; "" for any
		call    func(s record.Accounts, a record.Account) error
		stored  func(s record.Accounts, a record.Account) bool
	}{
		{"Create", commitSent, func(s record.Accounts, _ record.Account) error { return second(s.Create(bg, t0, plain("acme", "new"))) }, func(s record.Accounts, _ record.Account) bool {
			_, err := s.ByMnemocode(bg, "acme", "new")
			return err == nil
		}},
		{"SetPassword", commitSent, func(s record.Accounts, a record.Account) error {
			return s.SetPassword(bg, t0, a, "new", record.TokenHash{})
		}, func(s record.Accounts, a record.Account) bool {
			got, err := s.ByID(bg, "acme", a.ID)
			return err == nil && got.PasswordHash == "new" && got.Generation == a.Generation+1
		}},
		{"UseBackupCode", "", func(s record.Accounts, a record.Account) error {
			return s.UseBackupCode(bg, "acme", a.ID, "c")
		}, func(s record.Accounts, a record.Account) bool {
			left, err := s.BackupCodes(bg, "acme", a.ID)
			return err == nil && len(left) == 0
		}},
		{"Delete", commitSent, func(s record.Accounts, a record.Account) error {
			return s.Delete(bg, "acme", a.ID, nil)
		}, func(s record.Accounts, a record.Account) bool {
			_, err := s.ByID(bg, "acme", a.ID)
			return errors.Is(err, record.ErrNotFound)
		}},
		{"Update", commitSent, func(s record.Accounts, a record.Account) error {
			return second(s.Update(bg, "acme", a.ID, set(true, func(a *record.Account) { a.Role += "x" })))
		}, func(s record.Accounts, a record.Account) bool {
			got, err := s.ByID(bg, "acme", a.ID)
			return err == nil && got.Role == "x" && got.Generation == a.Generation+1
		}},
		{"UpdateFailures", commitSent, func(s record.Accounts, _ record.Account) error {
			return s.UpdateFailures(bg, t0, subject, record.WrongCodes, add(1))
		}, func(s record.Accounts, _ record.Account) bool {
			failures, err := s.FailureCounts(bg, subject)
			return err == nil && failures[record.WrongCodes].Count == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			storetest.InQuiet(t, 500*time.Millisecond, func() error { // a call that is late is not stored
				p, proxy, a := behindProxy(t, Options{MaxConns: 1})
				must(t, p.Accounts().SetBackupCodes(bg, a, []string{"c"}))
				// Call once before, so that all statements are prepared.
				warm := create(t, p.Accounts(), plain("other", "m1"))
				for method, err := range callAllAccounts(bg, p.Accounts(), withIdentity(warm)) {
					if err != nil && !record.IsAnswer(err) {
						return fmt.Errorf("%s: %w", method, err)
					}
				}
				proxy.CutAnswerTo(c.request)
				if err := c.call(p.Accounts(), a); err == nil || record.IsAnswer(err) {
					t.Errorf("got error %v, want one that is no answer", err)
				}
				proxy.Heal()
				if !c.stored(p.Accounts(), a) {
					return errors.New("it was not stored, or more than once")
				}
				return nil
			})
		})
	}
}

// withIdentity returns a with an identity that callAllAccounts can look up.
func withIdentity(a record.Account) record.Account {
	a.Identities = []record.Identity{{Provider: 4, Subject: "w"}}
	return a
}

func TestPostgresReadsAgainWhenAConnectionBroke(t *testing.T) {
	p, proxy, a := behindProxy(t, Options{})
	for _, cut := range []func(){
		proxy.Cut,
		func() {
			proxy.Delay(200 * time.Millisecond)
			time.AfterFunc(100*time.Millisecond, func() { // while the call waits for its answer
				proxy.Heal()
				proxy.Cut()
			})
		},
	} {
		wantNormal(t, p, a)
		cut()
		wantEqual(t, "account", get[record.Account](t)(p.Accounts().ByID(bg, "acme", a.ID)).ID, a.ID)
	}
}

func TestPostgresWorksAgainWhenTheServerDoes(t *testing.T) {
	t.Parallel()
	s := storetest.OwnPostgres(t)
	p := startStore(t, s.DSN("public"), Options{})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	wantNormal(t, p, a)
	s.Exec(t, "CHECKPOINT") // otherwise the server writes at a time of its own
	for range 2 {
		s.Stop()
		for _, err := range trouble(t, p, a, 200) {
			if err == nil {
				t.Error("a call succeeded without a server")
			}
		}
		must(t, s.Start())
		wantNormal(t, p, a)
	}
}

func TestPostgresFollowsAFailover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lose func(t *testing.T, primary *storetest.Postgres)
	}{
		{"of a dead primary", func(_ *testing.T, primary *storetest.Postgres) { primary.Stop() }},
		{"of one that lives on, read-only", func(t *testing.T, primary *storetest.Postgres) {
			primary.Exec(t, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			primary := storetest.OwnPostgres(t)
			primary.Stop()
			must(t, primary.Start("wal_level=replica", "max_wal_senders=3"))
			replica := primary.Replica(t)
			p := startStore(t, fmt.Sprintf("host=%s,%s user=postgres dbname=postgres", primary.Dir(), replica.Dir()), Options{})
			a := create(t, p.Accounts(), plain("acme", "m1"))
			wantNormal(t, p, a)
			replica.WaitFor(t, primary)
			c.lose(t, primary)
			for watch := storetest.StartWatch(); ; { // a reload takes effect after a moment
				err := p.Accounts().Accept(bg, "acme", a.ID, []record.Acceptance{{Code: "c", Version: "1", At: t0}})
				if err != nil && !record.IsAnswer(err) {
					break
				}
				if watch.Took() > normalWithin {
					t.Fatalf("writing without a primary: %v", err)
				}
			}
			replica.Exec(t, "SELECT pg_promote()")
			wantNormal(t, p, a)
		})
	}
}

func TestPostgresCallersThatGoAwayCostNoConnection(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := startStore(t, s.DSN(s.NewSchema(t)), Options{})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	before := p.pool.Stat().NewConnsCount()
	ctx, cancel := context.WithCancel(bg)
	got := get[record.Account](t)(p.Accounts().Update(ctx, "acme", a.ID, func(a *record.Account) (bool, error) {
		cancel()
		a.Role = "r"
		return false, nil
	}))
	wantEqual(t, "role", got.Role, "r")
	must(t, errors.Join(trouble(t, p, a, 1)...))
	wantEqual(t, "new connections", p.pool.Stat().NewConnsCount()-before, 0)
}

// A server that takes no more connections serves those that the node has.
func TestPostgresIsFull(t *testing.T) {
	t.Parallel()
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	s.Exec(t, "CREATE ROLE few_"+schema+" LOGIN CONNECTION LIMIT 3", "GRANT ALL ON SCHEMA "+schema+" TO few_"+schema)
	p := startStore(t, "host="+s.Dir()+" sslmode=disable user=few_"+schema+" dbname=postgres search_path="+schema, Options{MaxConns: 8})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	if err := errors.Join(trouble(t, p, a, 200)...); err != nil {
		t.Errorf("got %v", err)
	}
	s.Exec(t, "ALTER ROLE few_"+schema+" CONNECTION LIMIT 0")
	p.pool.Reset()
	for _, err := range trouble(t, p, a, 8) {
		if code(err) != "53300" {
			t.Errorf("got %v, want that the server is full", err)
		}
	}
	s.Exec(t, "ALTER ROLE few_"+schema+" CONNECTION LIMIT 1")
	wantNormal(t, p, a)
}

// A pooler in transaction mode loses prepared statements if it does not know of them.
func TestPostgresNamesTheSettingOfThePooler(t *testing.T) {
	t.Parallel()
	s := storetest.SharedPostgres(t)
	p := startStore(t, s.DSN(s.NewSchema(t)), Options{MaxConns: 1})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	for range 2 {
		must(t, second(p.Accounts().ByID(bg, "acme", a.ID)))
	}
	_, err := p.pool.Exec(bg, "DEALLOCATE ALL")
	must(t, err)
	if _, err = p.Accounts().ByID(bg, "acme", a.ID); err == nil || !strings.Contains(err.Error(), "max_prepared_statements") {
		t.Errorf("got %v", err)
	}
}
