package flows_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// awaiting removes the account's password and logs in up to the code.
func (b *harness) awaiting() (token, otp string) {
	b.t.Helper()
	token = b.must("auth/login", "", object{"login_id": email}).SessionToken
	return token, b.sms.last(b.t).Code
}

// harnessWithCodes returns a harness whose account has no password and no limit of SMS.
func harnessWithCodes(t *testing.T) *harness {
	t.Helper()
	b := newHarness(t)
	b.withoutPassword()
	b.backupCodes("ABCDE23456", "FGHJK23456")
	l := &b.company.Limits
	l.SMSPerAccount, l.SMSPerPhone, l.SMSPerAddress = tenant.Rate{N: 10000, Per: time.Hour}, tenant.Rate{N: 10000, Per: time.Hour}, tenant.Rate{N: 10000, Per: time.Hour}
	return b
}

func TestCodesAreOfSixDigits(t *testing.T) {
	b := harnessWithCodes(t)
	seen := map[string]bool{}
	for range 200 { // enough for some to begin with a zero
		_, otp := b.awaiting()
		seen[otp] = true
		if !regexp.MustCompile(`^[0-9]{6}$`).MatchString(otp) {
			t.Fatalf("got the code %q", otp)
		}
	}
	if len(seen) < 190 {
		t.Errorf("200 codes, of which %d differ", len(seen))
	}
	if m := b.sms.last(t); !m.Expires.Equal(b.clock.Now().Add(5 * time.Minute)) {
		t.Errorf("the SMS says %v", m.Expires)
	}
	token, _ := b.awaiting()
	expires := b.clock.Now().Add(10 * time.Minute)
	b.clock.advance(9 * time.Minute)
	b.must("auth/renewotp", token, nil)
	if m := b.sms.last(t); !m.Expires.Equal(expires) {
		t.Errorf("the SMS says %v, but the token ends at %v", m.Expires, expires)
	}
	b.company.OTP.Length = 8
	if _, otp := b.awaiting(); len(otp) != 8 {
		t.Errorf("got the code %q, want 8 digits", otp)
	}
}

// spelled returns a code as people may type it. Package typed has more ways.
func spelled(code string) string { return "\u200b" + code[:2] + "\u00a0" + code[2:] + "\n" }

// However people type and paste a code, it is that code. What can't be a code spends and
// counts nothing.
func TestCodesAsPeopleTypeThem(t *testing.T) {
	b := harnessWithCodes(t)
	b.company.Limits.WrongCodes.N = 1
	token, otp := b.awaiting()
	recovery := b.sessionIn(record.RecoveryOTP)
	recoveryOTP := b.sms.last(t).Code
	for _, no := range []string{"12345", "1234567", "12345a", "no code", " ", "½23456"} {
		b.wrong(wire.ErrValidation, "auth/checkotp", token, object{"otp": no})
		b.wrong(wire.ErrValidation, "auth/recovery/checkotp", recovery, object{"otp": no})
	}
	for _, no := range []string{"ABCDE2345", "ABCDE234567", "ABCDE23451", "ABCDE_23456", otp} {
		b.wrong(wire.ErrValidation, "auth/checkotp", token, object{"backup_code": no})
	}
	if n := b.failureCount(record.WrongCodes) + b.failureCount(record.WrongSecondFactors); n != 0 {
		t.Errorf("%d wrong codes were counted", n)
	}
	b.must("auth/checkotp", token, object{"otp": spelled(otp)})
	b.must("auth/recovery/checkotp", recovery, object{"otp": spelled(recoveryOTP)})
	token, _ = b.awaiting()
	b.must("auth/checkotp", token, object{"backup_code": spelled("abcde23456")})
}

