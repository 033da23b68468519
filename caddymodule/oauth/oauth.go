// Package oauth contains the built-in plugins that log users in with a provider:
// oidc and oauth2, with one file each. Their common part is in oauth.go. To add a
// provider, write a guest.OAuthModule and register it as mnemogate.oauth.<name>.
package oauth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/causes"
)

const (
	defaultOAuthTimeout = caddy.Duration(5 * time.Second)
	maxOAuthAnswer      = 1 << 20
	clockSkew           = 5 * time.Minute
)

// oauthClient is the common part of the providers: our registration with them.
type oauthClient struct {
	// The client id that the provider gave you; required.
	ClientID string `json:"client_id,omitempty"`

	// The client secret that the provider gave you. Use a placeholder like
	// {env.NAME} or {file.PATH}. You may omit it only with require_pkce.
	ClientSecret string `json:"client_secret,omitempty"`

	// The redirect URIs that clients may use, compared character by character. At
	// least one is required.
	RedirectURI []string `json:"redirect_uri,omitempty"`

	// The provider's name for users, as on the login page's button. Default: the
	// host of its address.
	Name string `json:"name,omitempty"`

	// The file of an image for the provider's button on the login page: SVG, PNG,
	// JPEG, WebP or GIF. Default: none.
	Icon string `json:"icon,omitempty"`

	// The scopes that clients request from the provider. Clients find them in
	// client.json. Default: `openid` with OpenID Connect, plus `email` with
	// link_verified_email; otherwise the provider's default.
	Scope []string `json:"scope,omitempty"`

	// What the provider shows to users who are logged in to it: the prompt that clients
	// request (OpenID Connect Core, section 3.1.2.1), such as `select_account` or
	// `login`. Clients find it in client.json. Default: what the provider chooses. After
	// a refused login, the login page asks for select_account.
	Prompt []string `json:"prompt,omitempty"`

	// `form_post` for a provider that lets the browser post its answer to the redirect URI,
	// such as Apple if scope has name or email. The login page takes it. Clients find it
	// in client.json as response_mode. Default: the answer is in the query of the redirect
	// URI.
	ResponseMode string `json:"response_mode,omitempty"`

	// How the client secret is sent: `basic`, in the Authorization header, or `post`, in
	// the body. Default: with OpenID Connect what the provider's document says, otherwise
	// `basic` (RFC 6749, section 2.3.1).
	AuthStyle string `json:"auth_style,omitempty"`

	// Whether to refuse a login without code_verifier (RFC 7636). Default: false, and each
	// start warns if there is no nonce either, as with OAuth 2.0.
	RequirePKCE bool `json:"require_pkce,omitempty"`

	// Whether to bind an account to the provider's user at the first login if the
	// account's primary email is one that the provider has verified. The two emails
	// must be equal byte for byte, except for the case of ASCII letters. The
	// account's owner gets a notice by mail, or by SMS if mail is not possible.
	// Enable it only for a provider that you trust with every account. Default:
	// false.
	LinkVerifiedEmail bool `json:"link_verified_email,omitempty"`

	// The time limit for all requests of one login to the provider, at most 1m.
	// Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Whether the provider's addresses may be http on another machine. Anyone on the
	// network path can then read codes, secrets and tokens, and log in as any user.
	// Each start logs a warning. Default: false.
	Insecure bool `json:"insecure,omitempty"`

	client *http.Client
}

// Settings implements guest.OAuthModule.
func (c *oauthClient) Settings() tenant.OAuth {
	return tenant.OAuth{
		RedirectURIs:      slices.Clone(c.RedirectURI),
		Name:              c.Name,
		Icon:              c.Icon,
		ClientID:          c.ClientID,
		Scopes:            slices.Clone(c.Scope),
		Prompt:            strings.Join(c.Prompt, " "),
		ResponseMode:      c.ResponseMode,
		RequirePKCE:       c.RequirePKCE,
		LinkVerifiedEmail: c.LinkVerifiedEmail,
	}
}

