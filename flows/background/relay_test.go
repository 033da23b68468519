package background

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A fickle receiver gives the answers in turn, and then accepts all events.
type fickle struct {
	answers []error
	got     []string
}

func (f *fickle) Deliver(_ context.Context, o record.OutboxEvent) error {
	f.got = append(f.got, o.ID)
	if len(f.answers) == 0 {
		return nil
	}
	err := f.answers[0]
	f.answers = f.answers[1:]
	return err
}

// Tests what becomes of a queue, depending on the receiver's answers.
func TestSendEvents(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	broken := errors.New("down")
	event := func(number int64, age time.Duration) record.OutboxEvent {
		return record.OutboxEvent{Number: number, ID: string(rune('a' - 1 + number)), Type: record.TypeAccountChanged, At: now.Add(-age)}
	}
	three := []record.OutboxEvent{event(1, 3*time.Hour), event(2, 2*time.Hour), event(3, time.Hour)}
	for name, c := range map[string]struct {
		events  []record.OutboxEvent
		types   []string
		tries   int           // failed before
		left    time.Duration // of the claim; 0: enough
		answers []error
		got     string // what was sent
		done    []int64
		pause   time.Duration
		after   int // tries
		dropped int
	}{
		"all are taken":                 {events: three, tries: 7, got: "abc", done: []int64{1, 2, 3}},
		"the first fails":               {events: three, answers: []error{broken}, got: "a", pause: 5 * time.Second, after: 1},
		"and again":                     {events: three, tries: 1, answers: []error{broken}, got: "a", pause: 10 * time.Second, after: 2},
		"and again and again":           {events: three, tries: 6, answers: []error{broken}, got: "a", pause: 320 * time.Second, after: 7},
		"for hours":                     {events: three, tries: 7, answers: []error{broken}, got: "a", pause: 10 * time.Minute, after: 8},
		"for days":                      {events: three, tries: 1000, answers: []error{broken}, got: "a", pause: 10 * time.Minute, after: 1001},
		"the second fails":              {events: three, tries: 7, answers: []error{nil, broken}, got: "ab", done: []int64{1}, pause: 5 * time.Second, after: 1},
		"one that is too old fails":     {events: []record.OutboxEvent{event(1, 72*time.Hour), event(2, 0)}, tries: 500, answers: []error{broken}, got: "ab", done: []int64{1, 2}, dropped: 1},
		"one that is too old is taken":  {events: []record.OutboxEvent{event(1, 90*time.Hour)}, tries: 500, got: "a", done: []int64{1}},
		"one that is almost too old":    {events: []record.OutboxEvent{event(1, 72*time.Hour-1)}, tries: 500, answers: []error{broken}, got: "a", pause: 10 * time.Minute, after: 501},
		"the claim runs out":            {events: three, tries: 3, left: 10*time.Second - 1, got: "", after: 3},
		"the claim holds for one":       {events: three, left: 10 * time.Second, got: "a", done: []int64{1}},
		"another node lists the type":   {events: three, types: []string{record.TypeAccountCreated}, got: "abc", done: []int64{1, 2, 3}},
		"there is nothing in the queue": {},
		"the receiver asks for time":    {events: three, answers: []error{&message.LaterError{Err: broken, Wait: 40 * time.Minute}}, got: "a", pause: 40 * time.Minute, after: 1},
		"it asks for too much":          {events: three, answers: []error{&message.LaterError{Err: broken, Wait: 24 * time.Hour}}, got: "a", pause: time.Hour, after: 1},
		"it wants no more, even of old": {events: []record.OutboxEvent{event(1, 90*time.Hour)}, tries: 500, answers: []error{tenant.ErrReceiverGone}, got: "a", pause: 5 * time.Second, after: 500},
	} {
		t.Run(name, func(t *testing.T) {
			at, dropped := now, 0
			relay := &Relay{
				Log:  slog.New(slog.DiscardHandler),
				Now:  func() time.Time { return at },
				Emit: func(context.Context, record.Event) { dropped++ },
			}
			r := &fickle{answers: c.answers}
			company := &tenant.Company{Code: "acme", Events: tenant.Events{Receiver: r, Types: c.types, Timeout: 5 * time.Second, Retry: 5 * time.Second}}
			q := record.OutboxQueue{Company: "acme", Name: "m", Tries: c.tries, Events: c.events, Until: now.Add(time.Hour)}
			if c.left > 0 {
				q.Until = now.Add(c.left)
				company.Events.Receiver = slow{r, func() { at = at.Add(time.Nanosecond) }}
			}
			done, pause, tries, _ := relay.sendEvents(t.Context(), company, q)
			got := ""
			for _, id := range r.got {
				got += id
			}
			if got != c.got || !slices.Equal(done, c.done) || pause != c.pause || tries != c.after || dropped != c.dropped {
				t.Errorf("got sent %q, done %v, pause %v, tries %d, dropped %d; want %q, %v, %v, %d, %d",
					got, done, pause, tries, dropped, c.got, c.done, c.pause, c.after, c.dropped)
			}
		})
	}
}

// slow calls takes before each delivery.
type slow struct {
	tenant.EventReceiver
	takes func()
}

func (s slow) Deliver(ctx context.Context, o record.OutboxEvent) error {
	s.takes()
	return s.EventReceiver.Deliver(ctx, o)
}