// An app's code has six digits, however long those by SMS are.
func TestAnAppsCodesAsPeopleTypeThem(t *testing.T) {
	b := newHarness(t)
	b.company.OTP.Length = 8
	b.company.Limits.WrongCodes.N = 1
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	shows := b.newApp()
	_, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, "1234567", "")
	if wrong, ok := errors.AsType[*manage.FieldError](err); !ok || wrong.Field != "code" {
		t.Errorf("got %v, want that the code can't be one", err)
	}
	_, err = b.admin().ConfirmTOTP(t.Context(), mnemocode, spelled(shows(-30*time.Second)), "")
	must(t, err)
	token := b.awaitingApp()
	for _, no := range []string{"12345678", "12345", "no code"} {
		b.wrong(wire.ErrValidation, "auth/checkotp", token, object{"otp": no})
	}
	b.must("auth/checkotp", token, object{"otp": spelled(shows(0))})
}

// If no code can be sent, waiting does not help, so it is not service.unavailable. Other
// second factors work.
func TestACompanyWithoutSMSRefusesUsersWhoNeedIt(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	b.company.SMS = nil
	for range b.company.Limits.SMSPerAccount.N + 1 {
		b.wrong(wire.ErrUserRestricted, "auth/checkcredentials", "", credentials(nil))
	}
	b.backupCodes("ABCDE23456")
	token := b.must("auth/checkcredentials", "", credentials(nil)).SessionToken
	wantStep(t, b.must("auth/checkotp", token, object{"backup_code": "ABCDE23456"}), record.Authorized)
	b.newAppNow()
	token = b.must("auth/checkcredentials", "", credentials(nil)).SessionToken
	b.wrong(wire.ErrValidation, "auth/renewotp", token, nil)
	b.withoutPassword()
	b.backupCodes()
	b.wrong(wire.ErrUserRestricted, "auth/login", "", object{"login_id": email})
	b.company.Hardened = true
	wantStep(t, b.must("auth/login", "", object{"login_id": email}), record.CheckPassword) // as for an unknown login id
}

// unaccepting is an account store that can't record acceptances.
type unaccepting struct{ record.Accounts }

func (unaccepting) Accept(context.Context, string, int64, []record.Acceptance, ...record.OutboxEvent) error {
	return errDown
}

func TestABackupCodeIsSpentLast(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	b.backupCodes("ABCDE23456")
	token := b.must("auth/checkcredentials", "", object{"login_id": email, "password": password, "accept_disclaimers": []string{"terms"}}).SessionToken
	b.Accounts = unaccepting{b.Accounts}
	b.wrong(wire.ErrUnavailable, "auth/checkotp", token, object{"backup_code": "ABCDE23456"})
	if got := b.load().BackupCodes; got != 1 {
		t.Errorf("%d backup codes are left, want 1", got)
	}
}

// A login that loses a backup code to another one has lost its session, and says so.
func TestOneOfTwoLoginsUsesABackupCode(t *testing.T) {
	b := newHarness(t)
	b.backupCodes("ABCDE23456", "FGHJK23456")
	first := b.sessionIn(record.CheckOTP)
	second := b.walk("auth/login", "auth/checkpassword").SessionToken
	began := false
	b.watch(func(c seen) error {
		if c.method == "Replace" && !began { // both have compared the code
			began = true
			b.must("auth/checkotp", second, object{"backup_code": "ABCDE23456"})
		}
		return nil
	})
	b.wrong(wire.ErrTokenInvalid, "auth/checkotp", first, object{"backup_code": "ABCDE23456"})
	b.wrong(wire.ErrTokenInvalid, "auth/checkotp", first, object{"backup_code": "FGHJK23456"})
	if got := b.load().BackupCodes; got != 1 {
		t.Errorf("%d backup codes are left, want 1", got)
	}
	if sessions, err := b.admin().LiveSessions(t.Context(), mnemocode); err != nil || len(sessions) != 1 {
		t.Errorf("there are %d sessions, want 1: %v", len(sessions), err)
	}
}

