package session

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// LoadAccount loads the account of the call's session. A decoy's is empty but for
// Era and Tallies, those of the login id it stands for; it takes as many calls.
func (c *Call) LoadAccount(ctx context.Context) (record.Account, error) {
	if c.loaded != nil {
		return *c.loaded, nil
	}
	a, err := c.ofSession(ctx)
	if errors.Is(err, record.ErrNotFound) { // it was deleted
		a, err = c.nobody(ctx)
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("loading the account", err)
	}
	if a.ID != c.session.Account || a.Generation != c.session.Generation || a.CompanyGeneration != c.session.CompanyGeneration {
		if a, err = c.ofRevoked(a); err != nil {
			return record.Account{}, err
		}
	}
	if a.ID != 0 {
		c.Found(a)
	}
	return a, nil
}

// ofRevoked is what a step goes on with whose session was revoked. As a rule that
// is an error: the account's status, if that revoked it and the route tells of it
// (contract, 3). But in a hardened company a session that strangers can have of
// anyone passes for a decoy, so that they don't learn of the account; its status
// shows behind its secret.
func (c *Call) ofRevoked(a record.Account) (record.Account, error) {
	var status error
	if c.session.Generation == a.Barred-1 && c.session.CompanyGeneration == a.CompanyGeneration && c.Now.Before(c.session.Expires) {
		status = tenant.Admitted(a)
	}
	anyones := c.Company.Hardened && (c.session.State == record.CheckPassword || c.session.State == record.RecoveryOTP)
	switch {
	case c.session.CompanyGeneration != a.CompanyGeneration: // with which decoys end, too
	case anyones && status != nil:
		return a, nil
	case anyones:
		if c.session.Code != nil {
			c.session.Code.Phone = "" // a decoy's
		}
		return record.Account{CompanyGeneration: a.CompanyGeneration}, nil
	case status != nil && c.client.SeesStatus && (!c.Company.Hardened || c.proven(a)):
		c.Found(a)
		return record.Account{}, status
	}
	return record.Account{}, wire.ErrTokenInvalid
}

// proven reports whether a secret of the account led to the call's session.
func (c *Call) proven(a record.Account) bool {
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
func (c *Call) whyRevoked(ctx context.Context, prefix, token string) error {
	if !c.client.SeesStatus || !tokens.Shaped(prefix, token) {
		return wire.ErrTokenInvalid
	}
	session, err := c.s.Sessions.Revoked(ctx, record.HashToken(token))
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return wire.Unavailable("asking why the session was revoked", err)
	}
	if err != nil || session.Company != c.Company.Code || !c.Now.Before(session.Expires) {
		return wire.ErrTokenInvalid
	}
	defer func(own *record.Session) { c.session = own }(c.session)
	c.session, c.loaded = &session, nil
	if _, err := c.LoadAccount(ctx); err != nil {
		return err
	}
	return wire.ErrTokenInvalid // the accounts store has lost the change that revoked it
}

func (c *Call) ofSession(ctx context.Context) (record.Account, error) {
	if c.session.Account != 0 {
		return c.s.Accounts.ByID(ctx, c.Company.Code, c.session.Account)
	}
	return c.nobody(ctx)
}

// nobody is the account of a decoy.
func (c *Call) nobody(ctx context.Context) (record.Account, error) {
	a, err := c.s.Accounts.ByLoginID(ctx, c.Company.Code, "", c.session.LoginID) // which no account has
	if errors.Is(err, record.ErrNotFound) {
		err = nil
	}
	return a, err
}

// FindAccount finds the account with a normalised login id, and the login
// id's alias. An unknown login id is no error: the account is then empty but for
// Era and Tallies, which are those of the alias.
func (c *Call) FindAccount(ctx context.Context, loginID string) (a record.Account, loginIDHash string, err error) {
	keys, err := c.s.Keys(ctx)
	if err != nil {
		return record.Account{}, "", err
	}
	loginIDHash = keys.LoginIDHash(c.Company.Code, loginID)
	a, err = c.s.Accounts.ByLoginID(ctx, c.Company.Code, loginID, loginIDHash)
	if errors.Is(err, record.ErrNotFound) {
		return record.Account{CompanyGeneration: a.CompanyGeneration, FailureCounts: a.FailureCounts}, loginIDHash, nil
	}
	if err != nil {
		return record.Account{}, "", wire.Unavailable("looking up the login id", err)
	}
	c.Found(a)
	return a, loginIDHash, nil
}
