package app

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A handler that hangs holds up nobody who logs in: it misses events, and the
// audit log does not.
func TestSlowEventHandlersHoldUpNobody(t *testing.T) {
	core, audit := observer.New(zapcore.InfoLevel)
	w := &watcher{ctx: caddy.Context{Context: t.Context()}, audit: zap.New(core), queue: make(chan record.Event, eventQueue), events: new(caddyevents.App)}
	const n = eventQueue + 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			w.observe(t.Context(), record.Event{Name: "mnemogate.login.failure", Company: "acme"})
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it blocks")
	}
	if audit.Len() != n || len(w.queue) != eventQueue {
		t.Errorf("%d of %d are in the audit log, %d wait", audit.Len(), n, len(w.queue))
	}
}

// Where nobody listens an event costs no more than its counting.
func TestNothingIsBuiltWhereNobodyListens(t *testing.T) {
	w := &watcher{ctx: caddy.Context{Context: t.Context()}, audit: zap.NewNop(), queue: make(chan record.Event)}
	w.ready.Store(true)
	e := record.Event{Name: "mnemogate.login.failure", Company: "acme", Result: "auth.loginid.notfound"}
	if n := testing.AllocsPerRun(1000, func() { w.observe(t.Context(), e) }); n != 0 {
		t.Errorf("an event that nobody wants costs %v allocations", n)
	}
}
