package flows_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// However often strangers begin a login of an account with a password, nothing is
// written to the store.
func TestALoginThatStrangersBeginIsStoredNowhere(t *testing.T) {
	b := newBench(t)
	writes := &writeCounter{Sessions: b.Sessions}
	b.Sessions = writes
	for range 50 {
		token := b.must("auth/login", "", object{"login_id": email}).SessionToken
		if !regexp.MustCompile(`^mgs_[A-Za-z0-9_-]{44,156}$`).MatchString(token) {
			t.Fatalf("the token has %d characters", len(token))
		}
	}
	if n := writes.n.Load(); n != 0 {
		t.Errorf("50 logins made %d writes", n)
	}
	list, err := b.Sessions.List(t.Context(), b.clock.Now(), code, b.account)
	if err != nil || len(list) != 0 {
		t.Errorf("%d sessions are stored, %v", len(list), err)
	}
}

// A writeCounter counts the calls that could write something.
type writeCounter struct {
	record.Sessions
	n atomic.Int64
}

func (w *writeCounter) Create(ctx context.Context, now time.Time, s record.Session, counters ...record.Counter) error {
	w.n.Add(1)
	return w.Sessions.Create(ctx, now, s, counters...)
}

func (w *writeCounter) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	if slices.ContainsFunc(counters, func(c record.Counter) bool { return !c.Look }) {
		w.n.Add(1)
	}
	return w.Sessions.Charge(ctx, now, counters...)
}

// Of many requests that race with one token of a login on two nodes, one succeeds.
// Afterwards the token is invalid on its route, on other routes and on the protected
// path.
func TestALoginsTokenIsUsedOnce(t *testing.T) {
	b := newBench(t)
	b.company.Limits.LoginsPerAddress.N = 1000
	other := *b
	other.Service = &flows.Service{Manager: &session.Manager{Accounts: b.Accounts, Sessions: b.Sessions, Companies: b.Companies,
		Hasher: b.Hasher, Log: b.Log, Now: b.Now, Observe: b.Observe}}
	for _, path := range []string{"auth/checkpassword", "auth/logout"} {
		token := b.sessionIn(record.CheckPassword)
		var passed atomic.Int64
		var racers sync.WaitGroup
		for i := range 20 {
			racers.Go(func() {
				_, err := []*bench{b, &other}[i%2].serve(path, token, b.goodBody(path))
				switch {
				case err == nil:
					passed.Add(1)
				case !errors.Is(err, wire.ErrTokenInvalid):
					t.Errorf("%s: got %v", path, err)
				}
			})
		}
		racers.Wait()
		if n := passed.Load(); n != 1 {
			t.Errorf("%s: %d of 20 have passed", path, n)
		}
		for _, again := range []string{"auth/checkpassword", "auth/checkotp", "auth/logout"} {
			b.wrong(wire.ErrTokenInvalid, again, token, b.goodBody(again))
		}
		b.wantLive(token, wire.ErrTokenInvalid)
	}
}

// Revoking an account's sessions also revokes its unfinished logins.
func TestALoginEndsWithTheAccountsSessions(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"a new password": func(b *bench) {
			b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), b.goodBody("auth/setpassword"))
		},
		"another phone": func(b *bench) { b.update(true, func(a *record.Account) { a.Phone = "+37060000099" }) },
		"the account deleted": func(b *bench) {
			if err := b.admin().Delete(b.t.Context(), mnemocode); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			token := b.sessionIn(record.CheckPassword)
			end(b)
			for _, path := range []string{"auth/checkpassword", "auth/checkotp", "auth/logout"} {
				b.wrong(wire.ErrTokenInvalid, path, token, b.goodBody(path))
			}
			b.wantLive(token, wire.ErrTokenInvalid)
		})
	}
}

