package flows_test

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A session knows the role of its account and every proof that its login took, in
// whichever steps.
func TestASessionHasTheRoleAndTheMethodsOfItsLogin(t *testing.T) {
	credentials := object{"login_id": email, "password": password}
	mustSet := func(a *record.Account) { a.MustSetPassword = true }
	second := func(a *record.Account) { a.SecondFactor = true }
	codeless := func(a *record.Account) { a.PasswordHash = "" }
	for name, test := range map[string]struct {
		changes []func(*record.Account)
		login   func(b *bench) flows.Reply
		want    record.AuthMethods
	}{
		"checkpassword": {nil, func(b *bench) flows.Reply {
			return b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": password})
		}, "pwd"},
		"checkcredentials": {nil, func(b *bench) flows.Reply { return b.must("auth/checkcredentials", "", credentials) }, "pwd"},
		"an SMS alone": {[]func(*record.Account){codeless}, func(b *bench) flows.Reply {
			reply := b.must("auth/login", "", object{"login_id": email})
			return b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
		}, "sms"},
		"a password and an SMS": {[]func(*record.Account){second}, func(b *bench) flows.Reply {
			reply := b.must("auth/checkcredentials", "", credentials)
			return b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
		}, "pwd sms mfa"},
		"a new password after both": {[]func(*record.Account){second, mustSet}, func(b *bench) flows.Reply {
			reply := b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": password})
			reply = b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
			return b.must("auth/setpassword", reply.SessionToken, b.goodBody("auth/setpassword"))
		}, "pwd sms mfa"},
		"a first password after an SMS": {[]func(*record.Account){codeless, mustSet}, func(b *bench) flows.Reply {
			reply := b.must("auth/login", "", object{"login_id": email})
			reply = b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
			return b.must("auth/setpassword", reply.SessionToken, b.goodBody("auth/setpassword"))
		}, "sms"},
		"a backup code": {[]func(*record.Account){second}, func(b *bench) flows.Reply {
			b.backupCodes("ABCDEFGHJK")
			reply := b.must("auth/checkcredentials", "", credentials)
			return b.must("auth/checkotp", reply.SessionToken, object{"backup_code": "ABCDEFGHJK"})
		}, "pwd backup mfa"},
		"an app": {nil, func(b *bench) flows.Reply {
			shows := b.withApp()
			reply := b.must("auth/checkcredentials", "", credentials)
			return b.must("auth/checkotp", reply.SessionToken, object{"otp": shows(0)})
		}, "pwd otp mfa"},
		"an SMS in place of the app": {nil, func(b *bench) flows.Reply {
			b.withApp()
			reply := b.must("auth/checkcredentials", "", credentials)
			b.must("auth/renewotp", reply.SessionToken, nil)
			return b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
		}, "pwd sms mfa"},
		"a wrong code before": {nil, func(b *bench) flows.Reply {
			shows := b.withApp()
			reply := b.must("auth/checkcredentials", "", credentials)
			b.wrong(wire.ErrOTPInvalid, "auth/checkotp", reply.SessionToken, object{"otp": "000000"})
			return b.must("auth/checkotp", reply.SessionToken, object{"otp": shows(0)})
		}, "pwd otp mfa"},
		"oauth": {nil, func(b *bench) flows.Reply { return b.must("auth/oauth", "", b.goodBody("auth/oauth")) }, "oauth"},
		"oauth and disclaimers": {nil, func(b *bench) flows.Reply {
			token := b.sessionIn(record.AcceptDisclaimers)
			return b.must("auth/acceptdisclaimers", token, object{"accept_disclaimers": []string{}})
		}, "oauth"},
		"a token that was exchanged": {nil, func(b *bench) flows.Reply {
			reply := b.must("auth/checkcredentials", "", credentials)
			reply, err := b.ExchangeToken(t.Context(), &flows.Request{Company: code, Authorization: []string{"Bearer " + reply.SessionToken}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}, "pwd"},
		"a login after a recovery": {nil, func(b *bench) flows.Reply {
			token := b.must("auth/recovery/checkotp", b.sessionIn(record.RecoveryOTP), b.goodBody("auth/recovery/checkotp")).SessionToken
			b.must("auth/setpassword", token, b.goodBody("auth/setpassword"))
			return b.must("auth/checkcredentials", "", object{"login_id": email, "password": "another fine secret"})
		}, "pwd"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.update(true, func(a *record.Account) { a.Role = "Büro" })
			for _, change := range test.changes {
				b.update(true, change)
			}
			reply := test.login(b)
			got, err := b.Authorize(t.Context(), session.Requirement{}, []string{"Bearer " + reply.SessionToken})
			if err != nil {
				t.Fatal(err)
			}
			if want := record.Profile("B%C3%BCro   " + test.want); got.Profile != want {
				t.Errorf("got the profile %q, want %q", got.Profile, want)
			}
		})
	}
}
