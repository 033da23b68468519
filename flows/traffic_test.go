package flows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// When an address reaches a limit, the event says whether many users share the
// address or somebody guesses.
func TestALimitOfAnAddressTellsWhoseTrafficItWas(t *testing.T) {
	const users = 12
	logIn := func(b *harness, address string, user int) {
		_, _ = b.serveAs(code, address, "auth/checkcredentials", "", object{"login_id": fmt.Sprint("user", user%users), "password": password})
	}
	guess := func(b *harness, address string, user int) {
		_, _ = b.serveAs(code, address, "auth/checkcredentials", "", object{"login_id": fmt.Sprint("user", user%users), "password": "wrong"})
	}
	askForCode := func(b *harness, address string, user int) string {
		reply, _ := b.serveAs(code, address, "auth/login", "", object{"login_id": fmt.Sprint("codes", user%users)})
		return reply.SessionToken
	}
	for name, test := range map[string]struct {
		lock    string
		address func(i int) string
		try     func(b *harness, address string, i int)
		want    record.Traffic
		kind    string
	}{
		"users with passwords": {record.LimitLogins, nil, logIn, record.Traffic{Attempts: 10, Accounts: 10, Logins: 10}, "users"},
		"users, some of whom mistype": {record.LimitLogins, nil, func(b *harness, address string, i int) {
			if i%5 == 0 {
				guess(b, address, i)
			} else {
				logIn(b, address, i)
			}
		}, record.Traffic{Attempts: 10, Accounts: 10, Failures: 2, Logins: 8}, "users"},
		"one user's program": {record.LimitLogins, nil, func(b *harness, address string, _ int) { logIn(b, address, 1) },
			record.Traffic{Attempts: 10, Accounts: 1, Logins: 10}, "users"},
		"guesses": {record.LimitAddress, nil, guess, record.Traffic{Attempts: 8, Accounts: 8, Failures: 8}, "strangers"},
		"guesses at unknown login ids": {record.LimitAddress, nil, func(b *harness, address string, i int) { guess(b, address, -1) },
			record.Traffic{Attempts: 8, Failures: 8}, "strangers"},
		"guesses, few of them right": {record.LimitAddress, nil, func(b *harness, address string, i int) {
			if i%6 == 5 {
				logIn(b, address, i)
			} else {
				guess(b, address, i)
			}
		}, record.Traffic{Attempts: 8, Accounts: 9, Failures: 8, Logins: 1}, "strangers"},
		"users with codes": {record.LimitSMSAddress, nil, func(b *harness, address string, i int) {
			if token := askForCode(b, address, i); token != "" {
				_, _ = b.serveAs(code, address, "auth/checkotp", token, object{"otp": b.sms.last(b.t).Code})
			}
		}, record.Traffic{Attempts: 6, Accounts: 6, Logins: 6}, "users"},
		"codes that nobody uses": {record.LimitSMSAddress, nil, func(b *harness, address string, i int) { askForCode(b, address, i) },
			record.Traffic{Attempts: 6, Accounts: 6}, "strangers"},
		"a network of IPv6": {record.LimitAddress, func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) }, guess,
			record.Traffic{Attempts: 80, Accounts: users, Failures: 80}, "strangers"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			l := &b.company.Limits
			l.LockAfter, l.DisableAfter, l.CaptchaAfter = 1000, 1000, new(1000)
			l.FailuresPerAddress = tenant.Rate{N: 8, Per: time.Hour}
			l.LoginsPerAddress = tenant.Rate{N: 10, Per: time.Hour}
			l.SMSPerAddress = tenant.Rate{N: 6, Per: time.Hour}
			if test.lock == record.LimitAddress {
				l.LoginsPerAddress = tenant.Unlimited
			}
			for i := range users {
				b.seed(manage.Seed{Account: record.Account{Mnemocode: fmt.Sprint("u", i), LoginName: fmt.Sprint("user", i)}, Password: password})
				b.seed(manage.Seed{Account: record.Account{Mnemocode: fmt.Sprint("c", i), LoginName: fmt.Sprint("codes", i), Phone: fmt.Sprintf("+370600000%02d", i)}})
			}
			if test.address == nil {
				test.address = func(int) string { return "203.0.113.7" }
			}
			all := b.record()
			for window := range 2 { // the second window starts at zero
				for i := range 100 {
					test.try(b, test.address(i), i)
				}
				found := named(all(), test.lock)
				if len(found) != window+1 {
					t.Fatalf("got %d events after window %d", len(found), window+1)
				}
				e := found[window]
				if e.Traffic == nil || *e.Traffic != test.want || e.Reason != test.kind {
					t.Errorf("got %+v, reason %q, want %+v, %q", e.Traffic, e.Reason, test.want, test.kind)
				}
				b.clock.advance(time.Hour)
			}
		})
	}
}