// A right code that is sent together with as many wrong ones as are allowed comes too
// late.
func TestARightCodeIsOneOfThoseAllowed(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.withoutPassword()
		b.company.Hardened, b.company.Captcha = hardened, &captcha{}
		b.company.Limits.WrongCodes.N = 2
		begin := func(n int) (token, otp string) {
			token = b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE", "captcha_response": fmt.Sprint("good", n)})).SessionToken
			settle(b.Service)
			return token, b.sms.last(t).Code
		}
		token, otp := begin(0)
		var others []string
		for n := range b.company.Limits.WrongCodes.N {
			other, _ := begin(n + 1)
			others = append(others, other)
		}
		accounts := b.Accounts
		b.Accounts = laps{accounts, func() {
			b.Accounts = accounts
			for i, other := range others {
				if _, err := b.serveAs(code, addressOf(i), "auth/recovery/checkotp", other, object{"otp": "000000"}); !errors.Is(err, wire.ErrOTPInvalid) {
					t.Error(err)
				}
			}
		}}
		b.wrong(wire.ErrRestricted, "auth/recovery/checkotp", token, object{"otp": otp})
	}
}

// While the gateway fails, an account with backup codes gets its session at once, and no code
// that may still arrive works in it. Other accounts wait, and strangers learn nothing new of a
// login id.
func TestAFailedCodeLeavesTheBackupCodes(t *testing.T) {
	begin := map[string]func(b *harness) (flows.Reply, error){
		"after checkpassword": func(b *harness) (flows.Reply, error) {
			return b.serve("auth/checkpassword", b.walk("auth/login").SessionToken, object{"password": password})
		},
		"after checkcredentials": func(b *harness) (flows.Reply, error) { return b.serve("auth/checkcredentials", "", credentials(nil)) },
		"without a password": func(b *harness) (flows.Reply, error) {
			b.withoutPassword()
			return b.serve("auth/login", "", object{"login_id": email})
		},
	}
	for name, begin := range begin {
		for _, hardened := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", hardened ", hardened), func(t *testing.T) {
				b := newHarness(t)
				b.company.Hardened = hardened
				b.update(true, func(a *record.Account) { a.SecondFactor = true })
				b.sms.broken = errDown
				if _, err := begin(b); !errors.Is(err, wire.ErrUnavailable) {
					t.Fatalf("an account without backup codes got %v", err)
				}
				b.backupCodes("AAAAABBBBB")
				reply, err := begin(b)
				if err != nil || reply.SessionState != record.CheckOTP || reply.UserPhone != "" {
					t.Fatalf("got %+v, %v", reply, err)
				}
				b.wrong(wire.ErrOTPInvalid, "auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
				b.wrong(wire.ErrUnavailable, "auth/renewotp", reply.SessionToken, nil)
				b.must("auth/checkotp", reply.SessionToken, object{"backup_code": "AAAAABBBBB"})
				if _, err := b.serve("auth/login", "", object{"login_id": "nobody"}); errors.Is(err, wire.ErrLoginIDNotFound) == hardened {
					t.Errorf("an unknown login id got %v", err)
				}
				b.backupCodes("AAAAABBBBB")
				var failed error
				for range 31 {
					_, failed = begin(b)
				}
				if bounded := errors.Is(failed, wire.ErrRestricted); bounded != (name == "without a password") {
					t.Errorf("in the end, got %v", failed)
				}
			})
		}
	}
}

// The code that a user holds stays valid if the gateway fails to send another one. A new one
// takes its place.
func TestAFailedRenewalLeavesTheCode(t *testing.T) {
	for route, begin := range map[string]func(b *harness) (token, code string){
		"auth/renewotp": func(b *harness) (token, code string) {
			return b.walk("auth/login", "auth/checkpassword").SessionToken, b.sms.last(b.t).Code
		},
		"auth/recovery/renewotp": func(b *harness) (token, code string) {
			token = b.must("auth/recovery/recover", "", object{"login_id": email, "captcha_response": "tea"}).SessionToken
			return token, b.sms.last(b.t).Code
		},
	} {
		b := newHarness(t)
		b.update(true, func(a *record.Account) { a.SecondFactor = true })
		check := strings.Replace(route, "renewotp", "checkotp", 1)
		token, _ := begin(b)
		b.must(route, token, nil)
		second := b.sms.last(t).Code
		b.sms.broken = errDown
		b.wrong(wire.ErrUnavailable, route, token, nil)
		b.must(check, token, object{"otp": second})

		b.sms.broken = nil
		token, first := begin(b)
		b.must(route, token, nil)
		b.wrong(wire.ErrOTPInvalid, check, token, object{"otp": first})
	}
}

