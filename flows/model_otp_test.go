package flows_test

import (
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// sendCode gives the session a code and returns the message that carries it. It
// charges all budgets or none.
func (m *model) sendCode(c *modelCall, s *modelSession, renewals ...*modelCount) (sent []string) {
	a, l := s.account, &c.company.Limits
	if a != nil && a.phone == "" { // the backup codes are the second factor
		if len(a.backup) == 0 {
			refuse("auth.user.restricted")
		}
		return nil
	}
	type budget struct {
		reason wire.Reason
		count  *modelCount
		rate   tenant.Rate
	}
	var budgets []budget
	for _, r := range renewals {
		budgets = append(budgets, budget{"limit.renewals", r, tenant.Rate{N: *c.company.OTP.Renewals, Per: time.Duration(c.company.Session.Temporary)}})
	}
	hidden := c.company.Hardened && s.state == record.RecoveryOTP // the answer must be the same as for a decoy
	account, phone, fixed := "decoy "+s.of, "decoy "+s.of, ""
	if a != nil {
		fixed, _ = c.company.FixedCode(a.phone)
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
	if a != nil {
		country = c.company.country(a.phone)
	}
	allowed := a == nil || c.company.sendsTo(a.phone)
	perCountry := budget{"limit.sms_country", c.company.budget("sms to country " + country), l.SMSPerCountry}
	if fixed == "" || hidden {
		budgets = append(append(budgets, own(account, phone)...),
			budget{"limit.sms_address", c.company.budget("sms for " + c.origin()), l.SMSPerAddress})
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
		budgets = nil // the service checks no other budget
	}
	for _, b := range budgets {
		if b.count.full(m.now, b.rate) {
			full = append(full, m.lock(b.reason, b.count.until))
		}
	}
	if full != nil && s.state == record.CheckOTP && renewals == nil && len(a.backup) > 0 {
		m.codeless(c, a, nil)
		return nil // the user can enter a backup code
	}
	if decoy := a == nil || hidden; decoy && l.SMSPerCompany.N > 0 && company.count.full(m.now, company.rate) {
		full = append(full, m.lock(company.reason, company.count.until)) // checked, but not charged
	}
	if full != nil {
		m.restricted(full...)
	}
	for _, b := range budgets {
		b.count.add(m.now, b.rate)
	}
	// This replaces the previous code, unless the gateway fails. Until the digits are set, no input matches: a
	// decoy has no digits, and a hardened recovery that could not send the code must
	// not show it.
	before := s.code
	s.code = &modelCode{expires: m.now.Add(time.Duration(c.company.OTP.TTL))}
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
	digits := fixed
	if a != nil && fixed == "" {
		digits = c.got.digits
		kind := message.OTPLogin
		if s.state == record.Authorized {
			kind = message.OTPStepUp
		}
		if s.state == record.RecoveryOTP {
			kind = message.OTPRecovery
		}
		sent = []string{kind + " " + a.phone}
		later := c.company.Hardened && s.state == record.RecoveryOTP // the message is sent after the answer
		switch {
		case c.broken && later:
			return sent
		case c.broken && s.state == record.CheckOTP && renewals == nil && len(a.backup) > 0:
			s.code = nil
			m.codeless(c, a, sent)
			return sent
		case c.broken:
			s.code = before
			panic(modelRefusal{Code: "service.unavailable", Sent: sent})
		}
	}
	s.code.digits = digits
	return sent
}

// codeless counts a login for which strangers need no secret, and which gets no code.
func (m *model) codeless(c *modelCall, a *modelAccount, sent []string) {
	if a.password != "" {
		return
	}
	strangers, rate := c.company.budget("codeless logins of "+a.key), tenant.Rate{N: 30, Per: 10 * time.Minute}
	if strangers.full(m.now, rate) {
		panic(modelRefusal{Code: "auth.restricted", locks: []modelLock{m.lock("limit.sms_account", strangers.until)}, Sent: sent})
	}
	strangers.add(m.now, rate)
}

// codeStep makes the checks that all requests of a session with codes have in
// common.
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

// hides reports whether answers must not depend on the account. In a recovery of a
// hardened company they don't until the code was right.
func (m *model) hides(c *modelCall) bool {
	return c.company.Hardened && c.session.state == record.RecoveryOTP
}

// tryCode checks a code and uses up the session's code, even if a lock refuses the
// request, because the code is used up before the account is known. A wrong code
// counts only if there was a code to compare it with.
func (m *model) tryCode(c *modelCall) {
	if len(c.body["otp"].(string)) != 6 {
		refuse("request.validation.failed")
	}
	m.allowed(c)
	code := c.session.code
	c.session.code = nil
	m.codeStep(c)
	if c.session.byApp {
		m.tryApp(c)
		return
	}
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

// tryApp accepts the app's codes of the current step, the previous one and the next
// one, each once.
func (m *model) tryApp(c *modelCall) {
	a := c.session.account
	for _, from := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} {
		at := m.now.Add(from)
		if appCode(a.app, at) != c.body["otp"] {
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
	a := c.session.account
	if otp != "" {
		m.tryCode(c)
		return m.proven(c, a, true)
	}
	if len(strings.ReplaceAll(backup, "-", "")) != 10 {
		refuse("request.validation.failed")
	}
	m.codeStep(c)
	m.mayLogIn(c)
	c.company.budget("logins "+c.origin()).add(m.now, c.company.Limits.LoginsPerAddress)
	if !slices.Contains(a.backup, backup) {
		m.wrongCode(c)
		refuse("auth.backupcode.invalid")
	}
	reply := m.proven(c, a, true)
	a.backup = slices.DeleteFunc(a.backup, func(b string) bool { return b == backup })
	return reply
}

func (m *model) recoveryCheckOTP(c *modelCall) modelAnswer {
	m.tryCode(c)
	return m.enter(c, &modelSession{account: c.session.account, state: record.RecoveryPassword})
}

func (m *model) renewOTP(c *modelCall) modelAnswer {
	s := c.session
	m.codeStep(c)
	if s.state == record.CheckOTP && s.account.phone == "" {
		refuse("request.validation.failed")
	}
	reply := modelAnswer{Sent: m.sendCode(c, s, &s.renewals)}
	s.byApp = false
	if s.account != nil && s.state == record.CheckOTP {
		reply.Phone = masked(s.account.phone)
	}
	return reply
}
