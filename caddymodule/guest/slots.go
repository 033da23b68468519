package guest

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/semaphore"

	"github.com/mnemogate/mnemogate/flows/message"
)

// Slots bounds how many requests to a gateway are open at once. Gateways refuse more than
// they are made for, and then each of them fails. Make it with NewSlots: a zero one has none.
type Slots struct{ all, notices *semaphore.Weighted }

// maxSlots is the most slots of a gateway.
const maxSlots = 1000

// NewSlots returns n slots.
func NewSlots(n int) (Slots, error) {
	if n < 1 || n > maxSlots {
		return Slots{}, errors.New("choose 1 to 1000")
	}
	return Slots{semaphore.NewWeighted(int64(n)), semaphore.NewWeighted(int64(max(1, n-1)))}, nil
}

// Do waits for a slot until ctx ends, then calls do. Nobody waits for a notice, so notices
// leave one slot to other messages.
func (s Slots) Do(ctx context.Context, notice bool, do func() error) error {
	if notice {
		return within(ctx, s.notices, func() error { return within(ctx, s.all, do) })
	}
	return within(ctx, s.all, do)
}

func within(ctx context.Context, slots *semaphore.Weighted, do func() error) error {
	if !slots.TryAcquire(1) && slots.Acquire(ctx, 1) != nil { // a ctx that has ended does not hide a free slot
		return &message.LaterError{Err: errors.New("all connections that max_conns allows were in use; find out why the gateway is slow, or allow more")}
	}
	defer slots.Release(1)
	return do()
}

// MaySendAgain reports whether a gateway certainly did not get the message: it or the proxy
// could not be reached, or there was no slot.
func MaySendAgain(err error) bool {
	_, waited := errors.AsType[*message.LaterError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return waited || ok && (op.Op == "dial" || op.Op == proxyConnect)
}
