package flows_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// fail sends n wrong passwords, each from another address.
func (b *harness) fail(n int, loginID string) {
	b.t.Helper()
	for i := range n {
		_, err := b.serveAs(code, addressOf(i), "auth/checkcredentials", "", object{"login_id": loginID, "password": "wrong"})
		wantError(b.t, err, wire.ErrCredentialsInvalid)
	}
}

func TestPasswordsAreLockedAndUnlocked(t *testing.T) {
	b := newHarness(t)
	limits := &b.company.Limits
	before := b.sessionIn(record.CheckPassword)
	b.fail(limits.LockAfter, phone)
	b.clock.advance(5 * time.Minute)
	_, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password})
	wantError(t, err, wire.ErrRestricted)
	if got, want := refusal(err).RetryAfter, time.Duration(limits.LockFor)-5*time.Minute; got != want {
		t.Errorf("got Retry-After %v, want %v", got, want)
	}
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.wrong(wire.ErrRestricted, "auth/checkpassword", before, object{"password": password})
	b.must("auth/oauth", "", b.goodBody("auth/oauth")) // needs no password

	b.clock.advance(time.Duration(limits.LockFor) - 5*time.Minute - time.Microsecond)
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.clock.advance(time.Microsecond)
	b.must("auth/login", "", object{"login_id": email})
	b.fail(1, email) // the count goes on, so one more failure locks again
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.clock.advance(time.Duration(limits.LockFor))
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	b.fail(limits.LockAfter-1, email) // the success has cleared it
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
}

// Recovery by phone and by mail works during a lock, and ends it.
func TestARecoveryEndsTheLock(t *testing.T) {
	for _, method := range []string{"PHONE", "MAIL"} {
		b := newHarness(t)
		b.fail(b.company.Limits.LockAfter, phone)
		b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
		var token string
		if method == "PHONE" {
			token = b.must("auth/recovery/recover", "", recovery(object{"method": method})).SessionToken
			token = b.must("auth/recovery/checkotp", token, object{"otp": b.sms.last(t).Code}).SessionToken
		} else {
			token = b.must("auth/recovery/checklink", "", object{"token": b.mailed()}).SessionToken
		}
		b.must("auth/setpassword", token, object{"new_password": "another fine secret"})
		wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": "another fine secret"}), record.Authorized)
	}
}

// disable sends wrong passwords until the password is disabled.
func (b *harness) disable(loginID string) {
	b.t.Helper()
	limits := &b.company.Limits
	b.fail(limits.LockAfter, loginID)
	for range limits.DisableAfter - limits.LockAfter {
		b.clock.advance(time.Duration(limits.LockFor))
		b.fail(1, loginID)
	}
}

func TestAPasswordIsDisabledUntilItIsSetAnew(t *testing.T) {
	b := newHarness(t)
	b.disable(email)
	b.clock.advance(30 * 24 * time.Hour)
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", object{"login_id": phone, "password": password})
	b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret"})
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": "another fine secret"})
	b.fail(b.company.Limits.LockAfter-1, email)
}

// An account without a password can't have it disabled: otherwise strangers could
// lock the user out for good. The temporary lock still applies.
func TestAnAccountWithoutAPasswordIsLockedButNotDisabled(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.disable(email)
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.clock.advance(time.Duration(b.company.Limits.LockFor))
	reply := b.must("auth/login", "", object{"login_id": email})
	b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
}

// A right password that races with wrong ones clears the count at most once.
func TestTheLockWithARightPasswordAmongMany(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.LockFor = tenant.Duration(24 * time.Hour)
	token := b.sessionIn(record.CheckPassword)
	got := race(200, func(i int) error {
		given := "wrong"
		if i == 100 {
			given = password
		}
		_, err := b.serveAs(code, addressOf(i), "auth/checkpassword", token, object{"password": given})
		return err
	})
	// If the right password comes in time, it uses the token up.
	if looked := got["auth.password.invalid"]; looked > 2*b.company.Limits.LockAfter || got[""] == 0 && looked > b.company.Limits.LockAfter {
		t.Errorf("got %v", got)
	}
}

