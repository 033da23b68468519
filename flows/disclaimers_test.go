package flows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

var (
	terms   = wire.Disclaimer{Code: "terms", Version: "1"}
	privacy = wire.Disclaimer{Code: "privacy", Version: "1"}
)

// accepted returns the acceptances that are stored with the account.
func (b *harness) accepted() []string {
	b.t.Helper()
	var all []string
	for _, a := range b.load().Accepted {
		all = append(all, a.Code+" "+a.Version+" "+a.At.Format(time.TimeOnly))
	}
	return all
}

func wantAccepted(t *testing.T, b *harness, want ...string) {
	t.Helper()
	if got := b.accepted(); !slices.Equal(got, want) {
		t.Errorf("accepted are %q, want %q", got, want)
	}
}

func TestAllRequiredDisclaimersMustBeAccepted(t *testing.T) {
	for _, r := range passwordRoutes {
		t.Run(r.path, func(t *testing.T) {
			b := newHarness(t)
			b.company.Disclaimers = []wire.Disclaimer{terms, privacy}
			token := b.sessionIn(record.CheckPassword)
			call := func(accept any) (flows.Reply, error) {
				return b.serve(r.path, token, object{"login_id": email, "password": password, "accept_disclaimers": accept})
			}
			for _, accept := range []any{nil, []string{}, []string{"terms"}, []string{"privacy", "other"}, []string{"Terms", "PRIVACY"}} {
				_, err := call(accept)
				wantError(t, err, wire.ErrDisclaimerInvalid)
				if got := refusal(err).Disclaimers; len(got) != 2 {
					t.Errorf("%v: got disclaimers_required %v, want both", accept, got)
				}
			}
			wantAccepted(t, b) // a step that fails writes nothing
			reply, err := call([]string{"other", "privacy", "terms", "terms"})
			must(t, err)
			wantStep(t, reply, record.Authorized)
			wantAccepted(t, b, "privacy 1 12:00:00", "terms 1 12:00:00") // and no disclaimer that is not required
			b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
		})
	}
}

// A wrong password is reported before the disclaimers are checked.
func TestDisclaimersComeBehindTheSecret(t *testing.T) {
	b := newHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{terms}
	b.wrong(wire.ErrPasswordInvalid, "auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": "wrong"})
	b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
	b.withoutPassword()
	token, _ := b.awaiting()
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "x"})
	b.wrong(wire.ErrBackupCodeInvalid, "auth/checkotp", token, object{"backup_code": "x"})
}

// Disclaimers that were accepted with the password are carried to the step that
// authorizes. That step checks what is required by then, and writes the acceptances.
func TestAcceptancesAreCarriedToTheStepThatAuthorizes(t *testing.T) {
	accept := object{"login_id": email, "password": password, "accept_disclaimers": []string{"terms"}}

	t.Run("by a code, a newer disclaimer and a new password", func(t *testing.T) {
		b := newHarness(t)
		b.update(true, func(a *record.Account) { a.SecondFactor, a.MustSetPassword = true, true })
		b.company.Disclaimers = []wire.Disclaimer{terms}
		token := b.must("auth/checkcredentials", "", accept).SessionToken
		b.company.Disclaimers = []wire.Disclaimer{terms, privacy} // privacy becomes pending during the login
		_, err := b.serve("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
		wantError(t, err, wire.ErrDisclaimerInvalid)
		if got := refusal(err).Disclaimers; len(got) != 1 || got[0] != privacy {
			t.Errorf("got disclaimers_required %v, want the new one", got)
		}
		b.clock.advance(time.Minute)
		b.must("auth/renewotp", token, nil)
		token = b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code, "accept_disclaimers": []string{"privacy"}}).SessionToken
		wantAccepted(t, b)
		b.must("auth/setpassword", token, b.goodBody("auth/setpassword"))
		wantAccepted(t, b, "privacy 1 12:01:00", "terms 1 12:00:00")
	})
	t.Run("an old version does not replace a new one", func(t *testing.T) {
		b := newHarness(t)
		b.update(true, func(a *record.Account) { a.SecondFactor = true })
		b.company.Disclaimers = []wire.Disclaimer{terms}
		slow := b.must("auth/checkcredentials", "", accept).SessionToken
		otp := b.sms.last(t).Code
		b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "2"}} // a reload, and another login
		b.clock.advance(time.Minute)
		token := b.must("auth/checkcredentials", "", accept).SessionToken
		b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
		wantStep(t, b.must("auth/checkotp", slow, object{"otp": otp}), record.Authorized)
		wantAccepted(t, b, "terms 2 12:01:00")
	})
	t.Run("a login that is given up", func(t *testing.T) {
		b := newHarness(t)
		b.update(true, func(a *record.Account) { a.SecondFactor = true })
		b.company.Disclaimers = []wire.Disclaimer{terms}
		token := b.must("auth/checkcredentials", "", accept).SessionToken
		b.must("auth/logout", token, nil)
		wantAccepted(t, b)
		b.wrong(wire.ErrDisclaimerInvalid, "auth/checkcredentials", "", object{"login_id": email, "password": password})
	})
}

// A disclaimer may become pending while a user thinks of a new password. The user
// accepts it together with the new password or, after a recovery, at the next login.
func TestANewPasswordComesWithWhatBecamePending(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.SetPassword)
	recovery := b.sessionIn(record.RecoveryPassword)
	b.company.Disclaimers = []wire.Disclaimer{terms, privacy}
	secret := func(accept ...string) object {
		return object{"new_password": "another fine secret", "accept_disclaimers": accept}
	}
	for _, body := range []object{secret(), secret("terms"), {"new_password": "another fine secret"}} {
		_, err := b.serve("auth/setpassword", token, body)
		wantError(t, err, wire.ErrDisclaimerInvalid)
		if len(refusal(err).Disclaimers) != 2 {
			t.Errorf("got disclaimers_required %v", refusal(err).Disclaimers)
		}
	}
	b.wrong(wire.ErrQuality, "auth/setpassword", token, object{"new_password": "x", "accept_disclaimers": []string{"terms", "privacy"}})
	if wantAccepted(t, b); b.load().Generation != 2 {
		t.Error("the password was set although disclaimers are pending")
	}
	wantStep(t, b.must("auth/setpassword", token, secret("privacy", "terms", "another")), record.Authorized)
	wantAccepted(t, b, "privacy 1 12:00:00", "terms 1 12:00:00")
	b.wrong(wire.ErrTokenInvalid, "auth/setpassword", recovery, secret())

	b = newHarness(t)
	recovery = b.sessionIn(record.RecoveryPassword)
	b.company.Disclaimers = []wire.Disclaimer{terms}
	b.must("auth/setpassword", recovery, secret("terms"))
	wantAccepted(t, b)
}
