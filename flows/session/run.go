package session

import (
	"context"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	revocationsEvery = 2 * time.Second
	sweepEvery       = time.Minute
)

// Run does the background work until ctx is done. It does the pending revocations that a
// crash has left, sweeps the stores and delivers events. Only the recording of history
// goes on until Close, since requests may outlive ctx.
func (m *Manager) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	relay := &background.Relay{
		Outbox: m.Accounts, Companies: m.Companies, Now: m.Now, Log: m.Log, Emit: m.Emit,
		OnBacklogs: func(all []record.Backlog) { m.backlogs.Store(&all) },
	}
	beside.Go(func() { relay.Run(ctx) })
	if m.History != nil {
		go m.recorder.Run(m.History, m.Log)
	}
	// In a goroutine of its own: a large sweep takes many minutes.
	beside.Go(func() { every(ctx, sweepEvery, func() { m.Sweep(ctx) }) })
	// A request carries out its own revocation and says in the event who asked for it. What
	// was already pending at the tick before has no such request any more.
	var before map[record.Revocation]bool
	every(ctx, revocationsEvery, func() {
		now := map[record.Revocation]bool{}
		late := func(e record.Revocation) bool { now[e] = true; return before[e] }
		background.Maintain(m.Log, "carrying out pending revocations", func() error { return m.RevokePending(ctx, late) })
		before = now
	})
}

// every calls f at this interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// Sweep deletes what the stores no longer need. If the node's clock is ahead of the
// server's, Sweep uses the server's for the accounts, because other nodes may still need the
// data.
func (m *Manager) Sweep(ctx context.Context) {
	now := m.Now()
	err := background.Maintain(m.Log, "asking the accounts store for the time", func() error {
		if m.Clock == nil {
			return nil
		}
		there, err := m.Clock(ctx)
		if err == nil && there.Before(now) {
			now = there
		}
		return err
	})
	if err == nil {
		background.Maintain(m.Log, "sweeping the accounts", func() error { return m.Accounts.Sweep(ctx, now) })
		if m.History != nil {
			background.Maintain(m.Log, "deleting old history", func() error { return m.History.Forget(ctx, now.Add(-m.AuditKeep)) })
		}
	}
	background.Maintain(m.Log, "sweeping the sessions", func() error { return m.Sessions.Sweep(ctx, m.Now()) })
}

// Close waits for the background tasks, each of which has a time limit. Tasks that
// requests start later are dropped.
func (m *Manager) Close() {
	m.tasks.Close()
	if m.History != nil {
		m.recorder.Close(m.History, m.Log)
	}
}

// Backlogs returns what waited in the outbox some seconds ago, by company.
func (m *Manager) Backlogs() []record.Backlog {
	if all := m.backlogs.Load(); all != nil {
		return *all
	}
	return nil
}