func TestFailuresOfAnAddressAreCounted(t *testing.T) {
	for _, c := range []struct {
		name, fails, same, other string
	}{
		{"IPv4", "203.0.113.7", "203.0.113.7", "203.0.113.8"},
		{"IPv4 in IPv6", "203.0.113.7", "::ffff:203.0.113.7", "::ffff:203.0.113.8"},
		{"IPv6 by its /64", "2001:db8:1:2:3::4", "2001:db8:1:2:ffff::1", "2001:db8:1:3:3::4"},
		{"IPv6 with a zone", "fe80::1%eth0", "fe80::2%eth1", "fe81::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHarness(t)
			token := b.sessionIn(record.CheckPassword)
			failures := []func() error{
				func() error {
					_, err := b.serveAs(code, c.fails, "auth/login", "", object{"login_id": "nobody@example.com"})
					return err
				},
				func() error {
					_, err := b.serveAs(code, c.fails, "auth/recovery/recover", "", object{"login_id": "nobody@example.com", "captcha_response": "x"})
					return err
				},
				func() error {
					_, err := b.serveAs(code, c.fails, "auth/recovery/checklink", "", object{"token": "mgl_unknown"})
					return err
				},
				func() error {
					_, err := b.serveAs(code, c.fails, "auth/oauth", "", object{"provider_id": 1, "code": newGrant("bad"), "redirect_uri": "https://app.example.com/cb"})
					return err
				},
			}
			limit := b.company.Limits.FailuresPerAddress
			for i := range limit.N {
				if err := failures[i%len(failures)](); codeOf(err) == "auth.restricted" {
					t.Fatalf("restricted after %d failures", i)
				}
			}
			for _, fail := range failures {
				wantError(t, fail(), wire.ErrRestricted)
			}
			b.clock.advance(time.Minute)
			_, err := b.serveAs(code, c.same, "auth/checkpassword", token, object{"password": password})
			wantError(t, err, wire.ErrRestricted)
			if got, want := refusal(err).RetryAfter, limit.Per-time.Minute; got != want {
				t.Errorf("got Retry-After %v, want %v", got, want)
			}
			if _, err := b.serveAs(code, c.other, "auth/checkpassword", token, object{"password": password}); err != nil {
				t.Errorf("another address: %v", err)
			}
			b.clock.advance(limit.Per - time.Minute)
			if _, err := b.serveAs(code, c.same, "auth/login", "", object{"login_id": email}); err != nil {
				t.Errorf("after the window: %v", err)
			}
		})
	}
}

// Passwords are counted for their address before they are compared, whether right or
// wrong, and also for unknown login ids. A password beyond the limit is not hashed.
func TestPasswordsOfAnAddressAreCounted(t *testing.T) {
	const limit = 7
	for _, c := range []struct {
		name, loginID, password, answer string
	}{
		{"right", email, password, ""},
		{"wrong", email, "wrong", "auth.credentials.invalid"},
		{"unknown", "nobody", "wrong", "auth.credentials.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Limits.LoginsPerAddress = tenant.Rate{N: limit, Per: time.Minute}
			hashes := b.countHashes()
			try := func(address string) error {
				_, err := b.serveAs(code, address, "auth/checkcredentials", "", object{"login_id": c.loginID, "password": c.password})
				return err
			}
			got := race(100, func(int) error { return try("203.0.113.7") })
			if got[c.answer] != limit || got["auth.restricted"] != 100-limit || hashes.Load() != limit {
				t.Errorf("got %v and %d hashes, want %d", got, hashes.Load(), limit)
			}
			b.clock.advance(20 * time.Second)
			err := try("203.0.113.7")
			wantError(t, err, wire.ErrRestricted)
			if got := refusal(err).RetryAfter; got != 40*time.Second {
				t.Errorf("got Retry-After %v, want 40s", got)
			}
			if err := try("203.0.113.8"); codeOf(err) != c.answer {
				t.Errorf("another address: %v", err)
			}
			b.clock.advance(40 * time.Second)
			if err := try("203.0.113.7"); codeOf(err) != c.answer {
				t.Errorf("after the window: %v", err)
			}
		})
	}
}

// countHashes counts the hashes that are computed from now on.
func (b *harness) countHashes() *atomic.Int64 {
	var n atomic.Int64
	b.Hasher.Derive = func(hash, secret string) ([]byte, error) {
		n.Add(1)
		return pw.DeriveKey(hash, secret)
	}
	return &n
}

