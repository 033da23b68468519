package flows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A stepper has every factor, and sessions by password.
type stepper struct {
	*harness
	shows  func(time.Duration) string
	device *device
}

func newStepper(t *testing.T) *stepper {
	b := newHarness(t)
	s := &stepper{harness: b, shows: b.withApp(), device: b.device("k", 0)}
	b.update(true, func(a *record.Account) { a.SecondFactor = false })
	b.backupCodes("ABCDEFGHJK", "BCDEFGHJKL")
	b.clock.advance(time.Minute) // the app shows a code that it has not shown
	return s
}

// logIn returns the token of a session by password.
func (s *stepper) logIn() string {
	s.t.Helper()
	return s.must("auth/checkcredentials", "", credentials(nil)).SessionToken
}

// right begins a step-up, and returns the body that ends it.
func (s *stepper) right(token, factor string, more object) object {
	s.t.Helper()
	begun := s.must("stepup", token, with(object{"factor": factor}, more))
	body := object{"stepup_token": begun.StepUpToken}
	switch factor {
	case "sms":
		body["otp"] = s.sms.lastOf(s.t, message.OTPStepUp).Code
	case "otp":
		body["otp"] = s.shows(0)
	case "backup":
		body["backup_code"] = "ABCDEFGHJK"
	case "pwd":
		body["password"] = password
	case "passkey":
		var a keychainAnswer
		must(s.t, json.Unmarshal(begun.PublicKey, &a))
		a.ID, a.Handle = s.device.id, s.device.handle
		body["challenge_token"], body["credential"] = begun.ChallengeToken, a
	}
	return body
}

// methods returns how a session was proven. Its login must be as old as wanted.
func (s *stepper) methods(token string, old time.Duration) record.AuthMethods {
	s.t.Helper()
	found, err := s.Authorize(s.t.Context(), session.Requirement{Whole: true}, []string{"Bearer " + token})
	must(s.t, err)
	if age := s.clock.Now().Sub(found.LoginTime()); age != old {
		s.t.Errorf("the login is %v old, want %v", age, old)
	}
	return found.Profile.Methods()
}

// Each factor raises the session where it stands, on all nodes and once.
func TestEachFactorRaisesASession(t *testing.T) {
	for factor, want := range map[string]record.AuthMethods{
		"sms": "pwd sms mfa", "otp": "pwd otp mfa", "backup": "pwd backup mfa", "passkey": "pwd passkey mfa", "pwd": "pwd",
	} {
		t.Run(factor, func(t *testing.T) {
			s := newStepper(t)
			s.remembering(100)
			token, other := s.logIn(), s.logIn()
			s.clock.advance(5 * time.Minute)
			if got := s.methods(token, 5*time.Minute); got != "pwd" {
				t.Fatalf("it began as %q", got)
			}
			before := s.load().BackupCodes
			events := s.record()
			body := s.right(token, factor, object{"for": map[bool]string{true: "fresh", false: "mfa"}[factor == "pwd"]})
			reply := s.must("stepup/check", token, body)
			if reply.SessionState != record.Authorized || strings.Join(reply.AuthMethods, " ") != string(want) || *reply.ExpiresIn != 3600 || reply.SessionToken != "" {
				t.Errorf("got %+v", reply)
			}
			if got := s.methods(token, 0); got != want {
				t.Errorf("it is %q now, want %q", got, want)
			}
			if got := s.methods(other, 5*time.Minute); got != "pwd" {
				t.Errorf("another session is %q", got)
			}
			raised := named(events(), record.SessionRaised)
			if len(raised) != 1 || raised[0].Factor != factor || raised[0].Mnemocode != mnemocode || raised[0].Session == "" {
				t.Errorf("the events are %+v", raised)
			}
			s.wrong(wire.ErrValidation, "stepup/check", token, body) // the step-up was used
			a := s.load()
			if factor == "backup" && a.BackupCodes != before-1 {
				t.Errorf("%d backup codes are left of %d", a.BackupCodes, before)
			}
			if proven := len(named(events(), record.ContactVerified)); a.PhoneVerified.IsZero() == (factor == "sms") || proven != map[bool]int{true: 1}[factor == "sms"] {
				t.Errorf("the phone was proven at %v, with %d events", a.PhoneVerified, proven)
			}
		})
	}
}

