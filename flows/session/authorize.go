package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Demand is what a path asks of a token beyond being good.
type Requirement struct {
	Company string        // whose it must be; empty: anyone's
	Among   []string      // and one of these companies'; empty: of all
	Fresh   time.Duration // how long ago its login may be; 0: any time
}

// meets reports whether a company's token will do.
func (d *Requirement) meets(company string) bool {
	return (d.Company == "" || d.Company == company) && (len(d.Among) == 0 || slices.Contains(d.Among, company))
}

// Authorize decides on a request for the protected path: it returns the
// authorized session whose token was sent, or a *wire.Error or *wire.Refusal.
func (s *Manager) Authorize(ctx context.Context, want Requirement, authorization []string) (record.Session, error) {
	token, err := wire.ParseBearer(authorization)
	if err != nil {
		return record.Session{}, err
	}
	now := s.Now()
	if tokens.IsStateless(token) {
		return record.Session{}, s.refuseStateless(ctx, want, token, now)
	}
	session, err := s.lookup(ctx, tokens.Prefix, token, want, now, func(ctx context.Context, hash record.TokenHash) (record.Session, error) {
		return s.recall(ctx, want.Company, hash, want.Fresh > 0)
	})
	if err != nil {
		return record.Session{}, err
	}
	owner := s.Companies[session.Company]
	if owner == nil {
		return record.Session{}, wire.ErrTokenInvalid // its company was taken out of the configuration
	}
	if session.State != record.Authorized {
		return record.Session{}, wire.ErrSessionInvalid
	}
	if want.Fresh > 0 && now.Sub(session.Created) > want.Fresh {
		return record.Session{}, &wire.Refusal{Err: wire.ErrSessionInvalid, Reason: wire.TooOld, Message: "The login is too long ago for this; log in again.", MaxAge: want.Fresh}
	}
	return session, s.touch(ctx, now, session, time.Duration(owner.Session.Idle))
}

// Live tells whether a session that Authorize let through still is: for
// streams that outlast their request's decision. It counts as no request.
func (s *Manager) Live(ctx context.Context, session record.Session) error {
	recalled, err := s.recall(ctx, session.Company, session.Hash, false)
	if errors.Is(err, record.ErrNotFound) {
		return wire.ErrTokenInvalid
	}
	if err != nil {
		return wire.Unavailable("loading the session", err)
	}
	if now := s.Now(); !now.Before(recalled.Expires) {
		s.expire(ctx, now, recalled)
		return wire.ErrTokenExpired
	}
	return nil
}

// Peek returns the authorized session under a token of a company, of which it
// prolongs nothing. Its errors are Authorize's.
func (s *Manager) Peek(ctx context.Context, company, token string) (record.Session, error) {
	if tokens.IsStateless(token) {
		return record.Session{}, wire.ErrSessionInvalid // a step's
	}
	session, err := s.lookup(ctx, tokens.Prefix, token, Requirement{Company: company}, s.Now(), func(ctx context.Context, hash record.TokenHash) (record.Session, error) {
		return s.recall(ctx, company, hash, true)
	})
	if err == nil && session.State != record.Authorized {
		return record.Session{}, wire.ErrSessionInvalid
	}
	return session, err
}

// A getter is Sessions.Get, or does as much.
type getter = func(context.Context, record.TokenHash) (record.Session, error)

// lookup returns the live session under a token, which must be a company's that
// meets want.
func (s *Manager) lookup(ctx context.Context, prefix, token string, want Requirement, now time.Time, get getter) (record.Session, error) {
	if !tokens.Shaped(prefix, token) {
		return record.Session{}, wire.ErrTokenInvalid
	}
	session, err := get(ctx, record.HashToken(token))
	if errors.Is(err, record.ErrNotFound) {
		return record.Session{}, wire.ErrTokenInvalid
	}
	if err != nil {
		return record.Session{}, wire.Unavailable("loading the session", err)
	}
	if !want.meets(session.Company) {
		return record.Session{}, wire.ErrTokenInvalid
	}
	if !now.Before(session.Expires) {
		s.expire(ctx, now, session)
		return record.Session{}, wire.ErrTokenExpired
	}
	return session, nil
}

// recall is Sessions.Get, from memory where there is one. Unless it is to be the
// whole session, it may lack what Recaller says.
func (s *Manager) recall(ctx context.Context, company string, hash record.TokenHash, whole bool) (record.Session, error) {
	memory, ok := s.Sessions.(record.Recaller)
	switch {
	case ok && whole:
		return memory.RecallWhole(ctx, s.Now(), company, hash)
	case ok:
		return memory.Recall(ctx, s.Now(), company, hash)
	}
	return s.Sessions.Get(ctx, hash)
}

// touch lets a request prolong its session. That is written at most once a
// minute, or ten times in a short idle time. A session that can't be prolonged
// passes until it expires: it was found alive, and a store that takes no writes
// must not lock out who is logged in.
func (s *Manager) touch(ctx context.Context, now time.Time, session record.Session, idle time.Duration) error {
	expires := now.Add(idle)
	if expires.Sub(session.Expires) < min(time.Minute, idle/10) {
		return nil
	}
	expires = session.IdleUntil(expires)
	if !expires.After(session.Expires) {
		return nil // it lives to its end already
	}
	err := s.Sessions.Touch(ctx, now, session.Hash, expires)
	if errors.Is(err, record.ErrNotFound) {
		return wire.ErrTokenInvalid // ended meanwhile
	}
	if err != nil && ctx.Err() == nil {
		s.Warn("a session could not be prolonged, and goes on until it expires", "company", session.Company, "error", err)
	}
	return nil
}

// expire sees to it that a session which was seen to have expired stays so,
// whatever happens to the clocks. Should the store fail, the next request with
// the token tries again; this one is refused in any case.
func (s *Manager) expire(ctx context.Context, now time.Time, session record.Session) {
	if !session.Expires.IsZero() { // else it is done already
		_ = s.Sessions.Expire(ctx, now, session.Hash)
	}
}
