package flows_test

import (
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
)

// oauth logs in with provider 1, the only one that is configured. The provider
// vouches for the user that the code names and for the email address
// <user>@example.com, unless the user is "bad".
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
	spend := func(grants map[string]time.Time) {
		if sent, again := grants[grant]; again && m.now.Before(sent.Add(time.Hour)) {
			fail()
		}
		grants[grant] = m.now
	}
	spend(c.company.grants)
	c.company.budget("logins "+c.address).add(m.now, c.company.Limits.LoginsPerAddress)
	spend(m.grants) // another company's provider may have got it
	if c.broken {
		m.giveBack(c)
		refuse("service.unavailable")
	}
	user, _, _ := strings.Cut(grant, " ")
	if user == "bad" {
		fail()
	}
	var told []string
	a := c.company.find(func(a *modelAccount) bool { return a.subject == user })
	if a == nil && c.company.OAuth[1].LinkVerifiedEmail {
		a = c.company.find(func(a *modelAccount) bool { return a.email == user+"@example.com" })
		if a != nil && a.status == record.StatusActive {
			if a.subject != "" { // the account belongs to another user of the provider
				refuse("auth.oauth.notfound")
			}
			a.subject = user
			told = m.notice(c.company, message.NoticeIdentityBound, a)
		}
	}
	if a == nil {
		refuse("auth.oauth.notfound")
	}
	admit(a)
	m.know(c, a)
	pending := c.company.pending(a, nil)
	var reply modelAnswer
	if len(pending) == 0 {
		reply = m.enter(c, &modelSession{account: a, state: record.Authorized, methods: []string{"oauth"}})
	} else {
		reply = m.enter(c, &modelSession{account: a, state: record.AcceptDisclaimers, methods: []string{"oauth"}, listed: m.lists(c)})
		reply.Disclaimers = pending
	}
	reply.Sent = told
	return reply
}
