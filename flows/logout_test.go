package flows_test

import (
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestLogoutEndsItsOwnSessionInAnyState(t *testing.T) {
	for _, state := range record.States[1:] {
		t.Run(string(state), func(t *testing.T) {
			b := newBench(t)
			token := b.sessionIn(state)
			other := b.sessionIn(record.CheckPassword)
			if reply := b.must("auth/logout", token, nil); reply.SessionToken != "" || reply.SessionState != record.None {
				t.Errorf("got %+v", reply)
			}
			b.wrong(wire.ErrTokenInvalid, "auth/logout", token, nil)
			b.clock.advance(-time.Minute)
			b.wrong(wire.ErrTokenInvalid, "auth/logout", token, nil)
			b.must("auth/logout", other, object{})
		})
	}
}

func TestLogoutIsDoneOnce(t *testing.T) {
	b := newBench(t)
	token := b.sessionIn(record.Authorized)
	got := race(100, func(int) error {
		_, err := b.serve("auth/logout", token, nil)
		return err
	})
	if got[""] != 1 || got["auth.token.invalid"] != 99 {
		t.Errorf("got %v, want one success", got)
	}
}

// If a logout races with the step of the same token, exactly one succeeds.
func TestLogoutRacesWithEveryStep(t *testing.T) {
	for _, state := range record.States[1:] {
		for i := range flows.Routes {
			route := &flows.Routes[i]
			if route.Path == "auth/logout" || len(route.To) == 1 && route.To[0] == record.None || !route.TakesToken() || route.From[0] != state {
				continue
			}
			t.Run(route.Path, func(t *testing.T) {
				b := newBench(t)
				token := b.sessionIn(state)
				body := b.goodBody(route.Path)
				got := race(40, func(i int) error {
					path, body := route.Path, body
					if i%2 == 0 {
						path, body = "auth/logout", nil
					}
					_, err := b.serve(path, token, body)
					return err
				})
				if got[""] != 1 {
					t.Errorf("got %v, want one success", got)
				}
				b.wrong(wire.ErrTokenInvalid, "auth/logout", token, nil)
			})
		}
	}
}
