package flows_test

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestAPhoneThatChangesWhileACodeIsOut(t *testing.T) {
	for state, path := range map[record.State]string{record.CheckOTP: "auth/checkotp", record.RecoveryOTP: "auth/recovery/checkotp"} {
		b := newHarness(t)
		token := b.sessionIn(state)
		right := b.goodBody(path)
		b.change(func(a *record.Account) { a.Phone = "+37060099999" })
		b.wrong(wire.ErrTokenInvalid, path, token, right)
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
