package session

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A Journal reports events, and keeps the histories of accounts.
type Journal struct {
	*Config

	recorder background.Recorder
}

// Emit reports an event to the observer, if there is one, and to the account's history.
// If its Time is zero, Emit sets it to now.
func (j *Journal) Emit(ctx context.Context, e record.Event) {
	if e.Time.IsZero() {
		e.Time = j.Now()
	}
	if j.History != nil && e.Account != 0 {
		if e.Route == "" { // the events of routes have Noise and Apart set already
			_, e.Noise = record.CutLimit(e.Name)
		}
		e.Apart = e.Apart || e.Actor == record.ActorUser || e.Name == record.SessionMoved || e.Name == record.SessionRaised || e.Name == record.RequestRefused
		j.recorder.Add(e, j.History, j.Log)
	}
	j.EmitUnrecorded(ctx, e)
}

// EmitUnrecorded is Emit without the account's history.
func (j *Journal) EmitUnrecorded(ctx context.Context, e record.Event) {
	if j.Observe != nil {
		j.Observe(ctx, e)
	}
}

// WaitRecorded waits for a short time until the histories have all events emitted so far.
func (j *Journal) WaitRecorded() {
	if j.History != nil {
		j.recorder.Wait()
	}
}
