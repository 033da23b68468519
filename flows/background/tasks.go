// Package background does what no request waits for: a Relay delivers what is to be
// told of accounts, a Recorder stores what happened to them, a Sweeper clears away what
// is kept no longer, and Tasks send messages beside the requests that they come from.
//
// What is told of a change is a Fact; Tell hands it to the store with the change.
// Whatever fails is logged, by Warnings where it may fail for every request at once,
// and tried again, and no panic ends the process.
package background

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
)

const (
	maxTasks  = 256              // at once
	taskLimit = 30 * time.Second // for each
)

// Tasks are done beside the requests that began them, and waited for at the end. The
// zero value is ready.
type Tasks struct {
	all     sync.WaitGroup
	mu      sync.Mutex // guards the two below
	waiting int        // how many are under way
	closed  bool
}

// Do does something that no request waits for, and logs its error. When too much
// of it is under way it is not done.
func (t *Tasks) Do(log *slog.Logger, doing string, do func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.waiting == maxTasks {
		log.Warn("a message was not sent: too many wait for their gateways, or the service ends", "waiting", t.waiting)
		return
	}
	t.waiting++
	t.all.Go(func() {
		defer func() {
			t.mu.Lock()
			t.waiting--
			t.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), taskLimit)
		defer cancel()
		err := panics.Contain(func() error { return do(ctx) })
		if p, ok := errors.AsType[*panics.Error](err); ok {
			p.Log(log, "doing", doing)
		} else if err != nil {
			log.Warn("what no request waited for has failed", "doing", doing, "error", err)
		}
	})
}

// Waiting returns how many are under way.
func (t *Tasks) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// Close waits for those under way. What comes after is not done.
func (t *Tasks) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.all.Wait()
}

// Maintain does what is done again and again, and logs its error, which it returns.
func Maintain(log *slog.Logger, doing string, do func() error) error {
	err := panics.Contain(do)
	if p, ok := errors.AsType[*panics.Error](err); ok {
		p.Log(log, "doing", doing)
	} else if err != nil && err != context.Canceled {
		log.Warn("maintenance failed and will be tried again", "doing", doing, "error", err)
	}
	return err
}