func init() {
	guest.Belong("oauth <1-5> oidc|oauth2 { ... }", new(oauthClient).options())
}

// options returns the options that every provider has.
func (c *oauthClient) options() guest.Parsers {
	return guest.Parsers{
		"client_id <id>":          guest.Text(&c.ClientID),
		"client_secret <secret>":  guest.Text(&c.ClientSecret),
		"redirect_uri <uri>...":   guest.List(&c.RedirectURI),
		"name <text>":             guest.Text(&c.Name),
		"icon <file>":             guest.Text(&c.Icon),
		"scope <scope>...":        guest.List(&c.Scope),
		"prompt <value>...":       guest.List(&c.Prompt),
		"response_mode form_post": guest.CheckedText(&c.ResponseMode, checkResponseMode),
		"auth_style basic|post":   guest.CheckedText(&c.AuthStyle, checkAuthStyle),
		"require_pkce":            guest.Flag(&c.RequirePKCE),
		"link_verified_email":     guest.Flag(&c.LinkVerifiedEmail),
		"timeout <duration>":      guest.OneValue(guest.Timeout(&c.Timeout)),
	}
}

// Values of oauthClient.AuthStyle.
const (
	authBasic = "basic"
	authPost  = "post"
)

func checkAuthStyle(style string) error {
	if style != "" && style != authBasic && style != authPost {
		return fmt.Errorf("%q is neither basic nor post", style)
	}
	return nil
}

func checkResponseMode(mode string) error {
	if mode != "" && mode != tenant.FormPost {
		return errors.New("it can only be form_post; leave it out if the provider can answer in the query")
	}
	return nil
}

func (c *oauthClient) provision(what string) error {
	c.Timeout = cmp.Or(c.Timeout, defaultOAuthTimeout)
	c.client = guest.Client(guest.Transport{MaxAnswer: maxOAuthAnswer, HTTPSOnly: !c.Insecure, Unrepeated: true}, c.Timeout)
	return errors.Join(
		guest.ResolveInto(what+": client_id", &c.ClientID),
		guest.ResolveInto(what+": client_secret", &c.ClientSecret))
}

// checkGiven refuses a client without a required option, and a name that users can't
// read.
func (c *oauthClient) checkGiven() error {
	switch {
	case c.ClientID == "":
		return errors.New("client_id is missing; copy it from the provider's console")
	case c.ClientSecret == "" && !c.RequirePKCE:
		return errors.New("client_secret is missing; a client without one needs require_pkce")
	case len(c.RedirectURI) == 0:
		return errors.New("redirect_uri is missing; name each that clients use")
	}
	return guest.Inside("name", guest.CheckNoPlaceholder(c.Name, "write the name as users read it"))
}

func (c *oauthClient) validate(what string) error {
	err := guest.First(c.checkGiven, c.checkRedirects, c.checkIcon, c.checkScopes, c.checkPrompts, c.checkModes)
	if err != nil {
		return guest.Inside(what, err)
	}
	return guest.CheckTimeout(what, c.Timeout)
}

func (c *oauthClient) checkRedirects() error {
	for _, uri := range c.RedirectURI {
		if err := guest.CheckNoSecret(uri, "write the URI itself"); err != nil {
			return guest.Inside("redirect_uri", err)
		}
		if u, err := url.Parse(uri); err != nil || u.Scheme == "" || strings.Contains(uri, "#") {
			return fmt.Errorf("redirect_uri: %q is not an absolute URI without a fragment; write one like https://app.example.com/callback", uri)
		} else if strings.HasPrefix(u.Scheme, "http") && u.Hostname() == "" || len(uri) > maxRedirectURI {
			return fmt.Errorf("redirect_uri: %q has no host, or more than %d characters, which no client can send; correct it", uri, maxRedirectURI)
		}
		if err := guest.CheckURI(uri); err != nil {
			return fmt.Errorf("redirect_uri: %q: %w", uri, err)
		}
	}
	return nil
}

