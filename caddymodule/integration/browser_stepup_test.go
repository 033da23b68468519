package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A browser that navigates to a path of mfa or fresh is asked for what is missing and for
// nothing else, and is then where it wanted to be. Another tab of the session loses nothing.
func TestBrowserGivesOnlyWhatIsMissing(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{company: people, handler: "login_page {\nlink \"Help\" /help support\n}\nself_service mfa\nmfa /pay/*\nfresh 1h /account/*"})
	s.admin("POST", "accounts/alice/backup-codes", nil).wantStatus(200)
	b := newBrowser(t)
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword)
	b.isUser("alice")
	tab := b.another()
	tab.open(s.URL + "/home")
	tab.isUser("alice")

	b.open(s.URL + "/pay/now?x=1#part")
	b.sees("stepup-code", codeField)
	b.waits(`document.querySelector('.who b').textContent === 'alice@example.com' && !document.querySelector('#login, #password')`)
	b.judge("stepup-code")
	wrong := "000000"
	if s.sms.last("otp.stepup", "code") == wrong {
		wrong = "111111"
	}
	b.enters("code", wrong)
	b.isTold("notice.code.wrong.resent") // the page has asked for another one
	b.chooses("stepup.use.backup")
	b.sees("stepup-backup", "#backup")
	b.enters("backup", "ZZZZZ-ZZZZZ")
	b.complainsOf("backup", "error.auth.backupcode.invalid")
	b.chooses("stepup.use.sms")
	b.sees("stepup-code", codeField)
	b.enters("code", s.sms.last("otp.stepup", "code"))
	b.waits(`location.pathname + location.search + location.hash === '/pay/now?x=1#part'`)
	b.isUser("alice")
	tab.reload()
	tab.isUser("alice")
	tab.open(s.URL + "/pay/other")
	tab.isUser("alice")

	// The password is what a login that is too old lacks. The session stays.
	old := s.begun("mgs_", record.Authorized, time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour))
	b.holds(s, old)
	b.open(s.URL + "/account/x")
	b.sees("stepup-password", passwordField)
	b.enters("password", "wrong")
	b.complainsOf("password", "error.auth.password.invalid")
	b.enters("password", testPassword)
	b.waits(`location.pathname === '/account/x'`)
	b.isUser("alice")
	s.get("/account/x", old).wantStatus(200)
	// Somebody else logs in instead.
	b.open(s.URL + "/pay/x")
	b.sees("stepup-code", codeField)
	b.chooses("login.other")
	b.sees("login", idField)
	b.isTold("notice.login.fresh")

	// Users without a second factor are shown the way to one, and then back.
	b.logsOut(s)
	b.logsIn(s.URL+"/pay/x", "frank", testPassword)
	b.sees("stepup-none", "a.main")
	b.waits(`document.querySelector('.links a').textContent === 'Help'`)
	ref := fmt.Sprint(b.eval(`document.querySelector('.links').textContent.match(/[0-9A-Z]{10}/)?.[0]`))
	s.audits(1, `"result":"auth.user.restricted","reason":"user.no_second_factor","ref":"`+ref+`"`)
	b.judge("stepup-none")
	b.eval(`document.querySelector('a.main').click()`)
	b.sees("security", "#app")
	b.chooses("security.app.setup")
	b.sees("security-app", "svg.qr")
	secret := strings.ReplaceAll(fmt.Sprint(b.eval(`document.querySelector('.secret').textContent`)), " ", "")
	b.enters("code", appShows(t, secret, -30*time.Second))
	b.tells("app", "security.app.done")
	b.chooses("security.codes.kept")
	b.eval(`document.querySelector('#screen > a').click()`)
	b.sees("stepup-app", codeField)
	b.enters("code", appShows(t, secret, 0))
	b.waits(`location.pathname === '/pay/x'`)
	b.isUser("frank")

	// The security page asks for the other factor before a change, and then goes on with it.
	b.logsOut(s)
	b.logsIn(s.URL+"/acme/security", "alice@example.com", testPassword)
	b.sees("security", "#app")
	b.chooses("security.app.setup")
	b.sees("stepup-code", codeField)
	b.enters("code", s.sms.last("otp.stepup", "code"))
	b.sees("security-app", "svg.qr")
}