// A request that is refused before its password is compared does not count. At the
// limit, no captcha is verified.
func TestOnlyPasswordsThatAreComparedAreCounted(t *testing.T) {
	for _, r := range passwordRoutes {
		t.Run(r.path, func(t *testing.T) {
			b := newHarness(t)
			asked := &captcha{}
			b.company.Captcha = asked
			l := &b.company.Limits
			l.CaptchaAfter, l.LockAfter, l.LockFor = new(1), 2, tenant.Duration(time.Second)
			l.LoginsPerAddress = tenant.Rate{N: 3, Per: time.Hour}
			token := b.sessionIn(record.CheckPassword)
			wantRefusal(t, b.try(r.path, token, "wrong", ""), r.code, true) // 1
			wantRefusal(t, b.try(r.path, token, "wrong", ""), wire.ErrCaptchaMissing, true)
			wantRefusal(t, b.try(r.path, token, "wrong", "bad"), wire.ErrCaptchaInvalid, true)
			wantRefusal(t, b.try(r.path, token, "wrong", "down"), wire.ErrUnavailable, false)
			wantRefusal(t, b.try(r.path, token, "wrong", "good 1"), r.code, true) // 2
			wantRefusal(t, b.try(r.path, token, password, "good 2"), wire.ErrRestricted, false)
			b.clock.advance(time.Duration(l.LockFor))
			wantRefusal(t, b.try(r.path, token, "wrong", "good 3"), r.code, true) // 3
			b.clock.advance(time.Duration(l.LockFor))
			before := asked.asked.Load()
			wantRefusal(t, b.try(r.path, token, password, "good 4"), wire.ErrRestricted, false)
			if asked.asked.Load() != before {
				t.Error("a captcha was verified whose password could not be compared")
			}
		})
	}
}

// Two accounts share the budget of their company, but not those of the accounts.
func TestBudgetsBelongToWhatTheyAreNamedAfter(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", Phone: "+37060099999"}})
	b.company.Limits.SMSPerCompany = tenant.Rate{N: 8, Per: time.Hour}
	for range b.company.Limits.SMSPerAccount.N {
		b.must("auth/login", "", object{"login_id": email})
	}
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": phone})
	for range 3 {
		b.must("auth/login", "", object{"login_id": "+37060099999"})
	}
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": "+37060099999"})
	b.clock.advance(10 * time.Minute)
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email}) // a refusal does not use the budget up
	if got := b.sms.count(); got != 8 {
		t.Errorf("%d SMS were sent, want 8", got)
	}
}

// Notices by SMS count against the budgets of their company and country, as codes
// do, and against a budget of their own per phone. The limits also hold in races.
func TestNoticesAreWithinTheBudgetsOfSMS(t *testing.T) {
	three := tenant.Rate{N: 3, Per: 24 * time.Hour}
	for lock, limit := range map[string]func(*tenant.Limits) *tenant.Rate{
		record.LimitSMSPhone:   func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerPhone },
		record.LimitSMSCompany: func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerCompany },
		record.LimitSMSCountry: func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerCountry },
	} {
		t.Run(lock, func(t *testing.T) {
			b := newHarness(t)
			b.company.Mail = nil
			*limit(&b.company.Limits) = three
			var log bytes.Buffer
			b.Log = slog.New(slog.NewTextHandler(&log, nil))
			var mu sync.Mutex
			var locks []record.Event
			b.Observe = func(_ context.Context, e record.Event) {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasPrefix(e.Name, "mnemogate.limit.") {
					locks = append(locks, e)
				}
			}
			current := password
			change := func() {
				t.Helper()
				next := current + "!"
				must(t, b.changeOwn(manage.PasswordChange{Current: current, New: next}))
				current = next
			}
			for range 10 {
				change()
			}
			settle(b.Service)
			if n := b.sms.count(); n != three.N {
				t.Errorf("%d SMS were sent, want %d", n, three.N)
			}
			if len(locks) != 1 || locks[0].Name != lock || locks[0].Mnemocode != mnemocode {
				t.Errorf("got the locks %+v, want %s once", locks, lock)
			}
			if n := strings.Count(log.String(), "account="+mnemocode+" type="+message.NoticePasswordChanged); n != 7 {
				t.Errorf("%d dropped notices are logged, want 7:\n%s", n, log.String())
			}
			b.clock.advance(three.Per)
			change()
			settle(b.Service)
			if n := b.sms.count(); n != three.N+1 {
				t.Errorf("%d SMS were sent after the window, want %d", n, three.N+1)
			}
			b.company.Mail = b.mail
			for range 5 {
				change()
			}
			b.mail.await(5) // mails don't count against the budgets of SMS
		})
	}
}

