package flows_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A voucher is a provider that returns a fixed user or error and records what it was
// asked.
type voucher struct {
	mu    sync.Mutex
	asked []tenant.OAuthGrant
	user  tenant.OAuthUser
	err   error
	links []bool // whether each user was linked
}

func (v *voucher) Exchange(ctx context.Context, g tenant.OAuthGrant) (tenant.OAuthUser, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.links = append(v.links, g.IsLinked(ctx, v.user.Subject))
	g.IsLinked = nil
	v.asked = append(v.asked, g)
	return v.user, v.err
}

const (
	callback = "https://app.example.com/cb"
	verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk" // RFC 7636, appendix B
)

// harnessWithProvider adds provider 2.
func harnessWithProvider(t *testing.T, config tenant.OAuth) (*harness, *voucher) {
	t.Helper()
	b := newHarness(t)
	v := &voucher{user: tenant.OAuthUser{Subject: "alice"}}
	config.Provider = v
	config.RedirectURIs = []string{"https://other.example.com/cb", callback}
	b.company.OAuth[2] = config
	b.update(true, func(a *record.Account) {
		a.Identities = append(a.Identities, record.Identity{Provider: 2, Subject: "alice"})
	})
	return b, v
}

func grant(more object) object {
	return with(object{"provider_id": 2, "code": newGrant("abc"), "redirect_uri": callback}, more)
}

func TestOAuthPassesOnWhatTheClientBrought(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	brought := grant(object{"code": "abc", "code_verifier": verifier, "nonce": "nonce"})
	wantStep(t, b.must("auth/oauth", "not looked at", brought), record.Authorized)
	want := tenant.OAuthGrant{Code: "abc", RedirectURI: callback, CodeVerifier: verifier, Nonce: "nonce"}
	if len(v.asked) != 1 || !reflect.DeepEqual(v.asked[0], want) {
		t.Errorf("the provider was asked %+v", v.asked)
	}
	if !v.links[0] {
		t.Error("it was told that no account has the user")
	}
}

func TestOAuthRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change object
		user   tenant.OAuthUser
		err    error
		want   *wire.Error
		asked  bool
	}{
		"provider 0":             {change: object{"provider_id": 0}, want: wire.ErrValidation},
		"provider 3":             {change: object{"provider_id": 3}, want: wire.ErrValidation},
		"provider 6":             {change: object{"provider_id": 6}, want: wire.ErrValidation},
		"provider -1":            {change: object{"provider_id": -1}, want: wire.ErrValidation},
		"provider 2.5":           {change: object{"provider_id": 2.5}, want: wire.ErrValidation},
		"redirect with a slash":  {change: object{"redirect_uri": callback + "/"}, want: wire.ErrOAuthFailed},
		"redirect with a query":  {change: object{"redirect_uri": callback + "?x"}, want: wire.ErrOAuthFailed},
		"redirect in upper case": {change: object{"redirect_uri": "https://APP.example.com/cb"}, want: wire.ErrOAuthFailed},
		"another's redirect":     {change: object{"redirect_uri": "https://evil.example.com/cb"}, want: wire.ErrOAuthFailed},
		"refused":                {err: wire.ErrOAuthFailed, want: wire.ErrOAuthFailed, asked: true},
		"down":                   {err: errDown, want: wire.ErrUnavailable, asked: true},
		"nobody":                 {user: tenant.OAuthUser{Email: email, EmailVerified: true}, want: wire.ErrOAuthFailed, asked: true},
		"a subject too long":     {user: tenant.OAuthUser{Subject: strings.Repeat("x", 256)}, want: wire.ErrOAuthFailed, asked: true},
		"a subject of two lines": {user: tenant.OAuthUser{Subject: "a\nb"}, want: wire.ErrOAuthFailed, asked: true},
		"unknown":                {user: tenant.OAuthUser{Subject: "bob", Email: email, EmailVerified: true}, want: wire.ErrOAuthNotFound, asked: true},
		"another spelling":       {user: tenant.OAuthUser{Subject: "Alice"}, want: wire.ErrOAuthNotFound, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := harnessWithProvider(t, tenant.OAuth{})
			v.err = c.err
			if c.user != (tenant.OAuthUser{}) {
				v.user = c.user
			}
			b.wrong(c.want, "auth/oauth", "", grant(c.change))
			if got := len(v.asked) > 0; got != c.asked {
				t.Errorf("a call went out: %v, want %v", got, c.asked)
			}
		})
	}
}

