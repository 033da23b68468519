package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/causes"
)

func init() { caddy.RegisterModule(new(OIDC)) }

// OIDC logs users in with an OpenID Connect provider. It fetches the discovery
// document at the first login. It reads it again once a day, when an ID token does not
// verify or an endpoint is gone, and for client.json once a minute. It verifies the ID
// token's signature, issuer, audience and times, and its nonce if the client sends one.
// The time of the login comes from the ID token, and so does the email. If it is not there,
// link_verified_email makes it ask userinfo, as long as no account has the user. It uses only
// https unless the issuer is http, on this machine or with insecure, and follows no redirects.
// See oauthClient for the other options.
type OIDC struct {
	// The issuer, exactly as the provider writes it. The discovery document is below
	// it, at /.well-known/openid-configuration.
	Issuer string `json:"issuer,omitempty"`

	// For an issuer of Microsoft that stands for many tenants, such as
	// https://login.microsoftonline.com/organizations/v2.0, or the same with {tenantid}:
	// the ids of the tenants whose users may log in, or `any`. The ID token must have
	// the tenant's id both in its issuer and as `tid`. Not with link_verified_email: a
	// tenant's administrator chooses the emails of its users. Default: the issuer is one
	// tenant's.
	Tenants []string `json:"tenants,omitempty"`

	// `off` for a provider that leaves the nonce out of its ID tokens, such as LinkedIn.
	// One that is there must still be the client's. Then only PKCE ties a code to the
	// browser that began the login, so each start warns without require_pkce. LinkedIn
	// refuses PKCE. Default: an ID token must have the nonce that the client sends with the
	// code, or none if it sends none.
	Nonce string `json:"nonce,omitempty"`
	oauthClient

	template  string // the issuer, with {tenantid} if it stands for many tenants
	found     atomic.Pointer[discovery]
	asked     atomic.Pointer[time.Time] // when a Start last wanted a newer document
	documents *http.Client              // for the discovery document
	now       func() time.Time
}

// discovery is an issuer's discovery document.
type discovery struct {
	Issuer      string    `json:"issuer"`
	Iss         any       `json:"authorization_response_iss_parameter_supported"`
	StartURL    string    `json:"authorization_endpoint"`
	Challenges  looseList `json:"code_challenge_methods_supported"`
	TokenURL    string    `json:"token_endpoint"`
	KeysURL     string    `json:"jwks_uri"`
	UserinfoURL string    `json:"userinfo_endpoint"`
	Algorithms  []string  `json:"id_token_signing_alg_values_supported"`
	AuthMethods looseList `json:"token_endpoint_auth_methods_supported"`

	read  time.Time
	style string
	*keySet
}

// A keySet has the keys at a document's KeysURL.
type keySet struct {
	keys   oidc.KeySet
	client *http.Client
	made   time.Time
	last   atomic.Pointer[[]issuerKey] // that the client has read
}

// How old the document may be for a login, and for client.json. Keys are as old as for a
// login at most: the provider may have withdrawn one.
const (
	loginAge = 24 * time.Hour
	startAge = time.Minute
)

// CaddyModule returns the Caddy module information.
func (*OIDC) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.oauth.oidc", New: func() caddy.Module { return new(OIDC) }}
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens.
func (p *OIDC) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := p.options()
	options["tenants <id>...|any"] = guest.List(&p.Tenants)
	options["nonce off"] = guest.CheckedText(&p.Nonce, checkNonce)
	err := guest.Parse(d, "<issuer> [insecure]", guest.Address(&p.Issuer, &p.Insecure), options)
	return guest.Complete(d, err, func() error { return cmp.Or(p.checkGiven(), p.checkTenants(), p.checkApple()) })
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
	err := p.provision("oauth oidc")
	p.template = p.issuerTemplate()
	p.documents = p.newReader(nil)
	return err
}

// Validate refuses an incomplete provider.
func (p *OIDC) Validate() error {
	if u, err := p.url(strings.Replace(p.Issuer, tenantID, "tenant", 1)); err != nil {
		return fmt.Errorf("oauth oidc: issuer: %w", err)
	} else if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("oauth oidc: issuer: leave out what follows ? or #")
	}
	if strings.Contains(p.Issuer, "/.well-known/") {
		return errors.New("oauth oidc: issuer: leave out what begins with /.well-known")
	}
	if err := cmp.Or(p.checkTenants(), p.checkApple(), guest.Inside("nonce", checkNonce(p.Nonce))); err != nil {
		return fmt.Errorf("oauth oidc: %w", err)
	}
	if !slices.Contains(p.Scope, oidc.ScopeOpenID) {
		return errors.New("oauth oidc: scope: openid is missing, without which there is no ID token; add it")
	}
	return p.validate("oauth oidc")
}

