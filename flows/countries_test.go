package flows_test

import (
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
	all, seen := b.record(), 0
	wants := func(name, country string) {
		t.Helper()
		found := named(all()[seen:], name)
		if len(found) == 0 || found[len(found)-1].Country != country {
			t.Errorf("got %+v, want the country %q", found, country)
		}
		seen = len(all())
	}
	login := func() string { return b.must("auth/login", "", object{"login_id": phone}).SessionToken }
	token := login()
	wants("mnemogate.login.success", "+370")
	b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "000000"})
	wants("mnemogate.checkotp.failure", "+370")
	b.must("auth/renewotp", token, nil)
	wants("mnemogate.renewotp.success", "+370")
	b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
	wants("mnemogate.checkotp.success", "+370")
	b.must("auth/checkotp", login(), object{"backup_code": "ABCDE23456"})
	wants("mnemogate.checkotp.success", "")
	b.walk("auth/recovery/recover", "auth/recovery/checkotp")
	wants("mnemogate.recovery.checkotp.success", "+370")
	b.company.OTP.Fixed = []tenant.FixedCode{{Code: "123456", Phones: []string{phone}}}
	b.must("auth/checkotp", login(), object{"otp": "123456"})
	wants("mnemogate.checkotp.success", "")
	b.company.OTP.Fixed = nil
	b.company.Limits.SMSCountries = []string{"+371"}
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": phone})
	wants(record.LimitSMSUnlisted, "+370")
	b = hardenedHarness(t)
	b.company.Limits.SMSCountries = []string{"+371"}
	all, seen = b.record(), 0
	b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"})) // it is refused behind the answer
	wants(record.LimitSMSUnlisted, "+370")
}
