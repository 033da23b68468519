package flows

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The life of a session: a step begins it (newSession, store), the routes find it
// (find, lookup), a step or a logout ends it (endOwn), what changes its account
// ends all of them (end), and time does (expire).

// maxPending is how many sessions of an account may wait in one state. What
// brings one about is bounded by budgets, but for control questions, fixed
// codes and backup codes.
const maxPending = 100

// find finds the session of the call's token; of a stored one, which must be of a
// company that meets want, with get.
func (s *Service) find(ctx context.Context, c *call, want Demand, get func(context.Context, record.TokenHash) (record.Session, error)) error {
	if tokens.IsSealed(c.token) {
		return s.openSealed(ctx, c, Demand{Company: c.Company.Code})
	}
	session, err := s.lookup(ctx, tokens.Prefix, c.token, want, c.Now, get)
	if err == nil {
		c.session = &session
	}
	return err
}

// lookup returns the live session under a token, which must be a company's that
// meets want. Get is Sessions.Get or recall.
func (s *Service) lookup(
	ctx context.Context, prefix, token string, want Demand, now time.Time,
	get func(context.Context, record.TokenHash) (record.Session, error),
) (record.Session, error) {
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

// profile is what an authorized session carries for the application.
func (c *call) profile(st step) record.Profile {
	if st.state != record.Authorized {
		return ""
	}
	return record.NewProfile(st.account, c.forwarded)
}

func (c *call) newSession(st step, hash record.TokenHash) record.Session {
	next := record.Session{
		Hash:      hash,
		ID:        tokens.NewID(),
		Company:   c.Company.Code,
		Account:   st.account.ID,
		Mnemocode: st.account.Mnemocode,
		LoginID:   st.decoyOf,
		Epoch:     st.account.Epoch,
		Era:       st.account.Era,
		State:     st.state,
		Accepted:  st.accepted,
		Created:   c.Now,
		LastUsed:  c.Now,
		Address:   c.Address,
		UserAgent: c.userAgent,
		Profile:   c.profile(st),
		Expires:   c.Now.Add(time.Duration(c.Company.Session.Temporary)),
		Ends:      c.Now.Add(time.Duration(c.Company.Session.Temporary)),
		AtMost:    maxPending,
		ByApp:     st.byApp,
	}
	if st.state == record.Authorized {
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
func (c *call) first() bool { return c.session == nil || c.ended }

// store creates the call's first session or replaces the one it has, unless one
// of the counters refuses it.
func (s *Service) store(ctx context.Context, c *call, next record.Session, counters ...record.Counter) error {
	var err error
	switch {
	case c.first():
		err = s.Sessions.Create(ctx, c.Now, next, counters...)
	case c.claim != nil:
		err = s.Sessions.Create(ctx, c.Now, next, append([]record.Counter{*c.claim}, counters...)...)
		if c.claimed(err) {
			return wire.ErrTokenInvalid // another request with this token was faster
		}
	default:
		err = s.Sessions.Replace(ctx, c.Now, c.session.Hash, c.session.State, next, counters...)
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

// endOwn ends the call's session. Of many callers, one succeeds.
func (s *Service) endOwn(ctx context.Context, c *call) error {
	var err error
	if c.claim != nil { // which strangers can have as many of as they like, so that ending them is what is counted
		err = s.Sessions.Charge(ctx, c.Now, append(c.AddressLogins(), *c.claim)...)
	} else {
		err = s.Sessions.Delete(ctx, c.session.Hash)
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
	c.ended = true
	return nil
}

// abandon ends a session whose token nobody got. It needs not succeed.
func (s *Service) abandon(ctx context.Context, hash record.TokenHash) {
	if err := s.Sessions.Delete(context.WithoutCancel(ctx), hash); err != nil && !errors.Is(err, record.ErrNotFound) {
		s.Log.Warn("a session that nobody can use stays until it expires", "error", err)
	}
}

// end ends the sessions that a change of the account, or a new era, owes. Each
// is told of as by is, which has the reason and who did it. Should it fail, Run
// tries until it is done.
func (s *Service) end(ctx context.Context, e record.Ending, by record.Event) error {
	ctx = context.WithoutCancel(ctx) // the change is made: see it through
	events, unlisted := s.endings(ctx, e, by)
	if err := s.Sessions.End(ctx, s.Now(), e); err != nil {
		return wire.Unavailable("ending the sessions", err)
	}
	if unlisted != nil {
		s.warnings.Warn(s.Log, "sessions were ended that could not be listed, so their endings are not in the audit log", "company", e.Company, "error", unlisted)
	}
	for _, event := range events {
		s.Emit(ctx, event)
	}
	if err := s.Accounts.Ended(ctx, e); err != nil {
		s.warnings.Warn(s.Log, "an ending that was done will be done again", "company", e.Company, "error", err)
	}
	return nil
}

// ErrOwed says that a change is stored and the sessions that it ends are not
// ended yet. Run goes on trying.
var ErrOwed = errors.New("the change is stored; its sessions could not be ended yet, which is tried again until it is done")

// EndNow ends what an operator's change owes the end of. ErrOwed if that could not be
// done yet.
func (s *Service) EndNow(ctx context.Context, e record.Ending, by record.Event) error {
	if err := s.end(ctx, e, by); err != nil {
		s.warnings.Warn(s.Log, "sessions that are to end could not be ended yet", "company", e.Company, "error", err)
		return ErrOwed
	}
	return nil
}

// endings returns the events of the sessions that an ending is about to end: one
// for all of a company's. It fails where they can't be listed.
func (s *Service) endings(ctx context.Context, e record.Ending, by record.Event) ([]record.Event, error) {
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
		if session.Epoch < e.Epoch && session.Hash != e.Keep {
			events = append(events, session.Ended(by))
		}
	}
	return events, err
}

// maxUserAgent is how much of a user agent is kept, in bytes.
const maxUserAgent = 200

// keptUserAgent is what sessions keep of a client's word: valid UTF-8.
func keptUserAgent(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxUserAgent)], "")
}

// expire sees to it that a session which was seen to have expired stays so,
// whatever happens to the clocks. Should the store fail, the next request with
// the token tries again; this one is refused in any case.
func (s *Service) expire(ctx context.Context, now time.Time, session record.Session) {
	if !session.Expires.IsZero() { // else it is done already
		_ = s.Sessions.Expire(ctx, now, session.Hash)
	}
}
