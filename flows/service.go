package flows

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Service serves the routes of its Manager's companies. Set its fields before the
// first call and do not change them afterwards. Its methods may be called concurrently.
type Service struct {
	*session.Manager
	// KeyUsed, if not nil, is called for each valid API key that a client sends, with
	// its name (see Company) or KeyOfPage. It must not block.
	KeyUsed func(company, key string)
}

// A Request is a client's request to a route. Headers are unparsed, one element for
// each header line.
type Request struct {
	session.Client

	Company       string // from the path
	Route         *Route
	APIKeys       []string
	PageKey       bool // whether the key of the company's login page is valid too, because the site has that page
	Authorization []string
	// Credentials returns the Authorization or, in the same form, a cookie. Routes that raise
	// sessions, Current and User call it in place of Authorization. It fails for a cookie that
	// another site made the browser send. Credentials may be nil.
	Credentials func() ([]string, error)
	// Body reads the body. It may fail with wire.ErrTooLarge or wire.ErrMediaType. It
	// is called only after the headers were checked.
	Body func() ([]byte, error)
	// Accepted, if not nil, is called once the API key, the token and the body were
	// accepted.
	Accepted func()
	// Found, if not nil, is called with the session of the token, if that is authorized. User
	// returns it instead.
	Found func(record.Session)
}

func (r *Request) found(c *session.Call) {
	if found := c.Session(); r.Found != nil && found.State == record.Authorized {
		r.Found(found)
	}
}

// A Reply is the answer of a route that succeeded.
type Reply = session.Reply

// Serve runs a route. Its errors wrap a *wire.Error that the route lists, and have a ref.
func (s *Service) Serve(ctx context.Context, r *Request) (Reply, error) {
	c := s.NewCall(r.Client)
	c.SeesStatus = r.Route.MayFail(wire.ErrUserRestricted)
	ctx = record.WithStoreTime(ctx)
	reply, err := s.answer(ctx, r, c)
	s.emit(ctx, r, c, reply, err)
	return reply, err
}

// answer is Serve without the events. It contains panics.
func (s *Service) answer(ctx context.Context, r *Request, c *session.Call) (reply Reply, err error) {
	defer func() {
		if p := panics.Recovered(recover()); p != nil {
			reply, err = Reply{}, wire.WithRef(wire.ErrService)
			p.Log(s.Log, "company", r.Company, "route", r.Route.Path, "ref", wire.RefOf(err))
		}
	}()
	reply, err = s.serve(ctx, r, c)
	c.GiveBack(ctx, err)
	if errors.Is(err, wire.ErrTokenInvalid) && r.Route.TakesToken() {
		err = c.WhyRevoked(ctx)
	}
	if err != nil {
		return Reply{}, s.checked(ctx, r, wire.WithRef(err))
	}
	if !slices.Contains(r.Route.To, reply.SessionState) {
		return Reply{}, s.defect(r, wire.WithRef(fmt.Errorf("it led to state %q, which its row does not list", reply.SessionState)))
	}
	return reply, nil
}

func (s *Service) serve(ctx context.Context, r *Request, c *session.Call) (Reply, error) {
	company, key, err := s.companyOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	if err := c.SetCompany(ctx, company, key); err != nil {
		return Reply{}, err
	}
	token, err := r.token()
	if err != nil {
		return Reply{}, err
	}
	request, bodyErr := r.Route.run.decode(r.Body) // errors of the token take precedence
	c.Now = s.Now()                                // the body may have come slowly
	if bodyErr != nil && ctx.Err() != nil {
		return Reply{}, bodyErr // the client hung up; do not ask the store
	}
	if r.Route.TakesToken() {
		code, mayBeCode := request.(codeRequest)
		spend := mayBeCode && bodyErr == nil && code.mayBeCode(company.OTP.Length)
		err := r.Route.findSession(ctx, c, token, spend)
		r.found(c)
		if err != nil {
			return Reply{}, err
		}
	}
	if bodyErr != nil {
		return Reply{}, bodyErr
	}
	if r.Accepted != nil {
		r.Accepted()
	}
	return r.Route.run.serve(ctx, s, c, request)
}

// token returns the token of the request, or "" if the route takes none.
func (r *Request) token() (string, error) {
	if !r.Route.TakesToken() {
		return "", nil
	}
	if !r.Route.StepsUp {
		return wire.ParseBearer(r.Authorization)
	}
	authorization, err := r.credentials()
	if err != nil {
		return "", err
	}
	return wire.ParseBearer(authorization)
}

// credentials returns the Credentials, or the Authorization if the client has no cookies.
func (r *Request) credentials() ([]string, error) {
	if r.Credentials == nil {
		return r.Authorization, nil
	}
	return r.Credentials()
}

// findSession finds the token's session, which must be in a state that the route accepts.
// In the same step it spends the code of the session if the request may have it.
func (r *Route) findSession(ctx context.Context, c *session.Call, token string, spend bool) (err error) {
	if spend {
		err = c.FindAndSpendCode(ctx, token, r.From[0])
	} else {
		err = c.Find(ctx, token)
	}
	if err == nil && !slices.Contains(r.From, c.Session().State) {
		err = wire.ErrSessionInvalid
	}
	return err
}

// checked returns err if the route lists it. It reports any other error as a defect
// and replaces it.
func (s *Service) checked(ctx context.Context, r *Request, err error) error {
	code, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return s.defect(r, err)
	}
	if !r.Route.MayFail(code) {
		return s.defect(r, wire.SameRef(err, fmt.Errorf("it failed with %s, which its row does not list", code.Code)))
	}
	s.WarnUnanswered(ctx, err, "company", r.Company, "route", r.Route.Path)
	return err
}

func (s *Service) defect(r *Request, err error) error {
	s.Log.Error("internal error; please report it", "company", r.Company, "route", r.Route.Path, "error", err, "ref", wire.RefOf(err))
	return &wire.Refusal{Err: wire.ErrService, Cause: err}
}
