package flows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const stranger = "203.0.113.9"

// newDevices returns a harness whose company remembers devices, without limits of the
// address on strangers, so that the account's locks are reached.
func newDevices(t *testing.T) *harness {
	b := newHarness(t)
	b.company.Devices.For = tenant.Duration(90 * 24 * time.Hour)
	b.company.Limits.FailuresPerAddress.N = 1000
	b.company.Limits.LoginsPerAddress = tenant.Unlimited
	return b
}

// credentials returns the body of a login.
func credentials(more object) object {
	return with(object{"login_id": email, "password": password}, more)
}

// remembered logs in and returns the token of the device, after a code if one is due.
func (b *harness) remembered() string {
	b.t.Helper()
	reply := b.must("auth/checkcredentials", "", credentials(object{"remember_device": true}))
	if reply.SessionState == record.CheckOTP {
		if reply.DeviceToken != "" {
			b.t.Fatal("a device is remembered before the code")
		}
		reply = b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(b.t).Code, "remember_device": true})
	}
	if !tokens.IsWellFormed(tokens.DevicePrefix, reply.DeviceToken) {
		b.t.Fatalf("the device's token is %q", reply.DeviceToken)
	}
	return reply.DeviceToken
}

// lockOut lets strangers send so many wrong passwords.
func (b *harness) lockOut(wrong int) {
	b.t.Helper()
	for range wrong {
		if _, err := b.serveAs(code, stranger, "auth/checkcredentials", "", credentials(object{"password": "wrong"})); errors.Is(err, wire.ErrRestricted) {
			b.clock.advance(time.Hour)
		}
	}
}

// isKnown reports whether the client of a device gets in while strangers have locked the
// account.
func (b *harness) isKnown(device string) bool {
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
	for name, last := range map[string]func(b *harness) flows.Reply{
		"checkpassword": func(b *harness) flows.Reply {
			return b.must("auth/checkpassword", b.sessionIn(record.CheckPassword), credentials(remember))
		},
		"checkcredentials": func(b *harness) flows.Reply { return b.must("auth/checkcredentials", "", credentials(remember)) },
		"checkotp": func(b *harness) flows.Reply {
			return b.must("auth/checkotp", b.sessionIn(record.CheckOTP), object{"otp": b.sms.last(b.t).Code, "remember_device": true})
		},
		"setpassword": func(b *harness) flows.Reply {
			return b.must("auth/setpassword", b.sessionIn(record.SetPassword), object{"new_password": "another fine secret", "remember_device": true})
		},
		"oauth": func(b *harness) flows.Reply {
			body := b.goodBody("auth/oauth")
			body["remember_device"] = true
			return b.must("auth/oauth", "", body)
		},
		"acceptdisclaimers": func(b *harness) flows.Reply {
			return b.must("auth/acceptdisclaimers", b.sessionIn(record.AcceptDisclaimers), remember)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDevices(t)
			reply := last(b)
			wantStep(t, reply, record.Authorized)
			if !tokens.IsWellFormed(tokens.DevicePrefix, reply.DeviceToken) {
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
	b := newHarness(t)
	if reply := b.must("auth/checkcredentials", "", credentials(remember)); reply.DeviceToken != "" {
		t.Error("a company without devices remembers one")
	}
	b = newDevices(t)
	if reply := b.must("auth/checkcredentials", "", credentials(nil)); reply.DeviceToken != "" {
		t.Error("a client that did not ask is remembered")
	}
	if reply := b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret", "remember_device": true}); reply.DeviceToken != "" {
		t.Error("a recovery remembers a device")
	}
}

// Neither lock_after nor disable_after nor an address's limits, on each route.
func TestStrangersDoNotLockOutAKnownDevice(t *testing.T) {
	for name, attack := range map[string]func(b *harness){
		"lock_after":    func(b *harness) { b.lockOut(b.company.Limits.LockAfter) },
		"disable_after": func(b *harness) { b.lockOut(2 * b.company.Limits.DisableAfter) },
		"failures_per_address": func(b *harness) {
			b.company.Limits.FailuresPerAddress.N = 3
			for range 4 {
				_, _ = b.serveAs(code, home, "auth/checkcredentials", "", object{"login_id": "nobody", "password": "wrong"})
			}
		},
		"logins_per_address": func(b *harness) {
			b.company.Limits.LoginsPerAddress = tenant.Rate{N: 3, Per: time.Hour}
			for range 4 {
				_, _ = b.serveAs(code, home, "auth/checkcredentials", "", object{"login_id": "nobody", "password": "wrong"})
			}
		},
	} {
		for _, factor := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, factor), func(t *testing.T) {
				b := newDevices(t)
				b.company.Captcha = nil
				b.update(true, func(a *record.Account) { a.SecondFactor = factor })
				device := b.remembered()
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
	b := newDevices(t)
	b.company.Captcha = &captcha{}
	*b.company.Limits.CaptchaAfter = 4
	bad, other := b.remembered(), b.remembered()
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
	b := newDevices(t)
	b.company.Captcha = nil
	device := b.remembered()
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

// A device that has failed too often can't enter a code, and the refusal spends none.
func TestADevicesOwnLimitsBoundItsCodes(t *testing.T) {
	b := newDevices(t)
	b.company.Captcha = nil
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered()
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
	b := newDevices(t)
	b.company.Devices.SkipSecondFactor = true
	first := b.remembered() // without a second factor
	b.company.SecondFactor = tenant.SecondFactorRequired
	login := func(device string) flows.Reply {
		t.Helper()
		return b.must("auth/checkcredentials", "", credentials(object{"device_token": device, "remember_device": true}))
	}
	if reply := login(first); reply.SessionState != record.CheckOTP {
		t.Errorf("without a second factor before: got %s", reply.SessionState)
	}
	device := b.remembered()
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
	device = b.remembered()
	if reply := login(device); reply.SessionState != record.CheckOTP {
		t.Errorf("without skip_second_factor: got %s", reply.SessionState)
	}
}

// Integration's TestKnownDevices has all that users and operators do.
func TestADeviceEndsWithItsTimeAndWithTheOption(t *testing.T) {
	for name, end := range map[string]func(b *harness){
		"its time":   func(b *harness) { b.clock.advance(90 * 24 * time.Hour) },
		"the option": func(b *harness) { b.company.Devices = tenant.Devices{} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newDevices(t)
			device := b.remembered()
			if end(b); b.isKnown(device) {
				t.Error("the device is still known")
			}
		})
	}
}

// A token works for its account and company only, and tells nobody whether an account
// exists: with any other login id, the answer is that of a request without it.
func TestADeviceTokenTellsNothing(t *testing.T) {
	b := newDevices(t)
	b.addCompany("umbrella")
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "bob"}, Password: password})
	device := b.remembered()
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

// The owner is told of a login from a device that was not known, and of no other.
func TestALoginOnANewDeviceIsTold(t *testing.T) {
	b := newDevices(t)
	b.company.Notices = []string{message.NoticeName(message.NoticeNewDevice)}
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered()
	reply := b.must("auth/checkcredentials", "", credentials(object{"device_token": device}))
	wantStep(t, b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code}), record.Authorized)
	b.must("auth/checkcredentials", "", credentials(nil)) // no login yet
	b.must("passkey/login", "", with(b.device("k", 0).answer(code), object{"device_token": device}))
	settle(b.Service)
	if m := b.mail.last(t); m.Type != message.NoticeNewDevice || m.To != email || b.mail.count() != 1 {
		t.Errorf("%d mails, the last is %+v", b.mail.count(), m)
	}
}

