package flows

import (
	"context"
	"errors"
)

type setPasswordRequest struct {
	NewPassword string `json:"new_password" max:"128" need:"y"`
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
	if err := admitted(a); err != nil {
		return Reply{}, err
	}
	password := normalizePassword(req.NewPassword)
	if err := c.company.checkQuality(password, a); err != nil {
		return Reply{}, err
	}
	if err := s.checkNotSame(ctx, c, a, password); err != nil {
		return Reply{}, err
	}
	st := step{account: a}
	if c.session.State == SetPassword {
		if st.accepted, err = c.accept(a, nil); err != nil {
			return Reply{}, err
		}
	}
	if err := s.changePassword(ctx, c, a, password); err != nil {
		return Reply{}, err
	}
	if c.session.State == RecoveryPassword {
		return Reply{}, nil
	}
	// The session of this call was ended; its successor begins in the epoch
	// that the change opened.
	st.account.Epoch++
	return s.authorize(ctx, c, st)
}

func (s *Service) checkNotSame(ctx context.Context, c *call, a Account, password string) error {
	if a.PasswordHash == "" {
		return nil
	}
	same, _, err := s.Hasher.Verify(ctx, c.company.Code, c.company.Password.Argon2id, a.PasswordHash, password)
	if err != nil {
		return unavailable("comparing with the present password", err)
	}
	if same {
		return ErrPasswordSame
	}
	return nil
}

func (s *Service) changePassword(ctx context.Context, c *call, a Account, password string) error {
	hash, err := s.Hasher.Hash(ctx, c.company.Code, c.company.Password.Argon2id, password)
	if err != nil {
		return unavailable("hashing the password", err)
	}
	if err := s.take(ctx, c); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // the token is gone: see it through
	err = s.Accounts.SetPassword(ctx, c.now, c.company.Code, a.ID, a.Epoch, hash)
	if errors.Is(err, ErrConflict) {
		return ErrTokenInvalid // another session's request was faster, and ended this one
	}
	if err != nil {
		return unavailable("storing the password", err)
	}
	s.noticePassword(c.company, a)
	return s.end(ctx, Ending{Company: c.company.Code, Account: a.ID, Epoch: a.Epoch + 1}, EndedByPassword)
}

// end ends the sessions that a change of the account owes, for a reason of
// SessionEnded. Should it fail, Run tries until it is done.
func (s *Service) end(ctx context.Context, e Ending, reason string) error {
	ctx = context.WithoutCancel(ctx) // the change is made: see it through
	events := s.endings(ctx, e, reason)
	if err := s.Sessions.End(ctx, s.Now(), e); err != nil {
		return unavailable("ending the account's sessions", err)
	}
	for _, event := range events {
		s.Emit(ctx, event)
	}
	if err := s.Accounts.Ended(ctx, e); err != nil {
		s.Log.Warn("an ending that was done will be done again", "error", err)
	}
	return nil
}

// noticePassword tells the account's owner, by mail or else by SMS. It is
// never waited for.
func (s *Service) noticePassword(company *Company, a Account) {
	sender, to := company.Mail, a.Email
	if sender == nil || to == "" {
		sender, to = company.SMS, a.Phone
	}
	if sender == nil || to == "" {
		return
	}
	s.later("telling "+a.Mnemocode+" of "+company.Code+" of the changed password", func(ctx context.Context) error {
		return s.send(ctx, company, sender, a, Message{Type: NoticePasswordChanged, To: to})
	})
}
