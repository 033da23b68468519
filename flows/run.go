package flows

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"golang.org/x/sync/errgroup"
)

const (
	minPause      = 50 * time.Millisecond
	maxPause      = 250 * time.Millisecond // before what an answer must not tell of
	endingsEvery  = 2 * time.Second
	endingsAtOnce = 16
	endingsPage   = 1000
)

// Run does what no request waits for, until ctx ends: it ends the sessions that
// a crash left owed, sweeps the stores, and delivers events.
func (s *Service) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	if s.Outbox != nil {
		relay := &background.Relay{
			Outbox: s.Outbox, Companies: s.Companies, Now: s.Now, Log: s.Log, Warnings: &s.warnings, Emit: s.Emit,
			Waits: func(all []record.Backlog) { s.backlogs.Store(&all) },
		}
		beside.Go(func() { relay.Run(ctx) })
	}
	if s.History != nil {
		beside.Go(func() { s.recorder.Run(ctx, s.History, s.Log) })
	}
	sweeper := &background.Sweeper{
		Accounts: s.Accounts, Sessions: s.Sessions, History: s.History, HistoryKeep: s.AuditKeep, Now: s.Now, Log: s.Log,
	}
	beside.Go(func() { sweeper.Run(ctx) })
	endings := time.NewTicker(endingsEvery)
	defer endings.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-endings.C:
			background.Maintain(s.Log, "ending sessions that are owed it", func() error { return s.EndOwed(ctx) })
		}
	}
}

// EndOwed ends the sessions of accounts that were changed by someone who could
// not end them. One that can't be ended holds up no other.
func (s *Service) EndOwed(ctx context.Context) error {
	var after record.Ending
	var group errgroup.Group
	group.SetLimit(endingsAtOnce)
	var failed error
	for {
		endings, err := s.Accounts.Endings(ctx, after, endingsPage)
		for _, e := range endings {
			after = e
			group.Go(func() error {
				return panics.Contain(func() error { return s.end(ctx, e, record.Event{Reason: record.EndedLate}) })
			})
		}
		failed = cmp.Or(failed, group.Wait(), err)
		if err != nil || len(endings) < endingsPage {
			return failed
		}
	}
}

// later sends a message to an account's owner, and no request waits for it. A message
// that is dropped is counted and logged. Its request does not fail: notices never fail
// one, and the recoveries of a hardened company must not tell that there is an account.
func (s *Service) later(company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	task := background.Task{Company: company.Code, Mnemocode: a.Mnemocode, Type: kind, Send: send}
	err := s.tasks.Do(s.Log, task)
	if err == nil || a.ID == 0 { // a decoy's task sends nothing
		return
	}
	s.Log.Warn("a message was dropped", "company", company.Code, "account", a.Mnemocode, "type", kind, "error", err)
	if s.Dropped != nil {
		s.Dropped(company.Code)
	}
}

// unseen is later for what an answer must not tell of. It begins a while after
// the answer, at a moment that nobody can foresee: begun at once it would take
// its part of the machine from the answer, and so show in the time that takes.
func (s *Service) unseen(company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	after := s.After
	if after == nil {
		after = time.After
	}
	s.later(company, a, kind, func(ctx context.Context) error {
		select {
		case <-after(minPause + rand.N(maxPause-minPause)):
			return send(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// Waiting returns how many messages that no request waits for are under way.
func (s *Service) Waiting() int { return s.tasks.Waiting() }

// Close waits for what goes on behind requests, for as long as its limit at
// most. What requests that are still under way begin is not done.
func (s *Service) Close() {
	s.tasks.Close()
	if s.History != nil {
		s.recorder.Flush(context.Background(), s.History, s.Log) // what requests did that outlasted Run
	}
}

// Recorded waits, but not for long, until histories have the events that there were.
func (s *Service) Recorded() {
	if s.History != nil {
		s.recorder.Wait()
	}
}

// Backlogs is what waited in the outbox some seconds ago, by company.
func (s *Service) Backlogs() []record.Backlog {
	if all := s.backlogs.Load(); all != nil {
		return *all
	}
	return nil
}
