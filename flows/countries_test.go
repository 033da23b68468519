package flows_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// With a budget of one SMS per country, only one of two phones of the same country
// gets an SMS.
func TestWhichPhonesAreOfOneCountry(t *testing.T) {
	for _, c := range []struct {
		countries []string
		one, two  string
		same      bool
	}{
		{nil, "+37060000001", "+37060000002", true},
		{nil, "+37060000001", "+37160000001", false},
		{nil, "+12025550100", "+18765550100", true}, // one calling code
		{[]string{"+1", "+1876"}, "+12025550100", "+18765550100", false},
		{[]string{"+1876", "+1"}, "+12025550100", "+18765550100", false},
		{nil, "+79990000001", "+77010000001", true},
		{nil, "+4915100000001", "+4930000001", true},
		{nil, "+4915100000001", "+420601123456", false},
		{nil, "+8823421234567", "+883510012345", false},
		{[]string{"+3706", "+3705"}, "+37060000001", "+37050000001", false},
	} {
		b := newHarness(t)
		b.company.Limits.SMSPerCountry = tenant.Rate{N: 1, Per: time.Hour}
		b.company.Limits.SMSCountries = c.countries
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "one", Phone: c.one}})
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "two", Phone: c.two}})
		b.must("auth/login", "", object{"login_id": c.one})
		_, err := b.serve("auth/login", "", object{"login_id": c.two})
		if refused := err != nil; refused != c.same {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// An address that has failed too often is told so, not which country a phone is of.
func TestTheAddressIsCheckedBeforeTheCountry(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.company.Limits.SMSCountries = []string{"+371"}
	b.company.Limits.FailuresPerAddress.N = 1
	for _, want := range []wire.Reason{"limit.sms_country", "limit.address"} {
		if _, err := b.serve("auth/login", "", object{"login_id": phone}); refusal(err).Reason != want {
			t.Errorf("got %v, want %s", err, want)
		}
		_, _ = b.serve("auth/login", "", object{"login_id": "nobody"})
	}
}

// A phone of another country gets no SMS of any type, and users who wait for a code
// get an error. Backup codes and fixed codes still work.
func TestOtherCountriesGetNoSMS(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.SMSCountries = []string{"+371", "+3705"}
	b.update(true, func(a *record.Account) { a.SecondFactor, a.Email = true, "" })
	token := b.must("auth/login", "", object{"login_id": phone}).SessionToken
	refused := func(path, token string, body object) {
		t.Helper()
		_, err := b.serve(path, token, body)
		wantError(t, err, wire.ErrRestricted)
		if r := refusal(err); r.Reason != "limit.sms_country" || r.RetryAfter != 24*time.Hour || !strings.HasPrefix(r.Message, "No SMS are sent to the country") {
			t.Errorf("%s: got the reason %s, Retry-After %v, %q", path, r.Reason, r.RetryAfter, r.Message)
		}
	}
	refused("auth/checkpassword", token, object{"password": password})
	refused("auth/checkcredentials", "", object{"login_id": phone, "password": password})
	refused("auth/recovery/recover", "", object{"login_id": phone, "captcha_response": "x", "method": "PHONE"})
	b.backupCodes("ABCDE23456")
	reply := b.must("auth/checkpassword", token, object{"password": password})
	token = reply.SessionToken
	if want := []record.AuthMethods{record.ByBackupCode}; !slices.Equal(reply.SecondFactors, want) {
		t.Errorf("the user can enter %v, want %v", reply.SecondFactors, want)
	}
	refused("auth/renewotp", token, nil)
	b.must("auth/checkotp", token, object{"backup_code": "ABCDE23456"})

	b.update(true, func(a *record.Account) { a.SecondFactor, a.MustSetPassword = false, true })
	token = b.must("auth/checkcredentials", "", object{"login_id": phone, "password": password}).SessionToken
	b.must("auth/setpassword", token, object{"new_password": "another battery"}) // and no notice of it by SMS
	settle(b.Service)
	b.withoutPassword()
	b.company.OTP.Fixed = []tenant.FixedCode{{Code: "123456", Phones: []string{phone}}}
	b.must("auth/login", "", object{"login_id": phone})
	if n := b.sms.count(); n != 0 {
		t.Errorf("%d SMS were sent", n)
	}
}

// Events of an SMS code name the country of its phone, and so do the refusals by its
// budgets. Events of other codes name none.
func TestEventsNameTheCountryOfAnSMSCode(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.backupCodes("ABCDE23456")
	b.company.Limits.SMSPerAccount.N, b.company.Limits.WrongCodes.N = 100, 100
	all, seen := b.record(), 0
	wants := func(what, name, country string) {
		t.Helper()
		found := named(all()[seen:], name)
		if len(found) == 0 || found[len(found)-1].Country != country {
			t.Errorf("%s: got %+v, want the country %q", what, found, country)
		}
		seen = len(all())
	}
	login := func() string { return b.must("auth/login", "", object{"login_id": phone}).SessionToken }
	token := login()
	wants("a code was sent", "mnemogate.login.success", "+370")
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "000000"})
	wants("a wrong code", "mnemogate.checkotp.failure", "+370")
	b.must("auth/renewotp", token, nil)
	wants("another was sent", "mnemogate.renewotp.success", "+370")
	b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
	wants("a right code", "mnemogate.checkotp.success", "+370")
	b.must("auth/checkotp", login(), object{"backup_code": "ABCDE23456"})
	wants("a backup code", "mnemogate.checkotp.success", "")
	token = b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"})).SessionToken
	wants("a code was sent", "mnemogate.recovery.recover.success", "+370")
	b.must("auth/recovery/checkotp", token, object{"otp": b.sms.last(t).Code})
	wants("a right code", "mnemogate.recovery.checkotp.success", "+370")
	b.company.OTP.Fixed = []tenant.FixedCode{{Code: "123456", Phones: []string{phone}}}
	b.must("auth/checkotp", login(), object{"otp": "123456"})
	wants("a fixed code", "mnemogate.checkotp.success", "")
	b.company.OTP.Fixed = nil
	b.company.Limits.SMSPerCountry = tenant.Rate{N: 1, Per: time.Hour}
	login()
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": phone})
	wants("the country's budget is used up", record.LimitSMSCountry, "+370")
	b.company.Limits.SMSCountries = []string{"+371"}
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": phone})
	wants("the country is not allowed", record.LimitSMSUnlisted, "+370")

	b = hardenedHarness(t)
	b.company.Limits.SMSCountries = []string{"+371"}
	locked := make(chan record.Event, 1)
	b.Observe = func(ctx context.Context, e record.Event) {
		witness(ctx, e)
		if e.Name == record.LimitSMSUnlisted {
			locked <- e
		}
	}
	b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"}))
	if e := <-locked; e.Country != "+370" {
		t.Errorf("behind the answer: got %+v", e)
	}
}
