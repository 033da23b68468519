package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows"
)

// A backend opens two nodes over one set of data, fresh and empty. What it does
// not keep is nil. The nodes are closed by t.Cleanup.
type backend struct {
	name     string
	accounts func(t *testing.T) (one, two flows.Accounts)
	sessions func(t *testing.T) (one, two flows.Sessions)
}

var backends = []backend{
	{name: "sqlite", accounts: sqliteAccountNodes, sessions: sqliteSessionNodes},
	{name: "redis", sessions: redisNodes},
	{name: "redis cluster", sessions: redisClusterNodes},
	{name: "redis sentinel", sessions: redisSentinelNodes},
	{name: "postgres", accounts: postgresAccountNodes},
}

// An accountsCase is one promise of flows.Accounts. Where it does not matter
// that there are two nodes, only the first is used.
type accountsCase struct {
	name    string
	promise string
	run     func(t *testing.T, one, two flows.Accounts)
}

// A sessionsCase is one promise of flows.Sessions.
type sessionsCase struct {
	name    string
	promise string
	run     func(t *testing.T, one, two flows.Sessions)
}

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

func withoutAtMost(s flows.Session) flows.Session {
	s.AtMost = 0
	return s
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

func sayOnFailure(t *testing.T, promise string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("promised: %s", promise)
		}
	})
}

// t0 is when the tests happen.
var t0 = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

// odd holds what a careless store mangles: quotes, NUL, a line end, a byte
// order mark, characters outside the BMP, a combining one, and length.
var odd = "it's \"odd\" \x00 \\ % _ \r\n \ufeff 𝔐🗝 e\u0301 {x} " + strings.Repeat("ж", 2048)

var bg = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

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
	taken, ok := errors.AsType[*flows.TakenError](got)
	if !ok || taken.Field != field {
		t.Errorf("%s: got error %v, want that %s is taken", what, got, field)
	}
}

