package background

import (
	"context"
	"log/slog"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const sweepEvery = time.Minute

// A Sweeper deletes what stores no longer need.
type Sweeper struct {
	Accounts    record.Accounts
	Sessions    record.Sessions
	History     record.History // nil for none
	HistoryKeep time.Duration  // how long History keeps events
	Now         func() time.Time
	// Clock returns the time of the server that has the Accounts; nil if it has none of
	// its own.
	Clock func(context.Context) (time.Time, error)
	Log   *slog.Logger
}

// Run sweeps until ctx ends. Run it in a goroutine of its own: a large sweep takes many
// minutes.
func (s *Sweeper) Run(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			s.Sweep(ctx)
		}
	}
}

// Sweep deletes what is old. If the node's clock is ahead of the server's, Sweep uses
// the server's, because other nodes may still need the data.
func (s *Sweeper) Sweep(ctx context.Context) {
	now := s.Now()
	err := Maintain(s.Log, "asking the accounts store for the time", func() error {
		if s.Clock == nil {
			return nil
		}
		there, err := s.Clock(ctx)
		if err == nil && there.Before(now) {
			now = there
		}
		return err
	})
	if err == nil {
		Maintain(s.Log, "sweeping the accounts", func() error { return s.Accounts.Sweep(ctx, now) })
		if s.History != nil {
			Maintain(s.Log, "deleting old history", func() error { return s.History.Forget(ctx, now.Add(-s.HistoryKeep)) })
		}
	}
	Maintain(s.Log, "sweeping the sessions", func() error { return s.Sessions.Sweep(ctx, s.Now()) })
}
