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
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// awaiting logs the account, without its password, in as far as the code.
func (b *bench) awaiting() (token, otp string) {
	b.t.Helper()
	token = b.must("auth/login", "", object{"login_id": email}).SessionToken
	return token, b.sms.last(b.t).Code
}

// benchWithCodes has an account without password, whose SMS are not limited.
func benchWithCodes(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.withoutPassword()
	b.backupCodes("ABCDE23456", "FGHJK23456")
	l := &b.company.Limits
	l.SMSPerAccount, l.SMSPerPhone, l.SMSPerAddress = tenant.Rate{N: 10000, Per: time.Hour}, tenant.Rate{N: 10000, Per: time.Hour}, tenant.Rate{N: 10000, Per: time.Hour}
	return b
}

func TestCodesAreOfSixDigits(t *testing.T) {
	b := benchWithCodes(t)
	seen := map[string]bool{}
	for range 200 { // of which some begin with a zero
		_, otp := b.awaiting()
		seen[otp] = true
		if !regexp.MustCompile(`^[0-9]{6}$`).MatchString(otp) {
			t.Fatalf("got the code %q", otp)
		}
	}
	if len(seen) < 190 {
		t.Errorf("200 codes, of which %d differ", len(seen))
	}
	b.company.OTPLength = 8
	if _, otp := b.awaiting(); len(otp) != 8 {
		t.Errorf("got the code %q, want 8 digits", otp)
	}
}

func TestACodeIsSpentByTheFirstAttempt(t *testing.T) {
	b := benchWithCodes(t)
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	accept := []string{"terms"}

	t.Run("wrong", func(t *testing.T) {
		token, otp := b.awaiting()
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": wrongCode(otp), "accept_disclaimers": accept})
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp, "accept_disclaimers": accept})
		b.must("auth/renewotp", token, nil)
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp, "accept_disclaimers": accept})
		b.must("auth/renewotp", token, nil)
		b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code, "accept_disclaimers": accept})
	})
	t.Run("right", func(t *testing.T) {
		token, otp := b.awaiting()
		b.must("auth/checkotp", token, object{"otp": otp, "accept_disclaimers": accept})
		b.wrong(wire.ErrTokenInvalid, "auth/checkotp", token, object{"otp": otp, "accept_disclaimers": accept})
	})
	t.Run("right, without the disclaimers", func(t *testing.T) {
		b.company.Disclaimers[0].Version = "2"
		token, otp := b.awaiting()
		_, err := b.serve("auth/checkotp", token, object{"otp": otp})
		wantError(t, err, wire.ErrDisclaimerInvalid)
		if got := refusal(err).Disclaimers; len(got) != 1 || got[0].Code != "terms" {
			t.Errorf("got disclaimers_required %v", got)
		}
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp, "accept_disclaimers": accept})
		b.must("auth/renewotp", token, nil)
		b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code, "accept_disclaimers": accept})
	})
}

func TestExactlyOneOfOTPAndBackupCode(t *testing.T) {
	b := benchWithCodes(t)
	token, otp := b.awaiting()
	for _, body := range []object{
		{}, {"otp": otp, "backup_code": "ABCDE23456"}, {"otp": "", "backup_code": ""}, {"otp": nil}, {"otp": "1", "backup_code": "2"},
	} {
		b.wrong(wire.ErrValidation, "auth/checkotp", token, body)
	}
	b.must("auth/checkotp", token, object{"otp": otp, "backup_code": nil}) // nothing was spent
	token, _ = b.awaiting()
	b.must("auth/checkotp", token, object{"otp": "", "backup_code": "ABCDE23456"})
}

func TestACodeExpires(t *testing.T) {
	b := benchWithCodes(t)
	token, otp := b.awaiting()
	if got, want := b.sms.last(t).Expires, b.clock.Now().Add(5*time.Minute); !got.Equal(want) {
		t.Errorf("the SMS says %v, want %v", got, want)
	}
	b.clock.advance(5*time.Minute - time.Microsecond)
	b.must("auth/checkotp", token, object{"otp": otp})
	token, otp = b.awaiting()
	b.clock.advance(5 * time.Minute)
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp})
	b.clock.advance(-time.Minute) // it is spent, whatever the clock says
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp})
	b.must("auth/renewotp", token, nil)
	b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
}