func wantFull(t *testing.T, what string, got error, key string, until time.Time) {
	t.Helper()
	full, ok := errors.AsType[*flows.Full](got)
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

// race calls f n times, each node in turn, and returns the errors. As many calls
// are under way at once as two busy CPUs answer before Redis's time is up.
func race[S any](n int, one, two S, f func(i int, s S) error) []error {
	return callers(n, 50, one, two, f)
}

// callers is race with so many at once.
func callers[S any](n, atOnce int, one, two S, f func(i int, s S) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	free := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			free <- struct{}{}
			defer func() { <-free }()
			errs[i] = f(i, []S{one, two}[i%2])
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// wantWinners checks that n of the racers won and the others were told lost.
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

// Accounts

// someone is an account with a value in every field.
func someone(company, name string) flows.Account {
	return flows.Account{
		Company:         company,
		Mnemocode:       name,
		Role:            "admin",
		Phone:           "+37060012345",
		Email:           name + "@Example.com",
		LoginName:       "Login " + name,
		Status:          flows.StatusActive,
		SecondFactor:    true,
		MustSetPassword: true,
		PasswordHash:    "hash of " + name,
		Question:        "Which?",
		AnswerHash:      "answer of " + name,
		TOTP:            "sealed of " + name,
		TOTPPending:     "pending of " + name,
		Locale:          "lt-LT",
		Identities:      []flows.Identity{{Provider: 1, Subject: name}, {Provider: 3, Subject: name}},
		Accepted:        []flows.Acceptance{{Code: "a", Version: "1", At: t0}, {Code: "b", Version: "2", At: t0}},
	}
}

// plain is an account with nothing that another could take but its mnemocode.
func plain(company, name string) flows.Account {
	return flows.Account{Company: company, Mnemocode: name, Status: flows.StatusActive}
}

func create(t *testing.T, s flows.Accounts, a flows.Account) flows.Account {
	t.Helper()
	id := get[int64](t)(s.Create(bg, t0, a))
	return get[flows.Account](t)(s.ByID(bg, a.Company, id))
}

func nothing(*flows.Account) (ends bool, err error) { return false, nil }

func ending(*flows.Account) (ends bool, err error) { return true, nil }

// bind adds an identity to an account that has none of its provider.
func bind(identity flows.Identity) func(*flows.Account) (ends bool, err error) {
	return func(a *flows.Account) (bool, error) {
		if slices.ContainsFunc(a.Identities, func(i flows.Identity) bool { return i.Provider == identity.Provider }) {
			return false, flows.ErrConflict
		}
		a.Identities = append(a.Identities, identity)
		return false, nil
	}
}

func endings(t *testing.T, s flows.Accounts) map[flows.Ending]bool {
	t.Helper()
	all := map[flows.Ending]bool{}
	for _, e := range get[[]flows.Ending](t)(s.Endings(bg, flows.Ending{}, 1000)) {
		all[e] = true
	}
	return all
}

var accountsCases = []accountsCase{
	{
		name:    "create and find",
		promise: "Create stores a new account and returns its id; every finder returns all of it.",
		run: func(t *testing.T, one, two flows.Accounts) {
			want := someone("acme", "m1")
			want.ID, want.Epoch, want.Created, want.Updated = 77, 88, t0.Add(-time.Hour), t0.Add(-time.Hour)
			id := get[int64](t)(one.Create(bg, t0, want))
			got := get[flows.Account](t)(two.ByID(bg, "acme", id))
			if got.ID != id || got.ID == 77 || got.Epoch == 88 {
				t.Errorf("ID %d (returned: %d) and Epoch %d are not the store's own", got.ID, id, got.Epoch)
			}
			want.ID, want.Epoch, want.Created, want.Updated = id, got.Epoch, t0, t0
			wantEqual(t, "ByID", got, want)
			wantEqual(t, "ByMnemocode", get[flows.Account](t)(two.ByMnemocode(bg, "acme", "m1")), want)
			for _, i := range want.Identities {
				wantEqual(t, "ByIdentity", get[flows.Account](t)(two.ByIdentity(bg, "acme", i)), want)
			}
			for field, id := range flows.LoginIDs(want) {
				wantEqual(t, field, get[flows.Account](t)(two.ByLoginID(bg, "acme", id, "alias")), want)
			}
		},
	},
	{
		name:    "an account with nothing",
		promise: "Empty fields are for none: accounts without login ids do not collide.",
		run: func(t *testing.T, one, _ flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			create(t, one, plain("acme", "m2"))
			want := plain("acme", "m1")
			want.ID, want.Epoch, want.Created, want.Updated = a.ID, a.Epoch, t0, t0
			wantEqual(t, "account", a, want)
			_, err := one.ByLoginID(bg, "acme", "", "alias")
			wantErr(t, "ByLoginID of nothing", err, flows.ErrNotFound)
		},
	},
	{
		name:    "odd bytes in accounts",
		promise: "A store keeps every string as it is.",
		run: func(t *testing.T, one, two flows.Accounts) {
			want := flows.Account{
				Company: odd, Mnemocode: odd, Role: odd, Phone: odd + "p", Email: odd + "e", LoginName: odd,
				Status: flows.Status(odd), PasswordHash: odd, Question: odd, AnswerHash: odd,
				Identities: []flows.Identity{{Provider: 5, Subject: odd}},
				Accepted:   []flows.Acceptance{{Code: odd, Version: odd, At: t0}},
			}
			a := create(t, one, want)
			want.ID, want.Epoch, want.Created, want.Updated = a.ID, a.Epoch, t0, t0
			wantEqual(t, "account", a, want)
			wantEqual(t, "ByMnemocode", get[flows.Account](t)(two.ByMnemocode(bg, odd, odd)), want)
			wantEqual(t, "ByIdentity", get[flows.Account](t)(two.ByIdentity(bg, odd, want.Identities[0])), want)
			wantEqual(t, "ByLoginID", get[flows.Account](t)(two.ByLoginID(bg, odd, flows.NormalizeLoginID(odd), "alias")), want)
			must(t, one.SetBackupCodes(bg, odd, a.ID, []string{odd}))
			wantEqual(t, "codes", get[[]string](t)(two.BackupCodes(bg, odd, a.ID)), []string{odd})
			must(t, two.UseBackupCode(bg, odd, a.ID, odd))
			subject := flows.Subject{Company: odd, LoginID: odd}
			must(t, one.Tally(bg, t0, subject, flows.Kind(odd), add(1)))
			wantEqual(t, "tallies", get[map[flows.Kind]flows.Tally](t)(two.Tallies(bg, subject)),
				map[flows.Kind]flows.Tally{flows.Kind(odd): {Count: 1}})
		},
	},
	{
		name:    "strings that a database might take for equal",
		promise: "Mnemocodes and companies match byte for byte.",
		run: func(t *testing.T, one, _ flows.Accounts) {
			for _, name := range []string{"m", "M", "m ", " m", "m\x00", "m\x00x", "é", "e\u0301", "%", "_"} {
				id := get[int64](t)(one.Create(bg, t0, plain("acme", name)))
				got := get[flows.Account](t)(one.ByMnemocode(bg, "acme", name))
				wantEqual(t, fmt.Sprintf("account of %q", name), got.ID, id)
			}
			_, err := one.ByMnemocode(bg, "Acme", "m")
			wantErr(t, "ByMnemocode in another company", err, flows.ErrNotFound)
		},
	},
	{
		name:    "missing accounts",
		promise: "ErrNotFound, or ErrConflict where the interface says so.",
		run: func(t *testing.T, one, _ flows.Accounts) {
			create(t, one, someone("acme", "m1"))
			wantStranger(t, one, "acme", 4711)
			_, err := one.ByLoginID(bg, "acme", "nobody", "alias")
			wantErr(t, "ByLoginID", err, flows.ErrNotFound)
			_, err = one.ByMnemocode(bg, "acme", "m2")
			wantErr(t, "ByMnemocode", err, flows.ErrNotFound)
			for _, i := range []flows.Identity{{Provider: 2, Subject: "m1"}, {Provider: 1, Subject: "m2"}} {
				_, err = one.ByIdentity(bg, "acme", i)
				wantErr(t, "ByIdentity", err, flows.ErrNotFound)
			}
		},
	},
	{
		name:    "list of accounts",
		promise: "List returns up to limit of the company's accounts, ordered by mnemocode, beginning behind after.",
		run: func(t *testing.T, one, two flows.Accounts) {
			for _, m := range []string{"m2", "B", "m10", "a"} {
				create(t, one, flows.Account{Company: "acme", Mnemocode: m, Status: flows.StatusActive})
			}
			create(t, one, flows.Account{Company: "other", Mnemocode: "m3", Status: flows.StatusActive})
			list := func(after string, limit int) []string {
				names := []string{}
				for _, a := range get[[]flows.Account](t)(two.List(bg, "acme", after, limit)) {
					names = append(names, a.Mnemocode)
				}
				return names
			}
			wantEqual(t, "all", list("", 10), []string{"B", "a", "m10", "m2"})
			wantEqual(t, "first page", list("", 3), []string{"B", "a", "m10"})
			wantEqual(t, "next page", list("m10", 3), []string{"m2"})
			wantEqual(t, "behind the last", list("m2", 3), []string{})
			wantEqual(t, "nobody's", list("", 0), []string{})
		},
	},
	{
		name:    "companies never meet",
		promise: "Nothing of one company can be seen or used from another.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			must(t, one.SetBackupCodes(bg, "acme", a.ID, []string{"c"}))
			b := create(t, two, someone("other", "m1"))
			must(t, one.Tally(bg, t0, flows.Subject{Company: "acme", LoginID: "x"}, flows.WrongPasswords, add(1)))
			before := get[flows.Account](t)(one.ByID(bg, "acme", a.ID))
			wantStranger(t, two, "other", a.ID)
			wantErr(t, "another's backup code", two.UseBackupCode(bg, "other", a.ID, "c"), flows.ErrConflict)
			wantErr(t, "another's epoch", two.SetPassword(bg, t0, "other", a.ID, a.Epoch, "h", flows.TokenHash{}), flows.ErrConflict)
			wantEqual(t, "account", get[flows.Account](t)(one.ByID(bg, "acme", a.ID)), before)
			for field, id := range flows.LoginIDs(b) {
				got := get[flows.Account](t)(one.ByLoginID(bg, "other", id, "alias"))
				wantEqual(t, field, got.ID, b.ID)
			}
			got := get[flows.Account](t)(one.ByIdentity(bg, "other", b.Identities[0]))
			wantEqual(t, "identity", got.ID, b.ID)
			tallies := get[map[flows.Kind]flows.Tally](t)(two.Tallies(bg, flows.Subject{Company: "other", LoginID: "x"}))
			wantEqual(t, "tallies", len(tallies), 0)
		},
	},
	{
		name:    "taken",
		promise: "A TakenError tells what another account of the company holds already.",
		run: func(t *testing.T, one, _ flows.Accounts) {
			create(t, one, someone("acme", "m1"))
			other := create(t, one, plain("acme", "m2"))
			for _, c := range []struct {
				field  string
				change func(*flows.Account)
			}{
				{"profile_mnemocode", func(a *flows.Account) { a.Mnemocode = "m1" }},
				{"primary_phone", func(a *flows.Account) { a.Phone = "+37060012345" }},
				{"primary_phone", func(a *flows.Account) { a.Phone = "LOGIN M1" }},
				{"primary_email", func(a *flows.Account) { a.Email = "M1@example.com" }},
				{"login_name", func(a *flows.Account) { a.LoginName = "m1@example.COM" }},
				{"login_name", func(a *flows.Account) { a.LoginName = " 00370 (600) 12-345 " }},
				{"oauth_identities", func(a *flows.Account) { a.Identities = []flows.Identity{{Provider: 3, Subject: "m1"}} }},
			} {
				a := plain("acme", "new")
				c.change(&a)
				_, err := one.Create(bg, t0, a)
				wantTaken(t, "Create", err, c.field)
				_, err = one.Update(bg, "acme", other.ID, func(a *flows.Account) (bool, error) {
					a.Role = "changed"
					c.change(a)
					return true, nil
				})
				wantTaken(t, "Update", err, c.field)
			}
			_, err := one.ByMnemocode(bg, "acme", "new")
			wantErr(t, "ByMnemocode of what was refused", err, flows.ErrNotFound)
			wantEqual(t, "account", get[flows.Account](t)(one.ByID(bg, "acme", other.ID)), other)
			wantEqual(t, "endings", len(endings(t, one)), 0)
		},
	},
	{
		name:    "one login id in two fields",
		promise: "Two fields of one account may normalise to the same login id.",
		run: func(t *testing.T, one, _ flows.Accounts) {
			a := plain("acme", "m1")
			a.Email, a.LoginName = "me@example.com", "ME@example.com"
			a = create(t, one, a)
			got := get[flows.Account](t)(one.ByLoginID(bg, "acme", "me@example.com", "alias"))
			wantEqual(t, "account", got, a)
			_, err := one.Update(bg, "acme", a.ID, func(a *flows.Account) (bool, error) {
				a.LoginName = ""
				return false, nil
			})
			must(t, err)
			_, err = one.ByLoginID(bg, "acme", "me@example.com", "alias")
			must(t, err)
		},
	},
	{
		name:    "racing Create",
		promise: "A login id names at most one account of a company.",
		run: func(t *testing.T, one, two flows.Accounts) {
			errs := race(50, one, two, func(i int, s flows.Accounts) error {
				a := plain("acme", fmt.Sprint(i))
				a.Email = "same@example.com"
				_, err := s.Create(bg, t0, a)
				return err
			})
			wantWinners(t, errs, 1, isA[*flows.TakenError])
		},
	},
	{
		name:    "update",
		promise: "Update stores what change altered and returns the account as stored; it ignores changes of ID, Company, Epoch, Accepted, BackupCodes, Tallies and Created.",
		run: func(t *testing.T, one, two flows.Accounts) {
			before := create(t, one, someone("acme", "m1"))
			want := someone("acme", "m9")
			want.Role, want.Phone, want.Status = "r", "+37060099999", flows.StatusClosed
			want.SecondFactor, want.MustSetPassword, want.Locale = false, false, "de"
			want.Identities = []flows.Identity{{Provider: 2, Subject: "a"}, {Provider: 2, Subject: "b"}}
			later := t0.Add(time.Minute)
			got := get[flows.Account](t)(one.Update(bg, "acme", before.ID, func(a *flows.Account) (bool, error) {
				wantEqual(t, "loaded", *a, before)
				*a = want
				a.ID, a.Company, a.Epoch, a.BackupCodes = 5, "other", 99, 7
				a.Accepted, a.Created, a.Updated = nil, t0.Add(-time.Hour), later
				return false, nil
			}))
			want.ID, want.Epoch, want.Created, want.Updated = before.ID, before.Epoch, t0, later
			wantEqual(t, "returned", got, want)
			wantEqual(t, "stored", get[flows.Account](t)(two.ByID(bg, "acme", before.ID)), want)
			for field, id := range flows.LoginIDs(want) {
				wantEqual(t, field, get[flows.Account](t)(two.ByLoginID(bg, "acme", id, "alias")).ID, want.ID)
			}
			for field, id := range flows.LoginIDs(before) {
				_, err := two.ByLoginID(bg, "acme", id, "alias")
				wantErr(t, "the old "+field, err, flows.ErrNotFound)
			}
			_, err := two.ByIdentity(bg, "acme", before.Identities[0])
			wantErr(t, "the old identity", err, flows.ErrNotFound)
			create(t, two, someone("acme", "m1")) // all of it is free again
			wantEqual(t, "endings", len(endings(t, two)), 0)
		},
	},
	{
		name:    "update that ends",
		promise: "If change says that it ends the account's sessions, the Epoch grows by one and the ending is owed.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			got := get[flows.Account](t)(one.Update(bg, "acme", a.ID, ending))
			wantEqual(t, "epoch", got.Epoch, a.Epoch+1)
			wantEqual(t, "endings", endings(t, two), map[flows.Ending]bool{{Company: "acme", Account: a.ID, Epoch: a.Epoch + 1}: true})
			must(t, two.SetPassword(bg, t0, "acme", a.ID, a.Epoch+1, "h", flows.TokenHash{}))
			wantEqual(t, "endings", endings(t, one), map[flows.Ending]bool{{Company: "acme", Account: a.ID, Epoch: a.Epoch + 2}: true})
		},
	},
	{
		name:    "update that fails",
		promise: "If change fails, nothing is stored and its error returned.",
		run: func(t *testing.T, one, _ flows.Accounts) {
			before := create(t, one, someone("acme", "m1"))
			refused := errors.New("refused")
			_, err := one.Update(bg, "acme", before.ID, func(a *flows.Account) (bool, error) {
				a.Role, a.Email, a.Updated = "r", "", t0.Add(time.Hour)
				return true, refused
			})
			if err != refused {
				t.Errorf("got error %v, want change's own", err)
			}
			wantEqual(t, "account", get[flows.Account](t)(one.ByID(bg, "acme", before.ID)), before)
			wantEqual(t, "endings", len(endings(t, one)), 0)
		},
	},
	{
		name:    "racing Update",
		promise: "Update loads, alters and stores in one step that no other write to the account can come between.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			errs := race(100, one, two, func(_ int, s flows.Accounts) error {
				_, err := s.Update(bg, "acme", a.ID, func(a *flows.Account) (bool, error) {
					a.Role += "x"
					return true, nil
				})
				return err
			})
			wantWinners(t, errs, 100, is(nil))
			a.Role, a.Epoch = strings.Repeat("x", 100), a.Epoch+100
			wantEqual(t, "account", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), a)
		},
	},
	{
		name:    "delete",
		promise: "Delete removes the account with all that belongs to it; its ending is owed, for every epoch. A new account inherits nothing.",
		run: func(t *testing.T, one, two flows.Accounts) {
			old := create(t, one, someone("acme", "m1"))
			must(t, one.SetBackupCodes(bg, "acme", old.ID, []string{"c"}))
			subject := flows.Subject{Company: "acme", Account: old.ID}
			must(t, one.Tally(bg, t0, subject, flows.WrongCodes, add(3)))
			_, err := one.Update(bg, "acme", old.ID, ending)
			must(t, err)

			must(t, two.Delete(bg, "acme", old.ID))
			wantStranger(t, one, "acme", old.ID)
			wantEqual(t, "tallies", len(get[map[flows.Kind]flows.Tally](t)(one.Tallies(bg, subject))), 0)
			wantEqual(t, "endings", endings(t, one), map[flows.Ending]bool{{Company: "acme", Account: old.ID, Epoch: flows.AllEpochs}: true})

			heir := someone("acme", "m1")
			heir.Accepted = nil
			heir = create(t, one, heir)
			if heir.ID == old.ID {
				t.Error("an account id was given twice")
			}
			wantEqual(t, "acceptances", len(heir.Accepted), 0)
			wantEqual(t, "backup codes", heir.BackupCodes, 0)
		},
	},
	{
		name:    "set password",
		promise: "SetPassword stores a hash, clears MustSetPassword and the tally of wrong passwords, raises the Epoch and owes the ending.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			b := create(t, one, plain("acme", "m2"))
			for _, account := range []int64{a.ID, b.ID} {
				subject := flows.Subject{Company: "acme", Account: account}
				must(t, one.Tally(bg, t0, subject, flows.WrongPasswords, add(1)))
				must(t, one.Tally(bg, t0, subject, flows.WrongCodes, add(1)))
			}
			later := t0.Add(time.Second)
			must(t, one.SetPassword(bg, later, "acme", a.ID, a.Epoch, "new", flows.TokenHash{}))
			want := a
			want.PasswordHash, want.MustSetPassword, want.Epoch, want.Updated = "new", false, a.Epoch+1, later
			want.Tallies = map[flows.Kind]flows.Tally{flows.WrongCodes: {Count: 1}}
			b.Tallies = map[flows.Kind]flows.Tally{flows.WrongPasswords: {Count: 1}, flows.WrongCodes: {Count: 1}}
			wantEqual(t, "account", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), want)
			wantEqual(t, "other account", get[flows.Account](t)(two.ByID(bg, "acme", b.ID)), b)
			wantEqual(t, "endings", endings(t, two), map[flows.Ending]bool{{Company: "acme", Account: a.ID, Epoch: a.Epoch + 1}: true})
			wantEqual(t, "tallies", get[map[flows.Kind]flows.Tally](t)(two.Tallies(bg, flows.Subject{Company: "acme", Account: a.ID})),
				map[flows.Kind]flows.Tally{flows.WrongCodes: {Count: 1}})
			wantEqual(t, "other tallies", len(get[map[flows.Kind]flows.Tally](t)(two.Tallies(bg, flows.Subject{Company: "acme", Account: b.ID}))), 2)
			wantErr(t, "an old epoch", two.SetPassword(bg, t0, "acme", a.ID, a.Epoch, "newer", flows.TokenHash{}), flows.ErrConflict)
			wantErr(t, "an epoch to come", two.SetPassword(bg, t0, "acme", a.ID, a.Epoch+2, "newer", flows.TokenHash{}), flows.ErrConflict)
			wantEqual(t, "account", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), want)
		},
	},
	{
		name:    "SetPassword that keeps a session",
		promise: "SetPassword owes an ending which is to keep the session keep; of endings that are owed at once, the later one says which.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			owed := func(epoch int64, keep flows.TokenHash) {
				t.Helper()
				e := flows.Ending{Company: "acme", Account: a.ID, Epoch: epoch, Keep: keep}
				wantEqual(t, "endings", endings(t, two), map[flows.Ending]bool{e: true})
			}
			must(t, one.SetPassword(bg, t0, "acme", a.ID, a.Epoch, "h", hash("s")))
			owed(a.Epoch+1, hash("s"))
			must(t, two.SetPassword(bg, t0, "acme", a.ID, a.Epoch+1, "h", hash("r")))
			owed(a.Epoch+2, hash("r"))
			_, err := one.Update(bg, "acme", a.ID, ending)
			must(t, err)
			owed(a.Epoch+3, flows.TokenHash{})
			must(t, one.SetPassword(bg, t0, "acme", a.ID, a.Epoch+3, "h", hash("s")))
			must(t, two.Delete(bg, "acme", a.ID))
			owed(flows.AllEpochs, flows.TokenHash{})
		},
	},
	{
		name:    "racing SetPassword",
		promise: "Of many callers with one epoch, one wins.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			errs := race(100, one, two, func(i int, s flows.Accounts) error {
				return s.SetPassword(bg, t0, "acme", a.ID, a.Epoch, fmt.Sprint(i), flows.TokenHash{})
			})
			wantWinners(t, errs, 1, is(flows.ErrConflict))
			got := get[flows.Account](t)(two.ByID(bg, "acme", a.ID))
			wantEqual(t, "epoch", got.Epoch, a.Epoch+1)
			for i, err := range errs {
				if err == nil && got.PasswordHash != fmt.Sprint(i) {
					t.Errorf("hash is %s, but %d won", got.PasswordHash, i)
				}
			}
		},
	},
	{
		name:    "update that nobody made",
		promise: "Updated is what change makes of it; without a word of change nothing ends.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			a.PasswordHash = "better"
			got := get[flows.Account](t)(one.Update(bg, "acme", a.ID, func(now *flows.Account) (bool, error) {
				now.PasswordHash = "better"
				return false, nil
			}))
			wantEqual(t, "returned", got, a)
			wantEqual(t, "stored", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			wantEqual(t, "endings", len(endings(t, two)), 0)
		},
	},
	{
		name:    "accept",
		promise: "Accept records acceptances, each replacing an older version's.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			later := t0.Add(time.Hour)
			must(t, one.Accept(bg, "acme", a.ID, []flows.Acceptance{
				{Code: "c", Version: "1", At: later}, {Code: "B", Version: "7", At: later}, {Code: "a", Version: "2", At: later},
			}))
			a.Accepted = []flows.Acceptance{
				{Code: "B", Version: "7", At: later}, {Code: "a", Version: "2", At: later},
				{Code: "b", Version: "2", At: t0}, {Code: "c", Version: "1", At: later},
			}
			wantEqual(t, "account", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			must(t, one.Accept(bg, "acme", a.ID, nil))
		},
	},
	{
		name:    "racing Update for an identity",
		promise: "An identity is at most one account's, and a change sees what the one before it has stored.",
		run: func(t *testing.T, one, two flows.Accounts) {
			var ids []int64
			for i := range 20 {
				ids = append(ids, create(t, one, plain("acme", fmt.Sprint(i))).ID)
			}
			errs := race(20, one, two, func(i int, s flows.Accounts) error {
				_, err := s.Update(bg, "acme", ids[i], bind(flows.Identity{Provider: 1, Subject: "x"}))
				return err
			})
			wantWinners(t, errs, 1, isA[*flows.TakenError])
			errs = race(20, one, two, func(i int, s flows.Accounts) error {
				_, err := s.Update(bg, "acme", ids[0], bind(flows.Identity{Provider: 2, Subject: fmt.Sprint(i)}))
				return err
			})
			wantWinners(t, errs, 1, is(flows.ErrConflict))
		},
	},
	{
		name:    "backup codes",
		promise: "SetBackupCodes replaces the codes, BackupCodes returns what is left, UseBackupCode removes one; ErrConflict if it is gone already.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			b := create(t, one, plain("acme", "m2"))
			must(t, one.SetBackupCodes(bg, "acme", a.ID, []string{"old"}))
			must(t, one.SetBackupCodes(bg, "acme", a.ID, []string{"a", "b", "c"}))
			must(t, one.SetBackupCodes(bg, "acme", b.ID, []string{"a"}))
			must(t, two.UseBackupCode(bg, "acme", a.ID, "a"))
			wantErr(t, "a used code", one.UseBackupCode(bg, "acme", a.ID, "a"), flows.ErrConflict)
			wantErr(t, "a replaced code", one.UseBackupCode(bg, "acme", a.ID, "old"), flows.ErrConflict)
			wantEqual(t, "left", get[[]string](t)(one.BackupCodes(bg, "acme", a.ID)), []string{"b", "c"})
			wantEqual(t, "count", get[flows.Account](t)(one.ByID(bg, "acme", a.ID)).BackupCodes, 2)
			wantEqual(t, "other's", get[[]string](t)(one.BackupCodes(bg, "acme", b.ID)), []string{"a"})
			must(t, one.SetBackupCodes(bg, "acme", a.ID, nil))
			wantEqual(t, "count", get[flows.Account](t)(one.ByID(bg, "acme", a.ID)).BackupCodes, 0)
		},
	},
	{
		name:    "racing UseBackupCode",
		promise: "A backup code is used once.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			must(t, one.SetBackupCodes(bg, "acme", a.ID, []string{"a", "b"}))
			errs := race(100, one, two, func(_ int, s flows.Accounts) error {
				return s.UseBackupCode(bg, "acme", a.ID, "a")
			})
			wantWinners(t, errs, 1, is(flows.ErrConflict))
		},
	},
	{
		name:    "tally",
		promise: "Tally loads a tally (a zero one where there is none), lets change alter it and stores what it became; if change fails nothing is stored and its error returned.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			subjects := []flows.Subject{
				{Company: "acme", Account: a.ID},
				{Company: "acme", LoginID: "x"},
				{Company: "acme", LoginID: "y"},
				{Company: "other", LoginID: "x"},
			}
			until := t0.Add(time.Minute)
			for n, subject := range subjects {
				for m, kind := range []flows.Kind{flows.WrongPasswords, flows.WrongCodes} {
					must(t, one.Tally(bg, t0, subject, kind, func(tally *flows.Tally) error {
						wantEqual(t, "first", *tally, flows.Tally{})
						*tally = flows.Tally{Count: 10*n + m + 1, Until: until}
						return nil
					}))
				}
			}
			refused := errors.New("refused")
			for n, subject := range subjects {
				err := two.Tally(bg, t0, subject, flows.WrongCodes, func(tally *flows.Tally) error {
					wantEqual(t, "second", *tally, flows.Tally{Count: 10*n + 2, Until: until})
					tally.Count = 99
					return refused
				})
				if err != refused {
					t.Errorf("got error %v, want change's own", err)
				}
				wantEqual(t, "tallies", get[map[flows.Kind]flows.Tally](t)(two.Tallies(bg, subject)), map[flows.Kind]flows.Tally{
					flows.WrongPasswords: {Count: 10*n + 1, Until: until},
					flows.WrongCodes:     {Count: 10*n + 2, Until: until},
				})
			}
			must(t, one.Tally(bg, t0, subjects[0], flows.WrongCodes, func(tally *flows.Tally) error {
				*tally = flows.Tally{}
				return nil
			}))
			cleared := get[map[flows.Kind]flows.Tally](t)(two.Tallies(bg, subjects[0]))
			wantEqual(t, "cleared", cleared[flows.WrongCodes], flows.Tally{})
			for range 2 { // one there is none of, and that stays so
				must(t, one.Tally(bg, t0, subjects[0], flows.WrongCodes, add(0)))
			}
		},
	},
	{
		name:    "accounts with their tallies",
		promise: "Whoever finds an account has its Tallies; where ByLoginID finds none, those of the alias.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			create(t, one, someone("other", "m1"))
			until := t0.Add(time.Minute)
			for n, s := range []flows.Subject{{Company: "acme", Account: a.ID}, {Company: "acme", LoginID: "alias"}} {
				for m, kind := range []flows.Kind{flows.WrongPasswords, flows.Kind(odd)} {
					must(t, one.Tally(bg, t0, s, kind, func(tally *flows.Tally) error {
						*tally = flows.Tally{Count: 10*n + m + 1, Until: until}
						return nil
					}))
				}
			}
			a.Tallies = map[flows.Kind]flows.Tally{flows.WrongPasswords: {Count: 1, Until: until}, flows.Kind(odd): {Count: 2, Until: until}}
			wantEqual(t, "ByID", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			wantEqual(t, "ByMnemocode", get[flows.Account](t)(two.ByMnemocode(bg, "acme", "m1")), a)
			wantEqual(t, "ByIdentity", get[flows.Account](t)(two.ByIdentity(bg, "acme", a.Identities[0])), a)
			for _, id := range flows.LoginIDs(a) {
				wantEqual(t, "ByLoginID", get[flows.Account](t)(two.ByLoginID(bg, "acme", id, "alias")), a)
			}
			nobody, err := two.ByLoginID(bg, "acme", "nobody", "alias")
			wantErr(t, "ByLoginID", err, flows.ErrNotFound)
			wantEqual(t, "nobody", nobody, flows.Account{Tallies: map[flows.Kind]flows.Tally{
				flows.WrongPasswords: {Count: 11, Until: until}, flows.Kind(odd): {Count: 12, Until: until}}})
			for _, c := range [][2]string{{"acme", "another alias"}, {"other", "alias"}} {
				nobody, err := two.ByLoginID(bg, c[0], "nobody", c[1])
				wantErr(t, "ByLoginID", err, flows.ErrNotFound)
				wantEqual(t, c[1], nobody, flows.Account{})
			}
		},
	},
	{
		name:    "racing Tally",
		promise: "No other change of the tally can come between.",
		run: func(t *testing.T, one, two flows.Accounts) {
			subject := flows.Subject{Company: "acme", LoginID: "x"}
			errs := race(100, one, two, func(_ int, s flows.Accounts) error {
				return s.Tally(bg, t0, subject, flows.WrongPasswords, add(1))
			})
			wantWinners(t, errs, 100, is(nil))
			wantEqual(t, "tallies", get[map[flows.Kind]flows.Tally](t)(one.Tallies(bg, subject)),
				map[flows.Kind]flows.Tally{flows.WrongPasswords: {Count: 100}})
		},
	},
	{
		name:    "endings",
		promise: "Endings returns up to limit accounts; Ended takes one off, if its epoch has not grown since.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			b := create(t, one, plain("acme", "m2"))
			for range 2 {
				_, err := one.Update(bg, "acme", a.ID, ending)
				must(t, err)
			}
			must(t, one.Delete(bg, "acme", b.ID))
			page := get[[]flows.Ending](t)(two.Endings(bg, flows.Ending{}, 1))
			rest := get[[]flows.Ending](t)(two.Endings(bg, page[len(page)-1], 1000))
			wantEqual(t, "page by page", append(page, rest...), get[[]flows.Ending](t)(one.Endings(bg, flows.Ending{}, 1000)))
			first := flows.Ending{Company: "acme", Account: a.ID, Epoch: a.Epoch + 1}
			second := flows.Ending{Company: "acme", Account: a.ID, Epoch: a.Epoch + 2}
			all := flows.Ending{Company: "acme", Account: b.ID, Epoch: flows.AllEpochs}
			must(t, two.Ended(bg, first)) // an earlier one was done, the later is still owed
			must(t, two.Ended(bg, flows.Ending{Company: "other", Account: a.ID, Epoch: flows.AllEpochs}))
			wantEqual(t, "owed", endings(t, one), map[flows.Ending]bool{second: true, all: true})
			must(t, two.Ended(bg, second))
			must(t, two.Ended(bg, second))
			must(t, two.Ended(bg, all))
			wantEqual(t, "owed", len(endings(t, one)), 0)
		},
	},
	{
		name:    "census",
		promise: "CompanyAfter finds each company that has accounts; Stranded counts those whose second factor can't be asked for.",
		run: func(t *testing.T, one, two flows.Accounts) {
			companies := func() (all []string) {
				for company := get[string](t)(two.(flows.Census).CompanyAfter(bg, "")); company != ""; company = get[string](t)(two.(flows.Census).CompanyAfter(bg, company)) {
					all = append(all, company)
				}
				return all
			}
			wantEqual(t, "companies of none", companies(), nil)
			stranded := func(company string, all bool, want int) {
				t.Helper()
				wantEqual(t, fmt.Sprintf("stranded of %.20q (all: %v)", company, all), get[int](t)(two.(flows.Census).Stranded(bg, company, all)), want)
			}
			for _, company := range []string{"b", "Acme", odd, "acme"} {
				for i, change := range []func(*flows.Account){
					func(a *flows.Account) {},
					func(a *flows.Account) { a.SecondFactor = true },
					func(a *flows.Account) { a.SecondFactor, a.Phone = true, "+37060012345" },
					func(a *flows.Account) { a.SecondFactor, a.Status = true, flows.StatusClosed },
					func(a *flows.Account) {
						a.SecondFactor, a.Identities = true, []flows.Identity{{Provider: 1, Subject: "x"}}
					},
				} {
					a := plain(company, fmt.Sprint(i))
					change(&a)
					create(t, one, a)
				}
				stranded(company, true, 2)
				stranded(company, false, 1)
			}
			wantEqual(t, "companies", companies(), []string{"Acme", "acme", "b", odd})
			coded := plain("b", "coded")
			coded.SecondFactor = true
			must(t, one.SetBackupCodes(bg, "b", create(t, one, coded).ID, []string{"c"}))
			app := plain("b", "app") // which is of no use without a password
			app.SecondFactor, app.TOTP = true, "sealed"
			id := create(t, one, app).ID
			stranded("b", true, 3)
			_, err := one.Update(bg, "b", id, func(a *flows.Account) (bool, error) { a.PasswordHash = "h"; return false, nil })
			must(t, err)
			stranded("b", true, 2)
			for _, mnemocode := range []string{"0", "1", "2", "3", "4", "app", "coded"} {
				must(t, one.Delete(bg, "b", get[flows.Account](t)(one.ByMnemocode(bg, "b", mnemocode)).ID))
			}
			wantEqual(t, "companies after deletes", companies(), []string{"Acme", "acme", odd})
			stranded("b", true, 0)
		},
	},
	{
		name:    "seeds",
		promise: "SetSeeded records that the configuration's account was there, which outlives the account.",
		run: func(t *testing.T, one, two flows.Accounts) {
			want := func(s flows.Accounts, company, mnemocode string, want bool) {
				t.Helper()
				wantEqual(t, fmt.Sprintf("Seeded of %s %.20q", company, mnemocode), get[bool](t)(s.Seeded(bg, company, mnemocode)), want)
			}
			for _, mnemocode := range []string{"m1", odd} {
				a := create(t, one, plain("acme", mnemocode))
				want(two, "acme", mnemocode, false)
				wantWinners(t, race(10, one, two, func(_ int, s flows.Accounts) error { return s.SetSeeded(bg, "acme", mnemocode) }), 10, is(nil))
				want(two, "acme", mnemocode, true)
				must(t, one.Delete(bg, "acme", a.ID))
				want(one, "acme", mnemocode, true)
			}
			want(one, "other", "m1", false)
			want(one, "acme", "M1", false)
		},
	},
	{
		name:    "secret",
		promise: "Secret returns 32 random bytes, made at the first call and the same ever after, on every node.",
		run: func(t *testing.T, one, two flows.Accounts) {
			secrets := make([]string, 20)
			errs := race(20, one, two, func(i int, s flows.Accounts) error {
				secret, err := s.Secret(bg)
				secrets[i] = string(secret)
				return err
			})
			wantWinners(t, errs, 20, is(nil))
			for _, s := range secrets {
				if s != secrets[0] || len(s) != 32 || s == strings.Repeat("\x00", 32) {
					t.Fatalf("secrets differ or are none: %x and %x", secrets[0], s)
				}
			}
		},
	},
	{
		name:    "sweep of tallies",
		promise: "Sweep forgets tallies of unknown login ids that did not change for a day.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			account := flows.Subject{Company: "acme", Account: a.ID}
			old := flows.Subject{Company: "acme", LoginID: "old"}
			recent := flows.Subject{Company: "acme", LoginID: "recent"}
			must(t, one.Tally(bg, t0, account, flows.WrongPasswords, add(1)))
			must(t, one.Tally(bg, t0, old, flows.WrongPasswords, add(1)))
			must(t, one.Tally(bg, t0, old, flows.WrongCodes, add(1)))
			must(t, one.Tally(bg, t0, recent, flows.WrongPasswords, add(1)))
			must(t, one.Tally(bg, t0.Add(time.Minute), recent, flows.WrongPasswords, add(1)))
			must(t, two.Sweep(bg, t0.Add(24*time.Hour+time.Second)))
			for subject, want := range map[flows.Subject]int{account: 1, old: 0, recent: 1} {
				wantEqual(t, "tallies", len(get[map[flows.Kind]flows.Tally](t)(one.Tallies(bg, subject))), want)
			}
		},
	},
	{
		name:    "sweep of many tallies",
		promise: "Sweep clears all that is to be cleared, however much it is.",
		run: func(t *testing.T, one, two flows.Accounts) {
			subject := func(i int) flows.Subject { return flows.Subject{Company: "acme", LoginID: fmt.Sprint(i)} }
			for i := range 1200 {
				must(t, one.Tally(bg, t0, subject(i), flows.WrongPasswords, add(1)))
			}
			must(t, two.Sweep(bg, t0.Add(48*time.Hour)))
			for i := range 1200 {
				wantEqual(t, "tallies", len(get[map[flows.Kind]flows.Tally](t)(one.Tallies(bg, subject(i)))), 0)
			}
		},
	},
	{
		name:    "cancelled context",
		promise: "A method either does all it says or nothing; a caller who has gone away is told so.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			must(t, one.SetBackupCodes(bg, "acme", a.ID, []string{"c"}))
			a.BackupCodes = 1
			ctx, cancel := context.WithCancel(bg)
			cancel()
			for method, err := range callAllAccounts(ctx, one, a) {
				wantErr(t, method, err, context.Canceled)
			}
			wantEqual(t, "account", get[flows.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			wantEqual(t, "endings", len(endings(t, two)), 0)
			_, err := two.ByMnemocode(bg, "acme", "new")
			wantErr(t, "ByMnemocode", err, flows.ErrNotFound)
		},
	},
	{
		name:    "contexts cancelled in flight",
		promise: "What was acknowledged is stored; what was not leaves other callers unharmed.",
		run: func(t *testing.T, one, two flows.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			errs := race(200, one, two, func(i int, s flows.Accounts) error {
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				if i%4 == 0 {
					go cancel()
				}
				_, err := s.Update(ctx, "acme", a.ID, func(a *flows.Account) (bool, error) {
					a.Role += fmt.Sprintf("<%d>", i)
					return false, nil
				})
				return err
			})
			role := get[flows.Account](t)(one.ByID(bg, "acme", a.ID)).Role
			for i, err := range errs {
				stored := strings.Contains(role, fmt.Sprintf("<%d>", i))
				if err == nil && !stored || err != nil && i%4 != 0 {
					t.Errorf("update %d: error %v, stored %v", i, err, stored)
				}
			}
		},
	},
}

