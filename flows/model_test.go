package flows_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows"
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
	*flows.Company
	accounts []*modelAccount
	unknown  map[string]*modelAttempts // by a login id that no account had when it was sent
	budgets  map[string]*modelCount    // of SMS, mails, and what addresses may do
	grants   map[string]time.Time      // the codes that went to the provider
}

type modelAccount struct {
	key                     string // never given twice
	mnemocode               string
	phone, email, loginName string
	status                  flows.Status
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
	state     flows.State   // flows.MailedLink for a link
	ended     bool          // logged out, replaced or ended with its account's others
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
	State       flows.State
	Disclaimers []string // nil: not said
	Captcha     bool
	Mnemocode   string
	Phone       string
	Email       string
	Question    string
	Method      flows.Method
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
	reason flows.Reason
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

func (m *model) lock(reason flows.Reason, until time.Time) modelLock {
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
	from []flows.State
	need []string
	run  func(*model, *modelCall) modelAnswer
}{
	"auth/login":                  {nil, []string{"login_id"}, (*model).login},
	"auth/checkpassword":          {[]flows.State{"checkpassword"}, []string{"password"}, (*model).checkPassword},
	"auth/checkotp":               {[]flows.State{"checkotp"}, nil, (*model).checkOTP},
	"auth/renewotp":               {[]flows.State{"checkotp"}, nil, (*model).renewOTP},
	"auth/setpassword":            {[]flows.State{"setpassword", "recovery-setpassword"}, []string{"new_password"}, (*model).setPassword},
	"auth/checkcredentials":       {nil, []string{"login_id", "password"}, (*model).checkCredentials},
	"auth/oauth":                  {nil, []string{"provider_id", "code", "redirect_uri"}, (*model).oauth},
	"auth/acceptdisclaimers":      {[]flows.State{"acceptdisclaimers"}, nil, (*model).acceptDisclaimers},
	"auth/logout":                 {flows.States[1:], nil, (*model).logout},
	"auth/recovery/recover":       {nil, []string{"login_id", "captcha_response"}, (*model).recover},
	"auth/recovery/checkotp":      {[]flows.State{"recovery-checkotp"}, []string{"otp"}, (*model).recoveryCheckOTP},
	"auth/recovery/renewotp":      {[]flows.State{"recovery-checkotp"}, nil, (*model).renewOTP},
	"auth/recovery/checkquestion": {[]flows.State{"recovery-checkquestion"}, []string{"control_answer"}, (*model).checkQuestion},
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
		if s.state != flows.Authorized {
			refuse("auth.session.invalid")
		}
		s.prolong(m.now.Add(s.company.Idle))
		return modelAnswer{Mnemocode: s.account.mnemocode}
	}, m, c)
}

