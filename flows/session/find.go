package session

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Find finds the session of a token of the call's company.
func (c *Call) Find(ctx context.Context, token string) error {
	return c.find(ctx, token, Requirement{Company: c.Company.Code}, c.m.Sessions.Get)
}

// FindOfAnyCompany is Find for a stored session of any company.
func (c *Call) FindOfAnyCompany(ctx context.Context, token string) error {
	return c.find(ctx, token, Requirement{}, c.m.Sessions.Get)
}

// FindAndSpendCode is Find for a request that carries a one-time code. If the session
// is in the given state, its code is spent, even if the request then fails.
func (c *Call) FindAndSpendCode(ctx context.Context, token string, state record.State) error {
	return c.find(ctx, token, Requirement{Company: c.Company.Code}, c.spendCode(state))
}

func (c *Call) find(ctx context.Context, token string, want Requirement, get getter) error {
	c.token = token
	if tokens.IsWellFormed(tokens.IssuedPrefix, token) {
		return &wire.Refusal{Err: wire.ErrSessionInvalid, Message: "An issued token is for the application alone. Log in for this route."}
	}
	if tokens.IsStateless(token) {
		if err := c.openStateless(ctx, Requirement{Company: c.Company.Code}); err != nil {
			return err
		}
	} else {
		session, err := c.m.lookup(ctx, tokens.Prefix, token, want, c.Now, get)
		if err != nil {
			return err
		}
		c.hidden = reveal(&session)
		c.session = &session
		c.Device = session.Device
	}
	if !c.Tells.began(*c.session) {
		return wire.ErrTokenInvalid
	}
	return nil
}

// FindLink finds the call's session by the token of a mailed link. The next step
// replaces the session, so the link works once.
func (c *Call) FindLink(ctx context.Context, token string) error {
	prefix := tokens.LinkPrefix
	if strings.HasPrefix(token, tokens.WelcomePrefix) {
		prefix = tokens.WelcomePrefix
	}
	link, err := c.m.lookup(ctx, prefix, token, Requirement{Company: c.Company.Code}, c.Now, c.m.Sessions.Get)
	if errors.Is(err, wire.ErrTokenInvalid) {
		return c.whyRevoked(ctx, prefix, token)
	}
	if err == nil {
		c.session, c.welcomed = &link, prefix == tokens.WelcomePrefix
	}
	return err
}

// WhyRevoked returns the error for an invalid token: the status of its account if a
// change of the status revoked it, otherwise wire.ErrTokenInvalid.
func (c *Call) WhyRevoked(ctx context.Context) error {
	return c.whyRevoked(ctx, tokens.Prefix, c.token)
}

// openStateless reads the session from the call's stateless token and loads its account.
// The company of the token must meet want.
func (c *Call) openStateless(ctx context.Context, want Requirement) error {
	keys, err := c.m.Keys(ctx)
	if err != nil {
		return err
	}
	session, company, listing, ok := keys.OpenStateless(c.token)
	owner := c.m.companyByTag(company)
	if !ok || owner == nil || !want.meets(owner.Code) || !c.Now.Before(session.Expires.Add(record.KeepExpired)) {
		return wire.ErrTokenInvalid
	}
	session.Company = owner.Code
	c.setCompany(owner)
	c.session = &session
	claim := c.Counter("claim", hex.EncodeToString(session.Hash[:]), tenant.Rate{N: 1, Per: session.Expires.Add(record.KeepExpired).Sub(c.Now)})
	if err = c.m.Sessions.Charge(ctx, c.Now, record.CheckOnly(claim)...); err != nil {
		if isFull(err, claim) {
			return wire.ErrTokenInvalid
		}
		return wire.Unavailable("asking whether the token was used", err)
	}
	a, err := c.accountOf(ctx, c.session)
	if err != nil {
		return err
	}
	c.stateless = &stateless{claim, a, listing}
	if !c.Now.Before(session.Expires) {
		return wire.ErrTokenExpired
	}
	return nil
}

// A stateless is what belongs to a session that only its token holds.
type stateless struct {
	claim   record.Counter // full once the token was used
	account record.Account
	listing tokens.Tag // of what the answer with the token listed
}

// isFull reports whether err says that this counter is full.
func isFull(err error, counter record.Counter) bool {
	full, ok := errors.AsType[*record.FullError](err)
	return ok && full.Key == counter.Key
}