// An attacker who has used up the SMS budgets of an account and its phone can't
// suppress the notice of a new password. Notices do not use up the budget of codes.
func TestCodesAndNoticesLeaveEachOtherTheirBudgets(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.company.Mail = nil
	l := &b.company.Limits
	l.SMSPerPhone = tenant.Rate{N: 2, Per: 24 * time.Hour}
	codes := func() {
		t.Helper()
		for range l.SMSPerPhone.N {
			b.must("auth/login", "", object{"login_id": email})
		}
		b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	}
	notice := func() {
		t.Helper()
		if _, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Password: password}); err != nil {
			t.Fatal(err)
		}
		settle(b.Service)
		if m := b.sms.last(t); m.Type != message.NoticePasswordChanged {
			t.Errorf("the last SMS is %s", m.Type)
		}
		b.withoutPassword()
	}
	codes()
	notice()
	b.clock.advance(24 * time.Hour)
	notice()
	notice()
	codes()
}

// wrongCode returns the code with its last digit changed.
func wrongCode(code string) string {
	last := byte('0' + (code[len(code)-1]-'0'+1)%10)
	return code[:len(code)-1] + string(last)
}

// Wrong codes of both kinds count per account for a day. caddymodule/integration shows that
// nothing resets the count.
func TestWrongCodesLockTheAccountForADay(t *testing.T) {
	b := newHarness(t)
	l := &b.company.Limits
	l.SMSPerAccount, l.SMSPerPhone = tenant.Rate{N: 100, Per: time.Hour}, tenant.Rate{N: 100, Per: time.Hour}
	b.backupCodes("ABCDE23456")
	login := func() string { return b.must("auth/checkcredentials", "", credentials(nil)).SessionToken }
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	bad := func() object { return object{"otp": wrongCode(b.sms.last(t).Code)} }

	recovery := b.sessionIn(record.RecoveryOTP)
	b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", recovery, bad()) // 1
	token := login()
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, bad()) // 2
	for range 20 {                                             // a used code is not compared, so it does not count
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, bad())
	}
	for range 8 {
		b.wrong(wire.ErrBackupCodeInvalid, "auth/checkotp", token, object{"backup_code": "ZZZZZ23456"}) // 10
	}
	b.clock.advance(time.Minute)
	b.wrong(wire.ErrRestricted, "auth/checkotp", token, object{"backup_code": "ABCDE23456"})
	b.wrong(wire.ErrRestricted, "auth/checkotp", token, object{"otp": b.sms.last(t).Code})
	b.wrong(wire.ErrRestricted, "auth/renewotp", token, nil)
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", credentials(nil))
	_, err := b.serve("auth/recovery/recover", "", object{"login_id": phone, "captcha_response": "x", "method": "PHONE"})
	wantError(t, err, wire.ErrRestricted)
	if got, want := refusal(err).RetryAfter, 24*time.Hour-time.Minute; got != want {
		t.Errorf("got Retry-After %v, want %v", got, want)
	}
	b.clock.advance(24*time.Hour - 2*time.Minute)
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", credentials(nil))
	b.clock.advance(time.Minute)
	b.must("auth/checkotp", login(), object{"backup_code": "ABCDE23456"})
}

func TestWrongCodesLockALoginWithoutPassword(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.company.Limits.WrongCodes.N = 1
	token := b.must("auth/login", "", object{"login_id": email}).SessionToken
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": wrongCode(b.sms.last(t).Code)})
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.status(record.StatusClosed) // the status is checked after the locks
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	if b.sms.count() != 1 {
		t.Error("a code was sent that could not be used")
	}
}

