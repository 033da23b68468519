package session

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file begins and revokes sessions. A step creates a session or replaces the one
// before it (newSession, store). A logout revokes one session (Revoke). A change of an
// account revokes all its sessions (RevokeAll).

// A Step describes the next session: the first one of a login or recovery, or the one
// that replaces the call's session.
type Step struct {
	Account     record.Account // empty for a decoy
	LoginIDHash string         // of the first step; what a decoy stands for
	State       record.State
	By          record.AuthMethods // how the user has proved who they are for this step; empty if they did not
	AuthTime    time.Time          // when they did so at the OAuth provider; zero if it is unknown
	Accepted    []record.Acceptance
	Lists       []wire.Disclaimer // the answer lists them as pending
	// Counters are charged or checked in the same step that stores the session.
	Counters []record.Counter

	codeless bool // no code is sent
	byApp    bool // no code is sent, because the account's app shows it
	// then holds what else must succeed. It runs after the session is stored and
	// before the client gets the token. If it fails, the session is revoked.
	then []func(context.Context) error
}

// maxPending is how many sessions of an account may wait in one state. Budgets limit
// most ways to begin one, but not those with control questions, fixed codes and backup
// codes.
const maxPending = 100

// profile returns what a session knows of its user. Until it is authorized, that is
// only how and when the user has proved who they are.
func (c *Call) profile(st Step) record.Profile {
	before := c.Session().Profile
	methods, authTime := before.Methods().With(st.By), st.AuthTime
	if authTime.IsZero() {
		authTime = before.AuthTime()
	}
	if st.State != record.Authorized {
		return record.NewProfile(record.Account{}, nil, authTime, methods)
	}
	return record.NewProfile(st.Account, c.m.Forwarded, authTime, methods)
}

func (c *Call) newSession(st Step) record.Session {
	next := record.Session{
		ID:                tokens.NewID(),
		Company:           c.Company.Code,
		Account:           st.Account.ID,
		Mnemocode:         st.Account.Mnemocode,
		LoginID:           c.Tells.loginID(st.State, st.LoginIDHash),
		Generation:        st.Account.Generation,
		CompanyGeneration: st.Account.CompanyGeneration,
		State:             st.State,
		Accepted:          st.Accepted,
		Created:           c.Now,
		LastUsed:          c.Now,
		Address:           c.Address,
		UserAgent:         c.userAgent,
		Profile:           c.profile(st),
		Expires:           c.Now.Add(time.Duration(c.Company.Session.Temporary)),
		Ends:              c.Now.Add(time.Duration(c.Company.Session.Temporary)),
		AtMost:            maxPending,
	}
	if c.Device != nil {
		next.Device = c.Device.ID
	}
	if st.State == record.Authorized {
		if c.remember {
			next.Device = tokens.NewID() // of the device that rememberDevice adds
		}
		next.AtMost = c.Company.Limits.SessionsPerAccount
		next.Ends = c.Now.Add(time.Duration(c.Company.Session.Lifetime))
		next.Expires = c.Now.Add(time.Duration(min(c.Company.Session.Idle, c.Company.Session.Lifetime)))
	}
	if c.session != nil {
		next.ID = c.session.ID
	}
	return next
}

// replacesNone reports whether the call's next session replaces none.
func (c *Call) replacesNone() bool { return c.session == nil || c.revoked }

