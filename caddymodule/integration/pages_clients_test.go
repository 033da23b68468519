package integration

import (
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// With a fixed code, a static captcha and higher limits, the tests of a client are not
// treated as an attack.
func TestAClientsTestsAreNoAttack(t *testing.T) {
	t.Parallel()
	s := startCaddyfile(t, `{
	admin off
	mnemogate {
		otp {
			fixed 424242 +37060012345
		}
		captcha static ci-captcha
		limits {
			failures_per_address 1000000/1m
			logins_per_address 1000000/1m
		}
		sms log
		company acme {
			api_key ci-api-key
			account alice-0001 {
				phone +37060012345
				email alice@example.com
				password "correct horse battery"
			}
			account bob-0002 {
				login bob
				password "correct horse battery"
			}
		}
	}
}

http:// {
	bind fd/3
	mnemogate
	reverse_proxy BACKEND
}
`, nil)
	const key, captcha = "ci-api-key", "ci-captcha"
	post := func(route, token string, body fields) answer { return s.postTo("acme", key, route, token, body) }
	credentials := func(login, password string) answer {
		return post("auth/checkcredentials", "", fields{"login_id": login, "password": password})
	}
	for range 31 { // more than the default limits of an address: 30 failures and 60 logins
		credentials("bob", "wrong").want(wire.ErrCredentialsInvalid)
		credentials("nobody", "wrong")
		s.wantProfile(credentials("bob", testPassword).wantState(record.Authorized), "bob-0002")
	}

	// A captcha is required, and the code is the fixed one of the phone, even after
	// more codes than a phone may receive.
	for range 3 {
		credentials("bob", "wrong").want(wire.ErrCredentialsInvalid)
	}
	credentials("bob", testPassword).want(wire.ErrCaptchaMissing)
	post("auth/checkcredentials", "", fields{"login_id": "bob", "password": testPassword, "captcha_response": captcha}).wantState(record.Authorized)
	for range 12 {
		a := post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": captcha, "method": "PHONE"})
		post("auth/recovery/checkotp", a.wantState(record.RecoveryOTP).token(), fields{"otp": "424242"}).wantState(record.RecoveryPassword)
	}
}

// The redirect_uri of a native app may use a scheme of its own.
func TestAnAppsOwnSchemeIsARedirectURI(t *testing.T) {
	const uri = "com.example.app:/callback"
	if !strings.Contains(section(t, "docs/clients.md", "In a native app"), "`"+uri+"`") {
		t.Errorf("docs/clients.md does not show %s", uri)
	}
	_, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key off\ncaptcha off\noauth 1 oidc https://id.example.com {\nclient_id a\nclient_secret b\nredirect_uri " + uri + "\n}\n}\n}\n}\n:80 {\nmnemogate\nreverse_proxy localhost:9000\n}")
	if err != nil {
		t.Error(err)
	}
}
