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
	began   int64 // when the first of the latest lines was, in Unix seconds
	written int
	omitted int
}

const warningsASecond = 10

// Warn logs a line, or counts it as omitted.
func (w *Warnings) Warn(log *slog.Logger, message string, args ...any) {
	if args, ok := w.next(1, warningsASecond, args); ok {
		log.Warn(message, args...)
	}
}

// WarnOfStrangers is Warn for what anyone can cause: it logs a line a minute.
func (w *Warnings) WarnOfStrangers(log *slog.Logger, message string, args ...any) {
	if args, ok := w.next(60, 1, args); ok {
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

// next counts a line with args. It reports ok for most lines in so many seconds, which begin with
// the first of them, and adds to args how many were omitted before.
func (w *Warnings) next(seconds int64, most int, args []any) (_ []any, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().Unix()
	if now < w.began || now >= w.began+seconds {
		w.began, w.written = now, 0
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