// A login's token can't be forged, altered or spelled in another way.
func TestALoginsTokenCantBeForged(t *testing.T) {
	b := newBench(t)
	token := b.sessionIn(record.CheckPassword)
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := len("mgs_"); i < len(token); i++ {
		for _, flip := range []int{1, 32} {
			forged := []byte(token)
			forged[i] = digits[strings.IndexByte(digits, forged[i])^flip]
			b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", string(forged), object{"password": password})
		}
	}
	elsewhere := newBench(t)
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", elsewhere.sessionIn(record.CheckPassword), object{"password": password})
	b.must("auth/checkpassword", token, object{"password": password})
}

// Strangers can begin and log out such sessions, so the logouts are counted.
func TestLogoutsOfLoginsAreCounted(t *testing.T) {
	b := newBench(t)
	b.company.Limits.LoginsPerAddress.N = 3
	for range 3 {
		b.must("auth/logout", b.sessionIn(record.CheckPassword), nil)
	}
	b.wrong(wire.ErrRestricted, "auth/logout", b.sessionIn(record.CheckPassword), nil)
	b.must("auth/logout", b.sessionIn(record.RecoveryQuestion), nil)
}

// An account may have a limited number of authorized sessions. One more revokes the
// oldest, whichever way the user logged in.
func TestOneSessionTooManyEndsTheOldest(t *testing.T) {
	b := newBench(t)
	b.company.Limits.SessionsPerAccount = 2
	memory, _ := b.remembering(1000)
	var tokens []string
	for range 3 {
		b.clock.advance(time.Second)
		tokens = append(tokens, b.sessionIn(record.Authorized))
		b.wantLive(tokens[len(tokens)-1], nil)
	}
	if memory.Len() != 3 {
		t.Fatalf("%d sessions are remembered", memory.Len())
	}
	memory.Flush() // a store without a feed does not notify it
	b.wantLive(tokens[0], wire.ErrTokenInvalid)
	b.wantLive(tokens[1], nil)
	b.clock.advance(time.Second)
	b.must("auth/oauth", "", b.goodBody("auth/oauth"))
	b.wantLive(tokens[2], nil)
	memory.Flush()
	b.wantLive(tokens[1], wire.ErrTokenInvalid)
}

// Requests keep a session alive until its lifetime ends.
func TestRequestsProlongASessionToItsEnd(t *testing.T) {
	b := newBench(t)
	b.company.Session.Idle, b.company.Session.Lifetime = tenant.Duration(75*time.Second), tenant.Duration(90*time.Second)
	token := b.sessionIn(record.Authorized)
	for range 44 {
		b.clock.advance(2 * time.Second)
		b.wantLive(token, nil)
	}
	b.clock.advance(2 * time.Second)
	b.wantLive(token, wire.ErrTokenExpired)
}

// A revocation that fails must not block the others.
func TestAStuckRevocationHoldsUpNoOther(t *testing.T) {
	b := newBench(t)
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "stuck"}})
	token := b.sessionIn(record.Authorized)
	stuck, err := b.Accounts.ByMnemocode(t.Context(), code, "stuck")
	if err != nil {
		t.Fatal(err)
	}
	b.Sessions = stuckSessions{b.Sessions, stuck.ID}
	for _, id := range []int64{stuck.ID, b.account} {
		if _, err := b.Accounts.Update(t.Context(), code, id, func(*record.Account) (bool, error) { return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RevokePending(t.Context()); err == nil {
		t.Error("the ending that can't be done is no error")
	}
	b.wantLive(token, wire.ErrTokenInvalid)
	owed, err := b.Accounts.PendingRevocations(t.Context(), record.Revocation{}, 10)
	if err != nil || len(owed) != 1 || owed[0].Account != stuck.ID {
		t.Errorf("owed are %v, %v", owed, err)
	}
}

type stuckSessions struct {
	record.Sessions
	account int64
}

func (s stuckSessions) End(ctx context.Context, now time.Time, e record.Revocation) error {
	if e.Account == s.account {
		return errors.New("stuck")
	}
	return s.Sessions.End(ctx, now, e)
}
