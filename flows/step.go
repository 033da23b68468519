package flows

import (
	"context"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A step is a session about to begin: the first of a login or recovery, or the
// one that replaces the call's.
type step struct {
	account  record.Account // empty for a decoy
	decoyOf  string         // the alias of the login id that a decoy stands for
	state    record.State
	codeless bool // no code is sent
	byApp    bool // nor here: the account's app shows it
	accepted []record.Acceptance
	// counters are charged, or looked at, by storing the session.
	counters []record.Counter
	// then is what else must succeed for the step to count, done once the
	// session is stored and before anyone has its token: if it fails, the
	// session is ended again.
	then []func(context.Context) error
}

// enter takes a step and returns what the client is told of it.
func (s *Service) enter(ctx context.Context, c *call, st step) (Reply, error) {
	bucket := record.AccountBucket(c.Company.Code, st.account.ID)
	if st.account.ID == 0 {
		bucket = record.HashToken(st.decoyOf).Bucket() // that of account 0 would show what it is
	}
	token, hash := tokens.New(tokens.Prefix, bucket)
	next := c.newSession(st, hash)
	reply := Reply{SessionToken: token, SessionState: st.state, ExpiresIn: secondsUntil(next.Expires, c.Now)}
	var code newCode
	switch st.state {
	case record.CheckOTP, record.RecoveryOTP:
		var err error
		if code, err = s.newCode(c, st, token); err != nil {
			return Reply{}, err
		}
		st.counters = append(st.counters, code.counters...)
		if next.Code = code.stored; next.Code != nil {
			reply.UserPhone = record.MaskPhone(st.account.Phone)
		}
	case record.SetPassword, record.RecoveryPassword:
		reply.PasswordQuality = c.Company.Quality(st.account)
	case record.Authorized:
		reply.ProfileMnemocode = st.account.Mnemocode
	}
	when := c.whenSent(st.state)
	if when == beforeStored && code.send != nil {
		if err := c.Charge(ctx, st.counters...); err != nil {
			return Reply{}, err
		}
		st.counters = nil
		if err := s.deliver(ctx, code); err != nil {
			return Reply{}, err
		}
	}
	if err := s.store(ctx, c, next, st.counters...); err != nil {
		return Reply{}, err
	}
	for _, then := range st.then {
		if err := then(ctx); err != nil {
			s.abandon(ctx, hash)
			return Reply{}, err
		}
	}
	if when == onceStored && code.send != nil { // the last, since nothing takes it back
		if err := s.deliver(ctx, code); err != nil {
			s.abandon(ctx, hash)
			return Reply{}, err
		}
	}
	if when == behindAnswer && code.send != nil {
		s.sendLater(c.Company, st.account, hash, code)
	}
	c.issued = next.ID
	return reply, nil
}

// after goes on behind a proof of the user: to the second factor (unless otpDone
// says that it was given), to a new password, or to authorized. This is
// the "second factor required", "new password required", "nothing further
// required" of the interface's transition table.
func (s *Service) after(ctx context.Context, c *call, st step, otpDone bool) (Reply, error) {
	switch {
	case !otpDone && c.Company.NeedsSecondFactor(st.account):
		if err := c.CheckCodes(st.account); err != nil {
			return Reply{}, err
		}
		return s.awaitCode(ctx, c, st)
	case st.account.MustSetPassword || st.account.PasswordHash == "" && *c.Company.Password.Required:
		st.state = record.SetPassword
	default:
		return s.authorize(ctx, c, st)
	}
	return s.enter(ctx, c, st)
}

// authorize is the step to authorized, which records the disclaimers that were
// accepted on the way.
func (s *Service) authorize(ctx context.Context, c *call, st step) (Reply, error) {
	st.state = record.Authorized
	if len(st.accepted) > 0 {
		accept := func(ctx context.Context) error {
			accepted := record.Event{Name: record.TypeDisclaimersAccepted, Time: c.Now, Mnemocode: st.account.Mnemocode, Accepted: st.accepted}
			if err := s.Accounts.Accept(ctx, c.Company.Code, st.account.ID, st.accepted, background.OutboxEvents(c.Company, accepted)...); err != nil {
				return wire.Unavailable("recording the accepted disclaimers", err)
			}
			return nil
		}
		st.then = slices.Insert(st.then, 0, accept) // an acceptance too many is better than a backup code lost
	}
	return s.enter(ctx, c, st)
}

// secondsUntil is the whole seconds until then.
func secondsUntil(then, now time.Time) *int { return new(int(then.Sub(now) / time.Second)) }
