package flows

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// account loads the account of the call's session. A decoy's is empty but for
// Era and Tallies, those of the login id it stands for; it takes as many calls.
func (s *Service) account(ctx context.Context, c *call) (record.Account, error) {
	if c.loaded != nil {
		return *c.loaded, nil
	}
	a, err := s.ofSession(ctx, c)
	if errors.Is(err, record.ErrNotFound) || err == nil && (a.Epoch != c.session.Epoch || a.Era != c.session.Era) {
		return record.Account{}, wire.ErrTokenInvalid // its ending is only on the way to the sessions
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("loading the account", err)
	}
	if a.ID != 0 {
		c.found(a)
	}
	return a, nil
}

func (s *Service) ofSession(ctx context.Context, c *call) (record.Account, error) {
	if c.session.Account != 0 {
		return s.Accounts.ByID(ctx, c.Company.Code, c.session.Account)
	}
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
