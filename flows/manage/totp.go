package manage

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file manages authenticator apps for an operator or a backend.

// A TOTPSecret is shown once, so that the user can add it to an authenticator app.
type TOTPSecret struct {
	// In base32, for users who type it.
	Secret string `json:"secret"`
	// For a QR code.
	URI string `json:"uri"`
}

// NewTOTP makes a secret for an authenticator app. The secret takes effect with
// ConfirmTOTP. Until then, a secret that was confirmed earlier stays in effect.
func (ad *Admin) NewTOTP(ctx context.Context, mnemocode string) (TOTPSecret, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return TOTPSecret{}, err
	}
	keys, err := ad.Keys(ctx)
	if err != nil {
		return TOTPSecret{}, err
	}
	secret := tokens.NewTOTPSecret()
	sealed := keys.SealTOTP(a.Company, secret)
	_, err = ad.Accounts.Update(ctx, a.Company, a.ID, func(a *record.Account) (ends bool, err error) {
		a.TOTPPending = sealed
		return false, nil
	})
	if err != nil {
		return TOTPSecret{}, adminError("storing the secret of an app", err)
	}
	ad.emit(ctx, ad.event(record.AccountTOTP, a))
	return TOTPSecret{Secret: tokens.FormatTOTPSecret(secret), URI: totpURI(ad.Company.DisplayName(), a, secret)}, nil
}

// totpURI returns the URI that apps read from a QR code. Its label, which apps show, has
// the company's name and a login id that the user knows.
func totpURI(issuer string, a record.Account, secret []byte) string {
	label := url.PathEscape(issuer + ":" + knownAs(a))
	issuer = strings.ReplaceAll(url.QueryEscape(issuer), "+", "%20") // apps would show a plus
	return "otpauth://totp/" + label + "?secret=" + tokens.FormatTOTPSecret(secret) +
		"&issuer=" + issuer + "&algorithm=SHA1&digits=6&period=30"
}

// knownAs returns a login id that the user knows, or the mnemocode if there is none or a
// QR code has no room for it.
func knownAs(a record.Account) string {
	known := cmp.Or(a.Email, a.LoginName, a.Phone)
	if known == "" || len(url.PathEscape(known)) > 512 { // more than an email in ASCII has
		return a.Mnemocode
	}
	return known
}

// ConfirmTOTP makes the newest secret take effect if code is one of its codes. Like any
// change of the second factor, this revokes the account's sessions, but spares the one
// with the ID keep, if that is not empty. The code is then spent.
func (ad *Admin) ConfirmTOTP(ctx context.Context, mnemocode, sent, keep string) (record.Account, error) {
	code, ok := typed.OTP(sent, tokens.TOTPDigits)
	if !ok {
		return record.Account{}, errNoAppCode
	}
	a, _, err := ad.findKeeping(ctx, mnemocode, keep)
	if err != nil {
		return record.Account{}, err
	}
	pending := a.TOTPPending
	if pending == "" && ad.isUser() { // a change that was answered with 503 is repeated; ConfirmOwnTOTP counts wrong codes
		pending = a.TOTP
	}
	if pending == "" {
		return record.Account{}, ErrNoTOTP
	}
	at, err := ad.attemptOf(ctx, a, "")
	if err != nil {
		return record.Account{}, err
	}
	if err := spendAppCode(ctx, at, a, pending, code); err != nil {
		return record.Account{}, err
	}
	a, _, err = ad.Change(ctx, mnemocode, Change{Keep: keep, Apply: func(a *record.Account) error {
		if a.TOTPPending == "" && a.TOTP == pending {
			return nil
		}
		if a.TOTPPending != pending {
			return ErrAppCodeUsed // another request has made a new secret
		}
		a.TOTP, a.TOTPPending = pending, ""
		if ad.isUser() && ad.Company.SecondFactor == tenant.SecondFactorPerAccount {
			a.SecondFactor = true // users who set up an app expect to be asked for its codes
		}
		return nil
	}})
	return a, err
}

// spendAppCode checks a code of the app with this encrypted secret, and spends a right one.
func spendAppCode(ctx context.Context, at *limits.Attempt, a record.Account, sealed, code string) error {
	secret, err := at.Keys.OpenTOTP(a.Company, sealed)
	if err != nil { // the store's own secret was changed
		return ErrNoTOTP
	}
	step, right := tokens.MatchTOTP(secret, code, at.Now)
	if !right {
		return ErrAppCode
	}
	err = session.SpendTOTP(ctx, at, a, secret, step)
	if errors.Is(err, wire.ErrOTPInvalid) {
		return ErrAppCodeUsed
	}
	return err
}

// RemoveTOTP removes the app's secret and any secret that is waiting to be confirmed. If
// a confirmed secret is removed, the account's sessions are revoked, except keep as in
// ConfirmTOTP.
func (ad *Admin) RemoveTOTP(ctx context.Context, mnemocode, keep string) (record.Account, error) {
	a, _, err := ad.Change(ctx, mnemocode, Change{Keep: keep, Apply: func(a *record.Account) error {
		if ad.isUser() && a.TOTP != "" && !ad.Company.SendsCodesTo(a.Phone) && ad.Company.NeedsSecondFactor(*a) {
			return errOnlyFactor
		}
		a.TOTP, a.TOTPPending = "", ""
		return nil
	}})
	return a, err
}

// ExportTOTP returns the secret in effect, in base32, or "". If it can't be opened, the
// error is a *FieldError, because trying again does not help.
func (ad *Admin) ExportTOTP(ctx context.Context, a record.Account) (string, error) {
	if a.TOTP == "" {
		return "", nil
	}
	keys, err := ad.Keys(ctx)
	if err != nil {
		return "", err
	}
	secret, err := keys.OpenTOTP(a.Company, a.TOTP)
	if err != nil {
		return "", &FieldError{"totp_secret", "account " + a.Mnemocode +
			": it can't be opened, perhaps because the store's own secret was changed; remove the account's app, or export without secrets"}
	}
	return tokens.FormatTOTPSecret(secret), nil
}

// importTOTP returns a function that sets the secret of an account. If the account has
// the same secret already, the function keeps it as stored: a secret that is sealed
// again would look like a change.
func (ad *Admin) importTOTP(ctx context.Context, secret []byte) (func(*record.Account), error) {
	if secret == nil {
		return func(*record.Account) {}, nil
	}
	keys, err := ad.Keys(ctx)
	if err != nil {
		return nil, err
	}
	sealed := keys.SealTOTP(ad.Company.Code, secret)
	return func(a *record.Account) {
		present, err := keys.OpenTOTP(ad.Company.Code, a.TOTP)
		if err != nil || !slices.Equal(present, secret) {
			a.TOTP, a.TOTPPending = sealed, ""
		}
	}, nil
}
