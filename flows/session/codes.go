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

// A newCode is a one-time code that is not yet sent.
type newCode struct {
	stored   *record.Code     // nil for none
	counters []record.Counter // the budgets that it uses up, also if the gateway then fails
	send     func(context.Context) error
}

// newCode makes a one-time code for the session under token. A decoy gets one
// that nothing equals, and no SMS; neither does a phone with a fixed one. An
// account without a phone, its second factor the backup codes, gets no code, and
// neither does a step that is codeless or byApp.
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
	digits, fixed := c.Company.OTP.FixedCode(a.Phone)
	c.aboutSMS(a.Phone)
	if !fixed {
		digits = tokens.NewDigits(c.Company.OTP.Length)
	}
	hidden := c.Company.Hardened && st.State == record.RecoveryOTP
	var counters []record.Counter
	switch {
	case hidden:
		counters = c.SMSCounters(record.Account{}, st.DecoyOf)
	case !fixed:
		country, err := c.CountrySMS(a.Phone)
		if err != nil {
			return newCode{}, c.Refused(err)
		}
		counters = append(c.SMSCounters(st.Account, st.DecoyOf), country...)
	}
	expires := c.Now.Add(time.Duration(c.Company.OTP.TTL))
	if a.ID == 0 {
		code := &record.Code{Expires: expires}
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
		return newCode{code, counters, nothing}, nil
	}
	code := &record.Code{Hash: tokens.HashCode(token, st.State, a.Phone, digits), Phone: a.Phone, Expires: expires}
	if fixed {
		return newCode{code, counters, nothing}, nil
	}
	m := message.Message{Type: message.OTPLogin, To: a.Phone, Code: digits, Expires: expires}
	if st.State == record.RecoveryOTP {
		m.Type = message.OTPRecovery
	}
	send := func(ctx context.Context) error { return c.s.send(ctx, c.Company, c.Company.SMS, a, m) }
	if hidden {
		send = c.withinPrivate(a, send)
	}
	return newCode{code, counters, send}, nil
}

// ErrNoSecondFactor is for an account whose next step would be a code, and that
// has neither a phone to send it to nor backup codes.
var ErrNoSecondFactor = &wire.Refusal{
	Err:     wire.ErrUserRestricted,
	Message: "The account has no phone that a code could be sent to; only an administrator can add one.",
	Reason:  wire.NoSecondFactor,
}

// A moment is when a step's code is sent.
type moment int

const (
	onceStored   moment = iota // of the session, which is ended again if the code can't be sent
	beforeStored               // so that the session which is replaced stays good if the code can't be sent
	behindAnswer               // which must not tell of it
)

// whenSent tells when the code of a step to state is sent.
func (c *Call) whenSent(state record.State) moment {
	switch {
	case c.Company.Hardened && state == record.RecoveryOTP:
		return behindAnswer
	case c.first():
		return onceStored
	default:
		return beforeStored
	}
}

// deliver sends a code while its caller waits.
func (n newCode) deliver(ctx context.Context) error {
	if err := n.send(ctx); err != nil {
		return wire.Unavailable("sending the code", err)
	}
	return nil
}

// sendLater sends the code of a recovery behind the answer; if that fails, the
// code is void.
func (s *Manager) sendLater(company *tenant.Company, a record.Account, session record.TokenHash, code newCode) {
	s.unseen(company, a, message.OTPRecovery, func(ctx context.Context) error {
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

// voidCode puts one that nothing equals in the place of a code that was not sent,
// unless that was spent: so guesses count as at a decoy's.
func (s *Manager) voidCode(ctx context.Context, company *tenant.Company, hash record.TokenHash, unsent *record.Code) error {
	session, err := s.Sessions.SpendCode(ctx, s.Now(), company.Code, hash, record.RecoveryOTP)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil || session.Code == nil {
		return err
	}
	code := *session.Code
	if code.Hash == unsent.Hash { // else a renewal's, which goes back
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
	}
	number, err := s.Sessions.OpenCode(ctx, s.Now(), hash, record.RecoveryOTP)
	if err == nil {
		err = s.Sessions.SetCode(ctx, hash, number, code)
	}
	if errors.Is(err, record.ErrConflict) { // the session has ended, or a later renewal's counts
		return nil
	}
	return err
}