// prolong lets the session live until expires. Up to a minute less of it (a
// tenth of a short idle time) is written.
func (s *modelSession) prolong(expires time.Time) {
	if expires.After(s.ends) {
		expires = s.ends
	}
	early := expires.Add(-min(time.Minute, s.company.Idle/10))
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
	kept := s.state != flows.CheckPassword // else nobody notes what became of it
	switch {
	case s.ended, link != (s.state == flows.MailedLink), c.company != nil && s.company != c.company:
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

func (n *modelCount) full(now time.Time, rate flows.Rate) bool {
	return n.n >= rate.N && now.Before(n.until)
}

// add counts within a window that the first event opens.
func (n *modelCount) add(now time.Time, rate flows.Rate) {
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
		m.restricted(m.lock("lock.disabled", m.now.Add(c.Limits.LockFor)))
	}
	if m.now.Before(t.passwords.until) {
		m.restricted(m.lock("lock.password", t.passwords.until))
	}
}

// windowOpen is the same for what counts within a window.
func (m *model) windowOpen(reason flows.Reason, n *modelCount, rate flows.Rate) {
	if n.full(m.now, rate) {
		m.restricted(m.lock(reason, n.until))
	}
}

func captchaDue(c *modelCompany, t *modelAttempts) bool {
	return c.Captcha != nil && t.passwords.n >= c.Limits.CaptchaAfter
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
	if a != nil && a.status != flows.StatusActive {
		refuse("auth.user." + string(a.status))
	}
}

// Login

func (m *model) login(c *modelCall) modelAnswer {
	a := c.company.byLoginID(c.loginID)
	t := m.shown(c.company, a, c.loginID)
	byCode := a != nil && a.password == ""
	if c.company.Hardened && byCode && (a.phone == "" || a.status != flows.StatusActive) {
		a, byCode = nil, false // it can't log in, so it is as if there were none
	}
	m.allowed(c)
	if byCode { // there is no password to be disabled
		if m.now.Before(t.passwords.until) {
			m.restricted(m.lock("lock.password", t.passwords.until))
		}
		m.windowOpen("lock.codes", &a.codes, c.company.Limits.WrongCodes)
	} else {
		m.passwordsOpen(c.company, t)
	}
	if a == nil && !c.company.Hardened {
		m.failed(c)
		refuse("auth.loginid.notfound")
	}
	if !c.company.Hardened {
		admit(a)
	}
	state := flows.CheckPassword
	if byCode {
		state = flows.CheckOTP
		if a.phone == "" {
			refuse("auth.user.restricted")
		}
	}
	reply := m.enter(c, &modelSession{account: a, of: c.loginID, state: state})
	reply.Disclaimers = c.company.pending(a, nil)
	if c.company.Hardened {
		reply.Disclaimers = c.company.pending(&modelAccount{}, nil)
	}
	reply.Captcha = state == flows.CheckPassword && captchaDue(c.company, t)
	return reply
}

func (m *model) checkPassword(c *modelCall) modelAnswer {
	a := c.session.account
	before := func() { admit(a) }
	if c.company.Hardened {
		before = func() {}
	}
	m.password(c, a, m.shown(c.company, a, c.session.of), before, "auth.password.invalid")
	admit(a)
	return m.proven(c, a, false)
}

func (m *model) checkCredentials(c *modelCall) modelAnswer {
	a := c.company.byLoginID(c.loginID)
	m.password(c, a, m.shown(c.company, a, c.loginID), func() {}, "auth.credentials.invalid")
	admit(a)
	return m.proven(c, a, false)
}

// password takes one, right or wrong. An account that is not there has none.
func (m *model) password(c *modelCall, a *modelAccount, t *modelAttempts, before func(), wrong string) {
	m.mayLogIn(c)
	m.passwordsOpen(c.company, t)
	if captchaDue(c.company, t) {
		m.captcha(c)
	}
	before()
	c.company.budget("logins "+c.address).add(m.now, c.company.Limits.LoginsPerAddress)
	right := a != nil && a.password != "" && a.password == c.body["password"]
	if c.company.Hardened && a != nil { // what holds for the account shows only to whoever has its password
		own := &a.passwords
		switch {
		case own.n >= c.company.Limits.DisableAfter:
			right = false
		case m.now.Before(own.until) && right:
			m.restricted(m.lock("lock.password", own.until))
		case right:
			*own = modelCount{}
		default:
			own.wrong(m.now, c.company)
		}
	}
	if right {
		t.passwords = modelCount{}
		return
	}
	m.failed(c)
	t.passwords.wrong(m.now, c.company)
	panic(modelRefusal{Code: wrong, Captcha: captchaDue(c.company, t)})
}

// wrong counts a wrong password.
func (n *modelCount) wrong(now time.Time, c *modelCompany) {
	n.n++
	n.changed = now
	if n.n >= c.Limits.LockAfter {
		n.until = now.Add(c.Limits.LockFor)
	}
}

// proven goes on once a password or code was right: disclaimers, the second
// factor, a new password, or authorized.
func (m *model) proven(c *modelCall, a *modelAccount, secondDone bool) modelAnswer {
	next := &modelSession{account: a, accepted: m.accept(c, a)}
	switch {
	case !secondDone && c.company.needsSecond(a):
		m.windowOpen("lock.codes", &a.codes, c.company.Limits.WrongCodes)
		next.state = flows.CheckOTP
	case a.mustSet || a.password == "" && c.company.Password.Required:
		next.state = flows.SetPassword
	default:
		next.state = flows.Authorized
	}
	return m.enter(c, next)
}

func (c *modelCompany) needsSecond(a *modelAccount) bool {
	return c.SecondFactor == flows.SecondFactorRequired || c.SecondFactor == flows.SecondFactorPerAccount && a.secondFactor
}

// pending lists the disclaimers that were not accepted in their present version.
// A decoy has accepted all.
func (c *modelCompany) pending(a *modelAccount, accepted map[string]string) []string {
	pending := []string{}
	for _, d := range c.Disclaimers {
		if a != nil && a.accepted[d.Code] != d.Version && accepted[d.Code] != d.Version {
			pending = append(pending, d.Code)
		}
	}
	return pending
}

// accept adds what the body accepts to what the session has; all that is
// pending must be among it.
func (m *model) accept(c *modelCall, a *modelAccount) map[string]string {
	accepted := map[string]string{}
	if c.session != nil {
		accepted = maps.Clone(c.session.accepted)
	}
	pending := c.company.pending(a, accepted)
	codes, _ := c.body["accept_disclaimers"].([]string)
	for _, d := range c.company.Disclaimers {
		if slices.Contains(pending, d.Code) {
			if !slices.Contains(codes, d.Code) {
				panic(modelRefusal{Code: "auth.disclaimer.invalid", Disclaimers: pending})
			}
			accepted[d.Code] = d.Version
		}
	}
	return accepted
}

// enter begins a session, in place of the call's if it has one.
func (m *model) enter(c *modelCall, s *modelSession) modelAnswer {
	for _, other := range m.sessions { // also where what follows fails: the store has looked at them by then
		if other.account == s.account && other.state == s.state && !m.now.Before(other.early) {
			other.passed = true
		}
	}
	reply := modelAnswer{State: s.state}
	switch s.state {
	case flows.CheckOTP, flows.RecoveryOTP:
		if s.byApp = s.state == flows.CheckOTP && s.account.app != nil && s.account.password != ""; s.byApp {
			break
		}
		reply.Sent = m.sendCode(c, s)
		if s.account != nil && s.code != nil {
			reply.Phone = masked(s.account.phone)
		}
	case flows.SetPassword, flows.RecoveryPassword:
		reply.Quality = true
	case flows.Authorized:
		reply.Mnemocode = s.account.mnemocode
		maps.Copy(s.account.accepted, s.accepted)
	}
	s.company, s.token, s.begun = c.company, c.got.token, m.now
	s.expires = m.now.Add(c.company.Temporary)
	if s.state == flows.MailedLink {
		s.expires = m.now.Add(c.company.LinkTTL)
	}
	s.early, s.ends = s.expires, s.expires
	if s.state == flows.Authorized {
		s.ends = m.now.Add(c.company.Lifetime)
		s.expires = m.now.Add(min(c.company.Idle, c.company.Lifetime))
		s.early = s.expires
	}
	if s.accepted == nil {
		s.accepted = map[string]string{}
	}
	if c.session != nil {
		c.session.ended = true
	}
	m.sessions = append(m.sessions, s)
	if s.state == flows.Authorized {
		m.makeRoom(s)
	}
	reply.ExpiresIn = new(int(s.expires.Sub(m.now) / time.Second))
	return reply
}

// makeRoom ends the oldest of an account's authorized sessions. Which is the
// oldest of those that began at one moment, and whether one lives of which that
// is not sure, is the store's to say.
func (m *model) makeRoom(next *modelSession) {
	var others []*modelSession
	for _, s := range m.sessions {
		if s != next && s.account == next.account && s.state == flows.Authorized && !s.ended && !s.expired && m.now.Before(s.expires) {
			others = append(others, s)
		}
	}
	n := len(others) + 1 - next.company.Limits.SessionsPerAccount
	if n <= 0 {
		return
	}
	slices.SortStableFunc(others, func(a, b *modelSession) int { return a.begun.Compare(b.begun) })
	unsure := slices.ContainsFunc(others, func(s *modelSession) bool { return s.crowded || s.passed || !m.now.Before(s.early) })
	for _, s := range others {
		switch last := others[n-1].begun; {
		case s.begun.After(last):
		case unsure || s.begun.Equal(last):
			s.crowded = true
		default:
			s.ended = true
		}
	}
}

// One-time codes

// sendCode gives the session a code and returns the message that it goes out
// with. It charges each budget once, or none.
func (m *model) sendCode(c *modelCall, s *modelSession, renewals ...*modelCount) (sent []string) {
	a, l := s.account, &c.company.Limits
	if a != nil && a.phone == "" { // the backup codes are its second factor
		if len(a.backup) == 0 {
			refuse("auth.user.restricted")
		}
		return nil
	}
	type budget struct {
		reason flows.Reason
		count  *modelCount
		rate   flows.Rate
	}
	var budgets []budget
	for _, r := range renewals {
		budgets = append(budgets, budget{"limit.renewals", r, flows.Rate{N: c.company.OTPRenewals, Per: c.company.Temporary}})
	}
	hidden := c.company.Hardened && s.state == flows.RecoveryOTP // what is told is as of a decoy
	account, phone, fixed := "decoy "+s.of, "decoy "+s.of, ""
	if a != nil {
		fixed = c.company.OTPFixed[a.phone]
	}
	if a != nil && !hidden {
		account, phone = a.key, a.phone
	}
	company := budget{"limit.sms_company", c.company.budget("sms"), l.SMSPerCompany}
	own := func(account, phone string) []budget {
		return []budget{
			{"limit.sms_account", c.company.budget("sms to account " + account), l.SMSPerAccount},
			{"limit.sms_phone", c.company.budget("sms to phone " + phone), l.SMSPerPhone},
		}
	}
	country := ""
	if a != nil { // the phones of the model are of one, and one of them may be allowed
		country = "+370"
		if len(l.SMSCountries) > 0 {
			country = a.phone
		}
	}
	allowed := a == nil || c.company.sendsTo(a.phone)
	perCountry := budget{"limit.sms_country", c.company.budget("sms to country " + country), l.SMSPerCountry}
	if fixed == "" || hidden {
		budgets = append(append(budgets, own(account, phone)...),
			budget{"limit.sms_address", c.company.budget("sms for " + c.address), l.SMSPerAddress})
		if l.SMSPerCompany.N > 0 && a != nil && !hidden {
			budgets = append(budgets, company)
		}
		if l.SMSPerCountry.N > 0 && a != nil && !hidden {
			budgets = append(budgets, perCountry)
		}
	}
	var full []modelLock
	if fixed == "" && !hidden && !allowed {
		full = []modelLock{m.lock("limit.sms_country", m.now.Add(24*time.Hour))}
		budgets = nil // the rest is not looked at
	}
	for _, b := range budgets {
		if b.count.full(m.now, b.rate) {
			full = append(full, m.lock(b.reason, b.count.until))
		}
	}
	if full != nil && s.state == flows.CheckOTP && renewals == nil && len(a.backup) > 0 {
		if a.password == "" {
			strangers := c.company.budget("codeless logins of " + a.key)
			rate := flows.Rate{N: 30, Per: 10 * time.Minute}
			m.windowOpen("limit.sms_account", strangers, rate)
			strangers.add(m.now, rate)
		}
		return nil // a backup code will do
	}
	if decoy := a == nil || hidden; decoy && l.SMSPerCompany.N > 0 && company.count.full(m.now, company.rate) {
		full = append(full, m.lock(company.reason, company.count.until)) // it only looks
	}
	if full != nil {
		m.restricted(full...)
	}
	for _, b := range budgets {
		b.count.add(m.now, b.rate)
	}
	s.code = nil // the one before has ended
	if hidden && a != nil && fixed == "" {
		if a.codes.full(m.now, l.WrongCodes) {
			return nil
		}
		budgets := own(a.key, a.phone)
		if l.SMSPerCompany.N > 0 {
			budgets = append(budgets, company)
		}
		if l.SMSPerCountry.N > 0 {
			budgets = append(budgets, perCountry)
		}
		if !allowed {
			return nil
		}
		for _, b := range budgets {
			if b.count.full(m.now, b.rate) {
				return nil
			}
		}
		for _, b := range budgets {
			b.count.add(m.now, b.rate)
		}
	}
	code := &modelCode{digits: fixed, expires: m.now.Add(c.company.OTPTTL)}
	if a != nil && fixed == "" {
		code.digits = c.got.digits
		kind := flows.OTPLogin
		if s.state == flows.RecoveryOTP {
			kind = flows.OTPRecovery
		}
		sent = []string{kind + " " + a.phone}
		later := c.company.Hardened && s.state == flows.RecoveryOTP // than the answer
		switch {
		case c.broken && later:
			return sent
		case c.broken:
			panic(modelRefusal{Code: "service.unavailable", Sent: sent})
		}
	}
	s.code = code // a decoy's has no digits: nothing equals it
	return sent
}

// codeStep is what all requests of a session with codes are checked for.
func (m *model) codeStep(c *modelCall) {
	a := c.session.account
	m.allowed(c)
	if m.hides(c) {
		m.windowOpen("lock.codes", &m.shown(c.company, a, c.session.of).codes, c.company.Limits.WrongCodes)
		return
	}
	m.windowOpen("lock.codes", &m.attempts(c.company, a, c.session.of).codes, c.company.Limits.WrongCodes)
	admit(a)
}

// hides: a recovery of a hardened company tells nothing before the code was right.
func (m *model) hides(c *modelCall) bool {
	return c.company.Hardened && c.session.state == flows.RecoveryOTP
}

// tryCode spends the session's code. Only what is compared with one counts.
func (m *model) tryCode(c *modelCall) {
	if c.session.byApp {
		m.tryApp(c)
		return
	}
	code := c.session.code
	c.session.code = nil
	lives := code != nil && m.now.Before(code.expires)
	if lives && code.digits == c.body["otp"] {
		if m.hides(c) {
			m.windowOpen("lock.codes", &c.session.account.codes, c.company.Limits.WrongCodes)
			admit(c.session.account)
		}
		return
	}
	if lives {
		m.wrongCode(c)
	}
	refuse("auth.otp.invalid")
}

// tryApp takes the app's codes of now, and of one step back and forth, once.
func (m *model) tryApp(c *modelCall) {
	a := c.session.account
	for _, from := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} {
		at := m.now.Add(from)
		if flows.TOTPCode(a.app, at) != c.body["otp"] {
			continue
		}
		if a.used[at.Unix()/30] {
			refuse("auth.otp.invalid")
		}
		a.used[at.Unix()/30] = true
		return
	}
	m.wrongCode(c)
	refuse("auth.otp.invalid")
}