func (c *oauthClient) checkIcon() error {
	if c.Icon == "" {
		return nil
	}
	_, _, err := guest.ReadImage(c.Icon)
	return guest.Inside("icon", err)
}

func (c *oauthClient) checkScopes() error {
	for _, scope := range c.Scope {
		if !scopeToken.MatchString(scope) {
			return fmt.Errorf("scope: %q is not a scope; write each one separately, without quotes in it", scope)
		}
		if err := guest.CheckNoPlaceholder(scope, "write the scope itself"); err != nil {
			return guest.Inside("scope", err)
		}
	}
	return nil
}

func (c *oauthClient) checkPrompts() error {
	for _, prompt := range c.Prompt {
		if err := guest.CheckNoSecret(prompt, "write the prompt itself"); err != nil {
			return guest.Inside("prompt", err)
		}
		if prompt == "none" || !scopeToken.MatchString(prompt) {
			return fmt.Errorf("prompt: %q shows users nothing to log in with; write login, consent or select_account", prompt)
		}
	}
	return nil
}

func (c *oauthClient) checkModes() error {
	return cmp.Or(guest.Inside("response_mode", checkResponseMode(c.ResponseMode)), guest.Inside("auth_style", checkAuthStyle(c.AuthStyle)))
}

// redirectWeakness reports a redirect_uri to which browsers send codes over plain http (RFC 9700,
// section 2.6).
func (c *oauthClient) redirectWeakness() []guest.Weakness {
	for _, uri := range c.RedirectURI {
		if u, err := url.Parse(uri); err == nil && u.Scheme == "http" && !guest.Loopback(u.Hostname()) {
			return []guest.Weakness{{
				Message: "anyone on the network path to " + u.Host + " can read the codes that browsers bring there over http, and log in with them",
				Advice:  "use a redirect_uri with https, here and at the provider",
			}}
		}
	}
	return nil
}

// codeWeakness reports that nothing ties a code to the browser that began the login (RFC 9700,
// section 2.1.1). It is for providers without a nonce.
func (c *oauthClient) codeWeakness() []guest.Weakness {
	if c.RequirePKCE {
		return nil
	}
	return []guest.Weakness{{
		Message: "with neither a nonce nor PKCE, anyone who gets hold of a code of " + c.Name + " can log in with it",
		Advice:  "add require_pkce, unless the provider refuses it, as LinkedIn does",
	}}
}

const maxRedirectURI = 2048 // as in the route

var scopeToken = regexp.MustCompile(`^[!#-[\]-~]+$`) // RFC 6749, section 3.3

// nameAfter sets the provider's default name to the host of its address.
func (c *oauthClient) nameAfter(address string) {
	if u, err := url.Parse(address); err == nil && c.Name == "" {
		c.Name = u.Hostname()
	}
}

// url parses one of the provider's addresses, in which no placeholders are replaced.
func (c *oauthClient) url(s string) (*url.URL, error) {
	u, err := guest.LiteralURL(s, c.Insecure)
	if err == nil && u.User != nil {
		return nil, errors.New("write it without credentials, which client_id and client_secret are for")
	}
	return u, err
}

// tokens are what a login needs of an answer of the token endpoint.
type tokens struct {
	Access string `json:"access_token"`
	ID     any    `json:"id_token"` // what it is does not matter to oauth2
	Error  any    `json:"error"`    // Facebook's is an object
}

