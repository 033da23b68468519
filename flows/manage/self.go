package manage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Self acts for a logged-in user on the user's own account, by the operations of an
// Admin. Changes that revoke sessions spare the user's. Its errors are *wire.Error or
// *wire.Refusal.
type Self struct {
	admin   Admin
	account record.Account
	session record.Session
	attempt *limits.Attempt // at the change
}

// NewSelf returns the Self of an authorized session.
func NewSelf(ctx context.Context, m *session.Manager, company *tenant.Company, s record.Session, client session.Client) (*Self, error) {
	a, err := m.Accounts.ByID(ctx, company.Code, s.Account)
	if errors.Is(err, record.ErrNotFound) {
		return nil, wire.ErrTokenInvalid // it was deleted, and its session is about to be revoked
	}
	if err != nil {
		return nil, wire.Unavailable("loading the account", err)
	}
	ad := Admin{
		Manager: m, Company: company, Actor: record.ActorUser,
		Address: client.Address, UserAgent: session.KeptUserAgent(client.UserAgent),
	}
	at, err := ad.attemptOf(ctx, a, client.Address)
	return &Self{ad, a, s, at}, err
}

// changesPerHour is how often a user may make a kind of change (contract, section 17).
const changesPerHour = 30

// BeginChange charges the account's budget for a kind of change.
func (s *Self) BeginChange(ctx context.Context, kind string) error {
	rate := tenant.Rate{N: changesPerHour, Per: time.Hour}
	err := s.attempt.Take(ctx, s.attempt.Counter("limit.changes", strconv.FormatInt(s.account.ID, 10)+"/"+kind, rate))
	s.admin.emitLocks(ctx, s.attempt, s.account)
	return err
}

// EndChange gives back what a change has used up if err, its outcome, says that a service
// did not answer.
func (s *Self) EndChange(ctx context.Context, err error) { s.attempt.GiveBack(ctx, err) }

// isUser reports whether the Admin is that of a Self.
func (ad *Admin) isUser() bool { return ad.Actor == record.ActorUser }

// Account returns the account as it was when the request began.
func (s *Self) Account() record.Account { return s.account }

// Company returns the company of the account.
func (s *Self) Company() *tenant.Company { return s.admin.Company }

// IsCurrent reports whether a session is the one that the user uses now.
func (s *Self) IsCurrent(other record.Session) bool { return other.ID == s.session.ID }

// LoginTime returns the time of the user's login.
func (s *Self) LoginTime() time.Time { return s.session.LoginTime() }

// Sessions returns the account's authorized sessions, oldest first.
func (s *Self) Sessions(ctx context.Context) ([]record.Session, error) {
	sessions, err := s.admin.LiveSessions(ctx, s.account.Mnemocode)
	return slices.DeleteFunc(sessions, func(s record.Session) bool { return s.State != record.Authorized }), selfError(err)
}

// EndSession revokes one of the account's sessions by its ID. It reports whether that is
// the user's own.
func (s *Self) EndSession(ctx context.Context, id string) (current bool, err error) {
	return id == s.session.ID, selfError(s.admin.EndSession(ctx, s.account.Mnemocode, id))
}

// EndOthers revokes the other authorized sessions of the account. Logins and recoveries in
// progress, codes, links and devices stay: otherwise whoever has a token could keep the
// owner out with it.
func (s *Self) EndOthers(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // report what was revoked
	ended, err := s.admin.Sessions.DeleteOthers(ctx, s.admin.Now(), s.account.Company, s.account.ID, s.session.Hash)
	if err != nil {
		return wire.Unavailable("ending the other sessions", err)
	}
	for _, other := range ended {
		s.admin.Emit(ctx, other.Ended(s.admin.actorEvent(record.EndedByUser)))
	}
	return nil
}