func (m *model) wrongCode(c *modelCall) {
	a := c.session.account
	m.failed(c)
	if m.hides(c) {
		m.shown(c.company, a, c.session.of).codes.add(m.now, c.company.Limits.WrongCodes)
		if a == nil || a.codes.full(m.now, c.company.Limits.WrongCodes) {
			return
		}
	}
	m.attempts(c.company, a, c.session.of).codes.add(m.now, c.company.Limits.WrongCodes)
}

func (m *model) checkOTP(c *modelCall) modelAnswer {
	otp, _ := c.body["otp"].(string)
	backup, _ := c.body["backup_code"].(string)
	if (otp == "") == (backup == "") {
		refuse("request.validation.failed")
	}
	m.codeStep(c)
	a := c.session.account
	if otp != "" {
		m.tryCode(c)
		return m.proven(c, a, true)
	}
	if !slices.Contains(a.backup, backup) {
		m.wrongCode(c)
		refuse("auth.backupcode.invalid")
	}
	reply := m.proven(c, a, true)
	a.backup = slices.DeleteFunc(a.backup, func(b string) bool { return b == backup })
	return reply
}

func (m *model) recoveryCheckOTP(c *modelCall) modelAnswer {
	m.codeStep(c)
	m.tryCode(c)
	return m.enter(c, &modelSession{account: c.session.account, state: flows.RecoveryPassword})
}

