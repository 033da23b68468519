package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// A browser that its user has let the company remember gets in while strangers have
// locked the account, without a code, also after a logout. No script sees its token.
func TestBrowserIsRememberedAsADevice(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{
		company: people, handler: "login_page {\nremember\n}\nself_service",
		global: "devices 90d skip_second_factor\nlimits {\nfailures_per_address 1000/5m\nlogins_per_address 1000/1m\n}\n",
	})
	b := newBrowser(t)
	b.open(s.URL + "/home")
	b.sees("login", "form:not(:has(#device))")
	b.enters("login", "carol@example.com")
	b.sees("password", "#device")
	b.enters("password", testPassword)
	b.sees("code", "#device")
	b.eval(`document.querySelector('#device').click()`)
	b.reloads("code", "#device:checked")
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("carol")
	cookies := b.cookies()
	i := slices.IndexFunc(cookies, func(c *network.Cookie) bool { return c.Name == deviceCookieName })
	if len(cookies) != 2 || i < 0 || cookies[i].Session || !cookies[i].HTTPOnly || !strings.HasPrefix(cookies[i].Value, "mgd_") {
		t.Errorf("got %+v", cookies)
	}
	if kept := fmt.Sprint(b.eval(`JSON.stringify({ ...sessionStorage, ...localStorage })`)); strings.Contains(kept, "mgd_") {
		t.Errorf("a script sees %s", kept)
	}
	b.sawNowhere("mgd_")
	b.logsOut(s)

	for range 10 {
		s.credentials("carol@example.com", "wrong").want(wire.ErrCredentialsInvalid)
	}
	other := newBrowser(t)
	other.open(s.URL + "/home")
	other.sees("login", idField)
	other.enters("login", "carol@example.com")
	other.waits(`document.querySelector('.alert')?.textContent.includes(` + quote(pageTexts()["reason.lock.password"]) + `)`)
	b.logsIn(s.URL+"/home", "carol@example.com", testPassword)
	b.isUser("carol")

	listed := b.eval(`import('/acme/v2/client.js')
		.then(({ connect }) => connect({ company: '/acme', apiKey: ` + quote(testKey) + `, cookie: true }).resume())
		.then(async ({ me }) => {
			const [own] = await me.devices();
			await me.forgetDevice(own.deviceId);
			return [own.current, own.skipSecondFactor, (await me.devices()).length];
		})`)
	if got := fmt.Sprint(listed); got != "[true true 0]" {
		t.Errorf("its own device, and how many are left: %s", got)
	}
}
