package session

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Issued is a token that a client is given, with what it is told of the session.
type Issued struct {
	Token     string
	State     record.State
	ExpiresIn int                     // whole seconds until the token ends unless it is used
	Mnemocode string                  // of an authorized session
	Phone     string                  // masked, that the session's code goes to; empty for none
	Quality   *tenant.PasswordQuality // of the password that is to be set; nil for none
}

// Enter takes a step: it begins the session, or replaces the call's, and returns the
// token of it.
func (c *Call) Enter(ctx context.Context, st Step) (Issued, error) {
	switch st.State {
	case record.CheckPassword:
		return c.enterStateless(ctx, st)
	case record.CheckOTP:
		return c.awaitCode(ctx, st)
	case record.Authorized:
		return c.authorize(ctx, st)
	default:
		return c.enter(ctx, st)
	}
}

// enter takes a step whose session is stored, and sends the code that belongs to it.
func (c *Call) enter(ctx context.Context, st Step) (Issued, error) {
	bucket := record.AccountBucket(c.Company.Code, st.Account.ID)
	if st.Account.ID == 0 {
		bucket = record.HashToken(st.DecoyOf).Bucket() // that of account 0 would show what it is
	}
	token, hash := tokens.New(tokens.Prefix, bucket)
	next := c.newSession(st, hash)
	issued := Issued{Token: token, State: st.State, ExpiresIn: c.secondsUntil(next.Expires)}
	var code newCode
	switch st.State {
	case record.CheckOTP, record.RecoveryOTP:
		var err error
		if code, err = c.newCode(st, token); err != nil {
			return Issued{}, err
		}
		st.Counters = append(st.Counters, code.counters...)
		if next.Code = code.stored; next.Code != nil {
			issued.Phone = record.MaskPhone(st.Account.Phone)
		}
	case record.SetPassword, record.RecoveryPassword:
		issued.Quality = c.Company.Quality(st.Account)
	case record.Authorized:
		issued.Mnemocode = st.Account.Mnemocode
	}
	when := c.whenSent(st.State)
	if when == beforeStored && code.send != nil {
		if err := c.Charge(ctx, st.Counters...); err != nil {
			return Issued{}, err
		}
		st.Counters = nil
		if err := code.deliver(ctx); err != nil {
			return Issued{}, err
		}
	}
	if err := c.store(ctx, next, st.Counters...); err != nil {
		return Issued{}, err
	}
	for _, then := range st.then {
		if err := then(ctx); err != nil {
			c.s.abandon(ctx, hash)
			return Issued{}, err
		}
	}
	if when == onceStored && code.send != nil { // the last, since nothing takes it back
		if err := code.deliver(ctx); err != nil {
			c.s.abandon(ctx, hash)
			return Issued{}, err
		}
	}
	if when == behindAnswer && code.send != nil {
		c.s.sendLater(c.Company, st.Account, hash, code)
	}
	c.issued = next.ID
	return issued, nil
}

// enterSealed takes a step to checkpassword, of which nothing is stored.
func (c *Call) enterStateless(ctx context.Context, st Step) (Issued, error) {
	keys, err := c.s.Keys(ctx)
	if err != nil {
		return Issued{}, err
	}
	if err := c.Charge(ctx, st.Counters...); err != nil {
		return Issued{}, err
	}
	session := c.newSession(st, record.TokenHash{})
	token := keys.NewStateless(session)
	c.issued = tokens.StatelessID(token)
	return Issued{Token: token, State: st.State, ExpiresIn: c.secondsUntil(session.Expires)}, nil
}

// codelessLogins bounds the sessions that strangers can begin for an account
// without a password once its SMS are used up.
var codelessLogins = tenant.Rate{N: 30, Per: 10 * time.Minute}

// awaitCode is the step to record.CheckOTP. Where no more SMS may be sent, an account
// that has backup codes left gets its session all the same (contract, 4, Second
// factor).
func (c *Call) awaitCode(ctx context.Context, st Step) (Issued, error) {
	st.byApp = st.Account.HasApp()
	issued, err := c.enter(ctx, st)
	refusal, ok := errors.AsType[*wire.Refusal](err)
	if !ok || !strings.HasPrefix(refusal.Lock, record.LockPrefix+"sms_") || st.Account.BackupCodes == 0 {
		return issued, err
	}
	st.codeless = true
	if st.Account.PasswordHash == "" {
		of := strconv.FormatInt(st.Account.ID, 10) + "/codeless"
		st.Counters = append(st.Counters, c.Counter("sms-per-account", of, codelessLogins))
	}
	return c.enter(ctx, st)
}

// authorize is the step to authorized, which records the disclaimers that were
// accepted on the way.
func (c *Call) authorize(ctx context.Context, st Step) (Issued, error) {
	s := c.s
	if len(st.Accepted) > 0 {
		accept := func(ctx context.Context) error {
			accepted := record.Event{Name: record.TypeDisclaimersAccepted, Time: c.Now, Mnemocode: st.Account.Mnemocode, Accepted: st.Accepted}
			if err := s.Accounts.Accept(ctx, c.Company.Code, st.Account.ID, st.Accepted, background.OutboxEvents(c.Company, accepted)...); err != nil {
				return wire.Unavailable("recording the accepted disclaimers", err)
			}
			return nil
		}
		st.then = slices.Insert(st.then, 0, accept) // an acceptance too many is better than a backup code lost
	}
	return c.enter(ctx, st)
}

// Exchange revokes the token of the call's authorized session and returns its successor,
// in one atomic step: of many callers, one succeeds. The session goes on as it was, with
// its ID, the moment of its login and the end of its lifetime.
func (c *Call) Exchange(ctx context.Context) (Issued, error) {
	s := c.s
	token, hash := tokens.New(tokens.Prefix, record.AccountBucket(c.Company.Code, c.session.Account))
	next := *c.session
	next.Hash, next.LastUsed = hash, c.Now
	next.AtMost = 0 // it takes the place of one, so none has to make room
	next.Expires = next.IdleUntil(c.Now.Add(time.Duration(c.Company.Session.Idle)))
	if err := c.store(ctx, next); err != nil {
		return Issued{}, err
	}
	moved := c.By("")
	moved.Name, moved.Time, moved.Company = record.SessionMoved, c.Now, c.Company.Code
	moved.Account, moved.Mnemocode, moved.Session, moved.State = next.Account, next.Mnemocode, next.ID, next.State
	s.Emit(ctx, moved)
	return Issued{Token: token, State: next.State, ExpiresIn: c.secondsUntil(next.Expires), Mnemocode: next.Mnemocode}, nil
}

// secondsUntil is the whole seconds from now until then.
func (c *Call) secondsUntil(then time.Time) int { return int(then.Sub(c.Now) / time.Second) }
