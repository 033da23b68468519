package flows_test

import (
	"slices"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// weak returns passwords that no user may set. Each breaks one rule: the minimum
// length, the list of common passwords, the company's name.
func (c *modelCompany) weak() []string { return []string{"pass 1", "password1", c.Code + "-1"} }

// modelShort is too short for an account of a hardened company that has only a
// password to protect it.
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
	if s.state == record.SetPassword { // more may be pending by now than when the login began
		accepted = m.accept(c, a)
	}
	reply := modelAnswer{}
	sent := m.notice(c.company, message.NoticePasswordChanged, a)
	m.newPassword(a, password)
	for _, attempts := range c.company.public(a) {
		if attempts.passwords.n >= c.company.Limits.DisableAfter {
			attempts.passwords = modelCount{}
		}
	}
	if s.state == record.SetPassword {
		reply = m.enter(c, &modelSession{account: a, state: record.Authorized, accepted: accepted})
	}
	reply.Sent = sent
	return reply
}

// newPassword sets a password, revokes the account's sessions and clears its count
// of wrong passwords.
func (m *model) newPassword(a *modelAccount, password string) {
	a.password, a.mustSet, a.passwords = password, false, modelCount{}
	m.endAll(a)
}

// notice returns the message that notifies the owner of a change. An SMS counts
// against the company's and the country's SMS budgets and against a budget of its
// own per phone.
func (m *model) notice(c *modelCompany, what string, a *modelAccount) []string {
	switch {
	case a.email != "":
		return []string{what + " " + a.email}
	case a.phone == "" || !c.sendsTo(a.phone):
		return nil
	}
	l := &c.Limits
	budgets := map[*modelCount]tenant.Rate{c.budget("notices to phone " + a.phone): l.SMSPerPhone}
	if l.SMSPerCompany.N > 0 {
		budgets[c.budget("sms")] = l.SMSPerCompany
	}
	if l.SMSPerCountry.N > 0 {
		budgets[c.budget("sms to country "+c.country(a.phone))] = l.SMSPerCountry
	}
	for count, rate := range budgets {
		if count.full(m.now, rate) {
			return nil
		}
	}
	for count, rate := range budgets {
		count.add(m.now, rate)
	}
	return []string{what + " " + a.phone}
}

// country returns the country that a phone counts for. All phones of the model have
// the same country, except with sms_countries.
func (c *modelCompany) country(phone string) string {
	if len(c.Limits.SMSCountries) > 0 {
		return phone
	}
	return "+370"
}

// sendsTo reports whether sms_countries allows a phone. The model lists whole phone
// numbers there.
func (c *modelCompany) sendsTo(phone string) bool {
	return len(c.Limits.SMSCountries) == 0 || slices.Contains(c.Limits.SMSCountries, phone)
}

// endAll revokes all sessions of an account. In a hardened company, sessions that a
// stranger could have begun continue as decoys.
func (m *model) endAll(a *modelAccount) {
	for _, s := range m.sessions {
		if s.account == a && !s.ended && s.company.Hardened && (s.state == record.CheckPassword || s.state == record.RecoveryOTP) {
			s.account = nil
			if s.code != nil {
				s.code.digits = ""
			}
		}
	}
	m.endThose(func(s *modelSession) bool { return s.account == a })
	m.endDevices(a)
}

// statusChanged revokes the account's sessions after a change of status. If the
// account was active before, their tokens are answered with the status until the
// account is active again.
func (m *model) statusChanged(a *modelAccount, before record.Status) {
	for _, s := range m.sessions {
		switch {
		case a.status == record.StatusActive && s.barred == a:
			s.barred = nil
		case before == record.StatusActive && s.account == a && !s.ended && s.state == record.CheckPassword: // not stored, so the clock does not matter
			s.barred = a
		case before == record.StatusActive && s.account == a && !s.ended && !s.expired && m.now.Before(s.expires) &&
			!(s.company.Hardened && s.state == record.RecoveryOTP):
			s.barred, s.unsure = a, s.overLimit || s.forgotten || s.passed || !m.now.Before(s.early)
		}
	}
	m.endAll(a)
}

// forgetBarred lets these tokens no longer reveal a status.
func (m *model) forgetBarred(which func(*modelSession) bool) {
	for _, s := range m.sessions {
		if which(s) {
			s.barred = nil
		}
	}
}

// endThose revokes the sessions for which which returns true.
func (m *model) endThose(which func(*modelSession) bool) {
	for _, s := range m.sessions {
		switch {
		case !which(s):
		case s.state != record.CheckPassword && (s.expired || s.passed || !m.now.Before(s.expires)):
			s.expired, s.forgotten = true, true
		default:
			s.ended = true
		}
	}
}

func (m *model) acceptDisclaimers(c *modelCall) modelAnswer {
	a := c.session.account
	admit(a)
	return m.enter(c, &modelSession{account: a, state: record.Authorized, accepted: m.accept(c, a)})
}

func (m *model) logout(c *modelCall) modelAnswer {
	if c.session.state == record.CheckPassword { // anyone can begin such a session, so a logout counts like a password
		logins := c.company.budget("logins " + c.origin())
		m.windowOpen("limit.logins", logins, c.company.Limits.LoginsPerAddress)
		logins.add(m.now, c.company.Limits.LoginsPerAddress)
	}
	c.session.ended, c.session.barred = true, nil
	return modelAnswer{}
}
