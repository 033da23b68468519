package flows_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// appCode is what an app shows.
func appCode(secret []byte, at time.Time) string { return tokens.TOTPCode(secret, at.Unix()/30) }

// withApp gives the account a second factor and an authenticator app, and returns
// what the app shows at a moment from now. The code of its confirmation is spent.
func (b *bench) withApp() func(from time.Duration) string {
	b.t.Helper()
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	shows := b.newApp()
	if _, err := b.admin().ConfirmTOTP(b.t.Context(), mnemocode, shows(-30*time.Second)); err != nil {
		b.t.Fatal(err)
	}
	return shows
}

// newApp is withApp for one that is not confirmed yet.
func (b *bench) newApp() func(from time.Duration) string {
	b.t.Helper()
	made, err := b.admin().NewTOTP(b.t.Context(), mnemocode)
	if err != nil {
		b.t.Fatal(err)
	}
	secret, err := tokens.ParseTOTPSecret(made.Secret)
	if err != nil {
		b.t.Fatal(err)
	}
	return func(from time.Duration) string { return appCode(secret, b.clock.Now().Add(from)) }
}

// awaitingApp is the token of a login that waits for the app's code.
func (b *bench) awaitingApp() string {
	b.t.Helper()
	reply := b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": password})
	if reply.SessionState != record.CheckOTP || reply.UserPhone != "" {
		b.t.Fatalf("got %+v, want checkotp without user_phone", reply)
	}
	return reply.SessionToken
}

func TestAnAppsCodeTakesThePlaceOfAnSMS(t *testing.T) {
	for _, number := range []string{phone, ""} {
		for _, route := range []string{"auth/checkpassword", "auth/checkcredentials"} {
			t.Run(route+number, func(t *testing.T) {
				b := newBench(t)
				b.update(true, func(a *record.Account) { a.Phone = number })
				shows := b.withApp()
				token := ""
				if route == "auth/checkpassword" {
					token = b.sessionIn(record.CheckPassword)
				}
				reply := b.must(route, token, b.goodBody(route))
				if reply.SessionState != record.CheckOTP || reply.UserPhone != "" || b.sms.count() != 0 {
					t.Errorf("got %+v, and %d SMS", reply, b.sms.count())
				}
				wantStep(t, b.must("auth/checkotp", reply.SessionToken, object{"otp": shows(0)}), record.Authorized)
			})
		}
	}
}

// Before it is confirmed a secret is of no use, and it replaces none.
func TestASecretCountsOnceItIsConfirmed(t *testing.T) {
	b := newBench(t)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	ad := b.admin()
	if _, err := ad.ConfirmTOTP(t.Context(), mnemocode, "123456"); !errors.Is(err, manage.ErrNoTOTP) {
		t.Errorf("without a secret: got %v", err)
	}
	first := b.newApp()
	token := b.must("auth/checkcredentials", "", b.goodBody("auth/checkcredentials")).SessionToken
	session := b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code}).SessionToken
	if _, err := ad.ConfirmTOTP(t.Context(), mnemocode, wrongCode(first(0))); !errors.Is(err, manage.ErrAppCode) {
		t.Errorf("a wrong code: got %v", err)
	}
	if reply := b.must("auth/checkcredentials", "", b.goodBody("auth/checkcredentials")); reply.UserPhone == "" {
		t.Error("an app that is not confirmed is asked for")
	}
	b.wantLive(session, nil)
	a, err := ad.ConfirmTOTP(t.Context(), mnemocode, first(0))
	if err != nil || a.TOTP == "" || a.TOTPPending != "" {
		t.Fatalf("got %+v, %v", a, err)
	}
	b.wantLive(session, wire.ErrTokenInvalid) // confirming is a change of the second factor
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", b.awaitingApp(), object{"otp": first(0)})
	b.clock.advance(30 * time.Second)
	session = b.must("auth/checkotp", b.awaitingApp(), object{"otp": first(0)}).SessionToken

	second := b.newApp()
	b.wantLive(session, nil)
	b.clock.advance(30 * time.Second)
	b.must("auth/checkotp", b.awaitingApp(), object{"otp": first(0)})
	if _, err := ad.ConfirmTOTP(t.Context(), mnemocode, second(0)); err != nil {
		t.Fatal(err)
	}
	b.wantLive(session, wire.ErrTokenInvalid)
	b.clock.advance(30 * time.Second)
	token = b.awaitingApp()
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": first(0)})
	wantStep(t, b.must("auth/checkotp", token, object{"otp": second(0)}), record.Authorized)

	session = b.must("auth/checkotp", b.awaitingApp(), object{"otp": second(30 * time.Second)}).SessionToken
	if a, err = ad.RemoveTOTP(t.Context(), mnemocode); err != nil || a.TOTP != "" {
		t.Fatalf("got %+v, %v", a, err)
	}
	b.wantLive(session, wire.ErrTokenInvalid)
	if reply := b.must("auth/checkcredentials", "", b.goodBody("auth/checkcredentials")); reply.UserPhone == "" {
		t.Error("an app that was removed is asked for")
	}
	again, err := ad.RemoveTOTP(t.Context(), mnemocode)
	if err != nil || again.Epoch != a.Epoch {
		t.Errorf("removing none: got %+v, %v", again, err)
	}
}

