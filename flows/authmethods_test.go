package flows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A session knows the role of its account and every proof that its login took, in
// whichever steps. So do the events of the steps.
func TestASessionHasTheRoleAndTheMethodsOfItsLogin(t *testing.T) {
	second := func(a *record.Account) { a.SecondFactor = true }
	for name, test := range map[string]struct {
		change func(*record.Account)
		login  func(b *harness) flows.Reply
		want   record.AuthMethods
	}{
		"an SMS, then a first password": {func(a *record.Account) { a.PasswordHash, a.MustSetPassword = "", true },
			func(b *harness) flows.Reply { return b.walk("auth/login", "auth/checkotp", "auth/setpassword") }, "sms"},
		"a password, an SMS and a new password": {func(a *record.Account) { a.SecondFactor, a.MustSetPassword = true, true },
			func(b *harness) flows.Reply {
				return b.walk("auth/login", "auth/checkpassword", "auth/checkotp", "auth/setpassword")
			}, "pwd sms mfa"},
		"a passkey": {second, func(b *harness) flows.Reply { return b.walk("passkey/login") }, "passkey mfa"},
		"a backup code": {second, func(b *harness) flows.Reply {
			b.backupCodes("ABCDEFGHJK")
			return b.must("auth/checkotp", b.walk("auth/checkcredentials").SessionToken, object{"backup_code": "ABCDEFGHJK"})
		}, "pwd backup mfa"},
		"an app": {second, func(b *harness) flows.Reply {
			shows := b.withApp()
			return b.must("auth/checkotp", b.walk("auth/checkcredentials").SessionToken, object{"otp": shows(0)})
		}, "pwd otp mfa"},
		"an SMS in place of the app": {second, func(b *harness) flows.Reply {
			b.withApp()
			reply := b.walk("auth/checkcredentials")
			b.must("auth/renewotp", reply.SessionToken, nil)
			return b.must("auth/checkotp", reply.SessionToken, b.goodBody("auth/checkotp"))
		}, "pwd sms mfa"},
		"oauth and disclaimers": {second, func(b *harness) flows.Reply {
			return b.must("auth/acceptdisclaimers", b.sessionIn(record.AcceptDisclaimers), object{"accept_disclaimers": []string{}})
		}, "oauth"},
		"a token that was exchanged": {func(*record.Account) {}, func(b *harness) flows.Reply {
			reply, err := b.ExchangeToken(t.Context(), asking(b.walk("auth/checkcredentials").SessionToken), nil)
			must(t, err)
			return reply
		}, "pwd"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.update(true, func(a *record.Account) { a.Role = "Büro"; test.change(a) })
			events := b.record()
			got, err := b.authorize(test.login(b).SessionToken)
			must(t, err)
			var factors, reasons []string
			for _, e := range events() {
				if e.Result == record.Success && e.Factor != "" {
					factors, reasons = append(factors, e.Factor), append(reasons, e.Reason)
				}
			}
			if given := strings.TrimSuffix(string(test.want), " mfa"); strings.Join(factors, " ") != given {
				t.Errorf("the events name the factors %q, want %s", factors, given)
			}
			if hasID := reasons[0] != ""; hasID != (factors[0] == "passkey" || factors[0] == "oauth") {
				t.Errorf("of %q the events have the ids %q", factors, reasons)
			}
			if want := record.NewProfile(record.Account{Role: "Büro"}, nil, time.Time{}, test.want); got.Profile != want {
				t.Errorf("got the profile %q, want %q", got.Profile, want)
			}
		})
	}
}
