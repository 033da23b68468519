package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A backend opens two nodes that share one empty set of data. A nil field means that
// the backend does not store this. t.Cleanup closes the nodes.
type backend struct {
	name     string
	accounts func(t *testing.T) (one, two record.Accounts)
	sessions func(t *testing.T) (one, two record.Sessions)
	apart    bool // counters and sessions are on different machines
}

var backends = []backend{
	{name: "sqlite", accounts: sqliteAccountNodes, sessions: sqliteSessionNodes},
	{name: "redis", sessions: redisNodes},
	{name: "redis cluster", sessions: redisClusterNodes, apart: true},
	{name: "redis sentinel", sessions: redisSentinelNodes},
	{name: "postgres", accounts: postgresAccountNodes},
	{name: "miniredis", sessions: miniredisNodes},
	{name: "fake", accounts: fakeAccountNodes, sessions: fakeSessionNodes},
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
	createCases, updateCases, backupCodeCases, deviceCases, passkeyCases, tokenCases, failureCases, companyCases, accountsContextCases,
	generationAccountsCases, historyCases, outboxCases, signingKeyCases,
)

var sessionsCases = slices.Concat(
	sessionCases, endCases, expireCases, codeCases, counterCases, answerCases, sessionsContextCases,
	generationSessionsCases,
)

// unsimulated are the cases that the fake lacks, because they call methods that it does not have.
var unsimulated = slices.Concat(deviceCases, tokenCases, historyCases, signingKeyCases, []accountsCase{
	{name: "strings that are no text"}, {name: "list of accounts"}, {name: "search for accounts"}, {name: "companies never meet"},
	{name: "census"}, {name: "move"}, {name: "forget company"}, {name: "secrets"}, {name: "cancelled context"},
})

func TestAccounts(t *testing.T) {
	for _, b := range backends {
		if b.accounts == nil {
			continue
		}
		for _, c := range accountsCases {
			if b.name == "fake" && slices.ContainsFunc(unsimulated, func(u accountsCase) bool { return u.name == c.name }) {
				continue
			}
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

// If nothing is stored, nothing is charged, unless counters and sessions are on different
// machines.
func TestConflictsAreNotCharged(t *testing.T) {
	for _, b := range backends {
		if b.sessions == nil || b.apart {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			one, two := b.sessions(t)
			c := record.Counter{Key: "acme/a", Limit: 1, Window: time.Minute}
			must(t, one.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
			wantErr(t, "Create", two.Create(bg, t0, session("a", 1, 1, record.Authorized), c), record.ErrConflict)
			wantErr(t, "Replace", two.Replace(bg, t0, hash("none"), record.CheckOTP, session("b", 1, 2, record.Authorized), c), record.ErrConflict)
			must(t, one.Charge(bg, t0, record.CheckOnly(c)...))
		})
	}
}

func sayOnFailure(t *testing.T, promise string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("promised: %s", promise)
		}
	})
}

func wantTaken(t *testing.T, what string, got error, field string) {
	t.Helper()
	taken, ok := errors.AsType[*record.TakenError](got)
	if !ok || taken.Field != field {
		t.Errorf("%s: got error %v, want that %s is taken", what, got, field)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
