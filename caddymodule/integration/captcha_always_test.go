package integration

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// With captcha_after 0 every password requires a captcha, from the first one on, and
// also for unknown login ids.
func TestCaptchaAfter0AsksForEveryPassword(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{
		global:  "captcha static tea\nlimits {\ncaptcha_after 0\n}\n",
		company: account("alice", ""),
		more:    "company umbrella {\napi_key " + testKey + "\nhardened\n" + account("alice", "") + "}\n",
	})
	for _, company := range []string{"acme", "umbrella"} {
		for loginID, want := range map[string]*wire.Error{"alice": nil, "nobody": wire.ErrCredentialsInvalid} {
			check := func(response string) answer {
				return s.postTo(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword, "captcha_response": response})
			}
			check("").want(wire.ErrCaptchaMissing)
			if want == nil {
				check("tea").wantState(record.Authorized)
			} else {
				check("tea").want(want)
			}
		}
	}
	for loginID, company := range map[string]string{"alice": "acme", "ALICE": "umbrella", "nobody": "umbrella"} {
		begun := s.postTo(company, testKey, "auth/login", "", fields{"login_id": loginID}).wantState(record.CheckPassword)
		if begun.JSON["captcha_required"] != true {
			t.Errorf("%s of %s: captcha_required is %v", loginID, company, begun.JSON["captcha_required"])
		}
		check := func(response string) answer {
			return s.postTo(company, testKey, "auth/checkpassword", begun.token(), fields{"password": testPassword, "captcha_response": response})
		}
		check("").want(wire.ErrCaptchaMissing)
		check("coffee").want(wire.ErrCaptchaInvalid)
		if loginID == "nobody" {
			check("tea").want(wire.ErrPasswordInvalid)
		} else {
			check("tea").wantState(record.Authorized)
		}
	}
}
