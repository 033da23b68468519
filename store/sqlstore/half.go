package sqlstore

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A Half is half of a store's connections: as many calls with record.Yielding may run at
// once.
type Half chan struct{}

func HalfOf(conns int) Half { return make(Half, max(1, conns/2)) }

// Enter waits until a call with ctx may run. Call leave when it returns.
func (h Half) Enter(ctx context.Context) (leave func(), err error) {
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
