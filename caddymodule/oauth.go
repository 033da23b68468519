package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/mnemogate/mnemogate/flows"
)

func init() {
	caddy.RegisterModule(new(OIDC))
	caddy.RegisterModule(OAuth2{})
}

const (
	defaultOAuthTimeout = caddy.Duration(5 * time.Second)
	maxOAuthAnswer      = 1 << 20
	maxSubject          = 255 // OpenID Connect Core 2, sub
	clockSkew           = 5 * time.Minute
)

// An OAuthGuest is what a module of the namespace mnemogate.oauth must be.
type OAuthGuest interface {
	flows.OAuthProvider
	// Settings returns what the company decided for this provider; the field
	// Provider is not set.
	Settings() flows.OAuth
}

// oauthClient is what the providers share: who we are to them.
type oauthClient struct {
	// The client id that the provider gave you; required.
	ClientID string `json:"client_id,omitempty"`

	// The client secret that the provider gave you. Use a placeholder like
	// {env.NAME} or {file.PATH} for it. May be left out only with
	// require_pkce.
	ClientSecret string `json:"client_secret,omitempty"`

	// The redirect URIs that clients may use, character by character; at
	// least one.
	RedirectURI []string `json:"redirect_uri,omitempty"`

	// Refuse a login without code_verifier (RFC 7636). Default: false.
	RequirePKCE bool `json:"require_pkce,omitempty"`

	// Bind an account to the provider's user at the first login if its primary
	// email is one that the provider says it has verified. Only for providers
	// that you trust with every account. Default: false.
	LinkVerifiedEmail bool `json:"link_verified_email,omitempty"`

	// How long one login may take at the provider, all requests together, at
	// most 1m. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	client *http.Client
}

// Settings implements OAuthGuest.
func (c *oauthClient) Settings() flows.OAuth {
	return flows.OAuth{
		RedirectURIs:      slices.Clone(c.RedirectURI),
		RequirePKCE:       c.RequirePKCE,
		LinkVerifiedEmail: c.LinkVerifiedEmail,
	}
}

// options returns those that every provider has.
func (c *oauthClient) options(d *caddyfile.Dispenser) map[string]func() error {
	return map[string]func() error{
		"client_id":           oneArg(d, &c.ClientID),
		"client_secret":       oneArg(d, &c.ClientSecret),
		"redirect_uri":        someArgs(d, &c.RedirectURI),
		"require_pkce":        noArgs(d, &c.RequirePKCE),
		"link_verified_email": noArgs(d, &c.LinkVerifiedEmail),
		"timeout":             durationArg(d, &c.Timeout),
	}
}

func (c *oauthClient) provision(what string) error {
	if c.Timeout == 0 {
		c.Timeout = defaultOAuthTimeout
	}
	c.client = outboundClient(whole{limit: maxOAuthAnswer, httpsOnly: true}, c.Timeout)
	return errors.Join(
		resolveInto(what+": client_id", &c.ClientID),
		resolveInto(what+": client_secret", &c.ClientSecret))
}

func (c *oauthClient) validate(what string) error {
	if c.ClientID == "" {
		return fmt.Errorf("%s: client_id is missing", what)
	}
	if c.ClientSecret == "" && !c.RequirePKCE {
		return fmt.Errorf("%s: client_secret is missing; a client without one needs require_pkce", what)
	}
	if len(c.RedirectURI) == 0 {
		return fmt.Errorf("%s: redirect_uri is missing; name each that clients use", what)
	}
	for _, uri := range c.RedirectURI {
		if u, err := url.Parse(uri); err != nil || u.Scheme == "" || strings.Contains(uri, "#") {
			return fmt.Errorf("%s: redirect_uri: %q is not an absolute URI without a fragment", what, uri)
		}
	}
	return checkTimeout(what, c.Timeout)
}

// begin bounds all that one login does at the provider.
func (c *oauthClient) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = oidc.ClientContext(ctx, c.client) // is x/oauth2's, too
	return context.WithTimeout(ctx, time.Duration(c.Timeout))
}

