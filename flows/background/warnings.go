package background

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// Warnings tell of what may happen to every request at once, as when a server is
// away: ten lines a second, and how many were left out. It may be used
// concurrently; its zero value is ready.
type Warnings struct {
	mu      sync.Mutex
	second  int64 // in which lines were written
	written int
	omitted int
}

const warningsASecond = 10

// Warn writes a line, or counts it.
func (w *Warnings) Warn(log *slog.Logger, message string, args ...any) {
	if omitted, ok := w.next(time.Now().Unix()); ok {
		if omitted > 0 {
			args = append(args, "omitted", omitted)
		}
		log.Warn(message, args...)
	}
}

// Unanswered warns if err is wire.ErrUnavailable, unless because the client has left.
func (w *Warnings) Unanswered(log *slog.Logger, err error, args ...any) {
	if errors.Is(err, wire.ErrUnavailable) && !errors.Is(err, context.Canceled) {
		w.Warn(log, "a service did not answer", append(args, "error", err)...)
	}
}

func (w *Warnings) next(second int64) (omitted int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if second != w.second {
		w.second, w.written = second, 0
	}
	if w.written == warningsASecond {
		w.omitted++
		return 0, false
	}
	w.written++
	omitted, w.omitted = w.omitted, 0
	return omitted, true
}