func (m *model) renewOTP(c *modelCall) modelAnswer {
	s := c.session
	m.codeStep(c)
	if s.state == flows.CheckOTP && s.account.phone == "" {
		refuse("request.validation.failed")
	}
	reply := modelAnswer{Sent: m.sendCode(c, s, &s.renewals)}
	s.byApp = false
	if s.account != nil && s.state == flows.CheckOTP {
		reply.Phone = masked(s.account.phone)
	}
	return reply
}

// New passwords and disclaimers

// weak are the passwords in use here that no user may set. They break one rule
// each: the length, the list of common ones, the company's name.
func (c *modelCompany) weak() []string { return []string{"pass 1", "password1", c.Code + "-1"} }

// modelShort has too few characters for an account of a hardened company whose
// password is all that protects it.
const modelShort = "twelve chars"

func (m *model) setPassword(c *modelCall) modelAnswer {
	s := c.session
	a := s.account
	password := c.body["new_password"].(string)
	admit(a)
	if slices.Contains(c.company.weak(), password) || password == modelShort && c.company.Hardened &&
		!c.company.needsSecond(a) {
		refuse("request.validation.failed")
	}
	if password == a.password {
		refuse("auth.password.invalid")
	}
	accepted := s.accepted
	if s.state == flows.SetPassword { // more may be pending than at the step that asked for them
		accepted = m.accept(c, a)
	}
	reply := modelAnswer{}
	sent := c.company.notice(flows.NoticePasswordChanged, a)
	m.newPassword(a, password)
	c.company.forgive(a, false)
	if s.state == flows.SetPassword {
		reply = m.enter(c, &modelSession{account: a, state: flows.Authorized, accepted: accepted})
	}
	reply.Sent = sent
	return reply
}