// exchange trades the code for tokens. The style is never x/oauth2's own
// choice: to find one it would spend the code twice.
func (c *oauthClient) exchange(ctx context.Context, tokenURL string, style oauth2.AuthStyle, grant flows.OAuthGrant) (*oauth2.Token, error) {
	if c.ClientSecret == "" {
		style = oauth2.AuthStyleInParams // RFC 6749 3.2.1: a public client names itself
	}
	config := oauth2.Config{
		ClientID:     c.ClientID,
		ClientSecret: c.ClientSecret,
		RedirectURL:  grant.RedirectURI,
		Endpoint:     oauth2.Endpoint{TokenURL: tokenURL, AuthStyle: style},
	}
	var options []oauth2.AuthCodeOption
	if grant.CodeVerifier != "" {
		options = append(options, oauth2.VerifierOption(grant.CodeVerifier))
	}
	token, err := config.Exchange(ctx, grant.Code, options...)
	if err != nil {
		return nil, tokenError(err)
	}
	return token, nil
}

// oauthFailed says why the provider's word is not taken.
func oauthFailed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", flows.ErrOAuthFailed, fmt.Sprintf(format, args...))
}

// tokenErrorCodes are those of RFC 6749 5.2 and of GitHub. Any other might be
// what was sent.
var tokenErrorCodes = []string{
	"invalid_request",
	"invalid_client",
	"invalid_grant",
	"unauthorized_client",
	"unsupported_grant_type",
	"invalid_scope",
	"incorrect_client_credentials",
	"redirect_uri_mismatch",
	"bad_verification_code",
}

// tokenError tells a refusal from an outage. The text of x/oauth2's error
// holds the answer's body, so none of it is used.
func tokenError(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if slices.Contains(tokenErrorCodes, refused.ErrorCode) {
			return oauthFailed("the token endpoint answered %s", refused.ErrorCode)
		}
		return oauthFailed("the token endpoint answered %d", refused.Response.StatusCode)
	}
	if unreached(err) {
		return fmt.Errorf("asking the token endpoint: %w", netCause(err))
	}
	return oauthFailed("the token endpoint's answer is too large, or not JSON with an access_token")
}

// unreached reports whether a request failed, rather than its answer.
func unreached(err error) bool {
	if errors.Is(err, errTooLarge) {
		return false
	}
	_, ok := errors.AsType[*url.Error](err)
	return ok || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// usableSubject reports whether a store can keep the subject.
func usableSubject(s string) bool {
	return s != "" && len(s) <= maxSubject && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// newOAuthUser refuses a subject that can't be kept, and leaves out an email
// that is none.
func newOAuthUser(subject, email string, verified bool) (flows.OAuthUser, error) {
	if !usableSubject(subject) {
		return flows.OAuthUser{}, oauthFailed("the provider names the user in a way that can't be kept")
	}
	if !strings.Contains(email, "@") || strings.ContainsFunc(email, unicode.IsControl) {
		return flows.OAuthUser{Subject: subject}, nil
	}
	return flows.OAuthUser{Subject: subject, Email: email, EmailVerified: verified}, nil
}

// OIDC logs users in with an OpenID Connect provider. Its discovery document
// is fetched at the first login and kept until the configuration is loaded
// anew; a failure is tried again with the next login. The ID token's
// signature, issuer, audience and times are verified, and its nonce if the
// client sends one; the email is taken from it. Only https is spoken, but to
// this machine, and no redirect is followed.
type OIDC struct {
	// The issuer, exactly as the provider writes it; its discovery document is
	// below it, at /.well-known/openid-configuration.
	Issuer string `json:"issuer,omitempty"`
	oauthClient

	found  atomic.Pointer[discovery]
	flight singleflight.Group
}

// discovery is what an issuer says of itself.
type discovery struct {
	TokenURL    string   `json:"token_endpoint"`
	KeysURL     string   `json:"jwks_uri"`
	Algorithms  []string `json:"id_token_signing_alg_values_supported"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`

	style oauth2.AuthStyle
	keys  oidc.KeySet
}

// CaddyModule returns the Caddy module information.
func (*OIDC) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.oauth.oidc", New: func() caddy.Module { return new(OIDC) }}
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens. Syntax:
//
//	oidc <issuer> {
//		client_id <id>
//		client_secret <secret>
//		redirect_uri <uri>...
//		require_pkce
//		link_verified_email
//		timeout <duration>
//	}
func (p *OIDC) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := oneArg(d, &p.Issuer)(); err != nil {
		return err
	}
	return guestOptions(d, p.options(d))
}

// Provision sets the defaults and resolves the placeholders.
func (p *OIDC) Provision(caddy.Context) error { return p.provision("oauth oidc") }

// Validate refuses an incomplete provider.
func (p *OIDC) Validate() error {
	if u, err := httpsURL(p.Issuer); err != nil {
		return fmt.Errorf("oauth oidc: issuer: %w", err)
	} else if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("oauth oidc: issuer: leave out what follows ? or #")
	}
	return p.validate("oauth oidc")
}

