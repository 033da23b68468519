package flows

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// ClientConfig returns the client configuration of the company whose API key was sent. A
// provider that does not return its authorization URL in time has none in the result.
// ClientConfig uses only Company, APIKeys, PageKey and Languages of the Request.
func (s *Service) ClientConfig(ctx context.Context, r *Request) (tenant.ClientConfig, error) {
	ctx = record.WithStoreTime(ctx)
	c, _, err := s.companyOf(ctx, r)
	if err != nil {
		return tenant.ClientConfig{}, s.unanswered(ctx, r, "client.json", err)
	}
	return s.ConfigOf(ctx, c, r.Languages), nil
}

// ConfigOf is ClientConfig for a page that brings its configuration with it.
func (s *Service) ConfigOf(ctx context.Context, c *tenant.Company, languages func() []language.Tag) tenant.ClientConfig {
	var issued *tenant.ClientTokens
	if c.IssuedTokens.ByUsers {
		issued = &tenant.ClientTokens{Lifetime: seconds(c.IssuedTokens.Lifetime)}
	}
	return tenant.ClientConfig{
		Password:         c.ClientPassword(),
		Captcha:          c.ClientCaptcha(),
		Recovery:         append([]tenant.Method{}, c.Recovery.Methods...),
		OAuth:            s.clientOAuth(ctx, c),
		Disclaimers:      session.Pending(c, languages, record.Account{}, nil),
		Name:             c.DisplayName(),
		OTP:              tenant.ClientOTP{Length: c.OTP.Length, TTL: seconds(c.OTP.TTL)},
		Passkeys:         c.Passkeys != nil,
		Devices:          c.Devices.For != 0,
		SkipSecondFactor: c.Devices.SkipSecondFactor,
		IssuedTokens:     issued,
		Hardened:         c.Hardened,
		Session:          tenant.ClientSessionLife{Idle: seconds(c.Session.Idle), Lifetime: seconds(c.Session.Lifetime)},
	}
}

func seconds(d tenant.Duration) int { return int(time.Duration(d) / time.Second) }

// authorizeTime is how long a client waits for the authorization URLs of the providers.
const authorizeTime = 1500 * time.Millisecond

// clientOAuth returns the company's providers, ordered by id. It asks them concurrently.
func (s *Service) clientOAuth(ctx context.Context, c *tenant.Company) []tenant.ClientOAuth {
	ctx, cancel := context.WithTimeout(ctx, authorizeTime)
	defer cancel()
	ids := slices.Sorted(maps.Keys(c.OAuth))
	clients := make([]tenant.ClientOAuth, len(ids))
	var asked sync.WaitGroup
	for i, id := range ids {
		o := c.OAuth[id]
		clients[i] = tenant.ClientOAuth{ProviderID: id, Name: o.Name, ClientID: o.ClientID, Scope: strings.Join(o.Scopes, " "), PKCE: o.RequirePKCE, Prompt: o.Prompt, ResponseMode: o.ResponseMode}
		if o.Authorizer == nil {
			continue
		}
		asked.Go(func() {
			var begins tenant.OAuthStart
			err := panics.Contain(func() (err error) {
				begins, err = o.Authorizer.Start(ctx)
				return err
			})
			if wire.HungUp(ctx, err) {
				return
			}
			if err != nil {
				s.Warn("a provider does not say where logins begin, so clients can't offer it", "company", c.Code, "provider_id", id, "error", err)
				return
			}
			if begins.URL != "" {
				clients[i].AuthorizeURL = &begins.URL
			}
			clients[i].PKCE = o.RequirePKCE || begins.PKCE
			clients[i].Issuer, clients[i].IssRequired = begins.Issuer, begins.Iss
		})
	}
	asked.Wait()
	return clients
}
