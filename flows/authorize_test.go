package flows_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// wantLive checks whether the protected path accepts a token.
func (b *harness) wantLive(token string, want *wire.Error) {
	b.t.Helper()
	session, err := b.Authorize(b.t.Context(), session.Requirement{Company: code}, []string{"Bearer " + token})
	if want == nil {
		if err != nil || session.Mnemocode != mnemocode || session.Company != code {
			b.t.Fatalf("got %v and %q of %q, want a pass", err, session.Mnemocode, session.Company)
		}
		return
	}
	wantError(b.t, err, want)
}

// Reading a path for its roles may take long, so strangers can't make Authorize ask.
func TestOnlyAuthorizedSessionsAreAskedForARole(t *testing.T) {
	b := newHarness(t)
	unfinished, token := b.sessionIn(record.RecoveryOTP), b.sessionIn(record.Authorized)
	asked := 0
	want := session.Requirement{RoleAllowed: func(role string) bool { asked++; return role == "boss" }}
	for _, authorization := range []string{"", "Bearer", "Bearer mgs_" + strings.Repeat("A", 43), "Bearer " + unfinished, "Bearer " + token} {
		if _, err := b.Authorize(t.Context(), want, []string{authorization}); err == nil {
			t.Errorf("%q passed", authorization)
		}
	}
	if asked != 1 {
		t.Errorf("asked for a role %d times, want once", asked)
	}
}

