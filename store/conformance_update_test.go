package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
)

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

var updateCases = []accountsCase{
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
}
