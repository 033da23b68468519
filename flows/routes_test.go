package flows_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A route accepts a token exactly in the states of its row.
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
				_, err := b.serve(route.Path, token, b.goodBody(route.Path))
				switch {
				case !route.TakesToken() || state != record.None && slices.Contains(route.From, state):
					must(t, err) // without need of a token, even if one is sent
				case state == record.None:
					wantError(t, err, wire.ErrHeaderMissing)
				default:
					wantError(t, err, wire.ErrSessionInvalid)
				}
			})
		}
	}
}

func wantError(t *testing.T, err error, want *wire.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v (%d)", err, want, want.Status)
	}
}
