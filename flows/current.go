package flows

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// What is asked of a session beside the routes: where it is, another token for it,
// and its end by whoever holds its token without knowing an API key.

// Current tells where the session of a request's token is, in any state: its state,
// for how long the token is good, and what the answer held that issued it, as it is
// now. It spends and prolongs nothing. The Request needs no Route.
func (s *Service) Current(ctx context.Context, r *Request) (reply Reply, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.warnings.Unanswered(s.Log, err, "company", r.Company, "route", "session") }()
	company, _, err := s.clientOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	c, err := s.findOf(ctx, company, Demand{Company: company.Code}, r)
	if err != nil {
		return Reply{}, err
	}
	return s.tellCurrent(ctx, c)
}

func (s *Service) tellCurrent(ctx context.Context, c *call) (Reply, error) {
	session := c.session
	reply := Reply{SessionState: session.State, ExpiresIn: secondsUntil(session.Expires, c.Now)}
	if session.State == record.Authorized {
		reply.ProfileMnemocode = session.Mnemocode
		return reply, nil
	}
	a, err := s.account(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	switch session.State {
	case record.CheckPassword:
		_, tallies, err := c.Shown(ctx, a, session.LoginID)
		if err != nil {
			return Reply{}, err
		}
		reply.CaptchaRequired = c.CaptchaDue(tallies[record.WrongPasswords])
		reply.DisclaimersRequired = c.pendingNow(a)
	case record.CheckOTP:
		reply.DisclaimersRequired = c.pendingNow(a)
		if !session.ByApp {
			reply.UserPhone = record.MaskPhone(a.Phone)
		}
	case record.AcceptDisclaimers:
		reply.DisclaimersRequired = c.pendingNow(a)
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

// pendingNow is what the session's next step must still accept. In a hardened
// company that is everything, until something of the account's owner is proven.
func (c *call) pendingNow(a record.Account) []wire.Disclaimer {
	if c.Company.Hardened && !c.proven(a) {
		return c.pending(record.Account{}, nil)
	}
	return c.pending(a, c.session.Accepted)
}

// Succeed ends the authorized token of a request and returns its successor, in one
// atomic step: of many callers, one succeeds. The session goes on as it was, with
// its ID, the moment of its login and the end of its lifetime. The Request needs no
// Route.
func (s *Service) Succeed(ctx context.Context, r *Request) (reply Reply, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.warnings.Unanswered(s.Log, err, "company", r.Company, "route", "session") }()
	company, key, err := s.clientOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	c, err := s.findAuthorized(ctx, company, Demand{Company: company.Code}, r)
	if err != nil {
		return Reply{}, err
	}
	c.key = key
	token, hash := tokens.New(tokens.Prefix, record.AccountBucket(company.Code, c.session.Account))
	next := *c.session
	next.Hash, next.LastUsed = hash, c.Now
	next.AtMost = 0 // it takes the place of one, so none has to make room
	next.Expires = next.IdleUntil(c.Now.Add(time.Duration(company.Session.Idle)))
	if err := s.store(ctx, c, next); err != nil {
		return Reply{}, err
	}
	moved := c.by("")
	moved.Name, moved.Time, moved.Company = record.SessionMoved, c.Now, company.Code
	moved.Account, moved.Mnemocode, moved.Session, moved.State = next.Account, next.Mnemocode, next.ID, next.State
	s.Emit(ctx, moved)
	return Reply{
		SessionToken: token, SessionState: next.State, ExpiresIn: secondsUntil(next.Expires, c.Now), ProfileMnemocode: next.Mnemocode,
	}, nil
}

// End ends the authorized session of a request's token, which is all that the
// request needs: a cookie brings it to each company of a site.
func (s *Service) End(ctx context.Context, r *Request) (err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.warnings.Unanswered(s.Log, err, "company", r.Company, "route", "session") }()
	if _, err := wire.ParseBearer(r.Authorization); err != nil {
		return err
	}
	company := s.Companies[r.Company]
	if company == nil {
		return wire.ErrTokenInvalid
	}
	c, err := s.findAuthorized(ctx, company, Demand{}, r)
	if err != nil {
		return err
	}
	if err := s.endOwn(ctx, c); err != nil {
		return err
	}
	s.Emit(ctx, c.session.Ended(c.by(record.EndedByLogout)))
	return nil
}

// findOf finds the session of a request's token, of a company that meets want.
func (s *Service) findOf(ctx context.Context, company *tenant.Company, want Demand, r *Request) (*call, error) {
	token, err := wire.ParseBearer(r.Authorization)
	if err != nil {
		return nil, err
	}
	at, err := s.Attempt(ctx, company, r.Address)
	if err != nil {
		return nil, err
	}
	c := &call{Attempt: at, userAgent: keptUserAgent(r.UserAgent), token: token, languages: r.Languages}
	if err := s.find(ctx, c, want, s.Sessions.Get); err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Service) findAuthorized(ctx context.Context, company *tenant.Company, want Demand, r *Request) (*call, error) {
	c, err := s.findOf(ctx, company, want, r)
	if err == nil && c.session.State != record.Authorized {
		err = wire.ErrSessionInvalid
	}
	return c, err
}
