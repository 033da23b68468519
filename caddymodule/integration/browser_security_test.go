package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// tells waits for a message in a section of the security page.
func (b *tab) tells(section, text string) {
	b.t.Helper()
	b.shows("#"+section+" .done", text)
}

// holds makes the browser's session one of this token.
func (b *tab) holds(s *site, token string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: cookieName, Value: token, URL: s.URL, Path: "/", Secure: new(true), HTTPOnly: new(true)})
		return err
	}))
}

// One site serves all browsers with the security page.
func TestBrowserAtTheSecurityPage(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{company: people + byUsers, global: "devices 90d\n", handler: "login_page\nself_service"})
	s.run("all sections", func(t *testing.T) { browserShowsTheSecurityPage(t, s) })
	s.run("no password", func(t *testing.T) { browserHasNoPassword(t, s) })
	s.run("another phone and email", func(t *testing.T) { browserMovesToAnotherPhone(t, s) })
	s.run("known devices", func(t *testing.T) { browserForgetsDevices(t, s) })
	s.run("tokens", func(t *testing.T) { browserIssuesTokens(t, s) })
}

// A user sees the devices and ends one, changes the password, sets up an app and backup
// codes, and is asked for a new login where the last one is too old.
func browserShowsTheSecurityPage(t *testing.T, s *site) {
	other := s.login("alice@example.com")
	b := newBrowser(t)
	b.logsIn(s.URL+"/acme/security?return_to=/orders", "alice@example.com", testPassword)
	b.waits(`location.pathname === '/acme/security'`)
	b.sees("security", "#sessions")
	b.waits(`document.querySelector('#screen > a')?.getAttribute('href') === '/orders'`)

	// Devices
	if list := fmt.Sprint(b.eval(`[...document.querySelectorAll('#sessions b')].map((b) => b.textContent)`)); list != "[Chrome · Linux Go-http-client]" {
		t.Errorf("the devices are %s", list)
	}
	b.eval(`(() => {
		const { fetch } = globalThis; // fails once after the change
		globalThis.fetch = (...request) => request[0].endsWith('me/factors') ? (globalThis.fetch = fetch, Promise.reject(new TypeError('offline'))) : fetch(...request);
		document.querySelector('#sessions li:last-child button').click();
	})()`)
	b.tells("sessions", "security.sessions.ended")
	s.get("/", other).want(wire.ErrTokenInvalid)

	// Password
	const better = "a fine secret"
	b.chooses("security.password.change")
	b.waits(`document.activeElement.id === 'current'`)
	b.sees("security-password", "#current")
	b.submits()
	b.complainsOf("current", "error.empty")
	b.types("current", "wrong")
	b.enters("newpassword", better)
	b.complainsOf("current", "error.auth.password.invalid")
	b.types("current", testPassword)
	b.enters("newpassword", "short")
	b.complainsOf("newpassword", "reason.password.too_short")
	b.enters("newpassword", better)
	b.tells("password", "security.password.done")
	s.credentials("alice@example.com", testPassword).want(wire.ErrCredentialsInvalid)

	// Authenticator app and backup codes
	b.chooses("security.password.change")
	b.sees("security-password", "#current")
	b.chooses("security.app.setup")
	b.sees("security-app", "main:not(:has(#current)) svg.qr")
	secret := strings.ReplaceAll(fmt.Sprint(b.eval(`document.querySelector('.secret').textContent`)), " ", "")
	b.enters("code", neverShown(t, secret))
	b.complainsOf("code", "error.auth.otp.invalid")
	b.waits(`document.activeElement.id === 'code' && document.activeElement.value === ''`)
	b.enters("code", appShows(t, secret, 0))
	b.tells("app", "security.app.done")
	b.shows("#said", "security.codes.app") // backup codes have come, so all sections are new
	b.tells("codes", "security.codes.app")
	b.waits(`document.activeElement.closest('#codes') && document.querySelectorAll('.codes li').length === 10`)
	b.chooses("security.codes.kept")
	s.credentials("alice@example.com", better).wantState(record.CheckOTP)
	b.chooses("security.codes.create")
	b.sees("security-codes-replace", "#codes .main")
	b.submits()
	b.tells("codes", "security.codes.done")
	b.sees("security-codes", ".codes")
	if saved := b.eval(`decodeURIComponent(document.querySelector('a[download]').href)`); !strings.Contains(saved.(string), "alice@example.com") || strings.Count(saved.(string), "-") < 10 {
		t.Errorf("the file of the codes is %q", saved)
	}
	b.eval(`void (navigator.clipboard.writeText = () => Promise.reject(new DOMException('', 'NotAllowedError')))`)
	b.chooses("security.copy")
	b.tells("codes", "security.copied.not")
	const leaves = `dispatchEvent(new Event('beforeunload', { cancelable: true }))`
	if b.eval(leaves) != false {
		t.Error("the codes can be left without a question")
	}
	b.chooses("security.codes.kept")
	if b.eval(leaves) != true {
		t.Error("a page without codes asks before it is left")
	}

	// A change needs a recent login. The password alone is asked for, and leads back to its dialog.
	old := s.begun("mgs_", record.Authorized, time.Now().Add(-20*time.Minute), time.Now().Add(time.Hour))
	b.holds(s, old)
	b.reload()
	b.sees("security", "#sessions")
	b.chooses("security.password.change")
	b.sees("stepup-password", passwordField)
	b.enters("password", better)
	b.waits(`location.pathname + location.search === '/acme/security?return_to=/orders' && document.activeElement.id === 'current'`)
	b.chooses("security.cancel")

	// Somebody else logs in in another tab. Nothing may be changed for that user from here.
	sees := func(user string) {
		t.Helper()
		b.waits(`document.querySelector('#sessions .row button') && document.querySelector('.who b').textContent === ` + quote(user))
	}
	s.login("frank") // the session that could be ended
	b.holds(s, s.login("frank"))
	b.eval(`dispatchEvent(new Event('focus'))`)
	sees("frank")
	b.holds(s, s.begun("mgs_", record.Authorized, time.Now(), time.Now().Add(time.Hour)))
	b.eval(`(dispatchEvent(new Event('visibilitychange')), document.querySelector('#sessions .row button').click())`) // to end all others
	sees("alice@example.com")
	s.get("/", old).wantStatus(http.StatusOK)

	// Two-step login
	b.chooses("security.twostep.turnoff")
	b.submits()
	b.tells("twostep", "security.twostep.off.done")
	s.signedIn("alice@example.com", better)
	b.chooses("security.twostep.turnon")
	b.submits()
	b.tells("twostep", "security.twostep.on.done")
	s.credentials("alice@example.com", better).wantState(record.CheckOTP)

	b.eval(`(() => { const l = document.getElementById('language'); l.value = 'de'; l.dispatchEvent(new Event('change')); })()`)
	b.waits(`document.querySelector('h1')?.textContent === 'Anmeldung und Sicherheit'`)
	b.picture("security-de")
	b.eval(`sessionStorage.clear()`) // as in another tab, days later
	b.open(s.URL + "/acme/login")
	b.waits(`document.querySelector('h1')?.textContent === 'Sie sind angemeldet'`)
}

