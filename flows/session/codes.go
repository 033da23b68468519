package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A newCode is a one-time code that was not sent yet.
type newCode struct {
	stored   *record.Code                // nil for none
	counters []record.Counter            // the budgets that it is charged to, even if the gateway then fails
	send     func(context.Context) error // nil if there is nothing to send
}

// newCode makes a one-time code for the session of a token, which expires with the token at
// the latest. Decoys and phones with a fixed code get no SMS.
func (c *Call) newCode(st Step, token string, expires time.Time) (newCode, error) {
	a := st.Account
	digits, fixed := c.Company.FixedCode(a.Phone)
	if !fixed {
		digits = tokens.NewDigits(c.Company.OTP.Length)
	}
	c.country = smsCountry(c.Company, a.Phone)
	if ttl := time.Duration(c.Company.OTP.TTL); ttl < expires.Sub(c.Now) {
		expires = c.Now.Add(ttl)
	}
	code := &record.Code{Hash: c.Keys.HashCode(token, st.State, a.Phone, digits), Phone: a.Phone, Expires: expires}
	counters, err := c.Tells.prepare(code, st, fixed)
	if err != nil || fixed || a.ID == 0 {
		return newCode{stored: code, counters: counters}, err
	}
	m := message.Message{Type: codeTypes[st.State], To: a.Phone, Code: digits, Origin: c.Company.SMSOrigin, Expires: expires}
	send := func(ctx context.Context) error { return c.m.send(ctx, c.Company, a, m) }
	return newCode{code, counters, send}, nil
}

// codeTypes are the types of messages with codes, by the state of their session. One that is
// authorized is being raised.
var codeTypes = map[record.State]string{
	record.CheckOTP: message.OTPLogin, record.RecoveryOTP: message.OTPRecovery, record.Authorized: message.OTPStepUp,
}

// CheckCode returns the error of a step to checkotp of the account, which sends its code and
// charges for it. CheckCode does neither.
func (c *Call) CheckCode(ctx context.Context, a record.Account) error {
	if a.BackupCodes > 0 { // they do without an SMS
		return nil
	}
	expects, err := c.expects(a)
	if expects != record.BySMS {
		return err
	}
	code, err := c.newCode(Step{Account: a, State: record.CheckOTP}, "", c.Now)
	if err != nil {
		return err
	}
	return c.Charge(ctx, record.CheckOnly(code.counters...)...)
}

// expects returns what the owner of an account is to enter first in checkotp: the code of the
// app, or of an SMS, or else a backup code.
func (c *Call) expects(a record.Account) (record.AuthMethods, error) {
	switch {
	case a.HasApp():
		return record.ByApp, nil
	case a.ID == 0 || c.Company.DeliversTo(a.Phone): // a decoy does as the account that it stands for
		return record.BySMS, nil
	case a.BackupCodes > 0:
		return record.ByBackupCode, nil
	}
	return "", ErrNoSecondFactor // waiting does not help
}

// ErrNoSecondFactor means that the next step needs a code, but the account has neither
// backup codes nor a phone that gets one.
var ErrNoSecondFactor = &wire.Refusal{
	Err:     wire.ErrUserRestricted,
	Message: "A code is due, but the account has nothing that gives one: a phone or, if it has a password, an authenticator app or backup codes. Let the user log in another way, or ask an operator to add one of these.",
	Reason:  wire.NoSecondFactor,
}

// codeAccount returns the account of a step with codes. It fails if limits, locks or
// the account's status do not allow the step.
func (c *Call) codeAccount(ctx context.Context) (record.Account, error) {
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return record.Account{}, err
	}
	if err := c.CheckAddress(ctx); err != nil {
		return record.Account{}, err
	}
	_, err = c.mayTryCode(ctx, a)
	return a, err
}

// mayTryCode returns where a code counts. It fails if its locks or the account's status do
// not allow a code now.
func (c *Call) mayTryCode(ctx context.Context, a record.Account) (Counts, error) {
	counts, err := c.Tells.Counts(ctx, a, c.session.LoginID)
	if err == nil {
		err = c.CheckCodes(counts.Now)
	}
	if err == nil {
		err = c.Tells.Status(a)
	}
	return counts, err
}

// spendCode returns a getter that spends the code of a session in this state. If the
// address has failed too often, the code is not spent, and readCode reports the limit
// when the account is known.
func (c *Call) spendCode(state record.State) getter {
	return func(ctx context.Context, hash record.TokenHash) (record.Session, error) {
		if c.Company.Devices.For != 0 { // the limits of a known device take the place of the address's
			session, err := c.m.Sessions.Get(ctx, hash)
			if err != nil {
				return session, err
			}
			c.Device = session.Device
		}
		session, err := c.m.Sessions.SpendCode(ctx, c.Now, c.Company.Code, hash, state, c.AddressCounters()...)
		if errors.As(err, &c.limited) {
			err = nil
		}
		return session, err
	}
}

// TryCode compares a code with that of the account's app, or with the one that was sent,
// which FindAndSpendCode has spent. Only a code that is compared counts as an attempt; a
// text that can't be one spends nothing. The returned step checks the address of a right
// one.
func (c *Call) TryCode(ctx context.Context, sent string) (Step, error) {
	a, err := c.LoadAccount(ctx)
	switch {
	case err != nil:
		return Step{}, err
	case c.session.NoCode && a.HasApp():
		return c.tryApp(ctx, a, sent)
	default:
		return c.trySMS(ctx, a, sent, c.token)
	}
}

