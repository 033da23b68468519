package flows_test

import (
	"sync/atomic"
	"testing"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

// An unlimited budget refuses nothing and needs no counter.
func TestUnlimitedBudgetsAreNotCounted(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.Hardened = hardened
		l := &b.company.Limits
		for _, rate := range []*tenant.Rate{
			&l.LoginsPerAddress, &l.SMSPerAccount, &l.SMSPerPhone, &l.SMSPerAddress, &l.SMSPerCompany, &l.SMSPerCountry, &l.MailsPerAccount,
		} {
			*rate = tenant.Unlimited
		}
		var charged atomic.Int64
		b.watch(func(c seen) error {
			charged.Add(int64(len(c.charged())))
			return nil
		})
		for range 31 {
			b.must("auth/checkcredentials", "", credentials(nil))
			b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
			b.must("auth/recovery/recover", "", recovery(object{"login_id": phone, "method": "PHONE"}))
		}
		b.withoutPassword()
		b.must("auth/login", "", object{"login_id": email})
		settle(b.Service)
		if n, sent := charged.Load(), b.sms.count(); n > 0 || sent != 32 {
			t.Errorf("hardened %v: %d counters were charged, %d SMS were sent", hardened, n, sent)
		}
	}
}