// Exchange implements flows.OAuthProvider.
func (p *OIDC) Exchange(ctx context.Context, grant flows.OAuthGrant) (flows.OAuthUser, error) {
	ctx, cancel := p.begin(ctx)
	defer cancel()
	user, err := p.login(ctx, grant)
	if err != nil {
		return flows.OAuthUser{}, fmt.Errorf("oauth oidc %s: %w", p.Issuer, err)
	}
	return user, nil
}

func (p *OIDC) login(ctx context.Context, grant flows.OAuthGrant) (flows.OAuthUser, error) {
	at, err := p.discovered(ctx)
	if err != nil {
		return flows.OAuthUser{}, fmt.Errorf("discovery: %w", err)
	}
	token, err := p.exchange(ctx, at.TokenURL, at.style, grant)
	if err != nil {
		return flows.OAuthUser{}, err
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return flows.OAuthUser{}, oauthFailed("the token endpoint answered no id_token")
	}
	return p.verify(ctx, at, raw, grant)
}

// discovered returns what is known of the issuer. Callers who come while it is
// being asked share the answer, each for as long as its own time lasts.
func (p *OIDC) discovered(ctx context.Context) (*discovery, error) {
	if known := p.found.Load(); known != nil {
		return known, nil
	}
	answer := p.flight.DoChan("", func() (any, error) {
		ctx, cancel := p.begin(context.WithoutCancel(ctx))
		defer cancel()
		var at *discovery
		err := flows.Contain(func() (err error) { // this goroutine is nobody's
			at, err = p.discover(ctx)
			return err
		})
		if err == nil {
			p.found.Store(at)
		}
		return at, err
	})
	select {
	case <-ctx.Done():
		return nil, netCause(ctx.Err())
	case result := <-answer:
		at, _ := result.Val.(*discovery)
		return at, result.Err
	}
}

func (p *OIDC) discover(ctx context.Context) (*discovery, error) {
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if other, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return nil, fmt.Errorf("the document is the issuer's %q, which must be written exactly so", scrub(other.Discovered))
	}
	if unreached(err) {
		return nil, netCause(err)
	}
	if err != nil {
		return nil, errors.New("there is no discovery document that can be read")
	}
	at := new(discovery)
	if err := provider.Claims(at); err != nil {
		return nil, errors.New("the document has a field of an unexpected type")
	}
	for _, endpoint := range []string{at.TokenURL, at.KeysURL} {
		if _, err := httpsURL(endpoint); err != nil {
			return nil, errors.New("the document's token_endpoint or jwks_uri is missing or not https")
		}
	}
	at.Algorithms = slices.DeleteFunc(at.Algorithms, func(alg string) bool { return !slices.Contains(idTokenAlgorithms, alg) })
	at.keys = oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), p.client), at.KeysURL)
	at.style, err = at.authStyle()
	return at, err
}

// idTokenAlgorithms are the asymmetric ones: a signature that anyone could
// make who knows the client secret, or without a key, proves nothing.
var idTokenAlgorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512,
	oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.EdDSA,
}

// authStyle chooses how the client secret is sent. Without a list it is
// client_secret_basic: OpenID Connect Discovery 3.
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

// keyErrors keeps the error of a KeySet, which go-oidc turns into text.
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

// idClaims are the claims of an ID token that go-oidc leaves to us.
type idClaims struct {
	AuthorizedParty string    `json:"azp"`
	Email           string    `json:"email"`
	EmailVerified   looseBool `json:"email_verified"`
}

// looseBool is a bool that some providers write as a string.
type looseBool bool

// UnmarshalJSON implements json.Unmarshaler. All but true is false.
func (b *looseBool) UnmarshalJSON(text []byte) error {
	*b = string(text) == "true" || string(text) == `"true"`
	return nil
}

