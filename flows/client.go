package flows

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A ClientConfig is what a client must know of a company before a login, ready to be
// marshalled. Nothing of it is secret.
type ClientConfig struct {
	Password    ClientPassword    `json:"password"`
	Captcha     ClientCaptcha     `json:"captcha"`
	Recovery    []Method          `json:"recovery"` // the default first
	OAuth       []ClientOAuth     `json:"oauth"`    // by provider_id
	Disclaimers []Disclaimer      `json:"disclaimers"`
	Session     ClientSessionLife `json:"session"`
}

// ClientPassword is what new passwords must be, whosever they are.
type ClientPassword struct {
	MinLength   int     `json:"min_length"`
	Regex       *string `json:"regex"` // null for none
	Description string  `json:"description"`
	// RegexDescription is what the operator says of the Regex, for those who say the
	// rest in another language.
	RegexDescription string `json:"regex_description,omitempty"`
}

// ClientCaptcha is what a captcha_response is made with.
type ClientCaptcha struct {
	Type    string `json:"type"` // as the operator configures it, such as turnstile or off
	SiteKey string `json:"site_key,omitempty"`
	Bits    int    `json:"bits,omitempty"` // of a ProofOfWork
}

// ClientOAuth is where a login with a provider begins.
type ClientOAuth struct {
	ProviderID   int     `json:"provider_id"`
	Name         string  `json:"name"`
	AuthorizeURL *string `json:"authorize_url"` // null if it is not known, or not now
	ClientID     string  `json:"client_id"`
	Scope        string  `json:"scope"`
	PKCE         bool    `json:"pkce"`
}

// ClientSessionLife is how long authorized sessions last, in seconds.
type ClientSessionLife struct {
	Idle     int `json:"idle"`
	Lifetime int `json:"lifetime"`
}

// ClientConfig returns that of the company whose API key was sent. A provider that
// does not say in time where logins begin has none there. Of the Request its Company,
// APIKeys and Languages are looked at.
func (s *Service) ClientConfig(ctx context.Context, r *Request) (config ClientConfig, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.warnings.Unanswered(s.Log, err, "company", r.Company, "route", "client.json") }()
	c, _, err := s.clientOf(ctx, r.Company, r.APIKeys)
	if err != nil {
		return ClientConfig{}, err
	}
	all := &call{company: c, languages: r.Languages}
	return ClientConfig{
		Password:    c.clientPassword(),
		Captcha:     c.clientCaptcha(),
		Recovery:    append([]Method{}, c.Methods...),
		OAuth:       s.clientOAuth(ctx, c),
		Disclaimers: all.pending(record.Account{}, nil),
		Session:     ClientSessionLife{int(c.Idle / time.Second), int(c.Lifetime / time.Second)},
	}, nil
}

// ClientPassword is what new passwords must be.
func (c *Company) clientPassword() ClientPassword {
	q := c.quality(record.Account{SecondFactor: true})
	p := ClientPassword{c.Password.MinLength, q.Regex, q.Description, c.Password.RegexDescription}
	if c.Hardened && c.SecondFactor == SecondFactorPerAccount && p.MinLength < hardenedMinLength {
		p.Description += fmt.Sprintf(" At least %d characters for an account without a second factor.", hardenedMinLength)
	}
	if c.Hardened && c.SecondFactor == SecondFactorOff {
		p.MinLength = max(p.MinLength, hardenedMinLength)
	}
	return p
}

// ClientCaptcha is what a captcha_response is made with.
func (c *Company) clientCaptcha() ClientCaptcha {
	captcha := ClientCaptcha{Type: cmp.Or(c.CaptchaType, "off"), SiteKey: c.SiteKey}
	if work, ok := c.Captcha.(ProofOfWork); ok {
		captcha.Bits = work.Bits()
	}
	return captcha
}

// authorizeTime is how long a client waits for providers to say where logins begin.
const authorizeTime = 1500 * time.Millisecond

// clientOAuth asks all providers at once.
func (s *Service) clientOAuth(ctx context.Context, c *Company) []ClientOAuth {
	ctx, cancel := context.WithTimeout(ctx, authorizeTime)
	defer cancel()
	ids := slices.Sorted(maps.Keys(c.OAuth))
	clients := make([]ClientOAuth, len(ids))
	var asked sync.WaitGroup
	for i, id := range ids {
		o := c.OAuth[id]
		clients[i] = ClientOAuth{ProviderID: id, Name: o.Name, ClientID: o.ClientID, Scope: strings.Join(o.Scopes, " "), PKCE: o.RequirePKCE}
		if o.Authorizer == nil {
			continue
		}
		asked.Go(func() {
			var begins OAuthStart
			err := Contain(func() (err error) {
				begins, err = o.Authorizer.Start(ctx)
				return err
			})
			if err != nil {
				s.warnings.Warn(s.Log, "a provider does not say where logins begin, so clients can't offer it", "company", c.Code, "provider_id", id, "error", err)
				return
			}
			if begins.URL != "" {
				clients[i].AuthorizeURL = &begins.URL
			}
			clients[i].PKCE = o.RequirePKCE || begins.PKCE
		})
	}
	asked.Wait()
	return clients
}
