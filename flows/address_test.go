package flows_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// limited returns an address that has reached its limit of failures.
func (b *harness) limited() string {
	b.t.Helper()
	const address = "203.0.113.7"
	for range b.company.Limits.FailuresPerAddress.N {
		_, err := b.serveAs(code, address, "auth/login", "", object{"login_id": "nobody@example.com"})
		wantError(b.t, err, wire.ErrLoginIDNotFound)
	}
	return address
}

// An address at its limit learns nothing else, even if the request has other faults.
func TestALimitedAddressLearnsNothing(t *testing.T) {
	b := harnessWithCodes(t)
	address := b.limited()
	refused := func(what, path, token string, body object) {
		t.Helper()
		sent := b.sms.count()
		_, err := b.serveAs(code, address, path, token, body)
		wantError(t, err, wire.ErrRestricted)
		if got, want := refusal(err).RetryAfter, b.company.Limits.FailuresPerAddress.Per; got != want {
			t.Errorf("%s: got Retry-After %v, want the address's, %v", what, got, want)
		}
		if b.sms.count() > sent {
			t.Errorf("%s: an SMS was sent", what)
		}
	}
	login := object{"login_id": email}
	refused("good", "auth/login", "", login)
	refused("unknown", "auth/login", "", object{"login_id": "nobody@example.com"})
	b.company.Hardened = true
	refused("decoy", "auth/login", "", object{"login_id": "nobody@example.com"})
	b.company.Hardened = false

	token, otp := b.awaiting()
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	refused("right code without the disclaimers", "auth/checkotp", token, object{"otp": otp})
	b.company.Disclaimers = nil
	refused("wrong code", "auth/checkotp", token, object{"otp": wrongCode(otp)})
	refused("right code", "auth/checkotp", token, object{"otp": otp})
	refused("right backup code", "auth/checkotp", token, object{"backup_code": "ABCDE23456"})
	b.must("auth/checkotp", token, object{"otp": otp}) // from another address: the refusals did not use the code up

	for range b.company.Limits.WrongCodes.N {
		token, otp := b.awaiting()
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": wrongCode(otp)})
	}
	refused("codes are locked", "auth/login", "", login)
	for status := range statuses {
		b.status(status)
		refused("account is "+string(status), "auth/login", "", login)
	}
}

// slash64 returns an address in the i-th /64 of a /48 of IPv6.
func slash64(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i) }

// A client with a /48 has 65,536 networks of /64. All of them together may do ten
// times as much as one.
func TestAnAddressOfIPv6IsCountedByItsSlash48Too(t *testing.T) {
	limit := tenant.Rate{N: 3, Per: time.Hour}
	for _, c := range []struct {
		name    string
		prepare func(b *harness)
		body    object
		code    string // of the attempt that counts; empty for a success
	}{
		{"failures_per_address", func(b *harness) { b.company.Limits.FailuresPerAddress = limit }, object{"login_id": "nobody"}, "auth.loginid.notfound"},
		{"sms_per_address", func(b *harness) {
			b.withoutPassword()
			l := &b.company.Limits
			l.SMSPerAddress, l.SMSPerAccount, l.SMSPerPhone = limit, tenant.Rate{N: 1000, Per: time.Hour}, tenant.Rate{N: 1000, Per: time.Hour}
		}, object{"login_id": email}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHarness(t)
			c.prepare(b)
			try := func(address string) error {
				_, err := b.serveAs(code, address, "auth/login", "", c.body)
				return err
			}
			got := race(limit.N+1, func(int) error { return try(slash64(0)) })
			if want := map[string]int{c.code: limit.N, "auth.restricted": 1}; !maps.Equal(got, want) {
				t.Errorf("one /64: got %v, want %v", got, want)
			}
			got = race(100, func(i int) error { return try(slash64(1 + i)) })
			if want := map[string]int{c.code: 9 * limit.N, "auth.restricted": 100 - 9*limit.N}; !maps.Equal(got, want) {
				t.Errorf("the others of its /48: got %v, want %v", got, want)
			}
			for _, address := range []string{"2001:db8:2::1", "192.0.2.1"} {
				if err := try(address); codeOf(err) != c.code {
					t.Errorf("%s: got %v", address, err)
				}
			}
			b.clock.advance(limit.Per)
			if err := try(slash64(0)); codeOf(err) != c.code {
				t.Errorf("after the window: got %v", err)
			}
		})
	}
}
