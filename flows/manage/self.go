package manage

import (
	"context"
	"errors"
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

// A Self acts for a logged-in user on the user's own account. Most operations are those of
// its Admin, with the Account and, to keep it, the Session. ForUser translates their errors.
type Self struct {
	*Admin
	Account record.Account // as it was when the request began
	Session record.Session // of the request
	attempt *limits.Attempt
}

// NewSelf returns the Self of an authorized session.
func NewSelf(ctx context.Context, m *session.Manager, company *tenant.Company, s record.Session, client session.Client) (*Self, error) {
	a, err := m.Accounts.ByID(ctx, company.Code, s.Account)
	if err == nil && a.Mnemocode != s.Mnemocode { // PostgreSQL has lost its account, and given the id again
		err = record.ErrNotFound
	}
	if err != nil { // perhaps it was deleted, and its session is about to be revoked
		return nil, wire.Gone("loading the account", err)
	}
	ad := &Admin{
		Manager: m, Company: company, Actor: record.ActorUser,
		Address: client.Address, user: user{a.ID, s.ID, session.KeptUserAgent(client.UserAgent), client.Device},
	}
	at, err := ad.attemptOf(ctx, a, client.Address)
	return &Self{ad, a, s, at}, err
}

// changesPerHour is how often a user may make a kind of change (contract, section 17).
const changesPerHour = 30

// LacksFactor reports whether the session was given only one factor, although its account
// has another one.
func (s *Self) LacksFactor() bool {
	given := s.Session.Profile.Methods()
	return !given.Multi() && len(session.StepUpFactors(s.Company, s.Account, given, session.ForMFA)) > 0
}

// BeginChange charges the account's budget for a kind of change.
func (s *Self) BeginChange(ctx context.Context, kind string) error {
	s.attempt.Now = s.Now() // the body may have come slowly
	rate := tenant.Rate{N: changesPerHour, Per: time.Hour}
	err := s.attempt.Take(ctx, s.attempt.Counter("limit.changes", strconv.FormatInt(s.Account.ID, 10)+"/"+kind, rate))
	s.emitLocks(ctx, s.attempt, s.Account)
	return err
}

// EndChange returns the error for the user of err, the outcome of a change. It gives back what
// the change has used up if a service did not answer, or if the change was malformed: it could
// not be what its field needs.
func (s *Self) EndChange(ctx context.Context, err error) error {
	if _, malformed := errors.AsType[*FieldError](err); malformed {
		s.attempt.GiveBackAll(ctx)
	}
	err = ForUser(err)
	s.attempt.GiveBack(ctx, err)
	return err
}

// IsCurrent reports whether a session is the one that the user uses now.
func (s *Self) IsCurrent(other record.Session) bool { return other.ID == s.Session.ID }

// EndOthers revokes the other authorized sessions of the account. Logins and recoveries in
// progress, codes, links and devices stay: otherwise whoever has a token could keep the
// owner out with it.
func (s *Self) EndOthers(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // report what was revoked
	ended, err := s.Sessions.DeleteOthers(ctx, s.Now(), s.Account.Company, s.Account.ID, s.Session.Hash)
	if err != nil {
		return wire.Unavailable("ending the other sessions", err)
	}
	for _, other := range ended {
		s.Emit(ctx, other.Ended(s.actorEvent(record.EndedByUser)))
	}
	return nil
}

// ConfirmOwnTOTP is ConfirmTOTP. Wrong codes count like those of a login. To an account
// without backup codes it gives new ones, which it returns.
func (s *Self) ConfirmOwnTOTP(ctx context.Context, code string) (backupCodes []string, err error) {
	if _, ok := typed.OTP(code, tokens.TOTPDigits); !ok {
		return nil, errNoAppCode
	}
	at := s.attempt
	defer func() { s.emitLocks(ctx, at, s.Account) }()
	if err := at.CheckAddress(ctx); err != nil {
		return nil, err
	}
	if err := at.CheckCodes(s.Account.FailureCounts); err != nil {
		return nil, err
	}
	_, err = s.ConfirmTOTP(ctx, s.Account.Mnemocode, code, s.Session.ID)
	if errors.Is(err, ErrAppCode) {
		if full := at.RecordWindow(ctx, at.FailureKey(s.Account, ""), record.WrongCodes, false); full != nil {
			return nil, full
		}
	}
	if err == nil && s.Account.BackupCodes == 0 {
		backupCodes, _ = s.NewOwnBackupCodes(ctx) // the app works without them, and the user can ask for them again
	}
	return backupCodes, err
}

// SetSecondFactor says whether a login with the password needs a second factor, if the
// company lets each account decide.
func (s *Self) SetSecondFactor(ctx context.Context, on bool) error {
	if policy := s.Company.SecondFactor; policy == tenant.SecondFactorOff || policy == tenant.SecondFactorRequired && !on {
		return errFactorPolicy
	}
	_, _, err := s.Change(ctx, s.Account.Mnemocode, Change{Keep: s.Session.ID, Apply: func(a *record.Account) error {
		if on && (a.PasswordHash == "" || !a.HasApp() && !s.Company.SendsCodesTo(a.Phone)) {
			return errNoFactor
		}
		a.SecondFactor = on
		return nil
	}})
	return err
}

// NewOwnBackupCodes is NewBackupCodes. It takes as much time for hashing as many
// logins, so it counts as one of the address.
func (s *Self) NewOwnBackupCodes(ctx context.Context) ([]string, error) {
	if err := s.attempt.BeginLogin(ctx); err != nil {
		s.emitLocks(ctx, s.attempt, s.Account)
		return nil, err
	}
	return s.NewBackupCodes(ctx, s.Account.Mnemocode)
}

// OwnDevices is Devices. It also returns the ID of the user's own, if it is one of them.
func (s *Self) OwnDevices(ctx context.Context) (devices []record.Device, current string, err error) {
	devices, err = s.LiveDevices(ctx, s.Account)
	if err != nil {
		return nil, "", wire.Unavailable("listing the devices", err)
	}
	own, err := s.Sessions.Get(ctx, s.Session.Hash) // memory may lack its Device
	if err != nil {
		return nil, "", wire.Gone("loading the session", err)
	}
	return devices, own.Device, nil
}
