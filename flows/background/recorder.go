package background

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// flushEvery is how long an event may wait if no response waits for it.
	flushEvery = 250 * time.Millisecond
	// flushWait is how long a response waits for its events to be stored.
	flushWait = 100 * time.Millisecond
	// recordedAtOnce is how many events one call to the store records.
	recordedAtOnce = 250
	// maxUnrecorded is how many events may wait while the store does not answer.
	maxUnrecorded = 10_000
)

// A Recorder holds events until they are stored in a History. The zero value is ready to
// use.
type Recorder struct {
	mu      sync.Mutex
	events  []record.Event
	lost    int
	once    sync.Once
	flushes chan chan struct{} // callers that wait until all events so far are stored
}

func (r *Recorder) queue() chan chan struct{} {
	r.once.Do(func() { r.flushes = make(chan chan struct{}) })
	return r.flushes
}

// Add queues an event for the history of its account.
func (r *Recorder) Add(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == maxUnrecorded {
		r.lost++
		return
	}
	r.events = append(r.events, e)
}

// Wait waits until all events so far are stored, but not for long, so that a slow store
// does not slow down logins. Use it only if the response reveals anyway that the account
// exists: requests without an account do not wait, so the delay shows it.
func (r *Recorder) Wait() {
	done, patience := make(chan struct{}), time.NewTimer(flushWait)
	defer patience.Stop()
	select {
	case r.queue() <- done:
	case <-patience.C:
		return
	}
	select {
	case <-done:
	case <-patience.C:
	}
}

// Run stores queued events until ctx ends.
func (r *Recorder) Run(ctx context.Context, history record.History, log *slog.Logger) {
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		var waiting []chan struct{}
		select {
		case <-ctx.Done():
			r.Flush(context.WithoutCancel(ctx), history, log)
			return
		case <-flush.C:
		case first := <-r.queue():
			waiting = append(waiting, first)
			for more := true; more; { // one write for all callers that wait
				select {
				case next := <-r.queue():
					waiting = append(waiting, next)
				default:
					more = false
				}
			}
		}
		r.Flush(ctx, history, log)
		for _, done := range waiting {
			close(done)
		}
	}
}

// Flush stores the queued events. It keeps those that it can't store for the next time.
func (r *Recorder) Flush(ctx context.Context, history record.History, log *slog.Logger) {
	r.mu.Lock()
	events, lost := r.events, r.lost
	r.events, r.lost = nil, 0
	r.mu.Unlock()
	if lost > 0 {
		log.Warn("account history is incomplete because the store did not answer; the audit log has the events", "events", lost)
	}
	for failed := false; len(events) > 0 && !failed; {
		n := min(len(events), recordedAtOnce)
		Maintain(log, "recording account history", func() error {
			err := history.Record(ctx, events[:n])
			if failed = err != nil; failed {
				r.requeue(events)
			}
			return err
		})
		events = events[n:]
	}
}

// requeue puts events that could not be stored back, before those that came since.
func (r *Recorder) requeue(events []record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := min(len(events), maxUnrecorded-len(r.events))
	r.lost += len(events) - kept
	r.events = append(slices.Clone(events[len(events)-kept:]), r.events...)
}
