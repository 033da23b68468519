package flows_test

import (
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This is a second, minimal implementation of the protocol: what clients receive and
// what is counted when requests arrive one after another. It was written from the
// interface document and the contract, not from the flows, and shares only a
// company's settings with them. machine_test.go compares the two.

// A model holds what a service should know.
type model struct {
	now       time.Time
	companies []*modelCompany
	captchas  map[string]time.Time // the responses that were used
	grants    map[string]time.Time // the codes that were sent to a provider
	stepUps   []*modelStepUp       // every one that was begun
	sessions  []*modelSession      // every session there ever was, mailed links included, in the order of issue of their tokens

	devices      []*modelDevice // every one there ever was, in the order in which they were remembered
	drawnDevices int
}

type modelCompany struct {
	*tenant.Company
	accounts []*modelAccount
	unknown  map[string]*modelAttempts // by a login id that no account had when it was sent
	budgets  map[string]*modelCount    // for SMS and mails, and for what an address may do
	grants   map[string]time.Time      // the codes that clients sent
}

type modelAccount struct {
	key                     string // never reused
	mnemocode               string
	phone, email, loginName string
	status                  record.Status
	secondFactor, mustSet   bool
	password                string // empty if the account has none
	question, answer        string
	subject                 string                     // at provider 1; empty if none
	accepted                map[string]modelAcceptance // of disclaimers
	backup                  []string                   // unused backup codes
	app                     []byte                     // the secret of the authenticator app; nil if none
	used                    map[int64]bool             // the app's used codes, by their steps of 30 s
	modelAttempts
}

// modelAttempts counts the wrong attempts of an account or of an unknown login id.
type modelAttempts struct{ passwords, codes, answers modelCount }

// A modelCount is a count and the time when its lock or window ends.
type modelCount struct {
	n       int
	until   time.Time
	changed time.Time // for the store, which forgets unknown login ids after a day
}

type modelAcceptance struct {
	version string
	at      time.Time
}

type modelSession struct {
	token     string
	company   *modelCompany
	account   *modelAccount // nil for a decoy
	of        string        // the login id of a decoy
	state     record.State  // record.MailedLink for a link
	ended     bool          // logged out, replaced or revoked with the account's other sessions
	barred    *modelAccount // the account whose status revoked it, until the account is active again
	unsure    bool          // it may already have been gone when that revoked it
	expired   bool          // its client learned that it has expired
	forgotten bool          // the store may have forgotten it
	overLimit bool          // it may have been revoked to make room for a newer session
	passed    bool          // the store may have noted that it has expired
	begun     time.Time
	expires   time.Time
	early     time.Time // from now on it may have expired: activity is written once a minute
	ends      time.Time // when its lifetime ends
	code      *modelCode
	byApp     bool                       // it expects a code of the authenticator app
	accepted  map[string]modelAcceptance // disclaimers accepted during the login
	listed    map[string]time.Time       // the versions of all disclaimers when an answer to this login listed them, and until when that is known
	renewals  modelCount
	methods   []string     // the proofs that the user has given
	proved    time.Time    // when the last one was given
	device    *modelDevice // the known device that it began on, or the one that it made known; nil if unknown
}

type modelCode struct {
	of      string // the step-up that it was sent for; empty for none
	digits  string
	expires time.Time
}

// A modelCall is one request and the answer of the service. Codes, links and tokens
// are random, so the model reads them from the answer.
type modelCall struct {
	company *modelCompany
	address string
	path    string
	header  string // "none" or "malformed"; if empty, the header has the token
	token   string
	loginID string // of the body, normalized
	body    object
	cookie  string        // the token of a device
	twice   bool          // the path needs two factors
	fresh   time.Duration // the age of the login that it allows; 0 for any
	broken  bool          // gateways and providers don't answer
	got     modelAnswer
	session *modelSession // the token's session, once it is found valid
	device  *modelDevice  // the known device that the client is, once that is clear

	captchaDue bool // after a right password
}

// A modelAnswer holds the parts of an answer that are compared.
type modelAnswer struct {
	Code        string // empty: success
	Message     string // of auth.credentials.invalid; the model has none but the error's own
	State       record.State
	Disclaimers []string // nil: not in the answer
	Captcha     bool
	Mnemocode   string
	Phone       string
	Email       string
	Question    string
	Method      tenant.Method
	Quality     bool
	Sent        []string // messages: type and recipient
	ExpiresIn   *int     // nil: not in the answer
	Device      bool     // the client is remembered as a device
	Factors     []string // of a step-up
	Factor      string
	Methods     []string // of a raised session

	stepUp string      // the token of a step-up
	token  string      // issued, or mailed in a link
	device string      // the token of the device
	digits string      // of the code that was sent
	lock   modelLock   // got with auth.restricted
	locks  []modelLock // the locks that are allowed
}

// A modelLock is the reason for a refusal and the time until it ends.
type modelLock struct {
	reason wire.Reason
	retry  time.Duration // Retry-After
}

// A modelRefusal ends a call. The check that fails panics with it, so that each step
// below reads like the contract's list of checks.
type modelRefusal modelAnswer

func refuse(code string) { panic(modelRefusal{Code: code}) }

// restricted refuses the call. The service may give any of these locks as the
// reason.
func (m *model) restricted(locks ...modelLock) {
	panic(modelRefusal{Code: "auth.restricted", locks: locks})
}

func (m *model) lock(reason wire.Reason, until time.Time) modelLock {
	return modelLock{reason, max(until.Sub(m.now), time.Second)}
}

// run calls step and turns a refusal into an answer.
func run(step func(*model, *modelCall) modelAnswer, m *model, c *modelCall) (answer modelAnswer) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case modelRefusal:
			answer = modelAnswer(cause)
		default:
			panic(cause)
		}
	}()
	return step(m, c)
}

