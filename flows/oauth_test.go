package flows_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
)

// A voucher is a provider that says what it is told to, and keeps what it was asked.
type voucher struct {
	mu    sync.Mutex
	asked []flows.OAuthGrant
	user  flows.OAuthUser
	err   error
}

func (v *voucher) Exchange(_ context.Context, g flows.OAuthGrant) (flows.OAuthUser, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, g)
	return v.user, v.err
}

const callback = "https://app.example.com/cb"

// benchWithProvider adds provider 2.
func benchWithProvider(t *testing.T, config flows.OAuth) (*bench, *voucher) {
	t.Helper()
	b := newBench(t)
	v := &voucher{user: flows.OAuthUser{Subject: "alice"}}
	config.Provider = v
	config.RedirectURIs = []string{"https://other.example.com/cb", callback}
	b.company.OAuth[2] = config
	b.update(true, func(a *flows.Account) {
		a.Identities = append(a.Identities, flows.Identity{Provider: 2, Subject: "alice"})
	})
	return b, v
}

func grant(more object) object {
	body := object{"provider_id": 2, "code": "abc", "redirect_uri": callback}
	for k, v := range more {
		body[k] = v
	}
	return body
}

func TestOAuthPassesOnWhatTheClientBrought(t *testing.T) {
	b, v := benchWithProvider(t, flows.OAuth{})
	wantStep(t, b.must("auth/oauth", "not looked at", grant(object{"code_verifier": "verifier", "nonce": "nonce"})), flows.Authorized)
	want := flows.OAuthGrant{Code: "abc", RedirectURI: callback, CodeVerifier: "verifier", Nonce: "nonce"}
	if len(v.asked) != 1 || v.asked[0] != want {
		t.Errorf("the provider was asked %+v", v.asked)
	}
}

func TestOAuthRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change object
		user   flows.OAuthUser
		err    error
		want   *flows.Error
		asked  bool
	}{
		"provider 0":             {change: object{"provider_id": 0}, want: flows.ErrValidation},
		"provider 3":             {change: object{"provider_id": 3}, want: flows.ErrValidation},
		"provider 6":             {change: object{"provider_id": 6}, want: flows.ErrValidation},
		"provider -1":            {change: object{"provider_id": -1}, want: flows.ErrValidation},
		"provider 2.5":           {change: object{"provider_id": 2.5}, want: flows.ErrValidation},
		"provider as text":       {change: object{"provider_id": "2"}, want: flows.ErrValidation},
		"no code":                {change: object{"code": ""}, want: flows.ErrValidation},
		"no redirect_uri":        {change: object{"redirect_uri": nil}, want: flows.ErrValidation},
		"redirect with a slash":  {change: object{"redirect_uri": callback + "/"}, want: flows.ErrOAuthFailed},
		"redirect with a query":  {change: object{"redirect_uri": callback + "?x"}, want: flows.ErrOAuthFailed},
		"redirect in upper case": {change: object{"redirect_uri": "https://APP.example.com/cb"}, want: flows.ErrOAuthFailed},
		"another's redirect":     {change: object{"redirect_uri": "https://evil.example.com/cb"}, want: flows.ErrOAuthFailed},
		"refused":                {err: flows.ErrOAuthFailed, want: flows.ErrOAuthFailed, asked: true},
		"refused, with a reason": {err: fmt.Errorf("invalid_grant: %w", flows.ErrOAuthFailed), want: flows.ErrOAuthFailed, asked: true},
		"down":                   {err: errors.New("connection refused"), want: flows.ErrUnavailable, asked: true},
		"nobody":                 {user: flows.OAuthUser{Email: email, EmailVerified: true}, want: flows.ErrOAuthFailed, asked: true},
		"unknown":                {user: flows.OAuthUser{Subject: "bob", Email: email, EmailVerified: true}, want: flows.ErrOAuthNotFound, asked: true},
		"another spelling":       {user: flows.OAuthUser{Subject: "Alice"}, want: flows.ErrOAuthNotFound, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := benchWithProvider(t, flows.OAuth{})
			v.err = c.err
			if c.user != (flows.OAuthUser{}) {
				v.user = c.user
			}
			b.wrong(c.want, "auth/oauth", "", grant(c.change))
			if got := len(v.asked) > 0; got != c.asked {
				t.Errorf("a call went out: %v, want %v", got, c.asked)
			}
		})
	}
}

func TestRequirePKCE(t *testing.T) {
	b, v := benchWithProvider(t, flows.OAuth{RequirePKCE: true})
	b.wrong(flows.ErrValidation, "auth/oauth", "", grant(nil))
	b.wrong(flows.ErrValidation, "auth/oauth", "", grant(object{"code_verifier": ""}))
	if len(v.asked) != 0 {
		t.Error("a call went out")
	}
	b.must("auth/oauth", "", grant(object{"code_verifier": "verifier"}))
}