func add(n int) func(*flows.Tally) error {
	return func(t *flows.Tally) error {
		t.Count += n
		return nil
	}
}

// wantStranger checks that the company has no account with this id, for every
// method that takes one.
func wantStranger(t *testing.T, s flows.Accounts, company string, id int64) {
	t.Helper()
	_, err := s.ByID(bg, company, id)
	wantErr(t, "ByID", err, flows.ErrNotFound)
	_, err = s.Update(bg, company, id, func(*flows.Account) (bool, error) {
		t.Error("Update called change without an account")
		return true, nil
	})
	wantErr(t, "Update", err, flows.ErrNotFound)
	wantErr(t, "Delete", s.Delete(bg, company, id), flows.ErrNotFound)
	for epoch := range int64(3) {
		wantErr(t, "SetPassword", s.SetPassword(bg, t0, company, id, epoch, "h", flows.TokenHash{}), flows.ErrConflict)
	}
	wantErr(t, "Accept", s.Accept(bg, company, id, []flows.Acceptance{{Code: "z", Version: "1", At: t0}}), flows.ErrNotFound)
	wantErr(t, "SetBackupCodes", s.SetBackupCodes(bg, company, id, []string{"z"}), flows.ErrNotFound)
	wantErr(t, "UseBackupCode", s.UseBackupCode(bg, company, id, "z"), flows.ErrConflict)
	codes := get[[]string](t)(s.BackupCodes(bg, company, id))
	wantEqual(t, "BackupCodes", len(codes), 0)
}

