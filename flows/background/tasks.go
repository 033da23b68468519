// Package background does the work that no request waits for. A Relay delivers the events
// of the outbox, a Recorder stores the history of accounts, and Tasks send messages in the
// background.
//
// OutboxEvents converts an event to outbox events; a store keeps them with the change.
// Every failure is logged, and most work is tried again; of messages, only notices. Failures
// that may hit every request at once are logged through Warnings. No panic ends the
// process.
package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	maxTasks   = 256              // at once, for a company's notices and for its other messages
	maxNotices = 16               // of these, for one account, whose user can cause any number
	taskLimit  = 75 * time.Second // per task: longer than any sender's timeout, which is at most a minute

	noticeLimit = 10 * time.Minute // per notice, with all attempts to send it
)

// A Task sends a message that no request waits for.
type Task struct {
	Company   string
	Mnemocode string // of the recipient's account
	Type      string // the message.Message's
	Send      func(context.Context) error
}

// A queue identifies tasks that are counted together. Each company has its own limits, and
// separate ones for notices and for other messages.
type queue struct {
	company string
	notices bool
}

// An owner identifies the account whose notices are counted together.
type owner struct{ company, mnemocode string }

// Tasks runs each Task in the background. Close waits for all of them. The zero value is
// ready to use.
type Tasks struct {
	all     sync.WaitGroup
	mu      sync.Mutex    // guards the fields below
	waiting map[queue]int // tasks in progress, at most maxTasks each
	notices map[owner]int // notices among them, at most maxNotices each
	closed  bool
	closing chan struct{} // closed by Close; nil before the first task
}

// Do starts a task and logs its error. If the task is dropped, Do returns the reason. The
// task gets the values of ctx, such as the trace of the request that caused it, but has
// its own time limit for stores, and goes on when ctx ends.
func (t *Tasks) Do(ctx context.Context, log *slog.Logger, task Task) error {
	q, to := queue{task.Company, message.IsNotice(task.Type)}, owner{task.Company, task.Mnemocode}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errors.New("the configuration has been replaced, or the server is stopping")
	}
	if t.waiting[q] == maxTasks {
		return fmt.Errorf("%d messages of the company wait for its gateway already; find out why the gateway is slow", maxTasks)
	}
	if q.notices && t.notices[to] == maxNotices {
		return fmt.Errorf("%d notices to the account wait for the company's gateway already", maxNotices)
	}
	if t.waiting == nil {
		t.waiting, t.notices, t.closing = map[queue]int{}, map[owner]int{}, make(chan struct{})
	}
	limit := taskLimit
	if q.notices {
		limit = noticeLimit
	}
	t.count(q, to, 1)
	t.all.Go(func() {
		defer func() {
			t.mu.Lock()
			t.count(q, to, -1)
			t.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(record.Detached(ctx), limit)
		defer cancel()
		err := panics.Contain(func() error { return task.Send(ctx) })
		if p, ok := errors.AsType[*panics.Error](err); ok {
			p.Log(log, "doing", "sending a message", "company", task.Company, "mnemocode", task.Mnemocode, "type", task.Type)
		} else if err != nil {
			log.Warn("a message was not sent", "company", task.Company, "mnemocode", task.Mnemocode, "type", task.Type, "error", err)
		}
	})
	return nil
}

// count adds n tasks in progress.
func (t *Tasks) count(q queue, to owner, n int) {
	t.waiting[q] += n
	if !q.notices {
		return
	}
	if t.notices[to] += n; t.notices[to] == 0 {
		delete(t.notices, to)
	}
}

// Waiting returns the number of tasks in progress.
func (t *Tasks) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, waiting := range t.waiting {
		n += waiting
	}
	return n
}

// Pause waits within a task. It returns false if the next attempt is the last, because Close
// was called, or ctx has ended.
func (t *Tasks) Pause(ctx context.Context, until <-chan time.Time) bool {
	select {
	case <-until:
		return true
	case <-t.closing:
	case <-ctx.Done():
	}
	return false
}

// Close waits until all tasks have finished. Those that pause make a last attempt. Later
// tasks are dropped.
func (t *Tasks) Close() {
	t.mu.Lock()
	if !t.closed && t.closing != nil {
		close(t.closing)
	}
	t.closed = true
	t.mu.Unlock()
	t.all.Wait()
}

// Failures counts the failures of Maintain in this process. LastFailure is the last one,
// or nil.
var (
	Failures    atomic.Uint64
	LastFailure atomic.Pointer[Failure]
)

// A Failure is one of Maintain.
type Failure struct {
	At    time.Time
	Doing string
	Err   error
}

// failed counts the failures of each piece of work of Maintain.
var failed Warnings

// Maintain runs a recurring piece of work. It logs, counts and returns its error. That the
// work was canceled, because the configuration is replaced, is no failure. A store may take
// no writes for days, because the disk of the log is full, too. So of each piece of work,
// one failure is logged in 10 s, and how many were omitted.
func Maintain(log *slog.Logger, doing string, do func() error) error {
	err := panics.Contain(do)
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	Failures.Add(1)
	LastFailure.Store(&Failure{time.Now(), doing, err})
	what := doing
	p, panicked := errors.AsType[*panics.Error](err)
	if panicked {
		what += ", panic"
	}
	args, ok := failed.next(what, 10, 1, []any{"doing", doing})
	if !ok {
		return err
	}
	if panicked {
		p.Log(log, args...)
	} else {
		log.Warn("maintenance failed; it will be retried", append(args, "error", err)...)
	}
	return err
}