// readCode reads a code of this many digits, and returns where it counts. It fails if limits,
// locks or the account's status do not allow a code now.
func (c *Call) readCode(ctx context.Context, a record.Account, sent string, length int) (otp string, counts Counts, err error) {
	otp, ok := typed.OTP(sent, length)
	if !ok {
		return "", Counts{}, wire.Invalid("The field otp must have the %d digits of the code. Nothing was spent or counted.", length)
	}
	if c.limited != nil {
		return "", Counts{}, c.LimitError(c.limited)
	}
	counts, err = c.mayTryCode(ctx, a)
	return otp, counts, err
}

// trySMS compares a code with that of the call's session, which must be spent already. The
// token is the one that the code was made for.
func (c *Call) trySMS(ctx context.Context, a record.Account, sent, token string) (Step, error) {
	otp, counts, err := c.readCode(ctx, a, sent, c.Company.OTP.Length)
	if err != nil {
		return Step{}, err
	}
	code := c.session.Code
	if code == nil || !c.Now.Before(code.Expires) || code.Phone != "" && code.Phone != a.Phone {
		return Step{}, wire.ErrOTPInvalid
	}
	c.country = smsCountry(c.Company, a.Phone)
	if !c.Keys.IsCode(code.Hash, token, c.session.State, a.Phone, otp) {
		if err := c.recordWrongCode(ctx, counts); err != nil {
			return Step{Account: a}, err
		}
		return Step{Account: a}, wire.ErrOTPInvalid
	}
	stored, err := c.LoadAccount(ctx) // once more, because wrong codes may have been counted since
	if err == nil {                   // the code proves the owner, so any lock and status may show now
		err = cmp.Or(c.CheckCodes(stored.FailureCounts), tenant.CheckStatus(a)) // of a, since stored may be a decoy by now
	}
	return Step{Account: a, By: record.BySMS, Counters: c.AddressCounters()}, err
}

// recordWrongCode counts a wrong code where it counts. It does both, even if the first fails.
func (c *Call) recordWrongCode(ctx context.Context, counts Counts) error {
	var private error
	if counts.HasPrivate() {
		private = c.CountWrongCode(ctx, counts.Private)
	}
	if err := c.RecordWindow(ctx, counts.Key, record.WrongCodes, false); err != nil {
		return err
	}
	return private
}

// TryBackupCode checks a backup code. The code stays valid until the returned step
// succeeds.
func (c *Call) TryBackupCode(ctx context.Context, sent string) (Step, error) {
	code, ok := typed.BackupCode(sent)
	if !ok {
		return Step{}, wire.Invalid("The field backup_code must have the 10 letters and digits of a backup code. Nothing was counted.")
	}
	a, err := c.codeAccount(ctx)
	if err != nil {
		return Step{}, err
	}
	hashes, err := c.m.Accounts.BackupCodes(ctx, c.Company.Code, a.ID)
	if err != nil {
		return Step{}, wire.Unavailable("loading the backup codes", err)
	}
	if err := c.BeginLogin(ctx); err != nil { // the right code can come again, if other things stop the step
		return Step{}, err
	}
	match, err := c.m.Hasher.Match(ctx, c.Turn(), c.Company.Password.Argon2id, hashes, code)
	if err != nil {
		return Step{}, wire.Unavailable("checking the backup code", err)
	}
	c.Worked()
	err = c.RecordWindow(ctx, c.FailureKey(a, ""), record.WrongCodes, match != "")
	if err == nil && match == "" {
		err = wire.ErrBackupCodeInvalid
	}
	return Step{Account: a, By: record.ByBackupCode, backupCode: match}, err
}

// RenewCode replaces the code of the call's session. If the gateway fails, the code before
// stays valid, unless it is one of a hardened recovery, which is sent after the answer. The
// token and its expiry do not change. Of concurrent renewals, the code that was sent last counts.
func (c *Call) RenewCode(ctx context.Context) (record.Account, error) {
	a, err := c.codeAccount(ctx)
	if err != nil {
		return record.Account{}, err
	}
	noPhone := wire.Invalid("No code can be sent to this account. Offer another second factor.")
	if c.session.State == record.RecoveryOTP {
		noPhone = wire.Invalid("No code can be sent to this account. Begin the recovery again, by another method.")
	}
	if a.ID != 0 && (a.Phone == "" || c.session.State == record.CheckOTP && !c.Company.DeliversTo(a.Phone)) {
		return record.Account{}, noPhone
	}
	renewals := c.Counter("limit.renewals", c.session.ID, tenant.Rate{N: *c.Company.OTP.Renewals, Per: time.Duration(c.Company.Session.Temporary)})
	same := Step{Account: a, LoginIDHash: c.session.LoginID, State: c.session.State}
	code, err := c.newCode(same, c.token, c.session.Expires)
	if err != nil {
		return record.Account{}, err
	}
	code.counters = append([]record.Counter{renewals}, code.counters...)
	if err := c.Charge(ctx, code.counters...); err != nil {
		return record.Account{}, err
	}
	// A code that was sent must work even if the client hangs up.
	return a, c.Tells.replaceCode(context.WithoutCancel(ctx), same, code)
}

func (c *Call) setCode(ctx context.Context, code *record.Code) error {
	return wire.Gone("storing the code", c.m.Sessions.SetCode(ctx, c.Now, c.session.Hash, c.session.State, *code, false))
}
