package tenant

import (
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file says what a login of an account needs.

// CheckStatus returns nil if the account's status lets it log in, or the error to return.
func CheckStatus(a record.Account) error {
	switch a.Status {
	case record.StatusActive:
		return nil
	case record.StatusRestricted:
		return wire.ErrUserRestricted
	case record.StatusClosed:
		return wire.ErrUserClosed
	default: // denied, or a status from a newer version
		return wire.ErrUserDenied
	}
}

// SendsCodesTo reports whether an account with this phone can get a code, if no budget is
// used up. The phone may be empty.
func (c *Company) SendsCodesTo(phone string) bool {
	_, fixed := c.FixedCode(phone)
	return phone != "" && (fixed || c.SMS != nil && c.SendsTo(phone))
}

// DeliversTo reports whether a code for this phone has a way to its owner: a gateway, or a
// fixed code. The phone may be empty.
func (c *Company) DeliversTo(phone string) bool {
	_, fixed := c.FixedCode(phone)
	return phone != "" && (fixed || c.SMS != nil)
}

// LogsInAtProvider reports whether the account has a user of one of the company's providers.
func (c *Company) LogsInAtProvider(a record.Account) bool {
	return slices.ContainsFunc(a.Identities, func(i record.Identity) bool {
		_, configured := c.OAuth[i.Provider]
		return configured
	})
}

// HasPassword reports whether a password of the account can be right. That of a former system
// can't once `migrate` is gone.
func (c *Company) HasPassword(a record.Account) bool {
	return a.PasswordHash != "" && (a.PasswordHash != record.ExternalPassword || c.Migrate != nil)
}

// CanGive reports whether the owner of an account has a factor, if no budget is used up.
func (c *Company) CanGive(a record.Account, factor record.AuthMethods) bool {
	switch factor {
	case record.ByPassword:
		return c.HasPassword(a)
	case record.BySMS:
		return c.SendsCodesTo(a.Phone)
	case record.ByApp:
		return a.TOTP != ""
	case record.ByBackupCode:
		return a.BackupCodes > 0
	case record.ByPasskey:
		return a.Passkeys > 0 && c.Passkeys != nil
	}
	return false
}

// NeedsSecondFactor reports whether a login of the account needs a code after the
// password.
func (c *Company) NeedsSecondFactor(a record.Account) bool {
	return c.SecondFactor == SecondFactorRequired || c.SecondFactor == SecondFactorPerAccount && a.SecondFactor
}

// PasswordDue reports whether a login of the account must set a new password.
func (c *Company) PasswordDue(a record.Account) bool {
	return a.MustSetPassword || a.PasswordHash == "" && *c.Password.Required
}