// callAllAccounts calls each method with arguments that would do something.
func callAllAccounts(ctx context.Context, s flows.Accounts, a flows.Account) map[string]error {
	subject := flows.Subject{Company: a.Company, Account: a.ID}
	return map[string]error{
		"Create":      second(s.Create(ctx, t0, plain(a.Company, "new"))),
		"ByLoginID":   second(s.ByLoginID(ctx, a.Company, flows.NormalizeLoginID(a.Email), "alias")),
		"ByID":        second(s.ByID(ctx, a.Company, a.ID)),
		"ByMnemocode": second(s.ByMnemocode(ctx, a.Company, a.Mnemocode)),
		"ByIdentity":  second(s.ByIdentity(ctx, a.Company, a.Identities[0])),
		"Update": second(s.Update(ctx, a.Company, a.ID, func(a *flows.Account) (bool, error) {
			a.Role = "changed"
			return true, nil
		})),
		"Accept":         s.Accept(ctx, a.Company, a.ID, []flows.Acceptance{{Code: "z", Version: "1", At: t0}}),
		"BackupCodes":    second(s.BackupCodes(ctx, a.Company, a.ID)),
		"UseBackupCode":  s.UseBackupCode(ctx, a.Company, a.ID, "c"),
		"SetBackupCodes": s.SetBackupCodes(ctx, a.Company, a.ID, []string{"z"}),
		"Tally":          s.Tally(ctx, t0, subject, flows.WrongCodes, add(1)),
		"Tallies":        second(s.Tallies(ctx, subject)),
		"SetPassword":    s.SetPassword(ctx, t0, a.Company, a.ID, a.Epoch, "new", flows.TokenHash{}),
		"NewEra":         second(s.NewEra(ctx, a.Company)),
		"Endings":        second(s.Endings(ctx, flows.Ending{}, 1)),
		"Ended":          s.Ended(ctx, flows.Ending{Company: a.Company, Account: a.ID, Epoch: flows.AllEpochs}),
		"Secret":         second(s.Secret(ctx)),
		"SetSeeded":      s.SetSeeded(ctx, a.Company, a.Mnemocode),
		"Seeded":         second(s.Seeded(ctx, a.Company, a.Mnemocode)),
		"CompanyAfter":   second(s.(flows.Census).CompanyAfter(ctx, "")),
		"Stranded":       second(s.(flows.Census).Stranded(ctx, a.Company, true)),
		"Sweep":          s.Sweep(ctx, t0),
		"Delete":         s.Delete(ctx, a.Company, a.ID),
	}
}

