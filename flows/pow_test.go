package flows_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A work is a captcha pow of that many bits.
type work int

func (w work) Bits() int { return int(w) }

func (work) Verify(context.Context, string, string) (bool, error) {
	return true, nil // what nobody may ask
}

func newWorkBench(t *testing.T) *bench {
	b := newBench(t)
	b.company.Captcha = work(8)
	b.company.Limits.CaptchaAfter = 0
	return b
}

func (b *bench) challenge(company string) flows.Challenge {
	b.t.Helper()
	c, err := b.Challenge(b.t.Context(), &flows.Request{Company: company})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// solutions returns the first responses to a challenge that are right, or that
// have one zero bit too few.
func solutions(c flows.Challenge, n int, right bool) (found []string) {
	for i := 0; len(found) < n; i++ {
		response := fmt.Sprint(c.Challenge, ".", i)
		hash := sha256.Sum256([]byte(response))
		if zeros := bits.LeadingZeros32(binary.BigEndian.Uint32(hash[:])); right && zeros >= c.Bits || !right && zeros == c.Bits-1 {
			found = append(found, response)
		}
	}
	return found
}

func TestAChallengeIsAnsweredOnce(t *testing.T) {
	b := newWorkBench(t)
	b.addCompany("other")
	c := b.challenge(code)
	if c.Bits != 8 || c.ExpiresIn != 300 || b.challenge(code).Challenge == c.Challenge {
		t.Errorf("got %+v", c)
	}
	responses := solutions(c, 50, true)
	got := race(len(responses), func(i int) error {
		return b.solve(code, addressOf(i), "auth/checkcredentials", "", responses[i])
	})
	if got[""] != 1 || got["auth.captcha.invalid"] != 49 {
		t.Errorf("got %v, want one success", got)
	}
}

func TestAChallengeEnds(t *testing.T) {
	b := newWorkBench(t)
	first := solutions(b.challenge(code), 1, true)[0]
	b.clock.advance(time.Millisecond)
	second := solutions(b.challenge(code), 1, true)[0]
	b.clock.advance(5*time.Minute - time.Millisecond)
	wantRefusal(t, b.solve(code, "203.0.113.7", "auth/checkcredentials", "", first), wire.ErrCaptchaInvalid, true)
	if err := b.solve(code, "203.0.113.7", "auth/checkcredentials", "", second); err != nil {
		t.Error(err)
	}
}

func TestWrongWorkIsAFailureOfTheAddress(t *testing.T) {
	b := newWorkBench(t)
	b.addCompany("other")
	const limit = 3
	b.company.Limits.FailuresPerAddress.N = limit
	right := solutions(b.challenge(code), 1, true)[0]
	challenge, n, _ := strings.Cut(right, ".")
	forged := []byte(challenge)
	forged[20] ^= 1
	for i, response := range []string{
		solutions(b.challenge(code), 1, false)[0],
		solutions(b.challenge("other"), 1, true)[0],
		solutions(flows.Challenge{Challenge: string(forged), Bits: 8}, 1, true)[0],
		solutions(flows.Challenge{Challenge: base64.RawURLEncoding.EncodeToString(make([]byte, 33)), Bits: 8}, 1, true)[0],
		challenge, challenge + ".", "." + n, "." + right, right + ".", right + "x", challenge + ".-" + n, challenge + ".+" + n,
		challenge + ". " + n, challenge + "==." + n, challenge[:43] + "." + n, challenge[:40] + "\r\n\r\n." + n, "good",
	} {
		address := addressOf(i)
		for range limit {
			wantRefusal(t, b.solve(code, address, "auth/recovery/recover", "", response), wire.ErrCaptchaInvalid, true)
		}
		wantRefusal(t, b.solve(code, address, "auth/recovery/recover", "", right), wire.ErrRestricted, false)
	}
	if err := b.solve(code, "203.0.113.7", "auth/recovery/recover", "", right); err != nil {
		t.Errorf("the right one: %v", err)
	}
}

func TestChallengesAreOfCompaniesWithWork(t *testing.T) {
	b := newWorkBench(t)
	b.company.NoAPIKey = false
	b.company.APIKeys = [][sha256.Size]byte{sha256.Sum256([]byte("key"))}
	other := b.addCompany("other")
	for _, c := range []struct {
		company string
		captcha tenant.Captcha
		keys    []string
		want    error
	}{
		{code, work(8), nil, wire.ErrAPIKeyMissing},
		{code, work(8), []string{"another"}, wire.ErrAPIKeyInvalid},
		{"nobody", work(8), []string{"key"}, wire.ErrAPIKeyInvalid},
		{"other", &captcha{}, nil, wire.ErrAPIKeyMissing},
		{"other", &captcha{}, []string{"key"}, wire.ErrNoRoute},
		{"other", &reusable{}, []string{"key"}, wire.ErrNoRoute},
		{"other", nil, []string{"key"}, wire.ErrNoRoute},
		{"other", work(30), []string{"key"}, nil},
	} {
		other.Captcha = c.captcha
		if got, err := b.Challenge(t.Context(), &flows.Request{Company: c.company, APIKeys: c.keys}); !errors.Is(err, c.want) || (got.Challenge == "") != (c.want != nil) {
			t.Errorf("%s with %T and %q: got %v, %v, want %v", c.company, c.captcha, c.keys, got, err, c.want)
		}
	}
}

// secretless are accounts whose secret can't be had.
type secretless struct{ record.Accounts }

func (secretless) Secret(context.Context) ([]byte, error) {
	return nil, errors.New("connection refused")
}

func TestWithoutTheSecretNoWorkIsGood(t *testing.T) {
	b := newWorkBench(t)
	right := solutions(b.challenge(code), 1, true)[0]
	down := &flows.Service{Manager: &session.Manager{
		Accounts: secretless{b.Accounts}, Sessions: b.Sessions, Companies: b.Companies, Hasher: b.Hasher, Log: b.Log, Now: b.Now, Observe: b.Observe,
	}}
	if _, err := down.Challenge(t.Context(), &flows.Request{Company: code}); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	b.Service = down
	if err := b.solve(code, "203.0.113.7", "auth/checkcredentials", "", right); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
