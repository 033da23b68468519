package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(new(OIDC)) }

// OIDC logs users in with an OpenID Connect provider. It fetches the discovery
// document at the first login and keeps it until the configuration is reloaded.
// After a failure the next login tries again. It verifies the ID token's signature,
// issuer, audience and times, and its nonce if the client sends one. The email and the
// time of the login come from the ID token. It uses only https unless the issuer is
// http, on this machine or with insecure, and follows no redirects. See oauthClient for
// the other options.
type OIDC struct {
	// The issuer, exactly as the provider writes it. The discovery document is below
	// it, at /.well-known/openid-configuration.
	Issuer string `json:"issuer,omitempty"`
	oauthClient

	found  atomic.Pointer[discovery]
	failed atomic.Pointer[failure]
	flight singleflight.Group
	now    func() time.Time
}

// discovery is an issuer's discovery document.
type discovery struct {
	StartURL    string   `json:"authorization_endpoint"`
	Challenges  []string `json:"code_challenge_methods_supported"`
	TokenURL    string   `json:"token_endpoint"`
	KeysURL     string   `json:"jwks_uri"`
	Algorithms  []string `json:"id_token_signing_alg_values_supported"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`

	style oauth2.AuthStyle
	keys  oidc.KeySet
}

// A failure records why and when the last discovery failed.
type failure struct {
	err error
	at  time.Time
}

// askAgain is how long Start returns the last failure before it asks an issuer
// again.
const askAgain = 5 * time.Second

// CaddyModule returns the Caddy module information.
func (*OIDC) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.oauth.oidc", New: func() caddy.Module { return new(OIDC) }}
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens. Syntax:
//
//	oidc <issuer> [insecure] {
//		client_id <id>
//		client_secret <secret>
//		redirect_uri <uri>...
//		name <text>
//		scope <scope>...
//		require_pkce
//		link_verified_email
//		timeout <duration>
//	}
func (p *OIDC) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := guest.Address(d, &p.Issuer, &p.Insecure)(); err != nil {
		return err
	}
	return guest.Complete(d, guest.Options(d, p.options(d)), p.checkGiven)
}

// Provision sets the defaults and resolves the placeholders.
func (p *OIDC) Provision(caddy.Context) error {
	p.now = time.Now
	p.nameAfter(p.Issuer)
	if p.Scope == nil {
		p.Scope = []string{oidc.ScopeOpenID}
		if p.LinkVerifiedEmail {
			p.Scope = append(p.Scope, "email")
		}
	}
	return p.provision("oauth oidc")
}

// Validate refuses an incomplete provider.
func (p *OIDC) Validate() error {
	if u, err := p.url(p.Issuer); err != nil {
		return fmt.Errorf("oauth oidc: issuer: %w", err)
	} else if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("oauth oidc: issuer: leave out what follows ? or #")
	}
	if !slices.Contains(p.Scope, oidc.ScopeOpenID) {
		return errors.New("oauth oidc: scope: openid is missing, without which there is no ID token; add it")
	}
	return p.validate("oauth oidc")
}

// Endpoint implements guest.Remote.
func (p *OIDC) Endpoint() string { return guest.EndpointOf(p.Issuer) }

// Weaknesses implements guest.Weak.
func (p *OIDC) Weaknesses() []guest.Weakness { return guest.HTTPWeakness(p.Insecure, p.Issuer) }

// Exchange implements tenant.OAuthProvider.
func (p *OIDC) Exchange(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	ctx, cancel := p.begin(ctx)
	defer cancel()
	user, err := p.login(ctx, grant)
	if err != nil {
		return tenant.OAuthUser{}, fmt.Errorf("oauth oidc %s: %w", p.Issuer, err)
	}
	return user, nil
}

