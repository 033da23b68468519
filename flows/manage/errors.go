package manage

import (
	"errors"
	"fmt"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Error says why an operation was refused: to operators and backends in the form of the
// accounts API, and to users in that of the routes below me/ (see ForUser).
type Error struct {
	Status  int    // of HTTP
	Field   string // at fault; empty for none
	Reason  wire.Reason
	Message string
	user    error // what users get; nil if they can't cause it
}

func (e *Error) Error() string { return e.Message }

// A FieldError tells an operator what is wrong with a field of an account.
type FieldError struct {
	Field   string // as in the accounts API
	Message string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// The errors of the operations. More are *FieldError, *record.TakenError, *record.SpentError,
// *tenant.RuleError, record.ErrNotFound, wire.ErrPasswordSame, tenant.ErrNoPasskeys, a
// *wire.Refusal of wire.ErrRestricted if a lock or limit refuses an attempt of the user, and
// what wire.IsFailure is true of. Those of a Self may be wire.ErrTokenInvalid.
var (
	ErrNoSession  = &Error{404, "session", "", "the account has no such session", userNot("You have no session with this id. GET sessions lists them.")}
	ErrNoDevice   = &Error{404, "device", "", "the account has no such device", userNot("You have no device with this id. GET devices lists them.")}
	ErrNoPasskey  = &Error{404, "passkey", "", "the account has no such passkey", userNot("You have no passkey with this id. GET passkeys lists them.")}
	ErrNoToken    = &Error{404, "token", "", "the account has no such token", userNot("You have no token with this id. GET tokens lists them.")}
	ErrNoIdentity = &Error{404, "subject", "", "the account has no such identity", nil}
	// ErrOtherIdentity means that the account would have two identities of a provider.
	ErrOtherIdentity = &Error{409, "provider_id", "", "provider_id: the account has another identity of this provider; remove it first", nil}
	// ErrNoSessionToKeep means that the session to keep is not one of the account's. To the
	// user of that session, another change came first. The next try shows whether it spared
	// the session.
	ErrNoSessionToKeep = &Error{400, "keep_session", "", "keep_session: the account has no such authorized session", errMeanwhile}
	// ErrChanged means that the account was changed during the request.
	ErrChanged = &Error{409, "", "", "the account was changed meanwhile: try again", errMeanwhile}
	// ErrVersion means that the account is not in the version that the request names.
	ErrVersion = &Error{412, "If-Match", "", "the account has another version: read it again, then repeat the change with its ETag", nil}
	// ErrNotActive means that the account's status does not allow logins. The change of the
	// status has revoked the session of a user who gets this.
	ErrNotActive = &Error{409, "status", "", "status: the account is not active, so its user can't log in; set it to active first", wire.ErrTokenInvalid}
	// ErrPasswordWrong means that the current password is wrong. The attempt was counted.
	ErrPasswordWrong = &Error{401, "current_password", "password.wrong", "current_password: it is wrong",
		&wire.Refusal{Err: wire.ErrPasswordInvalid, Message: "current_password is wrong. Ask for it again."}}
	// ErrAppCode means that the code for ConfirmTOTP is wrong, ErrAppCodeUsed that it is no
	// guess: it was used, or its secret was replaced meanwhile. Clients see no difference.
	ErrAppCode     = badAppCode()
	ErrAppCodeUsed = badAppCode()
	errNoAppCode   = &FieldError{"code", fmt.Sprintf("it must have the %d digits that the app shows", tokens.TOTPDigits)}
	// errOnlyFactor means that a user can't remove the app, because a login needs its codes.
	errOnlyFactor   = refused(wire.ErrConflict, "A login of this account needs a code, and only the app has one. Set up another app instead, add a phone that gets codes, or turn off the second factor if you can.")
	errNoFactor     = refused(wire.ErrConflict, "The account has no second factor, so it could no longer log in. Set a password, and add an authenticator app or a phone that gets codes first.")
	errFactorPolicy = refused(wire.ErrUserRestricted, "The company decides for all accounts whether a login needs a second factor. You can't change it.")
	// ErrContactCode means that a code for a contact is wrong, has no guesses left, was used
	// or has expired.
	ErrContactCode = &Error{422, "code", "", "code: it is wrong, was used or has expired: send a new one",
		&wire.Refusal{Err: wire.ErrOTPInvalid, Message: "The code is wrong, was used or has expired. One by SMS can be tried once, one by mail five times. Then send a new one."}}
	errOnlyContact = refused(wire.ErrConflict, "Without it, the account would have no way to log in or none to be recovered. Add another one first.")
	// ErrNoTOTP means that no secret is waiting to be confirmed.
	ErrNoTOTP = &Error{409, "", "", "there is no secret to confirm: make one first", wire.Invalid("There is no secret to confirm. Create one with POST totp first.")}
	// ErrPasskeyRefused means that the challenge has expired or was used, or that the
	// authenticator's answer to it does not verify.
	ErrPasskeyRefused = &Error{422, "credential", "", "the passkey was not accepted: start again with new options",
		&wire.Refusal{Err: wire.ErrCredentialsInvalid, Message: "The passkey was not accepted. Start again with new options."}}
	// ErrPasskeyTaken means that the authenticator's passkey is stored already.
	ErrPasskeyTaken = notDone("this passkey exists already: use it, or remove it first", wire.ErrValidation)
	// ErrTooManyPasskeys means that the account has record.MaxPasskeys.
	ErrTooManyPasskeys = notDone(fmt.Sprintf("the account has %d passkeys: remove one first", record.MaxPasskeys), wire.ErrConflict)
	// ErrNoTokens means that the company issues no tokens, or its users don't.
	ErrNoTokens = &Error{409, "", "", "the company issues no tokens: set issued_tokens in its configuration", userNot("Users of this company can't issue tokens. Do not offer it.")}
	// ErrTooManyTokens means that the account has as many as the company allows.
	ErrTooManyTokens = notDone("the account has as many tokens as per_account allows: remove one first", wire.ErrConflict)
	// ErrLastPasskey means that the user could not log in without this passkey.
	ErrLastPasskey = notDone("it is the last passkey of an account that has no other way to log in: add one first", wire.ErrConflict)
	// ErrRevocationPending means that a change is stored, but its sessions could not be
	// revoked yet. Manager.Run retries until they are.
	ErrRevocationPending = &Error{503, "", "", "the change is stored, but its sessions could not be revoked yet; mnemogate tries again until they are",
		&wire.Refusal{Err: wire.ErrUnavailable, RetryAfter: 2 * time.Second,
			Message: "The change is stored. The other sessions could not be revoked yet; the server tries again until they are."}}
)

func badAppCode() *Error {
	return &Error{422, "code", "", "the code is wrong or was used: send the next one that the app shows", session.ErrAppCode}
}

var errMeanwhile = wire.Unavailable("changing the account", errors.New("another change came first"))

func userNot(found string) error { return &wire.Refusal{Err: wire.ErrNoRoute, Message: found} }

// refused is for what only users are refused.
func refused(user *wire.Error, message string) *Error {
	return &Error{user.Status, "", "", message, &wire.Refusal{Err: user, Message: message}}
}

func notDone(why string, user *wire.Error) *Error {
	return &Error{409, "", "", why, &wire.Refusal{Err: user, Message: "Not done: " + why + "."}}
}

// ForUser returns the error of an operation as the user's own client gets it: it is, or
// wraps, a *wire.Error or *wire.Refusal, with its ref.
func ForUser(err error) error { return wire.SameRef(err, forUser(err)) }

func forUser(err error) error {
	if refused, ok := errors.AsType[*Error](err); ok && refused.user != nil {
		return refused.user
	}
	if _, taken := errors.AsType[*record.TakenError](err); taken {
		return &wire.Refusal{Err: wire.ErrConflict, Message: "Another account has this already. Let the user choose another one, or log in to that account."}
	}
	if field, ok := errors.AsType[*FieldError](err); ok {
		return wire.Invalid("The field %s: %s.", field.Field, field.Message)
	}
	if errors.Is(err, record.ErrNotFound) {
		return wire.ErrTokenInvalid // an operator has just deleted the account
	}
	return err
}
