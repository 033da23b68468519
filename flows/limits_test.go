package flows_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
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
			for i := range b.company.Limits.FailuresPerAddress.N {
				path := []string{"auth/login", "auth/recovery/recover", "auth/recovery/checklink", "auth/oauth"}[i%4]
				_, err := b.serveAs(code, c.fails, path, "", object{"login_id": "nobody", "captcha_response": "x", "token": "mgl_unknown",
					"provider_id": 1, "code": newGrant("bad"), "redirect_uri": "https://app.example.com/cb"})
				if err == nil || errors.Is(err, wire.ErrRestricted) {
					t.Fatalf("%s after %d failures: %v", path, i, err)
				}
			}
			_, err := b.serveAs(code, c.same, "auth/checkcredentials", "", credentials(nil))
			wantError(t, err, wire.ErrRestricted)
			_, err = b.serveAs(code, c.other, "auth/checkcredentials", "", credentials(nil))
			must(t, err)
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

// Notices by SMS count against the budgets of their company and country, as codes
// do, and against a budget of their own per phone.
func TestNoticesAreWithinTheBudgetsOfSMS(t *testing.T) {
	for lock, limit := range map[string]func(*tenant.Limits) *tenant.Rate{
		record.LimitSMSPhone:   func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerPhone },
		record.LimitSMSCompany: func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerCompany },
		record.LimitSMSCountry: func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerCountry },
	} {
		t.Run(lock, func(t *testing.T) {
			b := newHarness(t)
			b.company.Mail = nil
			*limit(&b.company.Limits) = tenant.Rate{N: 3, Per: 24 * time.Hour}
			var log bytes.Buffer
			b.Log = slog.New(slog.NewTextHandler(&log, nil))
			events := b.record()
			current := password
			change := func(n int) (sms int) {
				t.Helper()
				for range n {
					must(t, b.changeOwn(manage.PasswordChange{Current: current, New: current + "!"}))
					current += "!"
				}
				settle(b.Service)
				return b.sms.count()
			}
			if n := change(10); n != 3 {
				t.Errorf("%d SMS were sent, want 3", n)
			}
			if locks := named(events(), lock); len(locks) != 1 || locks[0].Mnemocode != mnemocode {
				t.Errorf("got the locks %+v, want one", locks)
			}
			if n := strings.Count(log.String(), "mnemocode="+mnemocode+" type="+message.NoticePasswordChanged); n != 7 {
				t.Errorf("%d dropped notices are logged, want 7:\n%s", n, log.String())
			}
			b.clock.advance(24 * time.Hour)
			if n := change(1); n != 4 {
				t.Errorf("%d SMS were sent after the window, want 4", n)
			}
			b.company.Mail = b.mail
			change(5)
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
			return func(int) error { return b.solve(home, "bad") }
		}, map[string]int{"auth.captcha.invalid": 30, "auth.restricted": 70}, func(b *harness) {
			asked := &b.company.Captcha.(*captcha).asked
			before := asked.Load()
			if err := b.solve(home, "good"); !errors.Is(err, wire.ErrRestricted) || asked.Load() != before {
				b.t.Errorf("after too many: got %v, and the provider was asked %d times", err, asked.Load()-before)
			}
			must(b.t, b.solve(stranger, "good"))
		}},
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
		"passwords of an address": {newHarness, func(b *harness) func(int) error {
			b.company.Limits.LoginsPerAddress.N = 7
			hashes := b.countHashes()
			b.t.Cleanup(func() {
				if n := hashes.Load(); n != 7 {
					b.t.Errorf("%d passwords were hashed", n)
				}
			})
			return func(int) error { _, err := b.serve("auth/checkcredentials", "", wrong); return err }
		}, map[string]int{"auth.credentials.invalid": 7, "auth.restricted": 93}, nil},
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

// Wrong codes of both kinds, in logins and recoveries, count per account for a day.
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

// A wrong password tells nothing of the account's status.
func TestAWrongPasswordTellsNoStatus(t *testing.T) {
	for _, status := range record.Statuses {
		b := newHarness(t)
		b.status(status)
		_, err := b.serve("auth/checkcredentials", "", credentials(object{"password": "wrong"}))
		if r := refusal(err); r.Err != wire.ErrCredentialsInvalid || r.Message != "" || r.Captcha {
			t.Errorf("%s: got %+v", status, r)
		}
	}
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