// A login is as old as that at the provider, also after disclaimers. Its session lives as
// long as any.
func TestALoginIsAsOldAsAtTheProvider(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	for _, disclaimers := range [][]wire.Disclaimer{nil, {terms}} {
		b.company.Disclaimers = disclaimers
		for _, age := range []time.Duration{48 * time.Hour, time.Minute, -time.Minute} {
			v.user.AuthTime = b.clock.Now().Add(-age)
			reply := b.must("auth/oauth", "", grant(nil))
			if disclaimers != nil && reply.SessionState == record.AcceptDisclaimers {
				reply = b.must("auth/acceptdisclaimers", reply.SessionToken, object{"accept_disclaimers": []string{"terms"}})
			}
			for fresh, want := range map[time.Duration]error{max(age, time.Nanosecond): nil, age - time.Second: wire.ErrSessionInvalid} {
				_, err := b.Authorize(t.Context(), session.Requirement{Fresh: fresh}, []string{"Bearer " + reply.SessionToken})
				if fresh > 0 && !errors.Is(err, want) {
					t.Errorf("%v old: got %v for %v", age, err, fresh)
				}
			}
		}
	}
}

func TestRequirePKCE(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{RequirePKCE: true})
	b.wrong(wire.ErrValidation, "auth/oauth", "", grant(nil))
	b.wrong(wire.ErrValidation, "auth/oauth", "", grant(object{"code_verifier": ""}))
	if len(v.asked) != 0 {
		t.Error("a call went out")
	}
	b.must("auth/oauth", "", grant(object{"code_verifier": verifier}))
}

// The code_verifier is checked first, even before provider_id.
func TestCodeVerifierIsThatOfRFC7636(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	for _, bad := range []string{"x", verifier[1:], verifier[1:] + "+", verifier[1:] + " ", verifier[1:] + "é", verifier + "\n", strings.Repeat("x", 129)} {
		_, err := b.serve("auth/oauth", "", grant(object{"code_verifier": bad, "provider_id": 3}))
		if !errors.Is(err, wire.ErrValidation) || !strings.Contains(refusal(err).Message, "code_verifier") {
			t.Errorf("%q: got %v, %q", bad, err, refusal(err).Message)
		}
	}
	if len(v.asked) != 0 {
		t.Error("a call went out")
	}
	for _, good := range []string{verifier, "-._~" + verifier, strings.Repeat("x", 128)} {
		b.must("auth/oauth", "", grant(object{"code_verifier": good}))
	}
}

// This provider would accept a code any number of times.
func TestACodeIsExchangedOnce(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	b.company.Limits.FailuresPerAddress.N = 1000
	body := grant(nil)
	code := body["code"].(string)
	got := race(20, func(int) error {
		_, err := b.serve("auth/oauth", "", body)
		return err
	})
	if got[""] != 1 || got["auth.oauth.failed"] != 19 || len(v.asked) != 1 {
		t.Errorf("got %v, and the provider was asked %d times", got, len(v.asked))
	}
	body["code"] = " " + code + "\n" // a provider may ignore the spaces
	b.wrong(wire.ErrOAuthFailed, "auth/oauth", "", body)
	body["code"] = code
	b.clock.advance(time.Hour - time.Second)
	b.wrong(wire.ErrOAuthFailed, "auth/oauth", "", body)
	if len(v.asked) != 1 {
		t.Errorf("the provider was asked %d times", len(v.asked))
	}
}

