package flows

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type oauthRequest struct {
	// Which of the company's OAuth providers.
	ProviderID int `json:"provider_id" need:"y"`
	// The authorization code as received from the provider. It works once.
	Code string `json:"code" max:"4096" need:"y"`
	// The redirect URI that was sent to the provider. It must be one of those configured.
	RedirectURI string `json:"redirect_uri" max:"2048" need:"y"`
	// The verifier of the code_challenge that was sent to the provider (PKCE).
	CodeVerifier string `json:"code_verifier" max:"128"`
	// The nonce that was sent to the provider.
	Nonce string `json:"nonce" max:"256"`

	// The token of a known device, from an earlier login. The owner gets no notice of a login
	// from a known device. Default: the cookie `__Host-mnemogate-device`.
	DeviceToken    string `json:"device_token" max:"128"`
	RememberDevice bool   `json:"remember_device"`
}

// codeVerifier matches the code_verifier of RFC 7636, section 4.1.
var codeVerifier = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// oauth logs in with the code of a provider (interface, Endpoints 7). If a service does not
// answer, the code may be spent.
func (s *Service) oauth(ctx context.Context, c *session.Call, req *oauthRequest) (_ Reply, err error) {
	defer func() {
		if r, ok := errors.AsType[*wire.Refusal](err); ok && r.Err == wire.ErrUnavailable {
			again := *r
			again.Message = "A service that this login needs did not answer. Start again at the provider after the seconds in Retry-After."
			err = &again
		}
	}()
	if req.CodeVerifier != "" && !codeVerifier.MatchString(req.CodeVerifier) {
		return Reply{}, wire.Invalid("The field code_verifier must have 43 to 128 letters, digits and -._~ (RFC 7636, 4.1).")
	}
	config, ok := c.Company.OAuth[req.ProviderID]
	if !ok {
		return Reply{}, wire.Invalid("The field provider_id names no configured provider. client.json lists them.")
	}
	if config.RequirePKCE && req.CodeVerifier == "" {
		return Reply{}, wire.Invalid("The field code_verifier is missing. This provider needs PKCE.")
	}
	user, err := s.exchange(ctx, c, config, req)
	if err != nil {
		return Reply{}, err
	}
	a, err := s.accountOfUser(ctx, c, config, record.Identity{Provider: req.ProviderID, Subject: user.Subject}, user)
	if err != nil {
		return Reply{}, err
	}
	if err := c.FindDevice(ctx, a, req.DeviceToken); err != nil {
		return Reply{}, err
	}
	c.Remember(req.RememberDevice)
	c.With = strconv.Itoa(req.ProviderID)
	next := session.Step{Account: a, State: record.Authorized, By: record.ByOAuth, AuthTime: user.AuthTime}
	if pending := c.Pending(a, nil); len(pending) > 0 {
		next.State, next.Lists = record.AcceptDisclaimers, pending
	}
	return c.Enter(ctx, next)
}

// exchange returns the user that the code stands for. If the provider refuses the code,
// that counts as a failure of the address.
func (s *Service) exchange(ctx context.Context, c *session.Call, config tenant.OAuth, req *oauthRequest) (tenant.OAuthUser, error) {
	client := ctx
	ctx = context.WithoutCancel(ctx) // the outcome counts even if the client hangs up
	user, err := s.askProvider(ctx, c, config, req)
	if err != nil && !errors.Is(err, wire.ErrOAuthFailed) {
		return tenant.OAuthUser{}, err
	}
	if errors.Is(err, tenant.ErrProviderFault) {
		c.GiveBack(client, wire.ErrUnavailable)
		s.Warn("a provider can't confirm logins", "company", c.Company.Code, "provider_id", req.ProviderID, "error", err)
		return tenant.OAuthUser{}, notConfirmed(err)
	}
	c.Worked()
	if err := c.RecordAddress(ctx, err == nil); err != nil {
		return tenant.OAuthUser{}, err
	}
	if err != nil {
		s.Log.Info("a provider did not confirm a login", "company", c.Company.Code, "provider_id", req.ProviderID, "error", err)
		return tenant.OAuthUser{}, notConfirmed(err)
	}
	return user, nil
}

// notConfirmed returns the answer with its cause, so that the audit log has both with the ref.
func notConfirmed(cause error) error { return &wire.Refusal{Err: wire.ErrOAuthFailed, Cause: cause} }

// askProvider sends the code to the provider. It fails early if the redirect URI is not
// configured or the code was sent before.
func (s *Service) askProvider(ctx context.Context, c *session.Call, config tenant.OAuth, req *oauthRequest) (tenant.OAuthUser, error) {
	if !slices.Contains(config.RedirectURIs, req.RedirectURI) {
		return tenant.OAuthUser{}, fmt.Errorf("%w: the redirect_uri is not one of those configured", wire.ErrOAuthFailed)
	}
	if err := spendGrant(ctx, c, req); err != nil {
		return tenant.OAuthUser{}, err
	}
	grant := tenant.OAuthGrant{
		Code:         req.Code,
		RedirectURI:  req.RedirectURI,
		CodeVerifier: req.CodeVerifier,
		Nonce:        req.Nonce,
		IsLinked: func(ctx context.Context, subject string) bool {
			_, err := s.Accounts.ByIdentity(ctx, c.Company.Code, record.Identity{Provider: req.ProviderID, Subject: subject})
			return err == nil
		},
	}
	user, err := session.Ask(ctx, &c.Attempt, session.AskLimit, func(ctx context.Context) (tenant.OAuthUser, error) {
		return config.Provider.Exchange(ctx, grant)
	})
	switch {
	case err != nil && !errors.Is(err, wire.ErrOAuthFailed):
		return tenant.OAuthUser{}, wire.Unavailable("asking the provider", err)
	case err == nil && !record.IsSubject(user.Subject):
		return tenant.OAuthUser{}, fmt.Errorf("%w: the provider names the user in a way that can't be kept", tenant.ErrProviderFault)
	}
	return user, err
}

// spendGrant makes sure that each code is sent to a provider at most once, even if the
// login then fails. RFC 6749, section 4.1.2 requires this of clients, and not every
// provider enforces it. By the same section, a code should be valid for ten minutes at
// most.
//
// A code is spent for all providers of all companies. This defeats the mix-up attack, in
// which one provider gets hold of a code of another and logs in with it (RFC 9700, section
// 4.4).
func spendGrant(ctx context.Context, c *session.Call, req *oauthRequest) error {
	code := []byte(strings.TrimFunc(req.Code, isTrimmed))
	first, err := c.Spend(ctx, "grant", code)
	if first {
		first, err = c.MarkUsed(ctx, limits.Mark("", "grant", code))
	}
	if err == nil && !first {
		err = fmt.Errorf("%w: the code was sent before", wire.ErrOAuthFailed)
	}
	return err
}
