package session

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Authorizer says which requests have a valid token. It only reads the stores, apart from
// how long a session lasts and when a token was used.
type Authorizer struct {
	*Config

	noting atomic.Int64 // how many uses of issued tokens are being stored
}

// A Requirement is what a path requires of a valid token.
type Requirement struct {
	Company   string        // the company it must belong to; empty: any company
	Companies []string      // the companies it may belong to; empty: any company
	Fresh     time.Duration // the maximum age of its login; 0: any age
	Whole     bool          // Authorize must return a session with ID and Created
	// RoleAllowed reports whether an account may have this role, escaped as in a Profile. It
	// may be slow, so Authorize calls it only with the role of an authorized session. If
	// it is nil, any role will do.
	RoleAllowed func(role string) bool
	// TwoFactors reports whether the session must have been given two factors. It may be
	// slow, so Authorize calls it only for a session with one. If it is nil, one is enough.
	TwoFactors func() bool
	// Covers reports whether an issued token covers the request. If it is nil, no issued
	// token will do.
	Covers func(*record.IssuedToken) bool
}

// meets reports whether a token of the company meets the requirement.
func (d *Requirement) meets(company string) bool {
	return (d.Company == "" || d.Company == company) && (len(d.Companies) == 0 || slices.Contains(d.Companies, company))
}

// Authorize checks a request for the protected path. It returns the authorized session
// of the token that was sent, or a *wire.Error or *wire.Refusal. It returns both if the session
// is authorized and not enough.
func (m *Manager) Authorize(ctx context.Context, want Requirement, authorization []string) (record.Session, error) {
	token, err := wire.ParseBearer(authorization)
	if err != nil {
		return record.Session{}, err
	}
	now := m.Now()
	if tokens.IsStateless(token) {
		return record.Session{}, m.refuseStateless(ctx, want, token, now)
	}
	return m.authorize(ctx, want, token, now)
}

// authorize is Manager.Authorize for a token that is not stateless.
func (auth *Authorizer) authorize(ctx context.Context, want Requirement, token string, now time.Time) (record.Session, error) {
	if tokens.IsWellFormed(tokens.IssuedPrefix, token) {
		return auth.authorizeIssued(ctx, want, token, now)
	}
	session, err := auth.lookup(ctx, tokens.Prefix, token, want, now, auth.recall(want.Company, want.Whole || want.Fresh > 0, auth.Sessions.Get))
	if err != nil {
		return record.Session{}, err
	}
	owner := auth.Companies[session.Company]
	if owner == nil {
		return record.Session{}, wire.ErrTokenInvalid // its company is no longer in the configuration
	}
	if session.State != record.Authorized {
		return record.Session{}, wire.ErrSessionInvalid
	}
	if want.RoleAllowed != nil && !want.RoleAllowed(session.Profile.Value(record.ProfileRole)) {
		return session, errRole // before Fresh: a new login would not help
	}
	if want.TwoFactors != nil && !session.Profile.Methods().Multi() && want.TwoFactors() {
		return session, ErrOneFactor // before Fresh: the second factor is also a new login
	}
	if want.Fresh > 0 && now.Sub(session.LoginTime()) > want.Fresh {
		return session, &wire.Refusal{Err: wire.ErrSessionInvalid, Reason: wire.TooOld, Message: "The login is too old for this request. Let the user log in again, or confirm it with stepup.", MaxAge: want.Fresh}
	}
	return session, auth.touch(ctx, now, session, time.Duration(owner.Session.Idle))
}

// ErrOneFactor refuses a session that was given only one factor.
var ErrOneFactor = &wire.Refusal{
	Err: wire.ErrSessionInvalid, Reason: wire.OneFactor,
	Message: "This path needs a second factor. Ask the user for it with stepup; the session stays.",
}

var errRole = &wire.Refusal{Err: wire.ErrSessionInvalid, Reason: wire.WrongRole, Message: "The user's role does not allow this path. Only an operator can change the role."}

// RequestRefused reports that an authorized session was not enough for a request. Users can
// repeat it without end, so it is one event a minute. route is the pattern of the rule: the
// path itself may hold a secret.
func (m *Manager) RequestRefused(ctx context.Context, of record.Session, client Client, route string, err error) {
	now, reason := m.Now(), wire.ReasonOf(err)
	key := limits.Key(of.Company, string(reason)+" "+route, of.Mnemocode)
	if !m.Node.reported.FirstTime(now, &record.FullError{Key: key, Until: now.Add(time.Minute)}) {
		return
	}
	actor := ""
	if of.Issued != nil {
		actor = of.Issued.Actor
	} else if whole, err := m.recall(of.Company, true, m.Sessions.Get)(ctx, of.Hash); err == nil {
		of = whole // with its ID
	}
	m.Emit(ctx, record.Event{
		Name: record.RequestRefused, Time: now, Company: of.Company, Account: of.Account, Mnemocode: of.Mnemocode, Session: of.ID, State: of.State,
		Address: client.Address, UserAgent: KeptUserAgent(client.UserAgent), Actor: actor, Route: route, Result: wire.ErrSessionInvalid.Code, Reason: string(reason), Ref: wire.RefOf(err),
	})
}

