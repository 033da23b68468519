package flows_test

import (
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// Introspection gives the same answer from memory and from the store, and does not
// prolong the session.
func TestIntrospectionChangesNothing(t *testing.T) {
	for name, remembering := range map[string]bool{"from the store": false, "from memory": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var counting *countingSessions
			if remembering {
				_, counting = b.remembering(1000)
			}
			token := b.sessionIn(record.Authorized)
			session, err := b.Authorize(t.Context(), session.Requirement{Fresh: time.Hour}, []string{"Bearer " + token})
			if err != nil {
				t.Fatal(err)
			}
			want := manage.Introspection{
				Active: true, Sub: mnemocode, Company: code, State: record.Authorized, SID: session.ID,
				Issued: session.Created.Unix(), Expires: session.Expires.Unix(),
			}
			if session.ID == "" || session.Created.IsZero() {
				t.Fatalf("got %+v", session)
			}
			ask := func(want manage.Introspection) {
				t.Helper()
				if got, err := b.admin().Introspect(t.Context(), token); err != nil || got != want {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			}
			for range 3 {
				b.clock.advance(time.Duration(b.company.Session.Idle) / 4)
				ask(want)
			}
			if remembering && counting.gets.Load() != 1 {
				t.Errorf("the store was asked %d times, want once", counting.gets.Load())
			}
			if _, err := b.authorize(token); err != nil { // this prolongs it
				t.Fatal(err)
			}
			want.Expires = b.clock.Now().Add(time.Duration(b.company.Session.Idle)).Unix()
			ask(want)
			b.clock.advance(time.Duration(b.company.Session.Idle))
			ask(manage.Introspection{})
			b.clock.advance(-time.Duration(b.company.Session.Idle)) // setting the clock back does not revive it
			ask(manage.Introspection{})
		})
	}
}
