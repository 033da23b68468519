package oauth

import (
	"crypto"
	"encoding/base64"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestOAuthCaddyfile(t *testing.T) {
	guesttest.Caddyfiles(t, new(OIDC), []guesttest.Case{
		{Name: "no issuer", Text: "oidc {\nclient_id x\n}", Err: "<issuer> is missing; write oidc <issuer> [insecure]"},
		{Name: "two issuers", Text: "oidc https://a https://b", Err: "wrong argument count"},
		{Name: "require_pkce off", Text: "oidc https://a {\nrequire_pkce off\n}", Err: "wrong argument count"},
	})
	guesttest.Caddyfiles(t, new(OAuth2), []guesttest.Case{
		{Name: "only an email", Text: "oauth2 {\nemail mail\n}", Err: "client_id is missing"},
		{Name: "argument", Text: "oauth2 x", Err: "wrong argument count"},
		{Name: "no email", Text: "oauth2 {\nemail\n}", Err: "<field> is missing; write email <field> [<verified_field>]"},
		{Name: "three emails", Text: "oauth2 {\nemail a b c\n}", Err: "wrong argument count"},
	})
}

// us is a client that nothing is wrong with.
var us = oauthClient{ClientID: "me", ClientSecret: "hidden-secret", RedirectURI: []string{"https://a.example/cb"}}

func TestOAuthRefusesABadConfiguration(t *testing.T) {
	with := func(change func(*oauthClient)) oauthClient {
		c := us
		change(&c)
		return c
	}
	o := OAuth2{TokenURL: "https://id.example/token", UserinfoURL: "https://id.example/me", Subject: "id", oauthClient: us}
	oauth2With := func(change func(*OAuth2)) *OAuth2 {
		p := o
		change(&p)
		return &p
	}
	for name, c := range map[string]struct {
		m    any
		want string
	}{
		"no issuer":      {&OIDC{oauthClient: us}, "oauth oidc: issuer"},
		"credentials":    {&OIDC{Issuer: "https://u:hidden@id.example", oauthClient: us}, "oauth oidc: issuer"},
		"query":          {&OIDC{Issuer: "https://id.example?x", oauthClient: us}, "oauth oidc: issuer"},
		"no client":      {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.ClientID = "" })}, "client_id"},
		"no secret":      {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.ClientSecret = "" })}, "client_secret"},
		"unset secret":   {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.ClientSecret = "{env.MNEMOGATE_TEST_ABSENT}" })}, "client_secret"},
		"no redirect":    {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.RedirectURI = nil })}, "redirect_uri"},
		"relative":       {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.RedirectURI = []string{"/cb"} })}, "redirect_uri"},
		"redirect space": {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.RedirectURI = []string{"https://a/my app"} })}, "redirect_uri"},
		"no host":        {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.RedirectURI = []string{"https:///cb"} })}, "redirect_uri"},
		"too long":       {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.RedirectURI = []string{"https://a/" + strings.Repeat("x", 2048)} })}, "redirect_uri"},
		"fragment":       {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.RedirectURI = []string{"https://a/#x"} })}, "redirect_uri"},
		"timeout":        {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.Timeout = -1 })}, "timeout"},
		"no userinfo":    {oauth2With(func(p *OAuth2) { p.UserinfoURL = "" }), "userinfo_url"},
		"no subject":     {oauth2With(func(p *OAuth2) { p.Subject = "" }), "subject"},
		"auth style":     {oauth2With(func(p *OAuth2) { p.AuthStyle = "auto" }), "auth_style"},
		"response mode":  {&OIDC{Issuer: "https://id.example", oauthClient: with(func(c *oauthClient) { c.ResponseMode = "fragment" })}, "oauth oidc: response_mode"},
		"apple's email":  {&OIDC{Issuer: "https://appleid.apple.com", oauthClient: with(func(c *oauthClient) { c.Scope = []string{"openid", "email"} })}, "oauth oidc: response_mode is missing"},
		"apple's link":   {&OIDC{Issuer: "https://appleid.apple.com", oauthClient: with(func(c *oauthClient) { c.LinkVerifiedEmail = true })}, "oauth oidc: response_mode is missing"},
		"unlinkable":     {oauth2With(func(p *OAuth2) { p.LinkVerifiedEmail = true; p.Email = "mail" }), "link_verified_email"},
		"oauth2's own":   {oauth2With(func(p *OAuth2) { p.ClientID = "" }), "oauth oauth2: client_id"},
		"token with key": {oauth2With(func(p *OAuth2) { p.TokenURL = "https://u:hidden@id.example/token" }), "token_url"},
	} {
		t.Run(name, func(t *testing.T) {
			err := guesttest.Start(t, c.m)
			guesttest.NoSecrets(t, err, "hidden")
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	guesttest.MustStart(t, oauth2With(func(p *OAuth2) { p.ClientSecret = ""; p.RequirePKCE = true }))
	guesttest.MustStart(t, &OIDC{Issuer: "http://localhost:8080/realm", oauthClient: us})
}

var grant = tenant.OAuthGrant{Code: "hidden-code", RedirectURI: "https://a.example/cb", CodeVerifier: "hidden-verifier", Nonce: "n-1"}

// FuzzIDToken lets a stranger write ID tokens: none may log anyone in.
func FuzzIDToken(f *testing.F) {
	issuer := newIssuer(f)
	p := &OIDC{Issuer: issuer.URL, oauthClient: us, now: time.Now}
	at := &discovery{Algorithms: idTokenAlgorithms, keySet: &keySet{keys: &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{
		testKeys()["RS256"].Public(), testKeys()["ES256"].Public()}}}}
	good := sign("RS256", "RS256", issuer.claims)
	if _, err := p.verify(f.Context(), at, good, grant); err != nil {
		f.Fatal(err)
	}
	foreign := maps.Clone(issuer.claims)
	foreign["aud"] = "you"
	part := base64.RawURLEncoding.EncodeToString
	for _, seed := range []string{
		sign("ES256", "ES256", foreign),
		sign("HS256", "RS256", issuer.claims),
		part([]byte(`{"alg":"none"}`)) + "." + strings.Split(good, ".")[1] + ".",
		good[:len(good)-8],
		`{"payload":"e30","signatures":[]}`,
		"..",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		user, err := p.verify(t.Context(), at, raw, grant)
		if err == nil && raw != good || err != nil && (!errors.Is(err, wire.ErrOAuthFailed) || user.Subject != "") {
			t.Errorf("%q: %+v, %v", raw, user, err)
		}
	})
}

// FuzzUserinfo lets a stranger answer for the provider: whatever comes is kept
// or refused.
func FuzzUserinfo(f *testing.F) {
	f.Add([]byte(`{"id":12345678901234567890,"email":"a@b","verified":true}`), "id")
	f.Add([]byte(`{"data":[{"id":"x"}]}`), "data.0.id")
	f.Add([]byte(`{"id":-0}`), "id")
	f.Add([]byte(`[]`), "")
	f.Fuzz(func(t *testing.T, body []byte, subject string) {
		p := &OAuth2{Subject: subject, Email: "email", Verified: "verified"}
		user, err := p.user(body)
		if err == nil && !record.IsSubject(user.Subject) || err != nil && !errors.Is(err, wire.ErrOAuthFailed) {
			t.Errorf("%+v, %v", user, err)
		}
	})
}
