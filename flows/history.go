package flows

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	// flushEvery is how long an event may wait that no answer waits for.
	flushEvery = 250 * time.Millisecond
	// flushWait is how long an answer waits for its events to be stored.
	flushWait      = 100 * time.Millisecond
	recordedAtOnce = 250
	// maxUnrecorded is how many may wait while the store does not answer.
	maxUnrecorded = 10_000
)

// A historian keeps what is yet to be recorded.
type historian struct {
	mu      sync.Mutex
	events  []record.Event
	lost    int
	once    sync.Once
	flushes chan chan struct{} // who waits until all is recorded that there was before
}

func (h *historian) queue() chan chan struct{} {
	h.once.Do(func() { h.flushes = make(chan chan struct{}) })
	return h.flushes
}

// remember puts an event into the history of its account.
func (s *Service) remember(e record.Event) {
	if s.History == nil || e.Account == 0 || !isHistory(e) {
		return
	}
	e.Noise = isNoise(e)
	h := &s.historian
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == maxUnrecorded {
		h.lost++
		return
	}
	h.events = append(h.events, e)
}

// isHistory reports whether an event is worth a row. What strangers can cause in
// any number is not: the first step of a login, and what was refused before a
// secret was looked at.
func isHistory(e record.Event) bool {
	switch e.Result {
	case "": // of no route
		return true
	case record.Success:
		return e.Route != "auth/login" || e.State == record.CheckOTP // for which a code was sent
	default:
		return failed(e)
	}
}

// failed reports whether somebody had a secret wrong.
func failed(e record.Event) bool {
	switch e.Result {
	case wire.ErrPasswordInvalid.Code, wire.ErrCredentialsInvalid.Code, wire.ErrOTPInvalid.Code, wire.ErrBackupCodeInvalid.Code, wire.ErrAnswerInvalid.Code:
		return true
	}
	return false
}

// isNoise reports whether an event is one that strangers can cause, who know a login
// id and no secret.
func isNoise(e record.Event) bool {
	switch e.Route {
	case "auth/login", "auth/renewotp", "auth/recovery/recover", "auth/recovery/renewotp":
		return true
	case "auth/logout":
		return e.State != record.Authorized
	}
	return failed(e) || strings.HasPrefix(e.Name, record.LockPrefix)
}

// recorded waits until what was remembered is stored, but not for long: a store
// that is slow shall not slow logins. Only what tells of its account anyway may
// wait, since nobody else's requests do.
func (s *Service) recorded() {
	if s.History == nil {
		return
	}
	done, patience := make(chan struct{}), time.NewTimer(flushWait)
	defer patience.Stop()
	select {
	case s.historian.queue() <- done:
	case <-patience.C:
		return
	}
	select {
	case <-done:
	case <-patience.C:
	}
}

// runHistory stores what is remembered, until ctx ends.
func (s *Service) runHistory(ctx context.Context) {
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		var waiting []chan struct{}
		select {
		case <-ctx.Done():
			s.flush(context.WithoutCancel(ctx))
			return
		case <-flush.C:
		case first := <-s.historian.queue():
			waiting = append(waiting, first)
			for more := true; more; { // one write for all who wait
				select {
				case next := <-s.historian.queue():
					waiting = append(waiting, next)
				default:
					more = false
				}
			}
		}
		s.flush(ctx)
		for _, done := range waiting {
			close(done)
		}
	}
}

// flush stores what is remembered. What can't be stored is tried again.
func (s *Service) flush(ctx context.Context) {
	h := &s.historian
	h.mu.Lock()
	events, lost := h.events, h.lost
	h.events, h.lost = nil, 0
	h.mu.Unlock()
	if lost > 0 {
		s.Log.Warn("what happened to accounts is missing in their histories, since the store did not answer; the audit log has it", "events", lost)
	}
	for failed := false; len(events) > 0 && !failed; {
		n := min(len(events), recordedAtOnce)
		s.maintain("recording what happened to accounts", func() error {
			err := s.History.Record(ctx, events[:n])
			if failed = err != nil; failed {
				h.keep(events)
			}
			return err
		})
		events = events[n:]
	}
}

// keep puts back what could not be recorded, before what came since.
func (h *historian) keep(events []record.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := min(len(events), maxUnrecorded-len(h.events))
	h.lost += len(events) - kept
	h.events = append(slices.Clone(events[len(events)-kept:]), h.events...)
}

// History returns the newest events of an account.
func (ad *Admin) History(ctx context.Context, mnemocode string, limit int) ([]record.Event, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil || ad.Service.History == nil {
		return nil, err
	}
	events, err := ad.Service.History.Recorded(ctx, a.Company, a.ID, limit)
	return events, adminError("reading the history", err)
}