// RFC 9700, section 4.4: a malicious provider can have the user's browser send it a
// code of another provider, with all values that belong to it. It can't log in with
// that code, because the code is already used up, also for other companies.
func TestAProviderCanNotUseAnothersCode(t *testing.T) {
	b, honest := harnessWithProvider(t, tenant.OAuth{})
	evil := &voucher{user: tenant.OAuthUser{Subject: "whoever"}}
	b.company.OAuth[1] = tenant.OAuth{Provider: evil, RedirectURIs: []string{callback}}
	body := grant(object{"provider_id": 1, "code_verifier": verifier, "nonce": "n"})
	b.wrong(wire.ErrOAuthNotFound, "auth/oauth", "", body)
	if len(evil.asked) != 1 || evil.asked[0].Code != body["code"] || evil.links[0] {
		t.Fatalf("the provider was asked %+v", evil.asked)
	}
	body["provider_id"] = 2
	b.wrong(wire.ErrOAuthFailed, "auth/oauth", "", body)
	if len(honest.asked) != 0 {
		t.Error("the code came to its provider")
	}
	if _, err := b.serveAs(b.addCompany("other").Code, "192.0.2.1", "auth/oauth", "", body); !errors.Is(err, wire.ErrOAuthFailed) || len(honest.asked) != 0 {
		t.Errorf("of another company: %v, and the provider was asked %d times", err, len(honest.asked))
	}
}

// Each code counts as a login of its address. While the provider does not answer, an
// address gets its logins back, but made-up codes can't fill the store.
func TestCodesOfAnAddressAreLogins(t *testing.T) {
	for _, fault := range []error{wire.ErrOAuthFailed, errDown} {
		b, v := harnessWithProvider(t, tenant.OAuth{})
		b.company.Limits.FailuresPerAddress = tenant.Unlimited
		v.err = fault
		limit := b.company.Limits.LoginsPerAddress.N
		if fault == errDown {
			for range limit {
				b.wrong(wire.ErrUnavailable, "auth/oauth", "", grant(nil))
			}
			b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
			limit *= 2
		}
		race(200, func(int) error {
			_, err := b.serve("auth/oauth", "", grant(nil))
			return err
		})
		for range limit {
			b.serve("auth/oauth", "", grant(nil))
		}
		if len(v.asked) > limit {
			t.Errorf("%v: the provider was asked %d times, want at most %d", fault, len(v.asked), limit)
		}
		if _, err := b.serve("auth/oauth", "", grant(nil)); refusal(err).Reason != "limit.logins" {
			t.Errorf("got %v, %q", err, refusal(err).Reason)
		}
	}
}

// A wrong client secret, or a provider that answers nonsense, locks out no address.
func TestFaultsOfAProviderAreNoFailuresOfAnAddress(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	v.err = fmt.Errorf("%w: invalid_client", tenant.ErrProviderFault)
	for range b.company.Limits.FailuresPerAddress.N + b.company.Limits.LoginsPerAddress.N {
		b.wrong(wire.ErrOAuthFailed, "auth/oauth", "", grant(nil))
	}
	v.err = nil
	wantStep(t, b.must("auth/oauth", "", grant(nil)), record.Authorized)
}

