package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

func withoutAtMost(s record.Session) record.Session {
	s.AtMost, s.Displaced = 0, nil
	return s
}

var sessionCases = []sessionsCase{
	{
		name:    "create and get",
		promise: "Create stores a session. Get returns all fields, also of an expired session.",
		run: func(t *testing.T, one, two record.Sessions) {
			a := session("a", 1, 1, record.CheckOTP)
			code := newCode("c")
			a.Code = &code
			must(t, one.Create(bg, t0, a))
			b := record.Session{Hash: hash("b"), Company: "acme", LoginID: "decoy", State: record.CheckPassword, Created: t0,
				Expires: t0.Add(-time.Hour), Ends: t0.Add(-time.Hour)}
			must(t, one.Create(bg, t0, b))
			wantSession(t, two, a)
			wantSession(t, two, b)
			wantErr(t, "a hash twice", two.Create(bg, t0, b), record.ErrConflict)
		},
	},
	{
		name:    "odd bytes in sessions",
		promise: "A store changes no string and no byte of a hash.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.State(odd))
			s.ID, s.Company, s.Mnemocode, s.LoginID = odd, odd, odd, odd
			s.Address, s.UserAgent, s.Profile = odd, odd, record.Profile(odd)
			s.Accepted = []record.Acceptance{{Code: odd, Version: odd, At: t0}}
			s.Code = &record.Code{Phone: odd, Expires: t0}
			s.Hash = record.TokenHash{byte(record.AccountBucket(odd, 1))} // followed by zeros
			must(t, one.Create(bg, t0, s))
			wantSession(t, two, s)
			next := s
			next.Hash[31], next.State = 1, record.Authorized // List does not return unknown states
			must(t, two.Replace(bg, t0, s.Hash, record.State(odd), next))
			wantSession(t, one, next)
			all := get[[]record.Session](t)(one.List(bg, t0, odd, 1))
			wantEqual(t, "list", all, []record.Session{next})
			c := record.Counter{Key: odd, Limit: 1, Window: time.Minute}
			must(t, one.Charge(bg, t0, c))
			wantFull(t, "a look", two.Charge(bg, t0, record.CheckOnly(c)...), odd, t0.Add(time.Minute))
		},
	},
	{
		name:    "missing sessions",
		promise: "ErrNotFound, or ErrConflict where the interface says so.",
		run: func(t *testing.T, one, _ record.Sessions) {
			must(t, one.Create(bg, t0, session("other", 1, 1, record.CheckOTP)))
			wantGone(t, one, "a")
			wantErr(t, "Delete", one.Delete(bg, hash("a")), record.ErrNotFound)
			wantErr(t, "Touch", one.Touch(bg, t0, hash("a"), t0), record.ErrNotFound)
			err := one.Replace(bg, t0, hash("a"), record.CheckOTP, session("b", 1, 1, record.Authorized))
			wantErr(t, "Replace", err, record.ErrConflict)
			wantGone(t, one, "b")
			wantErr(t, "SetCode", one.SetCode(bg, t0, hash("a"), record.CheckOTP, newCode("c"), false), record.ErrConflict)
			wantErr(t, "SpendCode", second(one.SpendCode(bg, t0, "acme", hash("a"), record.CheckOTP)), record.ErrNotFound)
		},
	},
	{
		name:    "replace",
		promise: "Replace ends the session with the hash old and stores next, in one step.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.Create(bg, t0, session("a", 1, 1, record.CheckPassword)))
			next := session("b", 1, 1, record.Authorized)
			next.Accepted = nil
			must(t, two.Replace(bg, t0, hash("a"), record.CheckPassword, next))
			wantGone(t, one, "a")
			wantSession(t, one, next)
			wantErr(t, "again", one.Replace(bg, t0, hash("a"), record.CheckPassword, session("c", 1, 1, record.Authorized)), record.ErrConflict)
		},
	},
	{
		name:    "replace refused",
		promise: "Replace returns ErrConflict and changes nothing unless old exists, is in state from and has not expired, and next's Generation has not been revoked.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 5}))
			old := session("a", 1, 5, record.CheckPassword)
			must(t, one.Create(bg, t0, old))
			must(t, one.Create(bg, t0, session("held", 1, 5, record.CheckPassword)))
			next := session("b", 1, 5, record.Authorized)
			wantErr(t, "another state", two.Replace(bg, t0, old.Hash, record.CheckOTP, next), record.ErrConflict)
			wantErr(t, "expired", two.Replace(bg, old.Expires, old.Hash, old.State, next), record.ErrConflict)
			next.Hash = hash("held")
			wantErr(t, "a hash that is there", two.Replace(bg, t0, old.Hash, old.State, next), record.ErrConflict)
			next = session("b", 1, 4, record.Authorized)
			wantErr(t, "an ended generation", two.Replace(bg, t0, old.Hash, old.State, next), record.ErrConflict)
			wantSession(t, one, old)
			wantGone(t, one, "b")
			next.Generation = 5
			must(t, two.Replace(bg, old.Expires.Add(-time.Microsecond), old.Hash, old.State, next))
		},
	},
	{
		name:    "racing Replace",
		promise: "Of several callers with one token, one succeeds.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.Create(bg, t0, session("a", 1, 1, record.CheckPassword)))
			errs := race(100, one, two, func(i int, s record.Sessions) error {
				return s.Replace(bg, t0, hash("a"), record.CheckPassword, session(fmt.Sprint(i), 1, 1, record.Authorized))
			})
			wantWinners(t, errs, 1, is(record.ErrConflict))
			wantEqual(t, "left", len(get[[]record.Session](t)(one.List(bg, t0, "acme", 1))), 1)
		},
	},
	{
		name:    "delete session",
		promise: "Delete ends a session. Of several callers, one succeeds.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.Create(bg, t0, session("a", 1, 1, record.Authorized)))
			must(t, one.Create(bg, t0, session("b", 1, 1, record.Authorized)))
			errs := race(20, one, two, func(_ int, s record.Sessions) error { return s.Delete(bg, hash("a")) })
			wantWinners(t, errs, 1, is(record.ErrNotFound))
			wantGone(t, two, "a")
			wantSession(t, two, session("b", 1, 1, record.Authorized))
		},
	},
	{
		name:    "links",
		promise: "A new mailed link ends the account's other links.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.Create(bg, t0, session("login", 1, 1, record.CheckOTP)))
			must(t, one.Create(bg, t0, session("others@2", 2, 1, record.MailedLink)))
			elsewhere := session("elsewhere@other/1", 1, 1, record.MailedLink)
			must(t, one.Create(bg, t0, elsewhere))
			must(t, one.Create(bg, t0, session("first", 1, 1, record.MailedLink)))
			must(t, two.Create(bg, t0, session("second", 1, 1, record.MailedLink)))
			wantGone(t, one, "first")
			for _, name := range []string{"login", "others@2", "elsewhere@other/1", "second"} {
				must(t, second(one.Get(bg, hash(name))))
			}
			must(t, one.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
			wantGone(t, one, "second")
			must(t, one.Create(bg, t0, session("third", 1, 2, record.MailedLink)))
			wantErr(t, "a link of an ended generation", one.Create(bg, t0, session("fourth", 1, 1, record.MailedLink)), record.ErrConflict)
			must(t, second(one.Get(bg, hash("third"))))
		},
	},
}

