package flows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	home     = "192.0.2.1" // the address of the known device
	stranger = "203.0.113.9"
)

// newDevices returns a bench whose company remembers devices, without limits of the
// address on strangers, so that the account's locks are reached.
func newDevices(t *testing.T, skip bool) *bench {
	b := newBench(t)
	b.company.Devices = tenant.Devices{For: tenant.Duration(90 * 24 * time.Hour), SkipSecondFactor: skip}
	b.company.Limits.FailuresPerAddress.N = 1000
	b.company.Limits.LoginsPerAddress = tenant.Unlimited
	return b
}

// credentials returns the body of a login.
func credentials(more object) object {
	body := object{"login_id": email, "password": password}
	for name, value := range more {
		body[name] = value
	}
	return body
}

// remembered logs in and returns the token of the device, after a code if one is due.
func (b *bench) remembered(more object) string {
	b.t.Helper()
	reply := b.must("auth/checkcredentials", "", credentials(object{"remember_device": true}))
	if reply.SessionState == record.CheckOTP {
		if reply.DeviceToken != "" {
			b.t.Fatal("a device is remembered before the code")
		}
		reply = b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(b.t).Code, "remember_device": true})
	}
	if !tokens.Shaped(tokens.DevicePrefix, reply.DeviceToken) {
		b.t.Fatalf("the device's token is %q", reply.DeviceToken)
	}
	return reply.DeviceToken
}

// lockOut lets strangers send so many wrong passwords.
func (b *bench) lockOut(wrong int) {
	b.t.Helper()
	for range wrong {
		if _, err := b.serveAs(code, stranger, "auth/checkcredentials", "", credentials(object{"password": "wrong"})); errors.Is(err, wire.ErrRestricted) {
			b.clock.advance(time.Hour)
		}
	}
}

// isKnown reports whether the client of a device gets in while strangers have locked the
// account.
func (b *bench) isKnown(device string) bool {
	b.t.Helper()
	b.company.Captcha = nil
	b.lockOut(2 * b.company.Limits.LockAfter)
	b.clock.advance(time.Hour)
	b.lockOut(1) // begins a new lock
	_, err := b.serve("auth/checkcredentials", "", credentials(object{"device_token": device}))
	if err != nil && !errors.Is(err, wire.ErrRestricted) {
		b.t.Fatal(err)
	}
	return err == nil
}

// Every step that can make a session authorized.
func TestADeviceIsRememberedByTheStepThatAuthorizes(t *testing.T) {
	remember := object{"remember_device": true}
	for name, last := range map[string]func(b *bench) flows.Reply{
		"checkpassword": func(b *bench) flows.Reply {
			return b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), credentials(remember))
		},
		"checkcredentials": func(b *bench) flows.Reply { return b.must("auth/checkcredentials", "", credentials(remember)) },
		"checkotp": func(b *bench) flows.Reply {
			return b.must("auth/checkotp", b.sessionIn(record.CheckOTP), object{"otp": b.sms.last(b.t).Code, "remember_device": true})
		},
		"setpassword": func(b *bench) flows.Reply {
			return b.must("auth/setpassword", b.sessionIn(record.SetPassword), object{"new_password": "another fine secret", "remember_device": true})
		},
		"oauth": func(b *bench) flows.Reply {
			body := b.goodBody("auth/oauth")
			body["remember_device"] = true
			return b.must("auth/oauth", "", body)
		},
		"acceptdisclaimers": func(b *bench) flows.Reply {
			return b.must("auth/acceptdisclaimers", b.sessionIn(record.AcceptDisclaimers), remember)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDevices(t, false)
			reply := last(b)
			wantStep(t, reply, record.Authorized)
			if !tokens.Shaped(tokens.DevicePrefix, reply.DeviceToken) {
				t.Fatalf("got %q", reply.DeviceToken)
			}
			if name == "setpassword" {
				return // the password has changed
			}
			if !b.isKnown(reply.DeviceToken) {
				t.Error("the device is not known")
			}
		})
	}
	b := newBench(t)
	if reply := b.must("auth/checkcredentials", "", credentials(remember)); reply.DeviceToken != "" {
		t.Error("a company without devices remembers one")
	}
	b = newDevices(t, false)
	if reply := b.must("auth/checkcredentials", "", credentials(nil)); reply.DeviceToken != "" {
		t.Error("a client that did not ask is remembered")
	}
	if reply := b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret", "remember_device": true}); reply.DeviceToken != "" {
		t.Error("a recovery remembers a device")
	}
}

