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
	Log         *slog.Logger
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
			Maintain(s.Log, "sweeping the accounts", func() error { return s.Accounts.Sweep(ctx, s.Now()) })
			if s.History != nil {
				Maintain(s.Log, "deleting old history", func() error { return s.History.Forget(ctx, s.Now().Add(-s.HistoryKeep)) })
			}
			Maintain(s.Log, "sweeping the sessions", func() error { return s.Sessions.Sweep(ctx, s.Now()) })
		}
	}
}