// The same subject at two providers means two different users.
func TestAnIdentityIsItsProviders(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	b.update(true, func(a *record.Account) { a.Identities = a.Identities[:1] })
	b.wrong(wire.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
	v.user.Subject = "1:alice"
	b.wrong(wire.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
}

func TestLinkVerifiedEmail(t *testing.T) {
	user := tenant.OAuthUser{Subject: "new", Email: "ALICE@example.com", EmailVerified: true}
	for name, c := range map[string]struct {
		off     bool
		account func(*record.Account)
		user    func(*tenant.OAuthUser)
		want    *wire.Error
		logged  string
	}{
		"verified":      {},
		"not verified":  {user: func(u *tenant.OAuthUser) { u.EmailVerified = false }, want: wire.ErrOAuthNotFound, logged: "link_verified_email: the provider gives no email that it has verified"},
		"no email":      {user: func(u *tenant.OAuthUser) { u.Email = "" }, want: wire.ErrOAuthNotFound},
		"case of ASCII": {account: func(a *record.Account) { a.Email = "aLice@EXAMPLE.com" }},
		// These pairs are the same login id, but different mailboxes.
		"fullwidth":              {user: func(u *tenant.OAuthUser) { u.Email = "ａlice@example.com" }, want: wire.ErrOAuthNotFound},
		"Kelvin sign":            {account: func(a *record.Account) { a.Email = "kim@example.com" }, user: func(u *tenant.OAuthUser) { u.Email = "\u212aim@example.com" }, want: wire.ErrOAuthNotFound},
		"sharp s":                {account: func(a *record.Account) { a.Email = "alice@fass.example" }, user: func(u *tenant.OAuthUser) { u.Email = "alice@faß.example" }, want: wire.ErrOAuthNotFound},
		"sharp s of the account": {account: func(a *record.Account) { a.Email = "alice@faß.example" }, user: func(u *tenant.OAuthUser) { u.Email = "alice@fass.example" }, want: wire.ErrOAuthNotFound},
		"the same sharp s":       {account: func(a *record.Account) { a.Email = "alice@faß.example" }, user: func(u *tenant.OAuthUser) { u.Email = "Alice@faß.example" }},
		"decomposed":             {account: func(a *record.Account) { a.Email = "ren\u00e9@example.com" }, user: func(u *tenant.OAuthUser) { u.Email = "rene\u0301@example.com" }, want: wire.ErrOAuthNotFound},
		"a space behind":         {user: func(u *tenant.OAuthUser) { u.Email = "alice@example.com " }, want: wire.ErrOAuthNotFound},
		"case beyond ASCII":      {account: func(a *record.Account) { a.Email = "\u00e9va@example.com" }, user: func(u *tenant.OAuthUser) { u.Email = "\u00c9va@example.com" }, want: wire.ErrOAuthNotFound},
		"the option is off":      {off: true, want: wire.ErrOAuthNotFound},
		"a login name alike":     {account: func(a *record.Account) { a.Email, a.LoginName = "", email }, want: wire.ErrOAuthNotFound, logged: "link_verified_email: no account has the email"},
		"a login name alike beside another email": {account: func(a *record.Account) { a.Email, a.LoginName = "alice@example.org", email }, want: wire.ErrOAuthNotFound},
		"closed": {account: func(a *record.Account) { a.Status = record.StatusClosed }, want: wire.ErrUserClosed},
		"bound to another user": {account: func(a *record.Account) { a.Identities = []record.Identity{{Provider: 2, Subject: "old"}} }, want: wire.ErrOAuthNotFound,
			logged: "link_verified_email: the account with the email is linked to another user of the provider; if that is the same person, remove that identity"},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := harnessWithProvider(t, tenant.OAuth{LinkVerifiedEmail: !c.off})
			b.update(true, func(a *record.Account) {
				a.Identities = nil
				if c.account != nil {
					c.account(a)
				}
			})
			v.user = user
			if c.user != nil {
				c.user(&v.user)
			}
			before, events := b.load(), b.record()
			if c.want != nil {
				b.wrong(c.want, "auth/oauth", "", grant(nil))
				if e := named(events(), "mnemogate.oauth.failure"); len(e) != 1 || c.logged != "" && e[0].Reason != c.logged {
					t.Errorf("got the events %+v, want the reason %q", events(), c.logged)
				}
				if got, want := fmt.Sprint(b.load().Identities), fmt.Sprint(before.Identities); got != want || b.mail.count() != 0 {
					t.Errorf("the identities became %s from %s, and %d mails went out", got, want, b.mail.count())
				}
				return
			}
			wantStep(t, b.must("auth/oauth", "", grant(nil)), record.Authorized)
			if e := named(events(), record.IdentityBound); len(e) != 1 || e[0].Mnemocode != mnemocode || e[0].Reason != "provider 2" {
				t.Errorf("got the events %+v", events())
			}
			if m := b.mail.last(t); m.Type != message.NoticeIdentityBound || m.To != before.Email {
				t.Errorf("the owner was told %+v", m)
			}
			v.user = tenant.OAuthUser{Subject: "new"} // the identity is bound, so the email is no longer needed
			wantStep(t, b.must("auth/oauth", "", grant(nil)), record.Authorized)
			v.user = tenant.OAuthUser{Subject: "newer", Email: email, EmailVerified: true}
			b.wrong(wire.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
			if n := b.mail.count(); n != 1 {
				t.Errorf("the owner was told %d times", n)
			}
		})
	}
}

// The email is changed because its mailbox now belongs to somebody else, who logs in
// at that moment.
func TestAnEmailThatIsJustChangedBindsNobody(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{LinkVerifiedEmail: true})
	b.update(true, func(a *record.Account) { a.Identities = nil })
	v.user = tenant.OAuthUser{Subject: "mallory", Email: email, EmailVerified: true}
	accounts := b.Accounts
	b.Accounts = overtaken{accounts, func() {
		b.Accounts = accounts
		b.update(true, func(a *record.Account) { a.Email = "new@example.com" })
	}}
	b.wrong(wire.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
	if a := b.load(); len(a.Identities) != 0 || a.Email != "new@example.com" {
		t.Errorf("bound: %+v of %s", a.Identities, a.Email)
	}
}

func TestAnIdentityThatWasJustBoundIsItsAccounts(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{LinkVerifiedEmail: true})
	b.update(true, func(a *record.Account) { a.Identities = nil })
	v.user = tenant.OAuthUser{Subject: "new", Email: email, EmailVerified: true}
	b.Accounts = overtaken{b.Accounts, func() {
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "faster", Identities: []record.Identity{{Provider: 2, Subject: "new"}}}})
	}}
	events := b.record()
	session, err := b.authorize(b.must("auth/oauth", "", grant(nil)).SessionToken)
	if err != nil || session.Mnemocode != "faster" || len(b.load().Identities) != 0 {
		t.Errorf("logged in as %q, %v", session.Mnemocode, err)
	}
	if last := events()[len(events())-1]; last.Mnemocode != "faster" || last.Account != session.Account {
		t.Errorf("the event is of %q", last.Mnemocode)
	}
}