// verify checks an ID token: OpenID Connect Core 3.1.3.7.
func (p *OIDC) verify(ctx context.Context, at *discovery, raw string, grant flows.OAuthGrant) (flows.OAuthUser, error) {
	keys := &keyErrors{KeySet: at.keys}
	config := &oidc.Config{ClientID: p.ClientID, SupportedSigningAlgs: at.Algorithms}
	token, err := oidc.NewVerifier(p.Issuer, keys, config).Verify(ctx, raw)
	if unreached(keys.err) {
		return flows.OAuthUser{}, fmt.Errorf("asking for the provider's keys: %w", netCause(keys.err))
	}
	if err != nil {
		return flows.OAuthUser{}, oauthFailed("its ID token: %s", scrub(err.Error(), p.secrets(raw, grant)...))
	}
	var claims idClaims
	if token.Claims(&claims) != nil {
		return flows.OAuthUser{}, oauthFailed("its ID token: a claim has an unexpected type")
	}
	if err := p.checkClaims(token, claims, grant.Nonce, time.Now()); err != nil {
		return flows.OAuthUser{}, err
	}
	return newOAuthUser(token.Subject, claims.Email, bool(claims.EmailVerified))
}

// secrets lists what a provider might repeat in a token that is refused.
func (p *OIDC) secrets(raw string, grant flows.OAuthGrant) []string {
	return []string{raw, p.ClientSecret, grant.Code, grant.CodeVerifier, grant.Nonce}
}

func (p *OIDC) checkClaims(token *oidc.IDToken, claims idClaims, nonce string, now time.Time) error {
	switch {
	case token.IssuedAt.IsZero() || token.IssuedAt.After(now.Add(clockSkew)):
		return oauthFailed("its ID token has no iat, or one in the future")
	case len(token.Audience) > 1 && claims.AuthorizedParty != p.ClientID:
		return oauthFailed("its ID token has several audiences, and azp is not this client")
	case nonce != "" && token.Nonce != nonce:
		return oauthFailed("its ID token has no nonce, or another than the client sent")
	default:
		return nil
	}
}

// OAuth2 logs users in with a provider that speaks OAuth 2.0 without OpenID
// Connect, like GitHub: the code is exchanged for an access token, and the
// user is who the provider's userinfo answer says. Only https is spoken, but
// to this machine, and no redirect is followed.
type OAuth2 struct {
	// Where codes are exchanged; required.
	TokenURL string `json:"token_url,omitempty"`

	// Where the user is asked for, with the access token as a Bearer token;
	// required. The answer is a JSON object.
	UserinfoURL string `json:"userinfo_url,omitempty"`

	// The field of that object that identifies the user for good: a string or
	// an integer. A dot leads into an object or, before a number, into a list:
	// `data.id`, `response.0.id`. Never use an email or a name that can be
	// changed. Required.
	Subject string `json:"subject,omitempty"`

	// The field with the email, written like subject. Default: none.
	Email string `json:"email,omitempty"`

	// The field that is true (or "true") if the provider has verified the
	// email, written like subject. Default: none; no email is verified then.
	Verified string `json:"verified,omitempty"`

	// How the client secret is sent: `basic`, in the Authorization header, or
	// `post`, in the body. Default: `basic` (RFC 6749 2.3.1).
	AuthStyle string `json:"auth_style,omitempty"`
	oauthClient
}

// What OAuth2.AuthStyle may be.
const (
	authBasic = "basic"
	authPost  = "post"
)

// CaddyModule returns the Caddy module information.
func (OAuth2) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.oauth.oauth2", New: func() caddy.Module { return new(OAuth2) }}
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens. Syntax:
//
//	oauth2 {
//		token_url <url>
//		userinfo_url <url>
//		subject <json field>
//		email <json field> [<verified json field>]
//		auth_style basic|post
//		client_id <id>
//		client_secret <secret>
//		redirect_uri <uri>...
//		require_pkce
//		link_verified_email
//		timeout <duration>
//	}
func (p *OAuth2) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	options := p.options(d)
	options["token_url"] = oneArg(d, &p.TokenURL)
	options["userinfo_url"] = oneArg(d, &p.UserinfoURL)
	options["subject"] = oneArg(d, &p.Subject)
	options["auth_style"] = oneArg(d, &p.AuthStyle)
	options["email"] = func() error {
		if d.CountRemainingArgs() == 1 {
			return oneArg(d, &p.Email)()
		}
		if !d.AllArgs(&p.Email, &p.Verified) {
			return d.ArgErr()
		}
		return nil
	}
	return guestOptions(d, options)
}

// Provision sets the defaults and resolves the placeholders.
func (p *OAuth2) Provision(caddy.Context) error {
	if p.AuthStyle == "" {
		p.AuthStyle = authBasic
	}
	return p.provision("oauth oauth2")
}

