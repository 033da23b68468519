package store

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A gather lets calls to a server share round trips. A call that finds few under way
// begins one; before that leaves it lets go first whatever the CPU could run at once,
// so that on a busy machine others come along, and on a quiet one none waits. Other calls
// wait, and the next round trip takes those that do, the first that came first: when one
// is back, or with a call that finds that none left lately.
type gather[T any] struct {
	few      int           // round trips under way; more are
	atOnce   int           // under way at most,
	patience time.Duration // and leave so long after the last
	most     int           // calls of one
	send     func([]T)     // makes a round trip, and leaves in each call what came of it

	mu       sync.Mutex
	underWay int
	leaving  bool        // one is under way that has not left
	left     time.Time   // the last
	waiting  []*crowd[T] // all but the last are full
}

// A crowd is the calls of one round trip.
type crowd[T any] struct {
	calls []T
	done  chan struct{} // closed once they are answered
}

// do has a call made. If ctx ends first it returns ctx's error, and nobody may look at
// the call any more.
func (g *gather[T]) do(ctx context.Context, call T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-g.join(call):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns what is closed once the call is answered.
func (g *gather[T]) join(call T) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.waiting) - 1
	if last < 0 || len(g.waiting[last].calls) == g.most {
		g.waiting = append(g.waiting, &crowd[T]{done: make(chan struct{})})
		last++
	}
	c := g.waiting[last]
	c.calls = append(c.calls, call)
	if !g.leaving && (g.underWay < g.few || g.underWay < g.atOnce && time.Since(g.left) >= g.patience) {
		g.underWay++
		g.leaving = true
		go g.run()
	}
	return c.done
}

// run makes round trips for as long as calls wait.
func (g *gather[T]) run() {
	runtime.Gosched()
	for c := g.next(); c != nil; c = g.next() {
		g.send(c.calls)
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
