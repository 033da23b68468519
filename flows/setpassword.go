package flows

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type setPasswordRequest struct {
	NewPassword       string   `json:"new_password" max:"128" long:"password.too_long" need:"y"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
}

// setPassword sets a new password (interface, Endpoints 5). It ends every
// other session, code and link of the account. That of many callers with one
// token only one succeeds is decided by the session, of many with several
// tokens by the account's Epoch.
func (s *Service) setPassword(ctx context.Context, c *call, req *setPasswordRequest) (Reply, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	password := password.Normalize(req.NewPassword)
	if err := c.Company.CheckQuality(password, a); err != nil {
		return Reply{}, err
	}
	if err := s.CheckNotSame(ctx, &c.Attempt, a, req.NewPassword); err != nil {
		return Reply{}, err
	}
	st := step{account: a}
	if c.session.State == record.SetPassword {
		if st.accepted, err = c.accept(a, req.AcceptDisclaimers); err != nil {
			return Reply{}, err
		}
	}
	if err := s.changePassword(ctx, c, a, password); err != nil {
		return Reply{}, err
	}
	if c.session.State == record.RecoveryPassword {
		return Reply{}, nil
	}
	// The session of this call was ended; its successor begins in the epoch
	// that the change opened.
	st.account.Epoch++
	return s.authorize(ctx, c, st)
}

// CheckNotSame refuses a new password that is the present one: wire.ErrPasswordSame.
func (s *Service) CheckNotSame(ctx context.Context, at *limits.Attempt, a record.Account, wanted string) error {
	if a.PasswordHash == "" || a.PasswordHash == record.AskedElsewhere {
		return nil
	}
	same, _, err := s.Hasher.Verify(ctx, at.Turn(), at.Company.Password.Argon2id, a.PasswordHash, password.Forms(wanted)...)
	if err != nil {
		return wire.Unavailable("comparing with the present password", err)
	}
	if same {
		return wire.ErrPasswordSame
	}
	return nil
}

func (s *Service) changePassword(ctx context.Context, c *call, a record.Account, password string) error {
	hash, err := s.Hasher.Hash(ctx, c.Turn(), c.Company.Password.Argon2id, password)
	if err != nil {
		return wire.Unavailable("hashing the password", err)
	}
	if err := s.endOwn(ctx, c); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // the token is gone: see it through
	changed := record.Event{Name: record.TypePasswordChanged, Time: c.Now, Mnemocode: a.Mnemocode}
	if c.session.State == record.RecoveryPassword {
		changed.Name = record.TypeRecoveryCompleted
	}
	err = s.Accounts.SetPassword(ctx, c.Now, c.Company.Code, a.ID, a.Epoch, hash, record.TokenHash{}, background.OutboxEvents(c.Company, changed)...)
	if errors.Is(err, record.ErrConflict) {
		return wire.ErrTokenInvalid // another session's request was faster, and ended this one
	}
	if err != nil {
		return wire.Unavailable("storing the password", err)
	}
	s.PasswordSet(ctx, c.Company, a)
	return s.end(ctx, record.Ending{Company: c.Company.Code, Account: a.ID, Epoch: a.Epoch + 1}, c.by(record.EndedByPassword))
}

// PasswordSet is what a new password brings beside the end of sessions. It needs
// not succeed.
func (s *Service) PasswordSet(ctx context.Context, company *tenant.Company, a record.Account) {
	if err := s.clearShown(ctx, company, a, record.WrongPasswords); err != nil {
		s.Log.Warn("a lock that strangers are told of goes on after a new password", "company", company.Code, "account", a.Mnemocode, "error", err)
	}
	s.Notify(company, a, message.NoticePasswordChanged)
}