func TestOfSecretsThatAreMadeTheLastIsConfirmed(t *testing.T) {
	b := newBench(t)
	first, second := b.newApp(), b.newApp()
	if _, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, first(0)); !errors.Is(err, manage.ErrAppCode) {
		t.Errorf("the first: got %v", err)
	}
	got := race(20, func(int) error {
		_, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, second(0))
		if errors.Is(err, manage.ErrAppCode) || errors.Is(err, manage.ErrNoTOTP) {
			return wire.ErrOTPInvalid
		}
		return err
	})
	if got[""] != 1 || got["auth.otp.invalid"] != 19 {
		t.Errorf("got %v, want one success", got)
	}
}

func TestAnAppsClockMayBeOneStepOff(t *testing.T) {
	for from, ok := range map[time.Duration]bool{
		-60 * time.Second: false, -30 * time.Second: true, 0: true, 30 * time.Second: true, 60 * time.Second: false,
	} {
		b := newBench(t)
		shows := b.withApp()
		b.clock.advance(2 * time.Minute) // beyond the code that confirmed
		_, err := b.serve("auth/checkotp", b.awaitingApp(), object{"otp": shows(from)})
		if (err == nil) != ok {
			t.Errorf("%v: got %v", from, err)
		}
	}
}

// A code is good once, whichever session it came with; what was used is refused
// and does not count as a guess.
func TestAnAppsCodeIsGoodOnce(t *testing.T) {
	b := newBench(t)
	shows := b.withApp()
	first, second := b.awaitingApp(), b.awaitingApp()
	b.must("auth/checkotp", first, object{"otp": shows(0)})
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", second, object{"otp": shows(0)})
	b.clock.advance(30 * time.Second) // it is now the one before
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", second, object{"otp": shows(-30 * time.Second)})
	b.clock.advance(29 * time.Second)
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", second, object{"otp": shows(-30 * time.Second)})
	if n := b.tally(record.WrongCodes); n != 0 {
		t.Errorf("%d wrong codes were counted", n)
	}
	wantStep(t, b.must("auth/checkotp", second, object{"otp": shows(0)}), record.Authorized)
}

// A right code is spent, also if the disclaimers are what fails.
func TestAnAppsCodeIsSpentByWhatFailsBehindIt(t *testing.T) {
	b := newBench(t)
	shows := b.withApp()
	token := b.awaitingApp()
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	b.wrong(wire.ErrDisclaimerInvalid, "auth/checkotp", token, object{"otp": shows(0)})
	both := object{"otp": shows(0), "accept_disclaimers": []string{"terms"}}
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, both)
	both["otp"] = shows(30 * time.Second)
	wantStep(t, b.must("auth/checkotp", token, both), record.Authorized)
}