// Sessions

// hash makes a token hash from a name, in the bucket of the account whose
// session it is: acme's account 1, unless the name has another's behind an @.
func hash(name string) (h flows.TokenHash) {
	company, account := ownerOf(name)
	h[0] = byte(flows.AccountBucket(company, account))
	copy(h[1:], name)
	return h
}

// ownerOf returns acme and 2 for "x@2", other and 1 for "x@other/1".
func ownerOf(name string) (company string, account int64) {
	_, owner, ok := strings.Cut(name, "@")
	if !ok {
		return "acme", 1
	}
	company, number, ok := strings.Cut(owner, "/")
	if !ok {
		company, number = "acme", owner
	}
	account, _ = strconv.ParseInt(number, 10, 64)
	return company, account
}

// session is a session with a value in every field but Code.
func session(name string, account, epoch int64, state flows.State) flows.Session {
	company, owner := ownerOf(name)
	if account != owner && account != 0 {
		panic(fmt.Sprintf("the session %s of account %d is not named so", name, account))
	}
	return flows.Session{
		Hash:      hash(name),
		ID:        "id of " + name,
		Company:   company,
		Account:   account,
		Mnemocode: "m1",
		Epoch:     epoch,
		State:     state,
		Accepted:  []flows.Acceptance{{Code: "a", Version: "1", At: t0}},
		Created:   t0,
		Expires:   t0.Add(10 * time.Minute),
		Ends:      t0.Add(time.Hour),
		LastUsed:  t0,
		Address:   "2001:db8::1",
		UserAgent: strings.Repeat("Mozilla/5.0 ", 16),
		Profile:   flows.Profile("admin " + strings.Repeat("x", 64) + "@example.com +37060012345"),
	}
}

func newCode(name string) flows.Code {
	return flows.Code{Hash: hash(name), Phone: "+37060012345", Expires: t0.Add(5 * time.Minute)}
}

func wantGone(t *testing.T, s flows.Sessions, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Get(bg, hash(name))
		wantErr(t, "Get of "+name, err, flows.ErrNotFound)
	}
}

func wantSession(t *testing.T, s flows.Sessions, want flows.Session) {
	t.Helper()
	wantEqual(t, "session", get[flows.Session](t)(s.Get(bg, want.Hash)), want)
}

func names(sessions []flows.Session) []string {
	var all []string
	for _, s := range sessions {
		all = append(all, s.ID)
	}
	return all
}

