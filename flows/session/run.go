package session

import (
	"context"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
)

const revocationsEvery = 2 * time.Second

// Run does the background work until ctx is done. It does the pending revocations that a
// crash has left, sweeps the stores and delivers events. Only the recording of history
// goes on until Close, since requests may outlive ctx.
func (m *Manager) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	if m.Outbox != nil {
		relay := &background.Relay{
			Outbox: m.Outbox, Companies: m.Companies, Now: m.Now, Log: m.Log, Emit: m.Emit,
			OnBacklogs: func(all []record.Backlog) { m.backlogs.Store(&all) },
		}
		beside.Go(func() { relay.Run(ctx) })
	}
	if m.History != nil {
		go m.recorder.Run(m.History, m.Log)
	}
	sweeper := &background.Sweeper{
		Accounts: m.Accounts, Sessions: m.Sessions, History: m.History, HistoryKeep: m.AuditKeep,
		Now: m.Now, Clock: m.Clock, Log: m.Log,
	}
	beside.Go(func() { sweeper.Run(ctx) })
	revocations := time.NewTicker(revocationsEvery)
	defer revocations.Stop()
	// A request carries out its own revocation and says in the event who asked for it. What
	// was already pending at the tick before has no such request any more.
	var before map[record.Revocation]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-revocations.C:
			now := map[record.Revocation]bool{}
			late := func(e record.Revocation) bool { now[e] = true; return before[e] }
			background.Maintain(m.Log, "carrying out pending revocations", func() error { return m.RevokePending(ctx, late) })
			before = now
		}
	}
}

// Waiting returns the number of messages that are being sent in the background.
func (m *Manager) Waiting() int { return m.tasks.Waiting() }

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
