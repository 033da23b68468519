package flows_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// appCode returns the code that an app shows at a time.
func appCode(secret []byte, at time.Time) string { return tokens.TOTPCode(secret, at.Unix()/30) }

// withApp gives the account a second factor and an authenticator app. It returns a
// function for the code that the app shows at a time relative to now. The code that
// confirmed the app is used up.
func (b *harness) withApp() func(from time.Duration) string {
	b.t.Helper()
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	shows := b.newApp()
	if _, err := b.admin().ConfirmTOTP(b.t.Context(), mnemocode, shows(-30*time.Second), ""); err != nil {
		b.t.Fatal(err)
	}
	settle(b.Service) // the notice
	return shows
}

// newApp is withApp for an app that is not confirmed yet.
func (b *harness) newApp() func(from time.Duration) string {
	b.t.Helper()
	made, err := b.admin().NewTOTP(b.t.Context(), mnemocode)
	must(b.t, err)
	secret, err := tokens.ParseTOTPSecret(made.Secret)
	must(b.t, err)
	return func(from time.Duration) string { return appCode(secret, b.clock.Now().Add(from)) }
}

// awaitingApp returns the token of a login that waits for the app's code.
func (b *harness) awaitingApp() string {
	b.t.Helper()
	reply := b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": password})
	if reply.SessionState != record.CheckOTP || reply.UserPhone != "" {
		b.t.Fatalf("got %+v, want checkotp without user_phone", reply)
	}
	return reply.SessionToken
}

// A QR code of level M has room for 2,331 bytes.
func TestEveryAppGetsAQRCode(t *testing.T) {
	b := newHarness(t)
	b.company.Name = strings.Repeat("😀", 64)
	for _, name := range []string{strings.Repeat("😀", 254), strings.Repeat("ﷺ", 254), strings.Repeat("a", 254)} {
		b.update(true, func(a *record.Account) { a.Email, a.LoginName = "", name })
		made, err := b.admin().NewTOTP(t.Context(), mnemocode)
		if err != nil || len(made.URI) > 2331 {
			t.Errorf("the URI of %.10s… has %d bytes, %v", name, len(made.URI), err)
		}
	}
}

func TestOfSecretsThatAreMadeTheLastIsConfirmed(t *testing.T) {
	b := newHarness(t)
	first, second := b.newApp(), b.newApp()
	if _, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, first(0), ""); !errors.Is(err, manage.ErrAppCode) {
		t.Errorf("the first: got %v", err)
	}
	got := race(20, func(int) error {
		_, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, second(0), "")
		if errors.Is(err, manage.ErrAppCodeUsed) || errors.Is(err, manage.ErrNoTOTP) {
			return wire.ErrOTPInvalid
		}
		return err
	})
	if got[""] != 1 || got["auth.otp.invalid"] != 19 {
		t.Errorf("got %v, want one success", got)
	}
}

// Only wrong codes of a new app count, not one that was used before.
func TestAUsedCodeOfANewAppDoesNotCount(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	shows := b.newApp()
	confirm := func(code string) error {
		return b.asUser(token, func(s *manage.Self) error {
			_, err := s.ConfirmOwnTOTP(t.Context(), code)
			return err
		})
	}
	accounts := b.Accounts
	b.Accounts = &busyStore{accounts, 1, false}
	wantError(t, confirm(shows(0)), wire.ErrUnavailable)
	b.Accounts = accounts
	for _, c := range []struct {
		code    string
		counted int
	}{{shows(0), 0}, {"000000", 1}} {
		wantError(t, confirm(c.code), wire.ErrOTPInvalid)
		if n := b.failureCount(record.WrongCodes); n != c.counted {
			t.Errorf("%d wrong codes are counted, want %d", n, c.counted)
		}
	}
	must(t, confirm(shows(30*time.Second)))
}

// Nobody counts the codes that a backend passes on, so they are not compared with those of an app
// in force.
func TestABackendConfirmsOnlyNewApps(t *testing.T) {
	b := newHarness(t)
	shows := b.withApp()
	for _, code := range []string{"000000", shows(30 * time.Second)} {
		if _, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, code, ""); !errors.Is(err, manage.ErrNoTOTP) {
			t.Errorf("got %v", err)
		}
	}
}

// The backup codes that come with a first app are not lost if its sessions end late.
func TestAnAppIsConfirmedAgain(t *testing.T) {
	b := newHarness(t)
	token, shows := b.sessionIn(record.Authorized), b.newApp()
	confirm := func(code string) (codes []string, err error) {
		return codes, b.asUser(token, func(s *manage.Self) (err error) {
			codes, err = s.ConfirmOwnTOTP(t.Context(), code)
			return err
		})
	}
	down := b.fails("End")
	down.Store(true)
	_, err := confirm(shows(0))
	wantError(t, err, wire.ErrUnavailable)
	down.Store(false)
	must(t, b.RevokePending(t.Context(), late))
	_, err = confirm("000000")
	wantError(t, err, wire.ErrOTPInvalid)
	codes, err := confirm(shows(30 * time.Second))
	if err != nil || len(codes) != 10 {
		t.Errorf("got %d backup codes, %v", len(codes), err)
	}
}

func TestAnAppsClockMayBeOneStepOff(t *testing.T) {
	for from, ok := range map[time.Duration]bool{
		-60 * time.Second: false, -30 * time.Second: true, 0: true, 30 * time.Second: true, 60 * time.Second: false,
	} {
		b := newHarness(t)
		shows := b.withApp()
		b.clock.advance(2 * time.Minute) // later than the code that confirmed the app
		_, err := b.serve("auth/checkotp", b.awaitingApp(), object{"otp": shows(from)})
		if (err == nil) != ok {
			t.Errorf("%v: got %v", from, err)
		}
	}
}

