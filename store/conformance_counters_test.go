package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var counterCases = []sessionsCase{
	{
		name:    "sessions with counters",
		promise: "Create and Replace charge the counters and store the session in one step. If a counter is at its limit, they return the error of Charge and change nothing.",
		run: func(t *testing.T, one, two record.Sessions) {
			a := record.Counter{Key: "acme/a", Limit: 2, Window: time.Minute}
			b := record.Counter{Key: "acme/b", Limit: 1, Window: time.Hour}
			look := b
			look.CheckOnly = true
			first, second := session("a", 1, 1, record.CheckOTP), session("b", 1, 1, record.Authorized)
			link, decoy := session("link", 1, 1, record.MailedLink), session("decoy", 0, 0, record.CheckPassword)
			must(t, one.Create(bg, t0, first, look, a))
			must(t, one.Charge(bg, t0, record.CheckOnly(a, b)...)) // one more fits into each
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
			must(t, two.Replace(bg, t0, first.Hash, first.State, second, a)) // the refused calls have not counted
			wantGone(t, one, "a")
			wantSession(t, one, second)
			wantFull(t, "Create", one.Create(bg, t0, first, look, a), "acme/b", t0.Add(time.Hour))
			wantFull(t, "Create", one.Create(bg, t0, first, a, look), "acme/a", t0.Add(time.Minute))
			later := t0.Add(time.Minute)
			must(t, one.Create(bg, later, link, a))
			must(t, one.Create(bg, later, decoy, a))
			wantSession(t, two, link)
			wantSession(t, two, decoy)
			wantFull(t, "a look", two.Charge(bg, later, record.CheckOnly(a)...), "acme/a", later.Add(time.Minute))
		},
	},
	{
		name:    "racing sessions with counters",
		promise: "Limits are exact under concurrency, and each charge has a session.",
		run: func(t *testing.T, one, two record.Sessions) {
			tight := record.Counter{Key: "acme/tight", Limit: 30, Window: time.Minute}
			wide := record.Counter{Key: "acme/wide", Limit: 1000, Window: time.Minute}
			for i := range 50 {
				must(t, one.Create(bg, t0, session(fmt.Sprint("old", i), 1, 1, record.CheckOTP)))
			}
			errs := race(150, one, two, func(i int, s record.Sessions) error {
				switch i % 3 {
				case 0:
					return s.Create(bg, t0, session(fmt.Sprint("created", i), 1, 1, record.Authorized), tight, wide)
				case 1:
					return s.Replace(bg, t0, hash(fmt.Sprint("old", i/3)), record.CheckOTP, session(fmt.Sprint("next", i), 1, 1, record.Authorized), wide, tight)
				default:
					return s.Create(bg, t0, session(fmt.Sprint("link", i), 1, 1, record.MailedLink), wide, tight)
				}
			})
			wantWinners(t, errs, 30, isA[*record.FullError])
			wide.Limit = 30
			wantFull(t, "what the refused left", one.Charge(bg, t0, record.CheckOnly(wide)...), "acme/wide", t0.Add(time.Minute))
			wide.Limit = 31
			must(t, one.Charge(bg, t0, record.CheckOnly(wide)...))
			left := map[record.State]int{}
			for _, s := range get[[]record.Session](t)(two.List(bg, t0, "acme", 1)) {
				left[s.State]++
			}
			want := map[record.State]int{record.CheckOTP: 50}
			for i, err := range errs {
				switch {
				case err != nil:
				case i%3 == 0:
					want[record.Authorized]++
				case i%3 == 1:
					want[record.Authorized]++
					want[record.CheckOTP]--
				default:
					want[record.MailedLink] = 1 // each replaced the one before
				}
			}
			wantEqual(t, "sessions", left, want)
		},
	},
	{
		name:    "counters",
		promise: "Charge adds one to each counter, or to none if one of them is at its limit. Then the Full error says until when. Counters that are only looked at stay the same.",
		run: func(t *testing.T, one, two record.Sessions) {
			a := record.Counter{Key: "a", Limit: 3, Window: time.Minute}
			b := record.Counter{Key: "b", Limit: 2, Window: time.Hour}
			must(t, one.Charge(bg, t0, record.CheckOnly(a, b)...))
			must(t, one.Charge(bg, t0, a, b))
			must(t, two.Charge(bg, t0.Add(time.Second), a, b))
			wantFull(t, "Charge", one.Charge(bg, t0, a, b), "b", t0.Add(time.Hour))
			wantFull(t, "Charge", one.Charge(bg, t0, b, a), "b", t0.Add(time.Hour))
			wantFull(t, "a look", two.Charge(bg, t0, record.CheckOnly(a, b)...), "b", t0.Add(time.Hour))
			must(t, two.Charge(bg, t0, record.CheckOnly(a)...))
			must(t, two.Charge(bg, t0, a)) // the refused calls have not counted
			wantFull(t, "Charge", two.Charge(bg, t0, a), "a", t0.Add(time.Minute))
			must(t, one.Charge(bg, t0))
			must(t, one.Charge(bg, t0))
		},
	},
	{
		name:    "windows",
		promise: "A window begins with the first event and ends after Window. Then the count starts at zero again.",
		run: func(t *testing.T, one, two record.Sessions) {
			c := record.Counter{Key: "a", Limit: 2, Window: time.Minute}
			must(t, one.Charge(bg, t0, c))
			must(t, one.Charge(bg, t0.Add(50*time.Second), c))
			wantFull(t, "Charge", one.Charge(bg, t0.Add(time.Minute-time.Microsecond), c), "a", t0.Add(time.Minute))
			again := t0.Add(time.Minute)
			must(t, two.Charge(bg, again, record.CheckOnly(c)...))
			must(t, two.Charge(bg, again, c))
			must(t, two.Charge(bg, again, c))
			wantFull(t, "Charge", one.Charge(bg, again, c), "a", again.Add(time.Minute))
		},
	},
	{
		name:    "limits of nothing and limits that change",
		promise: "Limit 0 allows nothing.",
		run: func(t *testing.T, one, _ record.Sessions) {
			none := record.Counter{Key: "a", Limit: 0, Window: time.Minute}
			wantFull(t, "Charge", one.Charge(bg, t0, none), "a", t0.Add(time.Minute))
			wantFull(t, "a look", one.Charge(bg, t0, record.CheckOnly(none)...), "a", t0.Add(time.Minute))
			some := record.Counter{Key: "a", Limit: 2, Window: time.Minute}
			must(t, one.Charge(bg, t0, some))
			must(t, one.Charge(bg, t0, some))
			fewer := record.Counter{Key: "a", Limit: 1, Window: time.Minute}
			wantFull(t, "a lowered limit", one.Charge(bg, t0, fewer), "a", t0.Add(time.Minute))
			more := record.Counter{Key: "a", Limit: 3, Window: time.Minute}
			must(t, one.Charge(bg, t0, more))
			wantFull(t, "a raised limit", one.Charge(bg, t0, more), "a", t0.Add(time.Minute))
		},
	},
	{
		name:    "one counter twice in a Charge",
		promise: "Charge adds one to each counter, or to none.",
		run: func(t *testing.T, one, _ record.Sessions) {
			c := record.Counter{Key: "a", Limit: 3, Window: time.Minute}
			must(t, one.Charge(bg, t0, c, c))
			wantFull(t, "Charge", one.Charge(bg, t0, c, c), "a", t0.Add(time.Minute))
			must(t, one.Charge(bg, t0, c))
		},
	},
	{
		name:    "Refund",
		promise: "Refund takes back what a Charge has added. A counter that returns to zero has no window.",
		run: func(t *testing.T, one, two record.Sessions) {
			a := record.Counter{Key: "acme/a", Limit: 2, Window: time.Minute}
			b := record.Counter{Key: "acme/b", Limit: 1, Window: time.Hour}
			must(t, one.Refund(bg, t0, a, b)) // nothing was charged
			must(t, one.Charge(bg, t0, a, b))
			later := t0.Add(time.Second)
			must(t, one.Charge(bg, later, a))
			wantFull(t, "Charge", two.Charge(bg, later, a), "acme/a", t0.Add(time.Minute))
			must(t, two.Refund(bg, later, a))
			must(t, one.Charge(bg, later, a)) // one unit and no more
			wantFull(t, "Charge", one.Charge(bg, later, a), "acme/a", t0.Add(time.Minute))
			must(t, two.Refund(bg, t0, b))
			must(t, one.Charge(bg, later, b)) // opens a new window
			wantFull(t, "Charge", one.Charge(bg, later, b), "acme/b", later.Add(time.Hour))
			again := t0.Add(time.Minute)
			must(t, one.Charge(bg, again, a, a))
			must(t, one.Refund(bg, again.Add(time.Minute), a)) // the window is over
			wantFull(t, "Charge", one.Charge(bg, again, a), "acme/a", again.Add(time.Minute))
			must(t, one.Refund(bg, again, a, a, a))
			must(t, one.Charge(bg, again, a, a))
			wantFull(t, "Charge", one.Charge(bg, again, a), "acme/a", again.Add(time.Minute))
		},
	},
	{
		name:    "racing Charge",
		promise: "Limits are exact under concurrency.",
		run: func(t *testing.T, one, two record.Sessions) {
			tight := record.Counter{Key: "tight", Limit: 30, Window: time.Minute}
			wide := record.Counter{Key: "wide", Limit: 1000, Window: time.Minute}
			errs := race(200, one, two, func(i int, s record.Sessions) error {
				if i%4 < 2 { // the other order as often
					return s.Charge(bg, t0, tight, wide)
				}
				return s.Charge(bg, t0, wide, tight)
			})
			wantWinners(t, errs, 30, isA[*record.FullError])
			wide.Limit = 30
			wantFull(t, "what the refused left", one.Charge(bg, t0, record.CheckOnly(wide)...), "wide", t0.Add(time.Minute))
			wide.Limit = 31
			must(t, one.Charge(bg, t0, record.CheckOnly(wide)...))
		},
	},
}
