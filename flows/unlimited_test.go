package flows_test

import (
	"sync"
	"testing"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

// An unlimited budget refuses nothing and needs no counter.
func TestUnlimitedBudgetsAreNotCounted(t *testing.T) {
	for name, prepare := range map[string]func(*harness){
		"by default": func(*harness) {},
		"hardened": func(b *harness) {
			b.company.Hardened = true
			b.company.Recovery.Methods = []tenant.Method{tenant.ByMail, tenant.ByPhone}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			prepare(b)
			l := &b.company.Limits
			for _, rate := range []*tenant.Rate{
				&l.LoginsPerAddress, &l.SMSPerAccount, &l.SMSPerPhone, &l.SMSPerAddress, &l.SMSPerCompany, &l.SMSPerCountry, &l.MailsPerAccount,
			} {
				*rate = tenant.Unlimited
			}
			var mu sync.Mutex
			var charged []string
			b.watch(func(c seen) error {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range c.charged() {
					charged = append(charged, c.Key)
				}
				return nil
			})
			for range 70 {
				b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
			}
			for range 5 {
				b.must("auth/recovery/recover", "", object{"login_id": email, "method": "MAIL", "captcha_response": "x"})
			}
			for range 5 {
				b.must("auth/recovery/recover", "", object{"login_id": "+37060012345", "method": "PHONE", "captcha_response": "x"})
			}
			b.withoutPassword()
			for range 40 {
				b.must("auth/login", "", object{"login_id": email})
			}
			mu.Lock()
			defer mu.Unlock()
			if len(charged) > 0 {
				t.Errorf("the counters %q were charged", charged)
			}
			if sent := b.sms.count(); sent < 40 {
				t.Errorf("%d SMS were sent, want 40 or more", sent)
			}
		})
	}
}
