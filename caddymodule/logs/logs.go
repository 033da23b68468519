// Package logs bounds how long a request waits for a log line. Caddy's loggers wait for
// their outputs without limit, for example for a pipe whose reader has stalled. A line
// that its output does not take is lost: it is counted, and another line says so later.
// Start at Of.
package logs

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/mnemogate/mnemogate/flows/panics"
)

// patience is how long a line waits for the lines before it, and how long for its output.
const patience = time.Second

var (
	stuck  atomic.Int64 // lines whose output has taken longer than patience, and has not taken them yet
	lost   atomic.Uint64
	untold atomic.Int64 // lost lines that no later line has reported yet
)

// Stuck reports whether the output of a log has stalled.
func Stuck() bool { return stuck.Load() > 0 }

// Lost returns how many lines were lost since the process started.
func Lost() uint64 { return lost.Load() }

// Lose counts a line as lost.
func Lose() {
	lost.Add(1)
	untold.Add(1)
}

// SkipAccessLog loses the line of a request in Caddy's access log while lines are stuck,
// because the request would wait for it without limit. Call it at the end of a handler.
func SkipAccessLog(r *http.Request) {
	if !Stuck() || !HasAccessLog(r) {
		return
	}
	if skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool); !skip {
		caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
		Lose()
	}
}

// HasAccessLog reports whether Caddy's access log may have a line of the request.
func HasAccessLog(r *http.Request) bool {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return ok && server.Logs != nil
}

// AddToAccessLog adds fields to the line of a request in Caddy's access log.
func AddToAccessLog(r *http.Request, fields ...zap.Field) {
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		for _, field := range fields {
			extra.Add(field)
		}
	}
}

// Of returns the logger of the module that ctx provisions.
func Of(ctx caddy.Context, module ...caddy.Module) *zap.Logger {
	return ctx.Logger(module...).WithOptions(zap.WrapCore(NewGate().Bound))
}

// Slog is Of for log/slog.
func Slog(ctx caddy.Context) *slog.Logger {
	log := Of(ctx)
	const never = slog.Level(127) // a stack trace is logged where it is wanted
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName(log.Name()), zapslog.AddStacktraceAt(never)))
}

// A Gate lets lines pass one at a time. While one is stuck, the others are lost at once.
type Gate struct {
	turn  chan struct{} // holds a value while a line is written
	stuck atomic.Bool
}

// NewGate returns a Gate for the lines of one logger.
func NewGate() *Gate { return &Gate{turn: make(chan struct{}, 1)} }

// Stuck reports whether a line of the gate is stuck.
func (g *Gate) Stuck() bool { return g.stuck.Load() }

// Bound returns a core that writes the lines of another through the gate.
func (g *Gate) Bound(core zapcore.Core) zapcore.Core { return bounded{core, g} }

type bounded struct {
	zapcore.Core
	gate *Gate
}

// With implements zapcore.Core.
func (b bounded) With(fields []zapcore.Field) zapcore.Core {
	return bounded{b.Core.With(fields), b.gate}
}

// Check implements zapcore.Core.
func (b bounded) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if checked := b.Core.Check(e, nil); checked != nil {
		return to.AddCore(e, line{b, checked})
	}
	return to
}

// A line is one that the core logs.
type line struct {
	bounded
	checked *zapcore.CheckedEntry
}

// Write implements zapcore.Core. It returns no error: zap would write that to standard
// error, and wait for it without limit.
func (l line) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if l.gate.Stuck() {
		Lose()
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.gate.turn <- struct{}{}:
	case <-timer.C:
		Lose()
		return nil
	}
	written, late := make(chan struct{}), make(chan struct{})
	go func() {
		overdue := time.AfterFunc(patience, func() {
			l.gate.stuck.Store(true)
			stuck.Add(1)
			close(late)
		})
		ok := l.write(e, fields)
		if !overdue.Stop() {
			<-late
			stuck.Add(-1)
			l.gate.stuck.Store(false)
		}
		<-l.gate.turn
		close(written)
		if ok && !Stuck() {
			l.tell(e.LoggerName)
		}
	}()
	select {
	case <-written:
	case <-late:
	}
	return nil
}

func (l line) write(e zapcore.Entry, fields []zapcore.Field) (ok bool) {
	var failed strings.Builder
	l.checked.Entry, l.checked.ErrorOutput = e, zapcore.AddSync(&failed)
	err := panics.Contain(func() error { l.checked.Write(fields...); return nil })
	if ok = err == nil && failed.Len() == 0; !ok {
		Lose()
	}
	return ok
}

// tell logs how many lines were lost since it last did.
func (l line) tell(name string) {
	if n := untold.Swap(0); n > 0 {
		zap.New(l.bounded).Named(name).Warn("log lines were lost: the output of a log failed, or did not take them in time; make room, or see what has read it",
			zap.Int64("lines", n))
	}
}
