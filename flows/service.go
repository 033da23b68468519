package flows

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Service answers the routes for its companies. Its exported fields are set
// before the first call and not changed after; its methods may then be called
// concurrently.
type Service struct {
	Accounts  Accounts
	Sessions  Sessions
	Companies map[string]*Company // by code
	Hasher    *Hasher
	Log       *slog.Logger
	Now       func() time.Time
	// Observe is told of each Event; nil for nobody. It must not block.
	Observe func(context.Context, Event)

	told       told // of full counters
	warnings   Warnings
	secret     atomic.Pointer[[]byte] // Accounts.Secret, once it was loaded
	background sync.WaitGroup         // what later began
	mu         sync.Mutex             // guards the two below
	waiting    int                    // how much of it is under way
	closed     bool
}

// A Request is what a client sent to a route. The strings of its headers are
// given as they came, one element a header line.
type Request struct {
	Company       string // from the path
	Route         *Route
	APIKeys       []string
	Authorization []string
	Address       string // the client's, for its limits
	// Body reads the body, or fails with ErrTooLarge or ErrMediaType. It is
	// called only once the headers are found good.
	Body func() ([]byte, error)
}

// A Reply is the answer of a route that succeeded, ready to be marshalled.
type Reply struct {
	SessionToken        string       `json:"session_token,omitempty"`
	SessionState        State        `json:"session_state,omitempty"`
	ProfileMnemocode    string       `json:"profile_mnemocode,omitempty"`
	DisclaimersRequired []Disclaimer `json:"disclaimers_required,omitzero"` // nil: not said
	CaptchaRequired     bool         `json:"captcha_required,omitempty"`
	UserPhone           string       `json:"user_phone,omitempty"`
	UserEmail           string       `json:"user_email,omitempty"`
	ControlQuestion     string       `json:"control_question,omitempty"`
	Verification        Method       `json:"verification,omitempty"`
	*PasswordQuality
}

// PasswordQuality tells what a new password must be; null where there is no rule.
type PasswordQuality struct {
	Regex       *string `json:"password_regex"`
	Description *string `json:"password_regex_description"`
}

// A call is one request on its way through a flow.
type call struct {
	company *Company
	address string
	session *Session // nil on routes that take no token
	ended   bool     // take has ended the session, so the next one replaces none
	token   string   // the session's
	body    func() ([]byte, error)
	now     time.Time

	// limited is why the address may not go on, if looking for the session has
	// shown that already.
	limited *Full

	// What the call's events tell, see events.go.
	mnemocode string // of the account that was found
	issued    string // the ID of the session that began
	events    []Event
}

// Serve runs a route. Its errors are *Error or *Refusal, and of those that the
// route lists.
func (s *Service) Serve(ctx context.Context, r *Request) (reply Reply, err error) {
	c := &call{address: addressKey(r.Address), body: r.Body, now: s.Now()}
	ctx = withStoreTime(ctx)
	err = ErrService // should it panic
	defer func() { s.emit(ctx, r, c, reply, err) }()
	reply, err = s.serve(ctx, r, c)
	if err != nil {
		return Reply{}, s.checked(r, err)
	}
	if !slices.Contains(r.Route.To, reply.SessionState) {
		return Reply{}, s.defect(r, fmt.Errorf("it led to state %q, which its row does not list", reply.SessionState))
	}
	return reply, nil
}

