package record

import (
	"context"
	"sync/atomic"
	"time"
)

// storeTime is how long a request waits for stores, all its calls together:
// less than the 2 s within which it is answered, however slow they are.
const storeTime = 1800 * time.Millisecond

type storeTimeKey struct{}

// WithStoreTime gives the calls to stores their time.
func WithStoreTime(ctx context.Context) context.Context {
	left := new(atomic.Int64)
	left.Store(int64(storeTime))
	return context.WithValue(ctx, storeTimeKey{}, left)
}

// StoreContext is for stores whose servers may be slow. It returns the context
// of one call, which has the limit, or what is left of the time that a request
// has for all its calls. Done ends the call.
func StoreContext(ctx context.Context, limit time.Duration) (call context.Context, done func()) {
	left, ok := ctx.Value(storeTimeKey{}).(*atomic.Int64)
	if !ok { // not a request's
		return context.WithTimeout(ctx, limit)
	}
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, min(limit, time.Duration(left.Load())))
	return call, func() {
		cancel()
		left.Add(-int64(time.Since(began)))
	}
}
