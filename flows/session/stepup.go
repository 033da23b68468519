package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file raises a session: its user proves more, and it goes on with the same token
// (contract, section 21).

// What a step-up is for.
const (
	ForMFA   = "mfa"   // two factors
	ForFresh = "fresh" // a recent login
)

// stepUpOrders are the factors of each kind of step-up, best first.
var stepUpOrders = map[string][]record.AuthMethods{
	ForMFA:   {record.ByPasskey, record.ByApp, record.BySMS, record.ByBackupCode, record.ByPassword},
	ForFresh: {record.ByPasskey, record.ByPassword, record.ByApp, record.BySMS},
}

// StepUpFactors returns the factors with which the owner of an account can raise a session
// that was given some, best first. For two factors, these are what it was not given yet. An app
// counts also without a password, since no stranger begins a step-up.
func StepUpFactors(company *tenant.Company, a record.Account, given record.AuthMethods, wanted string) (factors []record.AuthMethods) {
	words := given.Words()
	for _, factor := range stepUpOrders[wanted] {
		if company.CanGive(a, factor) && (wanted != ForMFA || !slices.Contains(words, string(factor))) {
			factors = append(factors, factor)
		}
	}
	return factors
}

// StepUpFactors returns the factors with which the account's owner can raise the call's session.
func (c *Call) StepUpFactors(a record.Account, wanted string) []record.AuthMethods {
	return StepUpFactors(c.Company, a, c.session.Profile.Methods(), wanted)
}

// NewStepUp returns the token of a step-up of the call's session, and for how many seconds
// it is valid. It extends the session: its user is there. If the factor is an SMS, NewStepUp
// sends the code, which replaces that of an earlier step-up.
func (c *Call) NewStepUp(ctx context.Context, a record.Account, wanted string, factor record.AuthMethods) (token string, expiresIn int, err error) {
	if err := c.extend(ctx); err != nil {
		return "", 0, err
	}
	expires := c.Now.Add(time.Duration(c.Company.Session.Temporary))
	if expires.After(c.session.Expires) {
		expires = c.session.Expires
	}
	token = c.Keys.NewStepUp(tokens.StepUp{Company: c.Company.Code, Session: c.session.ID, Wanted: wanted, Factor: factor}, expires)
	if factor != record.BySMS {
		return token, c.SecondsUntil(expires), nil
	}
	if _, err := c.codeAccount(ctx); err != nil {
		return "", 0, err
	}
	st := Step{Account: a, State: record.Authorized}
	code, err := c.newCode(st, token, expires)
	if err == nil {
		err = c.Charge(ctx, code.counters...)
	}
	if err == nil {
		err = c.Tells.replaceCode(context.WithoutCancel(ctx), st, code)
	}
	return token, c.SecondsUntil(expires), err
}

var errStepUp = wire.Invalid("The stepup_token is not one of this session, was used before or has expired. Call stepup again.")

// A StepUp is one that the client of a call has begun. It raises the call's session once.
type StepUp struct {
	*Call
	Wanted string // what it is for
	Factor record.AuthMethods
	token  string
}

// OpenStepUp returns the step-up of a token, which must be one of the call's session.
func (c *Call) OpenStepUp(ctx context.Context, token string) (*StepUp, error) {
	found, ok := c.Keys.OpenStepUp(c.Company.Code, c.session.ID, token, c.Now)
	if !ok {
		return nil, errStepUp
	}
	u := &StepUp{c, found.Wanted, found.Factor, token}
	used, err := c.IsUsed(ctx, u.mark())
	if err == nil && used {
		err = errStepUp
	}
	return u, err
}

// mark marks the step-up as used, for as long as its token can be valid.
func (u *StepUp) mark() record.Counter {
	mark := limits.Mark(u.Company.Code, "stepup", []byte(u.token))
	mark.Window = max(mark.Window, time.Duration(u.Company.Session.Temporary))
	return mark
}

// TryCode compares a code with that of the app or, if the factor is an SMS, with the one that
// was sent, which it spends.
func (u *StepUp) TryCode(ctx context.Context, factor record.AuthMethods, sent string) (Step, error) {
	if _, ok := typed.OTP(sent, u.Company.OTP.Length); ok && factor == record.BySMS {
		found, err := u.spendCode(record.Authorized)(ctx, u.session.Hash)
		if err != nil {
			return Step{}, wire.Gone("spending the code", err)
		}
		u.session = &found
	}
	a, err := u.LoadAccount(ctx)
	switch {
	case err != nil:
		return Step{}, err
	case factor == record.ByApp: // StepUpFactors has listed it
		return u.tryApp(ctx, a, sent)
	default:
		return u.trySMS(ctx, a, sent, u.token)
	}
}

// Raise adds the proof of a step to the call's session, whose login counts as now. The step-up
// is then used: of any number of callers with its token, one succeeds.
func (u *StepUp) Raise(ctx context.Context, st Step) (record.Session, error) {
	if err := u.Charge(ctx, st.Counters...); err != nil {
		return record.Session{}, err
	}
	first, err := u.MarkUsed(ctx, u.mark())
	if err == nil && !first {
		err = errStepUp
	}
	if err != nil {
		return record.Session{}, err
	}
	ctx = record.WithStoreTime(record.Detached(ctx)) // the factor may be spent already
	// First the backup code: if the store then fails, the code is lost, but a raise without it
	// could not be taken back.
	err = u.complete(ctx, st)
	if errors.Is(err, wire.ErrTokenInvalid) { // another request was faster with the same backup code
		err = wire.ErrBackupCodeInvalid
	}
	if err != nil {
		return record.Session{}, err
	}
	if err := u.raise(ctx, st.By); err != nil {
		return record.Session{}, err
	}
	raised := u.Event()
	raised.Name, raised.Company, raised.Factor, raised.Reason, raised.Country = record.SessionRaised, u.Company.Code, string(st.By), u.With, ""
	u.By = st.By
	u.m.Emit(ctx, raised)
	u.recordCode(ctx, st)
	err = u.extend(ctx)
	return *u.session, err
}

// extend extends the call's session as a request for the application does.
func (c *Call) extend(ctx context.Context) error {
	expires := c.session.IdleUntil(c.Now.Add(time.Duration(c.Company.Session.Idle)))
	err := c.m.Sessions.Touch(ctx, c.Now, c.session.Hash, expires)
	if errors.Is(err, record.ErrNotFound) {
		return wire.ErrTokenInvalid // it was revoked in the meantime
	}
	if err == nil {
		c.session.Expires = expires
	}
	return nil
}

// raises bounds how often raise, refresh and Exchange begin again. Each time, another change of
// the session was faster.
const raises = 8

// raise stores a proof. If the session is raised by two of them at once, it has both.
func (c *Call) raise(ctx context.Context, by record.AuthMethods) error {
	for range raises {
		profile := c.session.Profile.Raised(c.Now, by)
		err := c.m.Sessions.Raise(ctx, c.Now, c.session.Hash, c.session.Profile, profile)
		if err == nil {
			c.session.Profile = profile
			return nil
		}
		if !errors.Is(err, record.ErrConflict) {
			return wire.Unavailable("raising the session", err)
		}
		if err := c.Find(ctx, c.token); err != nil {
			return err
		}
	}
	return wire.Unavailable("raising the session", record.ErrConflict)
}
