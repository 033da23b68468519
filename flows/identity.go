package flows

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// accountOfUser finds the account that is bound to the provider's user. With
// LinkVerifiedEmail, it binds an account at the first login if the provider has verified
// the account's primary email.
func (s *Service) accountOfUser(ctx context.Context, c *session.Call, config tenant.OAuth, identity record.Identity, user tenant.OAuthUser) (record.Account, error) {
	a, err := s.boundTo(ctx, c, identity)
	if err != wire.ErrOAuthNotFound || !config.LinkVerifiedEmail {
		return a, err
	}
	if !user.EmailVerified || typed.Email(user.Email) == "" {
		return record.Account{}, notLinked("the provider gives no email that it has verified")
	}
	a, _, err = c.FindAccount(ctx, user.Email)
	if err != nil {
		return record.Account{}, err
	}
	if a.ID == 0 || !record.SameEmail(a.Email, user.Email) { // the email may match its login name instead
		return record.Account{}, notLinked("no account has the email")
	}
	if err := tenant.CheckStatus(a); err != nil {
		return record.Account{}, err
	}
	err = s.bind(ctx, c, a, identity)
	if errors.Is(err, record.ErrConflict) {
		// The account is bound to another user of the provider, or another request has
		// just bound it to this user or changed it.
		a, err = s.boundTo(ctx, c, identity)
		if err == wire.ErrOAuthNotFound {
			err = notLinked("the account with the email is linked to another user of the provider; if that is the same person, remove that identity")
		}
		return a, err
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("binding the provider's user", err)
	}
	c.Notify(ctx, a, message.NoticeIdentityBound)
	return a, nil
}

// notLinked returns the answer with what the audit log says of link_verified_email.
func notLinked(why string) error {
	return &wire.Refusal{Err: wire.ErrOAuthNotFound, Cause: errors.New("link_verified_email: " + why)}
}

// boundTo returns the account of an identity, or wire.ErrOAuthNotFound.
func (s *Service) boundTo(ctx context.Context, c *session.Call, identity record.Identity) (record.Account, error) {
	a, err := s.Accounts.ByIdentity(ctx, c.Company.Code, identity)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return record.Account{}, wire.ErrOAuthNotFound
	case err != nil:
		return record.Account{}, wire.Unavailable("looking up the provider's user", err)
	}
	c.SetAccount(a)
	return a, tenant.CheckStatus(a)
}

// bind adds an identity to an account that has none of this provider. It returns
// record.ErrConflict if the account has one, if the identity belongs to another account,
// or if a change such as a new email has revoked the account's sessions.
func (s *Service) bind(ctx context.Context, c *session.Call, to record.Account, identity record.Identity) error {
	bound := record.Event{
		Name: record.IdentityBound, Time: c.Now, Mnemocode: to.Mnemocode, Provider: identity.Provider,
		Reason: "provider " + strconv.Itoa(identity.Provider),
	}
	_, err := s.Accounts.Update(ctx, c.Company.Code, to.ID, func(a *record.Account) (ends bool, err error) {
		if a.Generation != to.Generation || slices.ContainsFunc(a.Identities, func(i record.Identity) bool { return i.Provider == identity.Provider }) {
			return false, record.ErrConflict
		}
		a.Identities = append(a.Identities, identity)
		a.Updated = c.Now
		a.Outbox = background.OutboxEvents(ctx, c.Company, bound)
		return false, nil
	})
	if _, taken := errors.AsType[*record.TakenError](err); taken {
		return record.ErrConflict
	}
	if err == nil {
		c.Events = append(c.Events, bound)
	}
	return err
}