// Neither lock_after nor disable_after nor an address's limits, on each route.
func TestStrangersDoNotLockOutAKnownDevice(t *testing.T) {
	for name, attack := range map[string]func(b *bench){
		"lock_after":    func(b *bench) { b.lockOut(b.company.Limits.LockAfter) },
		"disable_after": func(b *bench) { b.lockOut(2 * b.company.Limits.DisableAfter) },
		"failures_per_address": func(b *bench) {
			b.company.Limits.FailuresPerAddress.N = 3
			for range 4 {
				_, _ = b.serveAs(code, home, "auth/checkcredentials", "", object{"login_id": "nobody", "password": "wrong"})
			}
		},
		"logins_per_address": func(b *bench) {
			b.company.Limits.LoginsPerAddress = tenant.Rate{N: 3, Per: time.Hour}
			for range 4 {
				_, _ = b.serveAs(code, home, "auth/checkcredentials", "", object{"login_id": "nobody", "password": "wrong"})
			}
		},
	} {
		for _, factor := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, factor), func(t *testing.T) {
				b := newDevices(t, false)
				b.company.Captcha = nil
				b.update(true, func(a *record.Account) { a.SecondFactor = factor })
				device := b.remembered(nil)
				before := b.must("auth/login", "", object{"login_id": email}).SessionToken
				attack(b)
				if strings.HasPrefix(name, "logins") {
					b.wrong(wire.ErrRestricted, "auth/checkpassword", before, object{"password": password})
				} else {
					b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
				}
				b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", credentials(nil))
				step := b.must("auth/login", "", object{"login_id": email, "device_token": device})
				if step.CaptchaRequired {
					t.Error("it must solve a captcha for what strangers did")
				}
				reply := b.must("auth/checkpassword", step.SessionToken, object{"password": password, "device_token": device})
				if factor {
					reply = b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
				}
				wantStep(t, reply, record.Authorized)
				reply = b.must("auth/checkcredentials", "", credentials(object{"device_token": device}))
				if factor {
					b.must("auth/renewotp", reply.SessionToken, nil)
					reply = b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
				}
				wantStep(t, reply, record.Authorized)
				b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", credentials(nil)) // strangers stay locked
			})
		}
	}
}

// A device's failures count for that device alone, and after lock_after of them it counts
// as unknown, for good.
func TestADeviceCountsItsOwnFailures(t *testing.T) {
	b := newDevices(t, false)
	b.company.Captcha = &captcha{}
	*b.company.Limits.CaptchaAfter = 4
	bad, other := b.remembered(nil), b.remembered(nil)
	events := b.record()
	wrong := credentials(object{"password": "wrong", "device_token": bad, "captcha_response": "good"})
	for i := range b.company.Limits.LockAfter {
		wrong["captcha_response"] = "good " + addressOf(i)
		_, err := b.serve("auth/checkcredentials", "", wrong)
		wantRefusal(t, err, wire.ErrCredentialsInvalid, i >= 3)
	}
	if n := b.failureCount(record.WrongPasswords); n != 0 {
		t.Errorf("the account has %d failures", n)
	}
	if got := b.must("auth/login", "", object{"login_id": email, "device_token": bad}); got.CaptchaRequired {
		t.Error("an unknown device needs a captcha for what it did as a known one")
	}
	if len(named(events(), record.AccountDeviceDistrusted)) != 1 || len(named(events(), record.LockPassword)) != 0 {
		t.Errorf("%d locks of the device, %d of the account", len(named(events(), record.AccountDeviceDistrusted)), len(named(events(), record.LockPassword)))
	}
	if b.isKnown(bad) {
		t.Error("the device is still known")
	}
	if !b.isKnown(other) {
		t.Error("another device of the account is not")
	}
	b.clock.advance(24 * time.Hour)
	if b.isKnown(bad) {
		t.Error("it is known again a day later")
	}
}