// ChangePassword changes the password. An account without one needs no current one.
func (s *Self) ChangePassword(ctx context.Context, current, wanted string) error {
	if current == "" && s.account.PasswordHash != "" {
		return wire.Invalid("The field current_password is missing.")
	}
	return selfError(s.admin.ChangePassword(ctx, s.account.Mnemocode, PasswordChange{
		Current: current, New: wanted, Address: s.admin.Address, Keep: s.session.ID,
	}))
}

// NewTOTP is Admin.NewTOTP.
func (s *Self) NewTOTP(ctx context.Context) (TOTPSecret, error) {
	secret, err := s.admin.NewTOTP(ctx, s.account.Mnemocode)
	return secret, selfError(err)
}

// ConfirmTOTP is Admin.ConfirmTOTP. Wrong codes count like those of a login. To an account
// without backup codes it gives new ones, which it returns.
func (s *Self) ConfirmTOTP(ctx context.Context, code string) (backupCodes []string, err error) {
	if _, ok := typed.OTP(code, tokens.TOTPDigits); !ok {
		return nil, selfError(errNoAppCode)
	}
	at := s.attempt
	if err := cmp.Or(at.CheckAddress(ctx), at.CheckCodes(s.account.FailureCounts)); err != nil {
		s.admin.emitLocks(ctx, at, s.account)
		return nil, err
	}
	_, err = s.admin.ConfirmTOTP(ctx, s.account.Mnemocode, code, s.session.ID)
	if errors.Is(err, ErrAppCode) {
		err = cmp.Or(at.RecordWindow(ctx, at.FailureKey(s.account, ""), record.WrongCodes, false), err)
		s.admin.emitLocks(ctx, at, s.account)
	}
	if err == nil && s.account.BackupCodes == 0 {
		backupCodes, _ = s.NewBackupCodes(ctx) // the app works without them, and the user can ask for them again
	}
	return backupCodes, selfError(err)
}

// Errors of SetSecondFactor.
var (
	errFactorPolicy = &wire.Refusal{Err: wire.ErrUserRestricted, Message: "The company decides for all accounts whether a login needs a second factor. You can't change it."}
	errNoFactor     = &wire.Refusal{Err: wire.ErrConflict, Message: "The account has no second factor, so it could no longer log in. Set a password, and add an authenticator app or a phone first."}
)

// SetSecondFactor says whether a login with the password needs a second factor, if the
// company lets each account decide.
func (s *Self) SetSecondFactor(ctx context.Context, on bool) error {
	ad := &s.admin
	if policy := ad.Company.SecondFactor; policy == tenant.SecondFactorOff || policy == tenant.SecondFactorRequired && !on {
		return errFactorPolicy
	}
	kept, err := ad.sessionToKeep(ctx, s.account, s.session.ID)
	if err != nil {
		return selfError(err)
	}
	_, err = ad.changeFactor(ctx, s.account, kept, func(a *record.Account) error {
		switch {
		case on && (a.PasswordHash == "" || !a.HasApp() && !ad.Company.SendsCodesTo(a.Phone)):
			return errNoFactor
		case a.SecondFactor == on:
			return errUnchanged
		}
		a.SecondFactor = on
		return nil
	})
	return selfError(err)
}

// RemoveTOTP is Admin.RemoveTOTP. It refuses to remove an app that the next login needs.
func (s *Self) RemoveTOTP(ctx context.Context) error {
	_, err := s.admin.RemoveTOTP(ctx, s.account.Mnemocode, s.session.ID)
	return selfError(err)
}

// NewBackupCodes is Admin.NewBackupCodes. It takes as much time for hashing as many
// logins, so it counts as one of the address.
func (s *Self) NewBackupCodes(ctx context.Context) ([]string, error) {
	if err := s.attempt.BeginLogin(ctx); err != nil {
		s.admin.emitLocks(ctx, s.attempt, s.account)
		return nil, err
	}
	codes, err := s.admin.NewBackupCodes(ctx, s.account.Mnemocode)
	return codes, selfError(err)
}

