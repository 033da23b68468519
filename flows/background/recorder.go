package background

import (
	"cmp"
	"context"
	"log/slog"
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
	// maxAside is how many events must fail alone to show that the store has failed.
	maxAside = 3
	// maxUnrecorded is how many events may wait while the store does not answer.
	maxUnrecorded = 10_000
)

// A Recorder holds events until they are stored in a History. The zero value is ready to
// use.
type Recorder struct {
	mu       sync.Mutex // guards events, loops, lost and flushed
	events   []record.Event
	loops    map[loop]queued
	lost     int
	flushed  chan struct{} // closed after the next flush; nil if nobody waits for it
	flushing sync.Mutex    // held while events are stored; guards atOnce
	atOnce   int           // how many events the next call to the store records; 0 for recordedAtOnce
	once     sync.Once     // makes the fields below
	asked    chan struct{} // has an item if Run is to flush at once
	closed   chan struct{}
}

// A loop is what somebody who repeats a request can cause: events of an account with Noise or
// Apart set, of which a History keeps the newest.
type loop struct {
	account int64
	apart   string // the name of the events, if it is kept apart
}

// queued is what the queue has of a loop.
type queued struct{ events, newest int }

func (r *Recorder) channels() (asked, closed chan struct{}) {
	r.once.Do(func() { r.asked, r.closed = make(chan struct{}, 1), make(chan struct{}) })
	return r.asked, r.closed
}

// Add queues an event for the history of its account. After Close it stores the event
// itself: a request may long outlive its config.
func (r *Recorder) Add(e record.Event, history record.History, log *slog.Logger) {
	r.mu.Lock()
	r.add(e)
	r.mu.Unlock()
	_, closed := r.channels()
	select {
	case <-closed:
		r.flush(history, log)
	default:
	}
}

// add queues an event. Of a loop, the queue has no more events than a History keeps: then the
// newest takes the place of the one before it. So a loop cannot push out the events of others.
func (r *Recorder) add(e record.Event) {
	full := len(r.events) == maxUnrecorded
	if e.Noise || e.Apart {
		of, most := loop{account: e.Account}, record.HistoryKept
		if e.Apart {
			of.apart, most = e.Name, record.HistoryKeptApart
		}
		q := r.loops[of]
		if q.events == most {
			r.events[q.newest] = e
			return
		}
		if r.loops == nil {
			r.loops = map[loop]queued{}
		}
		if !full {
			r.loops[of] = queued{q.events + 1, len(r.events)}
		}
	}
	if full {
		r.lost++
		return
	}
	r.events = append(r.events, e)
}

// Wait waits until all events so far are stored, but not for long, so that a slow store
// does not slow down logins. Use it only if the response reveals anyway that the account
// exists: requests without an account do not wait, so the delay shows it.
func (r *Recorder) Wait() {
	r.mu.Lock()
	if r.flushed == nil {
		r.flushed = make(chan struct{})
	}
	flushed := r.flushed
	r.mu.Unlock()
	asked, closed := r.channels()
	select {
	case asked <- struct{}{}:
	default: // by another caller; one write is enough for all
	}
	patience := time.NewTimer(flushWait)
	defer patience.Stop()
	select {
	case <-flushed:
	case <-closed:
	case <-patience.C:
	}
}

// Run stores queued events until Close.
func (r *Recorder) Run(history record.History, log *slog.Logger) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	asked, closed := r.channels()
	for {
		select {
		case <-closed:
			return
		case <-tick.C:
		case <-asked:
		}
		r.flush(history, log)
	}
}

// Close ends Run and stores the events that are still queued. Call it once.
func (r *Recorder) Close(history record.History, log *slog.Logger) {
	_, closed := r.channels()
	close(closed)
	r.flush(history, log)
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := len(r.events); left > 0 {
		warnIncomplete(log, left)
	}
}

func warnIncomplete(log *slog.Logger, events int) {
	log.Warn("account history is incomplete because the store did not answer; the audit log has the events", "events", events)
}

// flush stores the queued events. If a call to the store fails, the next one records
// half as many events. An event that can't be stored alone is dropped if it fails again
// after the store has taken another. Otherwise the store has failed, and flush keeps the
// events for the next time.
func (r *Recorder) flush(history record.History, log *slog.Logger) {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	r.mu.Lock()
	events, lost, flushed := r.events, r.lost, r.flushed
	r.events, r.loops, r.lost, r.flushed = nil, nil, 0, nil
	r.mu.Unlock()
	if flushed != nil {
		defer close(flushed)
	}
	if lost > 0 {
		warnIncomplete(log, lost)
	}
	store := func(events []record.Event) bool {
		return Maintain(log, "recording account history", func() error { return history.Record(context.Background(), events) }) == nil
	}
	var aside []record.Event // they failed alone
	works := false           // the store has taken the events of the call before
	for len(events) > 0 && len(aside) < maxAside {
		most := cmp.Or(r.atOnce, recordedAtOnce)
		n := min(len(events), most)
		switch {
		case store(events[:n]):
			works, r.atOnce = true, min(2*most, recordedAtOnce)
			if len(aside) > 0 { // try the first of them again
				r.atOnce = 1
			}
			events, aside = append(aside, events[n:]...), nil
			continue
		case n > 1:
			r.atOnce = n / 2
		case works:
			log.Warn("an event can't be stored in the account's history; the audit log has it",
				"event", events[0].Name, "company", events[0].Company, "mnemocode", events[0].Mnemocode)
			events = events[1:]
		default:
			aside, events = append(aside, events[0]), events[1:]
		}
		works = false
	}
	if events = append(aside, events...); len(events) > 0 {
		r.requeue(events)
	}
}

// requeue puts events that could not be stored back, before those that came since.
func (r *Recorder) requeue(events []record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	later := r.events
	r.events, r.loops = nil, nil
	for _, e := range append(events, later...) {
		r.add(e)
	}
}
