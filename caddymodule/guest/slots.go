package guest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/mnemogate/mnemogate/flows/message"
)

// Slots bounds how many requests to a gateway are open at once. Gateways refuse more than
// they are made for, and then each of them fails. A free slot goes to the company that has
// the fewest and, of several, to the one whose latest turn is longest ago. So one company's
// load does not make others wait. Make it with NewSlots: a zero one has none.
type Slots struct{ all, notices *queue }

// maxSlots is the most slots of a gateway.
const maxSlots = 1000

// NewSlots returns n slots.
func NewSlots(n int) (Slots, error) {
	if n < 1 || n > maxSlots {
		return Slots{}, errors.New("choose 1 to 1000")
	}
	return Slots{&queue{free: n}, &queue{free: max(1, n-1)}}, nil
}

// Do waits for a slot for the company until ctx ends, then calls do. Nobody waits for a
// notice, so notices leave one slot to other messages.
func (s Slots) Do(ctx context.Context, company string, notice bool, do func() error) error {
	if notice {
		return s.notices.within(ctx, company, func() error { return s.all.within(ctx, company, do) })
	}
	return s.all.within(ctx, company, do)
}

// A queue is of those who wait for a slot.
type queue struct {
	mu      sync.Mutex // guards the fields below
	free    int
	turns   int // given so far
	shares  map[string]*share
	waiting []*waiter // who waits longest is first; none while a slot is free
}

// A share is what a company has of the slots.
type share struct{ taken, latest int } // latest is the number of its latest turn

type waiter struct {
	of   *share
	turn chan struct{} // closed when the waiter has a slot
}

func (q *queue) within(ctx context.Context, company string, do func() error) error {
	of := q.enter(ctx, company)
	if of == nil {
		return &message.LaterError{Err: errors.New("all connections that max_conns allows were in use; find out why the gateway is slow, or allow more")}
	}
	defer q.leave(of)
	return do()
}

// enter takes a slot, and returns the share to which leave returns it, or nil if there was no
// slot before ctx ended.
func (q *queue) enter(ctx context.Context, company string) *share {
	q.mu.Lock()
	of := q.shares[company]
	if of == nil {
		of = new(share)
		if q.shares == nil {
			q.shares = map[string]*share{}
		}
		q.shares[company] = of
	}
	if q.free > 0 { // even if ctx has ended
		q.free--
		q.give(of)
		q.mu.Unlock()
		return of
	}
	w := &waiter{of, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	select {
	case <-w.turn:
		return of
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i < 0 { // its turn came at the same moment
		return of
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return nil
}

func (q *queue) leave(of *share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of.taken--
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	next := slices.MinFunc(q.waiting, func(a, b *waiter) int { return cmp.Or(a.of.taken-b.of.taken, a.of.latest-b.of.latest) })
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool { return w == next })
	q.give(next.of)
	close(next.turn)
}

func (q *queue) give(of *share) {
	q.turns++
	of.taken++
	of.latest = q.turns
}

// MaySendAgain reports whether a gateway certainly did not get the message: it or the proxy
// could not be reached, or there was no slot.
func MaySendAgain(err error) bool {
	_, waited := errors.AsType[*message.LaterError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return waited || ok && (op.Op == "dial" || op.Op == proxyConnect)
}