// CheckLive checks whether a session that Authorize has accepted is still valid. It is for
// streams that stay open after their request was authorized, perhaps under a former
// configuration. It does not extend the session.
func (auth *Authorizer) CheckLive(ctx context.Context, session record.Session) error {
	load, owner := auth.Sessions.Get, auth.Companies[session.Company]
	if session.Issued != nil {
		load = auth.loadIssued
	}
	if owner == nil || session.Issued != nil && owner.IssuedTokens.Lifetime == 0 {
		return wire.ErrTokenInvalid
	}
	recalled, err := auth.recall(session.Company, false, load)(ctx, session.Hash)
	if err != nil {
		return wire.Gone("loading the session", err)
	}
	if now := auth.Now(); !now.Before(recalled.Expires) {
		auth.expire(ctx, now, recalled)
		return wire.ErrTokenExpired
	}
	return nil
}

// Peek returns the authorized session of a company's token. It does not extend the
// session. Its errors are those of Authorize.
func (auth *Authorizer) Peek(ctx context.Context, company, token string) (record.Session, error) {
	if tokens.IsStateless(token) {
		return record.Session{}, wire.ErrSessionInvalid // stateless tokens are never authorized
	}
	if tokens.IsWellFormed(tokens.IssuedPrefix, token) {
		return auth.findIssued(ctx, Requirement{Company: company}, token, auth.Now())
	}
	session, err := auth.lookup(ctx, tokens.Prefix, token, Requirement{Company: company}, auth.Now(), auth.recall(company, true, auth.Sessions.Get))
	if err == nil && session.State != record.Authorized {
		return record.Session{}, wire.ErrSessionInvalid
	}
	return session, err
}

// A getter is Sessions.Get, or a function that returns the same.
type getter = func(context.Context, record.TokenHash) (record.Session, error)

// lookup returns the live session of a token. Its company must meet want.
func (auth *Authorizer) lookup(ctx context.Context, prefix, token string, want Requirement, now time.Time, get getter) (record.Session, error) {
	if !tokens.IsWellFormed(prefix, token) {
		return record.Session{}, wire.ErrTokenInvalid
	}
	session, err := get(ctx, record.HashToken(token))
	if err != nil {
		return record.Session{}, wire.Gone("loading the session", err)
	}
	if !want.meets(session.Company) {
		return record.Session{}, wire.ErrTokenInvalid
	}
	if !now.Before(session.Expires) {
		auth.expire(ctx, now, session)
		return record.Session{}, wire.ErrTokenExpired
	}
	return session, nil
}

// recall returns load or, if the store has a memory, a getter that reads from there first.
// Unless whole is set, the session may lack the fields that record.Recaller names.
func (auth *Authorizer) recall(company string, whole bool, load getter) getter {
	memory, ok := auth.Sessions.(record.Recaller)
	if !ok {
		return load
	}
	return func(ctx context.Context, hash record.TokenHash) (record.Session, error) {
		return memory.Recall(ctx, auth.Now(), company, hash, whole, load)
	}
}

// touch extends the session of a request. It writes at most once a minute, or ten
// times within a short idle time. If the write fails, the session stays valid until it
// expires: a store that takes no writes must not lock out users who are logged in.
func (auth *Authorizer) touch(ctx context.Context, now time.Time, session record.Session, idle time.Duration) error {
	expires := now.Add(idle)
	if expires.Sub(session.Expires) < min(time.Minute, idle/10) {
		return nil
	}
	expires = session.IdleUntil(expires)
	if !expires.After(session.Expires) {
		return nil // it already expires at the end of its lifetime
	}
	err := auth.Sessions.Touch(ctx, now, session.Hash, expires)
	if errors.Is(err, record.ErrNotFound) {
		return wire.ErrTokenInvalid // it was revoked in the meantime
	}
	if err != nil && ctx.Err() == nil {
		auth.Warn("a session could not be extended, and continues until it expires", "company", session.Company, "error", err)
	}
	return nil
}

// expire marks a session as expired in the store, so that a clock set back does not
// revive it. If the store fails, the next request with the token tries again. The
// present request is refused in any case.
func (auth *Authorizer) expire(ctx context.Context, now time.Time, session record.Session) {
	if !session.Expires.IsZero() && session.Issued == nil { // zero: it is marked already
		_ = auth.Sessions.Expire(ctx, now, session.Hash)
	}
}