// newPassword ends all that the account has, and the count of wrong ones.
func (m *model) newPassword(a *modelAccount, password string) {
	a.password, a.mustSet, a.passwords = password, false, modelCount{}
	m.endAll(a)
}

// notice is the message that tells the owner of what happened.
func (c *modelCompany) notice(what string, a *modelAccount) []string {
	switch {
	case a.email != "":
		return []string{what + " " + a.email}
	case a.phone != "" && c.sendsTo(a.phone):
		return []string{what + " " + a.phone}
	}
	return nil
}

// sendsTo reports whether a phone is one of sms_countries, which the model has whole.
func (c *modelCompany) sendsTo(phone string) bool {
	return len(c.Limits.SMSCountries) == 0 || slices.Contains(c.Limits.SMSCountries, phone)
}

// endAll ends an account's sessions, codes and links. Whether the tokens of those
// that had expired before are now invalid is the store's choice.
func (m *model) endAll(a *modelAccount) {
	m.endThose(func(s *modelSession) bool { return s.account == a })
}

// endThose is endAll of a choice.
func (m *model) endThose(which func(*modelSession) bool) {
	for _, s := range m.sessions {
		switch {
		case !which(s):
		case s.expired, s.passed, !m.now.Before(s.expires):
			s.expired, s.forgotten = true, true
		default:
			s.ended = true
		}
	}
}

