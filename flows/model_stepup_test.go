package flows_test

import (
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A modelStepUp is a step-up that was begun.
type modelStepUp struct {
	token   string
	session *modelSession
	wanted  string
	factor  string
	expires time.Time
	used    time.Time // zero if it was not used
}

// hasTwo reports whether two factors were given.
func (s *modelSession) hasTwo() bool { return len(s.methods) > 1 }

// use extends the session, and returns until when it lives without another request.
func (s *modelSession) use(m *model) time.Time {
	idle := m.now.Add(time.Duration(s.company.Session.Idle))
	s.extend(idle)
	if idle.After(s.ends) {
		return s.ends
	}
	return idle
}

// stepUpFactors lists what would raise a session, best first. The model has no passkeys.
func (m *model) stepUpFactors(s *modelSession, wanted string) (factors []string) {
	a := s.account
	_, fixed := s.company.FixedCode(a.phone)
	has := map[string]bool{
		"otp": a.app != nil, "sms": a.phone != "" && (fixed || s.company.sendsTo(a.phone)),
		"backup": len(a.backup) > 0, "pwd": a.password != "",
	}
	order := []string{"otp", "sms", "backup", "pwd"}
	if wanted == "fresh" {
		order = []string{"pwd", "otp", "sms"}
	}
	for _, factor := range order {
		if has[factor] && (wanted == "fresh" || !slices.Contains(s.methods, factor)) {
			factors = append(factors, factor)
		}
	}
	return factors
}

func (m *model) stepUp(c *modelCall) modelAnswer {
	s := c.session
	admit(s.account)
	wanted, _ := c.body["for"].(string)
	if wanted == "" {
		wanted = map[bool]string{true: "fresh", false: "mfa"}[s.hasTwo()]
	}
	factors := m.stepUpFactors(s, wanted)
	if len(factors) == 0 {
		refuse("auth.user.restricted")
	}
	named, _ := c.body["factor"].(string)
	if named != "" && !slices.Contains(factors, named) {
		refuse("request.validation.failed")
	}
	factor := factors[0]
	if named != "" {
		factor = named
	} else if s.account.codes.full(m.now, c.company.Limits.WrongCodes) && slices.Contains(factors, "pwd") {
		factor = "pwd"
	}
	idle := s.use(m)
	var reply modelAnswer
	if factor == "sms" {
		reply = run(func(m *model, c *modelCall) modelAnswer {
			m.codeStep(c)
			sent := m.sendCode(c, s)
			s.code.of = c.got.stepUp
			return modelAnswer{Sent: sent, Phone: masked(s.account.phone)}
		}, m, c)
		if reply.Code != "" { // the next factor, if only the SMS failed
			next := slices.Index(factors, "sms") + 1
			unsent := reply.Code == "service.unavailable" || slices.ContainsFunc(reply.locks, func(l modelLock) bool { return len(l.reason) > 10 && l.reason[:10] == "limit.sms_" })
			if named != "" || !unsent || next == len(factors) {
				panic(modelRefusal(reply))
			}
			factor, reply = factors[next], modelAnswer{Sent: reply.Sent}
		}
	}
	expires := m.now.Add(time.Duration(c.company.Session.Temporary))
	if expires.After(idle) {
		expires = idle
	}
	m.stepUps = append(m.stepUps, &modelStepUp{token: c.got.stepUp, session: s, wanted: wanted, factor: factor, expires: expires})
	reply.Factors, reply.Factor = factors, factor
	reply.ExpiresIn = new(int(expires.Sub(m.now) / time.Second))
	return reply
}

func (m *model) checkStepUp(c *modelCall) modelAnswer {
	s := c.session
	a := s.account
	otp, hasOTP := c.body["otp"].(string)
	backup, hasBackup := c.body["backup_code"].(string)
	password, hasPassword := c.body["password"].(string)
	i := slices.IndexFunc(m.stepUps, func(u *modelStepUp) bool { return u.token == c.body["stepup_token"] })
	if i < 0 || m.stepUps[i].session != s || !m.stepUps[i].used.IsZero() || !m.now.Before(m.stepUps[i].expires) {
		refuse("request.validation.failed")
	}
	u := m.stepUps[i]
	admit(a)
	factor := "otp"
	switch {
	case hasBackup:
		factor = "backup"
	case hasPassword:
		factor = "pwd"
	case u.factor == "sms":
		factor = "sms"
	}
	wanted := u.wanted
	if wanted == "mfa" && s.hasTwo() {
		wanted = "fresh"
	}
	if !slices.Contains(m.stepUpFactors(s, wanted), factor) || hasOTP && len(otp) != 6 || hasBackup && len(strings.ReplaceAll(backup, "-", "")) != 10 {
		refuse("request.validation.failed")
	}
	switch factor {
	case "sms":
		m.allowed(c)
		code := s.code
		s.code = nil
		m.codeStep(c)
		lives := code != nil && m.now.Before(code.expires)
		if !lives || code.digits != otp || code.of != u.token {
			if lives {
				m.wrongCode(c)
			}
			refuse("auth.otp.invalid")
		}
	case "otp":
		m.windowOpen("lock.codes", &a.codes, c.company.Limits.WrongCodes)
		m.allowed(c)
		m.tryApp(c)
	case "backup":
		m.codeStep(c)
		m.mayLogIn(c)
		c.company.budget("logins "+c.origin()).add(m.now, c.company.Limits.LoginsPerAddress)
		if !slices.Contains(a.backup, backup) {
			m.wrongCode(c)
			refuse("auth.backupcode.invalid")
		}
		a.backup = slices.DeleteFunc(a.backup, func(b string) bool { return b == backup })
	case "pwd":
		c.device = nil // the client does not show that it is one
		m.passwordsOpen(c.company, &a.modelAttempts)
		m.mayLogIn(c)
		c.company.budget("logins "+c.origin()).add(m.now, c.company.Limits.LoginsPerAddress)
		if password != a.password {
			m.failed(c)
			a.passwords.wrong(m.now, c.company)
			refuse("auth.password.invalid")
		}
		a.passwords = modelCount{}
	}
	u.used = m.now
	if !slices.Contains(s.methods, factor) {
		s.methods = append(s.methods, factor)
	}
	s.proved = m.now
	idle := s.use(m)
	words := slices.Clone(s.methods)
	if s.hasTwo() {
		words = append(words, "mfa")
	}
	return modelAnswer{State: record.Authorized, Methods: words, ExpiresIn: new(int(idle.Sub(m.now) / time.Second))}
}
