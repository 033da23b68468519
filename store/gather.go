package store

import (
	"context"
	"sync"
)

// A gather lets calls share round trips to a server: while as many are under way as
// may be, further calls wait, and the next takes all that do. A call that finds fewer
// under way begins at once, so on a quiet server none waits for another.
type gather[T any] struct {
	atOnce int
	send   func([]T) // makes a round trip, and leaves in each call what came of it

	mu       sync.Mutex
	underWay int
	waiting  *crowd[T] // nil if no call waits
}

// A crowd is the calls of one round trip.
type crowd[T any] struct {
	calls []T
	done  chan struct{} // closed once they are answered
}

// do has a call made. If ctx ends first it returns ctx's error, and nobody may look at
// the call any more.
func (g *gather[T]) do(ctx context.Context, call T) error {
	done := g.join(call)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns what is closed once the call is answered.
func (g *gather[T]) join(call T) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < g.atOnce {
		g.underWay++
		c := &crowd[T]{[]T{call}, make(chan struct{})}
		go g.run(c)
		return c.done
	}
	if g.waiting == nil {
		g.waiting = &crowd[T]{done: make(chan struct{})}
	}
	g.waiting.calls = append(g.waiting.calls, call)
	return g.waiting.done
}

// run makes a round trip, and further ones for as long as calls wait.
func (g *gather[T]) run(c *crowd[T]) {
	for c != nil {
		g.send(c.calls)
		close(c.done)
		c = g.next()
	}
}

func (g *gather[T]) next() *crowd[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.waiting
	g.waiting = nil
	if c == nil {
		g.underWay--
	}
	return c
}
