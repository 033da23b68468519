package flows

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// What is asked of a session beside the routes: where it is, another token for it,
// and its end by whoever holds its token without knowing an API key.

// Current tells where the session of a request's token is, in any state: its state,
// for how long the token is good, and what the answer held that issued it, as it is
// now. It spends and prolongs nothing. The Request needs no Route.
func (s *Service) Current(ctx context.Context, r *Request) (reply Reply, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.WarnUnanswered(err, "company", r.Company, "route", "session") }()
	company, key, err := s.clientOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	c, err := s.findOf(ctx, company, key, session.Requirement{Company: company.Code}, r)
	if err != nil {
		return Reply{}, err
	}
	return tellCurrent(ctx, c)
}

func tellCurrent(ctx context.Context, c *session.Call) (Reply, error) {
	found := c.Session()
	reply := Reply{SessionState: found.State, ExpiresIn: new(int(found.Expires.Sub(c.Now) / time.Second))}
	if found.State == record.Authorized {
		reply.ProfileMnemocode = found.Mnemocode
		return reply, nil
	}
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	switch found.State {
	case record.CheckPassword:
		_, failures, err := c.PublicFailures(ctx, a, found.LoginID)
		if err != nil {
			return Reply{}, err
		}
		reply.CaptchaRequired = c.CaptchaDue(failures[record.WrongPasswords])
		reply.DisclaimersRequired = c.PendingNow(a)
	case record.CheckOTP:
		reply.DisclaimersRequired = c.PendingNow(a)
		if !found.ByApp {
			reply.UserPhone = record.MaskPhone(a.Phone)
		}
	case record.AcceptDisclaimers:
		reply.DisclaimersRequired = c.PendingNow(a)
	case record.SetPassword, record.RecoveryPassword:
		reply.PasswordQuality = c.Company.Quality(a)
	case record.RecoveryOTP:
		if !c.Company.Hardened { // a decoy has none, and would show by that
			reply.UserPhone = record.MaskPhone(a.Phone)
		}
	case record.RecoveryQuestion:
		reply.ControlQuestion = a.Question
	}
	return reply, nil
}

// Succeed ends the authorized token of a request and returns its successor, in one
// atomic step: of many callers, one succeeds. The session goes on as it was, with
// its ID, the moment of its login and the end of its lifetime. The Request needs no
// Route.
func (s *Service) ExchangeToken(ctx context.Context, r *Request) (reply Reply, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.WarnUnanswered(err, "company", r.Company, "route", "session") }()
	company, key, err := s.clientOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	c, err := s.findAuthorized(ctx, company, key, session.Requirement{Company: company.Code}, r)
	if err != nil {
		return Reply{}, err
	}
	return issued(c.Exchange(ctx))
}

// End ends the authorized session of a request's token, which is all that the
// request needs: a cookie brings it to each company of a site.
func (s *Service) End(ctx context.Context, r *Request) (err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.WarnUnanswered(err, "company", r.Company, "route", "session") }()
	if _, err := wire.ParseBearer(r.Authorization); err != nil {
		return err
	}
	company := s.Companies[r.Company]
	if company == nil {
		return wire.ErrTokenInvalid
	}
	c, err := s.findAuthorized(ctx, company, "", session.Requirement{}, r)
	if err != nil {
		return err
	}
	if err := c.Revoke(ctx); err != nil {
		return err
	}
	s.Emit(ctx, c.Session().Ended(c.By(record.EndedByLogout)))
	return nil
}

// findOf begins the call that looks for the session of a request's token, of a company
// that meets want.
func (s *Service) findOf(ctx context.Context, company *tenant.Company, key string, want session.Requirement, r *Request) (*session.Call, error) {
	token, err := wire.ParseBearer(r.Authorization)
	if err != nil {
		return nil, err
	}
	c := s.NewCall(r.client())
	if err := c.Admit(ctx, company, key); err != nil {
		return nil, err
	}
	return c, c.Find(ctx, token, want)
}

func (s *Service) findAuthorized(ctx context.Context, company *tenant.Company, key string, want session.Requirement, r *Request) (*session.Call, error) {
	c, err := s.findOf(ctx, company, key, want, r)
	if err == nil && c.Session().State != record.Authorized {
		err = wire.ErrSessionInvalid
	}
	return c, err
}