var sessionsCases = []sessionsCase{
	{
		name:    "create and get",
		promise: "Create stores a session; Get returns all of it, also an expired one.",
		run: func(t *testing.T, one, two flows.Sessions) {
			a := session("a", 1, 1, flows.CheckOTP)
			code := newCode("c")
			a.Code = &code
			must(t, one.Create(bg, t0, a))
			b := flows.Session{Hash: hash("b"), Company: "acme", LoginID: "decoy", State: flows.CheckPassword, Created: t0,
				Expires: t0.Add(-time.Hour), Ends: t0.Add(-time.Hour)}
			must(t, one.Create(bg, t0, b))
			wantSession(t, two, a)
			wantSession(t, two, b)
			wantErr(t, "a hash twice", two.Create(bg, t0, b), flows.ErrConflict)
		},
	},
	{
		name:    "odd bytes in sessions",
		promise: "A store keeps every string, and every byte of a hash, as it is.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.State(odd))
			s.ID, s.Company, s.Mnemocode, s.LoginID = odd, odd, odd, odd
			s.Address, s.UserAgent, s.Profile = odd, odd, flows.Profile(odd)
			s.Accepted = []flows.Acceptance{{Code: odd, Version: odd, At: t0}}
			s.Code = &flows.Code{Phone: odd, Expires: t0}
			s.Hash = flows.TokenHash{byte(flows.AccountBucket(odd, 1))} // and zeros
			must(t, one.Create(bg, t0, s))
			wantSession(t, two, s)
			next := s
			next.Hash[31], next.State = 1, flows.Authorized // others are listed as little as they are kept
			must(t, two.Replace(bg, t0, s.Hash, flows.State(odd), next))
			wantSession(t, one, next)
			all := get[[]flows.Session](t)(one.List(bg, t0, odd, 1))
			wantEqual(t, "list", all, []flows.Session{next})
			c := flows.Counter{Key: odd, Limit: 1, Window: time.Minute}
			must(t, one.Charge(bg, t0, c))
			wantFull(t, "a look", two.Charge(bg, t0, flows.Look(c)...), odd, t0.Add(time.Minute))
		},
	},
	{
		name:    "missing sessions",
		promise: "ErrNotFound, or ErrConflict where the interface says so.",
		run: func(t *testing.T, one, _ flows.Sessions) {
			must(t, one.Create(bg, t0, session("other", 1, 1, flows.CheckOTP)))
			wantGone(t, one, "a")
			wantErr(t, "Delete", one.Delete(bg, hash("a")), flows.ErrNotFound)
			wantErr(t, "Touch", one.Touch(bg, t0, hash("a"), t0), flows.ErrNotFound)
			err := one.Replace(bg, t0, hash("a"), flows.CheckOTP, session("b", 1, 1, flows.Authorized))
			wantErr(t, "Replace", err, flows.ErrConflict)
			wantGone(t, one, "b")
			_, err = one.OpenCode(bg, t0, hash("a"), flows.CheckOTP)
			wantErr(t, "OpenCode", err, flows.ErrConflict)
			wantErr(t, "SetCode", one.SetCode(bg, hash("a"), 1, newCode("c")), flows.ErrConflict)
			_, err = one.SpendCode(bg, t0, "acme", hash("a"), flows.CheckOTP)
			wantErr(t, "SpendCode", err, flows.ErrNotFound)
		},
	},
	{
		name:    "replace",
		promise: "Replace ends the session under old and stores next, in one step.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.Create(bg, t0, session("a", 1, 1, flows.CheckPassword)))
			next := session("b", 1, 1, flows.Authorized)
			next.Accepted = nil
			must(t, two.Replace(bg, t0, hash("a"), flows.CheckPassword, next))
			wantGone(t, one, "a")
			wantSession(t, one, next)
			wantErr(t, "again", one.Replace(bg, t0, hash("a"), flows.CheckPassword, session("c", 1, 1, flows.Authorized)), flows.ErrConflict)
		},
	},
	{
		name:    "replace refused",
		promise: "ErrConflict unless old is there, in state from, not expired at now, and next's Epoch has not been ended; then nothing is changed.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 5}))
			old := session("a", 1, 5, flows.CheckPassword)
			must(t, one.Create(bg, t0, old))
			must(t, one.Create(bg, t0, session("held", 1, 5, flows.CheckPassword)))
			next := session("b", 1, 5, flows.Authorized)
			wantErr(t, "another state", two.Replace(bg, t0, old.Hash, flows.CheckOTP, next), flows.ErrConflict)
			wantErr(t, "expired", two.Replace(bg, old.Expires, old.Hash, old.State, next), flows.ErrConflict)
			next.Hash = hash("held")
			wantErr(t, "a hash that is there", two.Replace(bg, t0, old.Hash, old.State, next), flows.ErrConflict)
			next = session("b", 1, 4, flows.Authorized)
			wantErr(t, "an ended epoch", two.Replace(bg, t0, old.Hash, old.State, next), flows.ErrConflict)
			wantSession(t, one, old)
			wantGone(t, one, "b")
			next.Epoch = 5
			must(t, two.Replace(bg, old.Expires.Add(-time.Microsecond), old.Hash, old.State, next))
		},
	},
	{
		name:    "racing Replace",
		promise: "Of many callers with one token, one wins.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.Create(bg, t0, session("a", 1, 1, flows.CheckPassword)))
			errs := race(100, one, two, func(i int, s flows.Sessions) error {
				return s.Replace(bg, t0, hash("a"), flows.CheckPassword, session(fmt.Sprint(i), 1, 1, flows.Authorized))
			})
			wantWinners(t, errs, 1, is(flows.ErrConflict))
			wantEqual(t, "left", len(get[[]flows.Session](t)(one.List(bg, t0, "acme", 1))), 1)
		},
	},
	{
		name:    "delete session",
		promise: "Delete ends a session, and of many callers one.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.Create(bg, t0, session("a", 1, 1, flows.Authorized)))
			must(t, one.Create(bg, t0, session("b", 1, 1, flows.Authorized)))
			errs := race(20, one, two, func(_ int, s flows.Sessions) error { return s.Delete(bg, hash("a")) })
			wantWinners(t, errs, 1, is(flows.ErrNotFound))
			wantGone(t, two, "a")
			wantSession(t, two, session("b", 1, 1, flows.Authorized))
		},
	},
	{
		name:    "links",
		promise: "A session in the state of a mailed link ends the account's other links.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.Create(bg, t0, session("login", 1, 1, flows.CheckOTP)))
			must(t, one.Create(bg, t0, session("others@2", 2, 1, flows.MailedLink)))
			elsewhere := session("elsewhere@other/1", 1, 1, flows.MailedLink)
			must(t, one.Create(bg, t0, elsewhere))
			must(t, one.Create(bg, t0, session("first", 1, 1, flows.MailedLink)))
			must(t, two.Create(bg, t0, session("second", 1, 1, flows.MailedLink)))
			wantGone(t, one, "first")
			for _, name := range []string{"login", "others@2", "elsewhere@other/1", "second"} {
				_, err := one.Get(bg, hash(name))
				must(t, err)
			}
			must(t, one.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 2}))
			wantGone(t, one, "second")
			must(t, one.Create(bg, t0, session("third", 1, 2, flows.MailedLink)))
			wantErr(t, "a link of an ended epoch", one.Create(bg, t0, session("fourth", 1, 1, flows.MailedLink)), flows.ErrConflict)
			_, err := one.Get(bg, hash("third"))
			must(t, err)
		},
	},
	{
		name:    "end",
		promise: "End ends all of an account's sessions and links with an Epoch below epoch, and Create and Replace refuse such from now on.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.Create(bg, t0, session("e1", 1, 1, flows.Authorized)))
			must(t, one.Create(bg, t0, session("e2", 1, 2, flows.CheckOTP)))
			must(t, one.Create(bg, t0, session("link", 1, 2, flows.MailedLink)))
			must(t, one.Create(bg, t0, session("e3", 1, 3, flows.Authorized)))
			must(t, one.Create(bg, t0, session("neighbour@2", 2, 1, flows.CheckPassword)))
			elsewhere := session("elsewhere@other/1", 1, 1, flows.CheckPassword)
			must(t, one.Create(bg, t0, elsewhere))

			must(t, two.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 3}))
			wantGone(t, one, "e1", "e2", "link")
			wantSession(t, one, session("e3", 1, 3, flows.Authorized))
			wantSession(t, one, session("neighbour@2", 2, 1, flows.CheckPassword))
			wantSession(t, one, elsewhere)
			wantErr(t, "an old epoch", one.Create(bg, t0, session("new", 1, 2, flows.CheckOTP)), flows.ErrConflict)
			must(t, one.Create(bg, t0, session("new", 1, 3, flows.CheckOTP)))
			must(t, one.Create(bg, t0, session("new2@2", 2, 1, flows.CheckOTP)))
		},
	},
	{
		name: "room",
		promise: "If the account then has more than AtMost sessions in the state of s, the oldest of them that live " +
			"are ended, and a Feed is told of each before Create returns.",
		run: func(t *testing.T, one, two flows.Sessions) {
			at := func(name string, account int64, state flows.State, minute int) flows.Session {
				s := session(name, account, 1, state)
				s.Created = t0.Add(time.Duration(minute) * time.Minute)
				s.AtMost = 3
				return s
			}
			must(t, one.Create(bg, t0, at("b", 1, flows.Authorized, 2)))
			must(t, two.Create(bg, t0, at("a", 1, flows.Authorized, 1)))
			must(t, one.Create(bg, t0, at("step", 1, flows.CheckOTP, 0)))
			must(t, one.Create(bg, t0, at("other@2", 2, flows.Authorized, 0)))
			must(t, one.Touch(bg, t0, hash("a"), t0.Add(50*time.Minute))) // which makes it no younger
			must(t, two.Create(bg, t0, at("c", 1, flows.Authorized, 3)))
			must(t, two.Create(bg, t0, at("d", 1, flows.Authorized, 4)))
			wantGone(t, one, "a")
			must(t, one.Replace(bg, t0, hash("step"), flows.CheckOTP, at("e", 1, flows.Authorized, 5)))
			wantGone(t, two, "a", "b", "step")
			names := func(all []flows.Session) (ids []string) {
				for _, s := range all {
					ids = append(ids, s.ID)
				}
				return ids
			}
			wantEqual(t, "left", names(get[[]flows.Session](t)(one.List(bg, t0, "acme", 1))),
				names([]flows.Session{session("c", 1, 1, ""), session("d", 1, 1, ""), session("e", 1, 1, "")}))
			wantSession(t, one, withoutAtMost(at("other@2", 2, flows.Authorized, 0)))

			// One that comes with an earlier time than theirs is not the oldest.
			early := at("early@2", 2, flows.Authorized, -5)
			early.AtMost = 1
			must(t, two.Create(bg, t0, early))
			wantGone(t, one, "other@2")
			wantSession(t, one, withoutAtMost(early))

			// What has expired takes no room, and answers as before.
			old := at("old@3", 3, flows.Authorized, -1)
			old.Expires = t0.Add(time.Minute)
			must(t, one.Create(bg, t0, old))
			late := t0.Add(2 * time.Minute)
			for i := range 3 {
				must(t, one.Create(bg, late, at(fmt.Sprintf("new%d@3", i), 3, flows.Authorized, i)))
			}
			for _, name := range []string{"old@3", "new0@3", "new1@3", "new2@3"} {
				_, err := one.Get(bg, hash(name))
				wantErr(t, name, err, nil)
			}
		},
	},
	{
		name:    "racing for room",
		promise: "If the account then has more than AtMost sessions in the state of s, the oldest of them that live are ended.",
		run: func(t *testing.T, one, two flows.Sessions) {
			errs := race(60, one, two, func(i int, n flows.Sessions) error {
				s := session(fmt.Sprint(i), 1, 1, flows.Authorized)
				s.AtMost = 7
				return n.Create(bg, t0, s)
			})
			wantWinners(t, errs, 60, is(nil))
			wantEqual(t, "left", len(get[[]flows.Session](t)(one.List(bg, t0, "acme", 1))), 7)
		},
	},
	{
		name:    "end but for one",
		promise: "In the same step the session e.Keep of the account is raised to e.Epoch if it is Authorized and of the epoch just before.",
		run: func(t *testing.T, one, two flows.Sessions) {
			kept := session("kept", 1, 4, flows.Authorized)
			for _, s := range []flows.Session{
				kept, session("other", 1, 4, flows.Authorized), session("step", 1, 4, flows.CheckOTP),
				session("old", 1, 3, flows.Authorized), session("neighbour@2", 2, 4, flows.Authorized),
				session("elsewhere@other/1", 1, 4, flows.Authorized),
			} {
				must(t, one.Create(bg, t0, s))
			}
			end := func(epoch int64, keep string) {
				t.Helper()
				must(t, two.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: epoch, Keep: hash(keep)}))
			}
			end(5, "kept")
			kept.Epoch = 5
			wantSession(t, one, kept)
			wantGone(t, one, "other", "step", "old")
			end(5, "kept") // done again, as after a crash
			wantSession(t, one, kept)
			end(6, "neighbour@2")
			wantGone(t, one, "kept")
			for _, s := range []flows.Session{session("b", 1, 6, flows.Authorized), session("c", 1, 7, flows.CheckOTP)} {
				must(t, one.Create(bg, t0, s))
			}
			end(8, "b")
			wantGone(t, one, "b", "c") // b was of an epoch that another ending ends
			must(t, one.Create(bg, t0, session("d", 1, 8, flows.CheckOTP)))
			end(9, "d")
			wantGone(t, one, "d") // no step is kept
			end(10, "elsewhere@other/1")
			wantSession(t, one, session("neighbour@2", 2, 4, flows.Authorized))
			wantSession(t, one, session("elsewhere@other/1", 1, 4, flows.Authorized))
		},
	},
	{
		name:    "racing End that keeps one",
		promise: "Whoever asks meanwhile finds the session that is kept: it is never between two epochs.",
		run: func(t *testing.T, one, two flows.Sessions) {
			kept := session("kept", 1, 1, flows.Authorized)
			must(t, one.Create(bg, t0, kept))
			for i := range 20 {
				must(t, one.Create(bg, t0, session(fmt.Sprint("old", i), 1, 1, flows.Authorized)))
			}
			errs := race(100, one, two, func(i int, s flows.Sessions) error {
				switch {
				case i%25 == 12:
					return s.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 2, Keep: kept.Hash})
				case i%3 == 0:
					return s.Touch(bg, t0, kept.Hash, t0.Add(time.Duration(i)*time.Minute))
				}
				_, err := s.Get(bg, kept.Hash)
				return err
			})
			wantWinners(t, errs, 100, is(nil))
			left := get[[]flows.Session](t)(one.List(bg, t0, "acme", 1))
			wantEqual(t, "left", names(left), []string{"id of kept"})
			wantEqual(t, "epoch", left[0].Epoch, 2)
		},
	},
	{
		name:    "end for ever",
		promise: "What was ended stays ended: a later, lower End changes nothing, and AllEpochs ends everything.",
		run: func(t *testing.T, one, two flows.Sessions) {
			must(t, one.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 5}))
			must(t, two.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 3}))
			wantErr(t, "epoch 4", one.Create(bg, t0, session("a", 1, 4, flows.Authorized)), flows.ErrConflict)
			must(t, one.Create(bg, t0, session("b", 1, 5, flows.Authorized)))
			must(t, one.Sweep(bg, t0.Add(30*24*time.Hour)))
			late := t0.Add(30 * 24 * time.Hour)
			wantErr(t, "epoch 4 in 30 days", one.Create(bg, late, session("a", 1, 4, flows.Authorized)), flows.ErrConflict)
			must(t, two.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: flows.AllEpochs}))
			wantGone(t, one, "b")
			wantErr(t, "a deleted account", one.Create(bg, t0, session("c", 1, 1<<40, flows.Authorized)), flows.ErrConflict)
		},
	},
	{
		name:    "decoys",
		promise: "Account 0 is nobody's: its sessions don't end one another, and have no epoch.",
		run: func(t *testing.T, one, _ flows.Sessions) {
			must(t, one.Create(bg, t0, session("a", 0, 0, flows.CheckPassword)))
			must(t, one.Create(bg, t0, session("link", 0, 0, flows.MailedLink)))
			must(t, one.Create(bg, t0, session("link2", 0, 0, flows.MailedLink)))
			must(t, one.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: flows.AllEpochs}))
			must(t, one.Create(bg, t0, session("b", 0, 0, flows.CheckPassword)))
			wantSession(t, one, session("a", 0, 0, flows.CheckPassword))
			wantSession(t, one, session("link", 0, 0, flows.MailedLink))
		},
	},
	{
		name:    "racing End",
		promise: "No session of an ended epoch survives, whichever came first.",
		run: func(t *testing.T, one, two flows.Sessions) {
			for i := range 50 {
				must(t, one.Create(bg, t0, session(fmt.Sprint("old", i), 1, 1, flows.CheckPassword)))
			}
			errs := race(150, one, two, func(i int, s flows.Sessions) error {
				switch {
				case i == 75:
					return s.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 2})
				case i%3 == 0:
					return s.Create(bg, t0, session(fmt.Sprint("created", i), 1, 1, flows.CheckPassword))
				case i%3 == 1:
					return s.Replace(bg, t0, hash(fmt.Sprint("old", i/3)), flows.CheckPassword, session(fmt.Sprint("next", i), 1, 1, flows.Authorized))
				}
				return s.Create(bg, t0, session(fmt.Sprint("fresh", i), 1, 2, flows.CheckPassword))
			})
			for i, err := range errs {
				if err != nil && (i == 75 || i%3 == 2 || !errors.Is(err, flows.ErrConflict)) {
					t.Errorf("racer %d: unexpected error %v", i, err)
				}
			}
			left := get[[]flows.Session](t)(one.List(bg, t0, "acme", 1))
			wantEqual(t, "left", len(left), 50)
			for _, s := range left {
				wantEqual(t, "epoch", s.Epoch, 2)
			}
		},
	},
	{
		name:    "touch",
		promise: "Touch moves Expires forward, never back and never behind Ends, and LastUsed to now, never back. ErrNotFound if the session was expired at now.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.Authorized)
			must(t, one.Create(bg, t0, s))
			touch := func(now, expires, want time.Time) {
				t.Helper()
				must(t, two.Touch(bg, now, s.Hash, expires))
				s.Expires = want
				if now.After(s.LastUsed) {
					s.LastUsed = now
				}
				wantSession(t, one, s)
			}
			touch(t0, t0.Add(20*time.Minute), t0.Add(20*time.Minute))
			touch(t0, t0.Add(5*time.Minute), t0.Add(20*time.Minute))
			touch(t0.Add(19*time.Minute), s.Ends.Add(time.Hour), s.Ends)
			touch(t0.Add(18*time.Minute), s.Ends, s.Ends)
			wantErr(t, "a session at its end", two.Touch(bg, s.Ends, s.Hash, s.Ends.Add(time.Hour)), flows.ErrNotFound)
			wantSession(t, one, s)
		},
	},
	{
		name:    "racing Touch",
		promise: "Touch never moves Expires back and does not bring back what was ended.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.Authorized)
			must(t, one.Create(bg, t0, s))
			must(t, one.Create(bg, t0, session("b", 1, 1, flows.Authorized)))
			race(100, one, two, func(i int, n flows.Sessions) error {
				if i == 50 {
					return n.Delete(bg, hash("b"))
				}
				return errors.Join(
					n.Touch(bg, t0, hash("a"), t0.Add(time.Duration(11+i%30)*time.Minute)),
					n.Touch(bg, t0, hash("b"), t0.Add(time.Hour)))
			})
			s.Expires = t0.Add(40 * time.Minute)
			wantSession(t, one, s)
			wantGone(t, one, "b")
		},
	},
	{
		name:    "ending what is long expired",
		promise: "End ends also what is expired for so long that it may be cleared away: the clock can go back.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.Authorized)
			must(t, one.Create(bg, t0, s))
			late := s.Expires.Add(flows.Keep + time.Hour)
			next := session("b", 1, 1, flows.CheckPassword)
			next.Expires, next.Ends = late.Add(time.Hour), late.Add(time.Hour)
			must(t, two.Create(bg, late, next))
			must(t, one.End(bg, late, flows.Ending{Company: "acme", Account: 1, Epoch: 2}))
			wantGone(t, one, "a")
			wantGone(t, two, "b")
		},
	},
	{
		name:    "expire",
		promise: "What Expire has expired is so at any time, and kept for as long as before. ErrNotFound if the session is not expired at now.",
		run: func(t *testing.T, one, two flows.Sessions) {
			code := newCode("c")
			s := session("a", 1, 1, flows.CheckOTP)
			s.Code = &code
			must(t, one.Create(bg, t0, s))
			wantErr(t, "before its time", two.Expire(bg, s.Expires.Add(-time.Microsecond), s.Hash), flows.ErrNotFound)
			wantSession(t, one, s)
			for i, err := range race(20, one, two, func(_ int, n flows.Sessions) error { return n.Expire(bg, s.Expires, s.Hash) }) {
				if err != nil && !errors.Is(err, flows.ErrNotFound) {
					t.Errorf("racer %d: %v", i, err)
				}
			}
			wantErr(t, "no session", one.Expire(bg, s.Expires, hash("b")), flows.ErrNotFound)
			got := get[flows.Session](t)(one.Get(bg, s.Hash))
			wantEqual(t, "Expires", got.Expires, time.Time{})
			wantEqual(t, "ID", got.ID, s.ID)
			// The clock is back at t0.
			wantErr(t, "Touch", one.Touch(bg, t0, s.Hash, s.Ends), flows.ErrNotFound)
			wantErr(t, "Replace", one.Replace(bg, t0, s.Hash, s.State, session("b", 1, 1, flows.Authorized)), flows.ErrConflict)
			_, err := one.OpenCode(bg, t0, s.Hash, s.State)
			wantErr(t, "OpenCode", err, flows.ErrConflict)
			wantEqual(t, "listed", len(get[[]flows.Session](t)(two.List(bg, t0, "acme", 1))), 0)
			must(t, one.Sweep(bg, s.Expires.Add(time.Hour)))
			wantEqual(t, "Expires in an hour", get[flows.Session](t)(two.Get(bg, s.Hash)).Expires, time.Time{})
			must(t, one.Sweep(bg, s.Expires.Add(flows.Keep+time.Hour)))
			wantGone(t, two, "a")
		},
	},
	{
		name:    "list",
		promise: "List returns an account's sessions that are not expired, oldest first.",
		run: func(t *testing.T, one, two flows.Sessions) {
			for i, name := range []string{"c", "a", "b"} {
				s := session(name, 1, int64(3-i), flows.Authorized)
				s.Created = t0.Add(time.Duration(i) * time.Second)
				must(t, one.Create(bg, t0, s))
			}
			expired := session("expired", 1, 1, flows.Authorized)
			expired.Expires = t0
			must(t, one.Create(bg, t0, expired))
			must(t, one.Create(bg, t0, session("neighbour@2", 2, 1, flows.Authorized)))
			elsewhere := session("elsewhere@other/1", 1, 1, flows.Authorized)
			must(t, one.Create(bg, t0, elsewhere))
			got := names(get[[]flows.Session](t)(two.List(bg, t0, "acme", 1)))
			wantEqual(t, "sessions", got, []string{"id of c", "id of a", "id of b"})
			wantEqual(t, "none", len(get[[]flows.Session](t)(two.List(bg, t0, "acme", 3))), 0)
		},
	},
	{
		name:    "codes",
		promise: "OpenCode removes the code and returns the number under which SetCode may give a new one; SpendCode takes it away and returns the session with it.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			sent := newCode("first")
			s.Code = &sent
			must(t, one.Create(bg, t0, s))
			number := get[int64](t)(two.OpenCode(bg, t0, s.Hash, flows.CheckOTP))
			s.Code = nil
			wantSession(t, one, s)
			code := newCode("second")
			must(t, one.SetCode(bg, s.Hash, number, code))
			s.Code = &code
			wantSession(t, two, s)
			spend := func(n flows.Sessions) flows.Session {
				t.Helper()
				return get[flows.Session](t)(n.SpendCode(bg, t0, "acme", s.Hash, flows.CheckOTP))
			}
			wantEqual(t, "spent", spend(two), s)
			s.Code = nil
			wantEqual(t, "spent again", spend(one), s)
			wantSession(t, one, s)
		},
	},
	{
		name:    "codes of an app",
		promise: "A session is ByApp until SetCode gives it a code.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			s.ByApp = true
			must(t, one.Create(bg, t0, s))
			wantSession(t, two, s)
			spent := get[flows.Session](t)(two.SpendCode(bg, t0, "acme", s.Hash, flows.CheckOTP))
			wantEqual(t, "spent", spent, s)
			number := get[int64](t)(two.OpenCode(bg, t0, s.Hash, flows.CheckOTP))
			wantSession(t, two, s)
			next := session("b", 1, 1, flows.CheckOTP)
			next.ByApp = true
			must(t, one.Replace(bg, t0, s.Hash, flows.CheckOTP, next))
			wantSession(t, two, next)
			wantErr(t, "an ended session", one.SetCode(bg, s.Hash, number, newCode("c")), flows.ErrConflict)
			wantErr(t, "another's number", one.SetCode(bg, next.Hash, number, newCode("c")), flows.ErrConflict)
			wantSession(t, two, next)
			must(t, one.SetCode(bg, next.Hash, get[int64](t)(two.OpenCode(bg, t0, next.Hash, flows.CheckOTP)), newCode("c")))
			code := newCode("c")
			next.ByApp, next.Code = false, &code
			wantSession(t, two, next)
		},
	},
	{
		name:    "renewed codes",
		promise: "SetCode gives a session its code unless OpenCode was called again since it returned number; OpenCode: ErrConflict unless the session is there, in that state, not expired.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			must(t, one.Create(bg, t0, s))
			open := func(n flows.Sessions) int64 {
				t.Helper()
				return get[int64](t)(n.OpenCode(bg, t0, s.Hash, flows.CheckOTP))
			}
			first, second := open(one), open(two)
			if second <= first {
				t.Errorf("numbers %d, %d do not grow", first, second)
			}
			late, code := newCode("late"), newCode("code")
			wantErr(t, "an older number", one.SetCode(bg, s.Hash, first, late), flows.ErrConflict)
			must(t, two.SetCode(bg, s.Hash, second, code))
			wantErr(t, "an older number", one.SetCode(bg, s.Hash, first, late), flows.ErrConflict)
			wantErr(t, "a number to come", one.SetCode(bg, s.Hash, second+1, late), flows.ErrConflict)
			_, err := one.OpenCode(bg, t0, s.Hash, flows.RecoveryOTP)
			wantErr(t, "another state", err, flows.ErrConflict)
			_, err = one.OpenCode(bg, s.Expires, s.Hash, flows.CheckOTP)
			wantErr(t, "an expired session", err, flows.ErrConflict)
			s.Code = &code
			wantSession(t, one, s)
			third := open(one)
			if third <= second {
				t.Errorf("numbers %d, %d do not grow", second, third)
			}
			must(t, one.Delete(bg, s.Hash))
			wantErr(t, "an ended session", two.SetCode(bg, s.Hash, third, late), flows.ErrConflict)
		},
	},
	{
		name:    "racing OpenCode",
		promise: "Each call's number is higher, so of those who renew at once one sets the code.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			must(t, one.Create(bg, t0, s))
			numbers := make([]int64, 50)
			errs := race(50, one, two, func(i int, n flows.Sessions) (err error) {
				numbers[i], err = n.OpenCode(bg, t0, s.Hash, flows.CheckOTP)
				return err
			})
			wantWinners(t, errs, 50, is(nil))
			errs = race(50, one, two, func(i int, n flows.Sessions) error {
				return n.SetCode(bg, s.Hash, numbers[i], newCode(fmt.Sprint(i)))
			})
			wantWinners(t, errs, 1, is(flows.ErrConflict))
		},
	},
	{
		name:    "racing SpendCode",
		promise: "Of many callers, one gets the code.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			sent := newCode("code")
			s.Code = &sent
			must(t, one.Create(bg, t0, s))
			codes := make([]*flows.Code, 100)
			errs := race(100, one, two, func(i int, n flows.Sessions) error {
				got, err := n.SpendCode(bg, t0, "acme", s.Hash, flows.CheckOTP)
				codes[i] = got.Code
				return err
			})
			wantWinners(t, errs, 100, is(nil))
			got := 0
			for _, code := range codes {
				if code != nil {
					got++
					wantEqual(t, "code", *code, sent)
				}
			}
			wantEqual(t, "callers who got the code", got, 1)
		},
	},
	{
		name:    "codes that are not spent",
		promise: "SpendCode takes nothing unless the session is the company's, in state and not expired at now; nor if a counter is at its limit, which it only looks at.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			code := newCode("c")
			s.Code = &code
			must(t, one.Create(bg, t0, s))
			without := s
			without.Code = nil
			full, free := flows.Counter{Key: "acme/full", Limit: 1, Window: time.Hour}, flows.Counter{Key: "acme/free", Limit: 1, Window: time.Hour}
			must(t, one.Charge(bg, t0, full))
			for what, c := range map[string]struct {
				now     time.Time
				company string
				state   flows.State
			}{
				"another company": {t0, "other", s.State},
				"another state":   {t0, "acme", flows.RecoveryOTP},
				"expired":         {s.Expires, "acme", s.State},
			} {
				// What the counter says is not told of such a session.
				got := get[flows.Session](t)(two.SpendCode(bg, c.now, c.company, s.Hash, c.state, full))
				wantEqual(t, what, got, without)
			}
			got, err := two.SpendCode(bg, t0, "acme", s.Hash, s.State, free, full)
			wantFull(t, "a full counter", err, "acme/full", t0.Add(time.Hour))
			wantEqual(t, "a full counter", got, without)
			wantSession(t, one, s)
			got = get[flows.Session](t)(two.SpendCode(bg, s.Expires.Add(-time.Microsecond), "acme", s.Hash, s.State, free))
			wantEqual(t, "spent", got, s)
			must(t, one.Charge(bg, t0, free)) // it was not charged before
			got, err = two.SpendCode(bg, t0, "acme", s.Hash, s.State, full)
			wantFull(t, "a full counter where there is no code", err, "acme/full", t0.Add(time.Hour))
			wantEqual(t, "no code", got, without)
		},
	},
	{
		name:    "sessions with counters",
		promise: "Create and Replace charge the counters and store the session in one step; if a counter is at its limit, the error is Charge's and nothing is stored or charged.",
		run: func(t *testing.T, one, two flows.Sessions) {
			a := flows.Counter{Key: "acme/a", Limit: 2, Window: time.Minute}
			b := flows.Counter{Key: "acme/b", Limit: 1, Window: time.Hour}
			look := b
			look.Look = true
			first, second := session("a", 1, 1, flows.CheckOTP), session("b", 1, 1, flows.Authorized)
			link, decoy := session("link", 1, 1, flows.MailedLink), session("decoy", 0, 0, flows.CheckPassword)
			must(t, one.Create(bg, t0, first, look, a))
			must(t, one.Charge(bg, t0, flows.Look(a, b)...)) // one more of each
			must(t, one.Charge(bg, t0, b))
			for what, err := range map[string]error{
				"Create":            two.Create(bg, t0, second, a, b),
				"looking Create":    two.Create(bg, t0, second, a, look),
				"Create of a link":  two.Create(bg, t0, link, a, look),
				"Create of a decoy": two.Create(bg, t0, decoy, a, look),
				"Replace":           two.Replace(bg, t0, first.Hash, first.State, second, a, b),
				"looking Replace":   two.Replace(bg, t0, first.Hash, first.State, second, a, look),
			} {
				wantFull(t, what, err, "acme/b", t0.Add(time.Hour))
			}
			wantGone(t, one, "b", "link", "decoy")
			wantSession(t, one, first)
			must(t, two.Replace(bg, t0, first.Hash, first.State, second, a)) // no refusal has counted
			wantGone(t, one, "a")
			wantSession(t, one, second)
			wantFull(t, "Create", one.Create(bg, t0, first, look, a), "acme/b", t0.Add(time.Hour))
			wantFull(t, "Create", one.Create(bg, t0, first, a, look), "acme/a", t0.Add(time.Minute))
			later := t0.Add(time.Minute)
			must(t, one.Create(bg, later, link, a))
			must(t, one.Create(bg, later, decoy, a))
			wantSession(t, two, link)
			wantSession(t, two, decoy)
			wantFull(t, "a look", two.Charge(bg, later, flows.Look(a)...), "acme/a", later.Add(time.Minute))
		},
	},
	{
		name:    "racing sessions with counters",
		promise: "Budgets are kept exactly under concurrency, and there are as many sessions as were charged for.",
		run: func(t *testing.T, one, two flows.Sessions) {
			tight := flows.Counter{Key: "acme/tight", Limit: 30, Window: time.Minute}
			wide := flows.Counter{Key: "acme/wide", Limit: 1000, Window: time.Minute}
			for i := range 50 {
				must(t, one.Create(bg, t0, session(fmt.Sprint("old", i), 1, 1, flows.CheckOTP)))
			}
			errs := race(150, one, two, func(i int, s flows.Sessions) error {
				switch i % 3 {
				case 0:
					return s.Create(bg, t0, session(fmt.Sprint("created", i), 1, 1, flows.Authorized), tight, wide)
				case 1:
					return s.Replace(bg, t0, hash(fmt.Sprint("old", i/3)), flows.CheckOTP, session(fmt.Sprint("next", i), 1, 1, flows.Authorized), wide, tight)
				default:
					return s.Create(bg, t0, session(fmt.Sprint("link", i), 1, 1, flows.MailedLink), wide, tight)
				}
			})
			wantWinners(t, errs, 30, isA[*flows.Full])
			wide.Limit = 30
			wantFull(t, "what the refused left", one.Charge(bg, t0, flows.Look(wide)...), "acme/wide", t0.Add(time.Minute))
			wide.Limit = 31
			must(t, one.Charge(bg, t0, flows.Look(wide)...))
			left := map[flows.State]int{}
			for _, s := range get[[]flows.Session](t)(two.List(bg, t0, "acme", 1)) {
				left[s.State]++
			}
			want := map[flows.State]int{flows.CheckOTP: 50}
			for i, err := range errs {
				switch {
				case err != nil:
				case i%3 == 0:
					want[flows.Authorized]++
				case i%3 == 1:
					want[flows.Authorized]++
					want[flows.CheckOTP]--
				default:
					want[flows.MailedLink] = 1 // each has ended the one before
				}
			}
			wantEqual(t, "sessions", left, want)
		},
	},
	{
		name:    "counters",
		promise: "Charge adds one to each counter, or to none if one of them is at its limit: then the Full error tells until when. A look adds nothing.",
		run: func(t *testing.T, one, two flows.Sessions) {
			a := flows.Counter{Key: "a", Limit: 3, Window: time.Minute}
			b := flows.Counter{Key: "b", Limit: 2, Window: time.Hour}
			must(t, one.Charge(bg, t0, flows.Look(a, b)...))
			must(t, one.Charge(bg, t0, a, b))
			must(t, two.Charge(bg, t0.Add(time.Second), a, b))
			wantFull(t, "Charge", one.Charge(bg, t0, a, b), "b", t0.Add(time.Hour))
			wantFull(t, "Charge", one.Charge(bg, t0, b, a), "b", t0.Add(time.Hour))
			wantFull(t, "a look", two.Charge(bg, t0, flows.Look(a, b)...), "b", t0.Add(time.Hour))
			must(t, two.Charge(bg, t0, flows.Look(a)...))
			must(t, two.Charge(bg, t0, a)) // neither refusal has counted
			wantFull(t, "Charge", two.Charge(bg, t0, a), "a", t0.Add(time.Minute))
			must(t, one.Charge(bg, t0))
			must(t, one.Charge(bg, t0))
		},
	},
	{
		name:    "windows",
		promise: "A window begins with the first event and ends after Window; then it starts again from nothing.",
		run: func(t *testing.T, one, two flows.Sessions) {
			c := flows.Counter{Key: "a", Limit: 2, Window: time.Minute}
			must(t, one.Charge(bg, t0, c))
			must(t, one.Charge(bg, t0.Add(50*time.Second), c))
			wantFull(t, "Charge", one.Charge(bg, t0.Add(time.Minute-time.Microsecond), c), "a", t0.Add(time.Minute))
			again := t0.Add(time.Minute)
			must(t, two.Charge(bg, again, flows.Look(c)...))
			must(t, two.Charge(bg, again, c))
			must(t, two.Charge(bg, again, c))
			wantFull(t, "Charge", one.Charge(bg, again, c), "a", again.Add(time.Minute))
		},
	},
	{
		name:    "limits of nothing and limits that change",
		promise: "Limit 0: nothing is let through.",
		run: func(t *testing.T, one, _ flows.Sessions) {
			none := flows.Counter{Key: "a", Limit: 0, Window: time.Minute}
			wantFull(t, "Charge", one.Charge(bg, t0, none), "a", t0.Add(time.Minute))
			wantFull(t, "a look", one.Charge(bg, t0, flows.Look(none)...), "a", t0.Add(time.Minute))
			some := flows.Counter{Key: "a", Limit: 2, Window: time.Minute}
			must(t, one.Charge(bg, t0, some))
			must(t, one.Charge(bg, t0, some))
			fewer := flows.Counter{Key: "a", Limit: 1, Window: time.Minute}
			wantFull(t, "a lowered limit", one.Charge(bg, t0, fewer), "a", t0.Add(time.Minute))
			more := flows.Counter{Key: "a", Limit: 3, Window: time.Minute}
			must(t, one.Charge(bg, t0, more))
			wantFull(t, "a raised limit", one.Charge(bg, t0, more), "a", t0.Add(time.Minute))
		},
	},
	{
		name:    "one counter twice in a Charge",
		promise: "Charge adds one to each counter, or to none.",
		run: func(t *testing.T, one, _ flows.Sessions) {
			c := flows.Counter{Key: "a", Limit: 3, Window: time.Minute}
			must(t, one.Charge(bg, t0, c, c))
			wantFull(t, "Charge", one.Charge(bg, t0, c, c), "a", t0.Add(time.Minute))
			must(t, one.Charge(bg, t0, c))
		},
	},
	{
		name:    "racing Charge",
		promise: "Budgets are kept exactly under concurrency.",
		run: func(t *testing.T, one, two flows.Sessions) {
			tight := flows.Counter{Key: "tight", Limit: 30, Window: time.Minute}
			wide := flows.Counter{Key: "wide", Limit: 1000, Window: time.Minute}
			errs := race(200, one, two, func(i int, s flows.Sessions) error {
				if i%4 < 2 { // as often in the other order
					return s.Charge(bg, t0, tight, wide)
				}
				return s.Charge(bg, t0, wide, tight)
			})
			wantWinners(t, errs, 30, isA[*flows.Full])
			wide.Limit = 30
			wantFull(t, "what the refused left", one.Charge(bg, t0, flows.Look(wide)...), "wide", t0.Add(time.Minute))
			wide.Limit = 31
			must(t, one.Charge(bg, t0, flows.Look(wide)...))
		},
	},
	{
		name:    "sweep of sessions",
		promise: "Sweep clears away what has expired more than Keep ago, and nothing else.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.Authorized)
			must(t, one.Create(bg, t0, s))
			lasting := session("b", 1, 1, flows.Authorized)
			lasting.Expires = lasting.Ends
			must(t, one.Create(bg, t0, lasting))
			counter := flows.Counter{Key: "a", Limit: 1, Window: 24 * time.Hour}
			must(t, one.Charge(bg, t0, counter))

			must(t, two.Sweep(bg, s.Expires.Add(flows.Keep)))
			wantSession(t, one, s)
			must(t, two.Sweep(bg, s.Expires.Add(flows.Keep+time.Second)))
			wantGone(t, one, "a")
			wantSession(t, one, lasting)
			wantFull(t, "a look", one.Charge(bg, t0, flows.Look(counter)...), "a", t0.Add(24*time.Hour))
			must(t, two.Sweep(bg, t0.Add(26*time.Hour)))
			must(t, one.Charge(bg, t0, flows.Look(counter)...))
		},
	},
	{
		name:    "sweep of many sessions",
		promise: "Sweep clears all that is to be cleared, however much it is.",
		run: func(t *testing.T, one, two flows.Sessions) {
			for i := range 1200 {
				must(t, one.Create(bg, t0, session(fmt.Sprint(i), 1, 1, flows.Authorized)))
			}
			must(t, one.Sweep(bg, t0.Add(2*time.Hour)))
			for i := range 1200 {
				wantGone(t, two, fmt.Sprint(i))
			}
		},
	},
	{
		name:    "cancelled context",
		promise: "A method either does all it says or nothing; a caller who has gone away is told so.",
		run: func(t *testing.T, one, two flows.Sessions) {
			s := session("a", 1, 1, flows.CheckOTP)
			code := newCode("c")
			s.Code = &code
			must(t, one.Create(bg, t0, s))
			ctx, cancel := context.WithCancel(bg)
			cancel()
			for method, err := range callAllSessions(ctx, one, s) {
				wantErr(t, method, err, context.Canceled)
			}
			wantSession(t, two, s)
			wantGone(t, two, "b", "c")
			must(t, two.Charge(bg, t0, flows.Counter{Key: "k", Limit: 1, Window: time.Minute}))
		},
	},
}

