package flows_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func asking(token string) *flows.Request {
	return &flows.Request{Company: code, Authorization: []string{"Bearer " + token}, Client: session.Client{Address: "192.0.2.1"}}
}

// A client gains no time by sending its body slowly.
func TestTimePassesWhileABodyComes(t *testing.T) {
	b := newHarness(t)
	slow := func(token string, body object, takes tenant.Duration) *flows.Request {
		r := asking(token)
		r.Body = func() ([]byte, error) {
			b.clock.advance(time.Duration(takes))
			return json.Marshal(body)
		}
		return r
	}
	temporary, ttl, idle := b.company.Session.Temporary, b.company.OTP.TTL, b.company.Session.Idle
	otp := func(takes tenant.Duration) error {
		r := slow(b.sessionIn(record.CheckOTP), b.goodBody("auth/checkotp"), takes)
		r.Route = flows.RouteByPath("auth/checkotp")
		_, err := b.Serve(t.Context(), r)
		return err
	}
	wantError(t, otp(ttl), wire.ErrOTPInvalid)
	wantError(t, otp(temporary), wire.ErrTokenExpired)
	_, err := b.ExchangeToken(t.Context(), slow(b.walk("auth/oauth").SessionToken, object{}, idle), &struct{}{})
	wantError(t, err, wire.ErrTokenExpired)
	var wants struct{ Cookie bool }
	_, err = b.ExchangeToken(t.Context(), slow(b.walk("auth/oauth").SessionToken, object{"Cookie": true}, 0), &wants)
	if err != nil || !wants.Cookie {
		t.Errorf("the body is read as %+v, %v", wants, err)
	}
}

// After a passkey, a new password comes with the disclaimers that are pending. A client
// that lost the answer learns of them, too.
func TestTheStateOfANewPasswordHasItsDisclaimers(t *testing.T) {
	b := newHarness(t)
	d := b.device("k", 0)
	b.update(true, func(a *record.Account) { a.MustSetPassword = true })
	b.company.Disclaimers = []wire.Disclaimer{terms}
	answer := b.must("passkey/login", "", d.answer(code))
	wantStep(t, answer, record.SetPassword)
	current, err := b.Current(t.Context(), asking(answer.SessionToken))
	if err != nil || len(answer.DisclaimersRequired) != 1 || len(current.DisclaimersRequired) != 1 {
		t.Errorf("the login requires %v, then %v, %v", answer.DisclaimersRequired, current.DisclaimersRequired, err)
	}
}

// The new token belongs to the same session, with the same ID, login and lifetime.
func TestASuccessorIsTheSameSession(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	before, err := b.authorize(token)
	must(t, err)
	events := b.record()
	for moved := time.Duration(0); moved < time.Duration(b.company.Session.Lifetime)-time.Minute; moved += time.Duration(b.company.Session.Idle) - time.Minute {
		reply, err := b.ExchangeToken(t.Context(), asking(token), nil)
		must(t, err)
		b.wantLive(token, wire.ErrTokenInvalid)
		if _, err := b.ExchangeToken(t.Context(), asking(token), nil); err != wire.ErrTokenInvalid {
			t.Errorf("a second time: %v", err)
		}
		token = reply.SessionToken
		after, err := b.authorize(token)
		must(t, err)
		if after.ID != before.ID || !after.Created.Equal(before.Created) || !after.Ends.Equal(before.Ends) || after.Generation != before.Generation || after.Expires.After(after.Ends) {
			t.Errorf("it became %+v, and was %+v", after, before)
		}
		b.clock.advance(time.Duration(b.company.Session.Idle) - time.Minute)
	}
	if last := events()[len(events())-1]; last.Name != record.SessionMoved || last.Session != before.ID || last.Mnemocode != mnemocode {
		t.Errorf("got %+v", last)
	}
	b.clock.advance(time.Duration(b.company.Session.Lifetime))
	b.wantLive(token, wire.ErrTokenExpired)
}