// Of two renewals at once, the code that was sent works, even if the other one began later.
func TestARenewalThatFailsLeavesAnothers(t *testing.T) {
	b := harnessWithCodes(t)
	token, _ := b.awaiting()
	b.company.SMS = slowSender{b.sms, func() {
		b.company.SMS, b.sms.broken = b.sms, errDown
		b.wrong(wire.ErrUnavailable, "auth/renewotp", token, nil)
		b.sms.broken = nil
	}}
	b.must("auth/renewotp", token, nil)
	b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
}

// A slowSender sends after something else has happened.
type slowSender struct {
	*outbox
	first func()
}

func (s slowSender) Send(ctx context.Context, m message.Message) error {
	s.first()
	return s.outbox.Send(ctx, m)
}

func TestExactlyOneOfOTPAndBackupCode(t *testing.T) {
	b := harnessWithCodes(t)
	token, otp := b.awaiting()
	for _, body := range []object{
		{}, {"otp": otp, "backup_code": "ABCDE23456"}, {"otp": "", "backup_code": ""}, {"otp": nil}, {"otp": "1", "backup_code": "2"},
	} {
		b.wrong(wire.ErrValidation, "auth/checkotp", token, body)
	}
	b.must("auth/checkotp", token, object{"otp": otp, "backup_code": nil}) // the refusals did not use the code up
	token, _ = b.awaiting()
	b.must("auth/checkotp", token, object{"otp": "", "backup_code": "ABCDE23456"})
}

func TestACodeIsBoundToItsPhone(t *testing.T) {
	b := harnessWithCodes(t)
	token, otp := b.awaiting()
	b.update(false, func(a *record.Account) { a.Phone = "+37060054321" })
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp})
	if n := b.failureCount(record.WrongCodes); n != 0 {
		t.Errorf("what was not compared counts: %d", n)
	}
	b.must("auth/renewotp", token, nil)
	if to := b.sms.last(t).To; to != "+37060054321" {
		t.Errorf("the new code went to %s", to)
	}
	b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
}

// If a password is required, an account without one must set it after the code.
func TestAnAccountWithoutAPasswordMustSetItWhereThatIsRequired(t *testing.T) {
	b := harnessWithCodes(t)
	token, otp := b.awaiting()
	wantStep(t, b.must("auth/checkotp", token, object{"otp": otp}), record.Authorized)
	b.company.Password.Required = new(true)
	token, otp = b.awaiting()
	reply := b.must("auth/checkotp", token, object{"otp": otp})
	wantStep(t, reply, record.SetPassword)
	if reply.Regex != nil || !strings.Contains(reply.Description, "8 to 128 ") {
		t.Errorf("got %v and %q, want null where there is no regular expression, and the other rules", reply.Regex, reply.Description)
	}
	wantStep(t, b.must("auth/setpassword", reply.SessionToken, object{"new_password": "another fine secret"}), record.Authorized)
	wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": "another fine secret"}), record.Authorized)
}

// A right backup code that pending disclaimers stop can be sent again, but costs a hash each time.
func TestBackupCodesAreLoginsOfTheAddress(t *testing.T) {
	b := harnessWithCodes(t)
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	token, _ := b.awaiting()
	hashes := b.countHashes()
	got := race(100, func(int) error {
		_, err := b.serve("auth/checkotp", token, object{"backup_code": "ABCDE23456"})
		return err
	})
	n := b.company.Limits.LoginsPerAddress.N
	if got["auth.disclaimer.invalid"] != n || got["auth.restricted"] != 100-n || hashes.Load() != int64(n) {
		t.Errorf("got %v and %d hashes, want %d", got, hashes.Load(), n)
	}
}
