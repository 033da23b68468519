package flows_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// Pending revocations are carried out even while a sweep takes long.
func TestARevocationWaitsForNoSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowlySwept{swept: make(chan struct{})}
		s := &flows.Service{Manager: &session.Manager{Accounts: owingAccounts{slowlySwept: st}, Sessions: sweptSessions{slowlySwept: st}, Log: slog.New(slog.DiscardHandler), Now: time.Now}}
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

// A slowlySwept has stores whose sweep of sessions ends when swept is closed.
type slowlySwept struct {
	swept             chan struct{}
	sweeping, pending atomic.Bool
}

type owingAccounts struct {
	record.Accounts
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
