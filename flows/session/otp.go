package session

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

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
// address has failed too often, the code is not spent, and TryCode reports the limit
// when the account is known.
func (c *Call) spendCode(state record.State) getter {
	return func(ctx context.Context, hash record.TokenHash) (record.Session, error) {
		if c.Company.Devices.For != 0 { // the limits of a known device take the place of the address's
			session, err := c.m.Sessions.Get(ctx, hash)
			if err != nil {
				return session, err
			}
			c.setDevice(session.Device)
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
	if err != nil {
		return Step{}, err
	}
	try, length := c.trySMS, c.Company.OTP.Length
	if c.session.NoCode && a.HasApp() {
		try, length = c.tryApp, tokens.TOTPDigits
	}
	otp, ok := typed.OTP(sent, length)
	if !ok {
		return Step{}, wire.Invalid("The field otp must have the %d digits of the code. Nothing was spent or counted.", length)
	}
	if c.limited != nil {
		return Step{}, c.LimitError(c.limited)
	}
	counts, err := c.mayTryCode(ctx, a)
	if err != nil {
		return Step{}, err
	}
	return try(ctx, a, counts, otp)
}

func (c *Call) trySMS(ctx context.Context, a record.Account, counts Counts, otp string) (Step, error) {
	code := c.session.Code
	if code == nil || !c.Now.Before(code.Expires) || code.Phone != "" && code.Phone != a.Phone {
		return Step{}, wire.ErrOTPInvalid
	}
	c.aboutSMS(a.Phone)
	hash := tokens.HashCode(c.token, c.session.State, a.Phone, otp)
	if subtle.ConstantTimeCompare(hash[:], code.Hash[:]) != 1 {
		if err := c.recordWrongCode(ctx, counts); err != nil {
			return Step{Account: a}, err
		}
		return Step{Account: a}, wire.ErrOTPInvalid
	}
	stored, err := c.LoadAccount(ctx) // once more, because wrong codes may have been counted since
	if err == nil {                   // the code proves the owner, so any lock and status may show now
		err = cmp.Or(c.CheckCodes(stored.FailureCounts), tenant.CheckStatus(a))
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
	match, err := c.m.Hasher.Match(ctx, c.Turn(), c.Company.Password.Argon2id, hashes, code)
	if err != nil {
		return Step{}, wire.Unavailable("checking the backup code", err)
	}
	err = c.RecordWindow(ctx, c.FailureKey(a, ""), record.WrongCodes, match != "")
	if err == nil && match == "" {
		err = wire.ErrBackupCodeInvalid
	}
	use := func(ctx context.Context) error { return c.useBackupCode(ctx, a, match) }
	return Step{Account: a, By: record.ByBackupCode, then: []func(context.Context) error{use}}, err
}

func (c *Call) useBackupCode(ctx context.Context, a record.Account, hash string) error {
	err := c.m.Accounts.UseBackupCode(ctx, c.Company.Code, a.ID, hash)
	if errors.Is(err, record.ErrConflict) {
		return wire.ErrTokenInvalid // another login has used it; this one's session is replaced already
	}
	if err != nil {
		return wire.Unavailable("spending the backup code", err)
	}
	return nil
}

// RenewCode replaces the code of the call's session. The old code becomes invalid before
// the new one is sent. The token and its expiry do not change. Of concurrent renewals,
// the code of the last one counts.
func (c *Call) RenewCode(ctx context.Context) (record.Account, error) {
	a, err := c.codeAccount(ctx)
	if err != nil {
		return record.Account{}, err
	}
	noPhone := wire.Invalid("No code can be sent to this account. Offer another second factor.")
	if c.session.State == record.CheckOTP && a.Phone == "" {
		return record.Account{}, noPhone
	}
	renewals := c.Counter("limit.renewals", c.session.ID, tenant.Rate{N: *c.Company.OTP.Renewals, Per: time.Duration(c.Company.Session.Temporary)})
	same := Step{Account: a, LoginIDHash: c.session.LoginID, State: c.session.State}
	code, err := c.newCode(same, c.token)
	if errors.Is(err, ErrNoSecondFactor) {
		err = noPhone
	}
	if err != nil {
		return record.Account{}, err
	}
	if code.stored != nil {
		code.counters = append([]record.Counter{renewals}, code.counters...)
		if err := c.Charge(ctx, code.counters...); err != nil {
			return record.Account{}, err
		}
	}
	ctx = context.WithoutCancel(ctx) // a code that was sent must work even if the client hangs up
	number, err := c.m.Sessions.OpenCode(ctx, c.Now, c.session.Hash, c.session.State)
	if errors.Is(err, record.ErrConflict) {
		return record.Account{}, wire.ErrTokenInvalid
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("ending the code before", err)
	}
	return a, c.Tells.replaceCode(ctx, same, number, code)
}

func (c *Call) setCode(ctx context.Context, number int64, code *record.Code) error {
	if code == nil {
		return nil // the account has backup codes only
	}
	err := c.m.Sessions.SetCode(ctx, c.session.Hash, number, *code)
	if err != nil && !errors.Is(err, record.ErrConflict) { // ErrConflict: a later renewal has replaced the code
		return wire.Unavailable("storing the code", err)
	}
	return nil
}