func TestWrongCodesOfAnAppAreCounted(t *testing.T) {
	b := newBench(t)
	shows := b.withApp()
	b.backupCodes("ABCDE23456")
	token := b.awaitingApp()
	for range b.company.Limits.WrongCodes.N {
		b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": wrongCode(shows(0))})
	}
	for _, body := range []object{{"otp": shows(0)}, {"backup_code": "ABCDE-23456"}} {
		if _, err := b.serve("auth/checkotp", token, body); refusal(err).Reason != "lock.codes" {
			t.Errorf("got %v", err)
		}
	}
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", b.goodBody("auth/checkcredentials"))
	b.clock.advance(24 * time.Hour)
	wantStep(t, b.must("auth/checkotp", b.awaitingApp(), object{"otp": shows(0)}), record.Authorized) // which the refusals have not spent
}

// Of guesses that race, no more are compared than the limit, with one token as
// with many; of right codes that race, one counts.
func TestGuessesAtAnAppAreExactUnderRaces(t *testing.T) {
	for _, tokens := range []int{1, 50} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			b := newBench(t)
			shows := b.withApp()
			b.company.Limits.FailuresPerAddress.N, b.company.Limits.LoginsPerAddress.N = 1000, 1000
			waiting := make([]string, tokens)
			for i := range waiting {
				waiting[i] = b.awaitingApp()
			}
			right, wrong := shows(0), wrongCode(shows(0))
			try := func(otp string) func(int) error {
				return func(i int) error {
					_, err := b.serveAs(code, addressOf(i), "auth/checkotp", waiting[i%tokens], object{"otp": otp})
					return err
				}
			}
			got := race(100, try(right))
			if got[""] != 1 || got["auth.otp.invalid"]+got["auth.token.invalid"] != 99 {
				t.Errorf("right: got %v, want one success", got)
			}
			if n := b.tally(record.WrongCodes); n != 0 {
				t.Errorf("%d wrong codes were counted", n)
			}
			for i := range waiting { // one of them has been used
				waiting[i] = b.awaitingApp()
			}
			got = race(100, try(wrong))
			if got["auth.otp.invalid"] != 10 || got["auth.restricted"] != 90 {
				t.Errorf("wrong: got %v, want 10 guesses", got)
			}
			b.wrong(wire.ErrRestricted, "auth/checkotp", waiting[0], object{"otp": shows(30 * time.Second)})
		})
	}
}

// renewotp sends an SMS, and from then on that code is the one.
func TestRenewingChangesFromTheAppToAnSMS(t *testing.T) {
	b := newBench(t)
	shows := b.withApp()
	token := b.awaitingApp()
	b.sms.broken = errors.New("gateway timeout")
	b.wrong(wire.ErrUnavailable, "auth/renewotp", token, nil)
	b.sms.broken = nil
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": wrongCode(shows(0))}) // nothing was sent, so it is still the app's
	if reply := b.must("auth/renewotp", token, nil); reply.UserPhone != "+37*******45" || b.sms.last(t).Type != message.OTPLogin {
		t.Errorf("got %+v and %+v", reply, b.sms.last(t))
	}
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": shows(0)})
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": b.sms.last(t).Code}) // spent
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": shows(0)})
	b.must("auth/renewotp", token, nil)
	wantStep(t, b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code}), record.Authorized)
	if n := b.tally(record.WrongCodes); n != 2 { // an app's code has been compared with the SMS's, and spent it
		t.Errorf("%d wrong codes were counted", n)
	}
	wantStep(t, b.must("auth/checkotp", b.awaitingApp(), object{"otp": shows(0)}), record.Authorized) // the next login is by the app again
}

func TestWithoutAPhoneThereIsNothingToRenew(t *testing.T) {
	b := newBench(t)
	b.update(true, func(a *record.Account) { a.Phone = "" })
	shows := b.withApp()
	token := b.awaitingApp()
	b.wrong(wire.ErrValidation, "auth/renewotp", token, nil)
	wantStep(t, b.must("auth/checkotp", token, object{"otp": shows(0)}), record.Authorized)
}

