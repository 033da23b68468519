package flows

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// account loads the account of the call's session. A decoy's is empty but for
// Era and Tallies, those of the login id it stands for; it takes as many calls.
func (s *Service) account(ctx context.Context, c *call) (record.Account, error) {
	if c.loaded != nil {
		return *c.loaded, nil
	}
	a, err := s.ofSession(ctx, c)
	if errors.Is(err, record.ErrNotFound) { // it was deleted
		a, err = s.nobody(ctx, c)
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("loading the account", err)
	}
	if a.ID != c.session.Account || a.Epoch != c.session.Epoch || a.Era != c.session.Era {
		if a, err = c.ofRevoked(a); err != nil {
			return record.Account{}, err
		}
	}
	if a.ID != 0 {
		c.found(a)
	}
	return a, nil
}

// ofRevoked is what a step goes on with whose session was revoked. As a rule that
// is an error: the account's status, if that revoked it and the route tells of it
// (contract, 3). But in a hardened company a session that strangers can have of
// anyone passes for a decoy, so that they don't learn of the account; its status
// shows behind its secret.
func (c *call) ofRevoked(a record.Account) (record.Account, error) {
	var status error
	if c.session.Epoch == a.Barred-1 && c.session.Era == a.Era && c.Now.Before(c.session.Expires) {
		status = tenant.Admitted(a)
	}
	anyones := c.Company.Hardened && (c.session.State == record.CheckPassword || c.session.State == record.RecoveryOTP)
	switch {
	case c.session.Era != a.Era: // with which decoys end, too
	case anyones && status != nil:
		return a, nil
	case anyones:
		if c.session.Code != nil {
			c.session.Code.Phone = "" // a decoy's
		}
		return record.Account{Era: a.Era}, nil
	case status != nil && c.tellsStatus && (!c.Company.Hardened || c.proven(a)):
		c.found(a)
		return record.Account{}, status
	}
	return record.Account{}, wire.ErrTokenInvalid
}

// proven reports whether a secret of the account led to the call's session.
func (c *call) proven(a record.Account) bool {
	switch c.session.State {
	case record.CheckPassword, record.RecoveryOTP, record.RecoveryQuestion:
		return false
	case record.CheckOTP:
		return a.PasswordHash != ""
	default:
		return true
	}
}

// whyRevoked is the answer to a token that was found to be invalid: the status of
// its account, if that revoked it, else still wire.ErrTokenInvalid.
func (s *Service) whyRevoked(ctx context.Context, c *call, prefix, token string) error {
	if !c.tellsStatus || !tokens.Shaped(prefix, token) {
		return wire.ErrTokenInvalid
	}
	session, err := s.Sessions.Revoked(ctx, record.HashToken(token))
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return wire.Unavailable("asking why the session was revoked", err)
	}
	if err != nil || session.Company != c.Company.Code || !c.Now.Before(session.Expires) {
		return wire.ErrTokenInvalid
	}
	defer func(own *record.Session) { c.session = own }(c.session)
	c.session, c.loaded = &session, nil
	if _, err := s.account(ctx, c); err != nil {
		return err
	}
	return wire.ErrTokenInvalid // the accounts store has lost the change that revoked it
}

func (s *Service) ofSession(ctx context.Context, c *call) (record.Account, error) {
	if c.session.Account != 0 {
		return s.Accounts.ByID(ctx, c.Company.Code, c.session.Account)
	}
	return s.nobody(ctx, c)
}

// nobody is the account of a decoy.
func (s *Service) nobody(ctx context.Context, c *call) (record.Account, error) {
	a, err := s.Accounts.ByLoginID(ctx, c.Company.Code, "", c.session.LoginID) // which no account has
	if errors.Is(err, record.ErrNotFound) {
		err = nil
	}
	return a, err
}

// accountByLoginID finds the account with a normalised login id, and the login
// id's alias. An unknown one is no error: the account is then empty but for the
// alias's Tallies.
func (s *Service) accountByLoginID(ctx context.Context, c *call, loginID string) (a record.Account, alias string, err error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return record.Account{}, "", err
	}
	alias = keys.Alias(c.Company.Code, loginID)
	a, err = s.Accounts.ByLoginID(ctx, c.Company.Code, loginID, alias)
	if errors.Is(err, record.ErrNotFound) {
		return record.Account{Era: a.Era, Tallies: a.Tallies}, alias, nil
	}
	if err != nil {
		return record.Account{}, "", wire.Unavailable("looking up the login id", err)
	}
	c.found(a)
	return a, alias, nil
}