// Of a hundred requests at once, exactly as many are let through as a limit allows.
func TestLimitsAreExactUnderRaces(t *testing.T) {
	wrong := credentials(object{"password": "wrong"})
	// sends returns the request of body to a route, each from another address.
	sends := func(b *harness, path, token string, body object) func(int) error {
		return func(i int) error {
			_, err := b.serveAs(code, addressOf(i), path, token, body)
			return err
		}
	}
	for name, c := range map[string]struct {
		harness func(*testing.T) *harness
		try     func(b *harness) func(i int) error // prepares the harness
		want    map[string]int
		after   func(b *harness) // may be nil
	}{
		"passwords before the captcha": {newHarness, func(b *harness) func(int) error {
			b.company.Captcha = &captcha{}
			return sends(b, "auth/checkcredentials", "", wrong)
		}, map[string]int{"auth.credentials.invalid": 3, "auth.captcha.missing": 97}, nil},
		"hardened passwords before the captcha": {hardenedHarness, func(b *harness) func(int) error {
			return sends(b, "auth/checkcredentials", "", wrong)
		}, map[string]int{"auth.credentials.invalid": 3, "auth.captcha.missing": 97}, func(b *harness) {
			if n := b.failureCount(record.WrongPasswords); n != 3 {
				b.t.Errorf("the account has %d failures", n)
			}
		}},
		"hardened passwords of a login id": {hardenedHarness, func(b *harness) func(int) error {
			b.company.Captcha = nil
			return sends(b, "auth/checkcredentials", "", wrong)
		}, map[string]int{"auth.credentials.invalid": 10, "auth.restricted": 90}, func(b *harness) {
			if n := b.failureCount(record.WrongPasswords); n != 10 {
				b.t.Errorf("the account has %d failures", n)
			}
		}},
		"bad captchas of an address": {newHarness, func(b *harness) func(int) error {
			b.company.Captcha, b.company.Limits.CaptchaAfter = &captcha{}, new(0)
			return func(int) error { return b.solve(code, home, "auth/checkcredentials", "", "bad") }
		}, map[string]int{"auth.captcha.invalid": 30, "auth.restricted": 70}, nil},
		"a captcha response": {newHarness, func(b *harness) func(int) error {
			b.company.Captcha, b.company.Limits.CaptchaAfter = &captcha{}, new(0)
			return sends(b, "auth/checkcredentials", "", with(wrong, object{"captcha_response": "good"}))
		}, map[string]int{"auth.credentials.invalid": 1, "auth.captcha.invalid": 99}, func(b *harness) {
			b.clock.advance(-30 * time.Minute) // setting the clock back does not make it valid again
			b.wrong(wire.ErrCaptchaInvalid, "auth/recovery/recover", "", recovery(nil))
			b.addCompany("umbrella")
			if _, err := b.serveAs("umbrella", home, "auth/recovery/recover", "", recovery(nil)); !errors.Is(err, wire.ErrCaptchaInvalid) {
				b.t.Errorf("in another company: got %v", err)
			}
		}},
		"failures of an address": {newHarness, func(b *harness) func(int) error {
			return func(i int) error {
				_, err := b.serve("auth/login", "", object{"login_id": fmt.Sprint("nobody", i)})
				return err
			}
		}, map[string]int{"auth.loginid.notfound": 30, "auth.restricted": 70}, nil},
		"mails of an account": {newHarness, func(b *harness) func(int) error {
			return sends(b, "auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
		}, map[string]int{"": 3, "auth.restricted": 97}, func(b *harness) {
			if n := b.mail.count(); n != 3 {
				b.t.Errorf("%d mails were sent", n)
			}
		}},
		"control answers": {newHarness, func(b *harness) func(int) error {
			return sends(b, "auth/recovery/checkquestion", b.sessionIn(record.RecoveryQuestion), object{"control_answer": "Rex"})
		}, map[string]int{"auth.controlanswer.invalid": 3, "auth.restricted": 97}, nil},
		"wrong passwords of an account": {newHarness, func(b *harness) func(int) error {
			token := b.sessionIn(record.CheckPassword)
			return func(i int) error {
				body := object{"password": fmt.Sprint("wrong password ", i)}
				if i%2 == 0 {
					_, err := b.serveAs(code, addressOf(i), "auth/checkpassword", token, body)
					return err
				}
				body["login_id"] = []string{email, " ALICE@example.com ", "+370 600 12345"}[i%3]
				_, err := b.serveAs(code, addressOf(i), "auth/checkcredentials", "", body)
				if errors.Is(err, wire.ErrCredentialsInvalid) {
					err = wire.ErrPasswordInvalid
				}
				return err
			}
		}, map[string]int{"auth.password.invalid": 10, "auth.restricted": 90}, func(b *harness) {
			if n := b.failureCount(record.WrongPasswords); n != 10 {
				b.t.Errorf("the account has %d failures", n)
			}
			b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", credentials(nil))
		}},
		"a user's own check": {newHarness, func(b *harness) func(int) error {
			return func(int) error {
				err := b.admin().CheckPassword(b.t.Context(), mnemocode, "wrong", "")
				if errors.Is(err, manage.ErrPasswordWrong) {
					err = wire.ErrPasswordInvalid
				}
				return err
			}
		}, map[string]int{"auth.password.invalid": 10, "auth.restricted": 90}, nil},
		// Without a password anyone can begin such sessions.
		"logins without a password after the last SMS": {harnessWithCodes, func(b *harness) func(int) error {
			b.company.Limits.SMSPerAccount = tenant.Rate{N: 1, Per: time.Hour}
			return sends(b, "auth/login", "", object{"login_id": email})
		}, map[string]int{"": 31, "auth.restricted": 69}, func(b *harness) {
			if _, err := b.serve("auth/login", "", object{"login_id": email}); refusal(err).Reason != "limit.sms_account" {
				b.t.Errorf("got %v, %q", err, refusal(err).Reason)
			}
		}},
		// Ten are the device's; the others are those of an unknown device.
		"guesses of a known device": {newDevices, func(b *harness) func(int) error {
			return sends(b, "auth/checkcredentials", "", with(wrong, object{"device_token": b.remembered()}))
		}, map[string]int{"auth.credentials.invalid": 20, "auth.restricted": 80}, func(b *harness) {
			if n := b.failureCount(record.WrongPasswords); n != 10 {
				b.t.Errorf("the account has %d failures", n)
			}
		}},
		"logins of a known device": {newDevices, func(b *harness) func(int) error {
			b.company.Limits.LoginsPerAddress = tenant.Rate{N: 5, Per: time.Minute}
			return sends(b, "auth/checkcredentials", "", credentials(object{"device_token": b.remembered()}))
		}, map[string]int{"": 5, "auth.restricted": 95}, func(b *harness) {
			b.must("auth/checkcredentials", "", credentials(nil)) // they do not count for its address
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.harness(t)
			if got := race(100, c.try(b)); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if c.after != nil {
				c.after(b)
			}
		})
	}
}

// Even if many sessions guess at once, only as many codes as the limit allows are
// compared. After that a right code is refused.
func TestWrongCodesAreExactUnderRaces(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	l := &b.company.Limits
	l.SMSPerAccount, l.SMSPerPhone, l.SMSPerAddress = tenant.Rate{N: 1000, Per: time.Hour}, tenant.Rate{N: 1000, Per: time.Hour}, tenant.Rate{N: 1000, Per: time.Hour}
	b.backupCodes("ABCDE23456")
	tokens, codes := make([]string, 60), make([]string, 60)
	for i := range tokens {
		tokens[i] = b.must("auth/login", "", object{"login_id": email}).SessionToken
		codes[i] = b.sms.last(t).Code
	}
	got := race(len(tokens)-1, func(i int) error {
		body := object{"otp": wrongCode(codes[i])}
		if i%2 == 0 {
			body = object{"backup_code": "ZZZZZ23456"}
		}
		_, err := b.serveAs(code, addressOf(i), "auth/checkotp", tokens[i], body)
		return err
	})
	if wrong := got["auth.otp.invalid"] + got["auth.backupcode.invalid"]; wrong != l.WrongCodes.N {
		t.Errorf("got %v, want %d guesses", got, l.WrongCodes.N)
	}
	last := len(tokens) - 1
	b.wrong(wire.ErrRestricted, "auth/checkotp", tokens[last], object{"otp": codes[last]})
	b.wrong(wire.ErrRestricted, "auth/checkotp", tokens[last], object{"backup_code": "ABCDE23456"})
}
