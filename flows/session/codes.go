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
	stored   *record.Code                // nil for none
	counters []record.Counter            // the budgets that it is charged to, even if the gateway then fails
	send     func(context.Context) error // nil if there is nothing to send
}

// newCode makes a one-time code for the session of a token. Decoys and phones with a fixed
// code get no SMS.
func (c *Call) newCode(st Step, token string) (newCode, error) {
	a := st.Account
	if due, err := c.codeDue(st); !due {
		return newCode{}, err
	}
	digits, fixed := c.Company.FixedCode(a.Phone)
	if !fixed {
		digits = tokens.NewDigits(c.Company.OTP.Length)
	}
	c.aboutSMS(a.Phone)
	expires := c.Now.Add(time.Duration(c.Company.OTP.TTL))
	code := &record.Code{Hash: tokens.HashCode(token, st.State, a.Phone, digits), Phone: a.Phone, Expires: expires}
	counters, err := c.Tells.prepare(code, st, fixed)
	if err != nil || fixed || a.ID == 0 {
		return newCode{stored: code, counters: counters}, err
	}
	m := message.Message{Type: message.OTPLogin, To: a.Phone, Code: digits, Origin: c.Company.SMSOrigin, Expires: expires}
	if st.State == record.RecoveryOTP {
		m.Type = message.OTPRecovery
	}
	send := func(ctx context.Context) error { return c.m.send(ctx, c.Company, c.Company.SMS, a, m) }
	return newCode{code, counters, send}, nil
}

// CheckCode returns the error of a step to checkotp of the account, which sends its code and
// charges for it. CheckCode does neither.
func (c *Call) CheckCode(ctx context.Context, a record.Account) error {
	if a.BackupCodes > 0 { // they do without an SMS
		return nil
	}
	code, err := c.newCode(Step{Account: a, State: record.CheckOTP, byApp: a.HasApp()}, "")
	if err != nil {
		return err
	}
	return c.Charge(ctx, record.CheckOnly(code.counters...)...)
}

// codeDue reports whether a step needs a code by SMS. It needs none if the account's app
// shows it, or if only a backup code can be sent. It fails if there is none of these.
func (c *Call) codeDue(st Step) (bool, error) {
	a := st.Account
	switch {
	case a.ID == 0:
		return true, nil // as for the account that the decoy stands for
	case st.byApp:
		return false, nil
	case (a.Phone == "" || st.codeless) && a.BackupCodes > 0:
		return false, nil
	case a.Phone == "" || st.codeless, st.State == record.CheckOTP && !c.Company.DeliversTo(a.Phone): // waiting does not help
		return false, ErrNoSecondFactor
	}
	return true, nil
}

// ErrNoSecondFactor means that the next step needs a code, but the account has neither
// backup codes nor a phone that gets one.
var ErrNoSecondFactor = &wire.Refusal{
	Err:     wire.ErrUserRestricted,
	Message: "A code is due, but the account has no phone that gets one, no authenticator app and no backup codes. Let the user log in another way, or ask an operator to add one of these.",
	Reason:  wire.NoSecondFactor,
}

// A notTaken is why a gateway did not take a message.
type notTaken struct{ error }

func (n notTaken) Unwrap() error { return n.error }

// handOver gives a message to a gateway, if there is one. A message that the gateway
// refuses, with a notTaken, counts, too, so Retry-After then says when the budgets allow the
// next one.
func (c *Call) handOver(ctx context.Context, doing string, budgets []record.Counter, send func(context.Context) error) error {
	c.Worked()
	if send == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	err := send(ctx)
	if err == nil {
		return nil
	}
	err = wire.Unavailable(doing, notTaken{err})
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
func (m *Manager) sendLater(ctx context.Context, company *tenant.Company, a record.Account, session record.TokenHash, code newCode) {
	m.sendDelayed(ctx, company, a, message.OTPRecovery, func(ctx context.Context) error {
		if code.send == nil {
			return nil
		}
		err := panics.Contain(func() error { return code.send(ctx) })
		if err == nil {
			return nil
		}
		void := m.voidCode(ctx, company, session, code.stored)
		if errors.Is(err, errBudgetSpent) {
			return void
		}
		return errors.Join(err, void)
	})
}

// voidCode replaces a code that was not sent with one that nothing matches, unless the
// code was spent. Guesses then count as they do for a decoy.
func (m *Manager) voidCode(ctx context.Context, company *tenant.Company, hash record.TokenHash, unsent *record.Code) error {
	session, err := m.Sessions.SpendCode(ctx, m.Now(), company.Code, hash, record.RecoveryOTP)
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
	number, err := m.Sessions.OpenCode(ctx, m.Now(), hash, record.RecoveryOTP)
	if err == nil {
		err = m.Sessions.SetCode(ctx, hash, number, code)
	}
	if errors.Is(err, record.ErrConflict) { // the session was revoked, or a later renewal has replaced the code
		return nil
	}
	return err
}
