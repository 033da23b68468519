package flows_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A chargedSessions records which counters are charged.
type chargedSessions struct {
	record.Sessions
	mu    sync.Mutex
	names []string
}

func (s *chargedSessions) note(counters []record.Counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range counters {
		if name := strings.Split(c.Key, "/")[1]; !c.Look && !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
}

func (s *chargedSessions) Create(ctx context.Context, now time.Time, session record.Session, counters ...record.Counter) error {
	s.note(counters)
	return s.Sessions.Create(ctx, now, session, counters...)
}

func (s *chargedSessions) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	s.note(counters)
	return s.Sessions.Replace(ctx, now, old, from, next, counters...)
}

func (s *chargedSessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	s.note(counters)
	return s.Sessions.Charge(ctx, now, counters...)
}

// An unlimited budget refuses nothing and needs no counter.
func TestUnlimitedBudgetsAreNotCounted(t *testing.T) {
	for name, prepare := range map[string]func(*bench){
		"by default": func(*bench) {},
		"hardened": func(b *bench) {
			b.company.Hardened = true
			b.company.Recovery.Methods = []tenant.Method{tenant.ByMail, tenant.ByPhone}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			prepare(b)
			l := &b.company.Limits
			for _, rate := range []*tenant.Rate{
				&l.LoginsPerAddress, &l.SMSPerAccount, &l.SMSPerPhone, &l.SMSPerAddress, &l.SMSPerCompany, &l.SMSPerCountry, &l.MailsPerAccount,
			} {
				*rate = tenant.Unlimited
			}
			charged := &chargedSessions{Sessions: b.Sessions}
			b.Sessions = charged
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
			charged.mu.Lock()
			defer charged.mu.Unlock()
			if len(charged.names) > 0 {
				t.Errorf("the counters %q were charged", charged.names)
			}
			if sent := b.sms.count(); sent < 40 {
				t.Errorf("%d SMS were sent, want 40 or more", sent)
			}
		})
	}
}
