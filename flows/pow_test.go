package flows_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A work is a captcha pow with this number of bits.
type work int

func (w work) Bits() int { return int(w) }

func (work) Verify(context.Context, string, string) (bool, error) {
	return true, nil // must not be called
}

func newWorkHarness(t *testing.T) *harness {
	b := newHarness(t)
	b.company.Captcha = work(8)
	b.company.Limits.CaptchaAfter = new(0)
	return b
}

func (b *harness) challenge(company string) flows.Challenge {
	b.t.Helper()
	c, err := b.Challenge(b.t.Context(), &flows.Request{Company: company})
	must(b.t, err)
	return c
}

// solution returns a right response to a challenge of 8 bits.
func solution(c flows.Challenge) string {
	for i := 0; ; i++ {
		response := fmt.Sprint(c.Challenge, ".", i)
		if sha256.Sum256([]byte(response))[0] == 0 {
			return response
		}
	}
}

func TestAChallengeEnds(t *testing.T) {
	b := newWorkHarness(t)
	first := solution(b.challenge(code))
	b.clock.advance(time.Millisecond)
	second := solution(b.challenge(code))
	b.clock.advance(5*time.Minute - time.Millisecond)
	wantRefusal(t, b.solve("203.0.113.7", first), wire.ErrCaptchaInvalid, true)
	if err := b.solve("203.0.113.7", second); err != nil {
		t.Error(err)
	}
}

// secretless is an account store that can't return its secrets.
type secretless struct{ record.Accounts }

func (secretless) Secrets(context.Context) ([]record.Secret, error) {
	return nil, errDown
}

func TestWithoutTheSecretNoWorkIsGood(t *testing.T) {
	b := newWorkHarness(t)
	right := solution(b.challenge(code))
	b.Accounts = secretless{b.Accounts}
	b = b.node()
	if _, err := b.Challenge(t.Context(), &flows.Request{Company: code}); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err := b.solve("203.0.113.7", right); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