// A user without a password, whose logins all need a code, makes backup codes and logs in
// with one.
func browserHasNoPassword(t *testing.T, s *site) {
	b := newBrowser(t)
	begins := func() {
		b.open(s.URL + "/acme/security")
		b.sees("login", idField)
		b.enters("login", "+37060000002")
		b.sees("code", codeField)
	}
	begins()
	b.enters("code", s.sms.last("otp.login", "code"))
	b.sees("security", "#codes")
	b.chooses("security.codes.create")
	b.submits()
	b.tells("codes", "security.codes.done")
	backup := b.eval(`document.querySelector('.codes li').textContent`).(string)
	b.chooses("security.codes.kept")
	b.logsOut(s)
	begins()
	b.chooses("backup.offer")
	b.enters("backup", backup)
	b.sees("security", "#codes")
}

// A user moves to a new phone and a new email. The old ones stay in force until the last
// step.
func browserMovesToAnotherPhone(t *testing.T, s *site) {
	const phone, email = "+37060000093", "carol.new@example.com"
	b := newBrowser(t)
	b.open(s.URL + "/acme/security")
	b.fillsIn("carol@example.com", testPassword)
	b.sees("code", codeField)
	b.enters("code", s.sms.last("otp.login", "code"))
	b.sees("security", "#phone")
	inForce := func(loginIDs ...string) {
		t.Helper()
		for _, id := range []string{"+37060000003", phone, "carol@example.com", email} {
			if a := s.post("auth/login", "", fields{"login_id": id}); (a.Status == http.StatusOK) != slices.Contains(loginIDs, id) {
				t.Errorf("%s: got %d %s", id, a.Status, a.Body)
			}
		}
	}
	confirmed, _, _ := strings.Cut(pageTexts()["security.contact.since"], "{")
	b.waits(`document.querySelector('#phone .row p + p').textContent.startsWith(` + quote(confirmed) + `)`) // its code was used
	b.chooses("security.phone.change")
	b.waits(`document.activeElement.id === 'newphone'`)
	b.enters("newphone", "12")
	b.complainsOf("newphone", "security.phone.invalid")
	b.eval(`(() => {
		const { fetch } = globalThis; // fails twice
		let left = 2;
		globalThis.fetch = (...request) => left-- > 0 ? Promise.reject(new TypeError('offline')) : fetch(...request);
	})()`)
	b.enters("newphone", "+370 600 00093")
	b.tells("phone", "error.network") // nothing could have been saved
	b.enters("newphone", "+370 600 00093")
	b.waits(`document.activeElement.id === 'code'`)
	b.enters("code", wrong(s.sms.last("contact.code", "code")))
	b.complainsOf("code", "security.contact.wrong")
	inForce("+37060000003", "carol@example.com")
	b.chooses("code.resend")
	b.tells("phone", "notice.code.resent")
	b.waits(`document.activeElement.id === 'code' && document.activeElement.value === '' && document.querySelector('#phone .link[aria-disabled]')`)
	b.enters("code", s.sms.last("contact.code", "code"))
	b.tells("phone", "security.phone.changed")
	inForce(phone, "carol@example.com")

	b.chooses("security.contact.confirm")
	b.waits(`document.activeElement.value === 'carol@example.com'`)
	b.enters("newemail", email)
	b.waits(`document.activeElement.id === 'code'`)
	inForce(phone, "carol@example.com")
	b.enters("code", s.sms.last("contact.code", "code"))
	b.tells("email", "security.email.changed")
	b.waits(`document.querySelector('#email-value').textContent === '` + email + `'`)
	inForce(phone, email)
	b.reload()
	b.sees("security", "#email")
	b.chooses("security.email.change") // proven now
	b.chooses("security.cancel")
	if fmt.Sprint(b.eval(`document.querySelectorAll('#email .danger, #phone .danger').length`)) != "1" { // the phone is the second factor
		t.Error("one of the two can be removed")
	}
}