func (s *Service) serve(ctx context.Context, r *Request, c *call) (Reply, error) {
	company, err := s.Company(r.Company, r.APIKeys)
	if err != nil {
		return Reply{}, err
	}
	c.company = company
	if r.Route.TakesToken() {
		if c.token, err = ParseBearer(r.Authorization); err != nil {
			return Reply{}, err
		}
	}
	request, bodyErr := r.Route.run.decode(c) // told behind what the token is refused for
	if r.Route.TakesToken() {
		get := s.Sessions.Get
		if req, ok := request.(codeRequest); ok && bodyErr == nil && req.bringsCode() {
			get = s.spendCode(c, r.Route.From[0])
		}
		session, err := s.lookup(ctx, tokenPrefix, c.token, company.Code, c.now, get)
		if err != nil {
			return Reply{}, err
		}
		c.session = &session
		if !slices.Contains(r.Route.From, session.State) {
			return Reply{}, ErrSessionInvalid
		}
	}
	if bodyErr != nil {
		return Reply{}, bodyErr
	}
	return r.Route.run.serve(ctx, s, c, request)
}

// checked sees to it that only errors go out that the route lists.
func (s *Service) checked(r *Request, err error) error {
	var code *Error
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
	return &Refusal{Err: ErrService, Cause: err}
}

// Company returns the company whose API key was sent. An unknown company can't
// be told from a wrong key, neither by the answer nor by the time it takes.
func (s *Service) Company(code string, keys []string) (*Company, error) {
	company := s.Companies[code]
	if company != nil && company.NoAPIKey {
		return company, nil
	}
	if len(keys) == 0 {
		return nil, ErrAPIKeyMissing
	}
	if !company.hasKey(keys[0]) || len(keys) > 1 {
		return nil, ErrAPIKeyInvalid
	}
	return company, nil
}

// CompanyByKey returns the company, whichever it is, whose API key was sent.
func (s *Service) CompanyByKey(keys []string) (*Company, error) {
	if len(keys) == 0 {
		return nil, ErrAPIKeyMissing
	}
	var found *Company
	for _, company := range s.Companies {
		if company.hasKey(keys[0]) {
			found = company
		}
	}
	if found == nil || len(keys) > 1 {
		return nil, ErrAPIKeyInvalid
	}
	return found, nil
}

// hasKey compares with each key, in constant time. No company has none.
func (c *Company) hasKey(key string) bool {
	hashes := [][sha256.Size]byte{{}} // what no key hashes to
	if c != nil {
		hashes = c.APIKeys
	}
	sent := sha256.Sum256([]byte(key))
	equal := 0
	for i := range hashes {
		equal |= subtle.ConstantTimeCompare(sent[:], hashes[i][:])
	}
	return c != nil && equal == 1
}

// lookup returns the live session under a token. The company is the one whose
// token it must be; empty for any. Get is Sessions.Get or recall.
func (s *Service) lookup(
	ctx context.Context, prefix, token, company string, now time.Time,
	get func(context.Context, TokenHash) (Session, error),
) (Session, error) {
	if !tokenShaped(prefix, token) {
		return Session{}, ErrTokenInvalid
	}
	session, err := get(ctx, hashToken(token))
	if errors.Is(err, ErrNotFound) {
		return Session{}, ErrTokenInvalid
	}
	if err != nil {
		return Session{}, unavailable("loading the session", err)
	}
	if company != "" && session.Company != company {
		return Session{}, ErrTokenInvalid
	}
	if !now.Before(session.Expires) {
		s.expire(ctx, now, session)
		return Session{}, ErrTokenExpired
	}
	return session, nil
}

// ParseBearer returns the token of an Authorization header (RFC 6750, 2.1),
// given as the header's lines.
func ParseBearer(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", ErrHeaderMissing
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") || !isB64Token(token) {
		return "", ErrHeaderInvalid
	}
	return token, nil
}

// isB64Token reports whether s is a b64token: 1*( ALPHA / DIGIT / "-" / "." /
// "_" / "~" / "+" / "/" ) *"=".
func isB64Token(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		c := s[i] | 0x20 // lower case of a letter
		if !('a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9' || strings.IndexByte("-._~+/", s[i]) >= 0) {
			return false
		}
	}
	return s != ""
}