// modelRoutes is the table of routes: the states that a route accepts, the fields
// that it requires, and what it does.
var modelRoutes = map[string]struct {
	from []record.State
	need []string
	run  func(*model, *modelCall) modelAnswer
}{
	"auth/login":                  {nil, []string{"login_id"}, (*model).login},
	"auth/checkpassword":          {[]record.State{"checkpassword"}, []string{"password"}, (*model).checkPassword},
	"auth/checkotp":               {[]record.State{"checkotp"}, nil, (*model).checkOTP},
	"auth/renewotp":               {[]record.State{"checkotp"}, nil, (*model).renewOTP},
	"auth/setpassword":            {[]record.State{"setpassword", "recovery-setpassword"}, []string{"new_password"}, (*model).setPassword},
	"auth/checkcredentials":       {nil, []string{"login_id", "password"}, (*model).checkCredentials},
	"auth/oauth":                  {nil, []string{"provider_id", "code", "redirect_uri"}, (*model).oauth},
	"auth/acceptdisclaimers":      {[]record.State{"acceptdisclaimers"}, nil, (*model).acceptDisclaimers},
	"auth/logout":                 {record.States[1:], nil, (*model).logout},
	"auth/recovery/recover":       {nil, []string{"login_id", "captcha_response"}, (*model).recover},
	"auth/recovery/checkotp":      {[]record.State{"recovery-checkotp"}, []string{"otp"}, (*model).recoveryCheckOTP},
	"auth/recovery/renewotp":      {[]record.State{"recovery-checkotp"}, nil, (*model).renewOTP},
	"auth/recovery/checkquestion": {[]record.State{"recovery-checkquestion"}, []string{"control_answer"}, (*model).checkQuestion},
	"auth/recovery/checklink":     {nil, []string{"token"}, (*model).checkLink},
	"stepup":                      {[]record.State{"authorized"}, nil, (*model).stepUp},
	"stepup/check":                {[]record.State{"authorized"}, []string{"stepup_token"}, (*model).checkStepUp},
}

// answer returns the answer that a route should give.
func (m *model) answer(c *modelCall) modelAnswer {
	return run(func(m *model, c *modelCall) modelAnswer {
		route, ok := modelRoutes[c.path]
		if !ok {
			panic("modelRoutes has no row for " + c.path)
		}
		if route.from != nil {
			m.session(c)
			if !slices.Contains(route.from, c.session.state) {
				refuse("auth.session.invalid")
			}
		}
		for _, field := range route.need {
			if v, ok := c.body[field]; !ok || v == "" {
				refuse("request.validation.failed")
			}
		}
		return route.run(m, c)
	}, m, c)
}

