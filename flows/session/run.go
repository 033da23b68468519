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
func (s *Manager) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	if s.Outbox != nil {
		relay := &background.Relay{
			Outbox: s.Outbox, Companies: s.Companies, Now: s.Now, Log: s.Log, Emit: s.Emit,
			OnBacklogs: func(all []record.Backlog) { s.backlogs.Store(&all) },
		}
		beside.Go(func() { relay.Run(ctx) })
	}
	if s.History != nil {
		go s.recorder.Run(s.History, s.Log)
	}
	sweeper := &background.Sweeper{
		Accounts: s.Accounts, Sessions: s.Sessions, History: s.History, HistoryKeep: s.AuditKeep,
		Now: s.Now, Clock: s.Clock, Log: s.Log,
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
			background.Maintain(s.Log, "carrying out pending revocations", func() error { return s.RevokePending(ctx, late) })
			before = now
		}
	}
}

// RevokePending does the pending revocations that are late. If one fails, RevokePending
// goes on with the others and returns an error. If ctx ends, it begins no more of them:
// they stay pending, and a reload need not wait for a store that does not answer.
func (s *Manager) RevokePending(ctx context.Context, late func(record.Revocation) bool) error {
	var after record.Revocation
	var group errgroup.Group
	group.SetLimit(revocationsAtOnce)
	var failed error
	for {
		pending, err := s.Accounts.PendingRevocations(ctx, after, revocationsPage)
		for _, e := range pending {
			after = e
			if !late(e) {
				continue
			}
			group.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return panics.Contain(func() error { return s.RevokeAll(ctx, e, record.Event{Reason: record.EndedLate}) })
			})
		}
		failed = cmp.Or(failed, group.Wait(), err)
		if err != nil || len(pending) < revocationsPage {
			return failed
		}
	}
}

// Waiting returns the number of messages that are being sent in the background.
func (s *Manager) Waiting() int { return s.tasks.Waiting() }

// Close waits for the background tasks, each of which has a time limit. Tasks that
// requests start later are dropped.
func (s *Manager) Close() {
	s.tasks.Close()
	if s.History != nil {
		s.recorder.Close(s.History, s.Log)
	}
}

// Backlogs returns what waited in the outbox some seconds ago, by company.
func (s *Manager) Backlogs() []record.Backlog {
	if all := s.backlogs.Load(); all != nil {
		return *all
	}
	return nil
}
