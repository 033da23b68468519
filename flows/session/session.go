package session

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// How a session begins and ends: a step begins it or replaces the one before
// (newSession, store), a logout revokes it (Revoke), and a change of its account
// revokes all of the account's (RevokeAll).

// A Step is a session about to begin: the first of a login or recovery, or the one that
// replaces the call's.
type Step struct {
	Account  record.Account // empty for a decoy
	DecoyOf  string         // the alias of the login id that a decoy stands for
	State    record.State
	Accepted []record.Acceptance
	// Counters are charged, or looked at, by storing the session.
	Counters []record.Counter

	codeless bool // no code is sent
	byApp    bool // nor here: the account's app shows it
	// then is what else must succeed for the step to count, done once the
	// session is stored and before anyone has its token: if it fails, the
	// session is revoked again.
	then []func(context.Context) error
}

// maxPending is how many sessions of an account may wait in one state. What
// brings one about is bounded by budgets, but for control questions, fixed
// codes and backup codes.
const maxPending = 100

// profile is what an authorized session carries for the application.
func (c *Call) profile(st Step) record.Profile {
	if st.State != record.Authorized {
		return ""
	}
	return record.NewProfile(st.Account, c.s.Forwarded)
}

func (c *Call) newSession(st Step, hash record.TokenHash) record.Session {
	next := record.Session{
		Hash:              hash,
		ID:                tokens.NewID(),
		Company:           c.Company.Code,
		Account:           st.Account.ID,
		Mnemocode:         st.Account.Mnemocode,
		LoginID:           st.DecoyOf,
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
		ByApp:             st.byApp,
	}
	if st.State == record.Authorized {
		next.AtMost = c.Company.Limits.SessionsPerAccount
		next.Ends = c.Now.Add(time.Duration(c.Company.Session.Lifetime))
		next.Expires = c.Now.Add(time.Duration(min(c.Company.Session.Idle, c.Company.Session.Lifetime)))
	}
	if c.session != nil {
		next.ID = c.session.ID
	}
	return next
}

// first reports whether the call's next session replaces none.
func (c *Call) first() bool { return c.session == nil || c.revoked }

// store creates the call's first session or replaces the one it has, unless one
// of the counters refuses it.
func (c *Call) store(ctx context.Context, next record.Session, counters ...record.Counter) error {
	var err error
	switch {
	case c.first():
		err = c.s.Sessions.Create(ctx, c.Now, next, counters...)
	case c.claim != nil:
		err = c.s.Sessions.Create(ctx, c.Now, next, append([]record.Counter{*c.claim}, counters...)...)
		if c.claimed(err) {
			return wire.ErrTokenInvalid // another request with this token was faster
		}
	default:
		err = c.s.Sessions.Replace(ctx, c.Now, c.session.Hash, c.session.State, next, counters...)
		if errors.Is(err, record.ErrConflict) {
			return wire.ErrTokenInvalid // as above
		}
	}
	if full, ok := errors.AsType[*record.Full](err); ok {
		return c.Refused(full)
	}
	if errors.Is(err, record.ErrConflict) { // the account was changed while its owner logged in, or
		return wire.Unavailable("storing the session: the account's sessions have ended meanwhile; if it comes again, the accounts store has lost a change, as in a failover: end the sessions once more", err)
	}
	if err != nil {
		return wire.Unavailable("storing the session", err)
	}
	return nil
}

// Revoke revokes the call's session. Of many callers, one succeeds.
func (c *Call) Revoke(ctx context.Context) error {
	var err error
	if c.claim != nil { // which strangers can have as many of as they like, so that ending them is what is counted
		err = c.s.Sessions.Charge(ctx, c.Now, append(c.AddressLogins(), *c.claim)...)
	} else {
		err = c.s.Sessions.Delete(ctx, c.session.Hash)
	}
	if errors.Is(err, record.ErrNotFound) || c.claimed(err) {
		return wire.ErrTokenInvalid // ended by another request meanwhile
	}
	if full, ok := errors.AsType[*record.Full](err); ok {
		return c.Refused(full)
	}
	if err != nil {
		return wire.Unavailable("ending the session", err)
	}
	c.revoked = true
	return nil
}

// abandon ends a session whose token nobody got. It needs not succeed.
func (s *Manager) abandon(ctx context.Context, hash record.TokenHash) {
	if err := s.Sessions.Delete(context.WithoutCancel(ctx), hash); err != nil && !errors.Is(err, record.ErrNotFound) {
		s.Log.Warn("a session that nobody can use stays until it expires", "error", err)
	}
}

// RevokeAll revokes the sessions that end with a change of their account, or with the
// company's session generation. Each has an event of its own, like by, which says why and
// who did it. If RevokeAll fails, Run tries until it succeeds.
func (s *Manager) RevokeAll(ctx context.Context, e record.Revocation, by record.Event) error {
	ctx = context.WithoutCancel(ctx) // the change is made: see it through
	events, unlisted := s.endings(ctx, e, by)
	if err := s.Sessions.End(ctx, s.Now(), e); err != nil {
		return wire.Unavailable("ending the sessions", err)
	}
	if unlisted != nil {
		s.Warn("sessions were ended that could not be listed, so their endings are not in the audit log", "company", e.Company, "error", unlisted)
	}
	for _, event := range events {
		s.Emit(ctx, event)
	}
	if err := s.Accounts.RevocationDone(ctx, e); err != nil {
		s.Warn("an ending that was done will be done again", "company", e.Company, "error", err)
	}
	return nil
}

// ErrOwed says that a change is stored and the sessions that it ends are not
// ended yet. Run goes on trying.
var ErrRevocationPending = errors.New("the change is stored; its sessions could not be ended yet, which is tried again until it is done")

// EndNow ends what an operator's change owes the end of. ErrOwed if that could not be
// done yet.
func (s *Manager) EndNow(ctx context.Context, e record.Revocation, by record.Event) error {
	if err := s.RevokeAll(ctx, e, by); err != nil {
		s.Warn("sessions that are to end could not be ended yet", "company", e.Company, "error", err)
		return ErrRevocationPending
	}
	return nil
}

// endings returns the events of the sessions that an ending is about to end: one
// for all of a company's. It fails where they can't be listed.
func (s *Manager) endings(ctx context.Context, e record.Revocation, by record.Event) ([]record.Event, error) {
	if s.Observe == nil {
		return nil, nil
	}
	if e.Account == 0 {
		by.Name, by.Company = record.AllSessionsEnded, e.Company
		return []record.Event{by}, nil
	}
	sessions, err := s.Sessions.List(ctx, s.Now(), e.Company, e.Account)
	var events []record.Event
	for _, session := range sessions {
		if session.Generation < e.Generation && session.Hash != e.Keep {
			events = append(events, session.Ended(by))
		}
	}
	return events, err
}
