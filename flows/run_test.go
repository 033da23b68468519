package flows_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// Pending revocations are carried out even while a sweep takes long.
func TestARevocationWaitsForNoSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowlySwept{swept: make(chan struct{})}
		s := &flows.Service{Manager: session.New(&session.Config{Accounts: owingAccounts{slowlySwept: st}, Sessions: sweptSessions{slowlySwept: st}, Log: slog.New(slog.DiscardHandler), Now: time.Now})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		time.Sleep(2 * time.Minute)
		if !st.sweeping.Load() {
			t.Fatal("nothing is swept after two minutes")
		}
		st.pending.Store(true)
		time.Sleep(5 * time.Second)
		if st.pending.Load() {
			t.Error("what is pending is not revoked within 5 s")
		}
		close(st.swept)
		cancel()
		<-done
	})
}

// A revocation that a request is just carrying out is left to it.
func TestOnlyWhatStaysPendingIsRevokedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowlySwept{swept: make(chan struct{})}
		close(st.swept)
		sessions := &slowlyRevoked{}
		s := &flows.Service{Manager: session.New(&session.Config{Accounts: owingAccounts{slowlySwept: st}, Sessions: sessions, Log: slog.New(slog.DiscardHandler), Now: time.Now})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		time.Sleep(time.Second)
		for range 3 {
			st.pending.Store(true)
			time.Sleep(2 * time.Second) // there is a tick in between
			st.pending.Store(false)
			time.Sleep(2 * time.Second)
		}
		if n := sessions.revoked.Load(); n != 0 {
			t.Errorf("%d were taken from their requests", n)
		}
		cancel()
		<-done
	})
}

// A reload interrupts a sweep. That is no failure.
func TestAnInterruptedSweepIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &flows.Service{Manager: session.New(&session.Config{Accounts: interrupted{}, Sessions: interruptedSessions{}, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now})}
		ctx, reload := context.WithCancel(t.Context())
		time.AfterFunc(80*time.Second, reload)
		before := background.Failures.Load()
		s.Run(ctx)
		if failures := background.Failures.Load() - before; failures != 0 || log.Len() != 0 {
			t.Errorf("%d failures: %s", failures, log.String())
		}
	})
}

// An interrupted store sweeps until its context ends.
type interrupted struct{ noEvents }

func (interrupted) PendingRevocations(context.Context, record.Revocation, int) ([]record.Revocation, error) {
	return nil, nil
}

func (interrupted) Sweep(ctx context.Context, _ time.Time) error {
	<-ctx.Done()
	return fmt.Errorf("sweeping: %w", ctx.Err())
}

type interruptedSessions struct{ record.Sessions }

func (interruptedSessions) Sweep(ctx context.Context, now time.Time) error {
	return interrupted{}.Sweep(ctx, now)
}

// A reload waits for the revocations in progress only.
func TestPendingRevocationsEndWithTheirConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := &slowlyRevoked{}
		s := &flows.Service{Manager: session.New(&session.Config{Accounts: owingMany{}, Sessions: sessions, Log: slog.New(slog.DiscardHandler), Now: time.Now})}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := s.RevokePending(ctx, late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took, n := time.Since(began), sessions.revoked.Load(); took != 200*time.Millisecond || n == 0 || n >= 100 {
			t.Errorf("it took %s, for %d", took, n)
		}
	})
}

func late(record.Revocation) bool { return true }

// owingMany is a store of accounts with a hundred pending revocations.
type owingMany struct{ noEvents }

func (owingMany) PendingRevocations(context.Context, record.Revocation, int) ([]record.Revocation, error) {
	return make([]record.Revocation, 100), nil
}

func (owingMany) RevocationDone(context.Context, record.Revocation) error { return nil }

// A slowlyRevoked counts revocations, each of which takes a tenth of a second.
type slowlyRevoked struct {
	record.Sessions
	revoked atomic.Int64
}

func (s *slowlyRevoked) End(context.Context, time.Time, record.Revocation) error {
	time.Sleep(100 * time.Millisecond)
	s.revoked.Add(1)
	return nil
}

// Requests that outlive their config wait for their history, also after Close, which needs
// no waiting.
func TestHistoryOfARequestOutlivesItsConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := &fakeHistory{}
		s := &flows.Service{Manager: session.New(&session.Config{History: history, Log: slog.New(slog.DiscardHandler), Now: time.Now})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Run(ctx)
		began := time.Now()
		s.Emit(t.Context(), record.Event{Name: "first", Account: 1})
		s.WaitRecorded()
		if len(history.events) != 1 {
			t.Errorf("got %v", history.events)
		}
		s.Emit(t.Context(), record.Event{Name: "second", Account: 1})
		s.Close()
		if len(history.events) != 2 {
			t.Errorf("after Close: got %v", history.events)
		}
		s.Emit(t.Context(), record.Event{Name: "third", Account: 1})
		if len(history.events) != 3 {
			t.Errorf("a request after Close: got %v", history.events)
		}
		s.WaitRecorded()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// A fakeHistory keeps events in memory.
type fakeHistory struct {
	record.History
	events []record.Event
}

func (h *fakeHistory) Record(_ context.Context, events []record.Event) error {
	h.events = append(h.events, events...)
	return nil
}

// A slowlySwept has stores whose sweep of sessions ends when swept is closed.
type slowlySwept struct {
	swept             chan struct{}
	sweeping, pending atomic.Bool
}

// noEvents has no events for a backend.
type noEvents struct{ record.Accounts }

func (noEvents) Backlogs(context.Context) ([]record.Backlog, error) { return nil, nil }

type owingAccounts struct {
	noEvents
	*slowlySwept
}

func (owingAccounts) Sweep(context.Context, time.Time) error { return nil }

func (a owingAccounts) PendingRevocations(context.Context, record.Revocation, int) ([]record.Revocation, error) {
	if a.pending.Load() {
		return []record.Revocation{{Company: "acme", Account: 1, Generation: 2}}, nil
	}
	return nil, nil
}

func (a owingAccounts) RevocationDone(context.Context, record.Revocation) error {
	a.pending.Store(false)
	return nil
}

type sweptSessions struct {
	record.Sessions
	*slowlySwept
}

func (s sweptSessions) Sweep(context.Context, time.Time) error {
	s.sweeping.Store(true)
	<-s.swept
	return nil
}

func (sweptSessions) End(context.Context, time.Time, record.Revocation) error { return nil }
