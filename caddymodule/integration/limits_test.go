package integration

import (
	"fmt"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// storm calls f n times, with as many concurrent calls as the machine can open
// connections.
func storm(n int, f func(i int) answer) []answer {
	const width = 100
	var answers []answer
	for begun := 0; begun < n; begun += width {
		answers = append(answers, storetest.Together(min(width, n-begun), func(i int) answer { return f(begun + i) })...)
	}
	return answers
}

// Of a thousand simultaneous requests, as many send an SMS as the budget allows,
// whichever budget it is. The next request sends none.
func TestSMSBudgetsAreSpentExactly(t *testing.T) {
	t.Parallel()
	const budget = 7
	asked := fewer(1000)
	of := []string{"sms_per_account", "sms_per_country", "renewals"} // all that an SMS costs is charged at once
	var companies string
	for _, narrow := range of {
		limits := map[string]string{"sms_per_account": "100000/1h", "sms_per_phone": "100000/1h", "sms_per_address": "100000/1h", "sms_per_company": "100000/1h", "sms_per_country": "100000/1h"}
		renewals := 100
		if narrow == "renewals" {
			renewals = budget
		} else {
			limits[narrow] = fmt.Sprint(budget, "/1h")
		}
		companies += fmt.Sprintf("company %s {\napi_key %s\notp {\nrenewals %d\n}\nlimits {\n", narrow, testKey, renewals)
		for name, rate := range limits {
			companies += name + " " + rate + "\n"
		}
		companies += "}\n"
		for i := range 5 {
			companies += fmt.Sprintf("account a%[1]d {\nphone +3706000001%[1]d\n}\n", i)
		}
		companies += "}\n"
	}
	s := startNodes(t, siteConfig{global: "captcha off\n", more: companies})
	for _, narrow := range of {
		shared := narrow == "sms_per_country" // by accounts
		s.run(narrow, func(t *testing.T) {
			before := len(s.sms.of("otp.login"))
			login := func(i int) answer {
				account := 0
				if shared {
					account = i % 5
				}
				return s.postTo(narrow, testKey, "auth/login", "", fields{"login_id": fmt.Sprint("+3706000001", account)})
			}
			token := login(0).wantState(record.CheckOTP).token()
			renew := func(int) answer { return s.postTo(narrow, testKey, "auth/renewotp", token, nil) }
			ask, first := login, 1
			if narrow == "renewals" {
				ask, first = renew, 0
			}
			got := outcomes(storm(asked, func(i int) answer {
				if i%3 == 0 && !shared {
					return renew(i)
				}
				return ask(i)
			}))
			sent := len(s.sms.of("otp.login")) - before
			// If a store is too slow to answer, an SMS may be counted but not sent.
			lost := got["service.unavailable"]
			if got["success"] > budget-first || got["success"]+lost < budget-first || got["auth.restricted"]+got["success"]+lost != asked {
				t.Errorf("%v, want %d successes", got, budget-first)
			}
			if sent != got["success"]+1 && lost == 0 || sent > budget+1-first {
				t.Errorf("%v: %d SMS were sent", got, sent)
			}
			if a := ask(asked).want(wire.ErrRestricted); a.Header.Get("Retry-After") == "" {
				t.Error("it has no Retry-After")
			}
		})
	}
}