// A user sees the known devices, and has one and then the others forgotten.
func browserForgetsDevices(t *testing.T, s *site) {
	for range 3 {
		s.post("auth/checkcredentials", "", fields{"login_id": "frank", "password": testPassword, "remember_device": true}).wantState(record.Authorized)
	}
	b := newBrowser(t)
	b.logsIn(s.URL+"/acme/security", "frank", testPassword)
	b.sees("security", "#devices .item")
	b.chooses("security.devices.forget")
	b.submits()
	b.tells("devices", "security.devices.forgotten")
	b.waits(`document.querySelectorAll('#devices .item').length === 2`)
	b.chooses("security.devices.all")
	b.submits()
	b.tells("devices", "security.devices.forgotten.all")
	b.waits(`document.querySelector('#devices .item') === null`)
}

// A user makes a token for a program, sees it once, and removes it.
func browserIssuesTokens(t *testing.T, s *site) {
	b := newBrowser(t)
	b.logsIn(s.URL+"/acme/security", "frank", testPassword)
	b.sees("security", "#tokens .row")
	b.chooses("security.tokens.create")
	b.types("name", "Nightly <b>report</b>")
	b.enters("paths", "reports")
	b.shows("#paths-error", "security.tokens.invalid")
	b.enters("paths", " /reports/*  /files/* ")
	b.tells("tokens", "security.tokens.done")
	token := b.eval(`document.querySelector('.token').textContent`).(string)
	b.eval(`(() => { navigator.clipboard.writeText = async (text) => { globalThis.copied = text; }; })()`)
	b.chooses("security.copy")
	b.tells("tokens", "security.copied")
	b.waits(`globalThis.copied === ` + quote(token))
	s.get("/reports/x", token).wantStatus(200)
	s.get("/x", token).want(wire.ErrSessionInvalid)
	s.ask("POST", "/files/x", bearer(token)+"Content-Length: 0\r\n").wantStatus(http.StatusForbidden)
	b.chooses("security.tokens.kept")
	b.waits(`document.querySelector('.token') === null && document.querySelector('#tokens .item b').textContent === 'Nightly <b>report</b>'`)
	b.reload()
	b.sees("security", "#tokens .item")
	if strings.Contains(b.eval(`document.documentElement.innerHTML`).(string), token) {
		t.Error("the page shows the token again")
	}
	b.chooses("security.remove")
	b.submits()
	b.tells("tokens", "security.tokens.removed")
	b.waits(`document.querySelector('#tokens .item') === null`)
	s.get("/reports/x", token).want(wire.ErrTokenInvalid)
}

// The page exists only together with both options. Strangers are sent to the login.
func TestTheSecurityPageNeedsALogin(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		handle_path /page/* {
			mnemogate {
				login_page
			}
			reverse_proxy BACKEND
		}
		handle_path /routes/* {
			mnemogate {
				self_service
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate {
				login_page
				self_service
			}
			reverse_proxy BACKEND
		}`})
	for _, headers := range []string{"", "Cookie: " + cookieName + "=mgs_x\r\n"} {
		s.ask("GET", "/acme/security?lang=de", headers).wantStatus(http.StatusSeeOther).wantHeader("Location", "/acme/login?return_to=%2Facme%2Fsecurity%3Flang%3Dde")
	}
	a := s.ask("GET", "/acme/security", s.moved("alice@example.com")).wantStatus(200)
	if policy := a.Header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", a.Header)
	}
	for _, only := range []string{"/page", "/routes"} {
		if a := s.get(only+"/acme/security", s.login("frank")).wantStatus(200); !strings.HasPrefix(string(a.Body), "GET /acme/security ") {
			t.Errorf("with only the %s, the application gets %s", only, a.Body)
		}
	}
}