func TestRacingUsersAreBoundToOne(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{LinkVerifiedEmail: true})
	b.update(true, func(a *record.Account) { a.Identities = nil })
	v.user = tenant.OAuthUser{Subject: "new", Email: email, EmailVerified: true}
	got := race(50, func(int) error {
		_, err := b.serve("auth/oauth", "", grant(nil))
		return err
	})
	b.Close()
	if got[""] == 0 || got[""]+got["auth.oauth.notfound"] != 50 || len(b.load().Identities) != 1 || b.mail.count() != 1 {
		t.Errorf("got %v, the identities %v and %d mails", got, b.load().Identities, b.mail.count())
	}
}

// mnemogate can't know whether the provider received the code, so nobody may send it
// again.
func TestACodeIsSpentWhateverComesOfIt(t *testing.T) {
	b, v := harnessWithProvider(t, tenant.OAuth{})
	body := grant(nil)
	v.err = errDown
	_, err := b.serve("auth/oauth", "", body)
	if wantError(t, err, wire.ErrUnavailable); !strings.Contains(refusal(err).Message, "Start again at the provider") {
		t.Errorf("the client is told %q", refusal(err).Message)
	}
	v.err = nil
	b.wrong(wire.ErrOAuthFailed, "auth/oauth", "", body)
	// No provider was asked with these codes, so they are still unused.
	body = grant(object{"redirect_uri": callback + "/"})
	b.wrong(wire.ErrOAuthFailed, "auth/oauth", "", body)
	body["redirect_uri"] = callback
	b.must("auth/oauth", "", body)
}
