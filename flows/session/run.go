package session

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

// How pending revocations are done.
const (
	revocationsEvery  = 2 * time.Second
	revocationsAtOnce = 16
	revocationsPage   = 1000 // loaded at once
)

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

// RevokePending does the pending revocations that are late. If one fails, RevokePending
// goes on with the others and returns an error. If ctx ends, it begins no more of them:
// they stay pending, and a reload need not wait for a store that does not answer.
func (m *Manager) RevokePending(ctx context.Context, late func(record.Revocation) bool) error {
	var after record.Revocation
	var group errgroup.Group
	group.SetLimit(revocationsAtOnce)
	var failed error
	for {
		pending, err := m.Accounts.PendingRevocations(ctx, after, revocationsPage)
		for _, e := range pending {
			after = e
			if !late(e) {
				continue
			}
			group.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return panics.Contain(func() error { return m.RevokeAll(ctx, e, record.Event{Reason: record.EndedLate}) })
			})
		}
		revoking := group.Wait()
		failed = cmp.Or(failed, revoking, err)
		if err != nil || len(pending) < revocationsPage {
			return failed
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
