package flows_test

import (
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This is the protocol once more, as small as it can be said: what a client is
// told, and what is counted, if requests come one after another. It is written
// from the interface document and the contract, not from the flows, and shares
// with them only the settings of a company. machine_test.go compares the two.

// A model is what a service should know.
type model struct {
	now       time.Time
	companies []*modelCompany
	captchas  map[string]time.Time // the responses that were used
	sessions  []*modelSession      // all that ever were, mailed links among them, in the order of their tokens' issue
}

type modelCompany struct {
	*tenant.Company
	accounts []*modelAccount
	unknown  map[string]*modelAttempts // by a login id that no account had when it was sent
	budgets  map[string]*modelCount    // of SMS, mails, and what addresses may do
	grants   map[string]time.Time      // the codes that went to the provider
}

type modelAccount struct {
	key                     string // never given twice
	mnemocode               string
	phone, email, loginName string
	status                  record.Status
	secondFactor, mustSet   bool
	password                string // empty for none
	question, answer        string
	subject                 string            // at provider 1; empty for none
	accepted                map[string]string // disclaimers, with their versions
	backup                  []string          // codes that are left
	app                     []byte            // the secret of the authenticator app; nil for none
	used                    map[int64]bool    // the app's codes, by their steps of 30 s
	modelAttempts
}

// modelAttempts are the wrong attempts of an account or an unknown login id.
type modelAttempts struct{ passwords, codes, answers modelCount }

// A modelCount is a count with the end of its lock or window.
type modelCount struct {
	n       int
	until   time.Time
	changed time.Time // as a store sees it, which forgets unknown login ids after a day
}

type modelSession struct {
	token     string
	company   *modelCompany
	account   *modelAccount // nil for a decoy
	of        string        // the login id that a decoy stands for
	state     record.State  // record.MailedLink for a link
	ended     bool          // logged out, replaced or ended with its account's others
	barred    *modelAccount // whose status ended it, for as long as that is not active again
	unsure    bool          // it may have been gone already when that ended it
	expired   bool          // its client was told so
	forgotten bool          // the store may have forgotten that it was there
	crowded   bool          // it may have made room for a younger one
	passed    bool          // the store may have noted that it has expired
	begun     time.Time
	expires   time.Time
	early     time.Time // from here on it may have expired: activity is written once a minute
	ends      time.Time // its lifetime
	code      *modelCode
	byApp     bool              // the app's code is the one
	accepted  map[string]string // disclaimers accepted on the way
	renewals  modelCount
}

type modelCode struct {
	digits  string
	expires time.Time
}

// A modelCall is one request. What the gateways were given is the only thing of
// the answer that the model has to be told: codes, links and tokens are drawn.
type modelCall struct {
	company *modelCompany
	address string
	path    string
	header  string // "none", "malformed", or empty for the token
	token   string
	loginID string // of the body, normalised
	body    object
	broken  bool // gateways and providers don't answer
	got     modelAnswer
	session *modelSession // of the token, once it is found good
}

// A modelAnswer is all that is compared of an answer.
type modelAnswer struct {
	Code        string // empty: success
	State       record.State
	Disclaimers []string // nil: not said
	Captcha     bool
	Mnemocode   string
	Phone       string
	Email       string
	Question    string
	Method      tenant.Method
	Quality     bool
	Sent        []string // messages: type and recipient
	ExpiresIn   *int     // nil: not said

	token  string      // that was issued, or that was mailed in a link
	digits string      // of the code that was sent
	lock   modelLock   // with auth.restricted
	locks  []modelLock // that it may be
}

// A modelLock is why a request is refused, and for how long.
type modelLock struct {
	reason wire.Reason
	retry  time.Duration // Retry-After
}

// A modelRefusal ends a call: the check that fails panics with it, so that each
// step below reads as the contract's list of checks.
type modelRefusal modelAnswer

func refuse(code string) { panic(modelRefusal{Code: code}) }

// restricted refuses by any of these locks.
func (m *model) restricted(locks ...modelLock) {
	panic(modelRefusal{Code: "auth.restricted", locks: locks})
}

func (m *model) lock(reason wire.Reason, until time.Time) modelLock {
	return modelLock{reason, max(until.Sub(m.now), time.Second)}
}

// run turns a refusal into the answer that it is.
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

// modelRoutes is the table of the interface: which states a route takes, which
// fields it needs, and what it does.
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
}

