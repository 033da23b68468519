package flows_test

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A code that was sent before the phone changes is useless. The next one goes to the
// new phone.
func TestAPhoneThatChangesWhileACodeIsOut(t *testing.T) {
	const other = "+37060099999"
	for _, state := range []record.State{record.CheckOTP, record.RecoveryOTP} {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			token, path, kind := b.sessionIn(state), "auth/checkotp", message.OTPLogin
			if state == record.RecoveryOTP {
				path, kind = "auth/recovery/checkotp", message.OTPRecovery
			}
			out := b.sms.lastOf(t, kind)
			b.change(func(a *record.Account) { a.Phone = other })
			b.wrong(wire.ErrTokenInvalid, path, token, object{"otp": out.Code})
			again := b.sessionIn(state)
			sent := b.sms.lastOf(t, kind)
			if sent.To != other {
				t.Errorf("the code went to %s", sent.To)
			}
			b.wrong(wire.ErrOTPInvalid, path, again, object{"otp": wrongCode(sent.Code)})
			b.wrong(wire.ErrLoginIDNotFound, "auth/login", "", object{"login_id": phone})
		})
	}
}

// A stranger who begins a recovery or guesses in it does not affect a user who is
// logged in. A new password by recovery revokes the user's session too.
func TestRecoveryWhileLoggedIn(t *testing.T) {
	b := newHarness(t)
	session := b.sessionIn(record.Authorized)
	first := b.sessionIn(record.RecoveryOTP)
	b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", first, object{"otp": wrongCode(b.sms.last(t).Code)})
	question := b.sessionIn(record.RecoveryQuestion)
	b.wrong(wire.ErrAnswerInvalid, "auth/recovery/checkquestion", question, object{"control_answer": "no"})
	link := b.goodBody("auth/recovery/checklink")
	b.wantLive(session, nil)
	proven := b.must("auth/recovery/checklink", "", link).SessionToken
	b.wantLive(session, nil)
	b.wantLive(proven, wire.ErrSessionInvalid)
	b.must("auth/setpassword", proven, object{"new_password": "another fine secret"})
	b.wantLive(session, wire.ErrTokenInvalid)
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/renewotp", first, nil)
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checkquestion", question, object{"control_answer": answer})
}
