package flows_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// What Explain says first stands in the way of a login is what a login with the right
// password answers, in open and in hardened companies; and it counts nothing.
func TestExplainSaysWhatALoginAnswers(t *testing.T) {
	fail := func(b *harness, n int, address string) {
		for range n {
			_, err := b.serveAs("", address, "auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
			if err == nil {
				b.t.Fatal("a wrong password is right")
			}
		}
	}
	needsCode := func(b *harness) { b.company.SecondFactor = tenant.SecondFactorRequired }
	for name, c := range map[string]struct {
		before  func(b *harness)
		loginID string // the account's email if empty
		want    string // empty if nothing stands in the way
		hidden  string // in a hardened company, if it differs: - if strangers get a decoy
	}{
		"nothing":    {before: func(*harness) {}},
		"an unknown": {before: func(*harness) {}, loginID: "nobody@example.com", want: "auth.credentials.invalid"},
		"closed":     {before: func(b *harness) { b.status(record.StatusClosed) }, want: "auth.user.closed"},
		"locked":     {before: func(b *harness) { fail(b, b.company.Limits.LockAfter, "198.51.100.1") }, want: "auth.restricted lock.password"},
		"disabled": {before: func(b *harness) { b.counted(record.WrongPasswords, b.company.Limits.DisableAfter) },
			want: "auth.restricted lock.disabled", hidden: "auth.credentials.invalid"},
		"codes are locked": {before: func(b *harness) {
			needsCode(b)
			b.counted(record.WrongCodes, b.company.Limits.WrongCodes.N)
		}, want: "auth.restricted lock.codes"},
		"code alone, locked": {before: func(b *harness) {
			b.withoutPassword()
			b.counted(record.WrongCodes, b.company.Limits.WrongCodes.N)
		}, want: "auth.restricted lock.codes"},
		"code alone, wrong passwords": {before: func(b *harness) {
			b.withoutPassword()
			b.company.Limits.DisableAfter = b.company.Limits.LockAfter
			fail(b, b.company.Limits.LockAfter, "198.51.100.1")
		}, want: "auth.restricted lock.password"},
		"a password of a former system": {before: func(b *harness) { b.withHash(record.ExternalPassword) }, want: "auth.credentials.invalid"},
		"a code is sent":                {before: needsCode},
		"no phone": {before: func(b *harness) {
			needsCode(b)
			b.update(true, func(a *record.Account) { a.Phone = "" })
		}, want: "auth.user.restricted user.no_second_factor"},
		"no phone, but codes": {before: func(b *harness) {
			needsCode(b)
			b.update(true, func(a *record.Account) { a.Phone = "" })
			b.backupCodes("AAAAABBBBB")
		}},
		"no gateway": {before: func(b *harness) {
			needsCode(b)
			b.company.SMS = nil
		}, want: "auth.user.restricted user.no_second_factor"},
		"too many SMS": {before: func(b *harness) {
			needsCode(b)
			for range 5 {
				b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
			}
		}, want: "auth.restricted limit.sms_account"},
		"too many SMS, but codes": {before: func(b *harness) {
			needsCode(b)
			for range 5 {
				b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
			}
			b.backupCodes("AAAAABBBBB")
		}},
		"the address": {before: func(b *harness) {
			b.company.Limits.LoginsPerAddress = tenant.Rate{N: 3, Per: time.Minute}
			for range 3 {
				b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
			}
		}, want: "auth.restricted limit.logins"},
		"code alone, the address": {before: func(b *harness) {
			b.company.Limits.LoginsPerAddress = tenant.Rate{N: 3, Per: time.Minute}
			for range 3 {
				b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
			}
			b.withoutPassword()
		}},
		"code alone": {before: func(b *harness) { b.withoutPassword() }},
		"code alone, no phone": {before: func(b *harness) {
			b.update(true, func(a *record.Account) { a.PasswordHash, a.Phone = "", "" })
			b.backupCodes("ABCDE23456") // they are no way to log in alone
		}, want: "auth.user.restricted user.no_second_factor", hidden: "-"},
	} {
		for _, hardened := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", hardened ", hardened), func(t *testing.T) {
				b := newHarness(t)
				b.company.Hardened = hardened
				c.before(b)
				loginID := c.loginID
				if loginID == "" {
					loginID = email
				}
				var found []manage.Finding
				for range 40 { // more than any limit
					var err error
					found, err = b.admin().Explain(t.Context(), loginID, home)
					must(t, err)
				}
				said := ""
				for _, f := range found {
					if f.Answer != nil && said == "" {
						said = answered(f.Answer)
					}
				}
				want := c.want
				if hardened && len(c.hidden) > 1 {
					want = c.hidden
				}
				if said != want {
					t.Errorf("Explain says %q, want %q", said, want)
				}
				path, body := "auth/checkcredentials", object{"login_id": loginID, "password": password}
				if b.load().PasswordHash == "" {
					path, body = "auth/login", object{"login_id": loginID}
				}
				events := b.record()
				_, err := b.serve(path, "", body)
				if told := len(named(events(), record.LimitLogins)); name == "the address" && told != 1 {
					t.Errorf("the limit was told %d times", told)
				}
				if got := answered(err); got != want && !(hardened && c.hidden == "-") {
					t.Errorf("the login answers %q, want %q", got, want)
				}
			})
		}
	}
}

