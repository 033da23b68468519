package flows

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"golang.org/x/sync/errgroup"
)

const (
	maxBackground   = 256              // sends that nobody waits for, at once
	backgroundLimit = 30 * time.Second // for each
	minPause        = 50 * time.Millisecond
	maxPause        = 250 * time.Millisecond // before what an answer must not tell of
	endingsEvery    = 2 * time.Second
	endingsAtOnce   = 16
	endingsPage     = 1000
	sweepEvery      = time.Minute
)

// Run does what no request waits for, until ctx ends: it ends the sessions that
// a crash left owed, sweeps the stores, and delivers events.
func (s *Service) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	if s.Outbox != nil {
		beside.Go(func() { s.runOutbox(ctx) })
	}
	if s.History != nil {
		beside.Go(func() { s.runHistory(ctx) })
	}
	beside.Go(func() { s.runSweeps(ctx) })
	endings := time.NewTicker(endingsEvery)
	defer endings.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-endings.C:
			s.maintain("ending sessions that are owed it", func() error { return s.EndOwed(ctx) })
		}
	}
}

// runSweeps sweeps the stores, beside all that has to be in time: where there is
// much to clear away, that takes many minutes.
func (s *Service) runSweeps(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			s.maintain("sweeping the accounts", func() error { return s.Accounts.Sweep(ctx, s.Now()) })
			if s.History != nil {
				s.maintain("forgetting histories", func() error { return s.History.Forget(ctx, s.Now().Add(-s.AuditKeep)) })
			}
			s.maintain("sweeping the sessions", func() error { return s.Sessions.Sweep(ctx, s.Now()) })
		}
	}
}

func (s *Service) maintain(doing string, do func() error) {
	err := panics.Contain(do)
	if p, ok := errors.AsType[*panics.Error](err); ok {
		p.Log(s.Log, "doing", doing)
	} else if err != nil && err != context.Canceled {
		s.Log.Warn("maintenance failed and will be tried again", "doing", doing, "error", err)
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

// later does something that no request waits for, and logs its error. When too
// much of it is under way it is not done.
func (s *Service) later(doing string, do func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.waiting == maxBackground {
		s.Log.Warn("a message was not sent: too many wait for their gateways, or the service ends", "waiting", s.waiting)
		return
	}
	s.waiting++
	s.background.Go(func() {
		defer func() {
			s.mu.Lock()
			s.waiting--
			s.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
		defer cancel()
		err := panics.Contain(func() error { return do(ctx) })
		if p, ok := errors.AsType[*panics.Error](err); ok {
			p.Log(s.Log, "doing", doing)
		} else if err != nil {
			s.Log.Warn("what no request waited for has failed", "doing", doing, "error", err)
		}
	})
}

// unseen is later for what an answer must not tell of. It begins a while after
// the answer, at a moment that nobody can foresee: begun at once it would take
// its part of the machine from the answer, and so show in the time that takes.
func (s *Service) unseen(doing string, do func(context.Context) error) {
	after := s.After
	if after == nil {
		after = time.After
	}
	s.later(doing, func(ctx context.Context) error {
		select {
		case <-after(minPause + rand.N(maxPause-minPause)):
			return do(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// Waiting returns how many messages that no request waits for are under way.
func (s *Service) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// Close waits for what goes on behind requests, for as long as its limit at
// most. What requests that are still under way begin is not done.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.background.Wait()
	if s.History != nil {
		s.flush(context.Background()) // what requests did that outlasted Run
	}
}