// companyByTag returns the company with this tag, or nil if there is none.
func (m *Manager) companyByTag(tag tokens.Tag) *tenant.Company {
	m.tagging.Do(func() {
		m.byTag = map[tokens.Tag]*tenant.Company{}
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

// LoadAccount loads the account of the call's session. The account of a decoy has only
// CompanyGeneration and the FailureCounts of the login id hash that the decoy stands
// for. Loading it takes as many calls to the store as loading any other.
func (c *Call) LoadAccount(ctx context.Context) (record.Account, error) {
	if c.stateless != nil {
		return c.stateless.account, nil
	}
	return c.accountOf(ctx, c.session)
}

// accountOf is LoadAccount for a session of the call's company.
func (c *Call) accountOf(ctx context.Context, s *record.Session) (record.Account, error) {
	var a record.Account
	err := record.ErrNotFound
	if s.Account != 0 {
		a, err = c.m.Accounts.ByID(ctx, c.Company.Code, s.Account)
	}
	if errors.Is(err, record.ErrNotFound) { // a decoy, or it was deleted
		a, err = c.decoyAccount(ctx, s.LoginID)
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("loading the account", err)
	}
	if a.ID != s.Account || a.Generation != s.Generation || a.CompanyGeneration != s.CompanyGeneration {
		if a, err = c.accountOfRevoked(s, a); err != nil {
			return record.Account{}, err
		}
	}
	if a.ID != 0 {
		c.SetAccount(a)
	}
	return a, nil
}

// ActiveAccount is LoadAccount, and fails unless the account's status lets it log in.
func (c *Call) ActiveAccount(ctx context.Context) (record.Account, error) {
	a, err := c.LoadAccount(ctx)
	if err == nil {
		err = tenant.CheckStatus(a)
	}
	return a, err
}

// LinkAccount is ActiveAccount for the session of a mailed link. A welcome link ends once the
// account has a credential, because it is valid for days, and is no recovery.
func (c *Call) LinkAccount(ctx context.Context) (record.Account, error) {
	a, err := c.LoadAccount(ctx)
	switch {
	case err != nil:
		return record.Account{}, err
	case c.welcomed && a.HasCredential():
		return record.Account{}, wire.ErrTokenInvalid
	}
	return a, tenant.CheckStatus(a)
}

// accountOfRevoked returns the account with which the step of a revoked session continues.
// Usually it returns an error instead.
func (c *Call) accountOfRevoked(s *record.Session, a record.Account) (record.Account, error) {
	if s.CompanyGeneration != a.CompanyGeneration { // this revokes decoys too
		return record.Account{}, wire.ErrTokenInvalid
	}
	var status error // if a change of the status revoked the session
	if s.Generation == a.InactiveGeneration-1 && c.Now.Before(s.Expires) {
		status = tenant.CheckStatus(a)
	}
	return c.Tells.revoked(s.State, a, status)
}

// whyRevoked is WhyRevoked for a token with this prefix.
func (c *Call) whyRevoked(ctx context.Context, prefix, token string) error {
	if !c.SeesStatus || !tokens.IsWellFormed(prefix, token) {
		return wire.ErrTokenInvalid
	}
	session, err := c.m.Sessions.Revoked(ctx, record.HashToken(token))
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return wire.Unavailable("asking why the session was revoked", err)
	}
	if err != nil || session.Company != c.Company.Code || !c.Now.Before(session.Expires) {
		return wire.ErrTokenInvalid
	}
	if _, err := c.accountOf(ctx, &session); err != nil {
		return err
	}
	return wire.ErrTokenInvalid // the accounts store has lost the change that revoked it
}

// decoyAccount returns the account of a decoy that stands for a login id hash.
func (c *Call) decoyAccount(ctx context.Context, loginIDHash string) (record.Account, error) {
	a, err := c.m.Accounts.ByLoginID(ctx, c.Company.Code, "", loginIDHash) // no account has the login id ""
	if errors.Is(err, record.ErrNotFound) {
		err = nil
	}
	return a, err
}

// FindAccount finds the account with a login id, as a user typed it. It also returns the
// login id hash. An unknown login id is not an error: the account then has only
// CompanyGeneration and the FailureCounts of the login id hash. A text without visible
// characters is none: wire.ErrValidation.
//
// A text that can be a phone of the company's region may also be a login name. An
// account with that login name comes first, so a new region changes nothing for it.
func (c *Call) FindAccount(ctx context.Context, text string) (a record.Account, loginIDHash string, err error) {
	read, exact := c.Company.ReadLoginID(text)
	if read == "" {
		return record.Account{}, "", wire.Invalid("The field login_id has no visible characters.")
	}
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
