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
		promise: "SetCode replaces the code. SpendCode removes the code and returns the session with it.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			sent := newCode("first")
			s.Code = &sent
			must(t, one.Create(bg, t0, s))
			code := newCode("second")
			must(t, one.SetCode(bg, t0, s.Hash, record.CheckOTP, code, false))
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
			next := session("b", 1, 1, record.CheckOTP)
			next.NoCode = true
			must(t, one.Replace(bg, t0, s.Hash, record.CheckOTP, next))
			wantSession(t, two, next)
			code := newCode("c")
			wantErr(t, "an ended session", one.SetCode(bg, t0, s.Hash, record.CheckOTP, code, false), record.ErrConflict)
			wantSession(t, two, next)
			must(t, one.SetCode(bg, t0, next.Hash, record.CheckOTP, code, false))
			next.NoCode, next.Code = false, &code
			wantSession(t, two, next)
		},
	},
	{
		name:    "renewed codes",
		promise: "SetCode returns ErrConflict unless the session exists, is in that state and has not expired; with onlyIfNone also if it has a code.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			must(t, one.Create(bg, t0, s))
			code, late := newCode("code"), newCode("late")
			must(t, one.SetCode(bg, t0, s.Hash, record.CheckOTP, code, true))
			wantErr(t, "a second code", two.SetCode(bg, t0, s.Hash, record.CheckOTP, late, true), record.ErrConflict)
			wantErr(t, "another state", one.SetCode(bg, t0, s.Hash, record.RecoveryOTP, late, false), record.ErrConflict)
			wantErr(t, "an expired session", one.SetCode(bg, s.Expires, s.Hash, record.CheckOTP, late, false), record.ErrConflict)
			s.Code = &code
			wantSession(t, one, s)
			must(t, two.SetCode(bg, t0, s.Hash, record.CheckOTP, late, false))
			s.Code = &late
			wantSession(t, one, s)
			must(t, one.Delete(bg, s.Hash))
			wantErr(t, "an ended session", two.SetCode(bg, t0, s.Hash, record.CheckOTP, late, false), record.ErrConflict)
		},
	},
	{
		name:    "racing SetCode",
		promise: "Of several codes for a session without one, one is set.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
			must(t, one.Create(bg, t0, s))
			errs := race(50, one, two, func(i int, n record.Sessions) error {
				return n.SetCode(bg, t0, s.Hash, record.CheckOTP, newCode(fmt.Sprint(i)), true)
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