// Without a password, an app raises a session, too. A password that only a former system
// knows raises none once that is gone.
func TestFactorsWithoutAPassword(t *testing.T) {
	s := newStepper(t)
	s.company.Passkeys = nil
	factors := func(hash, wanted string) string {
		t.Helper()
		s.withHash(hash)
		return fmt.Sprint(s.must("stepup", s.walk("auth/oauth").SessionToken, object{"for": wanted}).Factors)
	}
	if got := factors("", "mfa"); got != "[otp sms backup]" {
		t.Errorf("got %s", got)
	}
	token := s.walk("auth/oauth").SessionToken
	if reply := s.must("stepup/check", token, s.right(token, "otp", nil)); strings.Join(reply.AuthMethods, " ") != "oauth otp mfa" {
		t.Errorf("got %v", reply.AuthMethods)
	}
	if got := factors(record.ExternalPassword, "fresh"); got != "[otp sms]" {
		t.Errorf("got %s", got)
	}
	s.company.Migrate = &elsewhere{right: password}
	if got := factors(record.ExternalPassword, "fresh"); got != "[pwd otp sms]" {
		t.Errorf("got %s", got)
	}
}

// While codes are locked, as strangers can lock them, a password still raises a session.
func TestAPasswordTakesThePlaceOfLockedCodes(t *testing.T) {
	s := newStepper(t)
	s.company.Passkeys = nil
	s.counted(record.WrongCodes, s.company.Limits.WrongCodes.N)
	token := s.walk("auth/oauth").SessionToken
	reply := s.must("stepup", token, object{})
	if fmt.Sprint(reply.Factors, reply.Factor) != "[otp sms backup pwd]pwd" {
		t.Errorf("got %+v", reply)
	}
	s.wrong(wire.ErrRestricted, "stepup", token, object{"factor": "sms"})
	s.must("stepup/check", token, object{"stepup_token": reply.StepUpToken, "password": password})
}

func TestFactorsAreThoseThatWouldHelp(t *testing.T) {
	s := newStepper(t)
	s.company.Session.Temporary = tenant.Duration(9 * time.Minute)
	token := s.logIn()
	check := func(body object, want string) flows.Reply {
		t.Helper()
		reply := s.must("stepup", token, body)
		if got := fmt.Sprint(reply.Factors, reply.Factor); got != want || *reply.ExpiresIn != 540 || (reply.ChallengeToken != "") != (reply.Factor == "passkey") {
			t.Errorf("%v: got %s, want %s, and %+v", body, got, want, reply)
		}
		return reply
	}
	check(object{}, "[passkey otp sms backup]passkey")
	check(object{"for": "fresh"}, "[passkey pwd otp sms]passkey")
	check(object{"factor": "backup"}, "[passkey otp sms backup]backup")
	if reply := check(object{"factor": "sms"}, "[passkey otp sms backup]sms"); reply.UserPhone != record.MaskPhone(phone) || s.sms.last(t).Type != message.OTPStepUp {
		t.Errorf("got %+v", reply)
	}
	for _, body := range []object{{"factor": "pwd"}, {"factor": "backup", "for": "fresh"}, {"factor": "oauth"}, {"for": "x"}, {"factor": 1}} {
		s.wrong(wire.ErrValidation, "stepup", token, body)
	}
	begun := check(object{}, "[passkey otp sms backup]passkey") // the user may take another one
	s.must("stepup/check", token, object{"stepup_token": begun.StepUpToken, "otp": s.shows(0)})
	check(object{}, "[passkey pwd otp sms]passkey") // it has two factors, so only freshness can be wanted
	s.update(false, func(a *record.Account) { a.Phone, a.TOTP = "", "" })
	must(t, s.Accounts.SetBackupCodes(t.Context(), s.load(), nil))
	s.company.Passkeys = nil
	token = s.logIn()
	_, err := s.serve("stepup", token, object{})
	wantError(t, err, wire.ErrUserRestricted)
	if refusal(err).Reason != wire.NoSecondFactor {
		t.Errorf("got %+v", refusal(err))
	}
	begun = check(object{"for": "fresh"}, "[pwd]pwd")
	s.status(record.StatusClosed)
	s.wrong(wire.ErrUserClosed, "stepup", token, object{})
	s.wrong(wire.ErrUserClosed, "stepup/check", token, object{"stepup_token": begun.StepUpToken, "password": password})
}