// Of many logins that race with one code, one succeeds. Of wrong codes, as many are compared
// as the limit allows.
func TestRacesWithAnAppsCode(t *testing.T) {
	b := newHarness(t)
	shows := b.withApp()
	var waiting [10]string
	for i := range waiting {
		waiting[i] = b.awaitingApp()
	}
	got := race(100, func(i int) error {
		_, err := b.serveAs(code, addressOf(i), "auth/checkotp", waiting[i%10], object{"otp": shows(0)})
		return err
	})
	if n := b.failureCount(record.WrongCodes); got[""] != 1 || got["auth.otp.invalid"]+got["auth.token.invalid"] != 99 || n != 0 {
		t.Errorf("got %v, and %d failures", got, n)
	}
	token, limit := b.awaitingApp(), b.company.Limits.WrongCodes.N
	got = race(100, func(i int) error {
		_, err := b.serveAs(code, addressOf(i), "auth/checkotp", token, object{"otp": wrongCode(shows(0))})
		return err
	})
	if got["auth.otp.invalid"] != limit || got["auth.restricted"] != 100-limit {
		t.Errorf("got %v, want %d guesses", got, limit)
	}
}

// Users can't remove an app if no code can be sent to them instead: their next login needs
// one.
func TestNobodyRemovesTheAppThatTheNextLoginNeeds(t *testing.T) {
	remove := func(prepare func(*harness)) error {
		b := newHarness(t)
		b.withApp()
		prepare(b)
		self := b.self(b.walk("auth/oauth").SessionToken)
		_, err := self.RemoveTOTP(t.Context(), mnemocode, self.Session.ID)
		return manage.ForUser(err)
	}
	fixed := []tenant.FixedCode{{Code: "123456", Phones: []string{phone}}}
	for name, prepare := range map[string]func(*harness){
		"no phone":                          func(b *harness) { b.update(true, func(a *record.Account) { a.Phone = "" }) },
		"no sender":                         func(b *harness) { b.company.SMS = nil },
		"a country to which no SMS is sent": func(b *harness) { b.company.Limits.SMSCountries = []string{"+371"} },
	} {
		if err := remove(prepare); !errors.Is(err, wire.ErrConflict) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, prepare := range map[string]func(*harness){
		"a phone":      func(*harness) {},
		"a fixed code": func(b *harness) { b.company.SMS, b.company.OTP.Fixed = nil, fixed },
	} {
		if err := remove(prepare); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A code is valid once across all sessions. A used code is refused but does not
// count as a guess.
func TestAnAppsCodeIsGoodOnce(t *testing.T) {
	b := newHarness(t)
	shows := b.withApp()
	first, second := b.awaitingApp(), b.awaitingApp()
	b.must("auth/checkotp", first, object{"otp": shows(0)})
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", second, object{"otp": shows(0)})
	b.clock.advance(30 * time.Second) // now it is the code of the previous step
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", second, object{"otp": shows(-30 * time.Second)})
	b.clock.advance(29 * time.Second)
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", second, object{"otp": shows(-30 * time.Second)})
	if n := b.failureCount(record.WrongCodes); n != 0 {
		t.Errorf("%d wrong codes were counted", n)
	}
	wantStep(t, b.must("auth/checkotp", second, object{"otp": shows(0)}), record.Authorized)
}

// A session that is revoked at the last moment changes nothing any more.
func TestARevokedSessionChangesNothing(t *testing.T) {
	ends := map[string]func(*harness){
		"the account's": func(b *harness) { must(t, b.admin().EndSessions(t.Context(), mnemocode)) },
		"the company's": (*harness).endAllSessions,
	}
	changes := map[string]func(b *harness, user *manage.Self) error{
		"a new password": func(b *harness, user *manage.Self) error {
			return user.ChangePassword(t.Context(), mnemocode, manage.PasswordChange{Current: password, New: newSecret, Keep: user.Session.ID})
		},
		"a new passkey": func(b *harness, user *manage.Self) error {
			challenge, credential := (&device{b: b, id: []byte("new")}).create(mnemocode)
			_, err := user.AddPasskey(t.Context(), mnemocode, challenge, credential, "", false)
			return err
		},
		"no passkey": func(b *harness, user *manage.Self) error {
			return user.RemovePasskey(t.Context(), mnemocode, record.Passkey{Credential: []byte("old")}.ID(), user.Session.ID)
		},
		"new backup codes": func(_ *harness, user *manage.Self) error {
			_, err := user.NewOwnBackupCodes(t.Context())
			return err
		},
		"no app": func(_ *harness, user *manage.Self) error {
			_, err := user.RemoveTOTP(t.Context(), mnemocode, user.Session.ID)
			return err
		},
		"no email": func(_ *harness, user *manage.Self) error { return user.RemoveOwnContact(t.Context(), record.Email) },
	}
	for whose, end := range ends {
		for what, change := range changes {
			t.Run(whose+" "+what, func(t *testing.T) {
				b := newHarness(t)
				b.device("old", 0)
				b.update(false, func(a *record.Account) { a.TOTP, a.SecondFactor = "sealed", false })
				b.backupCodes("old")
				user := b.self(b.sessionIn(record.Authorized))
				whole := b.Accounts
				var revoked record.Account
				b.Accounts = overtaken{whole, func() {
					b.Accounts = whole
					end(b)
					revoked = b.load()
				}}
				if err := change(b, user); !errors.Is(err, manage.ErrChanged) {
					t.Errorf("got %v", err)
				}
				if got := b.load(); !reflect.DeepEqual(got, revoked) {
					t.Errorf("got %+v, want %+v", got, revoked)
				}
			})
		}
	}
}
