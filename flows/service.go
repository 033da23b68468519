package flows

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Service answers the routes of the companies that its Manager has. Its fields are set
// before the first call and not changed after; its methods may then be called
// concurrently.
type Service struct {
	*session.Manager
	// KeyUsed is told of each good API key that was sent: its company, and what it is
	// called (see Company) or KeyOfPage. nil for nobody. It must not block.
	KeyUsed func(company, key string)
}

// A Request is what a client sent to a route. The strings of its headers are
// given as they came, one element a header line.
type Request struct {
	Company       string // from the path
	Route         *Route
	APIKeys       []string
	PageKey       bool // whether the site has a login page of the company, whose key will do, too
	Authorization []string
	Address       string // the client's, for its limits
	UserAgent     string // as it came; sessions keep its beginning
	// Languages returns those that the user reads, the best first. It is called only
	// where there is something to choose; nil if nothing is known of them.
	Languages func() []language.Tag
	// Body reads the body, or fails with wire.ErrTooLarge or wire.ErrMediaType. It is
	// called only once the headers are found good.
	Body func() ([]byte, error)
}

// client is who sent the request.
func (r *Request) client() session.Client {
	return session.Client{
		Address: r.Address, UserAgent: r.UserAgent, Languages: r.Languages,
		SeesStatus: r.Route != nil && r.Route.MayFail(wire.ErrUserRestricted),
	}
}

// A Reply is the answer of a route that succeeded, ready to be marshalled.
type Reply struct {
	SessionToken        string            `json:"session_token,omitempty"`
	SessionState        record.State      `json:"session_state,omitempty"`
	ExpiresIn           *int              `json:"expires_in,omitempty"` // whole seconds until the token ends unless it is used
	ProfileMnemocode    string            `json:"profile_mnemocode,omitempty"`
	DisclaimersRequired []wire.Disclaimer `json:"disclaimers_required,omitzero"` // nil: not said
	CaptchaRequired     bool              `json:"captcha_required,omitempty"`
	UserPhone           string            `json:"user_phone,omitempty"`
	UserEmail           string            `json:"user_email,omitempty"`
	ControlQuestion     string            `json:"control_question,omitempty"`
	Verification        tenant.Method     `json:"verification,omitempty"`
	*tenant.PasswordQuality
}

// issued is the reply that gives a client the token of its session.
func issued(t session.Issued, err error) (Reply, error) {
	if err != nil {
		return Reply{}, err
	}
	return Reply{
		SessionToken: t.Token, SessionState: t.State, ExpiresIn: &t.ExpiresIn,
		ProfileMnemocode: t.Mnemocode, UserPhone: t.Phone, PasswordQuality: t.Quality,
	}, nil
}

// Serve runs a route. Its errors are *wire.Error or *wire.Refusal, and of those that the
// route lists.
func (s *Service) Serve(ctx context.Context, r *Request) (reply Reply, err error) {
	c := s.NewCall(r.client())
	ctx = record.WithStoreTime(ctx)
	err = wire.ErrService // should it panic
	defer func() { s.emit(ctx, r, c, reply, err) }()
	reply, err = s.serve(ctx, r, c)
	if errors.Is(err, wire.ErrTokenInvalid) && r.Route.TakesToken() {
		err = c.WhyRevoked(ctx)
	}
	if err != nil {
		return Reply{}, s.checked(r, err)
	}
	if !slices.Contains(r.Route.To, reply.SessionState) {
		return Reply{}, s.defect(r, fmt.Errorf("it led to state %q, which its row does not list", reply.SessionState))
	}
	return reply, nil
}

func (s *Service) serve(ctx context.Context, r *Request, c *session.Call) (Reply, error) {
	company, key, err := s.clientOf(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	if err := c.Admit(ctx, company, key); err != nil {
		return Reply{}, err
	}
	var token string
	if r.Route.TakesToken() {
		if token, err = wire.ParseBearer(r.Authorization); err != nil {
			return Reply{}, err
		}
	}
	request, bodyErr := r.Route.run.decode(r.Body) // told behind what the token is refused for
	if bodyErr != nil && ctx.Err() != nil {
		return Reply{}, bodyErr // the connection ended with it, so no store would be asked
	}
	if r.Route.TakesToken() {
		want := session.Requirement{Company: company.Code}
		if req, ok := request.(codeRequest); ok && bodyErr == nil && req.bringsCode() {
			err = c.FindAndSpendCode(ctx, token, want, r.Route.From[0])
		} else {
			err = c.Find(ctx, token, want)
		}
		if err != nil {
			return Reply{}, err
		}
		if !slices.Contains(r.Route.From, c.Session().State) {
			return Reply{}, wire.ErrSessionInvalid
		}
	}
	if bodyErr != nil {
		return Reply{}, bodyErr
	}
	return r.Route.run.serve(ctx, s, c, request)
}

// checked sees to it that only errors go out that the route lists.
func (s *Service) checked(r *Request, err error) error {
	var code *wire.Error
	if !errors.As(err, &code) {
		return s.defect(r, err)
	}
	if !r.Route.MayFail(code) {
		return s.defect(r, fmt.Errorf("it failed with %s, which its row does not list", code.Code))
	}
	s.WarnUnanswered(err, "company", r.Company, "route", r.Route.Path)
	return err
}

func (s *Service) defect(r *Request, err error) error {
	s.Log.Error("a defect of this program, please report it", "company", r.Company, "route", r.Route.Path, "error", err)
	return &wire.Refusal{Err: wire.ErrService, Cause: err}
}
