package flows_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestANewPasswordAuthorizesOrEndsTheRecovery(t *testing.T) {
	for _, state := range []record.State{record.SetPassword, record.RecoveryPassword} {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			token := b.sessionIn(state)
			reply := b.must("auth/setpassword", token, object{"new_password": "another fine secret"})
			if state == record.SetPassword {
				wantStep(t, reply, record.Authorized)
				b.wrong(wire.ErrSessionInvalid, "auth/setpassword", reply.SessionToken, object{"new_password": "x"})
			} else if reply.SessionToken != "" || reply.SessionState != record.None || reply.ProfileMnemocode != "" || reply.PasswordQuality != nil {
				t.Errorf("got %+v, want nothing but the success", reply)
			}
			b.wrong(wire.ErrTokenInvalid, "auth/setpassword", token, object{"new_password": "yet another secret"})
			b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": email, "password": password})
			wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": "another fine secret"}), record.Authorized)
			b.Close()
			if m := b.mail.last(t); m.Type != message.NoticePasswordChanged || m.To != email || m.Code != "" || m.Link != "" {
				t.Errorf("the owner was told %+v", m)
			}
		})
	}
}

// The requirements for a new password. quality_test.go tests each rule.
func TestARefusedPasswordLeavesTheSession(t *testing.T) {
	for _, state := range []record.State{record.SetPassword, record.RecoveryPassword} {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			b.company.Password.Regex = `[0-9]|correct`
			b.company.Regex = regexp.MustCompile(b.company.Password.Regex)
			b.company.Password.RegexDescription = "Use a digit."
			token := b.sessionIn(state)
			other := b.must("auth/login", "", object{"login_id": email}).SessionToken
			for _, c := range []struct {
				password string
				want     *wire.Error
				reason   wire.Reason
				says     string
			}{
				{"short 1", wire.ErrQuality, wire.PasswordTooShort, "8 to 128"},
				{"ﬁﬁﬁ1", wire.ErrQuality, wire.PasswordTooShort, "8 to 128"}, // seven characters after NFKC
				{"password1", wire.ErrQuality, wire.PasswordCommon, "commonly used"},
				{"Alice@Example.com1", wire.ErrQuality, wire.PasswordPersonal, "login ids"},
				{"+370 600 12345", wire.ErrQuality, wire.PasswordPersonal, "login ids"},
				{"no digit at all", wire.ErrQuality, wire.PasswordPattern, "Use a digit."},
				{password, wire.ErrPasswordSame, "", ""},
				{strings.Repeat("ab1", 43), wire.ErrValidation, wire.PasswordTooLong, "128"},
			} {
				_, err := b.serve("auth/setpassword", token, object{"new_password": c.password})
				wantError(t, err, c.want)
				if r := refusal(err); r.Reason != c.reason || !strings.Contains(r.Message, c.says) || strings.Contains(r.Message, c.password) {
					t.Errorf("%q: the reason is %q, the message %q", c.password, r.Reason, r.Message)
				}
			}
			b.must("auth/checkpassword", other, object{"password": password}) // no session was revoked
			if b.load().PasswordHash == "" || b.mail.count() != 0 {
				t.Error("something changed")
			}
			b.must("auth/setpassword", token, object{"new_password": strings.Repeat("ﬁ", 64) + strings.Repeat("1", 64)})
		})
	}
}

// A new password revokes all other sessions, including those of unfinished logins,
// codes and links.
func TestANewPasswordEndsAllElse(t *testing.T) {
	for _, state := range []record.State{record.SetPassword, record.RecoveryPassword} {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			token := b.sessionIn(state)
			authorized := b.must("auth/oauth", "", b.goodBody("auth/oauth")).SessionToken
			pending := b.sessionIn(record.CheckPassword)
			recovery := b.sessionIn(record.RecoveryOTP)
			otp := b.sms.last(t).Code
			question := b.sessionIn(record.RecoveryQuestion)
			reset := b.sessionIn(record.RecoveryPassword)
			link := b.goodBody("auth/recovery/checklink")
			b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "bob"}, Password: password})
			stranger := b.must("auth/login", "", object{"login_id": "bob"}).SessionToken

			reply := b.must("auth/setpassword", token, object{"new_password": "another fine secret"})

			b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", pending, object{"password": "another fine secret"})
			b.wrong(wire.ErrTokenInvalid, "auth/recovery/checkotp", recovery, object{"otp": otp})
			b.wrong(wire.ErrTokenInvalid, "auth/recovery/renewotp", recovery, nil)
			b.wrong(wire.ErrTokenInvalid, "auth/recovery/checkquestion", question, object{"control_answer": answer})
			b.wrong(wire.ErrTokenInvalid, "auth/setpassword", reset, object{"new_password": "yet another secret"})
			b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", link)
			b.wantLive(token, wire.ErrTokenInvalid)
			b.wantLive(authorized, wire.ErrTokenInvalid)
			b.must("auth/checkpassword", stranger, object{"password": password})
			if state == record.SetPassword {
				b.wantLive(reply.SessionToken, nil)
			}
		})
	}
}
