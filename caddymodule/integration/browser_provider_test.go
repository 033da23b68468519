package integration

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// accepts checks the boxes of all disclaimers.
func (b *tab) accepts() {
	b.t.Helper()
	b.eval(`document.querySelectorAll('#disclaimers input:not(:checked)').forEach((box) => box.click())`)
}

// logsInAtProvider fills in the form of oidc-provider.
func (b *tab) logsInAtProvider(user string) {
	b.t.Helper()
	b.eval(`(() => {
		document.querySelector('input[name=login]').value = ` + quote(user) + `;
		document.querySelector('input[name=password]').value = 'any';
		setTimeout(() => document.querySelector('form').submit());
	})()`)
}

// A login with a provider, followed by disclaimers, leads to the page that the browser
// wanted. The login is as old as that at the provider. Where the page asks for a new
// login, so does the provider.
func TestBrowserGoesToAProvider(t *testing.T) {
	var provider *openID
	app := newBrowserApp(t)
	s := startBrowserSiteAt(t, []string{"MNEMOGATE_PEER_SECRET=" + peerSecret}, app, func(s *site) siteConfig {
		page := s.URL + "/acme/login"
		provider = startOpenID(t, page)
		config := provider.provider(1, "name \"<img src=x onerror=alert(1)> & Co\"")
		return siteConfig{
			company: people + disclaimers + "account sam {\nlogin sam\nidentity 1 sam-at-provider\n}" + strings.Replace(config, "redirect_uri ", "redirect_uri "+page+" ", 1),
			handler: "login_page\nforward auth_time",
		}
	})
	b := newBrowser(t)
	b.loud = true // the provider's pages may have errors
	visits := func() {
		b.sees("login-provider", ".other")
		b.eval(`document.querySelector('#screen .other').click()`)
	}
	isAsked := func() {
		b.waits(`document.querySelector('input[name=login]') && location.origin === ` + quote(provider.Issuer))
	}
	logsInAs := b.logsInAtProvider
	for _, answer := range []string{"error=server_error", "code=x"} { // without state
		b.open(s.URL + "/acme/login?" + answer)
		b.shows(".alert p", "error.oauth.denied")
		b.reloads("login-provider", ".other")
	}
	var logins []string // their times
	for round, address := range []string{"/home?x=1", "/home?x=1", "/acme/login?fresh=0&return_to=" + url.QueryEscape("/home?x=1")} {
		if round == 2 {
			storetest.Eventually(t, 5*time.Second, "older login at the provider", func() bool { return fmt.Sprint(time.Now().Unix()) > logins[1] })
		}
		b.open(s.URL + address)
		visits()
		if round == 0 { // with the wrong account
			isAsked()
			logsInAs("nobody")
			b.shows(".alert p", "error.auth.oauth.notfound")
			visits() // now for select_account, which this provider does not know
			b.shows(".alert p", "error.oauth.denied")
			visits()
		}
		if round == 2 { // the user can't get around it
			isAsked()
			b.eval(`void setTimeout(() => document.querySelector('a[href$="/abort"]').click())`)
			b.shows(".alert p", "error.oauth.denied")
			b.reloads("login-provider", ".other")
			visits()
		}
		if round != 1 { // then the provider remembers the user
			isAsked()
			logsInAs("sam-at-provider")
		}
		if round == 0 {
			b.sees("disclaimers", "#disclaimers")
			b.reloads("disclaimers", "#disclaimers")
			b.submits()
			b.complainsOf("disclaimers-0", "error.auth.disclaimer.invalid")
			b.accepts()
			b.submits()
		}
		b.isUser("sam")
		b.waits(`location.pathname + location.search === '/home?x=1'`)
		b.open(s.URL + "/acme/login?state=old&code=old") // as Back may do
		b.sees("already", ".stack")
		app.mu.Lock()
		logins = append(logins, app.authTime)
		app.mu.Unlock()
		b.logsOut(s)
	}
	if logins[0] == "" || logins[0] != logins[1] || logins[1] > logins[2] { // in seconds
		t.Errorf("the logins are of %s; want two as old as that at the provider, and a new one", logins)
	}
	b.open(s.URL + "/home")
	b.sees("login-provider", ".other")
	b.enters("login", "alice@example.com")
	b.sees("password-disclaimers", "#disclaimers")
	b.types("password", testPassword)
	b.submits()
	b.complainsOf("disclaimers-0", "error.auth.disclaimer.invalid")
	b.accepts()
	b.submits()
	b.isUser("alice")
	b.logsOut(s)

	b.open(s.URL + "/home")
	b.sees("login-provider", ".other")
	b.enters("login", "+37060000002")
	b.sees("code-disclaimers", "#disclaimers")
	b.eval(`document.querySelector('#disclaimers').remove()`) // as if they were new
	b.enters("code", s.sms.last("otp.login", "code"))
	b.complainsOf("disclaimers-0", "error.auth.disclaimer.invalid")
	b.isTold("notice.code.resent")
	b.accepts()
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("bob")
}
