package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// note returns an outbox event of a change to an account.
func note(queue, id string) record.OutboxEvent {
	return record.OutboxEvent{ID: id, Type: "test." + id, At: t0, Body: []byte(`{"id":"` + id + `"}`), Queue: queue, Traceparent: "00-" + id}
}

// noted returns an account whose creation stores events.
func noted(a record.Account, events ...record.OutboxEvent) record.Account {
	a.Outbox = events
	return a
}

// noting returns change with events to store.
func noting(change func(*record.Account) (bool, error), events ...record.OutboxEvent) func(*record.Account) (bool, error) {
	return func(a *record.Account) (bool, error) {
		a.Outbox = events
		return change(a)
	}
}

// counting is add with events.
func counting(n int, events ...record.OutboxEvent) func(*record.FailureCount) error {
	return func(t *record.FailureCount) error {
		t.Outbox = events
		return add(n)(t)
	}
}

// claim claims all queues of acme that are due at now, for a minute.
func claim(t *testing.T, s record.Accounts, now time.Time) []record.OutboxQueue {
	t.Helper()
	queues := get[[]record.OutboxQueue](t)(s.Claim(bg, now, now.Add(time.Minute), "acme", 1000))
	slices.SortFunc(queues, func(a, b record.OutboxQueue) int { return strings.Compare(a.Name, b.Name) })
	return queues
}

// written returns a claimed event as it was before it was stored.
func written(e record.OutboxEvent, queue string) record.OutboxEvent {
	e.Number, e.Queue = 0, queue
	return e
}

// acknowledge acknowledges the first n events of a claimed queue, which is then due at
// once.
func acknowledge(t *testing.T, s record.Accounts, q record.OutboxQueue, n int) {
	t.Helper()
	var delivered []int64
	for _, e := range q.Events[:n] {
		delivered = append(delivered, e.Number)
	}
	must(t, s.Acknowledge(bg, q, delivered, t0, 0))
}

// inQueues returns the ids of events by queue, in order.
func inQueues(queues []record.OutboxQueue) map[string]string {
	all := map[string]string{}
	for _, q := range queues {
		var ids []string
		for _, e := range q.Events {
			ids = append(ids, e.ID)
		}
		all[q.Name] = strings.Join(ids, " ")
	}
	return all
}

func backlog(t *testing.T, s record.Accounts) []record.Backlog {
	t.Helper()
	return get[[]record.Backlog](t)(s.Backlogs(bg))
}

