package recordtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A Tape records the calls of a feed.
type Tape struct {
	mu       sync.Mutex
	ended    map[record.TokenHash]time.Time
	accounts []record.Revocation
	flushes  int
	until    time.Time
	leased   bool // until the lease is ended; it may be over
	flushed  bool // since the lease was last extended
	unsound  atomic.Bool
	Panics   atomic.Bool // in Ended
}

// Ended implements record.Feed.
func (f *Tape) Ended(h record.TokenHash) {
	if f.Panics.Load() {
		panic("hunter2")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = map[record.TokenHash]time.Time{}
	}
	f.ended[h] = time.Now()
}

// EndedAll implements record.Feed.
func (f *Tape) EndedAll(e record.Revocation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accounts = append(f.accounts, e)
}

// Flush implements record.Feed.
func (f *Tape) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushes++
	f.flushed = true
}

// SetLease implements record.Feed.
func (f *Tape) SetLease(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until.IsZero() {
		f.leased = false
	} else if time.Now().Before(until) {
		if !f.leased && !f.flushed {
			f.unsound.Store(true)
		}
		f.leased, f.flushed = true, false
	}
	f.until = until
}

// Trusted reports whether the feed has a lease.
func (f *Tape) Trusted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until)
}

// LookedAt reports whether the lease is that of a look at the store after a time.
func (f *Tape) LookedAt(after time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until.After(after.Add(record.FeedLease))
}

// Flushes returns how often the feed was flushed.
func (f *Tape) Flushes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flushes
}

// Hears reports whether a session's end was received.
func (f *Tape) Hears(h record.TokenHash) bool { return !f.HeardAt(h).IsZero() }

// HeardAt returns when a session's end was received.
func (f *Tape) HeardAt(h record.TokenHash) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended[h]
}

// HearsAccount reports whether a revocation was received.
func (f *Tape) HearsAccount(e record.Revocation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.accounts, e)
}

// Ends returns how many ends and revocations were received.
func (f *Tape) Ends() int { return len(f.ended) + len(f.accounts) }

// ListenTo runs a feed until the test ends. It returns when the feed has a lease.
func ListenTo(t *testing.T, r interface {
	Run(context.Context, record.Feed)
}) *Tape {
	t.Helper()
	f := &Tape{}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, f)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if f.Trusted() {
			t.Error("a feed that has ended is trusted")
		}
		if f.unsound.Load() {
			t.Error("the feed was trusted again without having been flushed")
		}
	})
	Soon(t, "trust", f.Trusted)
	return f
}

// Soon waits until is returns true, which must be soon.
func Soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	storetest.Eventually(t, 5*time.Second, what, is)
}