func TestACodeIsBound(t *testing.T) {
	t.Run("to its session", func(t *testing.T) {
		b := benchWithCodes(t)
		one, oneOTP := b.awaiting()
		two, twoOTP := b.awaiting()
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", two, object{"otp": oneOTP})
		b.must("auth/checkotp", one, object{"otp": oneOTP})
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", two, object{"otp": twoOTP})
	})
	t.Run("to its purpose", func(t *testing.T) {
		b := benchWithCodes(t)
		login, loginOTP := b.awaiting()
		recovery := b.sessionIn(record.RecoveryOTP)
		b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", recovery, object{"otp": loginOTP})
		b.wrong(wire.ErrSessionInvalid, "auth/recovery/checkotp", login, object{"otp": loginOTP})
		b.wrong(wire.ErrSessionInvalid, "auth/checkotp", recovery, object{"otp": loginOTP})
	})
	t.Run("to its phone", func(t *testing.T) {
		b := benchWithCodes(t)
		token, otp := b.awaiting()
		b.update(false, func(a *record.Account) { a.Phone = "+37060054321" })
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp})
		if n := b.tally(record.WrongCodes); n != 0 {
			t.Errorf("what was not compared counts: %d", n)
		}
		b.must("auth/renewotp", token, nil)
		if to := b.sms.last(t).To; to != "+37060054321" {
			t.Errorf("the new code went to %s", to)
		}
		b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
	})
}

func TestRenewing(t *testing.T) {
	b := benchWithCodes(t)
	token, first := b.awaiting()
	codes := []string{first}
	for range b.company.OTPRenewals {
		b.clock.advance(time.Minute)
		reply := b.must("auth/renewotp", token, nil)
		if reply.SessionToken != "" || reply.SessionState != record.None || reply.UserPhone != "+37*******45" {
			t.Errorf("got %+v, want the masked phone alone", reply)
		}
		codes = append(codes, b.sms.last(t).Code)
	}
	_, err := b.serve("auth/renewotp", token, nil)
	wantError(t, err, wire.ErrRestricted)
	if b.sms.count() != len(codes) || refusal(err).RetryAfter <= 0 {
		t.Errorf("%d SMS were sent, Retry-After is %v", b.sms.count(), refusal(err).RetryAfter)
	}
	b.must("auth/checkotp", token, object{"otp": codes[len(codes)-1]})

	token, first = b.awaiting() // a new session can renew again
	b.must("auth/renewotp", token, nil)
	if second := b.sms.last(t).Code; second != first {
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": first})
	}
	b.clock.advance(b.company.Temporary)
	b.wrong(wire.ErrTokenExpired, "auth/renewotp", token, nil) // its life was not lengthened
}

func TestARenewedCodeThatWasNotDelivered(t *testing.T) {
	for _, path := range []string{"auth/renewotp", "auth/recovery/renewotp"} {
		t.Run(path, func(t *testing.T) {
			b := benchWithCodes(t)
			token, first := b.awaiting()
			check := "auth/checkotp"
			if path == "auth/recovery/renewotp" {
				token, check = b.sessionIn(record.RecoveryOTP), "auth/recovery/checkotp"
				first = b.sms.last(t).Code
			}
			b.sms.broken = errors.New("gateway timeout")
			for range b.company.OTPRenewals {
				b.wrong(wire.ErrUnavailable, path, token, nil)
			}
			b.wrong(wire.ErrOTPInvalid, check, token, object{"otp": first})              // the one before has ended
			b.wrong(wire.ErrOTPInvalid, check, token, object{"otp": b.sms.last(t).Code}) // and the new one can't be used
			b.sms.broken = nil
			b.wrong(wire.ErrRestricted, path, token, nil) // yet all have counted
		})
	}
}

func TestALoginWhoseCodeWasNotDelivered(t *testing.T) {
	b := newBench(t)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	token := b.sessionIn(record.CheckPassword)
	b.sms.broken = errors.New("gateway timeout")
	for range b.company.Limits.SMSPerAccount.N {
		b.wrong(wire.ErrUnavailable, "auth/checkpassword", token, object{"password": password})
	}
	b.sms.broken = nil
	b.wrong(wire.ErrRestricted, "auth/checkpassword", token, object{"password": password})
	b.clock.advance(9 * time.Minute)
	b.clock.advance(time.Minute)
	b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": password})
}