// A login with a provider finds the device by the browser's cookie, too.
func TestALoginWithAProviderKnowsTheDeviceByItsCookie(t *testing.T) {
	b, _ := harnessWithProvider(t, tenant.OAuth{})
	b.company.Devices.For = tenant.Duration(time.Hour)
	device := b.must("auth/oauth", "", grant(object{"remember_device": true})).DeviceToken
	settle(b.Service)
	told := b.mail.count()
	for _, c := range []struct {
		device string
		err    error
	}{{device, nil}, {"", wire.ErrHeaderInvalid}} {
		cookie := flows.Request{Device: func() (string, error) { return c.device, c.err }}
		if _, err := b.ask(cookie, "auth/oauth", "", grant(nil)); !errors.Is(err, c.err) {
			t.Errorf("got %v, want %v", err, c.err)
		}
	}
	b.must("auth/oauth", "", grant(object{"device_token": device}))
	settle(b.Service)
	if b.mail.count() != told {
		t.Errorf("the owner was told of %d logins more", b.mail.count()-told)
	}
}

// A login whose last step is not its first one keeps what was known of the device.
func TestADeviceKeepsItsSecondFactor(t *testing.T) {
	b, _ := harnessWithProvider(t, tenant.OAuth{})
	b.company.Devices = tenant.Devices{For: tenant.Duration(time.Hour), SkipSecondFactor: true}
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered()
	b.company.Disclaimers = []wire.Disclaimer{terms}
	step := b.must("auth/oauth", "", grant(object{"device_token": device}))
	step = b.must("auth/acceptdisclaimers", step.SessionToken, object{"accept_disclaimers": []string{"terms"}, "remember_device": true})
	wantStep(t, b.must("auth/checkcredentials", "", credentials(object{"device_token": step.DeviceToken})), record.Authorized)
}

// If the store can't remember a device, the login succeeds without it.
func TestALoginOutlivesAStoreThatKeepsNoDevices(t *testing.T) {
	b := newDevices(t)
	b.Accounts = noDevices{b.Accounts}
	reply := b.must("auth/checkcredentials", "", credentials(object{"remember_device": true}))
	if wantStep(t, reply, record.Authorized); reply.DeviceToken != "" {
		t.Errorf("got %q", reply.DeviceToken)
	}
	b.wrong(wire.ErrUnavailable, "auth/login", "", object{"login_id": email, "device_token": tokens.DevicePrefix + strings.Repeat("A", 43)})
}

// noDevices is a store whose devices can't be reached.
type noDevices struct{ record.Accounts }

func (noDevices) AddDevice(context.Context, string, int64, record.Device, string) error {
	return errDown
}

func (noDevices) Device(context.Context, string, int64, record.TokenHash) (record.Device, error) {
	return record.Device{}, errDown
}