// Validate refuses an incomplete provider.
func (p *OAuth2) Validate() error {
	if _, err := httpsURL(p.TokenURL); err != nil {
		return fmt.Errorf("oauth oauth2: token_url: %w", err)
	}
	if _, err := httpsURL(p.UserinfoURL); err != nil {
		return fmt.Errorf("oauth oauth2: userinfo_url: %w", err)
	}
	if p.Subject == "" {
		return errors.New("oauth oauth2: subject is missing; name the field that identifies the user")
	}
	if p.AuthStyle != authBasic && p.AuthStyle != authPost {
		return fmt.Errorf("oauth oauth2: auth_style: %q is neither basic nor post", p.AuthStyle)
	}
	if p.LinkVerifiedEmail && (p.Email == "" || p.Verified == "") {
		return errors.New("oauth oauth2: link_verified_email needs email with the field that says whether it is verified")
	}
	return p.validate("oauth oauth2")
}

// Exchange implements flows.OAuthProvider.
func (p *OAuth2) Exchange(ctx context.Context, grant flows.OAuthGrant) (flows.OAuthUser, error) {
	ctx, cancel := p.begin(ctx)
	defer cancel()
	user, err := p.login(ctx, grant)
	if err != nil {
		return flows.OAuthUser{}, fmt.Errorf("oauth oauth2 %s: %w", p.ClientID, err)
	}
	return user, nil
}

func (p *OAuth2) login(ctx context.Context, grant flows.OAuthGrant) (flows.OAuthUser, error) {
	style := oauth2.AuthStyleInHeader
	if p.AuthStyle == authPost {
		style = oauth2.AuthStyleInParams
	}
	token, err := p.exchange(ctx, p.TokenURL, style, grant)
	if err != nil {
		return flows.OAuthUser{}, err
	}
	info, err := p.userinfo(ctx, token.AccessToken)
	if err != nil {
		return flows.OAuthUser{}, err
	}
	return p.user(info)
}

// userinfo asks who the access token stands for.
func (p *OAuth2) userinfo(ctx context.Context, accessToken string) ([]byte, error) {
	if !httpguts.ValidHeaderFieldValue(accessToken) {
		return nil, oauthFailed("the access token can't be sent in a header")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.UserinfoURL, nil)
	if err != nil {
		return nil, errors.New("making the userinfo request failed")
	}
	req.Header.Set("Authorization", "Bearer "+accessToken)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "mnemogate") // GitHub asks for one
	resp, err := p.client.Do(req)
	if errors.Is(err, errTooLarge) {
		return nil, oauthFailed("userinfo: %v", errTooLarge)
	}
	if err != nil {
		return nil, fmt.Errorf("asking userinfo: %w", netCause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, oauthFailed("userinfo answered %d", resp.StatusCode)
	}
	return io.ReadAll(resp.Body)
}

// user picks the configured fields from a userinfo answer.
func (p *OAuth2) user(info []byte) (flows.OAuthUser, error) {
	decoder := json.NewDecoder(strings.NewReader(string(info)))
	decoder.UseNumber() // ids above 2^53 must not be rounded
	var doc map[string]any
	if decoder.Decode(&doc) != nil || decoder.More() {
		return flows.OAuthUser{}, oauthFailed("userinfo's answer is not a JSON object")
	}
	subject, ok := field(doc, p.Subject).(string)
	if number, is := field(doc, p.Subject).(json.Number); is && !strings.ContainsAny(number.String(), ".eE") {
		subject, ok = number.String(), true
	}
	if !ok {
		return flows.OAuthUser{}, oauthFailed("userinfo's answer has no string or integer at %s", p.Subject)
	}
	email, _ := field(doc, p.Email).(string)
	verified := field(doc, p.Verified)
	return newOAuthUser(subject, email, verified == true || verified == "true")
}

// field follows a dotted path into a JSON document; nil if it leads nowhere.
func field(doc any, path string) any {
	if path == "" {
		return nil
	}
	for _, step := range strings.Split(path, ".") {
		switch at := doc.(type) {
		case map[string]any:
			doc = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			doc = at[i]
		default:
			return nil
		}
	}
	return doc
}

var (
	_ OAuthGuest            = (*OIDC)(nil)
	_ caddy.Provisioner     = (*OIDC)(nil)
	_ caddy.Validator       = (*OIDC)(nil)
	_ caddyfile.Unmarshaler = (*OIDC)(nil)

	_ OAuthGuest            = (*OAuth2)(nil)
	_ caddy.Provisioner     = (*OAuth2)(nil)
	_ caddy.Validator       = (*OAuth2)(nil)
	_ caddyfile.Unmarshaler = (*OAuth2)(nil)
)
