package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A half is half of a store's connections: as many calls with record.Yielding may run at
// once.
type half chan struct{}

func halfOf(conns int) half { return make(half, max(1, conns/2)) }

// enter waits until a call with ctx may run. Call leave when it returns.
func (h half) enter(ctx context.Context) (leave func(), err error) {
	if !record.IsYielding(ctx) {
		return func() {}, nil
	}
	select {
	case h <- struct{}{}:
		return func() { <-h }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
