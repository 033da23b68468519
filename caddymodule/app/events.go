package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A watcher receives every record.Event of a config. It counts the event, writes it
// to the audit log and passes it to the handlers of Caddy's events app.
//
// The audit log is the logger mnemogate.audit. Each event is one line, with the
// event's name as the message; flows.EventKinds lists the names and their fields.
// docs/monitoring.md shows how to give the lines a file of their own.
//
// Handlers run one after another and outside of requests, so that a handler can't
// slow down a login. A handler that is too slow misses events
// (mnemogate_events_dropped_total); the audit log contains all events.
type watcher struct {
	ctx    caddy.Context
	log    *slog.Logger
	audit  *zap.Logger
	queue  chan record.Event
	ready  atomic.Bool      // events is set and may be read
	events *caddyevents.App // nil if the config has no events app
	done   chan struct{}    // closed when no more is emitted
}

const (
	eventQueue = 1024
	drainFor   = time.Second // when the config ends
)

func newWatcher(ctx caddy.Context) *watcher {
	return &watcher{ctx: ctx, log: logs.Slog(ctx), audit: logs.Of(ctx).Named("audit"), queue: make(chan record.Event, eventQueue), done: make(chan struct{})}
}

// observe implements session.Config.Observe.
func (w *watcher) observe(ctx context.Context, e record.Event) {
	countEvent(e)
	if w.ctx.Err() != nil { // the request outlives its config
		if app := Running(); app != nil {
			w = app.watcher
		}
	}
	if line := w.audit.Check(zapcore.InfoLevel, e.Name); line != nil {
		line.Write(zap.Inline(auditLine(e)), traceID(ctx))
	}
	if w.ready.Load() && !w.wanted(e.Name) {
		return
	}
	select {
	case w.queue <- e:
	default:
		eventsDropped.Inc()
	}
}

// traceID returns the field of an audit line that names the request's trace, if it has
// one.
func traceID(ctx context.Context) zap.Field {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return zap.Stringer("trace_id", span.TraceID())
	}
	return zap.Skip()
}

// An auditLine is an event in the form of an audit log entry.
type auditLine record.Event

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (l auditLine) MarshalLogObject(fields zapcore.ObjectEncoder) error {
	eachField(record.Event(l), func(name string, value any) { zap.Any(name, value).AddTo(fields) })
	return nil
}

// eachField calls f with each field of the event that is set, except name and time.
func eachField(e record.Event, f func(name string, value any)) {
	for _, field := range [...]struct{ name, value string }{
		{"company", e.Company},
		{"mnemocode", e.Mnemocode},
		{"session", e.Session},
		{"state", string(e.State)},
		{"address", e.Address},
		{"user_agent", e.UserAgent},
		{"key", e.Key},
		{"actor", e.Actor},
		{"country", e.Country},
		{"gateway", e.Gateway},
		{"route", e.Route},
		{"result", e.Result},
		{"reason", e.Reason},
		{"ref", e.Ref},
		{"factor", e.Factor},
		{"previous_mnemocode", e.Previous},
	} {
		if field.value != "" {
			f(field.name, field.value)
		}
	}
	if t := e.Traffic; t != nil {
		f("attempts", t.Attempts)
		f("accounts", t.Accounts)
		f("failures", t.Failures)
		f("logins", t.Logins)
	}
}

// wanted reports whether a handler is subscribed to events with this name.
func (w *watcher) wanted(name string) bool { return w.events != nil && w.events.ShouldEmit(name) }

// run emits observed events until ctx ends. Call it when the config runs. If a handler still
// runs drainFor after the end of ctx, its own context ends. Otherwise that never ends, so
// that commands that handlers have started in the background can finish.
func (w *watcher) run(ctx context.Context) {
	if events, err := w.ctx.AppIfConfigured("events"); err == nil {
		w.events = events.(*caddyevents.App)
	}
	w.ready.Store(true)
	handling, cancel := context.WithCancel(context.WithoutCancel(w.ctx.Context)) // Caddy drops events after the config has ended
	context.AfterFunc(ctx, func() {
		time.AfterFunc(drainFor, func() {
			select {
			case <-w.done:
			default:
				cancel()
			}
		})
	})
	sampling := time.NewTicker(sampleEvery / 8)
	defer sampling.Stop()
	for {
		select {
		case e := <-w.queue:
			w.emit(handling, e)
		case <-sampling.C:
			sampleMetrics()
		case <-ctx.Done():
			w.drain(handling)
			return
		}
	}
}

// wait waits until run has ended, for at most drainFor: a handler may never return.
func (w *watcher) wait() {
	select {
	case <-w.done:
	case <-time.After(drainFor):
	}
}

// drain emits the events that are still queued at the end, until ctx ends.
func (w *watcher) drain(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case e := <-w.queue:
			w.emit(ctx, e)
		default:
			return
		}
	}
	eventsDropped.Add(float64(len(w.queue)))
}

func (w *watcher) emit(handling context.Context, e record.Event) {
	if !w.wanted(e.Name) {
		return
	}
	data := map[string]any{"time": e.Time}
	eachField(e, func(name string, value any) { data[name] = value })
	ctx := w.ctx
	ctx.Context = handling
	_ = panics.ContainLogged(w.log, "handling the event "+e.Name, func() error { w.events.Emit(ctx, e.Name, data); return nil })
}
