package flows

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A user's own password, checked and changed through a backend. The backend has
// made sure of the user's session; that nobody guesses the password in it is
// seen to here, by the limits and locks of a login, which count both alike.

// Errors of CheckPassword and ChangePassword, beside wire.ErrUnavailable. Where a
// lock or limit refuses it is ErrRestricted, as a *Refusal.
var (
	ErrPasswordWrong = errors.New("the current password is wrong")
	// ErrNotActive: the account's status lets nobody log in.
	ErrNotActive = errors.New("the account is not active")
	// ErrNoSuchSession: the session to keep is none of the account's.
	ErrNoSuchSession = errors.New("the account has no such authorized session")
	// ErrChanged: somebody changed the account meanwhile.
	ErrChanged = errors.New("the account was changed meanwhile: try again")
)

// CheckPassword checks a user's present password. Nothing else changes by it than
// by a login. Address is the user's, whose limits then apply; without one, those
// of the account alone. By is who asks, for the events.
func (s *Service) CheckPassword(ctx context.Context, company *tenant.Company, a record.Account, current, address string, by record.Event) error {
	if a.Status != record.StatusActive {
		return ErrNotActive
	}
	c := s.callFor(company, a, address)
	err := s.tryKnown(ctx, c, a, current)
	for _, lock := range c.Events {
		s.audit(ctx, company, a, lock.Name, by)
	}
	if errors.Is(err, wire.ErrPasswordInvalid) {
		s.audit(ctx, company, a, record.AccountPasswordWrong, by)
		return ErrPasswordWrong
	}
	return err
}

// audit tells of what came of a backend's request in a user's name, with by, which
// has who it was.
func (s *Service) audit(ctx context.Context, company *tenant.Company, a record.Account, name string, by record.Event) {
	by.Name, by.Company, by.Account, by.Mnemocode = name, company.Code, a.ID, a.Mnemocode
	s.Emit(ctx, by)
	s.Recorded()
}

// An OwnChange is a change of password that its user asks for.
type OwnChange struct {
	Current, New string
	Address      string // the user's, as for CheckPassword
	Keep         string // the Session.ID that goes on; empty for none
}

// ChangePassword changes a user's password, after CheckPassword and by the rules
// for users. It ends all of the account's sessions but the one to keep, which
// is never interrupted.
func (s *Service) ChangePassword(ctx context.Context, company *tenant.Company, a record.Account, ch OwnChange, by record.Event) error {
	keep, err := s.sessionToKeep(ctx, a, ch.Keep)
	if err != nil {
		return err
	}
	if err := s.CheckPassword(ctx, company, a, ch.Current, ch.Address, by); err != nil {
		return err
	}
	c := s.callFor(company, a, ch.Address)
	wanted := password.Normalize(ch.New)
	if err := company.CheckPassword("new_password", ch.New, a); err != nil {
		return err
	}
	if err := s.checkNotSame(ctx, c, a, ch.New); errors.Is(err, wire.ErrPasswordSame) {
		return &tenant.RuleError{Field: "new_password", Text: "Not the present password."}
	} else if err != nil {
		return err
	}
	hash, err := s.Hasher.Hash(ctx, c.Turn(), company.Password.Argon2id, wanted)
	if err != nil {
		return wire.Unavailable("hashing the password", err)
	}
	err = s.Accounts.SetPassword(ctx, c.Now, a.Company, a.ID, a.Epoch, hash, keep, s.TellOf(company, background.Fact{Kind: record.TellPassword, Mnemocode: a.Mnemocode})...)
	if errors.Is(err, record.ErrConflict) {
		return ErrChanged
	}
	if err != nil {
		return wire.Unavailable("storing the password", err)
	}
	ctx = context.WithoutCancel(ctx) // the change is made: see it through
	ended := by
	ended.Reason = record.EndedByPassword
	owed := s.EndNow(ctx, record.Ending{Company: a.Company, Account: a.ID, Epoch: a.Epoch + 1, Keep: keep}, ended)
	s.passwordSet(ctx, company, a)
	by.Reason = "password"
	s.audit(ctx, company, a, record.AccountChanged, by)
	return owed
}

// sessionToKeep finds one of the account's sessions by its ID.
func (s *Service) sessionToKeep(ctx context.Context, a record.Account, id string) (record.TokenHash, error) {
	if id == "" {
		return record.TokenHash{}, nil
	}
	sessions, err := s.Sessions.List(ctx, s.Now(), a.Company, a.ID)
	if err != nil {
		return record.TokenHash{}, wire.Unavailable("listing the sessions", err)
	}
	for _, session := range sessions {
		if session.ID == id && session.State == record.Authorized && session.Epoch == a.Epoch && session.Era == a.Era {
			return session.Hash, nil
		}
	}
	return record.TokenHash{}, ErrNoSuchSession
}

// callFor is a call of the account's user, at that address or at none.
func (s *Service) callFor(company *tenant.Company, a record.Account, address string) *call {
	c := &call{Attempt: s.attempt(company, address)}
	c.Nowhere = address == ""
	c.found(a)
	return c
}

// tryKnown looks at rates and locks, then the password, of an account that its
// caller knows: nothing of it is to be hidden.
func (s *Service) tryKnown(ctx context.Context, c *call, a record.Account, current string) error {
	if err := c.CheckPasswords(a.Tallies[record.WrongPasswords]); err != nil {
		return err
	}
	return s.comparePassword(ctx, c, passwordAttempt{account: a, password: current, wrong: wire.ErrPasswordInvalid}, c.Subject(a, ""), true)
}
