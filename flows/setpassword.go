package flows

import (
	"context"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type setPasswordRequest struct {
	NewPassword       string     `json:"new_password" max:"128" long:"password.too_long" need:"y"`
	AcceptDisclaimers wire.Codes `json:"accept_disclaimers" max:"129"`
	RememberDevice    bool       `json:"remember_device"`
}

// setPassword sets a new password (interface, Endpoints 5). It revokes all other
// sessions, codes and links of the account. Of concurrent requests one succeeds: the
// session decides between requests with the same token, and the account's Generation
// between those with different tokens.
func (s *Service) setPassword(ctx context.Context, c *session.Call, req *setPasswordRequest) (Reply, error) {
	a, err := c.ActiveAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	if err := c.Company.CheckPassword("new_password", req.NewPassword, a); err != nil {
		return Reply{}, err
	}
	if err := countNewPassword(ctx, c, a); err != nil {
		return Reply{}, err
	}
	if err := s.CheckNotSame(ctx, &c.Attempt, a, req.NewPassword); err != nil {
		return Reply{}, err
	}
	c.Worked() // it was a guess, whatever fails later
	if err := s.RefuseBreached(ctx, c.Company, "new_password", req.NewPassword); err != nil {
		return Reply{}, err
	}
	c.Remember(req.RememberDevice)
	st := session.Step{Account: a, State: record.Authorized}
	if c.Session().State == record.SetPassword {
		if st.Accepted, err = c.Accept(ctx, a, req.AcceptDisclaimers); err != nil {
			return Reply{}, err
		}
	}
	if err := s.changePassword(ctx, c, a, password.Normalize(req.NewPassword)); err != nil {
		return Reply{}, err
	}
	if c.Session().State == record.RecoveryPassword {
		return Reply{}, nil
	}
	// The change has revoked the session of this call. The next session belongs to the
	// new session generation.
	st.Account.Generation++
	return c.Enter(ctx, st)
}

// newPasswords is how many new passwords of an account are compared with the current one
// within the life of a session.
const newPasswords = 30

// countNewPassword refuses new passwords of an account after too many, because each takes as
// much time as a login, and may be a guess at the current one. The route has no error that asks
// to wait. The session stays, since a request that raced may be about to succeed with it.
func countNewPassword(ctx context.Context, c *session.Call, a record.Account) error {
	count := c.Counter("new-passwords", strconv.FormatInt(a.ID, 10), tenant.Rate{N: newPasswords, Per: time.Duration(c.Company.Session.Temporary)})
	left, err := c.MarkUsed(ctx, count)
	switch {
	case err != nil:
		return err
	case !left:
		return wire.ErrTokenInvalid
	}
	c.Took(count)
	return nil
}

func (s *Service) changePassword(ctx context.Context, c *session.Call, a record.Account, password string) error {
	hash, err := s.Hasher.Hash(ctx, c.Turn(), c.Company.Password.Argon2id, password)
	if err != nil {
		return wire.Unavailable("hashing the password", err)
	}
	if err := s.EnablePassword(ctx, c.Company, a); err != nil {
		return err
	}
	if err := c.Revoke(ctx); err != nil {
		return err
	}
	ctx = record.WithStoreTime(record.Detached(ctx)) // the token is revoked
	changed := record.Event{Name: record.TypePasswordChanged, Time: c.Now, Mnemocode: a.Mnemocode}
	if c.Session().State == record.RecoveryPassword {
		changed.Name = record.TypeRecoveryCompleted
	}
	err = s.Accounts.SetPassword(ctx, c.Now, a, hash, record.TokenHash{}, background.OutboxEvents(ctx, c.Company, changed)...)
	if err != nil { // perhaps the request of another session was faster and revoked this one
		return wire.Gone("storing the password", err)
	}
	// The revocation comes first: it must not wait for anything.
	err = s.RevokeAll(ctx, record.Revocation{Company: c.Company.Code, Account: a.ID, Generation: a.Generation + 1}, c.ClientEvent(record.EndedByPassword))
	c.Notify(ctx, a, message.NoticePasswordChanged)
	return err
}
