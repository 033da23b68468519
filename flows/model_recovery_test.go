package flows_test

import (
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func (m *model) recover(c *modelCall) modelAnswer {
	wanted, _ := c.body["method"].(string)
	if !slices.Contains([]string{"", "PHONE", "MAIL", "QUESTION"}, wanted) {
		refuse("request.validation.failed")
	}
	a := c.company.byLoginID(c.loginID)
	method, impossible := c.company.method(tenant.Method(wanted), a)
	if c.company.Hardened { // accounts that can't be recovered get the same answer
		a, method, impossible = c.company.hardenedMethod(tenant.Method(wanted), a)
	}
	t := m.shown(c.company, a, c.loginID)
	m.mayLogIn(c)
	c.company.budget("logins "+c.origin()).add(m.now, c.company.Limits.LoginsPerAddress)
	switch method {
	case tenant.ByPhone:
		m.windowOpen("lock.codes", &t.codes, c.company.Limits.WrongCodes)
	case tenant.ByQuestion:
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
	case tenant.ByPhone:
		reply = m.enter(c, &modelSession{account: a, of: c.loginID, state: record.RecoveryOTP})
		if c.company.Hardened {
			reply.Phone = ""
			if strings.HasPrefix(c.loginID, "+") {
				reply.Phone = masked(c.loginID)
			}
		}
	case tenant.ByQuestion:
		reply = m.enter(c, &modelSession{account: a, state: record.RecoveryQuestion})
		reply.Question = a.question
	case tenant.ByMail:
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
	if c.company.Hardened { // the answer does not depend on the account's own budget
		own := c.company.budget("mails to account " + a.key)
		if own.full(m.now, c.company.Limits.MailsPerAccount) {
			return reply
		}
		own.add(m.now, c.company.Limits.MailsPerAccount)
	}
	reply.Sent = []string{message.RecoveryLink + " " + a.email}
	if c.broken && !c.company.Hardened {
		panic(modelRefusal{Code: "service.unavailable", Sent: reply.Sent})
	}
	for _, s := range m.sessions {
		s.ended = s.ended || s.account == a && s.state == record.MailedLink // a newer link revokes the older ones
	}
	if !c.broken {
		m.enter(c, &modelSession{account: a, state: record.MailedLink})
	}
	return reply
}

// method returns the wanted method, or else the first one that the account can use.
// It also returns the error code if the account can't use it.
func (c *modelCompany) method(wanted tenant.Method, a *modelAccount) (tenant.Method, string) {
	if wanted == "" {
		wanted = c.Recovery.Methods[0]
		for _, m := range slices.Backward(c.Recovery.Methods) {
			if notSet(m, a) == "" && (m != tenant.ByPhone || c.getsCodes(a)) {
				wanted = m
			}
		}
	}
	if !slices.Contains(c.Recovery.Methods, wanted) {
		return wanted, "recovery.method.restricted"
	}
	return wanted, notSet(wanted, a)
}

// getsCodes reports whether a code for the account's phone has a way to it.
func (c *modelCompany) getsCodes(a *modelAccount) bool {
	_, fixed := c.FixedCode(a.phone)
	return fixed || c.sendsTo(a.phone)
}

func notSet(m tenant.Method, a *modelAccount) string {
	switch {
	case a == nil || m == tenant.ByPhone && a.phone == "":
		return "recovery.phone.notset"
	case m == tenant.ByMail && a.email == "":
		return "recovery.email.notset"
	case m == tenant.ByQuestion && a.question == "":
		return "recovery.question.notset"
	}
	return ""
}

// hardenedMethod chooses a method without looking at the account. It drops the
// account if that method can't recover it. Questions never can, and neither can a
// phone that is the second factor.
func (c *modelCompany) hardenedMethod(wanted tenant.Method, a *modelAccount) (*modelAccount, tenant.Method, string) {
	methods := slices.DeleteFunc(slices.Clone(c.Recovery.Methods), func(m tenant.Method) bool { return m == tenant.ByQuestion })
	if wanted == "" {
		wanted = methods[0]
	}
	if !slices.Contains(methods, wanted) {
		return nil, wanted, "recovery.method.restricted"
	}
	if a != nil && (a.status != record.StatusActive || notSet(wanted, a) != "" || wanted == tenant.ByPhone && c.needsSecond(a)) {
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
	return m.enter(c, &modelSession{account: a, state: record.RecoveryPassword})
}

func (m *model) checkLink(c *modelCall) modelAnswer {
	m.allowed(c)
	if code := m.find(c, c.body["token"].(string), true); code != "" {
		if code == "auth.token.invalid" {
			m.failed(c)
		}
		refuse(code)
	}
	return m.enter(c, &modelSession{account: c.session.account, state: record.RecoveryPassword})
}
