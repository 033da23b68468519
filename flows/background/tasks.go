// Package background does what no request waits for: a Relay delivers the events of the
// outbox, a Recorder stores what happened to them, a Sweeper clears away what
// is kept no longer, and Tasks send messages beside the requests that they come from.
//
// OutboxEvents makes the outbox events of an event, which a store keeps with the change.
// Whatever fails is logged, by Warnings where it may fail for every request at once,
// and tried again, and no panic ends the process.
package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
)

const (
	maxTasks  = 256              // at once, of a company's notices and of its other messages
	taskLimit = 30 * time.Second // for each
)

// A Task sends a message that no request waits for.
type Task struct {
	Company   string
	Mnemocode string // of the recipient's account
	Type      string // the message.Message's
	Send      func(context.Context) error
}

// A queue is whose tasks are counted together: no company takes another's slots, and
// neither notices nor codes take those of the other.
type queue struct {
	company string
	notices bool
}

// Tasks runs each Task beside the request that began it, and waits for all of them
// at the end. The zero value is ready.
type Tasks struct {
	all     sync.WaitGroup
	mu      sync.Mutex    // guards the two below
	waiting map[queue]int // how many are under way, at most maxTasks each
	closed  bool
}

// Do begins a task, whose error is logged, or returns why the task is dropped.
func (t *Tasks) Do(log *slog.Logger, task Task) error {
	q := queue{task.Company, message.IsNotice(task.Type)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errors.New("the configuration has been replaced, or Caddy is stopping")
	}
	if t.waiting[q] == maxTasks {
		return fmt.Errorf("%d messages of the company wait for its gateway already; find out why the gateway is slow", maxTasks)
	}
	if t.waiting == nil {
		t.waiting = map[queue]int{}
	}
	t.waiting[q]++
	t.all.Go(func() {
		defer func() {
			t.mu.Lock()
			t.waiting[q]--
			t.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), taskLimit)
		defer cancel()
		err := panics.Contain(func() error { return task.Send(ctx) })
		if p, ok := errors.AsType[*panics.Error](err); ok {
			p.Log(log, "doing", "sending a message", "company", task.Company, "account", task.Mnemocode, "type", task.Type)
		} else if err != nil {
			log.Warn("a message was not sent", "company", task.Company, "account", task.Mnemocode, "type", task.Type, "error", err)
		}
	})
	return nil
}

// Waiting returns how many tasks are under way.
func (t *Tasks) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, waiting := range t.waiting {
		n += waiting
	}
	return n
}

// Close waits until all tasks have ended. Later ones are dropped.
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