// exchange exchanges the code for tokens. style is how the secret is sent without
// auth_style.
func (c *oauthClient) exchange(ctx context.Context, tokenURL, style string, grant tenant.OAuthGrant) (tokens, error) {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {grant.Code}, "redirect_uri": {grant.RedirectURI}}
	if grant.CodeVerifier != "" {
		form.Set("code_verifier", grant.CodeVerifier)
	}
	basic := c.ClientSecret != "" && cmp.Or(c.AuthStyle, style) == authBasic
	if !basic {
		form.Set("client_id", c.ClientID) // as a public client does: RFC 6749, section 3.2.1
		if c.ClientSecret != "" {
			form.Set("client_secret", c.ClientSecret)
		}
	}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, tokenURL, strings.NewReader(form.Encode())) // the URL has been parsed: never fails
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if basic {
		req.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret))
	}
	resp, err := c.client.Do(req)
	if errors.Is(err, guest.ErrTooLarge) {
		return tokens{}, causes.Explain(errNoTokens, askOperator)
	}
	if err != nil {
		return tokens{}, fmt.Errorf("asking the token endpoint: %w", guest.Cause(err))
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // guest.Transport has read it
	return readTokens(resp.StatusCode, withoutBOM(body))
}

var errNoTokens = errors.New("the token endpoint's answer is too large, or not JSON with an access_token")

// readTokens distinguishes a refusal from a fault and an outage. A provider refuses with
// an OAuth error, sometimes with status 200, or with a 4xx, sometimes without an OAuth
// error. Any other failure, such as an incomplete answer, says nothing about the code.
func readTokens(status int, body []byte) (got tokens, err error) {
	if json.Unmarshal(body, &got) != nil {
		got = tokens{}
		if !bytes.ContainsAny(body, "<{") { // some answer a form, which would encode these
			form, _ := url.ParseQuery(string(body))
			got = tokens{form.Get("access_token"), form.Get("id_token"), form.Get("error")}
		}
	}
	code, _ := got.Error.(string)
	if facebook, is := got.Error.(map[string]any); is {
		code = facebookCode + fmt.Sprint(facebook["code"])
	}
	if status/100 == 2 && code == "" {
		if id, _ := got.ID.(string); got.Access == "" && id == "" {
			err = causes.Explain(errNoTokens, askOperator)
		}
		return got, err
	}
	found, said, advice := tokenErrors[code], code, checkRegistration
	if found == unlisted {
		said = strconv.Itoa(status)
		switch {
		case status == http.StatusUnauthorized, code == "" && slices.Contains(registrationStatuses, status):
			found = unregistered
		case code != "", status >= 400:
			found = refused
		case status/100 == 3:
			found, advice = unregistered, "no redirect is followed: let the token endpoint's address be the one that it leads to"
		}
	}
	switch found {
	case unregistered:
		return got, providerFault(advice, "the token endpoint answered %s", said)
	case refused:
		return got, oauthFailed("the token endpoint answered %s", said)
	default:
		return got, fmt.Errorf("the token endpoint answered %s", said)
	}
}

// userinfo asks the provider which user the access token belongs to.
func (c *oauthClient) userinfo(ctx context.Context, address, accessToken string) ([]byte, error) {
	if accessToken == "" || !httpguts.ValidHeaderFieldValue(accessToken) {
		return nil, providerFault(checkUserinfo, "the token endpoint answered no access token, or one that can't be sent in a header")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("making the userinfo request failed")
	}
	req.Header.Set("Authorization", "Bearer "+accessToken)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "mnemogate") // GitHub requires one
	resp, err := c.client.Do(req)
	if errors.Is(err, guest.ErrTooLarge) {
		return nil, providerFault(checkUserinfo, "userinfo: %v", guest.ErrTooLarge)
	}
	if err != nil {
		return nil, fmt.Errorf("asking userinfo: %w", guest.Cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, providerFault(checkUserinfo, "userinfo answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(resp.Body)
	return withoutBOM(body), err
}

// oauthFailed returns the error for a login that the provider refused.
func oauthFailed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", wire.ErrOAuthFailed, fmt.Sprintf(format, args...))
}

// providerFault returns the error for a login that failed for a fault of the provider or
// of our registration with it, and says what to do about it.
func providerFault(step, format string, args ...any) error {
	return causes.Explain(fmt.Errorf("%w: %s", tenant.ErrProviderFault, fmt.Sprintf(format, args...)), step)
}

// A verdict says whose fault an error of a token endpoint is.
type verdict int

const (
	unlisted     verdict = iota
	refused              // of the client: its code, or what it sends with the code
	unregistered         // of our registration, whatever the code is
	unable               // of the provider, which is down
)

// tokenErrors judges the error codes of RFC 6749, section 5.2, and of some providers. A code
// that is not listed could repeat something secret from the request.
var tokenErrors = map[string]verdict{
	"invalid_request":        refused,
	"invalid_grant":          refused,
	"invalid_client":         unregistered,
	"unauthorized_client":    unregistered,
	"unsupported_grant_type": unregistered,
	"invalid_scope":          unregistered,

	"server_error":            unable, // section 4.1.2.1
	"temporarily_unavailable": unable,

	"redirect_uri_mismatch":        refused, // GitHub
	"bad_verification_code":        refused,
	"incorrect_client_credentials": unregistered,

	"deleted_client":    unregistered, // Google
	"disabled_client":   unregistered,
	"invalid_client_id": unregistered, // Slack
	"bad_client_secret": unregistered,

	facebookCode + "1":   unregistered, // a wrong client_secret
	facebookCode + "101": unregistered, // a wrong client_id
}

// facebookCode begins what stands for the error of Facebook, which is an object with a number
// as its code.
const facebookCode = "code "

// registrationStatuses say that our registration is wrong if no OAuth error comes with them,
// and so does any redirect. StatusUnauthorized also says so with a code that is not listed:
// that is how Auth0 answers a wrong client_secret, and what the status is for (RFC 6749,
// section 5.2).
var registrationStatuses = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone,
}

