package flows_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func (m *model) login(c *modelCall) modelAnswer {
	a := c.company.byLoginID(c.loginID)
	m.know(c, a)
	t := m.tried(c, a, c.loginID)
	byCode := a != nil && a.password == ""
	if c.company.Hardened && byCode && (a.phone == "" || a.status != record.StatusActive) {
		a, byCode = nil, false // it can't log in, so the login id counts as unknown
	}
	m.allowed(c)
	if byCode { // without a password, passwords can't be disabled
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
	state := record.CheckPassword
	if byCode {
		state = record.CheckOTP
		if a.phone == "" {
			refuse("auth.user.restricted")
		}
	}
	listed := m.lists(c)
	if state == record.CheckPassword { // its token knows it
		listed[c.company.listing()] = m.now.Add(1000 * time.Hour)
	}
	reply := m.enter(c, &modelSession{account: a, of: c.loginID, state: state, listed: listed})
	reply.Disclaimers = c.company.pending(a, nil)
	if c.company.Hardened {
		reply.Disclaimers = c.company.pending(&modelAccount{}, nil)
	}
	reply.Captcha = state == record.CheckPassword && captchaDue(c.company, t)
	return reply
}

func (m *model) checkPassword(c *modelCall) modelAnswer {
	a := cmp.Or(c.session.account, c.session.barred) // a client that knows the password learns the account's status
	before := func() { admit(a) }
	if c.company.Hardened {
		before = func() {}
	}
	m.know(c, a)
	m.password(c, a, m.tried(c, a, c.session.of), before, "auth.password.invalid")
	admit(a)
	return m.proven(c, a, false)
}

func (m *model) checkCredentials(c *modelCall) modelAnswer {
	a := c.company.byLoginID(c.loginID)
	m.know(c, a)
	m.password(c, a, m.tried(c, a, c.loginID), func() {}, "auth.credentials.invalid")
	admit(a)
	return m.proven(c, a, false)
}

// password checks a password. Without an account, every password is wrong.
func (m *model) password(c *modelCall, a *modelAccount, t *modelAttempts, before func(), wrong string) {
	m.mayLogIn(c)
	m.passwordsOpen(c.company, t)
	due := captchaDue(c.company, t)
	if due && c.body["captcha_response"] == nil {
		panic(modelRefusal{Code: "auth.captcha.missing", Captcha: true})
	}
	if !due {
		before()
	}
	c.company.budget("logins "+c.origin()).add(m.now, c.company.Limits.LoginsPerAddress)
	if due {
		m.captcha(c)
		before()
	}
	right := a != nil && a.password != "" && a.password == c.body["password"]
	if c.company.Hardened && a != nil { // only clients that know the password may see the account's own lock
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
		if !c.company.Hardened || c.device != nil { // otherwise strangers would see the login
			t.passwords = modelCount{}
		}
		c.captchaDue = captchaDue(c.company, t)
		return
	}
	m.failed(c)
	t.passwords.wrong(m.now, c.company)
	panic(modelRefusal{Code: wrong, Captcha: captchaDue(c.company, t)})
}

// wrong counts a wrong password. During a lock it does not extend it.
func (n *modelCount) wrong(now time.Time, c *modelCompany) {
	n.n++
	n.changed = now
	if n.n >= c.Limits.LockAfter && !now.Before(n.until) {
		n.until = now.Add(time.Duration(c.Limits.LockFor))
	}
}

// proven starts the next session once a password or code was right: the second
// factor, a new password, or authorized. Pending disclaimers must be accepted first.
func (m *model) proven(c *modelCall, a *modelAccount, secondDone bool) modelAnswer {
	next := &modelSession{account: a, accepted: m.accept(c, a), methods: []string{c.proof()}}
	switch {
	case !secondDone && c.company.needsSecond(a) && !m.skipsSecond(c):
		m.windowOpen("lock.codes", &a.codes, c.company.Limits.WrongCodes)
		next.state = record.CheckOTP
	case a.mustSet || a.password == "" && *c.company.Password.Required:
		next.state = record.SetPassword
	default:
		next.state = record.Authorized
	}
	return m.enter(c, next)
}

// proof names what the user has just given.
func (c *modelCall) proof() string {
	switch {
	case c.path != "auth/checkotp":
		return "pwd"
	case c.body["backup_code"] != nil:
		return "backup"
	case c.session.byApp:
		return "otp"
	}
	return "sms"
}

func (c *modelCompany) needsSecond(a *modelAccount) bool {
	return c.SecondFactor == tenant.SecondFactorRequired || c.SecondFactor == tenant.SecondFactorPerAccount && a.secondFactor
}

// pending lists the disclaimers whose current version is not accepted yet. A decoy
// has accepted all.
func (c *modelCompany) pending(a *modelAccount, accepted map[string]modelAcceptance) []string {
	pending := []string{}
	for _, d := range c.Disclaimers {
		if a != nil && a.accepted[d.Code].version != d.Version && accepted[d.Code].version != d.Version {
			pending = append(pending, d.Code)
		}
	}
	return pending
}

// listing names the versions of all disclaimers.
func (c *modelCompany) listing() (all string) {
	for _, d := range c.Disclaimers {
		all += d.Code + "@" + d.Version + " "
	}
	return all
}

// lists notes that an answer lists the disclaimers as they are now.
func (m *model) lists(c *modelCall) map[string]time.Time {
	return map[string]time.Time{c.company.listing(): m.now.Add(time.Hour)}
}

// accept adds the disclaimers that the body accepts to those of the session.
// Together they must include all that are pending, and an answer to this login must have
// listed these.
func (m *model) accept(c *modelCall, a *modelAccount) map[string]modelAcceptance {
	accepted := map[string]modelAcceptance{}
	if c.session != nil {
		accepted = maps.Clone(c.session.accepted)
		current := map[string]string{}
		for _, d := range c.company.Disclaimers {
			current[d.Code] = d.Version
		}
		maps.DeleteFunc(accepted, func(code string, x modelAcceptance) bool { return current[code] != x.version })
	}
	pending := c.company.pending(a, accepted)
	codes, _ := c.body["accept_disclaimers"].([]string)
	listed := c.session == nil || m.now.Before(c.session.listed[c.company.listing()])
	for _, d := range c.company.Disclaimers {
		if slices.Contains(pending, d.Code) {
			if !listed || !slices.Contains(codes, d.Code) {
				if !listed {
					maps.Copy(c.session.listed, m.lists(c))
				}
				panic(modelRefusal{Code: "auth.disclaimer.invalid", Disclaimers: pending, Captcha: c.captchaDue})
			}
			accepted[d.Code] = modelAcceptance{d.Version, m.now}
		}
	}
	return accepted
}

// enter starts a session. It replaces the session of the call, if there is one.
func (m *model) enter(c *modelCall, s *modelSession) modelAnswer {
	for _, other := range m.sessions { // even if enter fails below: the store has read them by then
		if other.account == s.account && other.state == s.state && !m.now.Before(other.early) {
			other.passed = true
		}
	}
	reply := modelAnswer{State: s.state}
	if s.state != record.CheckPassword { // its token does not hold the device
		s.device = c.device
	}
	if s.listed == nil {
		s.listed = map[string]time.Time{}
	}
	if c.session != nil {
		s.methods = append(slices.Clone(c.session.methods), s.methods...)
		s.listed = c.session.listed
	}
	switch s.state {
	case record.CheckOTP, record.RecoveryOTP:
		if s.byApp = s.state == record.CheckOTP && s.account.app != nil && s.account.password != ""; s.byApp {
			break
		}
		reply.Sent = m.sendCode(c, s)
		if s.account != nil && s.code != nil {
			reply.Phone = masked(s.account.phone)
		}
	case record.SetPassword, record.RecoveryPassword:
		reply.Quality = true
	case record.Authorized:
		reply.Mnemocode = s.account.mnemocode
		for code, x := range s.accepted {
			if !x.at.Before(s.account.accepted[code].at) { // it may have taken longer than a login that accepted another version
				s.account.accepted[code] = x
			}
		}
	}
	s.company, s.token, s.begun, s.proved = c.company, c.got.token, m.now, m.now
	s.expires = m.now.Add(time.Duration(c.company.Session.Temporary))
	if s.state == record.MailedLink {
		s.expires = m.now.Add(time.Duration(c.company.Recovery.LinkTTL))
	}
	s.early, s.ends = s.expires, s.expires
	if s.state == record.Authorized {
		s.ends = m.now.Add(time.Duration(c.company.Session.Lifetime))
		s.expires = m.now.Add(min(time.Duration(c.company.Session.Idle), time.Duration(c.company.Session.Lifetime)))
		s.early = s.expires
	}
	if s.accepted == nil {
		s.accepted = map[string]modelAcceptance{}
	}
	if c.session != nil {
		c.session.ended, c.session.barred = true, nil
	}
	m.sessions = append(m.sessions, s)
	if s.state == record.Authorized {
		m.makeRoom(s)
	}
	reply.ExpiresIn = new(int(s.expires.Sub(m.now) / time.Second))
	if s.state == record.Authorized && c.company.Devices.For != 0 && c.body["remember_device"] == true {
		reply.Device = true
		m.remember(c, s)
	}
	return reply
}

// makeRoom revokes an account's oldest authorized sessions. The store decides which
// is the oldest of sessions that began at the same time, and whether a session is
// live if the model can't know.
func (m *model) makeRoom(next *modelSession) {
	var others []*modelSession
	for _, s := range m.sessions {
		if s != next && s.account == next.account && s.state == record.Authorized && !s.ended && !s.expired && m.now.Before(s.expires) {
			others = append(others, s)
		}
	}
	n := len(others) + 1 - next.company.Limits.SessionsPerAccount
	if n <= 0 {
		return
	}
	slices.SortStableFunc(others, func(a, b *modelSession) int { return a.begun.Compare(b.begun) })
	unsure := slices.ContainsFunc(others, func(s *modelSession) bool { return s.overLimit || s.passed || !m.now.Before(s.early) })
	for _, s := range others {
		switch last := others[n-1].begun; {
		case s.begun.After(last):
		case unsure || s.begun.Equal(last):
			s.overLimit = true
		default:
			s.ended = true
		}
	}
}
