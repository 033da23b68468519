package session

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A newCode is a one-time code that was not sent yet.
type newCode struct {
	stored   *record.Code     // nil for none
	counters []record.Counter // the budgets that it is charged to, even if the gateway then fails
	send     func(context.Context) error
}

// newCode makes a one-time code for the session of a token. A decoy gets a code that
// nothing matches. Decoys and phones with a fixed code get no SMS. No code is made if
// the step is codeless or byApp, or if the account has backup codes but no phone.
func (c *Call) newCode(st Step, token string) (newCode, error) {
	nothing := func(context.Context) error { return nil }
	a := st.Account
	if st.byApp {
		return newCode{send: nothing}, nil
	}
	if a.ID != 0 && (a.Phone == "" || st.codeless) {
		if a.BackupCodes == 0 {
			return newCode{}, ErrNoSecondFactor
		}
		return newCode{send: nothing}, nil
	}
	if a.ID != 0 && st.State == record.CheckOTP && !c.Company.DeliversTo(a.Phone) {
		return newCode{}, ErrNoSecondFactor // waiting does not help
	}
	digits, fixed := c.Company.FixedCode(a.Phone)
	c.aboutSMS(a.Phone)
	if !fixed {
		digits = tokens.NewDigits(c.Company.OTP.Length)
	}
	hidden := c.hides(st.State)
	var counters []record.Counter
	switch {
	case hidden:
		counters = c.SMSCounters(record.Account{}, st.DecoyOf)
	case !fixed:
		country, err := c.CountrySMS(a.Phone)
		if err != nil {
			return newCode{}, c.LimitError(err)
		}
		counters = append(c.SMSCounters(st.Account, st.DecoyOf), country...)
	}
	expires := c.Now.Add(time.Duration(c.Company.OTP.TTL))
	if a.ID == 0 {
		code := &record.Code{Expires: expires}
		rand.Read(code.Hash[:])
		return newCode{code, counters, nothing}, nil
	}
	code := &record.Code{Hash: tokens.HashCode(token, st.State, a.Phone, digits), Phone: a.Phone, Expires: expires}
	if hidden {
		code.Phone = "" // as for a decoy; the phone is part of the hash
	}
	if fixed {
		return newCode{code, counters, nothing}, nil
	}
	m := message.Message{Type: message.OTPLogin, To: a.Phone, Code: digits, Origin: c.Company.SMSOrigin, Expires: expires}
	if st.State == record.RecoveryOTP {
		m.Type = message.OTPRecovery
	}
	send := func(ctx context.Context) error { return c.s.send(ctx, c.Company, c.Company.SMS, a, m) }
	if hidden {
		send = c.withinPrivate(a, send)
	}
	return newCode{code, counters, send}, nil
}

// ErrNoSecondFactor means that the next step needs a code, but the account has neither
// backup codes nor a phone that gets one.
var ErrNoSecondFactor = &wire.Refusal{
	Err:     wire.ErrUserRestricted,
	Message: "A code is due, but the account has no phone that gets one. Only an operator can change that.",
	Reason:  wire.NoSecondFactor,
}

// A moment says when the code of a step is sent.
type moment int

const (
	afterStored  moment = iota // after the session is stored; if sending fails, the session is revoked
	beforeStored               // before the session is stored; if sending fails, the old session stays valid
	afterAnswer                // after the answer, which must not reveal whether a code was sent
)

// whenSent returns when the code of a step to this state is sent.
func (c *Call) whenSent(state record.State) moment {
	switch {
	case c.hides(state):
		return afterAnswer
	case c.replacesNone():
		return afterStored
	default:
		return beforeStored
	}
}

// deliver sends a code and waits until it is sent, even if the client hangs up: that is
// no failure of the gateway.
func (c *Call) deliver(ctx context.Context, code newCode) error {
	return c.handOver(ctx, "sending the code", code.counters, code.send)
}

// handOver gives a message to a gateway. A message that the gateway refuses counts, too, so
// Retry-After then says when the budgets allow the next one.
func (c *Call) handOver(ctx context.Context, doing string, budgets []record.Counter, send func(context.Context) error) error {
	c.Worked()
	ctx = context.WithoutCancel(ctx)
	err := send(ctx)
	if err == nil {
		return nil
	}
	err = wire.Unavailable(doing, err)
	refusal, _ := errors.AsType[*wire.Refusal](err)
	for _, budget := range record.CheckOnly(budgets...) { // one by one, since the last to open counts
		next := c.Counters.Charge(ctx, c.Now, budget)
		if full, ok := errors.AsType[*record.FullError](next); ok {
			refusal.RetryAfter = max(refusal.RetryAfter, full.Until.Sub(c.Now))
		}
	}
	return err
}

// sendLater sends the code of a recovery after the answer. If that fails, the code
// becomes void.
func (s *Manager) sendLater(ctx context.Context, company *tenant.Company, a record.Account, session record.TokenHash, code newCode) {
	s.sendDelayed(ctx, company, a, message.OTPRecovery, func(ctx context.Context) error {
		err := panics.Contain(func() error { return code.send(ctx) })
		if err == nil {
			return nil
		}
		void := s.voidCode(ctx, company, session, code.stored)
		if errors.Is(err, errBudgetSpent) {
			return void
		}
		return errors.Join(err, void)
	})
}

// voidCode replaces a code that was not sent with one that nothing matches, unless the
// code was spent. Guesses then count as they do for a decoy.
func (s *Manager) voidCode(ctx context.Context, company *tenant.Company, hash record.TokenHash, unsent *record.Code) error {
	session, err := s.Sessions.SpendCode(ctx, s.Now(), company.Code, hash, record.RecoveryOTP)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil || session.Code == nil {
		return err
	}
	code := *session.Code
	if code.Hash == unsent.Hash { // otherwise it is the code of a renewal, which is put back
		rand.Read(code.Hash[:])
	}
	number, err := s.Sessions.OpenCode(ctx, s.Now(), hash, record.RecoveryOTP)
	if err == nil {
		err = s.Sessions.SetCode(ctx, hash, number, code)
	}
	if errors.Is(err, record.ErrConflict) { // the session was revoked, or a later renewal has replaced the code
		return nil
	}
	return err
}
