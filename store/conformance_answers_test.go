package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var answerCases = []sessionsCase{
	{
		name:    "answers",
		promise: "Claim gives a name to one holder until its time, and everybody else the answer once there is one. Only the holder can Keep, and only once.",
		run: func(t *testing.T, one, two record.Sessions) {
			lease, end := t0.Add(10*time.Second), t0.Add(time.Minute)
			claim := func(s record.Sessions, now time.Time, holder string) ([]byte, error) {
				return s.Claim(bg, now, "name", holder, now.Add(10*time.Second))
			}
			wantErr(t, "Keep before Claim", one.Keep(bg, t0, "name", "first", []byte("a"), end), record.ErrConflict)
			must(t, second(claim(one, t0, "first")))
			must(t, two.Sweep(bg, t0)) // nothing has expired
			wantErr(t, "a second Claim", second(claim(two, t0, "second")), record.ErrConflict)
			wantErr(t, "a second Claim of the holder", second(claim(one, t0, "first")), record.ErrConflict)
			wantErr(t, "Keep of another", two.Keep(bg, t0, "name", "second", []byte("a"), end), record.ErrConflict)
			must(t, one.Keep(bg, t0, "name", "first", nil, lease.Add(time.Second))) // a longer lease
			wantErr(t, "Claim in the longer lease", second(claim(two, lease, "second")), record.ErrConflict)
			lease = lease.Add(time.Second)
			wantErr(t, "Keep after the lease", one.Keep(bg, lease, "name", "first", []byte("late"), end), record.ErrConflict)
			must(t, second(claim(two, lease, "second")))
			wantErr(t, "Keep of one whose lease is over", one.Keep(bg, lease, "name", "first", []byte("late"), end), record.ErrConflict)
			must(t, two.Keep(bg, lease, "name", "second", nil, lease)) // gives it back
			wantErr(t, "a longer lease that comes late", two.Keep(bg, lease.Add(-time.Second), "name", "second", nil, end), record.ErrConflict)
			must(t, second(claim(one, lease, "third")))
			answer := []byte("any bytes \x00\xff")
			must(t, one.Keep(bg, lease, "name", "third", answer, end))
			must(t, two.Sweep(bg, lease))
			for _, err := range []error{
				one.Keep(bg, lease, "name", "third", []byte("other"), end),
				one.Keep(bg, lease, "name", "third", nil, lease),
			} {
				wantErr(t, "Keep once there is an answer", err, record.ErrConflict)
			}
			if got, err := claim(two, end.Add(-time.Microsecond), "fourth"); err != nil || !bytes.Equal(got, answer) {
				t.Errorf("the answer is %q, %v; want %q", got, err, answer)
			}
			must(t, one.Sweep(bg, end))
			if got, err := claim(two, end, "fourth"); err != nil || got != nil {
				t.Errorf("after its time, the answer is %q, %v; want none", got, err)
			}
			wantErr(t, "the next Claim", second(claim(one, end, "fifth")), record.ErrConflict)
		},
	},
	{
		name:    "answers with counters",
		promise: "Claim charges the counters only if it claims the name. If one is full, it changes nothing, but returns an answer that there is.",
		run: func(t *testing.T, one, two record.Sessions) {
			c := record.Counter{Key: "/c", Limit: 1, Window: time.Minute}
			until := t0.Add(10 * time.Second)
			must(t, second(one.Claim(bg, t0, "a", "h", until, c)))
			wantErr(t, "a claimed name", second(two.Claim(bg, t0, "a", "other", until, c)), record.ErrConflict)
			must(t, one.Keep(bg, t0, "a", "h", []byte("answer"), until))
			must(t, second(two.Claim(bg, t0, "a", "other", until, c)))
			wantFull(t, "Claim", second(two.Claim(bg, t0, "b", "h", until, c)), c.Key, t0.Add(time.Minute))
			must(t, second(one.Claim(bg, t0, "b", "other", until)))
			c.Limit = 2
			must(t, one.Charge(bg, t0, record.CheckOnly(c)...)) // the other calls have not counted
		},
	},
	{
		name:    "racing claims",
		promise: "Of several callers, one claims a name, however many nodes they are on, and the counters say how many did.",
		run: func(t *testing.T, one, two record.Sessions) {
			c := record.Counter{Key: "/c", Limit: 1, Window: time.Minute}
			errs := race(60, one, two, func(i int, s record.Sessions) error {
				return second(s.Claim(bg, t0, "name", fmt.Sprint(i), t0.Add(time.Second), c))
			})
			wantWinners(t, errs, 1, func(err error) bool { return errors.Is(err, record.ErrConflict) })
			c.Limit = 2
			must(t, one.Charge(bg, t0, record.CheckOnly(c)...))
		},
	},
}