// The advice helps against what is in the way: it names no contact that the account has, no
// factor without the password that it needs, and no end of what does not end.
func TestExplainSaysWhatHelps(t *testing.T) {
	sms := func(b *harness) { b.company.SMS = nil }
	country := func(b *harness) { b.company.Limits.SMSCountries = []string{"+44"} }
	for name, c := range map[string]struct {
		before       func(b *harness)
		loginID      string
		code, byCode bool
		want         string
	}{
		"no gateway":             {before: sms, code: true, want: "since the company has no sms; configure sms, or give the account an app or backup codes"},
		"no gateway, code alone": {before: sms, byCode: true, want: "since the company has no sms; configure sms, or let the user set a password"},
		"no gateway, no phone": {before: func(b *harness) {
			sms(b)
			b.update(true, func(a *record.Account) { a.Phone = "" })
		}, code: true, want: "; give the account an app or backup codes, or configure sms and give it a phone"},
		"a country of no gateway": {before: func(b *harness) {
			b.company.SMS = message.Gateways{{Sender: b.company.SMS, Countries: []string{"+44"}}}
		}, code: true, want: "; add it to countries of a gateway, or give the account an app"},
		"no phone":                  {before: func(b *harness) { b.update(true, func(a *record.Account) { a.Phone = "" }) }, code: true, want: "; give the account a phone, an app or"},
		"another country":           {before: country, code: true, want: "; add it to limits sms_countries, and to countries of a gateway, or give the account an app"},
		"another country, no other": {before: country, byCode: true, want: "of a gateway, or let the user set a password"},
		"disabled":                  {before: func(b *harness) { b.counted(record.WrongPasswords, b.company.Limits.DisableAfter) }, want: "the password is disabled; a recovery ends this"},
		"an unknown, locked": {before: func(b *harness) {
			for range b.company.Limits.LockAfter {
				_, err := b.serveAs("", "198.51.100.1", "auth/checkcredentials", "", object{"login_id": "nobody", "password": "wrong"})
				wantError(t, err, wire.ErrCredentialsInvalid)
			}
		}, loginID: "nobody", want: "passwords are locked; 'account unlock' can't end the lock of a login id without an account, which is forgotten a day after the last wrong password"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			if c.code {
				b.company.SecondFactor = tenant.SecondFactorRequired
			}
			if c.byCode {
				b.withoutPassword()
			}
			c.before(b)
			found, err := b.admin().Explain(t.Context(), cmp.Or(c.loginID, email), home)
			must(t, err)
			if !slices.ContainsFunc(found, func(f manage.Finding) bool {
				return f.Answer != nil && strings.Contains(f.Message+"; "+f.Advice, c.want)
			}) {
				t.Errorf("got %q", found)
			}
		})
	}
}

func TestExplainSaysWhetherACaptchaIsDue(t *testing.T) {
	b := newHarness(t)
	b.company.Captcha, b.company.Limits.CaptchaAfter = &captcha{}, new(0)
	said := func() bool {
		found, err := b.admin().Explain(t.Context(), email, home)
		must(t, err)
		return slices.ContainsFunc(found, func(f manage.Finding) bool { return f.Message == "the password needs a captcha" })
	}
	if !said() {
		t.Error("it does not")
	}
	b.withoutPassword()
	if said() {
		t.Error("a login by code needs one")
	}
}

// counted sets a failure count of the account.
func (b *harness) counted(kind record.FailureKind, n int) {
	b.t.Helper()
	key := record.FailureKey{Company: code, Account: b.account}
	must(b.t, b.Accounts.UpdateFailures(b.t.Context(), b.clock.Now(), key, kind, func(t *record.FailureCount) error {
		t.Count, t.Until = n, b.clock.Now().Add(time.Hour)
		return nil
	}))
}

// answered returns the error_code and the reason of an error.
func answered(err error) string {
	coded, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return ""
	}
	if reason := wire.ReasonOf(err); reason != "" {
		return coded.Code + " " + string(reason)
	}
	return coded.Code
}
