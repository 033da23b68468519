package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var historyCases = []accountsCase{
	{
		name:    "a history has its account's events",
		promise: "Recorded returns up to limit events of an account, newest first.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "a")), create(t, one, plain("acme", "b"))
			mangled := happened(a, 3, quiet)
			mangled.UserAgent, mangled.Reason = odd, odd
			must(t, one.Record(bg, []record.Event{happened(b, 9, quiet), happened(a, 1, quiet), happened(a, 2, noisy)}))
			must(t, two.Record(bg, []record.Event{mangled}))
			wantEqual(t, "history", recorded(t, two, a, 10), []record.Event{mangled, happened(a, 2, noisy), happened(a, 1, quiet)})
			wantEqual(t, "the newest", recorded(t, one, a, 2), []record.Event{mangled, happened(a, 2, noisy)})
			wantEqual(t, "another's", recorded(t, one, b, 10), []record.Event{happened(b, 9, quiet)})
			a.Company = "other"
			wantEqual(t, "another company's", len(recorded(t, one, a, 10)), 0)
		},
	},
	{
		name:    "strangers push nothing out of a history",
		promise: "It keeps the newest HistoryKept events of each account that are Noise, and as many others.",
		run: func(t *testing.T, one, _ record.Accounts) {
			a := create(t, one, plain("acme", "a"))
			for n := range 3 * record.HistoryKept {
				events := []record.Event{happened(a, n, noisy)}
				if n >= record.HistoryKept {
					events = append(events, happened(a, n, noisy))
				}
				if n < 5 {
					events = append(events, happened(a, n, quiet))
				}
				must(t, one.Record(bg, events))
			}
			all := recorded(t, one, a, 1000)
			var others []string
			for _, e := range all {
				if !e.Noise {
					others = append(others, e.Session)
				}
			}
			wantEqual(t, "all", len(all), record.HistoryKept+5)
			wantEqual(t, "what no stranger caused", others, []string{"4", "3", "2", "1", "0"})
			wantEqual(t, "the newest", all[0].Session, fmt.Sprint(3*record.HistoryKept-1))
		},
	},
	{
		name:    "what a session repeats pushes nothing else out of a history",
		promise: "Of those with Apart set, it keeps the newest HistoryKeptApart of each name besides.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "a"))
			must(t, one.Record(bg, []record.Event{happened(a, 0, quiet)}))
			var want []record.Event
			for n := 1; n <= record.HistoryKept+5; n++ {
				var events []record.Event
				for _, name := range []string{"one", "two"} {
					e := happened(a, n, quiet)
					e.Name, e.Apart = name, true
					events = append(events, e)
					if e.Apart = false; n > record.HistoryKept+5-record.HistoryKeptApart {
						want = append([]record.Event{e}, want...)
					}
				}
				must(t, []record.Accounts{one, two}[n%2].Record(bg, events))
			}
			wantEqual(t, "history", recorded(t, one, a, 1000), append(want, happened(a, 0, quiet)))
		},
	},
	{
		name:    "what happens again in a row is one entry",
		promise: "An event that happens again becomes one entry with the earlier one, if no other came between them; for one with Apart set, no other of its name.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "a")), create(t, one, plain("acme", "b"))
			again := func(n, at, count int, route string) record.Event {
				e := happened(a, n, route)
				e.Time, e.Count = t0.Add(time.Duration(at)*time.Second), count
				return e
			}
			apart := func(n, at, count int) record.Event {
				e := again(n, at, count, quiet)
				e.Name, e.Apart = "mnemogate.apart", true
				return e
			}
			for i, events := range [][]record.Event{
				{again(1, 1, 1, noisy), again(1, 2, 1, noisy), happened(b, 9, quiet)},
				{again(1, 3, 1, noisy)},
				{again(2, 4, 1, quiet)},
				{again(1, 5, 1, noisy), apart(7, 6, 1), again(2, 7, 1, quiet)},
				{apart(7, 8, 1), apart(8, 9, 1), again(2, 10, 1, quiet), again(2, 11, 1, quiet)},
			} {
				must(t, []record.Accounts{one, two}[i%2].Record(bg, events))
			}
			want := []record.Event{
				again(2, 11, 2, quiet), apart(8, 9, 1), apart(7, 8, 2), again(2, 7, 1, quiet), again(1, 5, 1, noisy),
				again(2, 4, 1, quiet), again(1, 3, 3, noisy),
			}
			for i := range want {
				want[i].Apart = false // it is not stored
			}
			wantEqual(t, "history", recorded(t, two, a, 10), want)
			wantEqual(t, "another's", recorded(t, two, b, 10), []record.Event{happened(b, 9, quiet)})
			other := apart(8, 12, 1)
			other.Company = "other"
			must(t, one.Record(bg, []record.Event{other}))
			wantEqual(t, "history after another company's event", recorded(t, two, a, 10), want)
		},
	},
	{
		name:    "a ref finds its event",
		promise: "Referred returns the events of a company's accounts with this Ref, newest first, with the present Mnemocode of each account.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "a")), create(t, one, plain("acme", "b"))
			with := func(of record.Account, n, at int, ref string) record.Event {
				e := happened(of, n, quiet)
				e.Time, e.Ref = t0.Add(time.Duration(at)*time.Second), ref
				return e
			}
			must(t, one.Record(bg, []record.Event{with(a, 1, 1, "OLD"), with(a, 1, 2, "NEW"), with(a, 2, 3, "ONE"), with(b, 3, 4, "ONE"), with(a, 4, 5, "")}))
			newest := with(a, 1, 2, "NEW")
			newest.Count = 2
			wantEqual(t, "history", recorded(t, two, a, 10), []record.Event{with(a, 4, 5, ""), with(a, 2, 3, "ONE"), newest})
			const name = "c"
			must(t, second(one.Update(bg, "acme", a.ID, set(false, func(a *record.Account) { a.Mnemocode = name }))))
			for ref, want := range map[string][]record.Event{"OLD": nil, "NEW": {newest}, "ONE": {with(b, 3, 4, "ONE"), with(a, 2, 3, "ONE")}, "": nil, "new": nil} {
				for i := range want {
					if want[i].Account == a.ID {
						want[i].Mnemocode = name
					}
				}
				wantEqual(t, ref, get[[]record.Event](t)(two.Referred(bg, "acme", ref)), want)
			}
			wantEqual(t, "another company's", len(get[[]record.Event](t)(one.Referred(bg, "other", "ONE"))), 0)
		},
	},
	{
		name:    "a history goes with its account",
		promise: "An event of an unknown account is dropped. Events are deleted with their account.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "a"))
			must(t, one.Record(bg, []record.Event{happened(a, 1, quiet)}))
			must(t, two.Delete(bg, "acme", a.ID, nil))
			b := create(t, one, plain("acme", "a"))
			other := b
			other.Company = "other"
			must(t, one.Record(bg, []record.Event{happened(a, 2, quiet), happened(b, 3, quiet), happened(other, 4, quiet)}))
			wantEqual(t, "the deleted one's", len(recorded(t, one, a, 10)), 0)
			wantEqual(t, "its successor's", recorded(t, one, b, 10), []record.Event{happened(b, 3, quiet)})
		},
	},
	{
		name:    "what is old is forgotten",
		promise: "Forget deletes the events before a time.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "a"))
			must(t, one.Record(bg, []record.Event{happened(a, 1, quiet), happened(a, 2, noisy), happened(a, 3, quiet)}))
			must(t, two.Forget(bg, t0.Add(3*time.Second)))
			wantEqual(t, "history", recorded(t, one, a, 10), []record.Event{happened(a, 3, quiet)})
		},
	},
	{
		name:    "two nodes record at once",
		promise: "All methods may be called concurrently, from many processes.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "a")), create(t, one, plain("acme", "b"))
			for _, err := range race(40, one, two, func(i int, s record.Accounts) error {
				events := []record.Event{happened(a, i, quiet), happened(b, i, quiet)}
				if i%2 == 0 {
					events[0], events[1] = events[1], events[0]
				}
				return s.Record(bg, events)
			}) {
				must(t, err)
			}
			wantEqual(t, "one's", len(recorded(t, one, a, 100)), 40)
			wantEqual(t, "the other's", len(recorded(t, one, b, 100)), 40)
		},
	},
}