// A right password clears the device's count and leaves that of the account.
func TestASuccessOfADeviceClearsItsOwnCount(t *testing.T) {
	b := newDevices(t, false)
	b.company.Captcha = nil
	device := b.remembered(nil)
	b.lockOut(5)
	for range 3 {
		for range b.company.Limits.LockAfter - 1 {
			b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", credentials(object{"password": "wrong", "device_token": device}))
		}
		b.must("auth/checkcredentials", "", credentials(object{"device_token": device}))
	}
	if n := b.failureCount(record.WrongPasswords); n != 5 {
		t.Errorf("the account has %d failures", n)
	}
}

// Of many guesses with the token of a device, lock_after count for it. The others are
// those of an unknown device.
func TestGuessesOfADeviceAreCountedExactlyUnderARace(t *testing.T) {
	b := newDevices(t, false)
	b.company.Captcha = nil
	device := b.remembered(nil)
	limit := b.company.Limits.LockAfter
	got := race(100, func(int) error {
		_, err := b.serve("auth/checkcredentials", "", credentials(object{"password": "wrong", "device_token": device}))
		return err
	})
	if got["auth.credentials.invalid"] != 2*limit || got["auth.restricted"] != 100-2*limit {
		t.Errorf("got %v, want %d guesses of the device and %d of strangers", got, limit, limit)
	}
	if n := b.failureCount(record.WrongPasswords); n != limit {
		t.Errorf("the account has %d failures", n)
	}
	if b.isKnown(device) {
		t.Error("the device is still known")
	}
}

func TestADevicesOwnLimitsBoundItsLogins(t *testing.T) {
	b := newDevices(t, false)
	b.company.Limits.LoginsPerAddress = tenant.Rate{N: 5, Per: time.Minute}
	device := b.remembered(nil)
	got := race(20, func(int) error {
		_, err := b.serve("auth/checkcredentials", "", credentials(object{"device_token": device}))
		return err
	})
	if got[""] != 5 || got["auth.restricted"] != 15 {
		t.Errorf("got %v", got)
	}
	b.must("auth/checkcredentials", "", credentials(nil)) // they do not count for its address
}

// A device that has failed too often can't enter a code, and the refusal spends none.
func TestADevicesOwnLimitsBoundItsCodes(t *testing.T) {
	b := newDevices(t, false)
	b.company.Captcha = nil
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered(nil)
	b.company.Limits.FailuresPerAddress = tenant.Rate{N: 2, Per: time.Minute}
	step := b.must("auth/checkcredentials", "", credentials(object{"device_token": device})).SessionToken
	sent := object{"otp": b.sms.last(t).Code}
	for range 2 {
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", credentials(object{"password": "wrong", "device_token": device}))
	}
	b.wrong(wire.ErrRestricted, "auth/checkotp", step, sent)
	b.clock.advance(time.Minute)
	wantStep(t, b.must("auth/checkotp", step, sent), record.Authorized)
}

func TestADeviceSkipsTheSecondFactorItWasRememberedWith(t *testing.T) {
	b := newDevices(t, true)
	first := b.remembered(nil) // without a second factor
	b.company.SecondFactor = tenant.SecondFactorRequired
	login := func(device string) flows.Reply {
		t.Helper()
		return b.must("auth/checkcredentials", "", credentials(object{"device_token": device, "remember_device": true}))
	}
	if reply := login(first); reply.SessionState != record.CheckOTP {
		t.Errorf("without a second factor before: got %s", reply.SessionState)
	}
	device := b.remembered(nil)
	b.clock.advance(89 * 24 * time.Hour)
	reply := login(device)
	wantStep(t, reply, record.Authorized)
	if reply.DeviceToken == "" || login(device).SessionState != record.CheckOTP {
		t.Error("the new token does not replace the old one")
	}
	device = reply.DeviceToken
	b.clock.advance(2 * 24 * time.Hour) // remembering it anew does not put the next code off
	if reply := login(device); reply.SessionState != record.CheckOTP {
		t.Errorf("90 days after the code: got %s", reply.SessionState)
	}
	b.company.Devices.SkipSecondFactor = false
	device = b.remembered(nil)
	if reply := login(device); reply.SessionState != record.CheckOTP {
		t.Errorf("without skip_second_factor: got %s", reply.SessionState)
	}
}

