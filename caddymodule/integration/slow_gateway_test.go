package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
)

// If the SMS gateway of a company hangs, only codes of this company are lost. Its
// notices are sent, and so are all messages of other companies. The lost codes are
// counted, and the log names their accounts.
func TestASlowGatewayDropsOnlyItsCompanysCodes(t *testing.T) {
	t.Parallel()
	const recoveries, atOnce = 300, 256
	slow := newGateway(t)
	slow.behave(slow.hang)
	defer slow.behave(nil)
	owner := func(name string) string { return account(name, "email "+name+"@example.com\nmust_set_password") }
	acme := roomy + "hardened\nsms webhook " + slow.URL + "/sms {\nsecret " + smsSecret + "\ntimeout 20s\n}\n" + owner("alice")
	for i := range recoveries {
		acme += fmt.Sprintf("account user-%d {\nphone +3706001%04[1]d\n}\n", i)
	}
	s := startSite(t, siteConfig{
		company: acme,
		more: "company umbrella {\napi_key " + testKey + "\nhardened\n" + roomy + account("bob", "phone +37060000002") + "}\n" +
			"company zeta {\napi_key " + testKey + "\n" + roomy + owner("carol") + "}\n",
	})
	recover := func(company, loginID string) answer {
		return s.postTo(company, testKey, "auth/recovery/recover", "", fields{"login_id": loginID, "captcha_response": "any", "method": "PHONE"})
	}
	for _, a := range storm(recoveries, func(i int) answer { return recover("acme", fmt.Sprintf("+3706001%04d", i)) }) {
		if a.Status != http.StatusOK {
			t.Fatalf("a recovery of a hardened company tells of its gateway: %d %s", a.Status, a.Body)
		}
	}
	const dropped = "mnemogate_messages_dropped_total"
	if n := s.scrape()[dropped+`{company="acme"}`]; n != recoveries-atOnce {
		t.Errorf("%v messages of acme were dropped, want %d", n, recoveries-atOnce)
	}
	setPassword := func(company, loginID string) {
		token := s.postTo(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword}).
			wantState(record.SetPassword).token()
		s.postTo(company, testKey, "auth/setpassword", token, fields{"new_password": "a much better secret"}).wantState(record.Authorized)
	}
	recover("umbrella", "+37060000002").wantState(record.RecoveryOTP)
	setPassword("zeta", "carol")
	setPassword("acme", "alice")
	s.eventually("the messages of umbrella and zeta, and acme's notice", func() bool {
		return len(s.sms.of("otp.recovery")) == 1 && len(s.sms.of("notice.password_changed")) == 2
	})
	for _, company := range []string{"umbrella", "zeta"} {
		if n, told := s.scrape()[dropped+`{company="`+company+`"}`]; n != 0 || !told {
			t.Errorf("%v messages of %s were dropped (%t), want 0", n, company, told)
		}
	}
	s.eventually("a line of the log for each message", func() bool {
		return strings.Count(s.log(), "a message was dropped") == recoveries-atOnce
	})
	for line := range strings.Lines(s.log()) {
		if !strings.Contains(line, "a message was dropped") {
			continue
		}
		for _, want := range []string{`"company":"acme"`, `"account":"user-`, `"type":"otp.recovery"`, "find out why the gateway is slow"} {
			if !strings.Contains(line, want) {
				t.Errorf("%q does not hold %s", line, want)
			}
		}
		if strings.Contains(line, "+370") {
			t.Errorf("a phone is logged: %q", line)
		}
	}
}
