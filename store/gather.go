package store

import (
	"context"
	"slices"
	"sync"
)

// A gather lets calls to a server share round trips: while as many are under way as
// may be, further calls wait, and the next takes those that do, the first that came
// first. A call that finds fewer under way begins at once, so on a quiet server none
// waits for another.
type gather[T any] struct {
	atOnce int       // round trips under way
	most   int       // calls of one
	send   func([]T) // makes a round trip, and leaves in each call what came of it

	mu       sync.Mutex
	underWay int
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
	if g.underWay < g.atOnce {
		g.underWay++
		c := &crowd[T]{[]T{call}, make(chan struct{})}
		go g.run(c)
		return c.done
	}
	last := len(g.waiting) - 1
	if last < 0 || len(g.waiting[last].calls) == g.most {
		g.waiting = append(g.waiting, &crowd[T]{done: make(chan struct{})})
		last++
	}
	g.waiting[last].calls = append(g.waiting[last].calls, call)
	return g.waiting[last].done
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
	if len(g.waiting) == 0 {
		g.underWay--
		return nil
	}
	c := g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	return c
}