// The browser sends a cookie to each company of a site, so any company can log its
// session out.
func TestAnEndIsTheTokensWhicheverCompanyHearsOfIt(t *testing.T) {
	b := newHarness(t)
	b.addCompany("other")
	token := b.sessionIn(record.Authorized)
	events := b.record()
	must(t, b.End(t.Context(), &flows.Request{Company: "other"}, []string{"Bearer " + token}))
	b.wantLive(token, wire.ErrTokenInvalid)
	if last := events()[len(events())-1]; last.Name != record.SessionEnded || last.Company != code || last.Mnemocode != mnemocode {
		t.Errorf("got %+v", last)
	}
}

// Reading a session does not extend it. Only an authorized token can be exchanged,
// or be revoked without a key.
func TestAskingForASessionChangesNothing(t *testing.T) {
	for _, state := range record.States[1:] {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			token := b.sessionIn(state)
			for range 4 {
				reply, err := b.Current(t.Context(), asking(token))
				if err != nil || reply.SessionState != state || (reply.AuthMethods != nil) != (state == record.Authorized) {
					t.Fatalf("got %+v, %v", reply, err)
				}
				b.clock.advance(time.Duration(b.company.Session.Temporary) / 5)
			}
			b.company.Disclaimers, b.company.Captcha, b.company.Limits.CaptchaAfter = []wire.Disclaimer{terms}, &captcha{}, new(0)
			accepts := slices.Contains([]record.State{record.CheckPassword, record.CheckOTP, record.AcceptDisclaimers, record.SetPassword}, state)
			if reply, err := b.Current(t.Context(), asking(token)); err != nil || (len(reply.DisclaimersRequired) == 1) != accepts || reply.CaptchaRequired != (state == record.CheckPassword) {
				t.Errorf("it asks for the disclaimers %v, a captcha: %v; %v", reply.DisclaimersRequired, reply.CaptchaRequired, err)
			}
			if state != record.Authorized {
				if _, err := b.ExchangeToken(t.Context(), asking(token), nil); err != wire.ErrSessionInvalid {
					t.Errorf("Succeed: %v", err)
				}
				if err := b.End(t.Context(), asking(token), asking(token).Authorization); err != wire.ErrSessionInvalid {
					t.Errorf("End: %v", err)
				}
			}
			b.clock.advance(time.Duration(b.company.Session.Idle))
			if _, err := b.Current(t.Context(), asking(token)); err != wire.ErrTokenExpired {
				t.Errorf("got %v", err)
			}
		})
	}
}

// In checkotp, user_phone is there if a code was sent, also once the code is spent.
func TestASessionWithoutACodeNamesNoPhone(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	b.backupCodes("AAAAABBBBB")
	b.company.Limits.SMSPerAccount = tenant.Rate{N: 1, Per: time.Minute}
	check := func(token string, answered flows.Reply) {
		t.Helper()
		for range 2 { // the second time after a wrong code
			if reply, err := b.Current(t.Context(), asking(token)); err != nil || reply.UserPhone != answered.UserPhone {
				t.Errorf("got %q, %v, and the answer had %q", reply.UserPhone, err, answered.UserPhone)
			}
			b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "000000"})
		}
	}
	login := func() flows.Reply { return b.must("auth/checkcredentials", "", credentials(nil)) }
	sent := login()
	check(sent.SessionToken, sent)
	codeless := login()
	if sent.UserPhone == "" || codeless.UserPhone != "" {
		t.Fatalf("answered %q, then %q", sent.UserPhone, codeless.UserPhone)
	}
	check(codeless.SessionToken, codeless)
	b.clock.advance(time.Minute)
	check(codeless.SessionToken, b.must("auth/renewotp", codeless.SessionToken, nil))
	b.must("auth/checkotp", codeless.SessionToken, object{"backup_code": "AAAAABBBBB"})
}

// Once a code was sent, the app's no longer counts.
func TestASessionNamesTheFactorsThatCount(t *testing.T) {
	b := newHarness(t)
	b.withApp()
	token := b.must("auth/checkcredentials", "", credentials(nil)).SessionToken
	for _, want := range [][]record.AuthMethods{{record.ByApp, record.BySMS}, {record.BySMS}} {
		if reply, err := b.Current(t.Context(), asking(token)); err != nil || !slices.Equal(reply.SecondFactors, want) {
			t.Errorf("got %v, %v, want %v", reply.SecondFactors, err, want)
		}
		b.must("auth/renewotp", token, nil)
	}
}