// A node that shuts down leaves the event unchanged. The interrupted delivery does
// not count as a try.
func TestSendEventsIsCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	relay := &Relay{Log: slog.New(slog.DiscardHandler), Now: time.Now}
	company := &tenant.Company{Events: tenant.Events{Receiver: slow{&fickle{answers: []error{context.Canceled}}, cancel}, Timeout: time.Second, Retry: time.Second}}
	q := record.OutboxQueue{Tries: 2, Until: time.Now().Add(time.Hour), Events: []record.OutboxEvent{{Number: 1, Type: record.TypeAccountChanged, At: time.Now()}}}
	if done, pause, tries, _ := relay.sendEvents(ctx, company, q); len(done) > 0 || pause > 0 || tries != 2 {
		t.Errorf("got done %v, pause %v, tries %d", done, pause, tries)
	}
}

// A receiver that only ends with its context has failed after its timeout.
func TestADeliveryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := &Relay{Log: slog.New(slog.DiscardHandler), Now: time.Now}
		company := &tenant.Company{Events: tenant.Events{Receiver: hanging{}, Timeout: time.Second, Retry: time.Second}}
		q := record.OutboxQueue{Until: time.Now().Add(time.Hour), Events: []record.OutboxEvent{{Number: 1, Type: record.TypeAccountChanged, At: time.Now()}}}
		began := time.Now()
		if _, pause, tries, _ := relay.sendEvents(t.Context(), company, q); pause != time.Second || tries != 1 || time.Since(began) != time.Second {
			t.Errorf("got pause %v, tries %d after %v", pause, tries, time.Since(began))
		}
	})
}

type hanging struct{}

func (hanging) Deliver(ctx context.Context, _ record.OutboxEvent) error {
	<-ctx.Done()
	return ctx.Err()
}

// A fullOutbox has any number of queues that are due. While full is set, its store
// accepts claims but no other writes.
type fullOutbox struct {
	slow     time.Duration // what a claim takes
	full     atomic.Bool
	claimed  atomic.Int64
	finished atomic.Int64
	enough   func() // called after very many claims
}

func (o *fullOutbox) Due(context.Context, time.Time) ([]string, error) {
	return []string{"acme"}, nil
}

func (o *fullOutbox) Claim(_ context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	if o.claimed.Add(int64(limit)) > 20_000 {
		o.enough()
	}
	time.Sleep(o.slow)
	event := record.OutboxEvent{Type: record.TypeAccountChanged, At: now}
	return slices.Repeat([]record.OutboxQueue{{Company: company, Until: until, Events: []record.OutboxEvent{event}}}, limit), nil
}

func (o *fullOutbox) Acknowledge(context.Context, record.OutboxQueue, []int64, time.Time, int) error {
	if o.full.Load() {
		return errors.New("the disk is full")
	}
	o.finished.Add(1)
	time.Sleep(time.Millisecond)
	return nil
}

func (o *fullOutbox) Backlogs(context.Context) ([]record.Backlog, error) { return nil, nil }

// An event is delivered again if its delivery can't be acknowledged. So while the
// store takes no writes, few events are delivered. Afterwards delivery goes on at
// full speed.
func TestEventsThatCantBeAcknowledgedAreNotDeliveredAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := &fullOutbox{}
		outbox.full.Store(true)
		stop := outbox.relayTo(&refusing{}, 5*time.Second)
		time.Sleep(time.Minute)
		if got := outbox.claimed.Load(); got < 20 || got > 50 {
			t.Errorf("in a minute without writes %d queues were delivered, want some 45", got)
		}
		outbox.full.Store(false)
		time.Sleep(3 * time.Second)
		if got := outbox.finished.Load(); got < 1000 {
			t.Errorf("in three seconds with writes %d queues were acknowledged, want thousands", got)
		}
		stop()
	})
}

// A receiver that is down is not asked for every waiting queue. Once it is back, all
// events go out.
func TestAReceiverThatRefusesIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, receiver := &fullOutbox{}, &refusing{}
		receiver.down.Store(true)
		stop := outbox.relayTo(receiver, 5*time.Second)
		time.Sleep(time.Minute)
		if got := receiver.asked.Load(); got < 1000 || got > 2000 {
			t.Errorf("in a minute a receiver that refuses was asked %d times, want some 1920", got)
		}
		receiver.down.Store(false)
		receiver.asked.Store(0)
		time.Sleep(time.Second)
		if got := receiver.asked.Load(); got < 1000 {
			t.Errorf("in the second after it was back it was asked %d times, want thousands", got)
		}
		stop()
	})
}

// A receiver may have less time than the store needs.
func TestEventsAreDeliveredWithAShortTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, receiver := &fullOutbox{slow: 50 * time.Millisecond}, &refusing{}
		stop := outbox.relayTo(receiver, 20*time.Millisecond)
		time.Sleep(time.Second)
		if receiver.asked.Load() == 0 {
			t.Errorf("of %d claimed queues none was delivered", outbox.claimed.Load())
		}
		stop()
	})
}

// relayTo delivers the events to a receiver until stop is called.
func (o *fullOutbox) relayTo(receiver tenant.EventReceiver, timeout time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	o.enough = cancel
	company := &tenant.Company{Code: "acme", Events: tenant.Events{Receiver: receiver, Timeout: timeout, Retry: 5 * time.Second}}
	relay := &Relay{
		Outbox: o, Companies: map[string]*tenant.Company{"acme": company}, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), OnBacklogs: func([]record.Backlog) {},
	}
	var running sync.WaitGroup
	running.Go(func() { relay.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// refusing accepts events unless it is down.
type refusing struct {
	down  atomic.Bool
	asked atomic.Int64
}

func (r *refusing) Deliver(context.Context, record.OutboxEvent) error {
	r.asked.Add(1)
	if r.down.Load() {
		return errors.New("connection refused")
	}
	return nil
}