// A stolen token is worth nothing without the password, and nothing once something has
// ended it.
func TestWhatEndsADevice(t *testing.T) {
	change := func(apply func(*record.Account)) func(*bench) error {
		return func(b *bench) error {
			_, _, err := b.admin().Change(b.t.Context(), mnemocode, manage.Change{Apply: func(a *record.Account) error { apply(a); return nil }})
			return err
		}
	}
	for name, end := range map[string]func(b *bench) error{
		"another role":          change(func(a *record.Account) { a.Role = "other" }),
		"another phone":         change(func(a *record.Account) { a.Phone = "+37060099999" }),
		"a second factor":       change(func(a *record.Account) { a.SecondFactor = true }),
		"the account's end":     func(b *bench) error { return b.admin().EndSessions(b.t.Context(), mnemocode, "") },
		"the company's end":     func(b *bench) error { return b.admin().EndAllSessions(b.t.Context()) },
		"its time":              func(b *bench) error { b.clock.advance(90 * 24 * time.Hour); return nil },
		"being forgotten":       func(b *bench) error { return b.admin().ForgetDevices(b.t.Context(), mnemocode, "") },
		"a user's own password": func(b *bench) error { return b.changeOwn(manage.OwnChange{Current: password, New: newSecret}) },
		"a restriction, lifted": func(b *bench) error {
			return errors.Join(change(func(a *record.Account) { a.Status = record.StatusRestricted })(b),
				change(func(a *record.Account) { a.Status = record.StatusActive })(b))
		},
		"a recovery": func(b *bench) error {
			b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": newSecret})
			return nil
		},
		"the end of the option": func(b *bench) error { b.company.Devices = tenant.Devices{}; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newDevices(t, false)
			device := b.remembered(nil)
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(name, "password") || name == "a recovery" { // the same password again
				b.update(false, func(a *record.Account) { a.PasswordHash = b.hash(password) })
			}
			if b.isKnown(device) {
				t.Error("the device is still known")
			}
		})
	}
	t.Run("not a logout", func(t *testing.T) {
		b := newDevices(t, false)
		reply := b.must("auth/checkcredentials", "", credentials(object{"remember_device": true}))
		b.must("auth/logout", reply.SessionToken, nil)
		if !b.isKnown(reply.DeviceToken) {
			t.Error("it is not known any more")
		}
	})
}

// hash returns the hash of a password.
func (b *bench) hash(password string) string {
	hash, err := b.Hasher.Hash(b.t.Context(), pw.Turn{Company: code}, cheap, password)
	if err != nil {
		b.t.Fatal(err)
	}
	return hash
}

// A token works for its account and company only, and tells nobody whether an account
// exists: with any other login id, the answer is that of a request without it.
func TestADeviceTokenTellsNothing(t *testing.T) {
	b := newDevices(t, false)
	b.addCompany("umbrella")
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "bob"}, Password: password})
	device := b.remembered(nil)
	unknown, _ := tokens.NewDevice()
	for _, loginID := range []string{"bob", "nobody"} {
		for _, wrong := range []string{password, "wrong"} {
			var answers []string
			for _, token := range []string{"", device, unknown, "mgd_x", "mgs_" + device[4:]} {
				_, err := b.serve("auth/checkcredentials", "", object{"login_id": loginID, "password": wrong, "device_token": token})
				answers = append(answers, codeOf(err)+refusal(err).Message)
			}
			for _, answer := range answers {
				if answer != answers[0] {
					t.Errorf("%s, %s: got %q", loginID, wrong, answers)
				}
			}
		}
	}
	for range b.company.Limits.LockAfter {
		_, _ = b.serveAs("umbrella", stranger, "auth/checkcredentials", "", credentials(object{"password": "wrong"}))
	}
	if _, err := b.serveAs("umbrella", home, "auth/checkcredentials", "", credentials(object{"device_token": device})); !errors.Is(err, wire.ErrRestricted) {
		t.Errorf("in another company: got %v", err)
	}
	b.wrong(wire.ErrHeaderInvalid, "auth/logout", device+" ", nil)
	b.wrong(wire.ErrTokenInvalid, "auth/logout", device, nil)
}

