package flows_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Tests every route in every state. A route accepts a token exactly in the states of
// its row, and the state of the reply is in the row.
func TestEveryRouteInEveryState(t *testing.T) {
	t.Parallel()
	for i := range flows.Routes {
		route := &flows.Routes[i]
		for _, state := range record.States {
			t.Run(route.Path+"/"+string(state), func(t *testing.T) {
				b := newHarness(t)
				token := ""
				if state != record.None {
					token = b.sessionIn(state)
				}
				reply, err := b.serve(route.Path, token, b.goodBody(route.Path))
				switch {
				case !route.TakesToken():
					wantSuccess(t, route, reply, err) // even if a token is sent
				case state == record.None:
					wantError(t, err, wire.ErrHeaderMissing)
				case !slices.Contains(route.From, state):
					wantError(t, err, wire.ErrSessionInvalid)
				default:
					wantSuccess(t, route, reply, err)
				}
			})
		}
	}
}

func wantSuccess(t *testing.T, route *flows.Route, reply flows.Reply, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got %v, want a success", route.Path, err)
	}
	if !slices.Contains(route.To, reply.SessionState) {
		t.Errorf("%s: led to %q, which its row does not list", route.Path, reply.SessionState)
	}
	if route.StepsUp { // its session stays
		return
	}
	if (reply.SessionToken == "") != (reply.SessionState == record.None) {
		t.Errorf("%s: a token and a state come together; got state %q", route.Path, reply.SessionState)
	}
	if (reply.ProfileMnemocode != "") != (reply.SessionState == record.Authorized) {
		t.Errorf("%s: profile_mnemocode comes with authorized only; state %q", route.Path, reply.SessionState)
	}
}

func wantError(t *testing.T, err error, want *wire.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v (%d)", err, want, want.Status)
	}
}
