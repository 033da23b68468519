package flows

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	maxBackground   = 256              // sends that nobody waits for, at once
	backgroundLimit = 30 * time.Second // for each
	minPause        = 50 * time.Millisecond
	maxPause        = 250 * time.Millisecond // before what an answer must not tell of
	endingsEvery    = 2 * time.Second
	sweepEvery      = time.Minute
)

// Run does what no request waits for, until ctx ends: it ends the sessions that
// a crash left owed and sweeps the stores.
func (s *Service) Run(ctx context.Context) {
	endings, sweep := time.NewTicker(endingsEvery), time.NewTicker(sweepEvery)
	defer endings.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-endings.C:
			s.maintain("ending sessions that are owed it", func() error { return s.EndOwed(ctx) })
		case <-sweep.C:
			s.maintain("sweeping the accounts", func() error { return s.Accounts.Sweep(ctx, s.Now()) })
			s.maintain("sweeping the sessions", func() error { return s.Sessions.Sweep(ctx, s.Now()) })
		}
	}
}

func (s *Service) maintain(doing string, do func() error) {
	err := Contain(do)
	if p, ok := errors.AsType[*Panic](err); ok {
		p.Log(s.Log, "doing", doing)
	} else if err != nil && err != context.Canceled {
		s.Log.Warn("maintenance failed and will be tried again", "doing", doing, "error", err)
	}
}

// EndOwed ends the sessions of accounts that were changed by someone who could
// not end them.
func (s *Service) EndOwed(ctx context.Context) error {
	endings, err := s.Accounts.Endings(ctx, 1000)
	if err != nil {
		return err
	}
	for _, e := range endings {
		if err := s.end(ctx, e, EndedLate); err != nil {
			return err
		}
	}
	return nil
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
		err := Contain(func() error { return do(ctx) })
		if p, ok := errors.AsType[*Panic](err); ok {
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
	s.later(doing, func(ctx context.Context) error {
		select {
		case <-time.After(minPause + rand.N(maxPause-minPause)):
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

// sendLater sends the code of a recovery after the answer; if that fails, the
// code is void.
func (s *Service) sendLater(company *Company, session TokenHash, send func(context.Context) error) {
	s.unseen("sending a code", func(ctx context.Context) error {
		err := Contain(func() error { return send(ctx) })
		if err != nil {
			_, spent := s.Sessions.SpendCode(ctx, s.Now(), company.Code, session, RecoveryOTP)
			if !errors.Is(spent, ErrNotFound) {
				err = errors.Join(err, spent)
			}
		}
		return err
	})
}

// Close waits for what goes on behind requests, for as long as its limit at
// most. What requests that are still under way begin is not done.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.background.Wait()
}
