package background

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Warnings logs failures that may hit every request at once, such as an unreachable
// server. Of each kind of line it logs up to ten a second, and how many it omitted, so that a
// failure that strangers can repeat hides no other. Of all companies together, it logs ten
// times as many. It may be used concurrently. The zero value is ready to use.
type Warnings struct {
	mu    sync.Mutex
	kinds map[kind]*count
}

// A kind of lines is counted together.
type kind struct {
	what    string // a constant
	company string // empty for all
}

type count struct {
	began   int64 // when the first of the latest lines was, in Unix seconds
	written int
	omitted int
}

const (
	warningsASecond = 10
	mostKinds       = 10_000 // then all counts begin anew: strangers may have invented companies
)

// Warn logs a line, or counts it as omitted. If the line has a company, args begin with it.
func (w *Warnings) Warn(log *slog.Logger, message string, args ...any) {
	if args, ok := w.next(message, 1, warningsASecond, args); ok {
		log.Warn(message, args...)
	}
}

// WarnOfStrangers is Warn for what anyone can cause: it logs a line a minute of each company.
func (w *Warnings) WarnOfStrangers(log *slog.Logger, message string, args ...any) {
	if args, ok := w.next(message, 60, 1, args); ok {
		log.Warn(message, args...)
	}
}

// Unanswered warns if err is wire.ErrUnavailable, unless the client has hung up, and logs a
// panic. ctx is the request's. The line has the ref of err, if there is one.
func (w *Warnings) Unanswered(ctx context.Context, log *slog.Logger, err error, args ...any) {
	if ref := wire.RefOf(err); ref != "" {
		args = append(args, "ref", ref)
	}
	if p, ok := errors.AsType[*panics.Error](err); ok {
		p.Log(log, args...)
	} else if errors.Is(err, wire.ErrUnavailable) && !wire.HungUp(ctx, err) {
		if args, ok := w.next(wire.DoingOf(err), 1, warningsASecond, append(args, "error", err)); ok {
			log.Warn("a service did not answer", args...)
		}
	}
}

// next counts a line with args. It reports ok for most lines of its kind in so many seconds,
// which begin with the first of them, and adds to args how many were omitted before.
func (w *Warnings) next(what string, seconds int64, most int, args []any) (_ []any, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds == nil || len(w.kinds) >= mostKinds {
		w.kinds = map[kind]*count{}
	}
	of := kind{what: what}
	all := w.count(of)
	if len(args) > 0 && args[0] == "company" {
		of.company, _ = args[1].(string)
	}
	n, now := w.count(of), time.Now().Unix()
	if !n.take(now, seconds, most) || n != all && !all.take(now, seconds, 10*most) {
		n.omitted++
		return nil, false
	}
	if n.omitted > 0 {
		args = append(args, "omitted", n.omitted)
	}
	n.omitted = 0
	return args, true
}

func (w *Warnings) count(of kind) *count {
	n := w.kinds[of]
	if n == nil {
		n = new(count)
		w.kinds[of] = n
	}
	return n
}

// take counts a line, unless most were written in so many seconds.
func (n *count) take(now, seconds int64, most int) bool {
	if now < n.began || now >= n.began+seconds {
		n.began, n.written = now, 0
	}
	if n.written >= most {
		return false
	}
	n.written++
	return true
}
