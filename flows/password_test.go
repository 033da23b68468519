package flows_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The table of the contract, section 4, "Second factor", for both routes with a
// password.
func TestWhatFollowsThePassword(t *testing.T) {
	for _, c := range []struct {
		mode             tenant.SecondFactor
		factor, must     bool
		want, afterwards record.State // afterwards: after the code
	}{
		{tenant.SecondFactorPerAccount, false, false, record.Authorized, ""},
		{tenant.SecondFactorPerAccount, false, true, record.SetPassword, ""},
		{tenant.SecondFactorPerAccount, true, false, record.CheckOTP, record.Authorized},
		{tenant.SecondFactorPerAccount, true, true, record.CheckOTP, record.SetPassword},
		{tenant.SecondFactorRequired, false, false, record.CheckOTP, record.Authorized},
		{tenant.SecondFactorRequired, true, true, record.CheckOTP, record.SetPassword},
		{tenant.SecondFactorOff, true, false, record.Authorized, ""},
		{tenant.SecondFactorOff, true, true, record.SetPassword, ""},
	} {
		for _, required := range []bool{false, true} { // makes no difference for an account with a password
			t.Run(fmt.Sprintf("%s/%v/%v/%v", c.mode, c.factor, c.must, required), func(t *testing.T) {
				b := newHarness(t)
				b.company.SecondFactor = c.mode
				b.company.Password.Required = new(required)
				b.update(true, func(a *record.Account) { a.SecondFactor, a.MustSetPassword = c.factor, c.must })
				for _, r := range passwordRoutes {
					reply := b.must(r.path, b.sessionIn(record.CheckPassword), object{"login_id": email, "password": password})
					wantStep(t, reply, c.want)
					if c.want == record.CheckOTP {
						wantStep(t, b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code}), c.afterwards)
					}
				}
			})
		}
	}
}

// wantStep checks the state of a reply and the fields that come with it.
func wantStep(t *testing.T, reply flows.Reply, state record.State) {
	t.Helper()
	if reply.SessionState != state || reply.SessionToken == "" {
		t.Fatalf("got state %q, token %v; want %q and a token", reply.SessionState, reply.SessionToken != "", state)
	}
	if got, want := reply.UserPhone != "", state == record.CheckOTP || state == record.RecoveryOTP; got != want {
		t.Errorf("%s: user_phone present: %v, want %v", state, got, want)
	}
	if got, want := reply.PasswordQuality != nil, state == record.SetPassword || state == record.RecoveryPassword; got != want {
		t.Errorf("%s: password_regex present: %v, want %v", state, got, want)
	}
	if got, want := reply.ProfileMnemocode != "", state == record.Authorized; got != want {
		t.Errorf("%s: profile_mnemocode present: %v, want %v", state, got, want)
	}
}

func TestASecondFactorWithoutPhoneOrBackupCodesLetsNobodyIn(t *testing.T) {
	b := newHarness(t)
	b.company.SecondFactor = tenant.SecondFactorRequired
	b.update(true, func(a *record.Account) { a.Phone = "" })
	all := b.record()
	_, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password})
	wantError(t, err, wire.ErrUserRestricted)
	if refusal(err).Reason != wire.NoSecondFactor || all()[0].Reason != string(wire.NoSecondFactor) {
		t.Errorf("the client is told %q, the operator %q", refusal(err).Reason, all()[0].Reason)
	}
	b.backupCodes("ABCDE23456")
	reply := b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	if reply.SessionState != record.CheckOTP || reply.UserPhone != "" || b.sms.count() != 0 {
		t.Errorf("got state %q, phone %q, %d SMS", reply.SessionState, reply.UserPhone, b.sms.count())
	}
	b.must("auth/checkotp", reply.SessionToken, object{"backup_code": "ABCDE23456"})
}

func TestPasswordsAreNeverCut(t *testing.T) {
	b := newHarness(t)
	long := strings.Repeat("ą", 127)
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "bob"}, Password: long + "1"})
	b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": "bob", "password": long + "2"})
	b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": "bob", "password": long})
	b.must("auth/checkcredentials", "", object{"login_id": "bob", "password": long + "1"})
}

func TestAWeakHashIsReplacedAtTheNextGoodLogin(t *testing.T) {
	b := newHarness(t)
	b.withHash(bcryptHash(t, password))
	updated := b.load().Updated
	b.clock.advance(time.Hour)
	token := b.sessionIn(record.Authorized)
	stored := b.load().PasswordHash
	if !strings.HasPrefix(stored, "$argon2id$") {
		t.Fatalf("the hash is still a %.4s", stored)
	}
	if got := b.load().Updated; !got.Equal(updated) {
		t.Errorf("the account says that it was changed at %v, by nobody", got)
	}
	b.must("auth/logout", token, nil) // the session was not revoked
	b.wrong(wire.ErrPasswordInvalid, "auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": "wrong"})
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	if b.load().PasswordHash != stored {
		t.Error("a good hash was replaced")
	}
}

func TestAWeakHashDoesNotBringBackAnOldPassword(t *testing.T) {
	b := newHarness(t)
	b.withHash(bcryptHash(t, password))
	accounts := b.Accounts
	b.Accounts = overtaken{accounts, func() {
		if err := accounts.SetPassword(t.Context(), b.clock.Now(), code, b.account, b.load().Generation, "new", record.TokenHash{}); err != nil {
			t.Error(err)
		}
	}}
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	if got := b.load().PasswordHash; got != "new" {
		t.Errorf("the hash is %q", got)
	}
}

