package flows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

var (
	terms   = wire.Disclaimer{Code: "terms", Version: "1"}
	privacy = wire.Disclaimer{Code: "privacy", Version: "1"}
)

// accepted returns the acceptances that are stored with the account.
func (b *harness) accepted() []string {
	b.t.Helper()
	var all []string
	for _, a := range b.load().Accepted {
		all = append(all, a.Code+" "+a.Version+" "+a.At.Format(time.TimeOnly))
	}
	return all
}

func wantAccepted(t *testing.T, b *harness, want ...string) {
	t.Helper()
	if got := b.accepted(); !slices.Equal(got, want) {
		t.Errorf("accepted are %q, want %q", got, want)
	}
}

// Disclaimers that were accepted with the password are carried to the step that
// authorizes. That step checks what is required by then, and writes the acceptances.
func TestAcceptancesAreCarriedToTheStepThatAuthorizes(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.SecondFactor, a.MustSetPassword = true, true })
	b.company.Disclaimers = []wire.Disclaimer{terms}
	token := b.must("auth/checkcredentials", "", credentials(object{"accept_disclaimers": []string{"terms"}})).SessionToken
	b.company.Disclaimers = []wire.Disclaimer{terms, privacy} // privacy becomes pending during the login
	_, err := b.serve("auth/checkotp", token, object{"otp": b.sms.last(t).Code})
	wantError(t, err, wire.ErrDisclaimerInvalid)
	if got := refusal(err).Disclaimers; len(got) != 1 || got[0] != privacy {
		t.Errorf("got disclaimers_required %v, want the new one", got)
	}
	b.clock.advance(time.Minute)
	b.must("auth/renewotp", token, nil)
	token = b.must("auth/checkotp", token, object{"otp": b.sms.last(t).Code, "accept_disclaimers": []string{"privacy"}}).SessionToken
	wantAccepted(t, b)
	b.must("auth/setpassword", token, b.goodBody("auth/setpassword"))
	wantAccepted(t, b, "privacy 1 12:01:00", "terms 1 12:00:00")
}

// The node that ends the slower login may still have the configuration of before.
func TestAnOldVersionDoesNotReplaceANewOne(t *testing.T) {
	for _, outdated := range []bool{false, true} {
		b := newHarness(t)
		b.update(true, func(a *record.Account) { a.SecondFactor = true })
		b.company.Disclaimers = []wire.Disclaimer{terms}
		old, before := b.node(), *b.company
		accept := credentials(object{"accept_disclaimers": []string{"terms"}})
		slow := b.must("auth/checkcredentials", "", accept).SessionToken
		otp := b.sms.last(t).Code
		b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "2"}} // a reload, and another login
		b.clock.advance(time.Minute)
		b.must("auth/checkotp", b.must("auth/checkcredentials", "", accept).SessionToken, object{"otp": b.sms.last(t).Code})
		if outdated {
			old.Config.Companies = map[string]*tenant.Company{code: &before}
		}
		b.clock.advance(time.Minute)
		wantStep(t, old.must("auth/checkotp", slow, object{"otp": otp}), record.Authorized)
		wantAccepted(t, b, "terms 2 12:01:00")
	}
}

// Contract, section 4: an acceptance is evidence. It counts only for a version that an
// answer to this login has listed. If another is current by then, the answer lists that.
func TestOnlyWhatThisLoginListedIsAccepted(t *testing.T) {
	accept := []string{"terms"}
	for name, c := range map[string]struct {
		prepare func(*harness)
		begin   []string
		end     string
	}{
		"password":                  {func(*harness) {}, []string{"auth/login"}, "auth/checkpassword"},
		"hardened":                  {func(b *harness) { b.company.Hardened = true }, []string{"auth/login"}, "auth/checkpassword"},
		"code":                      {(*harness).withoutPassword, []string{"auth/login"}, "auth/checkotp"},
		"provider":                  {func(*harness) {}, []string{"auth/oauth"}, "auth/acceptdisclaimers"},
		"passkey":                   {func(*harness) {}, []string{"passkey/login"}, "auth/acceptdisclaimers"},
		"passkey, then a password":  {func(b *harness) { b.update(true, func(a *record.Account) { a.MustSetPassword = true }) }, []string{"passkey/login"}, "auth/setpassword"},
		"password, then a new one":  {func(b *harness) { b.update(true, func(a *record.Account) { a.MustSetPassword = true }) }, []string{"auth/login", "auth/checkpassword"}, "auth/setpassword"},
		"password, and then a code": {func(b *harness) { b.update(true, func(a *record.Account) { a.SecondFactor = true }) }, []string{"auth/login", "auth/checkpassword"}, "auth/checkotp"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			c.prepare(b)
			b.company.Limits.SMSPerAccount = tenant.Unlimited
			b.company.Disclaimers = []wire.Disclaimer{terms}
			if len(c.begin) > 1 { // its second step has accepted what was pending
				b.company.Disclaimers = nil
			}
			reply := b.walk(c.begin...)
			if len(c.begin) == 1 && len(reply.DisclaimersRequired) != 1 {
				t.Fatalf("got disclaimers_required %v", reply.DisclaimersRequired)
			}
			other := b.walk(c.begin...).SessionToken
			try := func(token string) error {
				if c.end == "auth/checkotp" {
					b.must("auth/renewotp", token, nil)
				}
				_, err := b.serve(c.end, token, with(b.goodBody(c.end), object{"accept_disclaimers": accept}))
				return err
			}
			for version := range 2 {
				b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: string(rune('2' + version))}} // a reload
				err := try(reply.SessionToken)
				wantError(t, err, wire.ErrDisclaimerInvalid)
				if got := refusal(err).Disclaimers; len(got) != 1 || got[0].Version != b.company.Disclaimers[0].Version {
					t.Errorf("got disclaimers_required %v", got)
				}
			}
			wantError(t, try(other), wire.ErrDisclaimerInvalid) // another login has not shown them
			wantAccepted(t, b)
			must(t, try(reply.SessionToken))
			wantAccepted(t, b, "terms 3 12:00:00")
		})
	}
}

// Nothing is listed before these routes, so a code means the present version, and
// code@version names one.
func TestAVersionIsNamedWhereNothingWasListed(t *testing.T) {
	for _, path := range []string{"auth/checkcredentials", "passkey/login"} {
		b := newHarness(t)
		b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "2"}, privacy}
		phone := b.device("phone", 0)
		try := func(codes ...string) error {
			body := object{"login_id": email, "password": password}
			if path == "passkey/login" {
				body = phone.answer(code)
			}
			_, err := b.serve(path, "", with(body, object{"accept_disclaimers": codes}))
			return err
		}
		wantError(t, try("terms"), wire.ErrDisclaimerInvalid) // one of two
		for _, stale := range []string{"terms@1", "terms@", "terms@2 ", "privacy@2"} {
			err := try(stale, "privacy")
			if wantError(t, err, wire.ErrDisclaimerInvalid); len(refusal(err).Disclaimers) != 2 {
				t.Errorf("%s: got %v", stale, refusal(err).Disclaimers)
			}
		}
		wantAccepted(t, b)
		must(t, try("terms@2", "privacy"))
		wantAccepted(t, b, "privacy 1 12:00:00", "terms 2 12:00:00")
		longest := wire.Disclaimer{Code: strings.Repeat("c", 64), Version: strings.Repeat("ü", 64)}
		b.company.Disclaimers = []wire.Disclaimer{longest}
		must(t, try(longest.Code+"@"+longest.Version))
	}
}
