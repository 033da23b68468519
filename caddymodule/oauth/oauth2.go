package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(OAuth2{}) }

// OAuth2 logs users in with a provider that supports OAuth 2.0 without OpenID
// Connect, like GitHub. It exchanges the code for an access token, and the
// provider's userinfo answer identifies the user. It uses only https, except on this
// machine or where an address may be insecure, and follows no redirects. See
// oauthClient for the other options.
type OAuth2 struct {
	// The URL where the user logs in with a browser. Clients find it in client.json.
	// Without it they must know the URL. Default: none.
	AuthorizeURL string `json:"authorize_url,omitempty"`

	// The token endpoint, which exchanges codes; required.
	TokenURL string `json:"token_url,omitempty"`

	// The userinfo endpoint; required. It receives the access token as a Bearer
	// token and answers a JSON object.
	UserinfoURL string `json:"userinfo_url,omitempty"`

	// The field of that object that permanently identifies the user: a string or an
	// integer. A dot selects a member of an object or, before a number, an element
	// of a list: `data.id`, `response.0.id`. Required. Never use an email or a name
	// that can change: its next owner could log in to the account. Never change this
	// option while accounts are linked.
	Subject string `json:"subject,omitempty"`

	// The field with the email, in the same syntax. Default: none.
	Email string `json:"email,omitempty"`

	// The field that is true (or "true") if the provider has verified the email, in
	// the same syntax. Default: none, and emails count as unverified.
	Verified string `json:"verified,omitempty"`
	oauthClient
}

// CaddyModule returns the Caddy module information.
func (OAuth2) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.oauth.oauth2", New: func() caddy.Module { return new(OAuth2) }}
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens.
func (p *OAuth2) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := p.options()
	options["authorize_url <url> [insecure]"] = guest.Address(&p.AuthorizeURL, &p.Insecure)
	options["token_url <url> [insecure]"] = guest.Address(&p.TokenURL, &p.Insecure)
	options["userinfo_url <url> [insecure]"] = guest.Address(&p.UserinfoURL, &p.Insecure)
	options["subject <field>"] = guest.Text(&p.Subject)
	options["email <field> [<verified_field>]"] = func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() == 1 {
			return guest.Text(&p.Email)(d)
		}
		if !d.AllArgs(&p.Email, &p.Verified) {
			return guest.ErrArguments
		}
		return nil
	}
	return guest.Complete(d, guest.NoArguments(d, options), p.checkGiven)
}

// Provision sets the defaults and resolves the placeholders.
func (p *OAuth2) Provision(caddy.Context) error {
	p.nameAfter(cmp.Or(p.AuthorizeURL, p.TokenURL))
	return p.provision("oauth oauth2")
}

// Validate refuses an incomplete provider.
func (p *OAuth2) Validate() error {
	if _, err := p.url(p.TokenURL); err != nil {
		return fmt.Errorf("oauth oauth2: token_url: %w", err)
	}
	if _, err := p.url(p.UserinfoURL); err != nil {
		return fmt.Errorf("oauth oauth2: userinfo_url: %w", err)
	}
	if u, err := p.url(p.AuthorizeURL); p.AuthorizeURL != "" && (err != nil || u.Fragment != "") {
		return fmt.Errorf("oauth oauth2: authorize_url: %w", cmp.Or(err, errors.New("leave out what follows #")))
	}
	if p.Subject == "" {
		return errors.New("oauth oauth2: subject is missing; name the field that identifies the user")
	}
	const advice = "write the name of the field"
	if err := cmp.Or(guest.Inside("subject", guest.CheckNoSecret(p.Subject, advice)), guest.Inside("email", guest.CheckNoSecret(p.Email+p.Verified, advice))); err != nil {
		return fmt.Errorf("oauth oauth2: %w", err)
	}
	if p.LinkVerifiedEmail && (p.Email == "" || p.Verified == "") {
		return errors.New("oauth oauth2: link_verified_email needs email with the field that says whether it is verified")
	}
	return p.validate("oauth oauth2")
}

// Endpoint implements guest.Remote.
func (p *OAuth2) Endpoint() string { return guest.EndpointOf(p.TokenURL) }

// Check implements guest.Checked.
func (p *OAuth2) Check() (string, func(context.Context) error) {
	to, _ := url.Parse(p.TokenURL) // Validate has parsed it
	return guest.CheckReach(to)
}

// Weaknesses implements guest.Weak.
func (p *OAuth2) Weaknesses() []guest.Weakness {
	return slices.Concat(guest.HTTPWeakness(p.Insecure, p.AuthorizeURL, p.TokenURL, p.UserinfoURL), p.redirectWeakness(), p.codeWeakness())
}

// Start implements tenant.OAuthAuthorizer.
func (p *OAuth2) Start(context.Context) (tenant.OAuthStart, error) {
	return tenant.OAuthStart{URL: p.AuthorizeURL}, nil
}

// Exchange implements tenant.OAuthProvider.
func (p *OAuth2) Exchange(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Timeout))
	defer cancel()
	user, err := p.login(ctx, grant)
	return user, guest.Inside("oauth oauth2 "+p.ClientID, err)
}

func (p *OAuth2) login(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	token, err := p.exchange(ctx, p.TokenURL, authBasic, grant)
	if err != nil {
		return tenant.OAuthUser{}, err
	}
	info, err := p.userinfo(ctx, p.UserinfoURL, token.Access)
	if err != nil {
		return tenant.OAuthUser{}, err
	}
	return p.user(info)
}

// user reads the configured fields from a userinfo answer.
func (p *OAuth2) user(info []byte) (tenant.OAuthUser, error) {
	decoder := json.NewDecoder(strings.NewReader(string(info)))
	decoder.UseNumber() // ids above 2^53 must not be rounded
	var doc map[string]any
	if decoder.Decode(&doc) != nil || decoder.More() {
		return tenant.OAuthUser{}, providerFault(checkUserinfo, "userinfo's answer is not a JSON object")
	}
	subject, ok := field(doc, p.Subject).(string)
	if number, is := field(doc, p.Subject).(json.Number); is && !strings.ContainsAny(number.String(), ".eE") {
		subject, ok = number.String(), true
	}
	if !ok {
		return tenant.OAuthUser{}, providerFault("correct subject, or check scope", "userinfo's answer has no string or integer at %s", p.Subject)
	}
	return newOAuthUser(subject, field(doc, p.Email), field(doc, p.Verified))
}

// field follows a dotted path into a JSON document. It returns nil if the path does
// not exist.
func field(doc any, path string) any {
	if path == "" {
		return nil
	}
	for step := range strings.SplitSeq(path, ".") {
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

// Interface guards
var (
	_ guest.OAuthModule      = (*OAuth2)(nil)
	_ tenant.OAuthAuthorizer = (*OAuth2)(nil)
	_ guest.Remote           = (*OAuth2)(nil)
	_ guest.Weak             = (*OAuth2)(nil)
	_ caddy.Provisioner      = (*OAuth2)(nil)
	_ caddy.Validator        = (*OAuth2)(nil)
	_ caddyfile.Unmarshaler  = (*OAuth2)(nil)
)
