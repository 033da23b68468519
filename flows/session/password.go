package session

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Passwords compares passwords, and says which may be set.
type Passwords struct{ *Config }

// A PasswordAttempt is one attempt to enter the password of an account.
type PasswordAttempt struct {
	Account  record.Account // for an unknown login id as FindAccount returns it
	Password string
	Counts   Counts      // where a wrong password counts
	Solved   bool        // a captcha was solved, or is never needed
	Wrong    *wire.Error // the error for a wrong password

	CaptchaDue bool // set by ComparePassword: the next attempt needs a captcha
}

// TryPassword checks limits and locks, then compares the password of an account. It needs no
// captcha. The caller knows the account, so the answer need not hide anything about it. The
// error for a wrong password is wire.ErrPasswordInvalid.
func (p *Passwords) TryPassword(ctx context.Context, at *limits.Attempt, a record.Account, counts Counts, typed string) error {
	if err := at.CheckPasswords(counts.Now[record.WrongPasswords]); err != nil {
		return err
	}
	if err := at.BeginLogin(ctx); err != nil {
		return err
	}
	err := p.ComparePassword(ctx, at, &PasswordAttempt{Account: a, Password: typed, Counts: counts, Solved: true, Wrong: wire.ErrPasswordInvalid})
	if errors.Is(err, wire.ErrPasswordInvalid) {
		return wire.ErrPasswordInvalid // without captcha_required
	}
	return err
}

// PasswordCounts says where an attempt with a password counts. The counts of a known device
// are its own.
func (c *Call) PasswordCounts(ctx context.Context, a record.Account, loginIDHash string) (Counts, error) {
	d := c.known()
	if d == nil {
		return c.Tells.Counts(ctx, a, loginIDHash)
	}
	key := record.FailureKey{Company: c.Company.Code, Account: a.ID, Device: d.ID}
	return Counts{Key: key, Now: record.Failures{record.WrongPasswords: {Count: d.Failures}}}, nil
}

// ComparePassword compares the password of an attempt that BeginLogin has counted, and records
// the outcome. If there is no account or it has no password, the comparison takes as long as
// for a wrong password. If ComparePassword replaces the stored hash with a stronger one,
// t.Account has the new one. The error for a wrong password is t.Wrong.
func (p *Passwords) ComparePassword(ctx context.Context, at *limits.Attempt, t *PasswordAttempt) error {
	ok, outdated, err := p.verifyPassword(ctx, at, t.Account, t.Password)
	if err != nil {
		return wire.Unavailable("checking the password", err)
	}
	at.Worked()
	private := t.Counts.HasPrivate()
	if private && t.Account.FailureCounts[record.WrongPasswords].Count >= at.Company.Limits.DisableAfter {
		ok = false // as RecordPrivate will say
	}
	// The public count comes first: an attempt that it refuses is not counted privately.
	t.CaptchaDue, err = at.RecordPassword(ctx, t.Counts.Key, ok, t.Solved)
	if errors.Is(err, limits.ErrDeviceUnknown) { // its other attempts were faster
		at.Device = ""
		if err := at.BeginLogin(ctx); err != nil {
			return err
		}
		t.CaptchaDue, err = at.RecordPassword(ctx, at.FailureKey(t.Account, ""), ok, t.Solved)
	}
	if err == nil && private {
		ok, err = at.RecordPrivate(ctx, t.Counts.Private, ok)
	}
	if err != nil {
		return err
	}
	if !ok {
		return &wire.Refusal{Err: t.Wrong, Captcha: t.CaptchaDue}
	}
	if outdated {
		p.rehash(ctx, at, &t.Account, password.Normalize(t.Password))
	}
	return nil
}

// verifyPassword reports whether a password is right and whether its hash should be
// replaced.
func (p *Passwords) verifyPassword(ctx context.Context, at *limits.Attempt, a record.Account, typed string) (ok, outdated bool, err error) {
	if a.PasswordHash == record.ExternalPassword {
		ok, err = p.verifyExternally(ctx, at, a, typed)
		return ok, ok, err
	}
	return p.Hasher.Verify(ctx, at.Turn(), at.Company.Password.Argon2id, a.PasswordHash, password.Forms(typed)...)
}

// rehash replaces a weaker hash after a right password, in the store and in a. It does not
// set Updated, because nobody changed the account. If it fails, the next login tries again.
func (p *Passwords) rehash(ctx context.Context, at *limits.Attempt, a *record.Account, password string) {
	hash, err := p.Hasher.Hash(ctx, at.Turn(), at.Company.Password.Argon2id, password)
	if err == nil {
		_, err = p.Accounts.Update(ctx, at.Company.Code, a.ID, func(stored *record.Account) (ends bool, err error) {
			if stored.PasswordHash != a.PasswordHash {
				return false, record.ErrConflict // the password was changed, or another login has rehashed it
			}
			stored.PasswordHash = hash
			return false, nil
		})
	}
	if err != nil {
		p.Log.Warn("a weak password hash was not replaced", "company", at.Company.Code, "mnemocode", a.Mnemocode, "error", err)
		return
	}
	a.PasswordHash = hash
}

// CheckNotSame returns wire.ErrPasswordSame if a new password equals the current one.
func (p *Passwords) CheckNotSame(ctx context.Context, at *limits.Attempt, a record.Account, wanted string) error {
	if a.PasswordHash == "" || a.PasswordHash == record.ExternalPassword {
		return nil
	}
	same, _, err := p.Hasher.Verify(ctx, at.Turn(), at.Company.Password.Argon2id, a.PasswordHash, password.Forms(wanted)...)
	if err != nil {
		return wire.Unavailable("comparing with the current password", err)
	}
	if same {
		return wire.ErrPasswordSame
	}
	return nil
}
