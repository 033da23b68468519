package session

import (
	"context"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
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
