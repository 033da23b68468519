package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A backend opens two nodes that share one empty set of data. A nil field means that
// the backend does not store this. t.Cleanup closes the nodes.
type backend struct {
	name     string
	accounts func(t *testing.T) (one, two record.Accounts)
	sessions func(t *testing.T) (one, two record.Sessions)
}

var backends = []backend{
	{name: "sqlite", accounts: sqliteAccountNodes, sessions: sqliteSessionNodes},
	{name: "redis", sessions: redisNodes},
	{name: "redis cluster", sessions: redisClusterNodes},
	{name: "redis sentinel", sessions: redisSentinelNodes},
	{name: "postgres", accounts: postgresAccountNodes},
}

// An accountsCase tests one promise of record.Accounts. Cases for which one node is
// enough use only the first.
type accountsCase struct {
	name    string
	promise string
	run     func(t *testing.T, one, two record.Accounts)
}

// A sessionsCase tests one promise of record.Sessions.
type sessionsCase struct {
	name    string
	promise string
	run     func(t *testing.T, one, two record.Sessions)
}

var accountsCases = slices.Concat(
	createCases, updateCases, backupCodeCases, deviceCases, passkeyCases, failureCases, companyCases, accountsContextCases,
	generationAccountsCases, historyCases, outboxCases, signingKeyCases,
)

var sessionsCases = slices.Concat(
	sessionCases, endCases, expireCases, codeCases, counterCases, sessionsContextCases,
	generationSessionsCases,
)

func TestAccounts(t *testing.T) {
	for _, b := range backends {
		if b.accounts == nil {
			continue
		}
		for _, c := range accountsCases {
			t.Run(b.name+"/"+c.name, func(t *testing.T) {
				sayOnFailure(t, c.promise)
				one, two := b.accounts(t)
				c.run(t, one, two)
			})
		}
	}
}

func TestSessions(t *testing.T) {
	for _, b := range backends {
		if b.sessions == nil {
			continue
		}
		for _, c := range sessionsCases {
			t.Run(b.name+"/"+c.name, func(t *testing.T) {
				sayOnFailure(t, c.promise)
				one, two := b.sessions(t)
				c.run(t, one, two)
			})
		}
	}
}

// wantRefusedUnlessOpen starts and closes a store. It checks that every method returns
// notOpen before and after that.
func wantRefusedUnlessOpen(t *testing.T, s interface {
	Start(context.Context) error
	Close() error
}, notOpen error, accounts record.Accounts, sessions record.Sessions) {
	t.Helper()
	check := func(when string) {
		t.Helper()
		for method, err := range callAllAccounts(bg, accounts, someone("acme", "m1")) {
			wantErr(t, method+" "+when, err, notOpen)
		}
		if sessions == nil {
			return
		}
		for method, err := range callAllSessions(bg, sessions, session("a", 1, 1, record.CheckOTP)) {
			wantErr(t, method+" "+when, err, notOpen)
		}
	}
	check("before Start")
	must(t, s.Start(bg))
	must(t, s.Start(bg))
	must(t, s.Close())
	check("after Close")
	must(t, s.Close())
	wantErr(t, "Start after Close", s.Start(bg), notOpen)
}

func sayOnFailure(t *testing.T, promise string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("promised: %s", promise)
		}
	})
}

// t0 is the time of the tests.
var t0 = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

// odd contains what a careless store damages: quotes, NUL, a line end, a byte order
// mark, characters outside the BMP, a combining character, and length.
var odd = "it's \"odd\" \x00 \\ % _ \r\n \ufeff 𝔐🗝 e\u0301 {x} " + strings.Repeat("ж", 2048)

var bg = context.Background()

var must = storetest.Must

func get[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func wantTaken(t *testing.T, what string, got error, field string) {
	t.Helper()
	taken, ok := errors.AsType[*record.TakenError](got)
	if !ok || taken.Field != field {
		t.Errorf("%s: got error %v, want that %s is taken", what, got, field)
	}
}

func wantFull(t *testing.T, what string, got error, key string, until time.Time) {
	t.Helper()
	full, ok := errors.AsType[*record.FullError](got)
	if !ok || full.Key != key || !full.Until.Equal(until) {
		t.Errorf("%s: got error %#v, want %s full until %v", what, got, key, until)
	}
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// race calls f n times, on both nodes in turn, and returns the errors. It has more calls
// in flight than both nodes have connections to PostgreSQL, but no more than two busy CPUs
// can answer in time.
func race[S any](n int, one, two S, f func(i int, s S) error) []error {
	return callers(n, 3*postgresMaxConns, one, two, f)
}

// callers is race with atOnce calls in flight.
func callers[S any](n, atOnce int, one, two S, f func(i int, s S) error) []error {
	free := make(chan struct{}, atOnce)
	return storetest.Together(n, func(i int) error {
		free <- struct{}{}
		defer func() { <-free }()
		return f(i, []S{one, two}[i%2])
	})
}

// wantWinners checks that n calls succeeded and that the others failed with an error
// for which lost is true.
func wantWinners(t *testing.T, errs []error, n int, lost func(error) bool) {
	t.Helper()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
		case !lost(err):
			t.Errorf("racer %d: unexpected error %v", i, err)
		}
	}
	if won != n {
		t.Errorf("%d of %d won, want %d", won, len(errs), n)
	}
}

func is(want error) func(error) bool {
	return func(err error) bool { return errors.Is(err, want) }
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