// store creates the call's first session or replaces the one it has. It fails if one
// of the counters is full.
func (c *Call) store(ctx context.Context, next record.Session, counters ...record.Counter) error {
	if next.State == record.Authorized { // strangers can begin others, and fill the account's history with them
		next.Displaced = func(id string) {
			ended := next.Ended(c.ClientEvent(record.EndedByLimit))
			ended.Session = id
			c.m.Emit(ctx, ended)
		}
	}
	var err error
	switch {
	case c.replacesNone():
		err = c.m.Sessions.Create(ctx, c.Now, next, counters...)
	case c.claim != nil:
		err = c.m.Sessions.Create(ctx, c.Now, next, append([]record.Counter{*c.claim}, counters...)...)
		if c.claimed(err) {
			return wire.ErrTokenInvalid // another request with this token was faster
		}
	case c.hidden: // a store can't replace a decoy's session by an account's; only one request had the code
		if err = c.m.Sessions.Create(ctx, c.Now, next, counters...); err != nil {
			break
		}
		if err = c.m.Sessions.Delete(ctx, c.session.Hash); err != nil {
			c.m.abandon(ctx, next.Hash)
		}
		if errors.Is(err, record.ErrNotFound) {
			return wire.ErrTokenInvalid // it was revoked meanwhile
		}
	default:
		err = c.m.Sessions.Replace(ctx, c.Now, c.session.Hash, c.session.State, next, counters...)
		if errors.Is(err, record.ErrConflict) {
			return wire.ErrTokenInvalid // as above
		}
	}
	if full, ok := errors.AsType[*record.FullError](err); ok {
		return c.LimitError(full)
	}
	if errors.Is(err, record.ErrConflict) { // usually because the account was changed during the login
		return wire.Unavailable("storing the session: the account's sessions have ended meanwhile. If this happens again for the same account, the accounts store has lost a change, as after a failover; then end the sessions once more", err)
	}
	if err != nil {
		return wire.Unavailable("storing the session", err)
	}
	return nil
}

// Revoke revokes the call's session. Of concurrent callers, one succeeds.
func (c *Call) Revoke(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // a logout ends the session even if the client hangs up
	var err error
	if c.claim != nil { // anyone can get many stateless tokens, so revoking them is what counts against the address
		err = c.m.Sessions.Charge(ctx, c.Now, append(c.CountLogin(), *c.claim)...)
	} else {
		err = c.m.Sessions.Delete(ctx, c.session.Hash)
	}
	if errors.Is(err, record.ErrNotFound) || c.claimed(err) {
		return wire.ErrTokenInvalid // another request has revoked it
	}
	if full, ok := errors.AsType[*record.FullError](err); ok {
		return c.LimitError(full)
	}
	if err != nil {
		return wire.Unavailable("ending the session", err)
	}
	c.revoked = true
	return nil
}

// abandon revokes a session whose token was not given out. A failure is only logged.
func (m *Manager) abandon(ctx context.Context, hash record.TokenHash) {
	ctx = record.WithoutStoreTime(context.WithoutCancel(ctx)) // it may be used up
	if err := m.Sessions.Delete(ctx, hash); err != nil && !errors.Is(err, record.ErrNotFound) {
		m.Log.Warn("a session that nobody can use stays until it expires", "error", err)
	}
}

// RevokeAll revokes the sessions of older session generations of an account or a
// company. It emits an event for each session of an account, or one for a company. The
// events are copies of by, which says who revoked the sessions and why. If RevokeAll
// fails, Run retries until it succeeds.
func (m *Manager) RevokeAll(ctx context.Context, e record.Revocation, by record.Event) error {
	ctx = context.WithoutCancel(ctx) // the change is stored; finish its revocation
	events, unlisted := m.revocationEvents(ctx, e, by)
	if err := m.Sessions.End(ctx, m.Now(), e); err != nil {
		return wire.Unavailable("ending the sessions", err)
	}
	if unlisted != nil {
		m.Warn("sessions were revoked that could not be listed, so they are not in the audit log", "company", e.Company, "error", unlisted)
	}
	for _, event := range events {
		m.Emit(ctx, event)
	}
	if err := m.Accounts.RevocationDone(ctx, e); err != nil {
		m.Warn("a revocation that was done will be done again", "company", e.Company, "error", err)
	}
	return nil
}

// revocationEvents returns the events of the sessions that RevokeAll is about to revoke,
// or one event for a company. It fails if the sessions can't be listed.
func (m *Manager) revocationEvents(ctx context.Context, e record.Revocation, by record.Event) ([]record.Event, error) {
	if m.Observe == nil {
		return nil, nil
	}
	if e.Account == 0 {
		by.Name, by.Company = record.AllSessionsEnded, e.Company
		return []record.Event{by}, nil
	}
	sessions, err := m.Sessions.List(ctx, m.Now(), e.Company, e.Account)
	var events []record.Event
	for _, session := range sessions {
		if session.Generation < e.Generation && session.Hash != e.Keep {
			events = append(events, session.Ended(by))
		}
	}
	return events, err
}