// However often a client is remembered, an account has ten devices, the newest.
func TestAFloodOfDevices(t *testing.T) {
	b := newDevices(t, false)
	oldest := b.remembered(nil)
	race(40, func(int) error {
		_, err := b.serve("auth/checkcredentials", "", credentials(object{"remember_device": true}))
		return err
	})
	devices, err := b.Accounts.Devices(t.Context(), code, b.account)
	if err != nil || len(devices) != record.MaxDevices {
		t.Errorf("%d devices, %v", len(devices), err)
	}
	if b.isKnown(oldest) {
		t.Error("the oldest is still known")
	}
}

// The owner is told of a login from a device that was not known, and of no other.
func TestALoginOnANewDeviceIsTold(t *testing.T) {
	b := newDevices(t, false)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered(nil)
	reply := b.must("auth/checkcredentials", "", credentials(object{"device_token": device}))
	wantStep(t, b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code}), record.Authorized)
	b.must("auth/checkcredentials", "", credentials(nil)) // no login yet
	settle(b.Service)
	if m := b.mail.last(t); m.Type != message.NoticeNewDevice || m.To != email || b.mail.count() != 1 {
		t.Errorf("%d mails, the last is %+v", b.mail.count(), m)
	}
}

// A login with a provider brings no device_token, but the browser's cookie.
func TestALoginWithAProviderKnowsTheDeviceByItsCookie(t *testing.T) {
	b, _ := benchWithProvider(t, tenant.OAuth{})
	b.company.Devices.For = tenant.Duration(time.Hour)
	device := b.must("auth/oauth", "", grant(object{"remember_device": true})).DeviceToken
	settle(b.Service)
	told := b.mail.count()
	for _, c := range []struct {
		device string
		err    error
	}{{device, nil}, {"", wire.ErrHeaderInvalid}} {
		raw, err := json.Marshal(grant(object{"code": newGrant("next" + c.device)}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Serve(t.Context(), &flows.Request{
			Company: code, Route: flows.RouteByPath("auth/oauth"), Address: home,
			Body:   func() ([]byte, error) { return raw, nil },
			Device: func() (string, error) { return c.device, c.err },
		}); !errors.Is(err, c.err) {
			t.Errorf("got %v, want %v", err, c.err)
		}
	}
	settle(b.Service)
	if b.mail.count() != told {
		t.Errorf("the owner was told of %d logins more", b.mail.count()-told)
	}
}

// If the store can't remember a device, the login succeeds without it.
func TestALoginOutlivesAStoreThatKeepsNoDevices(t *testing.T) {
	b := newDevices(t, false)
	b.Accounts = noDevices{b.Accounts}
	reply := b.must("auth/checkcredentials", "", credentials(object{"remember_device": true}))
	if wantStep(t, reply, record.Authorized); reply.DeviceToken != "" {
		t.Errorf("got %q", reply.DeviceToken)
	}
	b.wrong(wire.ErrUnavailable, "auth/login", "", object{"login_id": email, "device_token": tokens.DevicePrefix + strings.Repeat("A", 43)})
}

// noDevices is a store whose devices can't be reached.
type noDevices struct{ record.Accounts }

var errDown = errors.New("connection refused")

func (noDevices) AddDevice(context.Context, string, int64, record.Device, string) error {
	return errDown
}

func (noDevices) Device(context.Context, string, int64, record.TokenHash) (record.Device, error) {
	return record.Device{}, errDown
}