func (p *OIDC) login(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	at, err := p.discovered(ctx)
	if err != nil {
		return tenant.OAuthUser{}, fmt.Errorf("discovery: %w", err)
	}
	token, err := p.exchange(ctx, at.TokenURL, at.style, grant)
	if err != nil {
		return tenant.OAuthUser{}, err
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return tenant.OAuthUser{}, providerFault("the token endpoint answered no id_token")
	}
	return p.verify(ctx, at, raw, grant)
}

// Start implements tenant.OAuthAuthorizer.
func (p *OIDC) Start(ctx context.Context) (tenant.OAuthStart, error) {
	if last := p.failed.Load(); last != nil && p.found.Load() == nil && p.now().Sub(last.at) < askAgain {
		return tenant.OAuthStart{}, last.err
	}
	at, err := p.discovered(ctx)
	if err != nil {
		return tenant.OAuthStart{}, fmt.Errorf("oauth oidc %s: discovery: %w", p.Issuer, err)
	}
	if _, err := p.endpoint(at.StartURL); err != nil {
		return tenant.OAuthStart{}, fmt.Errorf("oauth oidc %s: its document's authorization_endpoint is missing or not https", p.Issuer)
	}
	return tenant.OAuthStart{URL: at.StartURL, PKCE: slices.Contains(at.Challenges, "S256")}, nil
}

// discovered returns the issuer's discovery document. Concurrent callers share one
// request, and each waits no longer than its own context allows.
func (p *OIDC) discovered(ctx context.Context) (*discovery, error) {
	if known := p.found.Load(); known != nil {
		return known, nil
	}
	answer := p.flight.DoChan("", func() (any, error) {
		ctx, cancel := p.begin(context.WithoutCancel(ctx))
		defer cancel()
		var at *discovery
		err := panics.Contain(func() (err error) { // no caller would recover a panic in this goroutine
			at, err = p.discover(ctx)
			return err
		})
		if err == nil {
			p.found.Store(at)
		} else {
			p.failed.Store(&failure{fmt.Errorf("oauth oidc %s: discovery: %w", p.Issuer, err), p.now()})
		}
		return at, err
	})
	select {
	case <-ctx.Done():
		return nil, guest.Cause(ctx.Err())
	case result := <-answer:
		at, _ := result.Val.(*discovery)
		return at, result.Err
	}
}

// endpoint parses an address of the discovery document. For an https issuer it must be
// https: the document must not lead to servers of this machine, like Caddy's admin
// endpoint.
func (p *OIDC) endpoint(s string) (*url.URL, error) {
	u, err := p.url(s)
	if err == nil && u.Scheme != "https" && !p.Insecure && strings.HasPrefix(p.Issuer, "https:") {
		return nil, errors.New("it is not https")
	}
	return u, err
}

func (p *OIDC) discover(ctx context.Context) (*discovery, error) {
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if other, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return nil, fmt.Errorf("the document is the issuer's %q, which must be written exactly so", guest.Scrub(other.Discovered))
	}
	if requestFailed(err) {
		return nil, guest.Cause(err)
	}
	if err != nil {
		return nil, errors.New("there is no discovery document that can be read")
	}
	at := new(discovery)
	if err := provider.Claims(at); err != nil {
		return nil, errors.New("the document has a field of an unexpected type")
	}
	for _, endpoint := range []string{at.TokenURL, at.KeysURL} {
		if _, err := p.endpoint(endpoint); err != nil {
			return nil, errors.New("the document's token_endpoint or jwks_uri is missing or not https")
		}
	}
	at.Algorithms = slices.DeleteFunc(at.Algorithms, func(alg string) bool { return !slices.Contains(idTokenAlgorithms, alg) })
	at.keys = oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), p.client), at.KeysURL)
	at.style, err = at.authStyle()
	return at, err
}

// idTokenAlgorithms are the asymmetric algorithms. Others prove nothing: anyone who
// knows the client secret could sign, or there is no key at all.
var idTokenAlgorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512,
	oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.EdDSA,
}

