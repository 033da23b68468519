package flows_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The state machine, in the order of the interface document.
func Example_routes() {
	name := func(s record.State) string {
		if s == record.None {
			return "(none)"
		}
		return string(s)
	}
	for _, r := range flows.Routes {
		from := make([]string, 0, len(r.From))
		for _, s := range r.From {
			from = append(from, name(s))
		}
		if len(from) == len(record.States)-1 {
			from = []string{"any"}
		}
		to := make([]string, 0, len(r.To))
		for _, s := range r.To {
			to = append(to, name(s))
		}
		fmt.Printf("%s | %s | %s\n", strings.Join(from, ", "), r.Path, strings.Join(to, ", "))
	}
	// Output:
	// (none) | auth/login | checkpassword, checkotp
	// checkpassword | auth/checkpassword | checkotp, setpassword, authorized
	// checkotp | auth/checkotp | setpassword, authorized
	// checkotp | auth/renewotp | (none)
	// setpassword, recovery-setpassword | auth/setpassword | authorized, (none)
	// (none) | auth/checkcredentials | checkotp, setpassword, authorized
	// (none) | auth/oauth | authorized, acceptdisclaimers
	// acceptdisclaimers | auth/acceptdisclaimers | authorized
	// any | auth/logout | (none)
	// (none) | auth/recovery/recover | recovery-checkotp, recovery-checkquestion, (none)
	// recovery-checkotp | auth/recovery/checkotp | recovery-setpassword
	// recovery-checkotp | auth/recovery/renewotp | (none)
	// recovery-checkquestion | auth/recovery/checkquestion | recovery-setpassword
	// (none) | auth/recovery/checklink | recovery-setpassword
	// (none) | passkey/options | (none)
	// (none) | passkey/login | setpassword, authorized, acceptdisclaimers
}

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

// The interface document fixes eight statuses.
func TestFixedStatuses(t *testing.T) {
	for code, status := range map[*wire.Error]int{
		wire.ErrLoginIDNotFound:  404,
		wire.ErrUserRestricted:   403,
		wire.ErrUserClosed:       403,
		wire.ErrUserDenied:       403,
		wire.ErrOAuthFailed:      401,
		wire.ErrOAuthNotFound:    404,
		wire.ErrMethodRestricted: 403,
		wire.ErrQuality:          422,
	} {
		if code.Status != status {
			t.Errorf("%s: got status %d, want %d", code.Code, code.Status, status)
		}
	}
}