const nonceOff = "off"

func checkNonce(nonce string) error {
	if nonce != "" && nonce != nonceOff {
		return errors.New("it can only be off; leave it out if the provider puts the nonce into its ID tokens")
	}
	return nil
}

// Apple's issuer, and the name that its document had on 2025-06-10, while ID tokens kept the
// old one. Both hosts are Apple's, so the new name stands for the old one.
const (
	apple     = "https://appleid.apple.com"
	appleAlso = "https://account.apple.com"
)

// isIssuer reports whether an issuer is the one that is configured, or one of its tenants.
func (p *OIDC) isIssuer(issuer string) bool {
	return issuer == p.template || p.Issuer == apple && issuer == appleAlso || p.Tenants != nil && p.tenantOf(issuer) != ""
}

// checkApple refuses a login that Apple would refuse.
func (p *OIDC) checkApple() error {
	personal := func(scope string) bool { return scope == "name" || scope == "email" }
	asks := slices.ContainsFunc(p.Scope, personal) || p.Scope == nil && p.LinkVerifiedEmail
	if p.Issuer == apple && asks && p.ResponseMode == "" {
		return errors.New("response_mode is missing, without which Apple tells no name or email; add response_mode form_post")
	}
	return nil
}

// Endpoint implements guest.Remote.
func (p *OIDC) Endpoint() string { return guest.EndpointOf(p.Issuer) }

// Weaknesses implements guest.Weak.
func (p *OIDC) Weaknesses() []guest.Weakness {
	found := slices.Concat(guest.HTTPWeakness(p.Insecure, p.Issuer), p.redirectWeakness(), p.expiring(p.now()))
	if p.Nonce == nonceOff {
		found = append(found, p.codeWeakness()...)
	}
	return found
}

// secretNotice is how long before its end to warn of a client secret.
const secretNotice = 30 * 24 * time.Hour

// expiring warns of a client secret that is a JWT, as Apple's is, and expires soon.
func (c *oauthClient) expiring(now time.Time) []guest.Weakness {
	var claims jwt.Claims
	token, err := jwt.ParseSigned(c.ClientSecret, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil || claims.Expiry == nil {
		return nil
	}
	end, verb := claims.Expiry.Time(), "expires"
	if end.Sub(now) > secretNotice {
		return nil
	}
	if now.After(end) {
		verb = "expired"
	}
	return []guest.Weakness{{
		Message: "client_secret " + verb + " on " + end.UTC().Format(time.DateOnly) + ", after which nobody can log in with " + c.Name,
		Advice:  "sign a new one, and run caddy reload --force",
	}}
}

// Exchange implements tenant.OAuthProvider.
func (p *OIDC) Exchange(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Timeout))
	defer cancel()
	user, err := p.login(ctx, grant)
	return user, guest.Inside("oauth oidc "+p.Issuer, err)
}

func (p *OIDC) login(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	at, err := p.document(ctx, loginAge)
	if err != nil {
		return tenant.OAuthUser{}, err
	}
	token, err := p.exchange(ctx, at.TokenURL, at.style, grant)
	if notTaken(err) {
		if now, _ := p.document(ctx, 0); now.TokenURL != at.TokenURL || now.style != at.style {
			at = now
			token, err = p.exchange(ctx, at.TokenURL, at.style, grant)
		}
	}
	if err != nil {
		return tenant.OAuthUser{}, err
	}
	raw, _ := token.ID.(string)
	if raw == "" {
		return tenant.OAuthUser{}, providerFault(checkIDToken, "the token endpoint answered no id_token")
	}
	user, err := p.verify(ctx, at, raw, grant)
	if errors.Is(err, tenant.ErrProviderFault) || err != nil && !errors.Is(err, wire.ErrOAuthFailed) {
		at, _ = p.document(ctx, 0)
		user, err = p.verify(ctx, at, raw, grant)
	}
	if err != nil || !p.lacksEmail(ctx, at, user, grant) {
		return user, err
	}
	told, err := p.withEmail(ctx, at, token.Access, user)
	if notTaken(err) {
		if now, _ := p.document(ctx, 0); now.UserinfoURL != at.UserinfoURL {
			told, err = p.withEmail(ctx, now, token.Access, user)
		}
	}
	return told, err
}