var expireCases = []sessionsCase{
	{
		name:    "touch",
		promise: "Touch moves Expires forward, at most to Ends, and LastUsed to now. Neither moves back. It returns ErrNotFound if the session has expired.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.Authorized)
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
			wantErr(t, "a session at its end", two.Touch(bg, s.Ends, s.Hash, s.Ends.Add(time.Hour)), record.ErrNotFound)
			wantSession(t, one, s)
		},
	},
	{
		name:    "racing Touch",
		promise: "Touch never moves Expires back and brings no ended session back.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.Authorized)
			must(t, one.Create(bg, t0, s))
			must(t, one.Create(bg, t0, session("b", 1, 1, record.Authorized)))
			race(100, one, two, func(i int, n record.Sessions) error {
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
		name:    "raise",
		promise: "Raise replaces the profile of an authorized session if it is the one that the caller knows, and nothing else. Of racing callers with one profile, one succeeds. It brings no ended session back.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.Authorized)
			s.Profile = record.Profile(strings.Repeat("long ", 40) + "  pwd")
			must(t, one.Create(bg, t0, s))
			must(t, one.Create(bg, t0, session("b", 1, 1, record.CheckOTP)))
			for _, next := range []record.Profile{record.Profile(strings.Repeat("longer ", 60)), "   1 pwd sms mfa"} { // of more and of fewer pieces
				raised := make([]bool, 20)
				for i, err := range race(len(raised), one, two, func(_ int, n record.Sessions) error { return n.Raise(bg, t0, s.Hash, s.Profile, next) }) {
					if raised[i] = err == nil; err != nil {
						wantErr(t, "a racer", err, record.ErrConflict)
					}
				}
				wantEqual(t, "how many succeed", len(slices.DeleteFunc(raised, func(ok bool) bool { return !ok })), 1)
				s.Profile = next
				wantSession(t, two, s)
			}
			wantErr(t, "a step", one.Raise(bg, t0, hash("b"), session("b", 1, 1, record.CheckOTP).Profile, "x"), record.ErrConflict)
			wantErr(t, "at its end", one.Raise(bg, s.Expires, s.Hash, s.Profile, "x"), record.ErrConflict)
			must(t, two.Delete(bg, s.Hash))
			wantErr(t, "an ended session", one.Raise(bg, t0, s.Hash, s.Profile, "x"), record.ErrConflict)
			wantGone(t, one, "a")
		},
	},
	{
		name:    "replace and raise",
		promise: "Replace loses no Raise: it needs the profile of an authorized session. Of both at once, the later one fails.",
		run: func(t *testing.T, one, two record.Sessions) {
			for i := range 20 {
				s, next := session(fmt.Sprint("a", i), 1, 1, record.Authorized), session(fmt.Sprint("b", i), 1, 1, record.Authorized)
				s.Profile = record.Profile(strings.Repeat("long ", 40) + "  pwd")
				next.Profile = s.Profile
				must(t, one.Create(bg, t0, s))
				errs := race(2, one, two, func(i int, n record.Sessions) error {
					if i == 0 {
						return n.Raise(bg, t0, s.Hash, s.Profile, "raised")
					}
					return n.Replace(bg, t0, s.Hash, s.State, next)
				})
				switch {
				case errs[0] == nil:
					wantErr(t, "Replace of a raised session", errs[1], record.ErrConflict)
					next.Profile = "raised"
					must(t, one.Replace(bg, t0, s.Hash, s.State, next))
				default:
					wantErr(t, "Raise of a replaced session", errs[0], record.ErrConflict)
					must(t, errs[1])
				}
				wantSession(t, two, next)
			}
		},
	},
	{
		name:    "ending what is long expired",
		promise: "End also ends sessions that expired so long ago that Sweep may delete them, because the clock can go back.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.Authorized)
			must(t, one.Create(bg, t0, s))
			late := s.Expires.Add(record.KeepExpired + time.Hour)
			next := session("b", 1, 1, record.CheckPassword)
			next.Expires, next.Ends = late.Add(time.Hour), late.Add(time.Hour)
			must(t, two.Create(bg, late, next))
			must(t, one.End(bg, late, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
			wantGone(t, one, "a")
			wantGone(t, two, "b")
		},
	},
	{
		name:    "expire",
		promise: "A session that Expire has marked is expired at any time, and kept as long as before. Expire returns ErrNotFound if the session has not expired.",
		run: func(t *testing.T, one, two record.Sessions) {
			code := newCode("c")
			s := session("a", 1, 1, record.CheckOTP)
			s.Code = &code
			must(t, one.Create(bg, t0, s))
			wantErr(t, "before its time", two.Expire(bg, s.Expires.Add(-time.Microsecond), s.Hash), record.ErrNotFound)
			wantSession(t, one, s)
			for i, err := range race(20, one, two, func(_ int, n record.Sessions) error { return n.Expire(bg, s.Expires, s.Hash) }) {
				if err != nil && !errors.Is(err, record.ErrNotFound) {
					t.Errorf("racer %d: %v", i, err)
				}
			}
			wantErr(t, "no session", one.Expire(bg, s.Expires, hash("b")), record.ErrNotFound)
			got := get[record.Session](t)(one.Get(bg, s.Hash))
			wantEqual(t, "Expires", got.Expires, time.Time{})
			wantEqual(t, "ID", got.ID, s.ID)
			// Use the clock of t0 again.
			wantErr(t, "Touch", one.Touch(bg, t0, s.Hash, s.Ends), record.ErrNotFound)
			wantErr(t, "Replace", one.Replace(bg, t0, s.Hash, s.State, session("b", 1, 1, record.Authorized)), record.ErrConflict)
			wantErr(t, "SetCode", one.SetCode(bg, t0, s.Hash, s.State, newCode("c"), false), record.ErrConflict)
			wantEqual(t, "listed", len(get[[]record.Session](t)(two.List(bg, t0, "acme", 1))), 0)
			must(t, one.Sweep(bg, s.Expires.Add(time.Hour)))
			wantEqual(t, "Expires in an hour", get[record.Session](t)(two.Get(bg, s.Hash)).Expires, time.Time{})
			must(t, one.Sweep(bg, s.Expires.Add(record.KeepExpired+time.Hour)))
			wantGone(t, two, "a")
		},
	},
	{
		name:    "list",
		promise: "List returns an account's sessions that have not expired, oldest first.",
		run: func(t *testing.T, one, two record.Sessions) {
			for i, name := range []string{"c", "a", "b"} {
				s := session(name, 1, int64(3-i), record.Authorized)
				s.Created = t0.Add(time.Duration(i) * time.Second)
				must(t, one.Create(bg, t0, s))
			}
			expired := session("expired", 1, 1, record.Authorized)
			expired.Expires = t0
			must(t, one.Create(bg, t0, expired))
			must(t, one.Create(bg, t0, session("neighbour@2", 2, 1, record.Authorized)))
			elsewhere := session("elsewhere@other/1", 1, 1, record.Authorized)
			must(t, one.Create(bg, t0, elsewhere))
			got := names(get[[]record.Session](t)(two.List(bg, t0, "acme", 1)))
			wantEqual(t, "sessions", got, []string{"id of c", "id of a", "id of b"})
			wantEqual(t, "none", len(get[[]record.Session](t)(two.List(bg, t0, "acme", 3))), 0)
		},
	},
	{
		name:    "sweep of sessions",
		promise: "Sweep deletes what expired more than KeepExpired ago, and nothing else.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.Authorized)
			must(t, one.Create(bg, t0, s))
			lasting := session("b", 1, 1, record.Authorized)
			lasting.Expires = lasting.Ends
			must(t, one.Create(bg, t0, lasting))
			counter := record.Counter{Key: "a", Limit: 1, Window: 24 * time.Hour}
			must(t, one.Charge(bg, t0, counter))

			must(t, two.Sweep(bg, s.Expires.Add(record.KeepExpired)))
			wantSession(t, one, s)
			must(t, two.Sweep(bg, s.Expires.Add(record.KeepExpired+time.Minute)))
			wantGone(t, one, "a")
			wantSession(t, one, lasting)
			wantFull(t, "a look", one.Charge(bg, t0, record.CheckOnly(counter)...), "a", t0.Add(24*time.Hour))
			must(t, two.Sweep(bg, t0.Add(26*time.Hour)))
			must(t, one.Charge(bg, t0, record.CheckOnly(counter)...))
		},
	},
	{
		name:    "sweep of many sessions",
		promise: "Sweep deletes everything that is due, however much it is.",
		run: func(t *testing.T, one, two record.Sessions) {
			const many = 250 // SQLite deletes 100 at once
			for i := range many {
				must(t, one.Create(bg, t0, session(fmt.Sprint(i), 1, 1, record.Authorized)))
			}
			must(t, one.Sweep(bg, t0.Add(2*time.Hour)))
			for i := range many {
				wantGone(t, two, fmt.Sprint(i))
			}
		},
	},
}

var sessionsContextCases = []sessionsCase{
	{
		name:    "cancelled context",
		promise: "A method does everything or nothing. If the context ended before, it returns the context's error.",
		run: func(t *testing.T, one, two record.Sessions) {
			s := session("a", 1, 1, record.CheckOTP)
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
			must(t, two.Charge(bg, t0, record.Counter{Key: "k", Limit: 1, Window: time.Minute}))
		},
	},
}
