package session

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// LoadAccount loads the account of the call's session. The account of a decoy has only
// CompanyGeneration and the FailureCounts of the login id hash that the decoy stands
// for. Loading it takes as many calls to the store as loading any other.
func (c *Call) LoadAccount(ctx context.Context) (record.Account, error) {
	if c.loaded != nil {
		return *c.loaded, nil
	}
	a, err := c.accountOfSession(ctx)
	if errors.Is(err, record.ErrNotFound) { // it was deleted
		a, err = c.decoyAccount(ctx)
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("loading the account", err)
	}
	if a.ID != c.session.Account || a.Generation != c.session.Generation || a.CompanyGeneration != c.session.CompanyGeneration {
		if a, err = c.accountOfRevoked(a); err != nil {
			return record.Account{}, err
		}
	}
	if a.ID != 0 {
		c.SetAccount(a)
	}
	return a, nil
}

// accountOfRevoked returns the account with which the step of a revoked session continues.
// Usually it returns an error instead.
func (c *Call) accountOfRevoked(a record.Account) (record.Account, error) {
	if c.session.CompanyGeneration != a.CompanyGeneration { // this revokes decoys too
		return record.Account{}, wire.ErrTokenInvalid
	}
	var status error // if a change of the status revoked the session
	if c.session.Generation == a.InactiveGeneration-1 && c.Now.Before(c.session.Expires) {
		status = tenant.CheckStatus(a)
	}
	return c.Tells.revoked(a, status)
}

// whyRevoked is WhyRevoked for a token with this prefix.
func (c *Call) whyRevoked(ctx context.Context, prefix, token string) error {
	if !c.client.SeesStatus || !tokens.IsWellFormed(prefix, token) {
		return wire.ErrTokenInvalid
	}
	session, err := c.m.Sessions.Revoked(ctx, record.HashToken(token))
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

func (c *Call) accountOfSession(ctx context.Context) (record.Account, error) {
	if c.session.Account != 0 {
		return c.m.Accounts.ByID(ctx, c.Company.Code, c.session.Account)
	}
	return c.decoyAccount(ctx)
}

// decoyAccount returns the account of a decoy.
func (c *Call) decoyAccount(ctx context.Context) (record.Account, error) {
	a, err := c.m.Accounts.ByLoginID(ctx, c.Company.Code, "", c.session.LoginID) // no account has the login id ""
	if errors.Is(err, record.ErrNotFound) {
		err = nil
	}
	return a, err
}

// FindAccount finds the account with a login id, as a user typed it. It also returns the
// login id hash. An unknown login id is not an error: the account then has only
// CompanyGeneration and the FailureCounts of the login id hash.
//
// A text that can be a phone of the company's region may also be a login name. An
// account with that login name comes first, so a new region changes nothing for it.
func (c *Call) FindAccount(ctx context.Context, text string) (a record.Account, loginIDHash string, err error) {
	read, exact := c.Company.ReadLoginID(text)
	loginIDHash = c.Keys.LoginIDHash(c.Company.Code, read)
	a, err = c.m.Accounts.ByLoginID(ctx, c.Company.Code, read, loginIDHash)
	if read != exact && (err == nil || errors.Is(err, record.ErrNotFound)) {
		// In any case, so that the time does not tell what there is.
		named, errNamed := c.m.Accounts.ByLoginID(ctx, c.Company.Code, exact, loginIDHash)
		if !errors.Is(errNamed, record.ErrNotFound) {
			a, err = named, errNamed
		}
	}
	if errors.Is(err, record.ErrNotFound) {
		return record.Account{CompanyGeneration: a.CompanyGeneration, FailureCounts: a.FailureCounts}, loginIDHash, nil
	}
	if err != nil {
		return record.Account{}, "", wire.Unavailable("looking up the login id", err)
	}
	c.SetAccount(a)
	return a, loginIDHash, nil
}
