package flows_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/store/memory"
)

// A watched is a session store that calls see before the methods below. If see fails, the
// method fails with its error and does nothing.
type watched struct {
	record.Sessions
	see func(seen) error
}

// A seen is a call of a watched store.
type seen struct {
	method   string
	counters []record.Counter
	ending   record.Revocation // of End
}

// errDown is the error of stores and gateways that do not answer.
var errDown = errors.New("connection refused")

// watch makes the harness's sessions a watched store.
func (b *harness) watch(see func(seen) error) { b.Sessions = watched{b.Sessions, see} }

// fails lets the calls of a method fail while the switch is on. Notices, which are sent in the
// background, call the store at any time.
func (b *harness) fails(method string) (down *atomic.Bool) {
	down = new(atomic.Bool)
	b.watch(func(c seen) error {
		if c.method == method && down.Load() {
			return errDown
		}
		return nil
	})
	return down
}

// countWrites counts the calls that may write something from now on.
func (b *harness) countWrites() *atomic.Int64 {
	var n atomic.Int64
	b.watch(func(c seen) error {
		if c.writes() {
			n.Add(1)
		}
		return nil
	})
	return &n
}

// writes reports whether the call may write something.
func (c seen) writes() bool {
	reads := c.method == "Get" || c.method == "List" || c.method == "Charge" && len(c.charged()) == 0
	return !reads
}

// charged returns the counters that the call does not only look at.
func (c seen) charged() []record.Counter {
	return slices.DeleteFunc(slices.Clone(c.counters), func(c record.Counter) bool { return c.CheckOnly })
}

func (w watched) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	if err := w.see(seen{method: "Get"}); err != nil {
		return record.Session{}, err
	}
	return w.Sessions.Get(ctx, hash)
}

func (w watched) List(ctx context.Context, now time.Time, company string, account int64) ([]record.Session, error) {
	if err := w.see(seen{method: "List"}); err != nil {
		return nil, err
	}
	return w.Sessions.List(ctx, now, company, account)
}

func (w watched) Create(ctx context.Context, now time.Time, s record.Session, counters ...record.Counter) error {
	if err := w.see(seen{method: "Create", counters: counters}); err != nil {
		return err
	}
	return w.Sessions.Create(ctx, now, s, counters...)
}

func (w watched) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	if err := w.see(seen{method: "Replace", counters: counters}); err != nil {
		return err
	}
	return w.Sessions.Replace(ctx, now, old, from, next, counters...)
}

func (w watched) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	if err := w.see(seen{method: "Touch"}); err != nil {
		return err
	}
	return w.Sessions.Touch(ctx, now, hash, expires)
}

func (w watched) Raise(ctx context.Context, now time.Time, hash record.TokenHash, from, to record.Profile) error {
	if err := w.see(seen{method: "Raise"}); err != nil {
		return err
	}
	return w.Sessions.Raise(ctx, now, hash, from, to)
}

func (w watched) SpendCode(ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter) (record.Session, error) {
	if err := w.see(seen{method: "SpendCode"}); err != nil {
		return record.Session{}, err
	}
	return w.Sessions.SpendCode(ctx, now, company, hash, state, counters...)
}

func (w watched) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	if err := w.see(seen{method: "Charge", counters: counters}); err != nil {
		return err
	}
	return w.Sessions.Charge(ctx, now, counters...)
}

func (w watched) End(ctx context.Context, now time.Time, e record.Revocation) error {
	if err := w.see(seen{method: "End", ending: e}); err != nil {
		return err
	}
	return w.Sessions.End(ctx, now, e)
}

// remembering gives the harness a memory with a lease of one hour. It counts the reads of the
// store behind it.
func (b *harness) remembering(limit int) (*memory.Memory, *atomic.Int64) {
	var gets atomic.Int64
	b.watch(func(c seen) error {
		if c.method == "Get" {
			gets.Add(1)
		}
		return nil
	})
	memory := memory.New(b.Sessions, limit)
	memory.SetLease(time.Now().Add(time.Hour))
	b.Sessions = memory
	return memory, &gets
}

func (b *harness) authorize(token string) (record.Session, error) {
	return b.Authorize(b.t.Context(), session.Requirement{}, []string{"Bearer " + token})
}