// lacksEmail reports whether the user's email could link an account, and only userinfo may
// have it.
func (p *OIDC) lacksEmail(ctx context.Context, at *discovery, user tenant.OAuthUser, grant tenant.OAuthGrant) bool {
	return p.LinkVerifiedEmail && user.Email == "" && at.UserinfoURL != "" && (grant.IsLinked == nil || !grant.IsLinked(ctx, user.Subject))
}

// withEmail adds the email that userinfo has. That is where a standard provider says it: its
// ID tokens have none if there is an access token (OpenID Connect Core, section 5.4).
func (p *OIDC) withEmail(ctx context.Context, at *discovery, accessToken string, user tenant.OAuthUser) (tenant.OAuthUser, error) {
	if err := p.checkEndpoint("userinfo_endpoint", at.UserinfoURL); err != nil {
		return tenant.OAuthUser{}, err
	}
	info, err := p.userinfo(ctx, at.UserinfoURL, accessToken)
	if err != nil {
		return tenant.OAuthUser{}, err
	}
	// A struct would take Email for email. The sub must be that of the ID token (section 5.3.2).
	var claims map[string]any
	if json.Unmarshal(info, &claims) != nil {
		return tenant.OAuthUser{}, providerFault(checkUserinfo, "userinfo's answer is not a JSON object")
	}
	if claims["sub"] != user.Subject {
		return tenant.OAuthUser{}, providerFault(askOperator, "userinfo's answer is for another sub than the ID token")
	}
	told, err := newOAuthUser(user.Subject, claims["email"], claims["email_verified"])
	told.AuthTime = user.AuthTime
	return told, err
}

// Start implements tenant.OAuthAuthorizer.
func (p *OIDC) Start(ctx context.Context) (tenant.OAuthStart, error) {
	var err error
	at, now := p.found.Load(), p.now()
	isOld := func(read time.Time) bool { return now.Sub(read) >= startAge }
	// If a provider whose document is known does not answer, one page a minute waits for it.
	last := p.asked.Load()
	if at == nil || isOld(at.read) && (last == nil || isOld(*last)) && p.asked.CompareAndSwap(last, &now) {
		at, err = p.document(ctx, startAge)
	}
	if err == nil {
		err = p.checkEndpoint("authorization_endpoint", at.StartURL)
	}
	if err != nil {
		return tenant.OAuthStart{}, fmt.Errorf("oauth oidc %s: %w", p.Issuer, err)
	}
	start := tenant.OAuthStart{URL: at.StartURL, PKCE: slices.Contains(at.Challenges, "S256")}
	if p.Tenants == nil { // otherwise the issuer of an answer is not known before
		start.Issuer, start.Iss = p.Issuer, isTrue(at.Iss)
	}
	return start, nil
}

// Check implements guest.Checked. It does not depend on what earlier logins have found.
func (p *OIDC) Check() (string, func(context.Context) error) {
	return p.Issuer, func(ctx context.Context) error {
		at, err := p.discover(ctx)
		if err == nil {
			err = p.checkEndpoint("authorization_endpoint", at.StartURL)
		}
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.KeysURL, nil)
		if err != nil {
			return errors.New("making the request for the keys failed")
		}
		resp, err := at.client.Do(req)
		if err != nil {
			return fmt.Errorf("asking for the provider's keys: %w", guest.Cause(err))
		}
		defer resp.Body.Close()
		var set struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&set) != nil || len(set.Keys) == 0 {
			return causes.Explain(errors.New("there are no keys at the document's jwks_uri that can be used"), askOperator)
		}
		return nil
	}
}

// document returns the issuer's discovery document, and reads it again if it is older than
// age. If that fails, the old one may still be right.
func (p *OIDC) document(ctx context.Context, age time.Duration) (*discovery, error) {
	known := p.found.Load()
	if known != nil && p.now().Sub(known.read) < age {
		return known, nil
	}
	if known != nil { // leave time for the rest of a login
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(p.Timeout)/2)
		defer cancel()
	}
	at, err := p.discover(ctx)
	switch {
	case err == nil && p.found.CompareAndSwap(known, at):
		return at, nil
	case err == nil: // another caller was faster, and all use one set of keys
		return p.found.Load(), nil
	case known != nil:
		return known, nil
	default:
		return nil, fmt.Errorf("discovery: %w", err)
	}
}

func (p *OIDC) newReader(tidy func([]byte) []byte) *http.Client {
	return guest.Client(&reader{of: p, tidy: tidy}, p.Timeout)
}