// protected returns the answer that the protected path should give. The request
// extends the session.
func (m *model) protected(c *modelCall) modelAnswer {
	return run(func(m *model, c *modelCall) modelAnswer {
		m.session(c)
		s := c.session
		if s.state != record.Authorized {
			refuse("auth.session.invalid")
		}
		if c.twice && !s.hasTwo() || c.fresh > 0 && m.now.Sub(s.proved) > c.fresh {
			refuse("auth.session.invalid")
		}
		s.extend(m.now.Add(time.Duration(s.company.Session.Idle)))
		return modelAnswer{Mnemocode: s.account.mnemocode}
	}, m, c)
}

// extend lets the session live until expires. The store may write up to a minute
// less, or a tenth of a short idle time.
func (s *modelSession) extend(expires time.Time) {
	if expires.After(s.ends) {
		expires = s.ends
	}
	early := expires.Add(-min(time.Minute, time.Duration(s.company.Session.Idle)/10))
	if expires.After(s.expires) {
		s.expires = expires
	}
	if early.After(s.early) {
		s.early = early
	}
}

// session finds the session of the Authorization header.
func (m *model) session(c *modelCall) {
	switch c.header {
	case "none":
		refuse("auth.header.missing")
	case "malformed":
		refuse("auth.header.invalid")
	}
	if code := m.find(c, c.token, false); code != "" {
		refuse(code)
	}
}

// find finds the session of a token or link (contract, section 3). Where the
// contract leaves the choice to the store, find follows the answer of the service.
func (m *model) find(c *modelCall, token string, link bool) (code string) {
	i := slices.IndexFunc(m.sessions, func(s *modelSession) bool { return s.token == token })
	if i < 0 {
		return "auth.token.invalid"
	}
	s := m.sessions[i]
	past := s.expired || !m.now.Before(s.expires)
	maybe := !m.now.Before(s.early)
	kept := s.state != record.CheckPassword // checkpassword sessions are not stored, so nothing records their end
	own := link == (s.state == record.MailedLink) && (c.company == nil || s.company == c.company)
	if own && (s.ended || s.unsure) && s.barred != nil && m.now.Before(s.expires) && c.path != "" && c.path != "auth/logout" &&
		!(s.company.Hardened && s.state == record.CheckOTP && s.barred.password == "") &&
		!((c.got.Code == "auth.token.invalid" || c.got.Code == "auth.token.expired") && (s.unsure || !m.now.Before(s.early))) {
		return "auth.user." + string(s.barred.status)
	}
	switch {
	case s.ended, link != (s.state == record.MailedLink), c.company != nil && s.company != c.company:
		return "auth.token.invalid"
	case c.got.Code == "auth.token.invalid" && (s.overLimit || s.forgotten || past && !m.now.Before(s.expires.Add(time.Hour))):
		s.ended = kept
		return "auth.token.invalid"
	case past, (maybe || s.passed) && c.got.Code == "auth.token.expired":
		s.expired = kept
		return "auth.token.expired"
	}
	c.session, c.device = s, s.device
	return ""
}

// Limits and locks

// allowed refuses an address with too many failures.
func (m *model) allowed(c *modelCall) {
	if b := c.company.budget("address " + c.origin()); b.full(m.now, c.company.Limits.FailuresPerAddress) {
		m.restricted(m.lock("limit.address", b.until))
	}
}

// mayLogIn refuses an address with too many failures or too many passwords.
func (m *model) mayLogIn(c *modelCall) {
	m.allowed(c)
	m.windowOpen("limit.logins", c.company.budget("logins "+c.origin()), c.company.Limits.LoginsPerAddress)
}

// giveBack takes a login off the address, since a provider did not answer. It does so for as
// many as the address may make.
func (m *model) giveBack(c *modelCall) {
	if back := c.company.budget("given back to " + c.origin()); !back.full(m.now, c.company.Limits.LoginsPerAddress) {
		back.add(m.now, c.company.Limits.LoginsPerAddress)
		c.company.budget("logins " + c.origin()).giveBack()
	}
}

// failed counts a failure of the address.
func (m *model) failed(c *modelCall) {
	c.company.budget("address "+c.origin()).add(m.now, c.company.Limits.FailuresPerAddress)
}

// budget returns the company's count with this name.
func (c *modelCompany) budget(name string) *modelCount {
	if c.budgets[name] == nil {
		c.budgets[name] = &modelCount{}
	}
	return c.budgets[name]
}

func (n *modelCount) full(now time.Time, rate tenant.Rate) bool {
	return n.n >= rate.N && now.Before(n.until)
}

