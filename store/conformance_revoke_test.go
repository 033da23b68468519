package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var endCases = []sessionsCase{
	{
		name:    "end",
		promise: "End ends all sessions and links of an account with an earlier Generation. Create and Replace refuse such sessions from then on.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.Create(bg, t0, session("e1", 1, 1, record.Authorized)))
			must(t, one.Create(bg, t0, session("e2", 1, 2, record.CheckOTP)))
			must(t, one.Create(bg, t0, session("link", 1, 2, record.MailedLink)))
			must(t, one.Create(bg, t0, session("e3", 1, 3, record.Authorized)))
			must(t, one.Create(bg, t0, session("neighbour@2", 2, 1, record.CheckPassword)))
			elsewhere := session("elsewhere@other/1", 1, 1, record.CheckPassword)
			must(t, one.Create(bg, t0, elsewhere))

			must(t, two.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 3}))
			wantGone(t, one, "e1", "e2", "link")
			wantSession(t, one, session("e3", 1, 3, record.Authorized))
			wantSession(t, one, session("neighbour@2", 2, 1, record.CheckPassword))
			wantSession(t, one, elsewhere)
			wantErr(t, "an old generation", one.Create(bg, t0, session("new", 1, 2, record.CheckOTP)), record.ErrConflict)
			must(t, one.Create(bg, t0, session("new", 1, 3, record.CheckOTP)))
			must(t, one.Create(bg, t0, session("new2@2", 2, 1, record.CheckOTP)))
		},
	},
	{
		name:    "revoked",
		promise: "Revoked returns a session that a revocation of its account has ended, until the session would have expired, also by a clock that is late.",
		run: func(t *testing.T, one, two record.Sessions) {
			known := map[string]record.State{"step": record.CheckOTP, "login": record.Authorized, "link": record.MailedLink}
			for name, state := range known {
				must(t, one.Create(bg, t0, ofCompanyGeneration(3, session(name, 1, 2, state))))
			}
			short := ofCompanyGeneration(3, session("short", 1, 2, record.CheckOTP))
			short.Expires = t0.Add(time.Microsecond)
			must(t, one.Create(bg, t0, short))
			past := session("past", 1, 2, record.SetPassword)
			past.Expires = t0
			must(t, one.Create(bg, t0, past))
			for _, name := range []string{"logged out", "replaced", "elsewhere@other/1"} {
				account := session(name, 1, 2, record.CheckOTP)
				must(t, one.Create(bg, t0, account))
			}
			must(t, one.Delete(bg, hash("logged out")))
			must(t, one.Replace(bg, t0, hash("replaced"), record.CheckOTP, session("next", 1, 3, record.Authorized)))
			none := func(now time.Time, names ...string) {
				t.Helper()
				for _, name := range names {
					if s, err := two.Revoked(bg, hash(name)); err == nil && now.Before(s.Expires) {
						t.Errorf("Revoked tells of %s: %+v", name, s)
					}
				}
			}
			none(t0, "step", "login", "link", "past", "logged out", "replaced", "next")
			must(t, one.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 3}))
			must(t, two.Sweep(bg, t0)) // they would not have expired
			for name, state := range known {
				want := record.Session{Hash: hash(name), Company: "acme", Account: 1, Generation: 2, CompanyGeneration: 3, State: state, Expires: t0.Add(10 * time.Minute)}
				wantEqual(t, name, get[record.Session](t)(two.Revoked(bg, hash(name))), want)
			}
			none(t0, "past", "logged out", "replaced", "next", "elsewhere@other/1", "never was")
			time.Sleep(10 * time.Millisecond) // by the store's own clock, short has expired
			wantEqual(t, "short", get[record.Session](t)(two.Revoked(bg, short.Hash)).Expires, short.Expires)
			must(t, one.Sweep(bg, t0.Add(10*time.Minute).Add(record.KeepExpired+time.Minute)))
			none(t0.Add(10*time.Minute), "step", "login", "link")
		},
	},
	{
		name: "room",
		promise: "If the account then has more than AtMost sessions in the state of s, the oldest that have not expired " +
			"are ended, and a Feed and Displaced hear of each before Create returns.",
		run: func(t *testing.T, one, two record.Sessions) {
			var displaced []string
			at := func(name string, account int64, state record.State, minute int) record.Session {
				s := session(name, account, 1, state)
				s.Created = t0.Add(time.Duration(minute) * time.Minute)
				s.AtMost = 3
				s.Displaced = func(id string) { displaced = append(displaced, id) }
				return s
			}
			must(t, one.Create(bg, t0, at("b", 1, record.Authorized, 2)))
			must(t, two.Create(bg, t0, at("a", 1, record.Authorized, 1)))
			must(t, one.Create(bg, t0, at("step", 1, record.CheckOTP, 0)))
			must(t, one.Create(bg, t0, at("other@2", 2, record.Authorized, 0)))
			must(t, one.Touch(bg, t0, hash("a"), t0.Add(50*time.Minute))) // does not make it younger
			must(t, two.Create(bg, t0, at("c", 1, record.Authorized, 3)))
			must(t, two.Create(bg, t0, at("d", 1, record.Authorized, 4)))
			wantGone(t, one, "a")
			must(t, one.Replace(bg, t0, hash("step"), record.CheckOTP, at("e", 1, record.Authorized, 5)))
			wantGone(t, two, "a", "b", "step")
			wantEqual(t, "left", names(get[[]record.Session](t)(one.List(bg, t0, "acme", 1))),
				names([]record.Session{session("c", 1, 1, ""), session("d", 1, 1, ""), session("e", 1, 1, "")}))
			wantSession(t, one, withoutAtMost(at("other@2", 2, record.Authorized, 0)))

			// A new session is not revoked, even if its time is earlier than the
			// others'.
			early := at("early@2", 2, record.Authorized, -5)
			early.AtMost = 1
			must(t, two.Create(bg, t0, early))
			wantGone(t, one, "other@2")
			wantSession(t, one, withoutAtMost(early))
			unheard := at("unheard@2", 2, record.Authorized, -4)
			unheard.AtMost, unheard.Displaced = 1, nil
			must(t, two.Create(bg, t0, unheard))
			wantGone(t, one, "early@2")

			// Expired sessions take no room and are still found.
			old := at("old@3", 3, record.Authorized, -1)
			old.Expires = t0.Add(time.Minute)
			must(t, one.Create(bg, t0, old))
			late := t0.Add(2 * time.Minute)
			for i := range 3 {
				must(t, one.Create(bg, late, at(fmt.Sprintf("new%d@3", i), 3, record.Authorized, i)))
			}
			for _, name := range []string{"old@3", "new0@3", "new1@3", "new2@3"} {
				wantErr(t, name, second(one.Get(bg, hash(name))), nil)
			}
			wantEqual(t, "displaced", displaced, []string{"id of a", "id of b", "id of other@2"})
		},
	},
	{
		name:    "racing for room",
		promise: "If the account then has more than AtMost sessions in the state of s, the oldest that have not expired are ended.",
		run: func(t *testing.T, one, two record.Sessions) {
			var mu sync.Mutex
			var ids []string // displaced or left
			errs := race(60, one, two, func(i int, n record.Sessions) error {
				s := session(fmt.Sprint(i), 1, 1, record.Authorized)
				s.AtMost = 7
				s.Displaced = func(id string) {
					mu.Lock()
					defer mu.Unlock()
					ids = append(ids, id)
				}
				return n.Create(bg, t0, s)
			})
			wantWinners(t, errs, 60, is(nil))
			wantEqual(t, "displaced", len(ids), 53)
			for _, left := range get[[]record.Session](t)(one.List(bg, t0, "acme", 1)) {
				ids = append(ids, left.ID)
			}
			slices.Sort(ids)
			wantEqual(t, "displaced or left", len(slices.Compact(ids)), 60)
		},
	},
	{
		name:    "end but for one",
		promise: "In the same step, the account's session e.Keep gets e.Generation, if it is Authorized and has the generation just before.",
		run: func(t *testing.T, one, two record.Sessions) {
			kept := session("kept", 1, 4, record.Authorized)
			for _, s := range []record.Session{
				kept, session("other", 1, 4, record.Authorized), session("step", 1, 4, record.CheckOTP),
				session("old", 1, 3, record.Authorized), session("neighbour@2", 2, 4, record.Authorized),
				session("elsewhere@other/1", 1, 4, record.Authorized),
			} {
				must(t, one.Create(bg, t0, s))
			}
			end := func(generation int64, keep string) {
				t.Helper()
				must(t, two.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: generation, Keep: hash(keep)}))
			}
			end(5, "kept")
			kept.Generation = 5
			wantSession(t, one, kept)
			wantGone(t, one, "other", "step", "old")
			end(5, "kept") // again, as after a crash
			wantSession(t, one, kept)
			end(6, "neighbour@2")
			wantGone(t, one, "kept")
			for _, s := range []record.Session{session("b", 1, 6, record.Authorized), session("c", 1, 7, record.CheckOTP)} {
				must(t, one.Create(bg, t0, s))
			}
			end(8, "b")
			wantGone(t, one, "b", "c") // b was not of the generation just before
			must(t, one.Create(bg, t0, session("d", 1, 8, record.CheckOTP)))
			end(9, "d")
			wantGone(t, one, "d") // only authorized sessions are kept
			end(10, "elsewhere@other/1")
			wantSession(t, one, session("neighbour@2", 2, 4, record.Authorized))
			wantSession(t, one, session("elsewhere@other/1", 1, 4, record.Authorized))
		},
	},
	{
		name:    "racing End that keeps one",
		promise: "The session that is kept can be found at any moment.",
		run: func(t *testing.T, one, two record.Sessions) {
			kept := session("kept", 1, 1, record.Authorized)
			must(t, one.Create(bg, t0, kept))
			for i := range 20 {
				must(t, one.Create(bg, t0, session(fmt.Sprint("old", i), 1, 1, record.Authorized)))
			}
			errs := race(100, one, two, func(i int, s record.Sessions) error {
				switch {
				case i%25 == 12:
					return s.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2, Keep: kept.Hash})
				case i%3 == 0:
					return s.Touch(bg, t0, kept.Hash, t0.Add(time.Duration(i)*time.Minute))
				}
				return second(s.Get(bg, kept.Hash))
			})
			wantWinners(t, errs, 100, is(nil))
			left := get[[]record.Session](t)(one.List(bg, t0, "acme", 1))
			wantEqual(t, "left", names(left), []string{"id of kept"})
			wantEqual(t, "generation", left[0].Generation, 2)
		},
	},
	{
		name:    "end for ever",
		promise: "Revoked sessions stay revoked: a later End with a lower generation changes nothing. AllGenerations revokes everything.",
		run: func(t *testing.T, one, two record.Sessions) {
			must(t, one.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 5}))
			must(t, two.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 3}))
			wantErr(t, "generation 4", one.Create(bg, t0, session("a", 1, 4, record.Authorized)), record.ErrConflict)
			must(t, one.Create(bg, t0, session("b", 1, 5, record.Authorized)))
			must(t, one.Sweep(bg, t0.Add(30*24*time.Hour)))
			late := t0.Add(30 * 24 * time.Hour)
			wantErr(t, "generation 4 in 30 days", one.Create(bg, late, session("a", 1, 4, record.Authorized)), record.ErrConflict)
			must(t, two.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: record.AllGenerations}))
			wantGone(t, one, "b")
			wantErr(t, "a deleted account", one.Create(bg, t0, session("c", 1, 1<<40, record.Authorized)), record.ErrConflict)
		},
	},
	{
		name:    "decoys",
		promise: "Account 0 is for decoys. They don't end one another and have no generation.",
		run: func(t *testing.T, one, _ record.Sessions) {
			must(t, one.Create(bg, t0, session("a", 0, 0, record.CheckPassword)))
			must(t, one.Create(bg, t0, session("link", 0, 0, record.MailedLink)))
			must(t, one.Create(bg, t0, session("link2", 0, 0, record.MailedLink)))
			must(t, one.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: record.AllGenerations}))
			must(t, one.Create(bg, t0, session("b", 0, 0, record.CheckPassword)))
			wantSession(t, one, session("a", 0, 0, record.CheckPassword))
			wantSession(t, one, session("link", 0, 0, record.MailedLink))
		},
	},
	{
		name:    "racing End",
		promise: "No session of a revoked generation survives, in whichever order the calls come.",
		run: func(t *testing.T, one, two record.Sessions) {
			for i := range 50 {
				must(t, one.Create(bg, t0, session(fmt.Sprint("old", i), 1, 1, record.CheckPassword)))
			}
			errs := race(150, one, two, func(i int, s record.Sessions) error {
				switch {
				case i == 75:
					return s.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2})
				case i%3 == 0:
					return s.Create(bg, t0, session(fmt.Sprint("created", i), 1, 1, record.CheckPassword))
				case i%3 == 1:
					return s.Replace(bg, t0, hash(fmt.Sprint("old", i/3)), record.CheckPassword, session(fmt.Sprint("next", i), 1, 1, record.Authorized))
				}
				return s.Create(bg, t0, session(fmt.Sprint("fresh", i), 1, 2, record.CheckPassword))
			})
			for i, err := range errs {
				if err != nil && (i == 75 || i%3 == 2 || !errors.Is(err, record.ErrConflict)) {
					t.Errorf("racer %d: unexpected error %v", i, err)
				}
			}
			left := get[[]record.Session](t)(one.List(bg, t0, "acme", 1))
			wantEqual(t, "left", len(left), 50)
			for _, s := range left {
				wantEqual(t, "generation", s.Generation, 2)
			}
		},
	},
}