// overtaken is an account store that calls before just before an Update.
type overtaken struct {
	record.Accounts
	before func()
}

func (o overtaken) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	o.before()
	return o.Accounts.Update(ctx, company, id, change)
}

// passwordRoutes lists the two routes that take a password, with the error for a
// wrong one.
var passwordRoutes = []struct {
	path string
	code *wire.Error
}{
	{"auth/checkpassword", wire.ErrPasswordInvalid},
	{"auth/checkcredentials", wire.ErrCredentialsInvalid},
}

// try sends a password by a route. Only checkpassword uses the token.
func (b *harness) try(path, token, password, response string) error {
	body := object{"password": password}
	if path == "auth/checkcredentials" {
		body["login_id"] = email
	}
	if response != "" {
		body["captcha_response"] = response
	}
	_, err := b.serve(path, token, body)
	return err
}

func wantRefusal(t *testing.T, err error, want *wire.Error, captcha bool) {
	t.Helper()
	wantError(t, err, want)
	if refusal(err).Captcha != captcha {
		t.Fatalf("%s: got captcha_required %v, want %v", want, !captcha, captcha)
	}
}

func TestCaptchaIsDueAfterThreeFailures(t *testing.T) {
	for _, r := range passwordRoutes {
		t.Run(r.path, func(t *testing.T) {
			b := newHarness(t)
			asked := &captcha{}
			b.company.Captcha = asked
			b.company.Limits.FailuresPerAddress.N = 100
			token := b.sessionIn(record.CheckPassword)
			wantRefusal(t, b.try(r.path, token, "wrong", ""), r.code, false)
			wantRefusal(t, b.try(r.path, token, "wrong", "good, but not due"), r.code, false)
			wantRefusal(t, b.try(r.path, token, "wrong", ""), r.code, true)
			if asked.asked.Load() != 0 {
				t.Error("a captcha was verified before it was due")
			}
			if !b.must("auth/login", "", object{"login_id": phone}).CaptchaRequired {
				t.Error("login does not say that the next request needs a captcha_response")
			}
			// With a missing or bad response the password is not compared.
			for range 20 {
				wantRefusal(t, b.try(r.path, token, "wrong", ""), wire.ErrCaptchaMissing, true)
				wantRefusal(t, b.try(r.path, token, password, ""), wire.ErrCaptchaMissing, true)
				wantRefusal(t, b.try(r.path, token, "wrong", "bad"), wire.ErrCaptchaInvalid, true)
				wantRefusal(t, b.try(r.path, token, password, "bad"), wire.ErrCaptchaInvalid, true)
			}
			wantRefusal(t, b.try(r.path, token, "wrong", "good 1"), r.code, true)
			wantRefusal(t, b.try(r.path, token, password, "good 1"), wire.ErrCaptchaInvalid, true)
			wantRefusal(t, b.try(r.path, token, password, "down"), wire.ErrUnavailable, false)
			must(t, b.try(r.path, token, password, "good 2"))
			if b.must("auth/login", "", object{"login_id": email}).CaptchaRequired {
				t.Error("a success does not clear the count")
			}
			token = b.sessionIn(record.CheckPassword)
			wantRefusal(t, b.try(r.path, token, "wrong", ""), r.code, false)
		})
	}
}

// The hashes of one request wait no longer together than one hash may: less than 2 s.
func TestARequestWaitsTwoSecondsForAllItsHashes(t *testing.T) {
	setPassword := object{"new_password": "another fine secret"}
	for name, c := range map[string]struct {
		prepare func(b *harness) (token string)
		request func(b *harness, token string) error
		want    error
	}{
		"setpassword": {
			func(b *harness) string { return b.sessionIn(record.SetPassword) },
			func(b *harness, token string) error {
				_, err := b.serve("auth/setpassword", token, setPassword)
				return err
			},
			wire.ErrUnavailable,
		},
		"change by the user": {
			func(*harness) string { return "" },
			func(b *harness, _ string) error {
				return b.changeOwn(manage.PasswordChange{Current: password, New: "another fine secret"})
			},
			wire.ErrUnavailable,
		},
		"login with a hash to replace": {
			func(b *harness) string { b.withHash(bcryptHash(b.t, password)); return "" },
			func(b *harness, _ string) error { return b.login(password) },
			nil, // the hash is replaced another time
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t)
			token := c.prepare(b)
			h := pw.NewHasher(1)
			b.Hasher = h
			var others sync.WaitGroup
			ends := make(chan bool)
			other := func(secret string, waiting int) {
				others.Go(func() { _, _ = h.Hash(context.Background(), pw.Turn{}, cheap, secret) })
				for length, _ := h.Queue(); length < waiting; length, _ = h.Queue() {
					runtime.Gosched()
				}
			}
			h.Derive = func(hash, secret string) ([]byte, error) {
				switch secret {
				case "before the request":
					time.Sleep(1500 * time.Millisecond)
				case "during the request":
					<-ends
				default: // the first hash of the request; another one follows it
					other("during the request", 2)
				}
				return pw.DeriveKey(hash, secret)
			}
			other("before the request", 1)
			began, stalled := time.Now(), storetest.WatchStalls()
			err := c.request(b, token)
			if took := time.Since(began); !errors.Is(err, c.want) || took > 2800*time.Millisecond+stalled() {
				t.Errorf("%v after %v", err, took)
			}
			close(ends)
			others.Wait()
		})
	}
}