// What does not belong to this session and step-up raises nothing, and the session survives.
func TestAForeignStepUpRaisesNothing(t *testing.T) {
	s := newStepper(t)
	s.addCompany("other")
	token, other := s.logIn(), s.logIn()
	body := s.right(token, "otp", nil)
	of := func(token string) object { return with(body, object{"stepup_token": token}) }
	mine := body["stepup_token"].(string)
	login := s.device.answer(code)
	for name, bad := range map[string]object{
		"nothing":                 of(""),
		"a token of the session":  of(token),
		"for something else":      of(strings.Replace(mine, ".mfa.", ".fresh.", 1)),
		"of another factor":       of(strings.Replace(mine, ".otp", ".sms", 1)),
		"cut":                     of(mine[:len(mine)-5]),
		"of another session":      of(s.must("stepup", other, object{}).StepUpToken),
		"two factors":             with(body, object{"password": password}),
		"no factor":               {"stepup_token": mine},
		"a factor that was given": {"stepup_token": mine, "password": password},
		"half a passkey":          {"stepup_token": mine, "challenge_token": login["challenge_token"]},
		"no code":                 with(body, object{"otp": "12345"}),
	} {
		if _, err := s.serve("stepup/check", token, bad); !errors.Is(err, wire.ErrValidation) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	s.wrong(wire.ErrCredentialsInvalid, "stepup/check", token, object{"stepup_token": mine, "challenge_token": login["challenge_token"], "credential": login["credential"]})
	if n := s.failureCount(record.WrongCodes); n != 0 {
		t.Errorf("%d wrong codes were counted", n)
	}
	if _, err := s.serveAs("other", home, "stepup/check", token, body); !errors.Is(err, wire.ErrTokenInvalid) {
		t.Errorf("in another company: got %v", err)
	}
	late := s.right(token, "backup", nil)
	s.clock.advance(10 * time.Minute)
	s.wrong(wire.ErrValidation, "stepup/check", token, late)
	if got := s.methods(token, 10*time.Minute); got != "pwd" {
		t.Errorf("the session is %q", got)
	}
	last := s.right(token, "backup", nil)
	s.must("auth/logout", token, nil)
	s.wrong(wire.ErrTokenInvalid, "stepup/check", token, last)
	s.wrong(wire.ErrValidation, "stepup/check", other, last)
	if left := s.load().BackupCodes; left != 2 {
		t.Errorf("%d backup codes are left", left)
	}
}

// Wrong factors count and lock as in a login. The session survives.
func TestWrongFactorsCountAsInALogin(t *testing.T) {
	for factor, wrong := range map[string]struct {
		body object
		err  *wire.Error
		kind record.FailureKind
	}{
		"otp":    {object{"otp": "000000"}, wire.ErrOTPInvalid, record.WrongCodes},
		"sms":    {object{"otp": "000000"}, wire.ErrOTPInvalid, record.WrongCodes},
		"backup": {object{"backup_code": "ZZZZZZZZZZ"}, wire.ErrBackupCodeInvalid, record.WrongCodes},
		"pwd":    {object{"password": "wrong"}, wire.ErrPasswordInvalid, record.WrongPasswords},
	} {
		t.Run(factor, func(t *testing.T) {
			s := newStepper(t)
			s.company.Limits.WrongCodes.N, s.company.Limits.LockAfter, s.company.Limits.CaptchaAfter = 3, 3, new(1)
			token := s.logIn()
			wanted := object{"for": "fresh"}
			if factor == "backup" {
				wanted = nil
			}
			right := s.right(token, factor, wanted)
			for i := range 3 {
				begun := object{"stepup_token": right["stepup_token"]}
				s.wrong(wrong.err, "stepup/check", token, with(begun, wrong.body))
				if factor == "sms" && i < 2 { // a code has one guess; then the right one is wrong, and counts no more
					s.wrong(wire.ErrOTPInvalid, "stepup/check", token, right)
				}
				if n := s.failureCount(wrong.kind); n != i+1 {
					t.Errorf("%d are counted after %d", n, i+1)
				}
				if factor == "sms" && i < 2 {
					right = s.right(token, factor, wanted)
				}
			}
			s.wrong(wire.ErrRestricted, "stepup/check", token, right)
			if factor == "sms" {
				s.wrong(wire.ErrRestricted, "stepup", token, object{"factor": "sms"})
			}
			if got := s.methods(token, 0); got != "pwd" {
				t.Errorf("the session is %q", got)
			}
		})
	}
}

// A login for which a known device was asked for no code has one factor.
func TestASkippedFactorMustBeGivenForAStepUp(t *testing.T) {
	b := newDevices(t)
	b.company.Devices.SkipSecondFactor = true
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered()
	token := b.must("auth/checkcredentials", "", credentials(object{"device_token": device})).SessionToken
	want := session.Requirement{TwoFactors: func() bool { return true }}
	if _, err := b.Authorize(t.Context(), want, []string{"Bearer " + token}); refusal(err).Reason != wire.OneFactor {
		t.Fatalf("got %v", err)
	}
	begun := b.must("stepup", token, object{})
	b.must("stepup/check", token, object{"stepup_token": begun.StepUpToken, "otp": b.sms.last(t).Code})
	_, err := b.Authorize(t.Context(), want, []string{"Bearer " + token})
	must(t, err)
}

// To begin a step-up is activity: the session does not become idle while its user answers. Its
// code does not outlive it.
func TestASessionDoesNotBecomeIdleDuringItsStepUp(t *testing.T) {
	for _, factor := range []string{"sms", "pwd"} {
		s := newStepper(t)
		token := s.logIn()
		s.clock.advance(time.Hour - time.Second)
		body := s.right(token, factor, object{"for": "fresh"})
		s.clock.advance(2 * time.Second)
		s.must("stepup/check", token, body)
	}
	s := newStepper(t)
	s.company.OTP.TTL = tenant.Duration(time.Hour)
	begun := s.must("stepup", s.logIn(), object{"factor": "sms"})
	if left := s.sms.last(t).Expires.Sub(s.clock.Now()); int(left/time.Second) != *begun.ExpiresIn {
		t.Errorf("the SMS says %v, but the step-up ends in %d s", left, *begun.ExpiresIn)
	}
}

// A step-up's token works once, however long a company lets it live.
func TestALongStepUpIsUsedOnce(t *testing.T) {
	s := newStepper(t)
	s.company.Session.Temporary, s.company.Session.Idle = tenant.Duration(6*time.Hour), tenant.Duration(12*time.Hour)
	token := s.logIn()
	body := s.right(token, "pwd", object{"for": "fresh"})
	s.must("stepup/check", token, body)
	for range 5 {
		s.clock.advance(time.Hour + time.Second)
		s.wrong(wire.ErrValidation, "stepup/check", token, body)
	}
}

// A spending is a store of sessions that calls before just before a code is spent.
type spending struct {
	record.Sessions
	before func()
}

func (s spending) SpendCode(ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter) (record.Session, error) {
	s.before()
	return s.Sessions.SpendCode(ctx, now, company, hash, state, counters...)
}

// A code has one guess, although the requests that guess were all begun before.
func TestRacingGuessesOfAStepUpAreOne(t *testing.T) {
	s := newStepper(t)
	token := s.logIn()
	right := s.right(token, "sms", nil)
	sessions := s.Sessions
	s.Sessions = spending{sessions, func() {
		s.Sessions = sessions
		s.wrong(wire.ErrOTPInvalid, "stepup/check", token, with(right, object{"otp": "000000"}))
	}}
	s.wrong(wire.ErrOTPInvalid, "stepup/check", token, right)
}

// Nor does a new token of the session bring the code back, whatever happens while its body comes.
func TestASpentCodeDoesNotComeBack(t *testing.T) {
	s := newStepper(t)
	token := s.logIn()
	right := s.right(token, "sms", nil)
	r := asking(token)
	r.Body = func() ([]byte, error) {
		s.wrong(wire.ErrOTPInvalid, "stepup/check", token, with(right, object{"otp": "000000"}))
		return nil, nil
	}
	moved, err := s.ExchangeToken(t.Context(), r, nil)
	must(t, err)
	s.wrong(wire.ErrOTPInvalid, "stepup/check", moved.SessionToken, right)
}

// Of any number of requests with one step-up on two nodes, one takes effect. Step-ups of
// their own that race all do.
func TestRacingStepUps(t *testing.T) {
	s := newStepper(t)
	events := s.record()
	two := s.node()
	on := func(i int) *harness { return []*harness{s.harness, two}[i%2] }
	for _, factor := range []string{"pwd", "sms", "otp", "backup"} {
		token := s.logIn()
		wanted := object{"for": "fresh"}
		if factor == "backup" {
			wanted = nil
		}
		body := s.right(token, factor, wanted)
		before := len(named(events(), record.SessionRaised))
		got := race(20, func(i int) error { _, err := on(i).serve("stepup/check", token, body); return err })
		if got[""] != 1 || len(named(events(), record.SessionRaised)) != before+1 {
			t.Errorf("%s: got %v", factor, got)
		}
		s.clock.advance(24 * time.Hour) // those that lost may have counted as wrong codes, and locked them
	}
	token := s.logIn()
	bodies := []object{s.right(token, "sms", nil), s.right(token, "otp", nil), s.right(token, "passkey", nil)}
	if got := race(len(bodies), func(i int) error { _, err := on(i).serve("stepup/check", token, bodies[i]); return err }); got[""] != len(bodies) {
		t.Errorf("different factors: got %v", got)
	}
	words := strings.Fields(string(s.methods(token, 0)))
	slices.Sort(words)
	if want := "mfa otp passkey pwd sms"; strings.Join(words, " ") != want {
		t.Errorf("got %v, want %s", words, want)
	}
}