func (m *model) acceptDisclaimers(c *modelCall) modelAnswer {
	a := c.session.account
	admit(a)
	return m.enter(c, &modelSession{account: a, state: flows.Authorized, accepted: m.accept(c, a)})
}

func (m *model) logout(c *modelCall) modelAnswer {
	if c.session.state == flows.CheckPassword { // anyone can begin one: to end it counts as a password
		logins := c.company.budget("logins " + c.address)
		m.windowOpen("limit.logins", logins, c.company.Limits.LoginsPerAddress)
		logins.add(m.now, c.company.Limits.LoginsPerAddress)
	}
	c.session.ended = true
	return modelAnswer{}
}

// OAuth

// Provider 1 is configured, and vouches for the user and the email address
// <code>@example.com that the code names, unless that is bad.
func (m *model) oauth(c *modelCall) modelAnswer {
	if c.body["provider_id"] != 1 {
		refuse("request.validation.failed")
	}
	m.allowed(c)
	fail := func() {
		m.failed(c)
		refuse("auth.oauth.failed")
	}
	if c.body["redirect_uri"] != modelRedirect {
		fail()
	}
	m.mayLogIn(c)
	grant := c.body["code"].(string)
	if sent, again := c.company.grants[grant]; again && m.now.Before(sent.Add(time.Hour)) {
		fail()
	}
	c.company.grants[grant] = m.now
	c.company.budget("logins "+c.address).add(m.now, c.company.Limits.LoginsPerAddress)
	user, _, _ := strings.Cut(grant, " ")
	switch {
	case c.broken:
		refuse("service.unavailable")
	case user == "bad":
		fail()
	}
	var told []string
	a := c.company.find(func(a *modelAccount) bool { return a.subject == user })
	if a == nil && c.company.OAuth[1].LinkVerifiedEmail {
		a = c.company.find(func(a *modelAccount) bool { return a.email == user+"@example.com" })
		if a != nil && a.status == flows.StatusActive {
			if a.subject != "" { // bound to another user
				refuse("auth.oauth.notfound")
			}
			a.subject = user
			told = c.company.notice(flows.NoticeIdentityBound, a)
		}
	}
	if a == nil {
		refuse("auth.oauth.notfound")
	}
	admit(a)
	pending := c.company.pending(a, nil)
	var reply modelAnswer
	if len(pending) == 0 {
		reply = m.enter(c, &modelSession{account: a, state: flows.Authorized})
	} else {
		reply = m.enter(c, &modelSession{account: a, state: flows.AcceptDisclaimers})
		reply.Disclaimers = pending
	}
	reply.Sent = told
	return reply
}

