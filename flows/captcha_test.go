package flows_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// solve logs in with a captcha response.
func (b *harness) solve(address, response string) error {
	_, err := b.serveAs(code, address, "auth/checkcredentials", "", credentials(object{"captcha_response": response}))
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

// Interface, Endpoints 2: an error says that the next request needs a captcha.
func TestPendingDisclaimersNeedTheCaptchaAgain(t *testing.T) {
	b, _ := newCaptchaHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	wantRefusal(t, b.solve(home, "good"), wire.ErrDisclaimerInvalid, true)
	b.company.Limits.CaptchaAfter = new(1)
	wantRefusal(t, b.solve(home, ""), wire.ErrDisclaimerInvalid, false)
}

// Providers trim spaces around a response. mnemogate rejects such a response without
// asking the provider, and the trimmed one stays unused.
func TestACaptchaResponseHasNoSpacesAround(t *testing.T) {
	b, asked := newCaptchaHarness(t)
	for i, spaced := range []string{"good ", " good", "good\n", "\tgood", "good\u00a0", "\u2003good", "good\ufeff", "good\u001c", "good\u200b"} {
		wantRefusal(t, b.solve(addressOf(i), spaced), wire.ErrCaptchaInvalid, true)
	}
	if n := asked.asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	if err := b.solve("203.0.113.7", "good"); err != nil {
		t.Error(err)
	}
}

// A provider compares the address with the one that solved the captcha.
func TestACaptchaProviderIsToldTheWholeAddress(t *testing.T) {
	b, asked := newCaptchaHarness(t)
	const address = "2001:db8::1:2"
	must(t, b.solve(address, "good"))
	if got := asked.address.Load(); got != address {
		t.Errorf("got %v, want %s", got, address)
	}
}

// However many attempts of an address need a captcha at once, the provider is asked for no
// more of them than the address has logins, also while it fails.
func TestAnAddressHasOnlyItsLoginsToAskACaptchaProvider(t *testing.T) {
	for name, says := range map[string]error{"bad": nil, "down": errDown} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Limits.CaptchaAfter = new(0)
			const tries = 100
			var asked atomic.Int64
			var waiting sync.WaitGroup // until each try has asked or was refused
			waiting.Add(tries)
			b.company.Captcha = plugin(func(context.Context) error {
				asked.Add(1)
				waiting.Done()
				waiting.Wait()
				return says
			})
			race(tries, func(int) error {
				err := b.solve(home, "any")
				if refusal(err).Reason == "limit.logins" {
					waiting.Done()
				}
				return err
			})
			if n, most := asked.Load(), int64(b.company.Limits.LoginsPerAddress.N); n != most {
				t.Errorf("the provider was asked %d times at once, want %d", n, most)
			}
		})
	}
}