// add counts an event. The first event opens a window.
func (n *modelCount) add(now time.Time, rate tenant.Rate) {
	if !now.Before(n.until) {
		*n = modelCount{until: now.Add(rate.Per)}
	}
	n.n++
	n.changed = now
}

// giveBack undoes add. The window that add has begun in place of an older one is gone, too.
func (n *modelCount) giveBack() {
	if n.n--; n.n == 0 {
		*n = modelCount{}
	}
}

// attempts returns the counts of the account or, without an account, of the login
// id.
func (m *model) attempts(c *modelCompany, a *modelAccount, loginID string) *modelAttempts {
	if a != nil {
		return &a.modelAttempts
	}
	if c.unknown[loginID] == nil {
		c.unknown[loginID] = &modelAttempts{}
	}
	return c.unknown[loginID]
}

// shown returns the counts that a stranger may learn from. In a hardened company
// those are the counts of the login id that was sent, whether or not it has an
// account.
func (m *model) shown(c *modelCompany, a *modelAccount, loginID string) *modelAttempts {
	if c.Hardened {
		a = nil
	}
	return m.attempts(c, a, loginID)
}

// tried returns the counts of wrong passwords that the call's count for: those of the
// known device, or those that a stranger may learn from.
func (m *model) tried(c *modelCall, a *modelAccount, loginID string) *modelAttempts {
	if c.device != nil {
		return &c.device.modelAttempts
	}
	return m.shown(c.company, a, loginID)
}

// public returns the public counts of an account's login ids, which only hardened
// companies have.
func (c *modelCompany) public(a *modelAccount) (public []*modelAttempts) {
	for _, id := range []string{a.phone, a.email, a.loginName} {
		if t := c.unknown[id]; t != nil && c.Hardened {
			public = append(public, t)
		}
	}
	return public
}

// passwordsOpen refuses passwords while they are locked. A lock by lock_after lasts
// for lock_for. A lock by disable_after lasts until a password is set or an operator
// unlocks the account.
func (m *model) passwordsOpen(c *modelCompany, t *modelAttempts) {
	if t.passwords.n >= c.Limits.DisableAfter {
		m.restricted(m.lock("lock.disabled", m.now.Add(time.Duration(c.Limits.LockFor))))
	}
	if m.now.Before(t.passwords.until) {
		m.restricted(m.lock("lock.password", t.passwords.until))
	}
}

// windowOpen refuses while the count of a window is full.
func (m *model) windowOpen(reason wire.Reason, n *modelCount, rate tenant.Rate) {
	if n.full(m.now, rate) {
		m.restricted(m.lock(reason, n.until))
	}
}

func captchaDue(c *modelCompany, t *modelAttempts) bool {
	return c.Captcha != nil && t.passwords.n >= *c.Limits.CaptchaAfter
}

// captcha verifies a response. Each response is valid once across all companies. A
// bad response is a failure of the address.
func (m *model) captcha(c *modelCall) {
	response, _ := c.body["captcha_response"].(string)
	used, ok := m.captchas[response]
	switch {
	case c.broken && strings.TrimSpace(response) == response:
		m.giveBack(c)
		refuse("service.unavailable")
	case !strings.HasPrefix(response, "good"), strings.TrimSpace(response) != response,
		ok && m.now.Before(used.Add(time.Hour)): // providers reject it after minutes
		m.failed(c)
		panic(modelRefusal{Code: "auth.captcha.invalid", Captcha: true})
	}
	m.captchas[response] = m.now
}

// admit refuses an account whose status is not active. A decoy (nil) has no status.
func admit(a *modelAccount) {
	if a != nil && a.status != record.StatusActive {
		refuse("auth.user." + string(a.status))
	}
}

// Accounts

func (c *modelCompany) find(is func(*modelAccount) bool) *modelAccount {
	if i := slices.IndexFunc(c.accounts, is); i >= 0 {
		return c.accounts[i]
	}
	return nil
}

func (c *modelCompany) byLoginID(id string) *modelAccount {
	return c.find(func(a *modelAccount) bool { return id != "" && (a.phone == id || a.email == id || a.loginName == id) })
}

// masked hides all but the first two and the last two digits of a phone.
func masked(phone string) string {
	if phone == "" {
		return ""
	}
	return phone[:3] + strings.Repeat("*", len(phone)-5) + phone[len(phone)-2:]
}