// An identity is its provider's: the same subject of another is someone else.
func TestAnIdentityIsItsProviders(t *testing.T) {
	b, v := benchWithProvider(t, flows.OAuth{})
	b.update(true, func(a *flows.Account) { a.Identities = a.Identities[:1] })
	b.wrong(flows.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
	v.user.Subject = "1:alice"
	b.wrong(flows.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
}

func TestNoSecondFactorOrNewPasswordAfterOAuth(t *testing.T) {
	b := newBench(t)
	b.company.SecondFactor = flows.SecondFactorRequired
	b.company.Password.Required = true
	b.update(true, func(a *flows.Account) { a.SecondFactor, a.MustSetPassword = true, true })
	wantStep(t, b.must("auth/oauth", "", b.goodBody("auth/oauth")), flows.Authorized)
	b.update(true, func(a *flows.Account) { a.Phone, a.PasswordHash = "", "" })
	wantStep(t, b.must("auth/oauth", "", b.goodBody("auth/oauth")), flows.Authorized)
}

func TestLinkVerifiedEmail(t *testing.T) {
	user := flows.OAuthUser{Subject: "new", Email: "ALICE@example.com", EmailVerified: true}
	for name, c := range map[string]struct {
		off     bool
		account func(*flows.Account)
		user    func(*flows.OAuthUser)
		want    *flows.Error
	}{
		"verified":           {},
		"not verified":       {user: func(u *flows.OAuthUser) { u.EmailVerified = false }, want: flows.ErrOAuthNotFound},
		"no email":           {user: func(u *flows.OAuthUser) { u.Email = "" }, want: flows.ErrOAuthNotFound},
		"another email":      {user: func(u *flows.OAuthUser) { u.Email = "bob@example.com" }, want: flows.ErrOAuthNotFound},
		"the option is off":  {off: true, want: flows.ErrOAuthNotFound},
		"a login name alike": {account: func(a *flows.Account) { a.Email, a.LoginName = "", email }, want: flows.ErrOAuthNotFound},
		"a login name alike beside another email": {
			account: func(a *flows.Account) { a.Email, a.LoginName = "alice@example.org", email }, want: flows.ErrOAuthNotFound,
		},
		"the phone for an email": {user: func(u *flows.OAuthUser) { u.Email = phone }, want: flows.ErrOAuthNotFound},
		"restricted":             {account: func(a *flows.Account) { a.Status = flows.StatusRestricted }, want: flows.ErrUserRestricted},
		"closed":                 {account: func(a *flows.Account) { a.Status = flows.StatusClosed }, want: flows.ErrUserClosed},
		"bound to another user": {
			account: func(a *flows.Account) { a.Identities = []flows.Identity{{Provider: 2, Subject: "old"}} }, want: flows.ErrOAuthNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := benchWithProvider(t, flows.OAuth{LinkVerifiedEmail: !c.off})
			b.update(true, func(a *flows.Account) {
				a.Identities = nil
				if c.account != nil {
					c.account(a)
				}
			})
			v.user = user
			if c.user != nil {
				c.user(&v.user)
			}
			before := b.load()
			if c.want != nil {
				b.wrong(c.want, "auth/oauth", "", grant(nil))
				if got, want := fmt.Sprint(b.load().Identities), fmt.Sprint(before.Identities); got != want {
					t.Errorf("the identities became %s from %s", got, want)
				}
				return
			}
			wantStep(t, b.must("auth/oauth", "", grant(nil)), flows.Authorized)
			v.user = flows.OAuthUser{Subject: "new"} // bound: the email is not needed again
			wantStep(t, b.must("auth/oauth", "", grant(nil)), flows.Authorized)
			v.user = flows.OAuthUser{Subject: "newer", Email: email, EmailVerified: true}
			b.wrong(flows.ErrOAuthNotFound, "auth/oauth", "", grant(nil))
		})
	}
}

func TestRacingUsersAreBoundToOne(t *testing.T) {
	b, v := benchWithProvider(t, flows.OAuth{LinkVerifiedEmail: true})
	b.update(true, func(a *flows.Account) { a.Identities = nil })
	v.user = flows.OAuthUser{Subject: "new", Email: email, EmailVerified: true}
	got := race(50, func(int) error {
		_, err := b.serve("auth/oauth", "", grant(nil))
		return err
	})
	if got[""] == 0 || got[""]+got["auth.oauth.notfound"] != 50 || len(b.load().Identities) != 1 {
		t.Errorf("got %v and the identities %v", got, b.load().Identities)
	}
}