func TestBackupCodesGoBesideAnApp(t *testing.T) {
	b := newBench(t)
	shows := b.withApp()
	b.backupCodes("ABCDE23456")
	wantStep(t, b.must("auth/checkotp", b.awaitingApp(), object{"backup_code": "ABCDE-23456"}), record.Authorized)
	token := b.awaitingApp()
	b.wrong(wire.ErrBackupCodeInvalid, "auth/checkotp", token, object{"backup_code": "ABCDE-23456"})
	b.wrong(wire.ErrValidation, "auth/checkotp", token, object{"backup_code": "ABCDE-23456", "otp": shows(0)})
	wantStep(t, b.must("auth/checkotp", token, object{"otp": shows(0)}), record.Authorized)
}

// An app is no first factor: an account without a password goes on by SMS.
func TestAnAccountWithoutAPasswordGoesOnBySMS(t *testing.T) {
	b := newBench(t)
	shows := b.withApp()
	b.withoutPassword()
	reply := b.must("auth/login", "", object{"login_id": email})
	if reply.UserPhone == "" || b.sms.count() != 1 {
		t.Errorf("got %+v after %d SMS", reply, b.sms.count())
	}
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", reply.SessionToken, object{"otp": shows(0)})
	b.update(true, func(a *record.Account) { a.Phone = "" })
	b.wrong(wire.ErrUserRestricted, "auth/login", "", object{"login_id": email})
}

// A second factor is due by the same rules as without an app.
func TestAnAppIsAskedForWhereASecondFactorIsDue(t *testing.T) {
	b := newBench(t)
	b.withApp()
	b.company.SecondFactor = tenant.SecondFactorOff
	wantStep(t, b.must("auth/checkcredentials", "", b.goodBody("auth/checkcredentials")), record.Authorized)
	b.company.SecondFactor = tenant.SecondFactorRequired
	b.update(true, func(a *record.Account) { a.SecondFactor = false })
	b.awaitingApp()
}

// Strangers are not told who has an app.
func TestHardenedTellsNothingOfAnApp(t *testing.T) {
	asked := func(b *bench) string {
		steps := []string{shape(b.serve("auth/login", "", object{"login_id": email}))}
		steps = append(steps, shape(b.serve("auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})))
		for _, method := range []string{"PHONE", "MAIL", "QUESTION"} {
			steps = append(steps, shape(b.serve("auth/recovery/recover", "", object{"login_id": email, "captcha_response": "x", "method": method})))
		}
		return strings.Join(steps, "\n")
	}
	with, without := hardenedBench(t), hardenedBench(t)
	with.withApp()
	without.update(true, func(a *record.Account) { a.SecondFactor = true })
	if a, b := asked(with), asked(without); a != b {
		t.Errorf("with an app:\n%s\nwithout:\n%s", a, b)
	}
}

// What an app reads from the QR code is all that it needs (Google's Key Uri Format).
func TestTheURIIsWhatAppsRead(t *testing.T) {
	b := newBench(t)
	made, err := b.admin().NewTOTP(t.Context(), mnemocode)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(made.URI)
	if err != nil || u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/"+code+":"+email {
		t.Errorf("got %s, %v", made.URI, err)
	}
	want := url.Values{"secret": {made.Secret}, "issuer": {code}, "algorithm": {"SHA1"}, "digits": {"6"}, "period": {"30"}}
	if got := u.Query().Encode(); got != want.Encode() {
		t.Errorf("got %s, want %s", got, want.Encode())
	}
	if stored := b.load(); strings.Contains(fmt.Sprintf("%+v", stored), made.Secret) || stored.TOTPPending == "" {
		t.Errorf("it is stored as %q", stored.TOTPPending)
	}
}

// What an app has to do with is told to the operator, and never its secret.
func TestAppsAreInTheAuditLog(t *testing.T) {
	b := newBench(t)
	events := b.record()
	b.withApp()
	if _, err := b.admin().RemoveTOTP(t.Context(), mnemocode); err != nil {
		t.Fatal(err)
	}
	if n := len(named(*events, record.AccountTOTP)); n != 1 {
		t.Errorf("%d secrets were told of", n)
	}
	changed := named(*events, record.AccountChanged)
	if len(changed) != 2 || changed[0].Reason != "totp" || changed[1].Reason != "totp" {
		t.Errorf("got %+v", changed)
	}
}
