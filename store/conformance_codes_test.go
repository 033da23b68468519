package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var backupCodeCases = []accountsCase{
	{
		name:    "backup codes",
		promise: "SetBackupCodes replaces the codes, BackupCodes returns the unused ones, and UseBackupCode removes one or returns ErrConflict if it is not there.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			b := create(t, one, plain("acme", "m2"))
			must(t, one.SetBackupCodes(bg, a, []string{"old"}))
			must(t, one.SetBackupCodes(bg, a, []string{"a", "b", "c"}))
			must(t, one.SetBackupCodes(bg, b, []string{"a"}))
			must(t, two.UseBackupCode(bg, "acme", a.ID, "a"))
			wantErr(t, "a used code", one.UseBackupCode(bg, "acme", a.ID, "a"), record.ErrConflict)
			wantErr(t, "a replaced code", one.UseBackupCode(bg, "acme", a.ID, "old"), record.ErrConflict)
			wantEqual(t, "left", get[[]string](t)(one.BackupCodes(bg, "acme", a.ID)), []string{"b", "c"})
			wantEqual(t, "count", get[record.Account](t)(one.ByID(bg, "acme", a.ID)).BackupCodes, 2)
			wantEqual(t, "other's", get[[]string](t)(one.BackupCodes(bg, "acme", b.ID)), []string{"a"})
			must(t, one.SetBackupCodes(bg, a, nil))
			wantEqual(t, "count", get[record.Account](t)(one.ByID(bg, "acme", a.ID)).BackupCodes, 0)
		},
	},
	{
		name:    "racing SetBackupCodes",
		promise: "SetBackupCodes replaces no codes but those in a.OldBackupCodes, unless that is nil.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			for _, old := range [][]string{{}, {"old", "other", "used meanwhile"}} {
				must(t, one.SetBackupCodes(bg, a, old[:min(2, len(old))]))
				a := a
				a.OldBackupCodes = old
				errs := race(100, one, two, func(i int, s record.Accounts) error {
					return s.SetBackupCodes(bg, a, []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")})
				})
				wantWinners(t, errs, 1, is(record.ErrNotFound))
			}
		},
	},
	{
		name:    "racing UseBackupCode",
		promise: "A backup code is used once.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			must(t, one.SetBackupCodes(bg, a, []string{"a", "b"}))
			errs := race(100, one, two, func(_ int, s record.Accounts) error {
				return s.UseBackupCode(bg, "acme", a.ID, "a")
			})
			wantWinners(t, errs, 1, is(record.ErrConflict))
		},
	},
}