// What to do about faults of a provider.
const (
	checkRegistration = "check client_id, client_secret and auth_style, and the provider's registration of this client"
	askOperator       = "the provider is at fault: look at its log, or ask its operator"
	checkUserinfo     = "check scope, and the provider's registration of this client: userinfo must answer its access tokens with plain JSON"
	checkSubject      = "let the provider give a sub, or name a subject, of 1 to 255 bytes without control characters"
	checkIDToken      = "check the provider's registration of this client: it needs ID tokens that are for client_id, not encrypted, and signed with an asymmetric algorithm that the provider's document lists"
	checkIssuer       = "write it so behind oidc if it is your provider; a slash at the end counts"
	checkClocks       = "compare this machine's clock (timedatectl) with the provider's"
)

// idTokenSteps says what to do about an ID token that go-oidc refuses, by how its text begins.
// It is askOperator for others, such as those of keys.
var idTokenSteps = map[string]string{
	"oidc: token is expired":                        checkClocks,
	"oidc: current time":                            checkClocks, // is before nbf
	"oidc: id token issued by a different provider": checkIssuer,
	"oidc: expected audience":                       checkIDToken,
	"oidc: malformed jwt":                           checkIDToken, // such as with another algorithm
}

// notTaken reports whether an endpoint was the wrong one, or was asked in the wrong way. So a
// token endpoint can't have taken the code.
func notTaken(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, tenant.ErrProviderFault) || ok && op.Op == "dial"
}

// requestFailed reports whether the request failed, and not just its answer.
func requestFailed(err error) bool {
	if errors.Is(err, guest.ErrTooLarge) {
		return false
	}
	_, ok := errors.AsType[*url.Error](err)
	return ok || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// newOAuthUser refuses a subject that can't be stored, and drops an email that is no text or
// not valid.
func newOAuthUser(subject string, email, verified any) (tenant.OAuthUser, error) {
	if !record.IsSubject(subject) {
		return tenant.OAuthUser{}, providerFault(checkSubject, "the provider names the user in a way that can't be kept")
	}
	address, _ := email.(string)
	if !strings.Contains(address, "@") || strings.ContainsFunc(address, unicode.IsControl) {
		return tenant.OAuthUser{Subject: subject}, nil
	}
	return tenant.OAuthUser{Subject: subject, Email: address, EmailVerified: isTrue(verified)}, nil
}

// isTrue reports whether a JSON value is true, which some providers write as a string.
func isTrue(value any) bool { return value == true || value == "true" }