// account loads the account of the call's session. A decoy's is empty but for
// Tallies, those of the login id it stands for; it takes as many calls.
func (s *Service) account(ctx context.Context, c *call) (Account, error) {
	if c.session.Account == 0 {
		tallies, err := s.tallies(ctx, c.known(Account{}))
		return Account{Tallies: tallies}, err
	}
	a, err := s.Accounts.ByID(ctx, c.company.Code, c.session.Account)
	if errors.Is(err, ErrNotFound) || err == nil && a.Epoch != c.session.Epoch {
		return Account{}, ErrTokenInvalid // its ending is only on the way to the sessions
	}
	if err != nil {
		return Account{}, unavailable("loading the account", err)
	}
	c.found(a)
	return a, nil
}

// accountByLoginID finds the account with a normalised login id, and the login
// id's alias. An unknown one is no error: the account is then empty but for the
// alias's Tallies.
func (s *Service) accountByLoginID(ctx context.Context, c *call, loginID string) (a Account, alias string, err error) {
	if alias, err = s.alias(ctx, c, loginID); err != nil {
		return Account{}, "", err
	}
	a, err = s.Accounts.ByLoginID(ctx, c.company.Code, loginID, alias)
	if errors.Is(err, ErrNotFound) {
		return Account{Tallies: a.Tallies}, alias, nil
	}
	if err != nil {
		return Account{}, "", unavailable("looking up the login id", err)
	}
	c.found(a)
	return a, alias, nil
}

// admitted tells whether the account's status lets it in.
func admitted(a Account) error {
	switch a.Status {
	case StatusActive:
		return nil
	case StatusRestricted:
		return ErrUserRestricted
	case StatusClosed:
		return ErrUserClosed
	default: // denied, and whatever a newer version may have written
		return ErrUserDenied
	}
}

// A step is a session about to begin: the first of a login or recovery, or the
// one that replaces the call's.
type step struct {
	account  Account // empty for a decoy
	decoyOf  string  // the alias of the login id that a decoy stands for
	state    State
	accepted []Acceptance
	// counters are charged, or looked at, by storing the session.
	counters []Counter
	// and holds what else must succeed for the step to count, done once the
	// session is stored and before anyone has its token: if it fails, the
	// session is ended again.
	and []func(context.Context) error
}

// enter takes a step and returns what the client is told of it.
func (s *Service) enter(ctx context.Context, c *call, st step) (Reply, error) {
	bucket := AccountBucket(c.company.Code, st.account.ID)
	if st.account.ID == 0 {
		bucket = hashToken(st.decoyOf).Bucket() // that of account 0 would show what it is
	}
	token, hash := newToken(tokenPrefix, bucket)
	next := c.newSession(st, hash)
	reply := Reply{SessionToken: token, SessionState: st.state}
	switch st.state {
	case CheckOTP, RecoveryOTP:
		code, err := s.newCode(c, st, token)
		if err != nil {
			return Reply{}, err
		}
		st.counters = append(st.counters, code.counters...)
		switch {
		case c.company.Hardened && st.state == RecoveryOTP:
			st.and = append(st.and, func(context.Context) error { s.sendLater(c.company, hash, code.send); return nil })
		case c.first():
			st.and = append(st.and, func(ctx context.Context) error { return s.deliver(ctx, code) }) // the last, since nothing takes it back
		default: // the token that is replaced stays good if the code can't be sent
			if err := s.charge(ctx, c, st.counters...); err != nil {
				return Reply{}, err
			}
			if err := s.deliver(ctx, code); err != nil {
				return Reply{}, err
			}
			st.counters = nil
		}
		next.Code = code.stored
		reply.UserPhone = maskPhone(st.account.Phone)
	case SetPassword, RecoveryPassword:
		reply.PasswordQuality = c.company.quality()
	case Authorized:
		reply.ProfileMnemocode = st.account.Mnemocode
	}
	if err := s.store(ctx, c, next, st.counters...); err != nil {
		return Reply{}, err
	}
	for _, and := range st.and {
		if err := and(ctx); err != nil {
			s.abandon(ctx, hash)
			return Reply{}, err
		}
	}
	c.issued = next.ID
	return reply, nil
}

