package session

import (
	"context"
	"strings"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Emit tells the observer, if there is one, and the account's history. A Time
// that is not set is now.
func (s *Manager) Emit(ctx context.Context, e record.Event) {
	if e.Time.IsZero() {
		e.Time = s.Now()
	}
	if s.History != nil && e.Account != 0 {
		if e.Route == "" { // else the route's event says it
			e.Noise = strings.HasPrefix(e.Name, record.LockPrefix)
		}
		s.recorder.Remember(e)
	}
	s.EmitUnrecorded(ctx, e)
}

// EmitUnrecorded is Emit for an event that is not worth a row in its account's history.
func (s *Manager) EmitUnrecorded(ctx context.Context, e record.Event) {
	if s.Observe != nil {
		s.Observe(ctx, e)
	}
}

// Recorded waits, but not for long, until histories have the events that there were.
func (s *Manager) Recorded() {
	if s.History != nil {
		s.recorder.Wait()
	}
}

// Tell is how a change of an account is told of, once it was made: nil, at no cost,
// where nobody is told.
func (s *Manager) Tell(company *tenant.Company, of func() []background.Fact) []record.Tell {
	if s.Outbox == nil {
		return nil
	}
	return background.Tell(company, s.Now, of)
}

// TellOf is Tell where it is known before what there is to tell.
func (s *Manager) TellOf(company *tenant.Company, facts ...background.Fact) []record.Tell {
	return s.Tell(company, func() []background.Fact { return facts })
}