// checkEndpoint refuses an address of the discovery document. For an https issuer it must be
// https: the document must not lead to servers of this machine, like Caddy's admin
// endpoint.
func (p *OIDC) checkEndpoint(name, s string) error {
	u, err := p.url(s)
	if err != nil || u.Scheme != "https" && !p.Insecure && strings.HasPrefix(p.Issuer, "https:") {
		return causes.Explain(fmt.Errorf("the document's %s is missing or not https", name), askOperator)
	}
	return nil
}

func (p *OIDC) discover(ctx context.Context) (*discovery, error) {
	at := &discovery{read: p.now()}
	if err := p.readDocument(ctx, at); err != nil {
		return nil, err
	}
	if !p.isIssuer(at.Issuer) {
		return nil, causes.Explain(fmt.Errorf("the document is the issuer's %q, which must be written exactly so", guest.Scrub(at.Issuer)), checkIssuer)
	}
	if err := cmp.Or(p.checkEndpoint("token_endpoint", at.TokenURL), p.checkEndpoint("jwks_uri", at.KeysURL)); err != nil {
		return nil, err
	}
	listed := len(at.Algorithms)
	at.Algorithms = slices.DeleteFunc(at.Algorithms, func(alg string) bool { return !slices.Contains(idTokenAlgorithms, alg) })
	if listed > 0 && len(at.Algorithms) == 0 {
		return nil, causes.Explain(errors.New("the provider signs ID tokens with none of "+strings.Join(idTokenAlgorithms, ", ")),
			"let it sign those for this client with one of them")
	}
	if known := p.found.Load(); known != nil && known.KeysURL == at.KeysURL && at.read.Sub(known.made) < loginAge {
		at.keySet = known.keySet
	} else {
		at.keySet = &keySet{made: at.read}
		at.client = p.newReader(at.keySet.usable)
		at.keys = oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), at.client), at.KeysURL)
	}
	var err error
	if p.AuthStyle == "" {
		at.style, err = at.authStyle()
	}
	return at, err
}

