package store

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
)

// A gather lets calls to a server share round trips. With few under way a call begins
// one; before that leaves it lets go first whatever the CPU could run at once, so that on
// a busy machine others come along, and on a quiet one none waits. Other calls wait, and
// the next round trip takes those that do, the first that came first: when one is back,
// or patience after the last has left.
type gather[T any] struct {
	few      int // with fewer under way, a call begins another
	atOnce   int // no more than these are under way
	patience time.Duration
	most     int             // calls of a round trip
	send     func([]T) error // makes one, and leaves in each call what came of it

	mu       sync.Mutex
	underWay int
	leaving  bool        // one has begun, and none has left since
	left     time.Time   // the last
	waking   bool        // wake will be called
	waiting  []*crowd[T] // all but the last are full
}

// A crowd is the calls of one round trip.
type crowd[T any] struct {
	calls []T
	done  chan struct{} // closed once they are answered
	err   error         // why none was
}

// do has a call made. The error is send's, for all calls of a round trip. If ctx ends
// first it is ctx's, and nobody may look at the call any more.
func (g *gather[T]) do(ctx context.Context, call T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := g.join(call)
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns the crowd that the call waits with.
func (g *gather[T]) join(call T) *crowd[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.waiting) - 1
	if last < 0 || len(g.waiting[last].calls) == g.most {
		g.waiting = append(g.waiting, &crowd[T]{done: make(chan struct{})})
		last++
	}
	c := g.waiting[last]
	c.calls = append(c.calls, call)
	switch soon := g.patience - time.Since(g.left); {
	case g.underWay < g.few, g.underWay < g.atOnce && soon <= 0:
		g.begin()
	case g.underWay < g.atOnce && !g.waking:
		g.waking = true
		time.AfterFunc(soon, g.wake)
	}
	return c
}

// begin begins a round trip, unless one is about to leave.
func (g *gather[T]) begin() {
	if g.leaving {
		return
	}
	g.underWay++
	g.leaving = true
	go g.run()
}

// wake begins a round trip if calls still wait.
func (g *gather[T]) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waking = false
	if len(g.waiting) > 0 && g.underWay < g.atOnce {
		g.begin()
	}
}

// run makes round trips for as long as calls wait. No panic ends the process.
func (g *gather[T]) run() {
	runtime.Gosched()
	for c := g.next(); c != nil; c = g.next() {
		c.err = panics.Contain(func() error { return g.send(c.calls) })
		close(c.done)
	}
}

func (g *gather[T]) next() *crowd[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaving = false
	if len(g.waiting) == 0 {
		g.underWay--
		return nil
	}
	g.left = time.Now()
	c := g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	return c
}
