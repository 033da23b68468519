package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A watcher is told of every record.Event of a config. It counts it, writes it to
// the audit log and hands it to whoever listens in Caddy's events app.
//
// The audit log is the logger mnemogate.audit, a line for each event with its
// name as the message; flows.EventKinds lists the names and their fields. It is
// part of Caddy's log until it is given a file of its own:
//
//	{
//		log audit {
//			include mnemogate.audit
//			output file /var/log/mnemogate/audit.log
//			format json
//		}
//	}
//
// With the events app a module of the namespace events.handlers gets them, all
// or those of a name:
//
//	{
//		events {
//			on mnemogate.lock.disabled <handler>
//		}
//	}
//
// Handlers run one after another behind the requests, so that none can slow a
// login. One that is too slow misses events (mnemogate_events_dropped_total);
// the audit log has them all.
type watcher struct {
	ctx     caddy.Context
	log     *slog.Logger
	audit   *zap.Logger
	queue   chan record.Event
	settled atomic.Bool      // who listens; set behind events
	events  *caddyevents.App // nil if nobody does
}

const (
	eventQueue = 1024
	drainFor   = time.Second // at the end
)

func newWatcher(ctx caddy.Context) *watcher {
	return &watcher{ctx: ctx, log: ctx.Slogger(), audit: ctx.Logger().Named("audit"), queue: make(chan record.Event, eventQueue)}
}

// observe is flows.Service.Observe.
func (w *watcher) observe(_ context.Context, e record.Event) {
	countEvent(e)
	if line := w.audit.Check(zapcore.InfoLevel, e.Name); line != nil {
		line.Write(zap.Inline(auditLine(e)))
	}
	if w.settled.Load() && !w.wanted(e.Name) {
		return
	}
	select {
	case w.queue <- e:
	default:
		eventsDropped.Inc()
	}
}

// An auditLine is an event as a line of the audit log.
type auditLine record.Event

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (l auditLine) MarshalLogObject(fields zapcore.ObjectEncoder) error {
	eachField(record.Event(l), func(name string, value any) { zap.Any(name, value).AddTo(fields) })
	return nil
}

// eachField calls f with each field that the event has, beside name and time.
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
		{"route", e.Route},
		{"result", e.Result},
		{"reason", e.Reason},
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

// wanted reports whether anyone listens to events of a name.
func (w *watcher) wanted(name string) bool { return w.events != nil && w.events.ShouldEmit(name) }

// run emits what is observed, until ctx ends. It begins once the config runs:
// before, its other modules may still subscribe.
func (w *watcher) run(ctx context.Context, app *App) {
	for !w.settle(app) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	for {
		select {
		case e := <-w.queue:
			w.emit(e)
		case <-ctx.Done():
			w.drain()
			return
		}
	}
}

// settle looks up who listens, once the config of app runs.
func (w *watcher) settle(app *App) bool {
	active := caddy.ActiveContext()
	if appOf(active) != app {
		return false
	}
	if events, err := active.AppIfConfigured("events"); err == nil {
		w.events = events.(*caddyevents.App)
	}
	w.settled.Store(true)
	return true
}

// drain emits what was observed before the end.
func (w *watcher) drain() {
	end := time.Now().Add(drainFor)
	for time.Now().Before(end) {
		select {
		case e := <-w.queue:
			w.emit(e)
		default:
			return
		}
	}
	eventsDropped.Add(float64(len(w.queue)))
}

func (w *watcher) emit(e record.Event) {
	if !w.wanted(e.Name) {
		return
	}
	data := map[string]any{"time": e.Time}
	eachField(e, func(name string, value any) { data[name] = value })
	ctx := w.ctx
	ctx.Context = context.WithoutCancel(ctx.Context) // Caddy drops what comes after the config's end
	_ = panics.ContainLogged(w.log, "handling the event "+e.Name, func() error { w.events.Emit(ctx, e.Name, data); return nil })
}

// running is the app of the config that runs, nil if none does. It is not the
// one that was provisioned last if that failed.
func running() *App { return appOf(caddy.ActiveContext()) }

func appOf(ctx caddy.Context) *App {
	app, err := ctx.AppIfConfigured("mnemogate")
	if err != nil {
		return nil
	}
	return app.(*App)
}
