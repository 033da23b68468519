package flows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Service answers the routes for its companies. Its exported fields are set
// before the first call and not changed after; its methods may then be called
// concurrently.
type Service struct {
	Accounts  record.Accounts
	Outbox    record.Outbox // the Accounts, if they are one; nil tells nobody
	Sessions  record.Sessions
	Companies map[string]*tenant.Company // by code
	Hasher    *password.Hasher
	Log       *slog.Logger
	// Forwarded is what the Profile of a session has that becomes authorized.
	Forwarded []record.ProfileField
	Now       func() time.Time
	After     func(time.Duration) <-chan time.Time // nil is time.After
	// Observe is told of each Event; nil for nobody. It must not block.
	Observe func(context.Context, record.Event)
	// KeyUsed is told of each good API key that was sent: its company, and what it is
	// called (see Company) or KeyOfPage. nil for nobody. It must not block.
	KeyUsed func(company, key string)
	// Dropped is told of the company of each message that no request waited for and
	// that was dropped. nil for nobody. It must not block.
	Dropped func(company string)
	// History is the Accounts, if they are one; nil keeps none. AuditKeep is for
	// how long events are kept there.
	History   record.History
	AuditKeep time.Duration

	recorder background.Recorder
	told     limits.Told // of full counters
	traffic  limits.Traffic
	warnings background.Warnings
	backlogs atomic.Pointer[[]record.Backlog] // nil until they are known
	derived  atomic.Pointer[tokens.Keys]      // nil until it is needed
	tagging  sync.Once
	byTag    map[tokens.CompanyTag]*tenant.Company // of sealed tokens
	tasks    background.Tasks
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

// A call is one request on its way through a flow.
type call struct {
	limits.Attempt

	session *record.Session // nil on routes that take no token
	ended   bool            // endOwn has ended the session, so the next one replaces none
	token   string          // the session's
	body    func() ([]byte, error)

	userAgent string                // as sessions keep it
	key       string                // what the API key is called
	languages func() []language.Tag // as the Request has it
	forwarded []record.ProfileField

	// tellsStatus: the route answers with the status of an account which has revoked
	// the token.
	tellsStatus bool

	// What looking for the session has shown already.
	limited *record.Full    // why the address may not go on
	loaded  *record.Account // the session's
	claim   *record.Counter // of a sealed session: full once the token was used; nil if it is stored

	// What the call's events tell, see events.go.
	issued  string // the ID of the session that began
	country string // calling code of the phone whose SMS code the call is about; empty for none
}

// Attempt is one of a client at that address.
func (s *Service) Attempt(ctx context.Context, company *tenant.Company, address string) (limits.Attempt, error) {
	keys, err := s.Keys(ctx)
	at := s.attempt(company, address)
	at.Keys = keys
	return at, err
}

// attempt is an Attempt that lacks its Keys.
func (s *Service) attempt(company *tenant.Company, address string) limits.Attempt {
	at := limits.Attempt{Company: company, Address: address, Now: s.Now(), Counters: s.Sessions, Tallies: s.Accounts}
	if s.Observe != nil {
		at.Told, at.Traffic = &s.told, &s.traffic
	}
	return at
}

// Serve runs a route. Its errors are *wire.Error or *wire.Refusal, and of those that the
// route lists.
func (s *Service) Serve(ctx context.Context, r *Request) (reply Reply, err error) {
	c := &call{
		Attempt:   s.attempt(nil, r.Address),
		userAgent: keptUserAgent(r.UserAgent),
		languages: r.Languages,
		forwarded: s.Forwarded,
		body:      r.Body,

		tellsStatus: r.Route.MayFail(wire.ErrUserRestricted),
	}
	ctx = record.WithStoreTime(ctx)
	err = wire.ErrService // should it panic
	defer func() { s.emit(ctx, r, c, reply, err) }()
	reply, err = s.serve(ctx, r, c)
	if errors.Is(err, wire.ErrTokenInvalid) && r.Route.TakesToken() {
		err = s.whyRevoked(ctx, c, tokens.Prefix, c.token)
	}
	if err != nil {
		return Reply{}, s.checked(r, err)
	}
	if !slices.Contains(r.Route.To, reply.SessionState) {
		return Reply{}, s.defect(r, fmt.Errorf("it led to state %q, which its row does not list", reply.SessionState))
	}
	return reply, nil
}

func (s *Service) serve(ctx context.Context, r *Request, c *call) (Reply, error) {
	var err error
	if c.Company, c.key, err = s.clientOf(ctx, r); err != nil {
		return Reply{}, err
	}
	if c.Keys, err = s.Keys(ctx); err != nil {
		return Reply{}, err
	}
	if r.Route.TakesToken() {
		if c.token, err = wire.ParseBearer(r.Authorization); err != nil {
			return Reply{}, err
		}
	}
	request, bodyErr := r.Route.run.decode(c) // told behind what the token is refused for
	if bodyErr != nil && ctx.Err() != nil {
		return Reply{}, bodyErr // the connection ended with it, so no store would be asked
	}
	if r.Route.TakesToken() {
		get := s.Sessions.Get
		if req, ok := request.(codeRequest); ok && bodyErr == nil && req.bringsCode() {
			get = s.spendCode(c, r.Route.From[0])
		}
		if err := s.find(ctx, c, Demand{Company: c.Company.Code}, get); err != nil {
			return Reply{}, err
		}
		if !slices.Contains(r.Route.From, c.session.State) {
			return Reply{}, wire.ErrSessionInvalid
		}
	}
	if bodyErr != nil {
		return Reply{}, bodyErr
	}
	return r.Route.run.serve(ctx, s, c, request)
}

// Keys returns those of the store's secret, which is asked for once.
func (s *Service) Keys(ctx context.Context) (*tokens.Keys, error) {
	if known := s.derived.Load(); known != nil {
		return known, nil
	}
	secret, err := s.Accounts.Secret(ctx)
	if err != nil {
		return nil, wire.Unavailable("loading the store's secret", err)
	}
	keys, err := tokens.NewKeys(secret)
	if err != nil {
		return nil, err
	}
	s.derived.Store(keys)
	return keys, nil
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
	s.warnings.Unanswered(s.Log, err, "company", r.Company, "route", r.Route.Path)
	return err
}

func (s *Service) defect(r *Request, err error) error {
	s.Log.Error("a defect of this program, please report it", "company", r.Company, "route", r.Route.Path, "error", err)
	return &wire.Refusal{Err: wire.ErrService, Cause: err}
}