func FuzzParseBearer(f *testing.F) {
	bearer := regexp.MustCompile(`^(?i:bearer) [A-Za-z0-9._~+/-]+=*$`)
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer x", "bEARER a-._~+/Z9==", "Bearer  x", "Bearer x=y", "Bearer =", "Basic x", "Bearer \x00", "Bearer @[`{", "Bearer ą", "Bearer x\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		token, err := wire.ParseBearer([]string{line})
		// $ also matches before a newline at the end, but no token has \n.
		if right := bearer.MatchString(line) && !strings.HasSuffix(line, "\n"); (err == nil) != right {
			t.Fatalf("%q: got %v, want right %v", line, err, right)
		}
		if err != nil && !errors.Is(err, wire.ErrHeaderInvalid) || err == nil && token != line[len("Bearer "):] {
			t.Errorf("%q: got %q and %v", line, token, err)
		}
	})
}

// A token that was reported as expired stays expired, on all nodes and for all jumps
// of the clocks. The exception is checkpassword, whose sessions are not stored.
func TestAnExpiredTokenNeverRevives(t *testing.T) {
	for _, state := range slices.DeleteFunc(slices.Clone(record.States[1:]), func(s record.State) bool { return s == record.CheckPassword }) {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			token := b.sessionIn(state)
			other := b.node()
			if state == record.Authorized {
				memory, _ := b.remembering(1000)
				b.wantLive(token, nil)
				if memory.Len() != 1 {
					t.Fatal("the session is not remembered")
				}
			}
			b.clock.advance(time.Hour)
			b.wantLive(token, wire.ErrTokenExpired)
			for _, back := range []time.Duration{-time.Hour + time.Second, 0, -24 * time.Hour} {
				b.clock.advance(back)
				b.sweep()
				b.wantLive(token, wire.ErrTokenExpired)
				b.wrong(wire.ErrTokenExpired, "auth/logout", token, nil)
				other.wantLive(token, wire.ErrTokenExpired)
				if told, err := b.admin().Introspect(t.Context(), token); err != nil || told.Active {
					t.Errorf("introspected as %+v, %v", told, err)
				}
			}
		})
	}
}

// The same holds if CheckLive reported the expiry, which cuts off a stream.
func TestASessionThatLiveSawExpireNeverRevives(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	session, err := b.authorize(token)
	must(t, err)
	b.clock.advance(time.Duration(b.company.Session.Idle))
	wantError(t, b.CheckLive(t.Context(), session), wire.ErrTokenExpired)
	b.clock.advance(-time.Duration(b.company.Session.Idle))
	wantError(t, b.CheckLive(t.Context(), session), wire.ErrTokenExpired)
	b.wantLive(token, wire.ErrTokenExpired)
}

func (b *harness) sweep() {
	b.t.Helper()
	must(b.t, b.Sessions.Sweep(b.t.Context(), b.clock.Now()))
}

// The model knows both, apart from a company that changes them.
func TestIdleAndLifetime(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	for range 47 {
		b.clock.advance(30 * time.Minute)
		b.wantLive(token, nil)
	}
	b.clock.advance(30*time.Minute - time.Microsecond)
	b.wantLive(token, nil)
	b.clock.advance(time.Microsecond)
	b.wantLive(token, wire.ErrTokenExpired)

	token = b.sessionIn(record.Authorized)
	b.company.Session.Idle, b.company.Session.Lifetime = tenant.Duration(time.Minute), tenant.Duration(10*time.Minute)
	b.clock.advance(time.Hour - time.Microsecond)
	b.wantLive(token, nil) // as promised at the login; from now on the new idle time applies
	b.clock.advance(time.Minute)
	b.wantLive(token, wire.ErrTokenExpired)
}

// Activity is written once a minute, or ten times within a short idle time. So is the time
// of the last use.
func TestActivityIsWrittenOnceAMinute(t *testing.T) {
	for idle, every := range map[time.Duration]time.Duration{time.Hour: time.Minute, time.Minute: 6 * time.Second} {
		b := newHarness(t)
		touches := int64(0)
		b.watch(func(c seen) error {
			if c.method == "Touch" {
				touches++
			}
			return nil
		})
		b.company.Session.Idle = tenant.Duration(idle)
		token := b.sessionIn(record.Authorized)
		b.wantLive(token, nil)
		for range 600 {
			b.clock.advance(time.Second)
			b.wantLive(token, nil)
			live, err := b.admin().LiveSessions(t.Context(), mnemocode)
			if err != nil || len(live) != 1 {
				t.Fatalf("got %v, %v", live, err)
			}
			if behind := b.clock.Now().Sub(live[0].LastUsed); behind < 0 || behind >= every {
				t.Fatalf("idle %v: last used %v ago", idle, behind)
			}
		}
		if want := int64(600 * time.Second / every); touches != want {
			t.Errorf("idle %v: written %d times in ten minutes, want %d", idle, touches, want)
		}
	}
}

func TestLiveCountsAsNoRequest(t *testing.T) {
	b := newHarness(t)
	live, err := b.authorize(b.sessionIn(record.Authorized))
	must(t, err)
	for range 5 {
		b.clock.advance(12*time.Minute - time.Microsecond)
		must(t, b.CheckLive(t.Context(), live))
	}
	b.clock.advance(time.Minute)
	wantError(t, b.CheckLive(t.Context(), live), wire.ErrTokenExpired)
	token := b.sessionIn(record.Authorized)
	live, err = b.authorize(token)
	must(t, err)
	b.must("auth/logout", token, nil)
	wantError(t, b.CheckLive(t.Context(), live), wire.ErrTokenInvalid)
}

func TestASessionOfARemovedCompanyIsInvalid(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	delete(b.Companies, code)
	_, err := b.authorize(token)
	wantError(t, err, wire.ErrTokenInvalid)
}

// If requests race with one token, on two nodes, exactly one succeeds: among requests to
// the same route, and among logouts. Afterwards the token is invalid everywhere, whatever
// the clock says. A logout ends no other session.
func TestOneTokenOneSuccess(t *testing.T) {
	for i := range flows.Routes {
		route := &flows.Routes[i]
		if !route.TakesToken() || strings.HasSuffix(route.Path, "renewotp") || route.StepsUp { // these keep the token
			continue
		}
		for _, state := range route.From {
			for _, rival := range slices.Compact([]string{route.Path, "auth/logout"}) {
				t.Run(fmt.Sprint(route.Path, " ", state, " ", rival), func(t *testing.T) {
					b := newHarness(t)
					nodes := []*harness{b, b.node()}
					token, other := b.sessionIn(state), b.sessionIn(record.CheckPassword)
					bodies := map[string]object{"auth/logout": nil}
					bodies[route.Path] = b.goodBody(route.Path)
					got := race(100, func(i int) error {
						path := []string{route.Path, rival}[i/2%2]
						_, err := nodes[i%2].serveAs(code, addressOf(i), path, token, bodies[path])
						return err
					})
					if got[""] != 1 || got["service.error"]+got["service.unavailable"] != 0 {
						t.Errorf("got %v, want one success", got)
					}
					b.clock.advance(-time.Minute)
					for _, again := range []string{route.Path, "auth/checkotp", "auth/logout"} {
						b.wrong(wire.ErrTokenInvalid, again, token, b.goodBody(again))
					}
					b.wantLive(token, wire.ErrTokenInvalid)
					if route.Path == "auth/logout" {
						b.must("auth/logout", other, nil)
					}
				})
			}
		}
	}
}

// A store that does not answer must never let a request pass.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	bodies := map[string]object{"auth/recovery/checklink": {"token": "mgl_x"}}
	for _, route := range flows.Routes {
		if bodies[route.Path] == nil {
			bodies[route.Path] = b.goodBody(route.Path)
		}
	}
	settle(b.Service) // notices use the sessions' counters
	b.watch(func(seen) error { return errDown })
	b.wantLive(token, wire.ErrUnavailable)
	for i := range flows.Routes {
		route := &flows.Routes[i]
		if route.Path == "passkey/options" { // needs no store
			continue
		}
		_, err := b.serve(route.Path, token, bodies[route.Path])
		wantError(t, err, wire.ErrUnavailable)
		if refusal(err).RetryAfter <= 0 {
			t.Errorf("%s: no Retry-After", route.Path)
		}
	}
}

// Checks are made in a fixed order: a request with two faults gets the error of the
// first check.
func TestChecksRunInOrder(t *testing.T) {
	b := newHarness(t)
	b.company.APIKeys = [][32]byte{sha256.Sum256([]byte("key"))}
	request := &flows.Request{Company: code, Route: flows.RouteByPath("auth/checkpassword"), Client: session.Client{Address: "192.0.2.1"}}
	body := `{"password": 1}`
	request.Body = func() ([]byte, error) { return []byte(body), nil }
	next := func(want *wire.Error) {
		t.Helper()
		_, err := b.Serve(t.Context(), request)
		wantError(t, err, want)
	}
	b.company.Disclaimers = []wire.Disclaimer{terms}
	b.company.Captcha = nil
	other := b.sessionIn(record.RecoveryQuestion)
	b.company.Captcha = &captcha{}
	token := b.sessionIn(record.CheckPassword)
	b.company.NoAPIKey = false

	next(wire.ErrAPIKeyMissing)
	request.APIKeys = []string{"key"}
	next(wire.ErrHeaderMissing)
	request.Authorization = []string{"Basic x"}
	next(wire.ErrHeaderInvalid)
	request.Authorization = []string{"Bearer x"}
	next(wire.ErrTokenInvalid)
	request.Authorization = []string{"Bearer " + other}
	next(wire.ErrSessionInvalid)
	request.Authorization = []string{"Bearer " + token}
	next(wire.ErrValidation)
	body = `{"password": "wrong"}`
	b.status(record.StatusClosed)
	b.company.Limits.FailuresPerAddress.N = 0
	next(wire.ErrRestricted)
	b.company.Limits.FailuresPerAddress.N = 100
	b.company.Limits.LockAfter, b.company.Limits.DisableAfter, b.company.Limits.CaptchaAfter = 0, 0, new(0)
	next(wire.ErrRestricted)
	b.company.Limits.LockAfter, b.company.Limits.DisableAfter = 10, 100
	next(wire.ErrCaptchaMissing)
	body = `{"password": "wrong", "captcha_response": "good 1"}`
	next(wire.ErrUserClosed)
	b.status(record.StatusActive)
	body = `{"password": "wrong", "captcha_response": "good 2"}`
	next(wire.ErrPasswordInvalid)
	body = `{"password": "` + password + `", "captcha_response": "good 3"}`
	next(wire.ErrDisclaimerInvalid)
	body = `{"password": "` + password + `", "captcha_response": "good 4", "accept_disclaimers": ["terms"]}`
	if _, err := b.Serve(t.Context(), request); err != nil {
		t.Errorf("once nothing is wrong: %v", err)
	}
}
