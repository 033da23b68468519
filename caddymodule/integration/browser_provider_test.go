package integration

import (
	"strings"
	"testing"
)

// accepts checks the boxes of all disclaimers.
func (b *tab) accepts() {
	b.t.Helper()
	b.eval(`document.querySelectorAll('#disclaimers input:not(:checked)').forEach((box) => box.click())`)
}

// A login with a provider, followed by disclaimers, leads to the page that the
// browser wanted.
func TestBrowserGoesToAProvider(t *testing.T) {
	var provider *openID
	s := startBrowserSiteAt(t, []string{"MNEMOGATE_PEER_SECRET=" + peerSecret}, newBrowserApp(t), func(s *site) siteConfig {
		page := s.URL + "/acme/login"
		provider = startOpenID(t, page)
		config := provider.provider(1, "name \"<img src=x onerror=alert(1)> & Co\"")
		return siteConfig{
			company: people + disclaimers + "account sam {\nlogin sam\nidentity 1 sam-at-provider\n}" + strings.Replace(config, "redirect_uri ", "redirect_uri "+page+" ", 1),
			handler: "login_page",
		}
	})
	b := newBrowser(t)
	b.loud = true // the provider's pages may have errors
	for _, accepting := range []bool{true, false} {
		b.open(s.URL + "/home?x=1")
		b.sees("login-provider", ".other")
		b.eval(`document.querySelector('#screen .other').click()`)
		if accepting { // later the provider remembers the user
			b.waits(`document.querySelector('input[name=login]') && location.origin === ` + quote(provider.Issuer))
			b.eval(`(() => {
				document.querySelector('input[name=login]').value = 'sam-at-provider';
				document.querySelector('input[name=password]').value = 'any';
				setTimeout(() => document.querySelector('form').submit());
			})()`)
			b.sees("disclaimers", "#disclaimers")
			b.reloads("disclaimers", "#disclaimers")
			b.submits()
			b.complainsOf("disclaimers", "error.auth.disclaimer.invalid")
			b.accepts()
			b.submits()
		}
		b.isUser("sam")
		b.waits(`location.pathname + location.search === '/home?x=1'`)
		b.logsOut(s)
	}
	b.open(s.URL + "/home")
	b.sees("login-provider", ".other")
	b.enters("login", "alice@example.com")
	b.sees("password-disclaimers", "#disclaimers")
	b.types("password", testPassword)
	b.submits()
	b.complainsOf("disclaimers", "error.auth.disclaimer.invalid")
	b.accepts()
	b.submits()
	b.isUser("alice")
}