func TestRacingRenewalsLeaveOneCode(t *testing.T) {
	b := benchWithCodes(t)
	token, _ := b.awaiting()
	got := race(100, func(int) error {
		_, err := b.serve("auth/renewotp", token, nil)
		return err
	})
	if got[""] != b.company.OTPRenewals || got["auth.restricted"] != 100-b.company.OTPRenewals {
		t.Errorf("got %v, want %d renewals", got, b.company.OTPRenewals)
	}
	if got := b.sms.count(); got != 1+b.company.OTPRenewals {
		t.Errorf("%d SMS were sent", got)
	}
}

func TestFixedCodesNeedNoSMS(t *testing.T) {
	b := newBench(t)
	b.withoutPassword()
	b.company.OTPFixed = map[string]string{phone: "424242"}
	for range 20 { // no budget is touched
		reply := b.must("auth/login", "", object{"login_id": email})
		if reply.UserPhone != "+37*******45" {
			t.Errorf("got user_phone %q", reply.UserPhone)
		}
		b.must("auth/renewotp", reply.SessionToken, nil)
		b.must("auth/checkotp", reply.SessionToken, object{"otp": "424242"})
	}
	b.must("auth/recovery/checkotp", b.sessionIn(record.RecoveryOTP), object{"otp": "424242"})
	token := b.must("auth/login", "", object{"login_id": email}).SessionToken
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "424243"})
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "424242"}) // spent like any other
	if b.sms.count() != 0 {
		t.Errorf("%d SMS were sent", b.sms.count())
	}
}

// Of a hundred guesses that race, one is compared.
func TestOfRacingGuessesOneIsCompared(t *testing.T) {
	for _, c := range []struct {
		state record.State
		path  string
	}{{record.CheckOTP, "auth/checkotp"}, {record.RecoveryOTP, "auth/recovery/checkotp"}} {
		t.Run(c.path, func(t *testing.T) {
			b := benchWithCodes(t)
			token, otp := b.awaiting()
			if c.state == record.RecoveryOTP {
				token = b.sessionIn(c.state)
				otp = b.sms.last(t).Code
			}
			got := race(100, func(i int) error {
				_, err := b.serveAs(code, addressOf(i), c.path, token, object{"otp": wrongCode(otp)})
				return err
			})
			if got["auth.otp.invalid"] != 100 {
				t.Errorf("got %v", got)
			}
			b.wrong(wire.ErrOTPInvalid, c.path, token, object{"otp": otp})
			if n := b.tally(record.WrongCodes); n != 1 {
				t.Errorf("%d wrong codes were compared, want 1", n)
			}
		})
		t.Run(c.path+", all right", func(t *testing.T) {
			b := benchWithCodes(t)
			token, otp := b.awaiting()
			if c.state == record.RecoveryOTP {
				token = b.sessionIn(c.state)
				otp = b.sms.last(t).Code
			}
			got := race(100, func(i int) error {
				_, err := b.serveAs(code, addressOf(i), c.path, token, object{"otp": otp})
				return err
			})
			if got[""] != 1 || got["auth.otp.invalid"]+got["auth.token.invalid"] != 99 {
				t.Errorf("got %v, want one success", got)
			}
		})
	}
}