// Recovery

func (m *model) recover(c *modelCall) modelAnswer {
	wanted, _ := c.body["method"].(string)
	if !slices.Contains([]string{"", "PHONE", "MAIL", "QUESTION"}, wanted) {
		refuse("request.validation.failed")
	}
	a := c.company.byLoginID(c.loginID)
	method, impossible := c.company.method(flows.Method(wanted), a)
	if c.company.Hardened { // it answers alike for whomever it can't help
		a, method, impossible = c.company.hardenedMethod(flows.Method(wanted), a)
	}
	t := m.shown(c.company, a, c.loginID)
	m.allowed(c)
	switch method {
	case flows.ByPhone:
		m.windowOpen("lock.codes", &t.codes, c.company.Limits.WrongCodes)
	case flows.ByQuestion:
		m.windowOpen("lock.answers", &t.answers, c.company.Limits.WrongAnswers)
	}
	if c.company.Captcha != nil {
		m.captcha(c)
	}
	if a == nil && !c.company.Hardened {
		m.failed(c)
		refuse("auth.loginid.notfound")
	}
	admit(a)
	if impossible != "" {
		refuse(impossible)
	}
	var reply modelAnswer
	switch method {
	case flows.ByPhone:
		reply = m.enter(c, &modelSession{account: a, of: c.loginID, state: flows.RecoveryOTP})
		if c.company.Hardened {
			reply.Phone = "" // a decoy has one, too: hardened_test.go
		}
	case flows.ByQuestion:
		reply = m.enter(c, &modelSession{account: a, state: flows.RecoveryQuestion})
		reply.Question = a.question
	case flows.ByMail:
		reply = m.mailLink(c, a)
	}
	reply.Method = method
	return reply
}

