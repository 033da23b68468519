package flows

import (
	"context"
	"errors"
	"slices"
	"strconv"
)

type oauthRequest struct {
	ProviderID   int    `json:"provider_id" need:"y"`
	Code         string `json:"code" max:"4096" need:"y"`
	RedirectURI  string `json:"redirect_uri" max:"2048" need:"y"`
	CodeVerifier string `json:"code_verifier" max:"128"`
	Nonce        string `json:"nonce" max:"256"`
}

// oauth logs in with the code of a provider (interface, Endpoints 7).
func (s *Service) oauth(ctx context.Context, c *call, req *oauthRequest) (Reply, error) {
	config, ok := c.company.OAuth[req.ProviderID]
	if !ok {
		return Reply{}, invalid("The field provider_id names no provider that is configured.")
	}
	if config.RequirePKCE && req.CodeVerifier == "" {
		return Reply{}, invalid("The field code_verifier is missing; this provider is used with PKCE only.")
	}
	if err := s.checkAddress(ctx, c); err != nil {
		return Reply{}, err
	}
	user, err := s.exchange(ctx, c, config, req)
	if err != nil {
		return Reply{}, err
	}
	a, err := s.accountOfUser(ctx, c, config, Identity{req.ProviderID, user.Subject}, user)
	if err != nil {
		return Reply{}, err
	}
	if len(c.company.pending(a, nil)) == 0 {
		return s.authorize(ctx, c, step{account: a})
	}
	reply, err := s.enter(ctx, c, step{account: a, state: AcceptDisclaimers})
	reply.DisclaimersRequired = c.company.pending(a, nil)
	return reply, err
}

// exchange asks the provider. A failure counts against the address.
func (s *Service) exchange(ctx context.Context, c *call, config OAuth, req *oauthRequest) (OAuthUser, error) {
	var user OAuthUser
	err := error(ErrOAuthFailed)
	if slices.Contains(config.RedirectURIs, req.RedirectURI) {
		user, err = config.Provider.Exchange(ctx, OAuthGrant{
			Code:         req.Code,
			RedirectURI:  req.RedirectURI,
			CodeVerifier: req.CodeVerifier,
			Nonce:        req.Nonce,
		})
	}
	if err != nil && !errors.Is(err, ErrOAuthFailed) {
		return OAuthUser{}, unavailable("asking the provider", err)
	}
	if err == nil && user.Subject == "" {
		err = ErrOAuthFailed
	}
	if err := s.settleAddress(ctx, c, err == nil); err != nil {
		return OAuthUser{}, err
	}
	if err != nil {
		s.Log.Info("a provider did not confirm a login", "company", c.company.Code, "provider", req.ProviderID, "error", err)
		return OAuthUser{}, ErrOAuthFailed
	}
	return user, nil
}

// accountOfUser finds the account bound to the user. With LinkVerifiedEmail one
// whose primary email the provider has verified is bound at its first use.
func (s *Service) accountOfUser(ctx context.Context, c *call, config OAuth, identity Identity, user OAuthUser) (Account, error) {
	a, err := s.Accounts.ByIdentity(ctx, c.company.Code, identity)
	if err == nil {
		c.found(a)
		return a, admitted(a)
	}
	if !errors.Is(err, ErrNotFound) {
		return Account{}, unavailable("looking up the provider's user", err)
	}
	if !config.LinkVerifiedEmail || !user.EmailVerified || user.Email == "" {
		return Account{}, ErrOAuthNotFound
	}
	email := NormalizeLoginID(user.Email)
	a, _, err = s.accountByLoginID(ctx, c, email)
	if err != nil {
		return Account{}, err
	}
	if a.ID == 0 || NormalizeLoginID(a.Email) != email { // the login id may be its login name
		return Account{}, ErrOAuthNotFound
	}
	if err := admitted(a); err != nil {
		return Account{}, err
	}
	err = s.Accounts.Bind(ctx, c.now, c.company.Code, a.ID, identity)
	if errors.Is(err, ErrConflict) {
		// It is bound to another user of the provider, or has just been to this.
		a, err = s.Accounts.ByIdentity(ctx, c.company.Code, identity)
		if errors.Is(err, ErrNotFound) {
			return Account{}, ErrOAuthNotFound
		}
		if err == nil {
			return a, admitted(a)
		}
	}
	if err != nil {
		return Account{}, unavailable("binding the provider's user", err)
	}
	c.happened(IdentityBound, "provider "+strconv.Itoa(identity.Provider))
	return a, nil
}
