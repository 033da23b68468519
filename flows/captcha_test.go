package flows_test

import (
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

// The provider is not asked for an address that has failed too often.
func TestBadCaptchasAreFailuresOfTheAddress(t *testing.T) {
	b, asked := newCaptchaHarness(t)
	limit := b.company.Limits.FailuresPerAddress.N
	token := b.sessionIn(record.CheckPassword)
	for range limit {
		wantRefusal(t, b.solve(code, home, "auth/checkcredentials", "", "bad"), wire.ErrCaptchaInvalid, true)
	}
	for path := range captchaBodies() {
		wantRefusal(t, b.solve(code, home, path, token, "good"), wire.ErrRestricted, false)
	}
	if n := asked.asked.Load(); n != int64(limit) {
		t.Errorf("the provider was asked %d times", n)
	}
	must(t, b.solve(code, stranger, "auth/checkcredentials", "", "good"))
}

// Interface, Endpoints 2: an error says that the next request needs a captcha.
func TestPendingDisclaimersNeedTheCaptchaAgain(t *testing.T) {
	b, _ := newCaptchaHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	wantRefusal(t, b.solve(code, home, "auth/checkcredentials", "", "good"), wire.ErrDisclaimerInvalid, true)
	b.company.Limits.CaptchaAfter = new(1)
	wantRefusal(t, b.solve(code, home, "auth/checkcredentials", "", ""), wire.ErrDisclaimerInvalid, false)
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

// A provider compares the address with the one that solved the captcha.
func TestACaptchaProviderIsToldTheWholeAddress(t *testing.T) {
	b, asked := newCaptchaHarness(t)
	const address = "2001:db8::1:2"
	must(t, b.solve(code, address, "auth/checkcredentials", "", "good"))
	if got := asked.address.Load(); got != address {
		t.Errorf("got %v, want %s", got, address)
	}
}
