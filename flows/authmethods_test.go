package flows_test

import (
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A session knows the role of its account and every proof that its login took, in
// whichever steps.
func TestASessionHasTheRoleAndTheMethodsOfItsLogin(t *testing.T) {
	mustSet := func(a *record.Account) { a.MustSetPassword = true }
	second := func(a *record.Account) { a.SecondFactor = true }
	codeless := func(a *record.Account) { a.PasswordHash = "" }
	walk := func(paths ...string) func(*harness) flows.Reply {
		return func(b *harness) flows.Reply { return b.walk(paths...) }
	}
	for name, test := range map[string]struct {
		changes []func(*record.Account)
		login   func(b *harness) flows.Reply
		want    record.AuthMethods
	}{
		"checkpassword":                 {nil, walk("auth/login", "auth/checkpassword"), "pwd"},
		"checkcredentials":              {nil, walk("auth/checkcredentials"), "pwd"},
		"an SMS alone":                  {[]func(*record.Account){codeless}, walk("auth/login", "auth/checkotp"), "sms"},
		"a password and an SMS":         {[]func(*record.Account){second}, walk("auth/checkcredentials", "auth/checkotp"), "pwd sms mfa"},
		"a new password after both":     {[]func(*record.Account){second, mustSet}, walk("auth/login", "auth/checkpassword", "auth/checkotp", "auth/setpassword"), "pwd sms mfa"},
		"a first password after an SMS": {[]func(*record.Account){codeless, mustSet}, walk("auth/login", "auth/checkotp", "auth/setpassword"), "sms"},
		"oauth":                         {nil, walk("auth/oauth"), "oauth"},
		"a passkey":                     {nil, walk("passkey/login"), "passkey mfa"},
		"a backup code": {[]func(*record.Account){second}, func(b *harness) flows.Reply {
			b.backupCodes("ABCDEFGHJK")
			reply := b.walk("auth/checkcredentials")
			return b.must("auth/checkotp", reply.SessionToken, object{"backup_code": "ABCDEFGHJK"})
		}, "pwd backup mfa"},
		"an app": {nil, func(b *harness) flows.Reply {
			shows := b.withApp()
			reply := b.walk("auth/checkcredentials")
			return b.must("auth/checkotp", reply.SessionToken, object{"otp": shows(0)})
		}, "pwd otp mfa"},
		"an SMS in place of the app": {nil, func(b *harness) flows.Reply {
			b.withApp()
			reply := b.walk("auth/checkcredentials")
			b.must("auth/renewotp", reply.SessionToken, nil)
			return b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
		}, "pwd sms mfa"},
		"a wrong code before": {nil, func(b *harness) flows.Reply {
			shows := b.withApp()
			reply := b.walk("auth/checkcredentials")
			b.wrong(wire.ErrOTPInvalid, "auth/checkotp", reply.SessionToken, object{"otp": "000000"})
			return b.must("auth/checkotp", reply.SessionToken, object{"otp": shows(0)})
		}, "pwd otp mfa"},
		"oauth and disclaimers": {nil, func(b *harness) flows.Reply {
			token := b.sessionIn(record.AcceptDisclaimers)
			return b.must("auth/acceptdisclaimers", token, object{"accept_disclaimers": []string{}})
		}, "oauth"},
		"a token that was exchanged": {nil, func(b *harness) flows.Reply {
			reply := b.walk("auth/checkcredentials")
			reply, err := b.ExchangeToken(t.Context(), asking(reply.SessionToken), nil)
			must(t, err)
			return reply
		}, "pwd"},
		"a login after a recovery": {nil, func(b *harness) flows.Reply {
			b.walk("auth/recovery/recover", "auth/recovery/checkotp", "auth/setpassword")
			return b.must("auth/checkcredentials", "", object{"login_id": email, "password": newSecret})
		}, "pwd"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.update(true, func(a *record.Account) { a.Role = "Büro" })
			for _, change := range test.changes {
				b.update(true, change)
			}
			reply := test.login(b)
			got, err := b.authorize(reply.SessionToken)
			must(t, err)
			if want := record.NewProfile(record.Account{Role: "Büro"}, nil, time.Time{}, test.want); got.Profile != want {
				t.Errorf("got the profile %q, want %q", got.Profile, want)
			}
		})
	}
}
