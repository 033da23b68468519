package session

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// openStateless reads the session from the call's stateless token and loads its account.
// The company of the token must meet want.
func (c *Call) openStateless(ctx context.Context, want Requirement) error {
	keys, err := c.m.Keys(ctx)
	if err != nil {
		return err
	}
	session, tag, ok := keys.OpenStateless(c.token)
	owner := c.m.companyByTag(tag)
	if !ok || owner == nil || !want.meets(owner.Code) || !c.Now.Before(session.Expires.Add(record.KeepExpired)) {
		return wire.ErrTokenInvalid
	}
	session.Company = owner.Code
	c.setCompany(owner)
	c.session = &session
	claim := c.Counter("claim", hex.EncodeToString(session.Hash[:]), tenant.Rate{N: 1, Per: session.Expires.Add(record.KeepExpired).Sub(c.Now)})
	c.claim = &claim
	if err = c.m.Sessions.Charge(ctx, c.Now, record.CheckOnly(claim)...); err != nil {
		if c.claimed(err) {
			return wire.ErrTokenInvalid
		}
		return wire.Unavailable("asking whether the token was used", err)
	}
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return err
	}
	c.loaded = &a
	if !c.Now.Before(session.Expires) {
		return wire.ErrTokenExpired
	}
	return nil
}

// claimed reports whether err says that the call's stateless token was used already.
func (c *Call) claimed(err error) bool {
	full, ok := errors.AsType[*record.FullError](err)
	return ok && c.claim != nil && full.Key == c.claim.Key
}

// companyByTag returns the company with this tag, or nil if there is none.
func (m *Manager) companyByTag(tag tokens.CompanyTag) *tenant.Company {
	m.tagging.Do(func() {
		m.byTag = map[tokens.CompanyTag]*tenant.Company{}
		for code, company := range m.Companies {
			m.byTag[tokens.TagOf(code)] = company
		}
	})
	return m.byTag[tag]
}

// refuseStateless returns the error for a stateless token on the protected path.
func (m *Manager) refuseStateless(ctx context.Context, want Requirement, token string, now time.Time) error {
	c := m.NewCall(Client{})
	c.token = token
	c.Now = now
	if err := c.openStateless(record.WithStoreTime(ctx), want); err != nil {
		return err
	}
	return wire.ErrSessionInvalid
}
