package background

import (
	"context"
	"log/slog"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const sweepEvery = time.Minute

// A Sweeper clears away what stores need to keep no longer.
type Sweeper struct {
	Accounts    record.Accounts
	Sessions    record.Sessions
	History     record.History // nil for none
	HistoryKeep time.Duration  // for how long its events are kept
	Now         func() time.Time
	Log         *slog.Logger
}

// Run sweeps until ctx ends. It is to run beside all that has to be in time: where
// there is much to clear away, that takes many minutes.
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
				Maintain(s.Log, "forgetting histories", func() error { return s.History.Forget(ctx, s.Now().Add(-s.HistoryKeep)) })
			}
			Maintain(s.Log, "sweeping the sessions", func() error { return s.Sessions.Sweep(ctx, s.Now()) })
		}
	}
}
