package flows_test

import (
	"context"
	"errors"
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

// laps is an account store that calls then after a step has loaded its account and
// before the step goes on.
type laps struct {
	record.Accounts
	then func()
}

func (l laps) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	a, err := l.Accounts.ByLoginID(ctx, company, loginID, loginIDHash)
	l.then()
	return a, err
}

func (l laps) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	a, err := l.Accounts.ByID(ctx, company, id)
	l.then()
	return a, err
}

func (b *harness) endAllSessions() {
	b.t.Helper()
	if err := b.admin().EndAllSessions(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

func TestALoginThatTheEndOfAllSessionsOvertakesLeavesNone(t *testing.T) {
	b := newHarness(t)
	accounts := b.Accounts
	credentials := object{"login_id": email, "password": password}
	b.Accounts = laps{accounts, func() { b.endAllSessions() }}
	if _, err := b.serve("auth/checkcredentials", "", credentials); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v, want service.unavailable", err)
	}
	stateless := b.must("auth/login", "", object{"login_id": email}).SessionToken
	b.Accounts = accounts
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", stateless, object{"password": password})
	if live, err := b.admin().LiveSessions(t.Context(), mnemocode); err != nil || len(live) != 0 {
		t.Errorf("got %v, %v", live, err)
	}
	b.must("auth/checkcredentials", "", credentials)
}

func TestOneSessionIsEnded(t *testing.T) {
	b := newHarness(t)
	other := b.sessionIn(record.Authorized)
	token := b.sessionIn(record.Authorized)
	events := b.record()
	must(t, b.admin().EndSession(t.Context(), mnemocode, b.idOf(token)))
	b.wantLive(token, wire.ErrTokenInvalid)
	b.wantLive(other, nil)
	if len(events()) != 1 || events()[0].Name != record.SessionEnded || events()[0].Reason != record.EndedByAdmin || events()[0].Session == "" {
		t.Errorf("got %+v", events())
	}
	for _, id := range []string{"", "nobody's"} {
		if err := b.admin().EndSession(t.Context(), mnemocode, id); !errors.Is(err, manage.ErrNoSession) {
			t.Errorf("%q: got %v", id, err)
		}
	}
	if err := b.admin().EndSession(t.Context(), "nobody", b.idOf(other)); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("another account: got %v", err)
	}
}

func TestSessionsKeepTheOriginOfTheLogin(t *testing.T) {
	for agent, want := range map[string]string{
		"":                                    "",
		"curl/8":                              "curl/8",
		`App/1 ("x\y")`:                       `App/1 ("x\y")`,
		strings.Repeat("x", 300):              strings.Repeat("x", 200),
		strings.Repeat("x", 199) + "é and on": strings.Repeat("x", 199),
		"a\xffb\xc3":                          "ab",
		strings.Repeat("\xff", 300) + "x":     "",
		"a\u202egnp\u009b31m\t \u2028é":       `a\u202egnp\u009b31m\t \u2028é`, // a terminal obeys these
		strings.Repeat("\u202e", 300):         strings.Repeat(`\u202e`, 33) + `\u`,
	} {
		b := newHarness(t)
		pending := b.sessionIn(record.CheckPassword)
		b.clock.advance(time.Minute)
		if _, err := b.ask(flows.Request{Client: session.Client{Address: "2001:db8::7", UserAgent: agent}}, "auth/checkpassword", pending, object{"password": password}); err != nil {
			t.Fatal(err)
		}
		live, err := b.admin().LiveSessions(t.Context(), mnemocode)
		if err != nil || len(live) != 1 {
			t.Fatalf("got %v, %v", live, err)
		}
		s := live[0]
		if s.Address != "2001:db8::7" || s.UserAgent != want || !s.LastUsed.Equal(b.clock.Now()) {
			t.Errorf("got %q, %q, %v", s.Address, s.UserAgent, s.LastUsed)
		}
	}
}

// A login that was answered before all sessions were revoked is revoked with them,
// even in races.
func TestLoginsThatRaceWithTheEndOfAllSessions(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.LoginsPerAddress = tenant.Rate{N: 10_000, Per: time.Minute}
	b.remembering(1000)
	var ended atomic.Bool
	var mu sync.Mutex
	var before, after []string
	var all, begun sync.WaitGroup
	begun.Add(8)
	for range 8 {
		all.Go(func() {
			some := sync.OnceFunc(begun.Done)
			defer some()
			for i, lates := 0, 0; lates < 3; i++ {
				if i == 5 {
					some()
				}
				late := ended.Load()
				reply, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password})
				if err != nil {
					if !errors.Is(err, wire.ErrUnavailable) {
						t.Error(err)
						return
					}
					continue
				}
				_, _ = b.authorize(reply.SessionToken) // so that memory remembers it
				mu.Lock()
				if late {
					lates++
					after = append(after, reply.SessionToken)
				} else if !ended.Load() {
					before = append(before, reply.SessionToken)
				}
				mu.Unlock()
			}
		})
	}
	begun.Wait()
	mu.Lock()
	sure := before
	mu.Unlock()
	b.endAllSessions()
	ended.Store(true)
	for _, token := range sure {
		b.wantLive(token, wire.ErrTokenInvalid)
	}
	all.Wait()
	for _, token := range after {
		b.wantLive(token, nil)
	}
	if a := b.load(); a.CompanyGeneration != 1 || len(sure) == 0 || len(after) == 0 {
		t.Errorf("company generation %d, %d tokens before, %d after", a.CompanyGeneration, len(sure), len(after))
	}
}