func TestABackupCodeIsSpentOnlyByAStepThatSucceeds(t *testing.T) {
	b := benchWithCodes(t)
	left := func(want int) {
		t.Helper()
		if got := b.load().BackupCodes; got != want {
			t.Errorf("%d backup codes are left, want %d", got, want)
		}
	}
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	token, _ := b.awaiting()
	b.wrong(wire.ErrBackupCodeInvalid, "auth/checkotp", token, object{"backup_code": "ZZZZZ23456"})
	b.wrong(wire.ErrDisclaimerInvalid, "auth/checkotp", token, object{"backup_code": "ABCDE23456"})
	left(2)
	b.must("auth/checkotp", token, object{"backup_code": " abcde-23456 ", "accept_disclaimers": []string{"terms"}})
	left(1)
	token, otp := b.awaiting()
	b.wrong(wire.ErrBackupCodeInvalid, "auth/checkotp", token, object{"backup_code": "ABCDE23456"})
	b.must("auth/checkotp", token, object{"otp": otp}) // which a backup code does not spend
	left(1)

	b.update(true, func(a *record.Account) { a.MustSetPassword = true })
	token, _ = b.awaiting()
	wantStep(t, b.must("auth/checkotp", token, object{"backup_code": "FGHJK23456"}), record.SetPassword)
	left(0)
	token, _ = b.awaiting()
	b.wrong(wire.ErrBackupCodeInvalid, "auth/checkotp", token, object{"backup_code": "FGHJK23456"})
}

// A user who gets no more SMS is not locked out by a wrong code: that asks for a
// renewal before the next otp, not before a backup code.
func TestABackupCodeNeedsNoRenewal(t *testing.T) {
	b := benchWithCodes(t)
	token, otp := b.awaiting()
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "no code"})
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": otp})
	wantStep(t, b.must("auth/checkotp", token, object{"backup_code": "ABCDE23456"}), record.Authorized)
}

func TestABackupCodeIsGoodOnceUnderRaces(t *testing.T) {
	for _, sessions := range []int{1, 20} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			b := benchWithCodes(t)
			tokens := make([]string, sessions)
			for i := range tokens {
				tokens[i], _ = b.awaiting()
			}
			got := race(100, func(i int) error {
				_, err := b.serveAs(code, addressOf(i), "auth/checkotp", tokens[i%sessions], object{"backup_code": "ABCDE23456"})
				return err
			})
			if got[""] != 1 || got["service.unavailable"] != 0 {
				t.Errorf("got %v, want one success", got)
			}
			if left := b.load().BackupCodes; left != 1 {
				t.Errorf("%d backup codes are left, want 1", left)
			}
			all, err := b.Sessions.List(t.Context(), b.clock.Now(), code, b.account)
			authorized := 0
			for _, s := range all {
				if s.State == record.Authorized {
					authorized++
				}
			}
			if err != nil || authorized != 1 {
				t.Errorf("%d sessions are authorized (%v), want 1", authorized, err)
			}
		})
	}
}

// Whoever has backup codes needs no SMS, by whichever route the code is due.
func TestBackupCodesDoWhereNoMoreSMSMayBeSent(t *testing.T) {
	one := tenant.Rate{N: 1, Per: time.Hour}
	for name, spend := range map[string]func(*tenant.Limits){
		"account": func(l *tenant.Limits) { l.SMSPerAccount = one },
		"phone":   func(l *tenant.Limits) { l.SMSPerPhone = one },
		"address": func(l *tenant.Limits) { l.SMSPerAddress = one },
		"company": func(l *tenant.Limits) { l.SMSPerCompany = one },
	} {
		for _, route := range []string{"auth/login", "auth/checkpassword", "auth/checkcredentials"} {
			t.Run(name+"/"+route, func(t *testing.T) {
				b := newBench(t)
				spend(&b.company.Limits)
				b.update(true, func(a *record.Account) {
					if a.SecondFactor = true; route == "auth/login" {
						a.PasswordHash = ""
					}
				})
				step := func() (flows.Reply, error) {
					token := ""
					if route == "auth/checkpassword" {
						token = b.sessionIn(record.CheckPassword)
					}
					return b.serve(route, token, b.goodBody(route))
				}
				if reply, err := step(); err != nil || reply.UserPhone == "" {
					t.Fatalf("got %+v, %v", reply, err)
				}
				_, err := step()
				wantError(t, err, wire.ErrRestricted) // no backup codes
				b.backupCodes("ABCDE23456")
				reply, err := step()
				if err != nil || reply.SessionState != record.CheckOTP || reply.UserPhone != "" || b.sms.count() != 1 {
					t.Fatalf("got %+v, %v, after %d SMS", reply, err, b.sms.count())
				}
				b.wrong(wire.ErrOTPInvalid, "auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
				b.wrong(wire.ErrRestricted, "auth/renewotp", reply.SessionToken, nil)
				wantStep(t, b.must("auth/checkotp", reply.SessionToken, object{"backup_code": "ABCDE-23456"}), record.Authorized)
				_, err = step()
				wantError(t, err, wire.ErrRestricted) // there are none left
				if n := b.tally(record.WrongCodes); n != 0 {
					t.Errorf("%d wrong codes were counted", n)
				}
			})
		}
	}
}

// The session that began without a code gets one once SMS may be sent again.
func TestRenewingSendsTheCodeThatCouldNotBeSent(t *testing.T) {
	b := benchWithCodes(t)
	b.backupCodes("ABCDE23456")
	b.company.Limits.SMSPerAccount = tenant.Rate{N: 1, Per: time.Minute}
	b.awaiting()
	reply := b.must("auth/login", "", object{"login_id": email})
	b.wrong(wire.ErrRestricted, "auth/renewotp", reply.SessionToken, nil)
	b.clock.advance(time.Minute)
	if got := b.must("auth/renewotp", reply.SessionToken, nil).UserPhone; got == "" || b.sms.count() != 2 {
		t.Errorf("user_phone is %q after %d SMS", got, b.sms.count())
	}
	wantStep(t, b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code}), record.Authorized)
}

