package flows_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An address at its limit learns of no lock and no status.
func TestALimitedAddressLearnsNothing(t *testing.T) {
	b := harnessWithCodes(t)
	const address = "203.0.113.7"
	for range b.company.Limits.FailuresPerAddress.N {
		_, err := b.serveAs(code, address, "auth/login", "", object{"login_id": "nobody@example.com"})
		wantError(t, err, wire.ErrLoginIDNotFound)
	}
	refused := func(what string) {
		t.Helper()
		_, err := b.serveAs(code, address, "auth/login", "", object{"login_id": email})
		if reason := refusal(err).Reason; reason != "limit.address" {
			t.Errorf("%s: got %v, %q", what, err, reason)
		}
	}
	for status := range statuses {
		b.status(status)
		refused("account is " + string(status))
	}
	b.status(record.StatusActive)
	b.counted(record.WrongCodes, b.company.Limits.WrongCodes.N)
	refused("codes are locked")
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
