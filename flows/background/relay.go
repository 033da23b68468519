package background

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// How an Outbox is delivered: one loop finds companies with due queues. The loop of each
// company claims its queues. A goroutine for each queue sends its events in order and
// acknowledges them. An event that fails stays in its queue, which becomes due again after
// a pause; the other queues go on.

const (
	outboxAtOnce  = 16                     // queues per company and node
	outboxEvery   = 500 * time.Millisecond // between looks for due queues
	outboxAgain   = 2 * time.Second        // after the store did not answer
	backlogEvery  = 2 * time.Second        // between counts of the backlog, or longer if counting is slow
	backlogShare  = 50                     // counting takes at most one part in this many of the time
	maxRetryPause = 10 * time.Minute
	maxAskedPause = time.Hour      // if the receiver asks for it; see record.MaxDue
	keepEvents    = 72 * time.Hour // an event older than this is dropped when it fails
)

// A Relay delivers the events of an Outbox to the receivers of their companies. Set its
// fields before Run.
type Relay struct {
	Outbox     record.Outbox
	Companies  map[string]*tenant.Company // by code
	Now        func() time.Time
	Log        *slog.Logger
	Emit       func(context.Context, record.Event) // called for dropped events
	OnBacklogs func([]record.Backlog)              // called with the backlogs every few seconds

	warnings Warnings
}

