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
// server. It logs up to ten lines a second, and how many it omitted. It may be used
// concurrently. The zero value is ready to use.
type Warnings struct {
	mu      sync.Mutex
	period  int64 // of the latest lines, as a number that grows with time
	written int
	omitted int
}

const warningsASecond = 10

// Warn logs a line, or counts it as omitted.
func (w *Warnings) Warn(log *slog.Logger, message string, args ...any) {
	if args, ok := w.next(time.Now().Unix(), warningsASecond, args); ok {
		log.Warn(message, args...)
	}
}

// WarnOfStrangers is Warn for what anyone can cause: it logs a line a minute.
func (w *Warnings) WarnOfStrangers(log *slog.Logger, message string, args ...any) {
	if args, ok := w.next(time.Now().Unix()/60, 1, args); ok {
		log.Warn(message, args...)
	}
}

// Unanswered warns if err is wire.ErrUnavailable, unless the client has disconnected, and logs
// a panic. The line has the ref of err, if there is one.
func (w *Warnings) Unanswered(log *slog.Logger, err error, args ...any) {
	if ref := wire.RefOf(err); ref != "" {
		args = append(args, "ref", ref)
	}
	if p, ok := errors.AsType[*panics.Error](err); ok {
		p.Log(log, args...)
	} else if errors.Is(err, wire.ErrUnavailable) && !errors.Is(err, context.Canceled) {
		w.Warn(log, "a service did not answer", append(args, "error", err)...)
	}
}

// next counts a line with args. In each period, it reports ok for the first lines, up to most,
// and adds to args how many were omitted before.
func (w *Warnings) next(period int64, most int, args []any) (_ []any, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if period != w.period {
		w.period, w.written = period, 0
	}
	if w.written == most {
		w.omitted++
		return nil, false
	}
	w.written++
	if w.omitted > 0 {
		args = append(args, "omitted", w.omitted)
	}
	w.omitted = 0
	return args, true
}
