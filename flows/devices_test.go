package flows_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
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
	events := b.record()
	b.wrong(wire.ErrRestricted, "auth/checkotp", step, sent)
	if told := named(events(), record.LimitAddress); len(told) != 1 || told[0].Traffic != nil || told[0].Reason != "" {
		t.Errorf("got %+v, want one event without the traffic of the device's address", told)
	}
	b.clock.advance(time.Minute)
	wantStep(t, b.must("auth/checkotp", step, sent), record.Authorized)
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

// A device that is remembered anew replaces the old one and keeps what it was remembered
// with, also if the last step of the login is not its first one.
func TestADeviceKeepsItsSecondFactor(t *testing.T) {
	b, _ := harnessWithProvider(t, tenant.OAuth{})
	b.company.Devices = tenant.Devices{For: tenant.Duration(90 * 24 * time.Hour), SkipSecondFactor: true}
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	login := func(device string, want record.State) string {
		t.Helper()
		reply := b.must("auth/checkcredentials", "", credentials(object{"device_token": device, "remember_device": true}))
		wantStep(t, reply, want)
		return reply.DeviceToken
	}
	first := b.remembered()
	b.clock.advance(89 * 24 * time.Hour)
	known, err := b.Accounts.Devices(t.Context(), code, b.account)
	must(t, err)
	events := b.record()
	second := login(first, record.Authorized)
	if e := named(events(), "mnemogate.checkcredentials.success")[0]; e.Factor != "pwd" || e.Reason != known[0].ID {
		t.Errorf("the event has the factor %q and the reason %q, want the device %s, which spared the code", e.Factor, e.Reason, known[0].ID)
	}
	login(first, record.CheckOTP)
	b.company.Disclaimers = []wire.Disclaimer{terms}
	step := b.must("auth/oauth", "", grant(object{"device_token": second}))
	step = b.must("auth/acceptdisclaimers", step.SessionToken, object{"accept_disclaimers": []string{"terms"}, "remember_device": true})
	third := login(step.DeviceToken, record.Authorized)
	b.clock.advance(2 * 24 * time.Hour) // 91 days after the code
	login(third, record.CheckOTP)
}

// A new password revokes the device on which it is set. If that is remembered again, it needs
// the second factor again.
func TestANewPasswordEndsADevicesSecondFactor(t *testing.T) {
	b := newDevices(t)
	b.company.Devices.SkipSecondFactor = true
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	device := b.remembered()
	b.update(false, func(a *record.Account) { a.MustSetPassword = true })
	step := b.must("auth/checkcredentials", "", credentials(object{"device_token": device}))
	wantStep(t, step, record.SetPassword)
	step = b.must("auth/setpassword", step.SessionToken, object{"new_password": newSecret, "remember_device": true})
	wantStep(t, step, record.Authorized)
	again := b.must("auth/checkcredentials", "", credentials(object{"password": newSecret, "device_token": step.DeviceToken}))
	wantStep(t, again, record.CheckOTP)
}

// The owner may forget all devices during a login. Neither the login nor a later one with the
// device that it adds goes without the second factor.
func TestADeviceThatIsForgottenDuringALoginSkipsNothing(t *testing.T) {
	for _, during := range []string{"Device", "AddDevice"} {
		t.Run(during, func(t *testing.T) {
			b := newDevices(t)
			b.company.Devices.SkipSecondFactor = true
			b.update(true, func(a *record.Account) { a.SecondFactor = true })
			device := b.remembered()
			settle(b.Service)
			b.during(during, func() { must(t, b.admin().ForgetDevices(t.Context(), mnemocode, "")) })
			reply := b.must("auth/checkcredentials", "", credentials(object{"device_token": device, "remember_device": true}))
			if during == "AddDevice" {
				wantStep(t, reply, record.Authorized) // by then it was decided
				reply = b.must("auth/checkcredentials", "", credentials(object{"device_token": reply.DeviceToken}))
			}
			wantStep(t, reply, record.CheckOTP)
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
		cookie := flows.Request{Client: session.Client{Device: func() (string, error) { return c.device, c.err }}}
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

// Addresses of strangers that take all places for hashing leave a known device its turn.
func TestStrangersLeaveAKnownDeviceItsTurn(t *testing.T) {
	b := newDevices(t)
	b.company.Captcha = nil
	device := b.remembered()
	b.Hasher = pw.NewHasher(1)
	busy := make(chan struct{})
	b.Hasher.Derive = func(hash, secret string) ([]byte, error) { <-busy; return pw.DeriveKey(hash, secret) }
	_, limit := b.Hasher.Queue()
	login := func(i int, more object) error {
		_, err := b.serveAs(code, addressOf(i), "auth/checkcredentials", "", credentials(more))
		return err
	}
	outcomes := make(chan error, limit)
	for i := range limit { // without logins, so that the last one comes long before the first has waited too long
		go func() {
			_, err := b.Hasher.Hash(t.Context(), pw.Turn{Company: code, Address: addressOf(i)}, cheap, password)
			outcomes <- err
		}()
	}
	storetest.Eventually(t, 10*time.Second, "full queue", func() bool { n, _ := b.Hasher.Queue(); return n == limit })
	wantError(t, login(limit, nil), wire.ErrUnavailable)
	known := make(chan error)
	go func() { known <- login(0, object{"device_token": device}) }()
	if err := <-outcomes; err != pw.ErrBusy {
		t.Errorf("nobody lost a place: %v", err)
	}
	close(busy)
	must(t, <-known)
	for range limit - 1 {
		<-outcomes
	}
}