// Run delivers events until ctx ends. Then it gives up deliveries in progress. The next
// Relay that claims their queues tries them again.
func (r *Relay) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	wake := map[string]chan struct{}{} // the loops, by company
	for code, c := range r.Companies {
		if c.Events.Receiver != nil {
			due := make(chan struct{}, 1)
			wake[code] = due
			loops.Go(func() { r.deliverEvents(ctx, c, due) })
		}
	}
	if len(wake) > 0 {
		loops.Go(func() { r.wakeWhenDue(ctx, wake) })
	}
	for {
		var all []record.Backlog
		began := time.Now()
		Maintain(r.Log, "counting waiting events", func() (err error) {
			if all, err = r.Outbox.Backlogs(ctx); err == nil {
				r.OnBacklogs(all)
			}
			return err
		})
		pause := max(backlogEvery, backlogShare*time.Since(began)) // the time of dropping does not count
		Maintain(r.Log, "dropping events", func() error { return r.dropAbandoned(ctx, all) })
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *Relay) wakeWhenDue(ctx context.Context, wake map[string]chan struct{}) {
	for {
		pause := outboxAgain
		Maintain(r.Log, "finding due events", func() error {
			due, err := r.Outbox.Due(ctx, r.Now())
			if err != nil {
				return err
			}
			pause = outboxEvery
			for _, company := range due {
				select {
				case wake[company] <- struct{}{}: // a nil channel never receives: the company has no loop
				default:
				}
			}
			return nil
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *Relay) deliverEvents(ctx context.Context, c *tenant.Company, due <-chan struct{}) {
	finished := make(chan outcome)
	gone := false                                  // the receiver wants no more events
	active, atOnce, more := 0, outboxAtOnce, false // more: there may be more due queues
	var pause <-chan time.Time                     // set while waiting after the store did not answer
	failed := func() {
		// Events that can't be acknowledged will be sent again, so send only one
		// queue at a time.
		atOnce, pause = 1, time.After(outboxAgain)
	}
	for {
		if more && !gone && pause == nil && active <= atOnce/2 {
			limit := atOnce - active
			queues, err := r.claimEvents(ctx, c, limit)
			if err != nil {
				failed()
			}
			for _, q := range queues {
				go func() { finished <- r.deliverQueue(ctx, c, q) }()
			}
			active += len(queues)
			more = len(queues) == limit
		}
		select {
		case o := <-finished:
			active--
			if o.gone && !gone {
				gone = true
				r.Log.Error("the receiver of events answered that it wants no more (410): events wait until the configuration is loaded again, even if unchanged (caddy reload --force)", "company", c.Code)
			}
			// If the receiver refuses an event, claim no more queues until an event
			// is delivered or the next look for due queues. So it gets at most atOnce
			// events per look.
			more = o.more || more && !o.refused
			if o.err != nil {
				failed()
			} else {
				atOnce = outboxAtOnce
			}
		case <-due:
			more = true
		case <-pause:
			pause = nil
		case <-ctx.Done():
			for ; active > 0; active-- {
				<-finished
			}
			return
		}
	}
}

// An outcome is the result of a claimed queue.
type outcome struct {
	more    bool  // there may be more to send right away
	refused bool  // the receiver refused an event
	gone    bool  // the receiver wants no more events
	err     error // from the store
}

// ClaimFor returns how long a claim lasts with this timeout of the receiver. A claim also takes
// the time of the store, which has 2 s for each call.
func ClaimFor(timeout time.Duration) time.Duration { return 4 * max(timeout, 2*time.Second) }

func (r *Relay) claimEvents(ctx context.Context, c *tenant.Company, limit int) (queues []record.OutboxQueue, err error) {
	err = Maintain(r.Log, "claiming events", func() (err error) {
		now := r.Now().Round(0) // a claim does not last longer while the machine is suspended
		queues, err = r.Outbox.Claim(ctx, now, now.Add(ClaimFor(c.Events.Timeout)), c.Code, limit)
		return err
	})
	return queues, err
}

// deliverQueue sends the events of a claimed queue until one fails, then acknowledges
// those that were delivered.
func (r *Relay) deliverQueue(ctx context.Context, c *tenant.Company, q record.OutboxQueue) (o outcome) {
	o.err = Maintain(r.Log, "delivering events", func() error {
		sent, pause, tries, err := r.sendEvents(ctx, c, q)
		o.gone = errors.Is(err, tenant.ErrReceiverGone)
		o.refused = pause > 0
		o.more = !o.refused && ctx.Err() == nil
		// Acknowledge even if this node stops, so that no delivered event is sent again.
		return r.Outbox.Acknowledge(context.WithoutCancel(ctx), q, sent, r.Now().Add(pause), tries)
	})
	return o
}

// sendEvents sends the events of a queue. It returns the events that are finished, the
// pause before the next try, how many times the next event was tried, and the error of the
// receiver.
func (r *Relay) sendEvents(ctx context.Context, c *tenant.Company, q record.OutboxQueue) (done []int64, pause time.Duration, tries int, err error) {
	tries = q.Tries
	for _, e := range q.Events {
		if r.Now().Add(ClaimFor(c.Events.Timeout) / 2).After(q.Until) {
			return done, 0, tries, nil // the claim may expire before the queue is acknowledged
		}
		// Even of a type that is no longer listed: this node may have the older configuration.
		err := panics.Contain(func() error {
			ctx, cancel := context.WithTimeout(ctx, c.Events.Timeout)
			defer cancel()
			return c.Events.Receiver.Deliver(ctx, e)
		})
		switch {
		case err != nil && ctx.Err() != nil:
			return done, 0, tries, nil
		case errors.Is(err, tenant.ErrReceiverGone):
			return done, c.Events.Retry, tries, err // another node may have a configuration that is newer
		case err != nil && r.Now().Sub(e.At) < keepEvents:
			pause = retryPause(c.Events.Retry, tries)
			if later, ok := errors.AsType[*message.LaterError](err); ok {
				pause = max(pause, min(later.Wait, maxAskedPause))
			}
			r.warnings.Warn(r.Log, "an event was not delivered and will be tried again", "company", c.Code,
				"mnemocode", mnemocodeOf(e), "type", e.Type, "id", e.ID, "try", tries+1, "again_in", pause, "error", err)
			return done, pause, tries + 1, err
		case err != nil:
			r.reportDropped(ctx, c.Code, e, err)
		}
		done, tries = append(done, e.Number), 0
	}
	return done, 0, tries, nil
}

// retryPause returns the pause after an event failed that had already failed tries times.
func retryPause(first time.Duration, tries int) time.Duration {
	pause := first
	for range tries {
		if pause *= 2; pause >= maxRetryPause {
			return maxRetryPause
		}
	}
	return pause
}

var errNoReceiver = errors.New("the company has no receiver for events")

func (r *Relay) reportDropped(ctx context.Context, company string, e record.OutboxEvent, err error) {
	mnemocode := mnemocodeOf(e)
	r.Log.Error("an event is dropped: it could not be delivered for days", "company", company,
		"mnemocode", mnemocode, "type", e.Type, "id", e.ID, "at", e.At, "error", err)
	r.Emit(ctx, record.Event{Name: record.OutboxDropped, Company: company, Mnemocode: mnemocode, Reason: e.Type})
}

// dropAbandoned drops old events of companies that no longer have a receiver, for at most
// a second each.
func (r *Relay) dropAbandoned(ctx context.Context, all []record.Backlog) (err error) {
	for _, b := range all {
		if c := r.Companies[b.Company]; c != nil && c.Events.Receiver != nil {
			continue
		}
		if r.Now().Sub(b.Oldest) >= keepEvents {
			err = errors.Join(err, r.dropEvents(ctx, b.Company))
		}
	}
	return err
}

// dropEvents only claims queues that have been due for keepEvents, so another node whose
// configuration has a receiver would have delivered them.
func (r *Relay) dropEvents(ctx context.Context, company string) error {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < time.Second; {
		now := r.Now()
		queues, err := r.Outbox.Claim(ctx, now.Add(-keepEvents), now.Add(time.Minute), company, outboxAtOnce)
		if err != nil || len(queues) == 0 {
			return err
		}
		for _, q := range queues {
			var done []int64
			due := now
			for _, e := range q.Events {
				due = e.At
				if now.Sub(e.At) < keepEvents {
					break
				}
				r.reportDropped(ctx, company, e, errNoReceiver)
				done = append(done, e.Number)
			}
			if err := r.Outbox.Acknowledge(ctx, q, done, due, 0); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