// callAllSessions calls each method with arguments that would do something.
func callAllSessions(ctx context.Context, s flows.Sessions, on flows.Session) map[string]error {
	counter := flows.Counter{Key: "k", Limit: 1, Window: time.Minute}
	return map[string]error{
		"Create":    s.Create(ctx, t0, session("b", 1, 1, flows.Authorized)),
		"Get":       second(s.Get(ctx, on.Hash)),
		"Touch":     s.Touch(ctx, t0, on.Hash, t0.Add(time.Hour)),
		"List":      second(s.List(ctx, t0, on.Company, on.Account)),
		"OpenCode":  second(s.OpenCode(ctx, t0, on.Hash, on.State)),
		"SetCode":   s.SetCode(ctx, on.Hash, 0, newCode("z")),
		"SpendCode": second(s.SpendCode(ctx, t0, on.Company, on.Hash, on.State)),
		"Charge":    s.Charge(ctx, t0, counter),
		"a look":    s.Charge(ctx, t0, flows.Look(counter)...),
		"Sweep":     s.Sweep(ctx, t0.Add(24*time.Hour)),
		"Replace":   s.Replace(ctx, t0, on.Hash, on.State, session("c", 1, 1, flows.Authorized)),
		"DeleteID":  second(s.DeleteID(ctx, t0, on.Company, on.Account, on.ID)),
		"End all":   s.End(ctx, t0, flows.Ending{Company: "nobody", Epoch: 1}),
		"End":       s.End(ctx, t0, flows.Ending{Company: on.Company, Account: on.Account, Epoch: flows.AllEpochs}),
		"Delete":    s.Delete(ctx, on.Hash),
	}
}