// A gateway that fails is another thing than a budget that is spent.
func TestAFailingGatewayIsNoReasonForBackupCodes(t *testing.T) {
	b := benchWithCodes(t)
	b.backupCodes("ABCDE23456")
	b.sms.broken = errors.New("gateway timeout")
	b.wrong(wire.ErrUnavailable, "auth/login", "", object{"login_id": email})
}

// Without a password anyone can begin such sessions, so their number has an end.
func TestStrangersBeginFewSessionsWithoutSMS(t *testing.T) {
	b := benchWithCodes(t)
	b.backupCodes("ABCDE23456")
	b.company.Limits.SMSPerAccount = tenant.Rate{N: 1, Per: time.Hour}
	got := race(200, func(i int) error {
		_, err := b.serveAs(code, addressOf(i), "auth/login", "", object{"login_id": email})
		return err
	})
	if got[""] != 31 || got["auth.restricted"] != 169 {
		t.Errorf("got %v, want 31 sessions", got)
	}
	if _, err := b.serve("auth/login", "", object{"login_id": email}); refusal(err).Reason != "limit.sms_account" {
		t.Errorf("got %v, %q", err, refusal(err).Reason)
	}
}

// A required password is asked for behind the code of an account without one.
func TestAnAccountWithoutAPasswordMustSetItWhereThatIsRequired(t *testing.T) {
	b := benchWithCodes(t)
	token, otp := b.awaiting()
	wantStep(t, b.must("auth/checkotp", token, object{"otp": otp}), record.Authorized)
	b.company.Password.Required = true
	token, otp = b.awaiting()
	reply := b.must("auth/checkotp", token, object{"otp": otp})
	wantStep(t, reply, record.SetPassword)
	if reply.Regex != nil || !strings.Contains(reply.Description, "At least 8 ") {
		t.Errorf("got %v and %q, want null where there is no regular expression, and the other rules", reply.Regex, reply.Description)
	}
	wantStep(t, b.must("auth/setpassword", reply.SessionToken, object{"new_password": "another fine secret"}), record.Authorized)
	wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": "another fine secret"}), record.Authorized)
}

func TestMaskedPhones(t *testing.T) {
	for number, want := range map[string]string{
		"+37061234534": "+37*******34", "+1234567": "+12***67", "+123456789012345": "+12***********45",
	} {
		b := newBench(t)
		b.update(true, func(a *record.Account) { a.Phone, a.PasswordHash = number, "" })
		if got := b.must("auth/login", "", object{"login_id": number}).UserPhone; got != want {
			t.Errorf("%s: got %s, want %s", number, got, want)
		}
	}
}

// unaccepting are accounts that can't record what is accepted.
type unaccepting struct{ record.Accounts }

func (unaccepting) Accept(context.Context, string, int64, []record.Acceptance, ...record.OutboxEvent) error {
	return errors.New("the store is away")
}

func TestABackupCodeIsSpentLast(t *testing.T) {
	b := newBench(t)
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
