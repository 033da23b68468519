package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var failureCases = []accountsCase{
	{
		name:    "failure counts",
		promise: "UpdateFailures loads a count (or a zero one), lets change alter it, and stores it. If change fails, nothing is stored, and its error is returned.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			subjects := []record.FailureKey{
				{Company: "acme", Account: a.ID},
				{Company: "acme", LoginID: "x"},
				{Company: "acme", LoginID: "y"},
				{Company: "other", LoginID: "x"},
			}
			until := t0.Add(time.Minute)
			for n, subject := range subjects {
				for m, kind := range []record.FailureKind{record.WrongPasswords, record.WrongCodes} {
					must(t, one.UpdateFailures(bg, t0, subject, kind, func(failureCount *record.FailureCount) error {
						wantEqual(t, "first", *failureCount, record.FailureCount{})
						*failureCount = record.FailureCount{Count: 10*n + m + 1, Until: until}
						return nil
					}))
				}
			}
			refused := errors.New("refused")
			for n, subject := range subjects {
				err := two.UpdateFailures(bg, t0, subject, record.WrongCodes, func(failureCount *record.FailureCount) error {
					wantEqual(t, "second", *failureCount, record.FailureCount{Count: 10*n + 2, Until: until})
					failureCount.Count = 99
					return refused
				})
				if err != refused {
					t.Errorf("got error %v, want change's own", err)
				}
				wantEqual(t, "failures", get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, subject)), map[record.FailureKind]record.FailureCount{
					record.WrongPasswords: {Count: 10*n + 1, Until: until},
					record.WrongCodes:     {Count: 10*n + 2, Until: until},
				})
			}
			must(t, one.UpdateFailures(bg, t0, subjects[0], record.WrongCodes, func(failureCount *record.FailureCount) error {
				*failureCount = record.FailureCount{}
				return nil
			}))
			cleared := get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, subjects[0]))
			wantEqual(t, "cleared", cleared[record.WrongCodes], record.FailureCount{})
			for range 2 { // there is no failure count, and the second call finds none either
				must(t, one.UpdateFailures(bg, t0, subjects[0], record.WrongCodes, add(0)))
			}
		},
	},
	{
		name:    "accounts with their failures",
		promise: "Every finder returns an account's failure counts. If ByLoginID finds no account, it returns the counts of the login id's hash.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			create(t, one, someone("other", "m1"))
			until := t0.Add(time.Minute)
			for n, s := range []record.FailureKey{{Company: "acme", Account: a.ID}, {Company: "acme", LoginID: "login id hash"}} {
				for m, kind := range []record.FailureKind{record.WrongPasswords, record.FailureKind(odd)} {
					must(t, one.UpdateFailures(bg, t0, s, kind, func(failureCount *record.FailureCount) error {
						*failureCount = record.FailureCount{Count: 10*n + m + 1, Until: until}
						return nil
					}))
				}
			}
			a.FailureCounts = map[record.FailureKind]record.FailureCount{record.WrongPasswords: {Count: 1, Until: until}, record.FailureKind(odd): {Count: 2, Until: until}}
			wantEqual(t, "ByID", get[record.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			wantEqual(t, "ByMnemocode", get[record.Account](t)(two.ByMnemocode(bg, "acme", "m1")), a)
			wantEqual(t, "ByIdentity", get[record.Account](t)(two.ByIdentity(bg, "acme", a.Identities[0])), a)
			for _, id := range record.LoginIDs(a) {
				wantEqual(t, "ByLoginID", get[record.Account](t)(two.ByLoginID(bg, "acme", id, "login id hash")), a)
			}
			nobody, err := two.ByLoginID(bg, "acme", "nobody", "login id hash")
			wantErr(t, "ByLoginID", err, record.ErrNotFound)
			wantEqual(t, "nobody", nobody, record.Account{FailureCounts: map[record.FailureKind]record.FailureCount{
				record.WrongPasswords: {Count: 11, Until: until}, record.FailureKind(odd): {Count: 12, Until: until}}})
			for _, c := range [][2]string{{"acme", "another alias"}, {"other", "login id hash"}} {
				nobody, err := two.ByLoginID(bg, c[0], "nobody", c[1])
				wantErr(t, "ByLoginID", err, record.ErrNotFound)
				wantEqual(t, c[1], nobody, record.Account{})
			}
		},
	},
	{
		name:    "racing UpdateFailures",
		promise: "UpdateFailures is atomic.",
		run: func(t *testing.T, one, two record.Accounts) {
			subject := record.FailureKey{Company: "acme", LoginID: "x"}
			errs := race(100, one, two, func(_ int, s record.Accounts) error {
				return s.UpdateFailures(bg, t0, subject, record.WrongPasswords, add(1))
			})
			wantWinners(t, errs, 100, is(nil))
			wantEqual(t, "failures", get[map[record.FailureKind]record.FailureCount](t)(one.FailureCounts(bg, subject)),
				map[record.FailureKind]record.FailureCount{record.WrongPasswords: {Count: 100}})
		},
	},
	{
		name:    "UpdateFailures of a deleted account",
		promise: "UpdateFailures counts nothing for an account that does not exist, and stores no events of it, even if Delete deletes it meanwhile.",
		run: func(t *testing.T, one, two record.Accounts) {
			for i := range 20 {
				a := create(t, one, plain("acme", "m1"))
				keys := []record.FailureKey{{Company: "acme", Account: a.ID}, {Company: "acme", Account: a.ID, Device: "d"}}
				fail := func(i int, s record.Accounts) error {
					return s.UpdateFailures(bg, t0, keys[i%2], record.WrongPasswords, add(1))
				}
				errs := race(5, one, two, func(n int, s record.Accounts) error {
					if n == i%5 {
						return s.Delete(bg, "acme", a.ID, nil)
					}
					return fail(n, s)
				})
				must(t, errors.Join(append(errs, fail(0, one), fail(1, two))...))
				for n := range 2 {
					must(t, one.UpdateFailures(bg, t0, keys[0], record.WrongPasswords, counting(n, note("m1", "late"))))
				}
				wantEqual(t, "events", len(claim(t, two, t0)), 0)
				for _, key := range keys {
					wantEqual(t, "counts", len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, key))), 0)
				}
			}
		},
	},
	{
		name:    "sweep of failures",
		promise: "Sweep deletes failure counts of unknown login ids that have not changed for a day, but not before their lock or window has ended.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			account := record.FailureKey{Company: "acme", Account: a.ID}
			old := record.FailureKey{Company: "acme", LoginID: "old"}
			recent := record.FailureKey{Company: "acme", LoginID: "recent"}
			locked := record.FailureKey{Company: "acme", LoginID: "locked"}
			must(t, one.UpdateFailures(bg, t0, account, record.WrongPasswords, add(1)))
			must(t, one.UpdateFailures(bg, t0, old, record.WrongPasswords, add(1)))
			must(t, one.UpdateFailures(bg, t0, old, record.WrongCodes, add(1)))
			must(t, one.UpdateFailures(bg, t0, recent, record.WrongPasswords, add(1)))
			must(t, one.UpdateFailures(bg, t0.Add(time.Minute), recent, record.WrongPasswords, add(1)))
			until := t0.Add(72 * time.Hour)
			must(t, one.UpdateFailures(bg, t0, locked, record.WrongCodes, func(failureCount *record.FailureCount) error {
				*failureCount = record.FailureCount{Count: 5, Until: until}
				return nil
			}))
			for _, sweep := range []struct {
				at   time.Time
				left map[record.FailureKey]int
			}{
				{t0.Add(24*time.Hour + time.Second), map[record.FailureKey]int{account: 1, old: 0, recent: 1, locked: 1}},
				{until.Add(-time.Second), map[record.FailureKey]int{account: 1, recent: 0, locked: 1}},
				{until, map[record.FailureKey]int{account: 1, locked: 0}},
			} {
				must(t, two.Sweep(bg, sweep.at))
				for subject, want := range sweep.left {
					wantEqual(t, fmt.Sprint("failures of ", subject, " at ", sweep.at), len(get[map[record.FailureKind]record.FailureCount](t)(one.FailureCounts(bg, subject))), want)
				}
			}
		},
	},
	{
		name:    "sweep of many failures",
		promise: "Sweep deletes everything that is due, however much it is.",
		run: func(t *testing.T, one, two record.Accounts) {
			subject := func(i int) record.FailureKey { return record.FailureKey{Company: "acme", LoginID: fmt.Sprint(i)} }
			const many = 600 // PostgreSQL deletes 500 at once
			for i := range many {
				must(t, one.UpdateFailures(bg, t0, subject(i), record.WrongPasswords, add(1)))
			}
			must(t, two.Sweep(bg, t0.Add(48*time.Hour)))
			for i := range many {
				wantEqual(t, "failures", len(get[map[record.FailureKind]record.FailureCount](t)(one.FailureCounts(bg, subject(i)))), 0)
			}
		},
	},
}