var codeCases = []sessionsCase{
	{
		name:    "codes",
		promise: "OpenCode returns the number with which SetCode may replace the code, and leaves the code as it is. SpendCode removes the code and returns the session with it.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			sent := newCode("first")
			s.Code = &sent
			must(t, one.Create(bg, t0, s))
			number := get[int64](t)(two.OpenCode(bg, t0, s.Hash, record.CheckOTP))
			wantSession(t, one, s)
			code := newCode("second")
			must(t, one.SetCode(bg, s.Hash, number, code))
			s.Code = &code
			wantSession(t, two, s)
			spend := func(n record.Sessions) record.Session {
				t.Helper()
				return get[record.Session](t)(n.SpendCode(bg, t0, "acme", s.Hash, record.CheckOTP))
			}
			wantEqual(t, "spent", spend(two), s)
			s.Code = nil
			wantEqual(t, "spent again", spend(one), s)
			wantSession(t, one, s)
		},
	},
	{
		name:    "codes of an app",
		promise: "A session is NoCode until SetCode gives it a code.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			s.NoCode = true
			must(t, one.Create(bg, t0, s))
			wantSession(t, two, s)
			spent := get[record.Session](t)(two.SpendCode(bg, t0, "acme", s.Hash, record.CheckOTP))
			wantEqual(t, "spent", spent, s)
			number := get[int64](t)(two.OpenCode(bg, t0, s.Hash, record.CheckOTP))
			wantSession(t, two, s)
			next := session("b", 1, 1, record.CheckOTP)
			next.NoCode = true
			must(t, one.Replace(bg, t0, s.Hash, record.CheckOTP, next))
			wantSession(t, two, next)
			wantErr(t, "an ended session", one.SetCode(bg, s.Hash, number, newCode("c")), record.ErrConflict)
			wantErr(t, "another's number", one.SetCode(bg, next.Hash, number, newCode("c")), record.ErrConflict)
			wantSession(t, two, next)
			must(t, one.SetCode(bg, next.Hash, get[int64](t)(two.OpenCode(bg, t0, next.Hash, record.CheckOTP)), newCode("c")))
			code := newCode("c")
			next.NoCode, next.Code = false, &code
			wantSession(t, two, next)
		},
	},
	{
		name:    "renewed codes",
		promise: "SetCode stores a code unless OpenCode has been called again. OpenCode returns ErrConflict unless the session exists, is in that state and has not expired.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			must(t, one.Create(bg, t0, s))
			open := func(n record.Sessions) int64 {
				t.Helper()
				return get[int64](t)(n.OpenCode(bg, t0, s.Hash, record.CheckOTP))
			}
			first, second := open(one), open(two)
			if second <= first {
				t.Errorf("numbers %d, %d do not grow", first, second)
			}
			late, code := newCode("late"), newCode("code")
			wantErr(t, "an older number", one.SetCode(bg, s.Hash, first, late), record.ErrConflict)
			must(t, two.SetCode(bg, s.Hash, second, code))
			wantErr(t, "an older number", one.SetCode(bg, s.Hash, first, late), record.ErrConflict)
			wantErr(t, "a number to come", one.SetCode(bg, s.Hash, second+1, late), record.ErrConflict)
			_, err := one.OpenCode(bg, t0, s.Hash, record.RecoveryOTP)
			wantErr(t, "another state", err, record.ErrConflict)
			_, err = one.OpenCode(bg, s.Expires, s.Hash, record.CheckOTP)
			wantErr(t, "an expired session", err, record.ErrConflict)
			s.Code = &code
			wantSession(t, one, s)
			third := open(one)
			if third <= second {
				t.Errorf("numbers %d, %d do not grow", second, third)
			}
			must(t, one.Delete(bg, s.Hash))
			wantErr(t, "an ended session", two.SetCode(bg, s.Hash, third, late), record.ErrConflict)
		},
	},
	{
		name:    "racing OpenCode",
		promise: "Each call returns a higher number, so only one of several concurrent renewals sets the code.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			must(t, one.Create(bg, t0, s))
			numbers := make([]int64, 50)
			errs := race(50, one, two, func(i int, n record.Sessions) (err error) {
				numbers[i], err = n.OpenCode(bg, t0, s.Hash, record.CheckOTP)
				return err
			})
			wantWinners(t, errs, 50, is(nil))
			errs = race(50, one, two, func(i int, n record.Sessions) error {
				return n.SetCode(bg, s.Hash, numbers[i], newCode(fmt.Sprint(i)))
			})
			wantWinners(t, errs, 1, is(record.ErrConflict))
		},
	},
	{
		name:    "racing SpendCode",
		promise: "Of several callers, one gets the code.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			sent := newCode("code")
			s.Code = &sent
			must(t, one.Create(bg, t0, s))
			codes := make([]*record.Code, 100)
			errs := race(100, one, two, func(i int, n record.Sessions) error {
				got, err := n.SpendCode(bg, t0, "acme", s.Hash, record.CheckOTP)
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
		promise: "SpendCode removes no code unless the session is the company's, is in that state, has not expired, and no counter is at its limit. It does not add to the counters.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			code := newCode("c")
			s.Code = &code
			must(t, one.Create(bg, t0, s))
			without := s
			without.Code = nil
			full, free := record.Counter{Key: "acme/full", Limit: 1, Window: time.Hour}, record.Counter{Key: "acme/free", Limit: 1, Window: time.Hour}
			must(t, one.Charge(bg, t0, full))
			for what, c := range map[string]struct {
				now     time.Time
				company string
				state   record.State
			}{
				"another company": {t0, "other", s.State},
				"another state":   {t0, "acme", record.RecoveryOTP},
				"expired":         {s.Expires, "acme", s.State},
			} {
				// For such a session the result does not depend on the counter.
				got := get[record.Session](t)(two.SpendCode(bg, c.now, c.company, s.Hash, c.state, full))
				wantEqual(t, what, got, without)
			}
			got, err := two.SpendCode(bg, t0, "acme", s.Hash, s.State, free, full)
			wantFull(t, "a full counter", err, "acme/full", t0.Add(time.Hour))
			wantEqual(t, "a full counter", got, without)
			wantSession(t, one, s)
			got = get[record.Session](t)(two.SpendCode(bg, s.Expires.Add(-time.Microsecond), "acme", s.Hash, s.State, free))
			wantEqual(t, "spent", got, s)
			must(t, one.Charge(bg, t0, free)) // the refused call did not charge it
			got, err = two.SpendCode(bg, t0, "acme", s.Hash, s.State, full)
			wantFull(t, "a full counter where there is no code", err, "acme/full", t0.Add(time.Hour))
			wantEqual(t, "no code", got, without)
		},
	},
}