// answer is what a route has to answer.
func (m *model) answer(c *modelCall) modelAnswer {
	return run(func(m *model, c *modelCall) modelAnswer {
		route := modelRoutes[c.path]
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

// protected is what the protected path has to answer. It is a request that
// prolongs the session.
func (m *model) protected(c *modelCall) modelAnswer {
	return run(func(m *model, c *modelCall) modelAnswer {
		m.session(c)
		s := c.session
		if s.state != record.Authorized {
			refuse("auth.session.invalid")
		}
		s.prolong(m.now.Add(time.Duration(s.company.Session.Idle)))
		return modelAnswer{Mnemocode: s.account.mnemocode}
	}, m, c)
}

// prolong lets the session live until expires. Up to a minute less of it (a
// tenth of a short idle time) is written.
func (s *modelSession) prolong(expires time.Time) {
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

// find finds the session of a token or link (contract, 3). Where the contract
// lets the store choose, the answer that was got decides.
func (m *model) find(c *modelCall, token string, link bool) (code string) {
	i := slices.IndexFunc(m.sessions, func(s *modelSession) bool { return s.token == token })
	if i < 0 {
		return "auth.token.invalid"
	}
	s := m.sessions[i]
	past := s.expired || !m.now.Before(s.expires)
	maybe := !m.now.Before(s.early)
	kept := s.state != record.CheckPassword // else nobody notes what became of it
	own := link == (s.state == record.MailedLink) && (c.company == nil || s.company == c.company)
	if own && (s.ended || s.unsure) && s.barred != nil && m.now.Before(s.expires) && c.path != "" && c.path != "auth/logout" &&
		!(s.company.Hardened && s.state == record.CheckOTP && s.barred.password == "") &&
		!((c.got.Code == "auth.token.invalid" || c.got.Code == "auth.token.expired") && (s.unsure || !m.now.Before(s.early))) {
		return "auth.user." + string(s.barred.status)
	}
	switch {
	case s.ended, link != (s.state == record.MailedLink), c.company != nil && s.company != c.company:
		return "auth.token.invalid"
	case c.got.Code == "auth.token.invalid" && (s.crowded || s.forgotten || past && !m.now.Before(s.expires.Add(time.Hour))):
		s.ended = kept
		return "auth.token.invalid"
	case past, (maybe || s.passed) && c.got.Code == "auth.token.expired":
		s.expired = kept
		return "auth.token.expired"
	}
	c.session = s
	return ""
}

// Rates and locks

// allowed refuses an address that has failed too often.
func (m *model) allowed(c *modelCall) {
	if b := c.company.budget("address " + c.address); b.full(m.now, c.company.Limits.FailuresPerAddress) {
		m.restricted(m.lock("limit.address", b.until))
	}
}

// mayLogIn refuses an address that has failed, or sent passwords, too often.
func (m *model) mayLogIn(c *modelCall) {
	m.allowed(c)
	m.windowOpen("limit.logins", c.company.budget("logins "+c.address), c.company.Limits.LoginsPerAddress)
}

// failed counts a failure of the address.
func (m *model) failed(c *modelCall) {
	c.company.budget("address "+c.address).add(m.now, c.company.Limits.FailuresPerAddress)
}

// budget is a count of the company by its name.
func (c *modelCompany) budget(name string) *modelCount {
	if c.budgets[name] == nil {
		c.budgets[name] = &modelCount{}
	}
	return c.budgets[name]
}

func (n *modelCount) full(now time.Time, rate tenant.Rate) bool {
	return n.n >= rate.N && now.Before(n.until)
}

// add counts within a window that the first event opens.
func (n *modelCount) add(now time.Time, rate tenant.Rate) {
	if !now.Before(n.until) {
		*n = modelCount{until: now.Add(rate.Per)}
	}
	n.n++
	n.changed = now
}

// attempts are those of an account or, where there is none, of the login id.
func (m *model) attempts(c *modelCompany, a *modelAccount, loginID string) *modelAttempts {
	if a != nil {
		return &a.modelAttempts
	}
	if c.unknown[loginID] == nil {
		c.unknown[loginID] = &modelAttempts{}
	}
	return c.unknown[loginID]
}

// shown are the attempts that a stranger is told of: in a hardened company those
// of the login id that was sent, whoever has it.
func (m *model) shown(c *modelCompany, a *modelAccount, loginID string) *modelAttempts {
	if c.Hardened {
		a = nil
	}
	return m.attempts(c, a, loginID)
}

// forgive clears what strangers are told of an account's wrong passwords, and of
// all else.
func (c *modelCompany) forgive(a *modelAccount, all bool) {
	for _, id := range []string{a.phone, a.email, a.loginName} {
		if t := c.unknown[id]; t != nil && c.Hardened {
			t.passwords = modelCount{}
			if all {
				*t = modelAttempts{}
			}
		}
	}
}

// passwordsOpen: lock_after lasts for lock_for, disable_after until a password
// is set or an operator unlocks.
func (m *model) passwordsOpen(c *modelCompany, t *modelAttempts) {
	if t.passwords.n >= c.Limits.DisableAfter {
		m.restricted(m.lock("lock.disabled", m.now.Add(time.Duration(c.Limits.LockFor))))
	}
	if m.now.Before(t.passwords.until) {
		m.restricted(m.lock("lock.password", t.passwords.until))
	}
}

// windowOpen is the same for what counts within a window.
func (m *model) windowOpen(reason wire.Reason, n *modelCount, rate tenant.Rate) {
	if n.full(m.now, rate) {
		m.restricted(m.lock(reason, n.until))
	}
}

func captchaDue(c *modelCompany, t *modelAttempts) bool {
	return c.Captcha != nil && t.passwords.n >= *c.Limits.CaptchaAfter
}

// captcha looks at a response; each is good once, in whichever company. A bad one
// is a failure of the address.
func (m *model) captcha(c *modelCall) {
	response, _ := c.body["captcha_response"].(string)
	used, ok := m.captchas[response]
	switch {
	case response == "":
		panic(modelRefusal{Code: "auth.captcha.missing", Captcha: true})
	case c.broken && strings.TrimSpace(response) == response:
		refuse("service.unavailable")
	case !strings.HasPrefix(response, "good"), strings.TrimSpace(response) != response,
		ok && m.now.Before(used.Add(time.Hour)): // no provider takes it after minutes
		m.failed(c)
		panic(modelRefusal{Code: "auth.captcha.invalid", Captcha: true})
	}
	m.captchas[response] = m.now
}

// admit refuses an account by its status. A decoy (nil) has none.
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

// masked keeps the first two and the last two digits of a phone.
func masked(phone string) string {
	if phone == "" {
		return ""
	}
	return phone[:3] + strings.Repeat("*", len(phone)-5) + phone[len(phone)-2:]
}
