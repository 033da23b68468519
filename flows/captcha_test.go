package flows_test

import (
	"fmt"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// captchaBodies returns requests that lack only the captcha_response they need.
func captchaBodies() map[string]object {
	return map[string]object{
		"auth/checkpassword":    {"password": password},
		"auth/checkcredentials": {"login_id": email, "password": password},
		"auth/recovery/recover": {"login_id": email, "method": "QUESTION"},
	}
}

// solve sends a request with a captcha response.
func (b *harness) solve(company, address, path, token, response string) error {
	body := captchaBodies()[path]
	body["captcha_response"] = response
	_, err := b.serveAs(company, address, path, token, body)
	return err
}

// newCaptchaHarness returns a harness that requires a captcha for every password.
func newCaptchaHarness(t *testing.T) (*harness, *captcha) {
	b := newHarness(t)
	asked := &captcha{}
	b.company.Captcha = asked
	b.company.Limits.CaptchaAfter = new(0)
	return b, asked
}

func TestBadCaptchasAreFailuresOfTheAddress(t *testing.T) {
	for path := range captchaBodies() {
		for name, response := range map[string]string{"wrong": "bad", "used": "good", "spaced": "good "} {
			t.Run(path+"/"+name, func(t *testing.T) {
				b, asked := newCaptchaHarness(t)
				limit := b.company.Limits.FailuresPerAddress.N
				token := b.sessionIn(record.CheckPassword)
				must(t, b.solve(code, "203.0.113.8", "auth/recovery/recover", "", "good"))
				for range limit {
					wantRefusal(t, b.solve(code, "203.0.113.7", path, token, response), wire.ErrCaptchaInvalid, true)
				}
				before := asked.asked.Load()
				for i := range 10 {
					err := b.solve(code, "203.0.113.7", path, token, fmt.Sprint("good ", i))
					wantRefusal(t, err, wire.ErrRestricted, false)
				}
				if asked.asked.Load() != before {
					t.Error("the provider is asked for an address that has failed too often")
				}
				if err := b.solve(code, "203.0.113.8", path, token, "good 1"); err != nil {
					t.Errorf("another address: %v", err)
				}
			})
		}
	}
}

// Providers trim spaces around a response. mnemogate rejects such a response without
// asking the provider, and the trimmed one stays unused.
func TestACaptchaResponseHasNoSpacesAround(t *testing.T) {
	b, asked := newCaptchaHarness(t)
	for i, spaced := range []string{"good ", " good", "good\n", "\tgood", "good\u00a0", "\u2003good", "good\ufeff", "good\u001c", "good\u200b"} {
		wantRefusal(t, b.solve(code, addressOf(i), "auth/checkcredentials", "", spaced), wire.ErrCaptchaInvalid, true)
	}
	if n := asked.asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	if err := b.solve(code, "203.0.113.7", "auth/checkcredentials", "", "good"); err != nil {
		t.Error(err)
	}
}

// With captcha_after 0 every password requires a captcha, from the first one on. With
// hardened, so do those of unknown login ids.
func TestCaptchaAfter0AsksForEveryPassword(t *testing.T) {
	for _, loginID := range []string{email, "nobody@example.com"} {
		b, _ := newCaptchaHarness(t)
		b.company.Hardened = loginID != email
		b.wrong(wire.ErrCaptchaMissing, "auth/checkcredentials", "", object{"login_id": loginID, "password": password})
		step := b.must("auth/login", "", object{"login_id": loginID})
		if !step.CaptchaRequired {
			t.Errorf("%s: captcha_required is false", loginID)
		}
		check := func(response string) error {
			_, err := b.serve("auth/checkpassword", step.SessionToken, object{"password": password, "captcha_response": response})
			return err
		}
		wantError(t, check(""), wire.ErrCaptchaMissing)
		wantError(t, check("bad"), wire.ErrCaptchaInvalid)
		if err := check("good"); b.company.Hardened {
			wantError(t, err, wire.ErrPasswordInvalid)
		} else if err != nil {
			t.Errorf("%s: %v", loginID, err)
		}
	}
}

// A provider compares the address with the one that solved the captcha.
func TestACaptchaProviderIsToldTheWholeAddress(t *testing.T) {
	b, asked := newCaptchaHarness(t)
	const address = "2001:db8::1:2"
	must(t, b.solve(code, address, "auth/checkcredentials", "", "good"))
	if got := asked.address.Load(); got != address {
		t.Errorf("got %v, want %s", got, address)
	}
}
