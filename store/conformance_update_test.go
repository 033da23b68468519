package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

func pendingRevocations(t *testing.T, s record.Accounts) map[record.Revocation]bool {
	t.Helper()
	all := map[record.Revocation]bool{}
	for _, e := range get[[]record.Revocation](t)(s.PendingRevocations(bg, record.Revocation{}, 1000)) {
		all[e] = true
	}
	return all
}

var updateCases = []accountsCase{
	{
		name:    "update",
		promise: "Update stores what change altered and returns the account as stored. It ignores changes of ID, Company, Generation, Accepted, BackupCodes, failure counts and Created.",
		run: func(t *testing.T, one, two record.Accounts) {
			before := create(t, one, someone("acme", "m1"))
			want := someone("acme", "m9")
			want.Role, want.Phone, want.Status = "r", "+37060099999", record.StatusClosed
			want.SecondFactor, want.MustSetPassword, want.Locale = false, false, "de"
			want.Identities = []record.Identity{{Provider: 2, Subject: "a"}, {Provider: 2, Subject: "b"}}
			later := t0.Add(time.Minute)
			got := get[record.Account](t)(one.Update(bg, "acme", before.ID, func(a *record.Account) (bool, error) {
				wantEqual(t, "loaded", *a, before)
				*a = want
				a.ID, a.Company, a.Generation, a.BackupCodes = 5, "other", 99, 7
				a.Accepted, a.Created, a.Updated = nil, t0.Add(-time.Hour), later
				return false, nil
			}))
			want.ID, want.Generation, want.Created, want.Updated = before.ID, before.Generation, t0, later
			wantEqual(t, "returned", got, want)
			wantEqual(t, "stored", get[record.Account](t)(two.ByID(bg, "acme", before.ID)), want)
			for field, id := range record.LoginIDs(want) {
				wantEqual(t, field, get[record.Account](t)(two.ByLoginID(bg, "acme", id, "login id hash")).ID, want.ID)
			}
			for field, id := range record.LoginIDs(before) {
				wantErr(t, "the old "+field, second(two.ByLoginID(bg, "acme", id, "login id hash")), record.ErrNotFound)
			}
			wantErr(t, "the old identity", second(two.ByIdentity(bg, "acme", before.Identities[0])), record.ErrNotFound)
			create(t, two, someone("acme", "m1")) // all values are free again
			wantEqual(t, "pending revocations", len(pendingRevocations(t, two)), 0)
		},
	},
	{
		name:    "update of something else than login ids",
		promise: "Update stores LoginIDs only if a login id changes. What a login name reads as in the PhoneRegion stays taken meanwhile.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := plain("acme", "m1")
			a.LoginName, a.PhoneRegion = "860099991", "LT"
			id := get[int64](t)(one.Create(bg, t0, a))
			owner := plain("acme", "m2")
			owner.Phone = "+37060099991"
			wantStillTaken := func() {
				t.Helper()
				_, err := two.Create(bg, t0, owner)
				wantTaken(t, "the phone", err, "primary_phone")
				wantEqual(t, "account of the phone", get[record.Account](t)(two.ByLoginID(bg, "acme", owner.Phone, "")).ID, id)
				wantEqual(t, "account of the login name", get[record.Account](t)(two.ByLoginID(bg, "acme", a.LoginName, "")).ID, id)
			}
			update := func(change func(*record.Account)) {
				t.Helper()
				get[record.Account](t)(two.Update(bg, "acme", id, set(false, change)))
			}
			wantStillTaken()
			update(func(a *record.Account) { a.Role, a.PhoneRegion = "clerk", "" })
			wantStillTaken()
			update(func(a *record.Account) { a.Identities = []record.Identity{{Provider: 1, Subject: "s"}} })
			wantStillTaken()
			update(func(a *record.Account) { a.LoginName, a.PhoneRegion = "bob", "LT" })
			get[int64](t)(two.Create(bg, t0, owner))
			wantErr(t, "the old login name", second(two.ByLoginID(bg, "acme", a.LoginName, "")), record.ErrNotFound)
		},
	},
	{
		name:    "update that ends",
		promise: "If change reports that it ends the account's sessions, the Generation grows by one and a pending revocation is stored.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			got := get[record.Account](t)(one.Update(bg, "acme", a.ID, revoking))
			wantEqual(t, "generation", got.Generation, a.Generation+1)
			wantEqual(t, "pending revocations", pendingRevocations(t, two), map[record.Revocation]bool{{Company: "acme", Account: a.ID, Generation: a.Generation + 1}: true})
			must(t, two.SetPassword(bg, t0, inGeneration(a.Generation+1, a), "h", record.TokenHash{}))
			wantEqual(t, "pending revocations", pendingRevocations(t, one), map[record.Revocation]bool{{Company: "acme", Account: a.ID, Generation: a.Generation + 2}: true})
		},
	},
	{
		name:    "update that bars",
		promise: "If it also changes Status from active, InactiveGeneration becomes the new Generation.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			set := func(status record.Status, ends bool, inactive int64) {
				t.Helper()
				got := get[record.Account](t)(one.Update(bg, "acme", a.ID, set(ends, func(a *record.Account) { a.Status, a.InactiveGeneration = status, 99 })))
				wantEqual(t, "inactive generation", got.InactiveGeneration, inactive)
				for _, id := range record.LoginIDs(got) {
					wantEqual(t, "inactive generation", get[record.Account](t)(two.ByLoginID(bg, "acme", id, "")).InactiveGeneration, inactive)
				}
			}
			set(record.StatusActive, true, 0)
			set(record.StatusClosed, true, a.Generation+2)
			set(record.StatusDenied, true, a.Generation+2)
			set(record.StatusActive, true, a.Generation+2)
			set(record.StatusDenied, false, a.Generation+2)
			set(record.StatusActive, false, a.Generation+2)
			set(record.StatusRestricted, true, a.Generation+5)
		},
	},
	{
		name:    "update that fails",
		promise: "If change fails, nothing is stored, and its error is returned.",
		run: func(t *testing.T, one, _ record.Accounts) {
			before := create(t, one, someone("acme", "m1"))
			refused := errors.New("refused")
			_, err := one.Update(bg, "acme", before.ID, func(a *record.Account) (bool, error) {
				a.Role, a.Email, a.Updated = "r", "", t0.Add(time.Hour)
				return true, refused
			})
			if err != refused {
				t.Errorf("got error %v, want change's own", err)
			}
			wantEqual(t, "account", get[record.Account](t)(one.ByID(bg, "acme", before.ID)), before)
			wantEqual(t, "pending revocations", len(pendingRevocations(t, one)), 0)
		},
	},
	{
		name:    "changes that panic",
		promise: "If change panics, nothing is stored, and no connection or lock is held.",
		run: func(t *testing.T, one, _ record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			subject := record.FailureKey{Company: "acme", Account: a.ID}
			ctx, cancel := context.WithTimeout(bg, 30*time.Second)
			defer cancel()
			update := func() error {
				_, err := one.Update(ctx, "acme", a.ID, func(a *record.Account) (bool, error) {
					a.Role = "changed"
					panic("hunter2")
				})
				return err
			}
			count := func() error {
				return one.UpdateFailures(ctx, t0, subject, record.WrongCodes, func(*record.FailureCount) error { panic("hunter2") })
			}
			for range 10 { // more calls than there are connections
				for _, call := range []func() error{update, count} {
					if err := panics.Contain(call); err == nil || record.IsAnswer(err) {
						t.Fatalf("got %v, want an error that is no answer", err)
					}
				}
			}
			wantEqual(t, "account", get[record.Account](t)(one.ByID(ctx, "acme", a.ID)), a)
			wantEqual(t, "pending revocations", len(pendingRevocations(t, one)), 0)
			must(t, one.UpdateFailures(ctx, t0, subject, record.WrongCodes, add(1)))
			must(t, second(one.Update(ctx, "acme", a.ID, revoking)))
		},
	},
	{
		name:    "racing Update",
		promise: "Update is atomic: no other write to the account comes between loading and storing.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			errs := race(100, one, two, func(_ int, s record.Accounts) error {
				return second(s.Update(bg, "acme", a.ID, set(true, func(a *record.Account) { a.Role += "x" })))
			})
			wantWinners(t, errs, 100, is(nil))
			a.Role, a.Generation = strings.Repeat("x", 100), a.Generation+100
			wantEqual(t, "account", get[record.Account](t)(two.ByID(bg, "acme", a.ID)), a)
		},
	},
	{
		name:    "delete",
		promise: "Delete removes the account with all its data and stores a pending revocation of every generation. A new account inherits nothing.",
		run: func(t *testing.T, one, two record.Accounts) {
			old := create(t, one, someone("acme", "m1"))
			must(t, one.SetBackupCodes(bg, old, []string{"c"}))
			subject := record.FailureKey{Company: "acme", Account: old.ID}
			must(t, one.UpdateFailures(bg, t0, subject, record.WrongCodes, add(3)))
			must(t, second(one.Update(bg, "acme", old.ID, revoking)))

			must(t, two.Delete(bg, "acme", old.ID, nil))
			wantStranger(t, one, "acme", old.ID)
			wantEqual(t, "failure counts", len(get[map[record.FailureKind]record.FailureCount](t)(one.FailureCounts(bg, subject))), 0)
			wantEqual(t, "pending revocations", pendingRevocations(t, one), map[record.Revocation]bool{{Company: "acme", Account: old.ID, Generation: record.AllGenerations}: true})

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
		promise: "SetPassword stores a hash, clears MustSetPassword and the count of wrong passwords, raises the Generation and stores a pending revocation.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			b := create(t, one, plain("acme", "m2"))
			for _, account := range []int64{a.ID, b.ID} {
				subject := record.FailureKey{Company: "acme", Account: account}
				must(t, one.UpdateFailures(bg, t0, subject, record.WrongPasswords, add(1)))
				must(t, one.UpdateFailures(bg, t0, subject, record.WrongCodes, add(1)))
			}
			later := t0.Add(time.Second)
			must(t, one.SetPassword(bg, later, a, "new", record.TokenHash{}))
			want := a
			want.PasswordHash, want.MustSetPassword, want.Generation, want.Updated = "new", false, a.Generation+1, later
			want.FailureCounts = map[record.FailureKind]record.FailureCount{record.WrongCodes: {Count: 1}}
			b.FailureCounts = map[record.FailureKind]record.FailureCount{record.WrongPasswords: {Count: 1}, record.WrongCodes: {Count: 1}}
			wantEqual(t, "account", get[record.Account](t)(two.ByID(bg, "acme", a.ID)), want)
			wantEqual(t, "other account", get[record.Account](t)(two.ByID(bg, "acme", b.ID)), b)
			wantEqual(t, "pending revocations", pendingRevocations(t, two), map[record.Revocation]bool{{Company: "acme", Account: a.ID, Generation: a.Generation + 1}: true})
			wantEqual(t, "failure counts", get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, record.FailureKey{Company: "acme", Account: a.ID})),
				map[record.FailureKind]record.FailureCount{record.WrongCodes: {Count: 1}})
			wantEqual(t, "other failure counts", len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, record.FailureKey{Company: "acme", Account: b.ID}))), 2)
			wantErr(t, "an old generation", two.SetPassword(bg, t0, a, "newer", record.TokenHash{}), record.ErrConflict)
			wantErr(t, "a later generation", two.SetPassword(bg, t0, inGeneration(a.Generation+2, a), "newer", record.TokenHash{}), record.ErrConflict)
			wantEqual(t, "account", get[record.Account](t)(two.ByID(bg, "acme", a.ID)), want)
		},
	},
	{
		name:    "update of the password",
		promise: "An Update that ends the sessions and sets another password clears the account's failure count of passwords.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := plain("acme", "m1")
			a.PasswordHash = "h"
			a = create(t, one, a)
			subject := record.FailureKey{Company: "acme", Account: a.ID}
			must(t, one.UpdateFailures(bg, t0, subject, record.WrongPasswords, add(1)))
			must(t, one.UpdateFailures(bg, t0, subject, record.WrongCodes, add(1)))
			for _, c := range []struct {
				hash    string
				ends    bool
				cleared bool
			}{{"h", true, false}, {"stronger", false, false}, {"", true, false}, {"other", true, true}} {
				got := get[record.Account](t)(two.Update(bg, "acme", a.ID, set(c.ends, func(a *record.Account) { a.PasswordHash = c.hash })))
				want := record.Failures{record.WrongPasswords: {Count: 1}, record.WrongCodes: {Count: 1}}
				if c.cleared {
					delete(want, record.WrongPasswords)
				}
				wantEqual(t, "failure counts after "+c.hash, got.FailureCounts, want)
			}
		},
	},
	{
		name:    "changes that keep a session",
		promise: "SetPassword and Update store a pending revocation that keeps a session. Of several pending revocations, the last one names the session.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			wantPending := func(generation int64, keep record.TokenHash) {
				t.Helper()
				e := record.Revocation{Company: "acme", Account: a.ID, Generation: generation, Keep: keep}
				wantEqual(t, "pending revocations", pendingRevocations(t, two), map[record.Revocation]bool{e: true})
			}
			must(t, one.SetPassword(bg, t0, a, "h", hash("s")))
			wantPending(a.Generation+1, hash("s"))
			must(t, two.SetPassword(bg, t0, inGeneration(a.Generation+1, a), "h", hash("r")))
			wantPending(a.Generation+2, hash("r"))
			must(t, second(one.Update(bg, "acme", a.ID, revoking)))
			wantPending(a.Generation+3, record.TokenHash{})
			must(t, second(two.Update(bg, "acme", a.ID, set(true, func(a *record.Account) { a.Keep = hash("s") }))))
			wantPending(a.Generation+4, hash("s"))
			must(t, one.SetPassword(bg, t0, inGeneration(a.Generation+4, a), "h", hash("s")))
			must(t, two.Delete(bg, "acme", a.ID, nil))
			wantPending(record.AllGenerations, record.TokenHash{})
		},
	},
	{
		name:    "racing SetPassword",
		promise: "Of several callers with one generation, one succeeds.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			errs := race(100, one, two, func(i int, s record.Accounts) error {
				return s.SetPassword(bg, t0, a, fmt.Sprint(i), record.TokenHash{})
			})
			wantWinners(t, errs, 1, is(record.ErrConflict))
			got := get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			wantEqual(t, "generation", got.Generation, a.Generation+1)
			for i, err := range errs {
				if err == nil && got.PasswordHash != fmt.Sprint(i) {
					t.Errorf("hash is %s, but %d won", got.PasswordHash, i)
				}
			}
		},
	},
	{
		name:    "accept",
		promise: "Accept records acceptances. Each replaces that of another version, unless this was given later.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			later := t0.Add(time.Hour)
			must(t, one.Accept(bg, "acme", a.ID, []record.Acceptance{
				{Code: "c", Version: "1", At: later}, {Code: "B", Version: "7", At: later}, {Code: "a", Version: "2", At: later},
			}))
			a.Accepted = []record.Acceptance{
				{Code: "B", Version: "7", At: later}, {Code: "a", Version: "2", At: later},
				{Code: "b", Version: "2", At: t0}, {Code: "c", Version: "1", At: later},
			}
			wantEqual(t, "account", get[record.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			must(t, one.Accept(bg, "acme", a.ID, nil))
			must(t, one.Accept(bg, "acme", a.ID, []record.Acceptance{{Code: "c", Version: "0", At: later.Add(-time.Microsecond)}}))
			wantEqual(t, "after an earlier one", get[record.Account](t)(two.ByID(bg, "acme", a.ID)).Accepted, a.Accepted)
		},
	},
	{
		name:    "racing Update for one value",
		promise: "A login id and an identity belong to at most one account, and each change sees the one before.",
		run: func(t *testing.T, one, two record.Accounts) {
			var ids []int64
			for i := range 40 {
				ids = append(ids, create(t, one, plain("acme", fmt.Sprint(i))).ID)
			}
			for round := range 5 {
				value := fmt.Sprint("wanted ", round)
				errs := race(40, one, two, func(i int, s record.Accounts) error {
					return second(s.Update(bg, "acme", ids[i], set(false, func(a *record.Account) { a.Email = value })))
				})
				wantWinners(t, errs, 1, isA[*record.TakenError])
				identity := record.Identity{Provider: 1, Subject: value}
				errs = race(40, one, two, func(i int, s record.Accounts) error {
					_, err := s.Update(bg, "acme", ids[i], func(a *record.Account) (bool, error) {
						a.Identities = []record.Identity{identity}
						return false, nil
					})
					return err
				})
				wantWinners(t, errs, 1, isA[*record.TakenError])
			}
			errs := race(20, one, two, func(i int, s record.Accounts) error {
				return second(s.Update(bg, "acme", ids[0], bind(record.Identity{Provider: 2, Subject: fmt.Sprint(i)})))
			})
			wantWinners(t, errs, 1, is(record.ErrConflict))
		},
	},
	{
		name:    "pending revocations",
		promise: "Delete removes the account if it matches. PendingRevocations returns up to limit accounts. RevocationDone removes one unless its generation is higher by now.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			b := create(t, one, plain("acme", "m2"))
			for range 2 {
				must(t, second(one.Update(bg, "acme", a.ID, revoking)))
			}
			must(t, two.SetBackupCodes(bg, b, []string{"c"}))
			codes := func(n int) func(record.Account) bool {
				return func(b record.Account) bool { return b.BackupCodes == n }
			}
			wantErr(t, "another version", one.Delete(bg, "acme", b.ID, codes(0)), record.ErrConflict)
			must(t, one.Delete(bg, "acme", b.ID, codes(1)))
			page := get[[]record.Revocation](t)(two.PendingRevocations(bg, record.Revocation{}, 1))
			rest := get[[]record.Revocation](t)(two.PendingRevocations(bg, page[len(page)-1], 1000))
			wantEqual(t, "page by page", append(page, rest...), get[[]record.Revocation](t)(one.PendingRevocations(bg, record.Revocation{}, 1000)))
			first := record.Revocation{Company: "acme", Account: a.ID, Generation: a.Generation + 1}
			second := record.Revocation{Company: "acme", Account: a.ID, Generation: a.Generation + 2}
			all := record.Revocation{Company: "acme", Account: b.ID, Generation: record.AllGenerations}
			must(t, two.RevocationDone(bg, first)) // an earlier revocation was done; the later one is still pending
			must(t, two.RevocationDone(bg, record.Revocation{Company: "other", Account: a.ID, Generation: record.AllGenerations}))
			wantEqual(t, "pending revocations", pendingRevocations(t, one), map[record.Revocation]bool{second: true, all: true})
			must(t, two.RevocationDone(bg, second))
			must(t, two.RevocationDone(bg, second))
			must(t, two.RevocationDone(bg, all))
			wantEqual(t, "pending revocations", len(pendingRevocations(t, one)), 0)
		},
	},
}