func (m *model) mailLink(c *modelCall, a *modelAccount) modelAnswer {
	key := "decoy " + c.loginID
	if !c.company.Hardened {
		key = a.key
	}
	mails := c.company.budget("mails to account " + key)
	m.windowOpen("limit.mails", mails, c.company.Limits.MailsPerAccount)
	mails.add(m.now, c.company.Limits.MailsPerAccount)
	reply := modelAnswer{}
	if c.company.Hardened {
		reply.Email = "***@***"
		if strings.Contains(c.loginID, "@") {
			reply.Email = strings.TrimSpace(c.body["login_id"].(string))
		}
	} else {
		reply.Email = a.email
	}
	if a == nil {
		return reply
	}
	if c.company.Hardened { // the account's own budget is not told of
		own := c.company.budget("mails to account " + a.key)
		if own.full(m.now, c.company.Limits.MailsPerAccount) {
			return reply
		}
		own.add(m.now, c.company.Limits.MailsPerAccount)
	}
	reply.Sent = []string{flows.RecoveryLink + " " + a.email}
	if c.broken && !c.company.Hardened {
		panic(modelRefusal{Code: "service.unavailable", Sent: reply.Sent})
	}
	for _, s := range m.sessions {
		s.ended = s.ended || s.account == a && s.state == flows.MailedLink // a newer link ends it
	}
	if !c.broken {
		m.enter(c, &modelSession{account: a, state: flows.MailedLink})
	}
	return reply
}

// method is the one that is asked for, or the first that the account can use,
// and the code that says why it can't be.
func (c *modelCompany) method(wanted flows.Method, a *modelAccount) (flows.Method, string) {
	if wanted == "" {
		wanted = c.Methods[0]
		for _, m := range slices.Backward(c.Methods) {
			if notSet(m, a) == "" {
				wanted = m
			}
		}
	}
	if !slices.Contains(c.Methods, wanted) {
		return wanted, "recovery.method.restricted"
	}
	return wanted, notSet(wanted, a)
}

func notSet(m flows.Method, a *modelAccount) string {
	switch {
	case a == nil || m == flows.ByPhone && a.phone == "":
		return "recovery.phone.notset"
	case m == flows.ByMail && a.email == "":
		return "recovery.email.notset"
	case m == flows.ByQuestion && a.question == "":
		return "recovery.question.notset"
	}
	return ""
}

// hardenedMethod chooses without regard to the account, and then without the
// account if that can't be recovered so: never by a question, nor by a phone
// that is its second factor.
func (c *modelCompany) hardenedMethod(wanted flows.Method, a *modelAccount) (*modelAccount, flows.Method, string) {
	methods := slices.DeleteFunc(slices.Clone(c.Methods), func(m flows.Method) bool { return m == flows.ByQuestion })
	if wanted == "" {
		wanted = methods[0]
	}
	if !slices.Contains(methods, wanted) {
		return nil, wanted, "recovery.method.restricted"
	}
	if a != nil && (a.status != flows.StatusActive || notSet(wanted, a) != "" || wanted == flows.ByPhone && c.needsSecond(a)) {
		a = nil
	}
	return a, wanted, ""
}

func (m *model) checkQuestion(c *modelCall) modelAnswer {
	a := c.session.account
	m.allowed(c)
	m.windowOpen("lock.answers", &a.answers, c.company.Limits.WrongAnswers)
	admit(a)
	if !strings.EqualFold(a.answer, c.body["control_answer"].(string)) {
		m.failed(c)
		a.answers.add(m.now, c.company.Limits.WrongAnswers)
		refuse("auth.controlanswer.invalid")
	}
	return m.enter(c, &modelSession{account: a, state: flows.RecoveryPassword})
}

func (m *model) checkLink(c *modelCall) modelAnswer {
	m.allowed(c)
	if code := m.find(c, c.body["token"].(string), true); code != "" {
		if code == "auth.token.invalid" {
			m.failed(c)
		}
		refuse(code)
	}
	return m.enter(c, &modelSession{account: c.session.account, state: flows.RecoveryPassword})
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
