package flows

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file has the requests about a session that are not routes: its current state, a
// new token for it, and its revocation by a client without an API key.

// Current returns the state of the session of a request's token, and the seconds until
// the token expires. It also returns the other fields of the answer that issued the
// token, with their current values. It works in any state, spends no code and does not
// extend the session. The Request needs no Route.
func (s *Service) Current(ctx context.Context, r *Request) (reply Reply, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { err = s.unanswered(ctx, r, "session", err) }()
	company, key, err := s.companyOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	sent, err := r.credentials()
	if err != nil {
		return Reply{}, err
	}
	c, err := s.findCall(ctx, company, key, (*session.Call).Find, r, sent)
	if errors.Is(err, wire.ErrSessionInvalid) {
		err = wire.ErrTokenInvalid // an issued token has no session to tell of
	}
	if err != nil {
		return Reply{}, err
	}
	r.found(c)
	return describeSession(ctx, c)
}

// unanswered returns the error of a request that is no Route's. If something did not answer, it
// warns, with the ref that the client gets.
func (s *Service) unanswered(ctx context.Context, r *Request, route string, err error) error {
	if wire.IsFailure(err) {
		err = wire.WithRef(err)
		s.WarnUnanswered(ctx, err, "company", r.Company, "route", route)
	}
	return err
}

func describeSession(ctx context.Context, c *session.Call) (Reply, error) {
	found := c.Session()
	a, err := c.LoadAccount(ctx)
	reply := c.Describe(a, found, "")
	if found.State == record.Authorized && (err == nil || errors.Is(err, wire.ErrUnavailable)) {
		reply.AuthMethods, reply.User = found.Profile.Methods().Words(), a.ScreenName() // protected paths work without the accounts, so this does, too
		return reply, nil
	}
	if err != nil {
		return Reply{}, err
	}
	switch found.State {
	case record.CheckPassword:
		if err := c.FindDevice(ctx, a, ""); err != nil {
			return Reply{}, err
		}
		counts, err := c.PasswordCounts(ctx, a, found.LoginID)
		if err != nil {
			return Reply{}, err
		}
		reply.CaptchaRequired = c.Company.CaptchaDue(counts.Now[record.WrongPasswords])
		reply.DisclaimersRequired = c.Tells.Pending(a, found.State)
	case record.CheckOTP, record.AcceptDisclaimers, record.SetPassword: // the last as after a passkey
		reply.DisclaimersRequired = c.Tells.Pending(a, found.State)
	case record.RecoveryOTP:
		reply.UserPhone = found.Profile.Value(record.ProfilePhone) // masked, so there is nothing to unescape
	case record.RecoveryQuestion:
		reply.ControlQuestion = a.Question
	}
	return reply, nil
}

// ExchangeToken replaces the token of a request's authorized session and returns the new
// one. The replacement is atomic: of concurrent callers, one succeeds. The session keeps
// its ID, the time of its login and the end of its lifetime. The Request needs no Route.
// ExchangeToken decodes its body, if it has one, into wants (see wire.Decode).
func (s *Service) ExchangeToken(ctx context.Context, r *Request, wants any) (reply Reply, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { err = s.unanswered(ctx, r, "session", err) }()
	company, key, err := s.companyOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	c, err := s.findAuthorized(ctx, company, key, (*session.Call).Find, r, r.Authorization)
	if err == nil && r.Body != nil {
		var body []byte
		if body, err = r.Body(); err == nil && len(body) > 0 {
			err = wire.Decode(body, wants)
		}
		if err == nil { // the body may have come slowly, and the session changed meanwhile
			c, err = s.findAuthorized(ctx, company, key, (*session.Call).Find, r, r.Authorization)
		}
	}
	if err != nil {
		return Reply{}, err
	}
	r.found(c)
	if r.Accepted != nil {
		r.Accepted()
	}
	return c.Exchange(ctx)
}

// User returns the company of a request's API key and the authorized session of its
// user. The login must not be older than fresh; 0 allows any age. If it is older, User
// returns the session with the error. User calls the Request's Credentials instead of reading
// its Authorization. The Request needs no Route.
func (s *Service) User(ctx context.Context, r *Request, fresh time.Duration) (*tenant.Company, record.Session, error) {
	company, _, err := s.companyOf(ctx, r)
	if err != nil {
		return nil, record.Session{}, err
	}
	authorization, err := r.credentials()
	if err != nil {
		return nil, record.Session{}, err
	}
	found, err := s.Authorize(ctx, session.Requirement{Company: company.Code, Fresh: fresh, Whole: true}, authorization)
	return company, found, err
}

// ChangeFailed reports that a change by the user of a session failed. A wrong password has
// an event of its own.
func (s *Service) ChangeFailed(ctx context.Context, route string, client session.Client, of record.Session, err error) {
	if of.Account == 0 || errors.Is(err, wire.ErrPasswordInvalid) {
		return
	}
	e := record.Event{
		Name: record.AccountChangeFailed, Time: s.Now(), Company: of.Company, Account: of.Account, Mnemocode: of.Mnemocode,
		Session: of.ID, Address: client.Address, UserAgent: session.KeptUserAgent(client.UserAgent), Actor: record.ActorUser, Route: route, Ref: wire.RefOf(err),
	}
	e.Result, e.Reason = outcome(ctx, err)
	if !isHistory(e) {
		s.EmitUnrecorded(ctx, e)
		return
	}
	s.Emit(ctx, e)
	if !isUnlimited(e) {
		s.WaitRecorded()
	}
}

// End revokes the authorized session of the token in credentials, which are like a Request's
// Authorization. It needs no API key and accepts sessions of any company, because browsers
// send a site's cookie to each of its companies.
func (s *Service) End(ctx context.Context, r *Request, credentials []string) (err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { err = s.unanswered(ctx, r, "session", err) }()
	if _, err := wire.ParseBearer(credentials); err != nil {
		return err
	}
	company := s.Companies[r.Company]
	if company == nil {
		return wire.ErrTokenInvalid
	}
	c, err := s.findAuthorized(ctx, company, "", (*session.Call).FindOfAnyCompany, r, credentials)
	if err != nil {
		return err
	}
	r.found(c)
	if err := c.Revoke(ctx); err != nil {
		return err
	}
	s.Emit(ctx, c.Session().Ended(c.ClientEvent(record.EndedByLogout)))
	return nil
}

// A finder is a method of session.Call that finds the session of a token.
type finder func(c *session.Call, ctx context.Context, token string) error

// findCall returns the call of a request, with the session of the token in credentials.
func (s *Service) findCall(ctx context.Context, company *tenant.Company, key string, find finder, r *Request, credentials []string) (*session.Call, error) {
	token, err := wire.ParseBearer(credentials)
	if err != nil {
		return nil, err
	}
	c, err := s.CallOf(ctx, company, key, r.Client)
	if err != nil {
		return nil, err
	}
	return c, find(c, ctx, token)
}

func (s *Service) findAuthorized(ctx context.Context, company *tenant.Company, key string, find finder, r *Request, credentials []string) (*session.Call, error) {
	c, err := s.findCall(ctx, company, key, find, r, credentials)
	if err == nil && c.Session().State != record.Authorized {
		err = wire.ErrSessionInvalid
	}
	return c, err
}