// Passkeys returns the account's passkeys, oldest first.
func (s *Self) Passkeys(ctx context.Context) ([]record.Passkey, error) {
	passkeys, err := s.admin.Passkeys(ctx, s.account.Mnemocode)
	return passkeys, selfError(err)
}

// NewPasskey is Admin.NewPasskey.
func (s *Self) NewPasskey(ctx context.Context) (NewPasskey, error) {
	options, err := s.admin.NewPasskey(ctx, s.account.Mnemocode)
	return options, selfError(err)
}

// AddPasskey is Admin.AddPasskey.
func (s *Self) AddPasskey(ctx context.Context, challengeToken string, credential []byte, name string) (record.Passkey, error) {
	added, err := s.admin.AddPasskey(ctx, s.account.Mnemocode, challengeToken, credential, name)
	return added, selfError(err)
}

// RenamePasskey is Admin.RenamePasskey.
func (s *Self) RenamePasskey(ctx context.Context, id, name string) error {
	return selfError(s.admin.RenamePasskey(ctx, s.account.Mnemocode, id, name))
}

// RemovePasskey is Admin.RemovePasskey.
func (s *Self) RemovePasskey(ctx context.Context, id string) error {
	return selfError(s.admin.RemovePasskey(ctx, s.account.Mnemocode, id, s.session.ID))
}

// pendingRetry is the Retry-After while other sessions could not be revoked yet.
const pendingRetry = 2 * time.Second

// selfError returns an error of an Admin as the user's client gets it.
func selfError(err error) error {
	if rule, ok := errors.AsType[*tenant.RuleError](err); ok {
		return &wire.Refusal{Err: wire.ErrQuality, Message: rule.Error(), Reason: rule.Reason}
	}
	if field, ok := errors.AsType[*FieldError](err); ok {
		return wire.Invalid("The field %s: %s.", field.Field, field.Message)
	}
	switch {
	case errors.Is(err, ErrNoPasskey):
		return &wire.Refusal{Err: wire.ErrNoRoute, Message: "You have no passkey with this id. GET passkeys lists them."}
	case errors.Is(err, ErrPasskeyRefused):
		return &wire.Refusal{Err: wire.ErrCredentialsInvalid, Message: "The passkey was not accepted. Start again with new options."}
	case errors.Is(err, ErrLastPasskey):
		return &wire.Refusal{Err: wire.ErrConflict, Message: "Not done: " + err.Error() + "."}
	case errors.Is(err, ErrPasskeyTaken), errors.Is(err, ErrTooManyPasskeys):
		return wire.Invalid("Not done: %v.", err)
	case errors.Is(err, ErrPasswordWrong):
		return &wire.Refusal{Err: wire.ErrPasswordInvalid, Message: "current_password is wrong. Ask for it again."}
	case errors.Is(err, ErrAppCode):
		return session.ErrAppCode
	case errors.Is(err, ErrNoTOTP):
		return wire.Invalid("There is no secret to confirm. Create one with POST totp first.")
	case errors.Is(err, ErrNoSession):
		return &wire.Refusal{Err: wire.ErrNoRoute, Message: "You have no session with this id. GET sessions lists them."}
	case errors.Is(err, ErrNoDevice):
		return &wire.Refusal{Err: wire.ErrNoRoute, Message: "You have no device with this id. GET devices lists them."}
	case errors.Is(err, ErrNotActive), errors.Is(err, record.ErrNotFound):
		return wire.ErrTokenInvalid // a change by an administrator has just revoked the session
	case errors.Is(err, ErrNoSessionToKeep), errors.Is(err, ErrChanged):
		return wire.Unavailable("changing the account", err) // another change came first; the next try shows whether it spared the session
	case errors.Is(err, ErrRevocationPending):
		return &wire.Refusal{
			Err: wire.ErrUnavailable, Cause: err, RetryAfter: pendingRetry,
			Message: "The change is stored. The other sessions could not be revoked yet; the server tries again until they are.",
		}
	default:
		return err
	}
}
