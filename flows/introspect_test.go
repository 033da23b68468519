package flows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestOnlyAnAuthorizedSessionsTokenIsActive(t *testing.T) {
	for _, state := range record.States[1:] {
		b := newBench(t)
		token := b.sessionIn(state)
		got, err := b.admin().Introspect(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		if state != record.Authorized && got != (manage.Introspection{}) {
			t.Errorf("%s: got %+v", state, got)
		}
		if state == record.Authorized && (!got.Active || got.Sub != mnemocode || got.Company != code || got.State != state) {
			t.Errorf("got %+v", got)
		}
	}
}

// What memory says is what the store says, and neither is prolonged by it.
func TestIntrospectionChangesNothing(t *testing.T) {
	for name, remembering := range map[string]bool{"from the store": false, "from memory": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var counting *countingSessions
			if remembering {
				_, counting = b.remembering(1000)
			}
			token := b.sessionIn(record.Authorized)
			session, err := b.Authorize(t.Context(), session.Demand{Fresh: time.Hour}, []string{"Bearer " + token})
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
				b.clock.advance(b.company.Idle / 4)
				ask(want)
			}
			if remembering && counting.gets.Load() != 1 {
				t.Errorf("the store was asked %d times, want once", counting.gets.Load())
			}
			if _, err := b.authorize(token); err != nil { // which prolongs it
				t.Fatal(err)
			}
			want.Expires = b.clock.Now().Add(b.company.Idle).Unix()
			ask(want)
			b.clock.advance(b.company.Idle)
			ask(manage.Introspection{})
			b.clock.advance(-b.company.Idle) // whatever the clocks do
			ask(manage.Introspection{})
		})
	}
}

func TestWhatIsNoTokenOfTheCompanysIsNotActive(t *testing.T) {
	b := newBench(t)
	b.remembering(1000)
	token := b.sessionIn(record.Authorized)
	for _, token := range []string{"", "x", "Bearer " + token, token + "=", "mgl_" + token[4:], "mgs_" + token[5:] + "A"} {
		if got, err := b.admin().Introspect(t.Context(), token); err != nil || got.Active {
			t.Errorf("%q: got %+v, %v", token, got, err)
		}
	}
	other := &manage.Admin{Manager: b.Manager, Company: &tenant.Company{Code: "globex"}}
	if got, err := other.Introspect(t.Context(), token); err != nil || got.Active {
		t.Errorf("another company's: got %+v, %v", got, err)
	}
	b.must("auth/logout", token, nil)
	if got, err := b.admin().Introspect(t.Context(), token); err != nil || got.Active {
		t.Errorf("ended: got %+v, %v", got, err)
	}
	b.Service.Sessions = brokenSessions{}
	if _, err := b.admin().Introspect(t.Context(), token); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("no store: got %v", err)
	}
}
