package session

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Emit reports an event to the observer, if there is one, and to the account's history.
// If its Time is zero, Emit sets it to now.
func (m *Manager) Emit(ctx context.Context, e record.Event) {
	if e.Time.IsZero() {
		e.Time = m.Now()
	}
	if m.History != nil && e.Account != 0 {
		if e.Route == "" { // the events of routes have Noise set already
			_, e.Noise = record.CutLimit(e.Name)
		}
		e.Apart = e.Actor == record.ActorUser || e.Name == record.SessionMoved || e.Name == record.SessionRaised || e.Name == record.RequestRefused
		m.recorder.Add(e, m.History, m.Log)
	}
	m.EmitUnrecorded(ctx, e)
}

// EmitUnrecorded is Emit without the account's history.
func (m *Manager) EmitUnrecorded(ctx context.Context, e record.Event) {
	if m.Observe != nil {
		m.Observe(ctx, e)
	}
}

// WaitRecorded waits for a short time until the histories have all events emitted so far.
func (m *Manager) WaitRecorded() {
	if m.History != nil {
		m.recorder.Wait()
	}
}