// authStyle chooses how to send the client secret. Without a list the default is
// client_secret_basic (OpenID Connect Discovery, section 3).
func (at *discovery) authStyle() (oauth2.AuthStyle, error) {
	switch methods := at.AuthMethods; {
	case len(methods) == 0, slices.Contains(methods, "client_secret_basic"):
		return oauth2.AuthStyleInHeader, nil
	case slices.Contains(methods, "client_secret_post"), slices.Contains(methods, "none"):
		return oauth2.AuthStyleInParams, nil
	default:
		return 0, errors.New("the provider takes neither client_secret_basic nor client_secret_post")
	}
}

// keyErrors keeps the error of a KeySet, which go-oidc reduces to text.
type keyErrors struct {
	oidc.KeySet
	err error
}

// VerifySignature implements oidc.KeySet.
func (k *keyErrors) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	k.err = err
	return payload, err
}

// idClaims are the claims of an ID token that go-oidc does not verify.
type idClaims struct {
	AuthorizedParty string    `json:"azp"`
	AuthTime        any       `json:"auth_time"` // a number, but some providers write a string
	Email           string    `json:"email"`
	EmailVerified   looseBool `json:"email_verified"`
}

// looseBool is a bool that some providers write as a string.
type looseBool bool

// UnmarshalJSON implements json.Unmarshaler. Any value other than true is false.
func (b *looseBool) UnmarshalJSON(text []byte) error {
	*b = string(text) == "true" || string(text) == `"true"`
	return nil
}

// verify verifies an ID token (OpenID Connect Core, section 3.1.3.7).
func (p *OIDC) verify(ctx context.Context, at *discovery, raw string, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	keys := &keyErrors{KeySet: at.keys}
	config := &oidc.Config{ClientID: p.ClientID, SupportedSigningAlgs: at.Algorithms}
	token, err := oidc.NewVerifier(p.Issuer, keys, config).Verify(ctx, raw)
	if requestFailed(keys.err) {
		return tenant.OAuthUser{}, fmt.Errorf("asking for the provider's keys: %w", guest.Cause(keys.err))
	}
	if err != nil {
		cause := guest.Scrub(err.Error(), raw, p.ClientSecret, grant.Code, grant.CodeVerifier, grant.Nonce) // the token may repeat them
		return tenant.OAuthUser{}, providerFault("its ID token: %s", cause)
	}
	var claims idClaims
	if token.Claims(&claims) != nil {
		return tenant.OAuthUser{}, providerFault("its ID token: a claim has an unexpected type")
	}
	if err := p.checkClaims(token, claims, grant.Nonce, p.now()); err != nil {
		return tenant.OAuthUser{}, err
	}
	user, err := newOAuthUser(token.Subject, claims.Email, bool(claims.EmailVerified))
	if at, _ := strconv.ParseFloat(fmt.Sprint(claims.AuthTime), 64); err == nil && 0 < at && at < 1<<40 {
		user.AuthTime = time.Unix(int64(at), 0)
	}
	return user, err
}

func (p *OIDC) checkClaims(token *oidc.IDToken, claims idClaims, nonce string, now time.Time) error {
	switch {
	case token.IssuedAt.IsZero() || token.IssuedAt.After(now.Add(clockSkew)):
		return providerFault("its ID token has no iat, or one in the future")
	case len(token.Audience) > 1 && claims.AuthorizedParty != p.ClientID:
		return providerFault("its ID token has several audiences, and azp is not this client")
	case nonce != "" && token.Nonce != nonce:
		return oauthFailed("its ID token has no nonce, or another than the client sent")
	default:
		return nil
	}
}

// Interface guards
var (
	_ guest.OAuthModule      = (*OIDC)(nil)
	_ tenant.OAuthAuthorizer = (*OIDC)(nil)
	_ guest.Remote           = (*OIDC)(nil)
	_ guest.Weak             = (*OIDC)(nil)
	_ caddy.Provisioner      = (*OIDC)(nil)
	_ caddy.Validator        = (*OIDC)(nil)
	_ caddyfile.Unmarshaler  = (*OIDC)(nil)
)