// readDocument reads the discovery document into at.
func (p *OIDC) readDocument(ctx context.Context, at *discovery) error {
	issuer := strings.Replace(p.Issuer, tenantID, "common", 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration", nil)
	if err != nil {
		return errors.New("making the request for the discovery document failed")
	}
	resp, err := p.documents.Do(req)
	if err != nil {
		return guest.Cause(err)
	}
	defer resp.Body.Close()
	switch status := resp.StatusCode; {
	case status >= 300 && status <= 399:
		return causes.Explain(fmt.Errorf("instead of its discovery document it answered %d", status), "no redirect is followed: write the issuer that it leads to")
	case status != http.StatusOK:
		return causes.Explain(fmt.Errorf("instead of its discovery document it answered %d", status), "check that the issuer is written as the provider writes it")
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(body, at) != nil {
		return causes.Explain(errors.New("its discovery document can't be read"), "check that the issuer is written as the provider writes it, and look at what it answers below /.well-known/openid-configuration")
	}
	return nil
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
func (at *discovery) authStyle() (string, error) {
	switch methods := at.AuthMethods; {
	case len(methods) == 0, slices.Contains(methods, "client_secret_basic"):
		return authBasic, nil
	case slices.Contains(methods, "client_secret_post"), slices.Contains(methods, "none"):
		return authPost, nil
	default:
		return "", causes.Explain(errors.New("the provider takes neither client_secret_basic nor client_secret_post"),
			"let its registration of this client take one of them, or write auth_style if it takes one that it does not list")
	}
}

// keyErrors keeps the error of a KeySet, which go-oidc reduces to text. Of the claims, it
// leaves only those that count.
type keyErrors struct {
	oidc.KeySet
	err error
}

// VerifySignature implements oidc.KeySet.
func (k *keyErrors) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	k.err = err
	var all map[string]json.RawMessage
	_ = json.Unmarshal(payload, &all) // no claim of what is no object counts
	return pick(all, claimNames), err
}

// claimNames are the claims of an ID token that count here.
var claimNames = []string{"iss", "sub", "aud", "exp", "iat", "nbf", "nonce", "azp", "tid", "auth_time", "email", "email_verified"}

// idClaims are the claims of an ID token that go-oidc does not verify. A provider may use
// their names for something else, so they can have any type.
type idClaims struct {
	AuthorizedParty any `json:"azp"`
	Tenant          any `json:"tid"`
	AuthTime        any `json:"auth_time"` // a number, but some providers write a string
	Email           any `json:"email"`
	EmailVerified   any `json:"email_verified"`
}

// looseList is a list of texts that some providers write as one text. Any other value is
// empty.
type looseList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *looseList) UnmarshalJSON(value []byte) error {
	var list []string
	var text string
	if json.Unmarshal(value, &list) != nil {
		list = nil
	}
	if json.Unmarshal(value, &text) == nil && text != "" {
		list = []string{text}
	}
	*l = list
	return nil
}

// verify verifies an ID token (OpenID Connect Core, section 3.1.3.7).
func (p *OIDC) verify(ctx context.Context, at *discovery, raw string, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	keys := &keyErrors{KeySet: at.keys}
	config := &oidc.Config{ClientID: p.ClientID, SupportedSigningAlgs: at.Algorithms, SkipIssuerCheck: p.Tenants != nil || p.Issuer == apple} // see checkClaims
	token, err := oidc.NewVerifier(p.Issuer, keys, config).Verify(ctx, raw)
	if requestFailed(keys.err) {
		return tenant.OAuthUser{}, fmt.Errorf("asking for the provider's keys: %w", guest.Cause(keys.err))
	}
	if err != nil {
		step, cause := askOperator, err.Error()
		for begins, its := range idTokenSteps {
			if strings.HasPrefix(cause, begins) {
				step = its
			}
		}
		cause = guest.Scrub(cause, raw, p.ClientSecret, grant.Code, grant.CodeVerifier, grant.Nonce) // the token may repeat them
		return tenant.OAuthUser{}, providerFault(step, "its ID token: %s", cause)
	}
	var claims idClaims
	if token.Claims(&claims) != nil {
		return tenant.OAuthUser{}, providerFault(askOperator, "its ID token: a claim has an unexpected type")
	}
	if err := p.checkClaims(token, claims, grant.Nonce, p.now()); err != nil {
		return tenant.OAuthUser{}, err
	}
	if p.Tenants != nil && !p.isKeyOf(ctx, at.keySet, token.Issuer, raw) {
		return tenant.OAuthUser{}, providerFault(askOperator, "its ID token is signed with a key of another issuer")
	}
	user, err := newOAuthUser(token.Subject, claims.Email, claims.EmailVerified)
	if at, _ := strconv.ParseFloat(fmt.Sprint(claims.AuthTime), 64); err == nil && 0 < at && at < 1<<40 {
		user.AuthTime = time.Unix(int64(at), 0)
	}
	return user, err
}

func (p *OIDC) checkClaims(token *oidc.IDToken, claims idClaims, nonce string, now time.Time) error {
	tid, _ := claims.Tenant.(string)
	switch {
	case p.Issuer == apple && !p.isIssuer(token.Issuer):
		return providerFault(askOperator, "its ID token is issued by a different provider")
	case token.IssuedAt.IsZero():
		return providerFault(askOperator, "its ID token has no iat")
	case token.IssuedAt.After(now.Add(clockSkew)):
		return providerFault(checkClocks, "its ID token has an iat in the future")
	case len(token.Audience) > 1 && claims.AuthorizedParty != p.ClientID:
		return providerFault(checkIDToken, "its ID token has several audiences, and azp is not this client")
	case p.Tenants != nil && (tid == "" || p.tenantOf(token.Issuer) != tid):
		return providerFault(askOperator, "its ID token is issued by a different provider, or for another tenant than its tid")
	case p.Tenants != nil && p.Tenants[0] != anyTenant && !slices.Contains(p.Tenants, tid):
		return oauthFailed("its ID token is of the tenant %s, which is not in tenants", tid)
	default:
		return p.compareNonce(token.Nonce, nonce)
	}
}

// compareNonce compares the nonce of an ID token with that of the client. Without it, anyone
// who has the code could use it.
func (p *OIDC) compareNonce(inToken, nonce string) error {
	switch {
	case nonce == "" && inToken != "":
		return oauthFailed("its ID token has a nonce, and the client sent none; send the one that the provider got")
	case inToken != nonce && (inToken != "" || p.Nonce != nonceOff):
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
	_ guest.Checked          = (*OIDC)(nil)
	_ guest.Weak             = (*OIDC)(nil)
	_ caddy.Provisioner      = (*OIDC)(nil)
	_ caddy.Validator        = (*OIDC)(nil)
	_ caddyfile.Unmarshaler  = (*OIDC)(nil)
)
