package record

import (
	"context"
	"sync/atomic"
	"time"
)

// storeTime is how long all calls of a request to stores may take together. It is less than
// the 2 s within which each request of a user is answered, even if the stores are slow. What
// can't be undone has this time again to be finished.
const storeTime = 1800 * time.Millisecond

type storeTimeKey struct{}

// WithStoreTime returns a context whose calls to stores may together take 1.8 s, or ctx
// itself if it already has this limit.
func WithStoreTime(ctx context.Context) context.Context {
	if ctx.Value(storeTimeKey{}) != nil {
		return ctx
	}
	left := new(atomic.Int64)
	left.Store(int64(storeTime))
	return context.WithValue(ctx, storeTimeKey{}, left)
}

// Detached returns a context for work that goes on although the client has hung up, or the time
// of its request is used up: because others wait for it, or what came before can't be undone.
func Detached(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), storeTimeKey{}, nil)
}

// spareStoreTime is for SpareStoreTime. With storeTime it is less than the 2 s.
const spareStoreTime = 150 * time.Millisecond

// SpareStoreTime gives a request that has used up its time some more, to take back what it has
// charged for work that was not done.
func SpareStoreTime(ctx context.Context) {
	if left, ok := ctx.Value(storeTimeKey{}).(*atomic.Int64); ok && left.Load() < int64(spareStoreTime) {
		left.Store(int64(spareStoreTime))
	}
}

// StoreContext is for stores whose servers may be slow. It returns the context of one
// call, which times out after limit, or sooner if the request has less of its time
// left. Call done when the call returns.
func StoreContext(ctx context.Context, limit time.Duration) (call context.Context, done func()) {
	left, ok := ctx.Value(storeTimeKey{}).(*atomic.Int64)
	if !ok { // not part of a request
		return context.WithTimeout(ctx, limit)
	}
	spent := SpendStoreTime(ctx)
	call, cancel := context.WithTimeout(ctx, min(limit, time.Duration(left.Load())))
	return call, func() {
		cancel()
		spent()
	}
}

// SpendStoreTime is for what waits for another call of a store. The time until done is called
// counts towards that of the request.
func SpendStoreTime(ctx context.Context) (done func()) {
	left, ok := ctx.Value(storeTimeKey{}).(*atomic.Int64)
	if !ok {
		return func() {}
	}
	began := time.Now()
	return func() { left.Add(-int64(time.Since(began))) }
}
