package flows_test

import (
	"slices"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

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
	if s.state == record.SetPassword { // more may be pending than at the step that asked for them
		accepted = m.accept(c, a)
	}
	reply := modelAnswer{}
	sent := m.notice(c.company, message.NoticePasswordChanged, a)
	m.newPassword(a, password)
	c.company.forgive(a, false)
	if s.state == record.SetPassword {
		reply = m.enter(c, &modelSession{account: a, state: record.Authorized, accepted: accepted})
	}
	reply.Sent = sent
	return reply
}

// newPassword ends all that the account has, and the count of wrong ones.
func (m *model) newPassword(a *modelAccount, password string) {
	a.password, a.mustSet, a.passwords = password, false, modelCount{}
	m.endAll(a)
}

// notice is the message that tells the owner of what happened. An SMS is within
// the budgets of SMS, but has one of its own per phone.
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

// country is what a phone counts for: the model's are all of one, unless there are
// sms_countries.
func (c *modelCompany) country(phone string) string {
	if len(c.Limits.SMSCountries) > 0 {
		return phone
	}
	return "+370"
}

// sendsTo reports whether a phone is one of sms_countries, which the model has whole.
func (c *modelCompany) sendsTo(phone string) bool {
	return len(c.Limits.SMSCountries) == 0 || slices.Contains(c.Limits.SMSCountries, phone)
}

// endAll ends all that an account has. In a hardened company what strangers can
// have of anyone goes on as a decoy.
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
}

// statusChanged does what a change of status does to sessions: it ends them, and
// the tokens that it ends as the account stops being active tell of it until it
// is active again.
func (m *model) statusChanged(a *modelAccount, before record.Status) {
	for _, s := range m.sessions {
		switch {
		case a.status == record.StatusActive && s.barred == a:
			s.barred = nil
		case before == record.StatusActive && s.account == a && !s.ended && s.state == record.CheckPassword: // not stored, so the clock does not matter
			s.barred = a
		case before == record.StatusActive && s.account == a && !s.ended && !s.expired && m.now.Before(s.expires) &&
			!(s.company.Hardened && s.state == record.RecoveryOTP):
			s.barred, s.unsure = a, s.crowded || s.forgotten || s.passed || !m.now.Before(s.early)
		}
	}
	m.endAll(a)
}

// forgetBarred: these tokens tell of no status any more.
func (m *model) forgetBarred(which func(*modelSession) bool) {
	for _, s := range m.sessions {
		if which(s) {
			s.barred = nil
		}
	}
}

// endThose is endAll of a choice.
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
	if c.session.state == record.CheckPassword { // anyone can begin one: to end it counts as a password
		logins := c.company.budget("logins " + c.address)
		m.windowOpen("limit.logins", logins, c.company.Limits.LoginsPerAddress)
		logins.add(m.now, c.company.Limits.LoginsPerAddress)
	}
	c.session.ended, c.session.barred = true, nil
	return modelAnswer{}
}