func (c *call) newSession(st step, hash TokenHash) Session {
	next := Session{
		Hash:      hash,
		ID:        newID(),
		Company:   c.company.Code,
		Account:   st.account.ID,
		Mnemocode: st.account.Mnemocode,
		LoginID:   st.decoyOf,
		Epoch:     st.account.Epoch,
		State:     st.state,
		Accepted:  st.accepted,
		Created:   c.now,
		Expires:   c.now.Add(c.company.Temporary),
		Ends:      c.now.Add(c.company.Temporary),
	}
	if st.state == Authorized {
		next.Ends = c.now.Add(c.company.Lifetime)
		next.Expires = c.now.Add(min(c.company.Idle, c.company.Lifetime))
	}
	if c.session != nil {
		next.ID = c.session.ID
	}
	return next
}

// first reports whether the call's next session replaces none.
func (c *call) first() bool { return c.session == nil || c.ended }

// store creates the call's first session or replaces the one it has, unless one
// of the counters refuses it.
func (s *Service) store(ctx context.Context, c *call, next Session, counters ...Counter) error {
	var err error
	if c.first() {
		err = s.Sessions.Create(ctx, c.now, next, counters...)
	} else {
		err = s.Sessions.Replace(ctx, c.now, c.session.Hash, c.session.State, next, counters...)
		if errors.Is(err, ErrConflict) {
			return ErrTokenInvalid // another request with this token was faster
		}
	}
	if full, ok := errors.AsType[*Full](err); ok {
		return s.refused(c, full)
	}
	if err != nil { // also where the account was changed while its owner logged in
		return unavailable("storing the session", err)
	}
	return nil
}

// abandon ends a session whose token nobody got. It needs not succeed.
func (s *Service) abandon(ctx context.Context, hash TokenHash) {
	if err := s.Sessions.Delete(context.WithoutCancel(ctx), hash); err != nil && !errors.Is(err, ErrNotFound) {
		s.Log.Warn("a session that nobody can use stays until it expires", "error", err)
	}
}

// after goes on behind a proof of the user: to the second factor (unless otpDone
// says that it was given), to a new password, or to authorized. This is
// the "second factor required", "new password required", "nothing further
// required" of the interface's transition table.
func (s *Service) after(ctx context.Context, c *call, st step, otpDone bool) (Reply, error) {
	switch {
	case !otpDone && c.company.needsSecondFactor(st.account):
		if err := c.checkCodes(st.account); err != nil {
			return Reply{}, err
		}
		st.state = CheckOTP
	case st.account.MustSetPassword || st.account.PasswordHash == "" && c.company.Password.Required:
		st.state = SetPassword
	default:
		return s.authorize(ctx, c, st)
	}
	return s.enter(ctx, c, st)
}

// authorize is the step to authorized, which records the disclaimers that were
// accepted on the way.
func (s *Service) authorize(ctx context.Context, c *call, st step) (Reply, error) {
	st.state = Authorized
	if len(st.accepted) > 0 {
		st.and = append(st.and, func(ctx context.Context) error {
			if err := s.Accounts.Accept(ctx, c.company.Code, st.account.ID, st.accepted); err != nil {
				return unavailable("recording the accepted disclaimers", err)
			}
			return nil
		})
	}
	return s.enter(ctx, c, st)
}

func (c *Company) needsSecondFactor(a Account) bool {
	switch c.SecondFactor {
	case SecondFactorRequired:
		return true
	case SecondFactorOff:
		return false
	default:
		return a.SecondFactor
	}
}

func (c *Company) quality() *PasswordQuality {
	q := &PasswordQuality{}
	if c.Password.Regex != nil {
		q.Regex = &c.Password.RegexSource
	}
	if c.Password.RegexDescription != "" {
		q.Description = &c.Password.RegexDescription
	}
	return q
}