var outboxCases = []accountsCase{
	{
		name:    "each change has an event",
		promise: "The events of a change are stored in the same step.",
		run: func(t *testing.T, one, two record.Accounts) {
			id := get[int64](t)(one.Create(bg, t0, noted(plain("acme", "m"), note("m", "1"))))
			must(t, second(one.Update(bg, "acme", id, noting(nothing, note("m", "2")))))
			must(t, one.SetPassword(bg, t0, get[record.Account](t)(one.ByID(bg, "acme", id)), "hash", record.TokenHash{}, note("m", "3")))
			must(t, one.Accept(bg, "acme", id, []record.Acceptance{{Code: "a"}}, note("m", "4")))
			must(t, one.SetBackupCodes(bg, get[record.Account](t)(one.ByID(bg, "acme", id)), []string{"hash"}, note("m", "5")))
			subject := record.FailureKey{Company: "acme", Account: id}
			must(t, one.UpdateFailures(bg, t0, subject, record.WrongCodes, counting(1, note("m", "6"))))
			must(t, one.UpdateFailures(bg, t0, subject, record.WrongCodes, counting(0, note("m", "7"), note("m", "8"))))
			must(t, one.Delete(bg, "acme", id, nil, note("m", "9")))
			wantEqual(t, "backlog", backlog(t, two), []record.Backlog{{Company: "acme", Events: 9, Oldest: t0}})
			queues := claim(t, two, t0)
			wantEqual(t, "events", inQueues(queues), map[string]string{"m": "1 2 3 4 5 6 7 8 9"})
			wantEqual(t, "event", written(queues[0].Events[0], "m"), note("m", "1"))
		},
	},
	{
		name:    "what is not done has no event",
		promise: "Both the change and its events are stored, or neither.",
		run: func(t *testing.T, one, two record.Accounts) {
			id := create(t, one, plain("acme", "m")).ID
			_, err := one.Create(bg, t0, noted(plain("acme", "m"), note("m", "1")))
			wantTaken(t, "Create", err, "profile_mnemocode")
			refused := errors.New("refused")
			_, err = one.Update(bg, "acme", id, noting(func(*record.Account) (bool, error) { return false, refused }, note("m", "2")))
			wantErr(t, "Update that is refused", err, refused)
			create(t, one, plain("acme", "other"))
			_, err = one.Update(bg, "acme", id, noting(set(false, func(a *record.Account) { a.Mnemocode = "other" }), note("m", "3")))
			wantTaken(t, "Update", err, "profile_mnemocode")
			wantErr(t, "SetPassword", one.SetPassword(bg, t0, record.Account{Company: "acme", ID: id, Generation: 7}, "hash", record.TokenHash{}, note("m", "4")), record.ErrConflict)
			wantErr(t, "Accept", one.Accept(bg, "acme", id+7, []record.Acceptance{{Code: "a"}}, note("m", "5")), record.ErrNotFound)
			wantErr(t, "SetBackupCodes", one.SetBackupCodes(bg, record.Account{Company: "acme", ID: id + 7, Generation: 1}, []string{"hash"}, note("m", "6")), record.ErrNotFound)
			wantErr(t, "Delete", one.Delete(bg, "acme", id+7, nil, note("m", "7")), record.ErrNotFound)
			err = one.UpdateFailures(bg, t0, record.FailureKey{Company: "acme", Account: id}, record.WrongCodes, func(failureCount *record.FailureCount) error {
				failureCount.Outbox = []record.OutboxEvent{note("m", "8")}
				return refused
			})
			wantErr(t, "UpdateFailures", err, refused)
			wantEqual(t, "backlog", backlog(t, two), nil)
			wantEqual(t, "queues", claim(t, two, t0.Add(time.Hour)), nil)
		},
	},
	{
		name:    "a queue is delivered in order, part by part",
		promise: "Claim returns the first events of a queue. Acknowledge removes those that were delivered.",
		run: func(t *testing.T, one, two record.Accounts) {
			id := create(t, one, plain("acme", "m")).ID
			for i := range record.ClaimedEvents + 2 {
				must(t, second(one.Update(bg, "acme", id, noting(nothing, note("m", fmt.Sprint(i))))))
			}
			var got []string
			for range 3 {
				queues := claim(t, two, t0)
				if len(queues) != 1 {
					t.Fatalf("%d queues, want 1", len(queues))
				}
				for _, e := range queues[0].Events[:min(15, len(queues[0].Events))] {
					got = append(got, e.ID)
				}
				acknowledge(t, two, queues[0], min(15, len(queues[0].Events)))
				if len(got) == record.ClaimedEvents+2 {
					break
				}
			}
			var want []string
			for i := range record.ClaimedEvents + 2 {
				want = append(want, fmt.Sprint(i))
			}
			wantEqual(t, "events", got, want)
			wantEqual(t, "backlog", backlog(t, one), nil)
			wantEqual(t, "queues", claim(t, one, t0.Add(time.Hour)), nil)
		},
	},
	{
		name:    "a claim",
		promise: "Of several callers, one gets a queue, until it is acknowledged or the claim expires.",
		run: func(t *testing.T, one, two record.Accounts) {
			create := func(company, name string) {
				must(t, second(one.Create(bg, t0, noted(plain(company, name), note(name, name)))))
			}
			create("acme", "a")
			create("acme", "b")
			create("other", "c")
			wantEqual(t, "before it is due", claim(t, two, t0.Add(-time.Microsecond)), nil)
			due := func(now time.Time) []string {
				companies := get[[]string](t)(two.Due(bg, now))
				slices.Sort(companies)
				return companies
			}
			wantEqual(t, "due before", len(due(t0.Add(-time.Microsecond))), 0)
			wantEqual(t, "due", due(t0), []string{"acme", "other"})
			var mu sync.Mutex
			var got []record.OutboxQueue
			for _, err := range race(20, one, two, func(_ int, s record.Accounts) error {
				queues, err := s.Claim(bg, t0, t0.Add(time.Minute), "acme", 1)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, queues...)
				return err
			}) {
				must(t, err)
			}
			if len(got) != 2 {
				t.Fatalf("%d queues were claimed, want 2: %v", len(got), got)
			}
			wantEqual(t, "events", inQueues(got), map[string]string{"a": "a", "b": "b"})
			wantEqual(t, "due once claimed", due(t0), []string{"other"})
			a := got[slices.IndexFunc(got, func(q record.OutboxQueue) bool { return q.Name == "a" })]
			must(t, two.Acknowledge(bg, a, nil, t0.Add(5*time.Second), 1))
			wantEqual(t, "before it is due again", claim(t, two, t0.Add(4*time.Second)), nil)
			again := claim(t, one, t0.Add(5*time.Second))
			wantEqual(t, "when it is due again", inQueues(again), map[string]string{"a": "a"})
			wantEqual(t, "tries", again[0].Tries, 1)

			later := t0.Add(time.Minute) // when the claim of b has expired
			others := claim(t, two, later)
			wantEqual(t, "claimed again", inQueues(others), map[string]string{"b": "b"})
			b := got[slices.IndexFunc(got, func(q record.OutboxQueue) bool { return q.Name == "b" })]
			must(t, one.Acknowledge(bg, b, nil, t0, 9))
			wantEqual(t, "by whose claim has run out", claim(t, one, later.Add(4*time.Second)), nil)
			acknowledge(t, one, b, 1)
			wantEqual(t, "backlog", backlog(t, one), []record.Backlog{
				{Company: "acme", Events: 1, Oldest: t0}, {Company: "other", Events: 1, Oldest: t0},
			})
			must(t, two.Acknowledge(bg, others[0], nil, t0, 0))
			wantEqual(t, "a queue that was acknowledged twice", inQueues(claim(t, one, later.Add(time.Hour))), map[string]string{"a": "a"})
		},
	},
	{
		name:    "a clock that was ahead",
		promise: "Sweep makes due what waits for longer than MaxDue, whether it is claimed or not.",
		run: func(t *testing.T, one, two record.Accounts) {
			ahead := t0.Add(24 * time.Hour)
			for _, name := range []string{"claimed", "failed", "asked"} {
				must(t, second(one.Create(bg, t0, noted(plain("acme", name), note(name, name)))))
			}
			for _, q := range claim(t, one, ahead) {
				due := map[string]time.Time{"failed": ahead.Add(5 * time.Second), "asked": t0.Add(record.MaxDue)}[q.Name]
				if !due.IsZero() {
					must(t, one.Acknowledge(bg, q, nil, due, 1))
				}
			}
			must(t, two.Sweep(bg, t0))
			freed := claim(t, two, t0)
			wantEqual(t, "due", inQueues(freed), map[string]string{"claimed": "claimed", "failed": "failed"})
			for _, q := range freed {
				acknowledge(t, two, q, 1)
			}
			wantEqual(t, "what the receiver asked for", inQueues(claim(t, two, t0.Add(record.MaxDue))), map[string]string{"asked": "asked"})
		},
	},
	{
		name:    "whose turn it is",
		promise: "The queues that were due first are claimed first.",
		run: func(t *testing.T, one, two record.Accounts) {
			for i, name := range []string{"c", "a", "b"} {
				e := note(name, name)
				e.At = t0.Add(time.Duration(i) * time.Second)
				must(t, second(one.Create(bg, t0, noted(plain("acme", name), e))))
			}
			queues := get[[]record.OutboxQueue](t)(two.Claim(bg, t0.Add(time.Hour), t0.Add(2*time.Hour), "acme", 2))
			wantEqual(t, "the first two", inQueues(queues), map[string]string{"c": "c", "a": "a"})
		},
	},
	{
		name:    "one name, two accounts",
		promise: "As long as one of them waits, the events of an account are in one queue. So are those of a mnemocode, unless an account was renamed to it.",
		run: func(t *testing.T, one, two record.Accounts) {
			rename := func(id int64, old, name, event string) {
				must(t, second(one.Update(bg, "acme", id, noting(set(false, func(a *record.Account) { a.Mnemocode = name }), note(old, event)))))
			}
			first := get[int64](t)(one.Create(bg, t0, noted(plain("acme", "m"), note("m", "created"))))
			rename(first, "m", "n", "renamed")
			must(t, second(one.Update(bg, "acme", first, noting(nothing, note("n", "changed")))))
			again := get[int64](t)(one.Create(bg, t0, noted(plain("acme", "m"), note("m", "again"))))
			must(t, one.Delete(bg, "acme", again, nil, note("m", "deleted")))
			queues := claim(t, two, t0)
			wantEqual(t, "events", inQueues(queues), map[string]string{"m": "created renamed changed again deleted"})
			acknowledge(t, two, queues[0], 5)
			must(t, second(one.Update(bg, "acme", first, noting(nothing, note("n", "once more")))))
			wantEqual(t, "events", inQueues(claim(t, two, t0)), map[string]string{"n": "once more"})
		},
	},
	{
		name:    "odd bytes in events",
		promise: "A store changes no string.",
		run: func(t *testing.T, one, two record.Accounts) {
			e := record.OutboxEvent{ID: odd, Type: odd, At: t0, Body: []byte(odd), Queue: odd}
			must(t, second(one.Create(bg, t0, noted(plain(odd, odd), e))))
			queues := get[[]record.OutboxQueue](t)(two.Claim(bg, t0, t0.Add(time.Minute), odd, 1))
			wantEqual(t, "event", written(queues[0].Events[0], queues[0].Name), e)
			acknowledge(t, one, queues[0], 1)
			wantEqual(t, "backlog", backlog(t, one), nil)
		},
	},
	{
		name:    "writers and deliverers at once",
		promise: "While claims hold, no event is lost, stuck, delivered twice or out of order.",
		run: func(t *testing.T, one, two record.Accounts) {
			const accounts, each = 4, 25
			var ids [accounts]int64
			for i := range ids {
				ids[i] = create(t, one, plain("acme", fmt.Sprint("m", i))).ID
			}
			var writers, deliverers sync.WaitGroup
			for i, id := range ids {
				writers.Go(func() {
					name := fmt.Sprint("m", i)
					for n := range each {
						if _, err := []record.Accounts{one, two}[n%2].Update(bg, "acme", id, noting(nothing, note(name, fmt.Sprint(n)))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			var mu sync.Mutex
			got := map[string][]string{}
			var count atomic.Int64
			deadline := time.Now().Add(time.Minute)
			for n := range 4 {
				s := []record.Outbox{one, two}[n%2]
				deliverers.Go(func() {
					for count.Load() < accounts*each && time.Now().Before(deadline) {
						due, err := s.Due(bg, t0)
						var queues []record.OutboxQueue
						if len(due) > 0 {
							queues, err = s.Claim(bg, t0, t0.Add(time.Hour), "acme", 2)
						}
						if err != nil {
							t.Error(err)
							return
						}
						if len(queues) == 0 {
							time.Sleep(time.Millisecond)
						}
						for _, q := range queues {
							var delivered []int64
							mu.Lock()
							for _, e := range q.Events {
								got[q.Name] = append(got[q.Name], e.ID)
								delivered = append(delivered, e.Number)
							}
							mu.Unlock()
							if err := s.Acknowledge(bg, q, delivered, t0, 0); err != nil {
								t.Error(err)
							}
							count.Add(int64(len(delivered)))
						}
					}
				})
			}
			writers.Wait()
			deliverers.Wait()
			for i := range accounts {
				var want []string
				for n := range each {
					want = append(want, fmt.Sprint(n))
				}
				wantEqual(t, fmt.Sprint("events of ", i), got[fmt.Sprint("m", i)], want)
			}
			wantEqual(t, "backlog", backlog(t, one), nil)
			wantEqual(t, "queues", claim(t, one, t0.Add(2*time.Hour)), nil)
		},
	},
}
