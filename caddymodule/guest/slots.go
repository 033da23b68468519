package guest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/mnemogate/mnemogate/flows/message"
)

// Slots bounds how many requests to a gateway are open at once. Gateways refuse more than
// they are made for, and then each of them fails. A free slot goes to the company that has
// the fewest, so that one company's load does not make others wait. Make it with NewSlots: a
// zero one has none.
type Slots struct {
	all     *queue
	notices *semaphore.Weighted
}

// maxSlots is the most slots of a gateway.
const maxSlots = 1000

// NewSlots returns n slots.
func NewSlots(n int) (Slots, error) {
	if n < 1 || n > maxSlots {
		return Slots{}, errors.New("choose 1 to 1000")
	}
	return Slots{&queue{free: n, taken: map[string]int{}}, semaphore.NewWeighted(int64(max(1, n-1)))}, nil
}

// Do waits for a slot for the company until ctx ends, then calls do. Nobody waits for a
// notice, so notices leave one slot to other messages.
func (s Slots) Do(ctx context.Context, company string, notice bool, do func() error) error {
	if notice {
		if !s.notices.TryAcquire(1) && s.notices.Acquire(ctx, 1) != nil { // a ctx that has ended does not hide a free slot
			return &message.LaterError{Err: errSlots}
		}
		defer s.notices.Release(1)
	}
	if !s.all.enter(ctx, company) {
		return &message.LaterError{Err: errSlots}
	}
	defer s.all.leave(company)
	return do()
}

var errSlots = errors.New("all connections that max_conns allows were in use; find out why the gateway is slow, or allow more")

// A queue is of those who wait for a slot.
type queue struct {
	mu      sync.Mutex // guards the fields below
	free    int
	taken   map[string]int // by company
	waiting []*waiter      // who waits longest is first; none while a slot is free
}

type waiter struct {
	company string
	turn    chan struct{} // closed when the waiter has a slot
}

// enter takes a slot, and reports whether there was one before ctx ended. The caller returns
// it by leave.
func (q *queue) enter(ctx context.Context, company string) bool {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.taken[company]++
		q.mu.Unlock()
		return true
	}
	w := &waiter{company, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i < 0 // its turn came at the same moment
}

func (q *queue) leave(company string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken[company]--; q.taken[company] == 0 {
		delete(q.taken, company)
	}
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	next := slices.MinFunc(q.waiting, func(a, b *waiter) int { return q.taken[a.company] - q.taken[b.company] })
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool { return w == next })
	q.taken[next.company]++
	close(next.turn)
}

// MaySendAgain reports whether a gateway certainly did not get the message: it or the proxy
// could not be reached, or there was no slot.
func MaySendAgain(err error) bool {
	_, waited := errors.AsType[*message.LaterError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return waited || ok && (op.Op == "dial" || op.Op == proxyConnect)
}
