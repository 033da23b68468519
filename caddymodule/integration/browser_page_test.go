package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// pageTexts are the English texts of the login page.
var pageTexts = sync.OnceValue(func() map[string]string {
	file, err := os.ReadFile("../page/assets/texts/en.json")
	texts := map[string]string{}
	if err != nil || json.Unmarshal(file, &texts) != nil {
		panic("no texts")
	}
	return texts
})

// sees waits for a screen that has the element and is idle. The name of the screen is
// for readers of the test.
func (b *tab) sees(_, selector string) {
	b.t.Helper()
	b.waits(`document.querySelector('#screen:not([aria-busy])')?.querySelector(` + quote(selector) + `) && !document.querySelector('.main.busy')`)
}

// judge checks the accessibility of a screen, in light and dark, and whether it fits
// into the narrowest window, also with large text, which breaks no label.
func (b *tab) judge(screen string) {
	b.t.Helper()
	storetest.NeedPeers(b.t, peersDir)
	axe := get(os.ReadFile(peersDir + "/node_modules/axe-core/axe.min.js"))(b.t)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	get(chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](string(axe))))(b.t)
	for scheme, rules := range map[string]string{"dark": `{ runOnly: ['color-contrast'] }`, "light": `{}`} { // only the colors differ
		b.do(looking(scheme))
		found := b.eval(`axe.run(` + rules + `).then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html, failureSummary }) => html + ' ' + failureSummary).join('\n')))`)
		for _, violation := range found.([]any) {
			b.t.Errorf("%s, %s: %s", screen, scheme, violation)
		}
		b.picture(screen + "-" + scheme)
	}
	b.do(looking("light"), chromedp.EmulateViewport(320, 640))
	if wide := b.eval(`document.documentElement.scrollWidth`); wide != 320. {
		b.t.Errorf("%s is %v pixels wide on a screen of 320", screen, wide)
	}
	b.eval(`void (document.documentElement.style.fontSize = '200%')`)
	large := b.eval(`(() => {
		const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange(), broken = [];
		for (let node; node = nodes.nextNode();) {
			if (!node.parentElement.closest('label[for], h2')?.checkVisibility()) continue;
			for (const { 0: word, index } of node.data.matchAll(/(?<!\S)\p{L}{2,8}(?!\S)/gu)) {
				range.setStart(node, index);
				range.setEnd(node, index + word.length);
				if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) broken.push(word);
			}
		}
		return [document.documentElement.scrollWidth, ...broken].join(' ');
	})()`)
	if large != "320" {
		b.t.Errorf("%s with large text is so wide, and breaks these words: %v", screen, large)
	}
	b.picture(screen + "-large")
	b.eval(`void document.documentElement.removeAttribute('style')`)
	b.do(chromedp.ResetViewport())
}

// reloads reloads the page and expects the same screen.
func (b *tab) reloads(screen, selector string) {
	b.t.Helper()
	b.eval(`document.body.id = 'before'`)
	b.reload()
	b.waits(`document.body.id !== 'before'`)
	b.sees(screen, selector)
}

// reloadsLater reloads a screen for a code two minutes later. The code is as old then.
func (b *tab) reloadsLater(screen string) {
	b.t.Helper()
	b.eval(`sessionStorage['mnemogate-page sent'] -= 120_000`)
	b.reloads(screen, codeField)
	b.waits(`document.querySelector('.hint span').textContent === ` + quote(strings.Replace(pageTexts()["code.valid"], "{time}", "3 minutes", 1)))
}

// types enters text into a field with the keyboard.
func (b *tab) types(field, text string) {
	b.t.Helper()
	b.eval(`document.getElementById(` + quote(field) + `).value = ''`)
	b.do(chromedp.SendKeys(chromedp.CSS("#"+field), text))
}

func (b *tab) submits() {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS("#screen .main")))
}

// enters enters text and sends the form. The page sends a whole code by itself.
func (b *tab) enters(field, text string) {
	b.t.Helper()
	b.types(field, text)
	digits := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
	if n := utf8.RuneCountInString(digits); field != "code" || n != 6 && n != 8 { // by SMS or app, or by mail
		b.submits()
	}
}

// chooses clicks on the button with this text of the page.
func (b *tab) chooses(name string) {
	b.t.Helper()
	b.eval(`[...document.querySelectorAll('#screen button')].find((button) => button.textContent === ` + quote(pageTexts()[name]) + `).click()`)
}

// complainsOf waits for an error at a field.
func (b *tab) complainsOf(field, text string) {
	b.t.Helper()
	b.waits(`document.getElementById('` + field + `-error')?.checkVisibility() && document.getElementById('` + field + `-error').textContent === ` + quote(pageTexts()[text]))
	b.waits(`!document.querySelector('.main.busy')`)
}

// isTold waits for a notice under the heading.
func (b *tab) isTold(text string) {
	b.t.Helper()
	b.shows(".notice", text)
}

// shows waits until an element has these texts of the page.
func (b *tab) shows(selector string, names ...string) {
	b.t.Helper()
	var texts []string
	for _, name := range names {
		texts = append(texts, pageTexts()[name])
	}
	ref := quote(" " + strings.Replace(pageTexts()["error.ref"], "{ref}", "[0-9A-Z]{10}", 1) + "$")
	b.waits(`document.querySelector(` + quote(selector) + `)?.textContent.replace(new RegExp(` + ref + `), '') === ` + quote(strings.Join(texts, " ")) + ` && !document.querySelector('.main.busy')`)
}

// isUser waits for the page of the backend, which shows the user, and checks that no
// script can read a token.
func (b *tab) isUser(mnemocode string) {
	b.t.Helper()
	b.waits(`document.querySelector('#user')?.textContent === ` + quote(mnemocode))
	if kept := fmt.Sprint(b.eval(`JSON.stringify({ ...sessionStorage, ...localStorage }) + document.cookie`)); strings.Contains(kept, "mgs_") {
		b.t.Errorf("a script sees %s", kept)
	}
	b.sawNowhere("mgs_")
}

const (
	idField       = "input#login"
	passwordField = "input#password" // not the section of the security page
	codeField     = "input#code"
)

// logsIn opens an address that requires a session and logs in on the login page.
func (b *tab) logsIn(address, loginID, password string) {
	b.t.Helper()
	b.open(address)
	b.fillsIn(loginID, password)
}

func (b *tab) fillsIn(loginID, password string) {
	b.t.Helper()
	b.sees("login", idField)
	b.enters("login", loginID)
	b.sees("password", passwordField)
	b.enters("password", password)
}

// logsOut logs out on the logout page.
func (b *tab) logsOut(s *site) {
	b.t.Helper()
	b.open(s.URL + "/acme/logout")
	b.sees("logout", "form")
	b.submits()
	b.sees("loggedout", "a.main")
}

// The test walks through each row of the interface's table of states and
// transitions, and reloads the page at each step.
func TestBrowserWalksThePage(t *testing.T) {
	storetest.NeedPeers(t, peersDir) // a subtest that is skipped halfway would leave a login in progress to the next one
	s, _ := startBrowserSite(t, siteConfig{company: people + "\nphone_region LT", handler: "login_page {\ntitle \"Acme & <b>Sons</b>\"\n}"})
	s.setBackupCodes("carol", "AAAAABBBBB")
	b := newBrowser(t)
	run := func(name string, f func()) {
		s.run(name, func(inner *testing.T) {
			b.t = inner
			defer func() { b.t = t }()
			f()
		})
	}
	begin := func(loginID string) {
		b.t.Helper()
		b.open(s.URL + "/home?of=" + url.QueryEscape(loginID))
		b.sees("login", idField)
		b.reloads("login", idField)
		b.enters("login", loginID)
	}
	home := func(mnemocode string) {
		b.t.Helper()
		b.isUser(mnemocode)
		b.waits(`location.pathname === '/home' && location.search.startsWith('?of=')`)
		b.logsOut(s)
	}
	code := func(kind string) string { return s.sms.last(kind, "code") }
	password := func() {
		b.t.Helper()
		b.sees("password", passwordField+"[spellcheck=false][autocapitalize=none]")
		b.reloads("password", passwordField)
		b.enters("password", testPassword)
	}
	setPassword := func(text string) {
		b.t.Helper()
		b.sees("newpassword", "#newpassword")
		b.reloads("newpassword", "#newpassword")
		b.enters("newpassword", text)
	}
	run("a password", func() {
		begin("nobody@example.com")
		b.complainsOf("login", "error.auth.loginid.notfound")
		b.enters("login", "(8-600) 00-001")
		b.sees("password", passwordField)
		b.waits(`document.querySelector('.who b').textContent === '+37060000001'`)
		b.submits()
		b.complainsOf("password", "error.empty")
		b.enters("password", "wrong")
		b.complainsOf("password", "error.auth.password.invalid")
		password()
		home("alice")
	})
	run("a code", func() {
		begin("+370 600 00002")
		b.sees("code", codeField)
		b.reloadsLater("code")
		b.enters("code", "000000")
		b.isTold("notice.code.wrong.resent")
		b.types("code", "12")
		b.chooses("code.resend")
		b.isTold("notice.code.resent")
		b.waits(`document.querySelector('#code').value === ''`)
		sent := code("otp.login")
		b.enters("code", sent[:3]+" "+sent[3:])
		home("bob")
	})
	run("a password and a code", func() {
		begin("carol@example.com")
		password()
		b.sees("code", codeField)
		b.enters("code", "12 34 5")
		b.complainsOf("code", "error.request.validation.failed")
		b.enters("code", " "+strings.Map(func(r rune) rune { return r + 0xfee0 }, code("otp.login"))) // full-width, and the same code as before
		home("carol")
	})
	run("a password and a backup code", func() {
		begin("carol@example.com")
		password()
		b.sees("code", codeField)
		b.chooses("backup.offer")
		b.sees("backup", "#backup")
		b.enters("backup", "none")
		b.complainsOf("backup", "error.request.validation.failed")
		b.enters("backup", "CCCCCDDDDD")
		b.complainsOf("backup", "error.auth.backupcode.invalid")
		b.enters("backup", "AAAAABBBBB")
		home("carol")
	})
	run("a new password", func() {
		begin("dave@example.com")
		password()
		setPassword("short")
		b.complainsOf("newpassword", "reason.password.too_short")
		b.enters("newpassword", testPassword)
		b.complainsOf("newpassword", "error.auth.password.invalid.same")
		setPassword("a new one for dave")
		home("dave")
	})
	run("a password, a code and a new password", func() {
		begin("erin@example.com")
		password()
		b.sees("code", codeField)
		b.enters("code", code("otp.login"))
		setPassword("a new one for erin")
		home("erin")
	})
	recover := func(loginID, method string) {
		b.t.Helper()
		b.open(s.URL + "/home?of=recovery")
		b.sees("login", idField)
		b.chooses("recover.offer")
		b.sees("recover", "#method")
		b.types("login", loginID)
		b.eval(`document.querySelector('input[value=` + method + `]').click()`)
		b.submits()
	}
	recovered := func(text string) {
		b.t.Helper()
		setPassword(text)
		b.sees("login", idField)
		b.isTold("notice.password.set")
	}
	run("recovery by a code", func() {
		recover("alice@example.com", "PHONE")
		b.sees("recovery-code", codeField)
		b.reloads("recovery-code", codeField)
		b.enters("code", "000000")
		b.isTold("notice.code.wrong.resent")
		b.enters("code", code("otp.recovery"))
		recovered("the first new one of alice")
		b.chooses("recover.offer")
		b.sees("recover", "h1 + .lead") // without the notice
	})
	run("recovery by a question", func() {
		recover("frank", "QUESTION")
		b.shows("#method-error", "error.recovery.question.notset", "recover.another")
		b.waits(`document.querySelector('input[value=QUESTION]').checked`)
		recover("alice@example.com", "QUESTION")
		b.sees("question", "#answer[spellcheck=false]")
		b.reloads("question", "#answer")
		b.enters("answer", "Tom")
		b.complainsOf("answer", "error.auth.controlanswer.invalid")
		b.enters("answer", "whiskers")
		recovered("the second new one of alice")
	})
	run("recovery by mail", func() {
		recover("alice@example.com", "MAIL")
		b.sees("mailed", ".hint")
		b.open("about:blank")
		link := s.URL + "/acme/login#" + s.sms.linkToken()
		b.open(link)
		b.sees("link", "form")
		b.reloads("link", "form")
		b.waits(`location.hash === '' && document.querySelector('.lead').textContent === ` + quote(pageTexts()["link.text"]))
		b.submits()
		b.sees("newpassword", "#newpassword")
		b.reloads("newpassword", "#newpassword")
		b.waits(`document.querySelector('form:has(#newpassword) [autocomplete=username]').value === "alice@example.com"`) // for password managers
		b.eval(`new Promise((left) => { addEventListener('popstate', left, { once: true }); history.back(); })`)
		b.waits(`history.state?.mnemogate === 1`)
		recovered("the third new one of alice")
		b.open("about:blank")
		b.open(link) // it was used
		b.sees("link", "form")
		b.submits()
		b.sees("deadlink", ".stack")
		b.chooses("deadlink.again")
		b.sees("recover", "input[value=MAIL]:checked")
		b.chooses("recover.stop")
		b.reloads("login", idField)
		b.fillsIn("alice@example.com", "the third new one of alice")
		b.isUser("alice")
		b.open(s.URL + "/acme/login?return_to=/nothing")
		b.sees("already", ".main")
		b.submits()
		b.sees("going", "a[href$='/nothing']")
		b.logsOut(s)
	})
	run("a welcome", func() {
		s.admin("POST", "accounts", fields{"profile_mnemocode": "new", "primary_email": "new@example.com"}).wantStatus(http.StatusCreated)
		s.admin("POST", "accounts/new/welcome", nil).wantStatus(http.StatusAccepted)
		_, token, _ := strings.Cut(s.sms.last("welcome.link", "link"), "#")
		b.open(s.URL + "/acme/login#recover=%20" + token[:9] + "%0D%0A" + token[9:] + "%3E.") // as mail programs spoil it
		b.sees("welcome", "form")
		greeting := func(text string) { b.waits(`document.querySelector('h1').textContent === ` + quote(pageTexts()[text])) }
		greeting("welcome.heading")
		b.submits()
		b.sees("welcome-password", "#newpassword")
		greeting("welcome.password")
		b.enters("newpassword", "the first one of a new user")
		b.sees("login", idField)
		b.isTold("notice.password.set")
		b.fillsIn("new@example.com", "the first one of a new user")
		b.isUser("new")
		b.logsOut(s)
	})
}

// What a login page without options does. One site serves all browsers.
func TestBrowserAtTheLoginPage(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{company: people, handler: "login_page"})
	for name, test := range map[string]func(*testing.T, *site){
		"a link is pasted":                  browserTakesALinkThatIsPasted,
		"without cookies":                   browserWithoutCookiesIsToldSo,
		"a slow line":                       browserShowsTheFormAtOnce,
		"other sites":                       browserPageIsNoOneElses,
		"another user logs in after a user": browserForgetsWhoLoggedOut,
	} {
		s.run(name, func(t *testing.T) { test(t, s) })
	}
}

// A link from a mail also works if it is pasted into a tab that shows the page,
// although the tab does not load then. The token does not stay in the address.
func browserTakesALinkThatIsPasted(t *testing.T, s *site) {
	b := newBrowser(t)
	b.open(s.URL + "/acme/login")
	b.waits(`document.querySelector('#screen:not([aria-busy]) #login')`)
	b.eval(`void (location.hash = 'mgl_pasted')`)
	b.waits(`document.querySelector('#screen:not([aria-busy]) .lead')?.textContent === ` + quote(pageTexts()["link.text"]))
	b.waits(`location.hash === ''`)
}

// The form needs no more than the page and what that names, which is loaded at once: a
// script that requests something more costs a slow line another round trip.
func browserShowsTheFormAtOnce(t *testing.T, s *site) {
	b := newBrowser(t)
	b.open(s.URL + "/acme/login?lang=fr")
	b.sees("login", idField)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.scripted) > 0 || len(b.addresses) < 10 {
		t.Errorf("of the requests for %q, scripts have made %q", b.addresses, b.scripted)
	}
}

// If a browser blocks all storage, the page says why logging in is impossible, and
// is not empty.
func browserWithoutCookiesIsToldSo(t *testing.T, s *site) {
	t.Run("and a browser without one of the scripts says what to do", func(t *testing.T) {
		b := newBrowser(t)
		b.loud = true
		b.startsWith(`new MutationObserver(() => document.querySelector('script[src]')?.remove()).observe(document, { childList: true, subtree: true })`)
		b.open(s.URL + "/acme/login")
		b.waits(`getComputedStyle(document.querySelector('.slow')).visibility === 'hidden' && document.querySelector('.outline').checkVisibility()`)
		b.judge("outline")
		b.eval(`document.getAnimations().forEach((animation) => animation.finish())`)
		b.waits(`getComputedStyle(document.querySelector('.slow')).visibility === 'visible'`)
	})
	for name, is := range map[string]struct{ script, told string }{
		"Chromium, by its settings": {`Object.defineProperty(globalThis, 'sessionStorage', { get() { throw new DOMException('denied', 'SecurityError'); } })`, "error.cookies"},
		"a browser that says so":    {`Object.defineProperty(navigator, 'cookieEnabled', { value: false })`, "error.cookies"},
		"without https":             {`Object.defineProperty(globalThis, 'isSecureContext', { value: false })`, "error.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBrowser(t)
			b.startsWith(is.script)
			b.open(s.URL + "/acme/login")
			b.waits(`document.querySelector('#screen:not([aria-busy]) .alert')?.textContent === ` + quote(pageTexts()[is.told]))
		})
	}
}

// screenshots is the directory for screenshots of all screens, if it is set.
var screenshots = os.Getenv("MNEMOGATE_TEST_SCREENSHOTS")

// Other sites can't show the page in a frame, and can't log its visitor in as
// another user.
func browserPageIsNoOneElses(t *testing.T, s *site) {
	token := s.login("frank")
	evil := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Evil</title><link rel="icon" href="data:,"><iframe src="%s/acme/login"></iframe>`, s.URL)
	}))
	b := newBrowser(t)
	b.loud = true // errors are expected for what the browser blocks
	for _, origin := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		b.open(origin)
		if framed := b.eval(`(() => { try { return document.querySelector('iframe').contentDocument?.querySelector('#screen') !== undefined; } catch { return false; } })()`); framed != false {
			t.Errorf("%s shows the page in a frame", origin)
		}
		b.eval(`fetch('` + s.URL + `/acme/v2/session', { method: 'POST', credentials: 'include', headers: { Authorization: 'Bearer ` + token + `', 'X-Api-Key': '` + testKey + `' } }).catch(() => null)`)
	}
	b.open(s.URL + "/home")
	b.sees("login", idField)
	s.get("/home", token).wantStatus(200) // the token was not exchanged
}

// Names, titles and texts of operators and providers are shown as text, and their
// links lead only to web pages.
func TestBrowserTakesNamesAsText(t *testing.T) {
	const hostile = `<img src=x onerror=document.title='owned'>`
	s, _ := startBrowserSite(t, siteConfig{
		company: people + `
			disclaimer terms 1 {
				title "` + hostile + `"
				description "</p><script>document.title='owned'</script>"
				link https://example.com/"onclick="document.title='owned'
			}
			account mallory {
				login "` + hostile + `"
				password "` + testPassword + `"
				question "` + hostile + `" "x"
			}`,
		handler: `login_page {
			title "` + hostile + `"
		}`,
	})
	b := newBrowser(t)
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.enters("login", hostile)
	b.sees("password-hostile", "#disclaimers")
	b.judge("password-hostile")
	b.waits(`document.querySelector('main').innerText.includes(` + quote(hostile) + `) && !document.querySelector('main img, main script') && document.title !== 'owned'`)
	b.chooses("recover.offer")
	b.sees("recover", "#method")
	b.eval(`document.querySelector('input[value=QUESTION]').click()`)
	b.submits()
	b.sees("question", "#answer")
	b.waits(`document.querySelector('main').innerText.includes(` + quote(hostile) + `) && !document.querySelector('main img, main script') && document.title !== 'owned'`)
}

// Names in a script that runs from right to left are in order, also beside other signs.
func TestBrowserKeepsNamesInOrder(t *testing.T) {
	const name = "חברה\u00a0(x)"
	s, _ := startBrowserSite(t, siteConfig{
		company: people + `
			disclaimer terms 1 {
				title "` + name + `"
				description "` + name + `"
				link https://example.com/terms
			}
			oauth 1 oauth2 {
				name "` + name + `"
				authorize_url https://id.example.com/authorize
				token_url https://id.example.com/token
				userinfo_url https://id.example.com/user
				subject id
				client_id us
				client_secret s
				redirect_uri https://app.example.com/callback
			}`,
		handler: `login_page {
			title "` + name + `"
			link "` + name + `" https://example.com/help
			signup "` + name + `" https://example.com/join
		}`,
	})
	b := newBrowser(t)
	inOrder := func(names int) {
		t.Helper()
		wrong := b.eval(`(() => {
			const left = (node, at) => {
				const range = document.createRange();
				range.setStart(node, at);
				range.setEnd(node, at + 1);
				return range.getBoundingClientRect().left;
			};
			const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
			let names = 0;
			for (let node; node = nodes.nextNode();) {
				const at = node.data.indexOf(` + quote(name) + `);
				if (at < 0 || !node.parentElement.checkVisibility()) continue;
				names++;
				if (left(node, at) < left(node, at + ` + quote(name) + `.length - 1)) return node.parentElement.parentElement.outerHTML;
			}
			return names;
		})()`)
		if wrong != float64(names) {
			t.Errorf("got %v, want %d names in order", wrong, names)
		}
	}
	b.open(s.URL + "/home")
	b.sees("login", idField)
	inOrder(4)
	b.enters("login", "alice@example.com")
	b.sees("password", "#disclaimers")
	inOrder(5)
}

// After Alice logs out and Dave logs in, neither the back button nor the browser's
// storage reveals anything of Alice.
func browserForgetsWhoLoggedOut(t *testing.T, s *site) {
	b := newBrowser(t)
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword)
	b.isUser("alice")
	b.logsOut(s)
	showsNobody := func(who string) {
		t.Helper()
		if shown := b.shown(); strings.Contains(shown, who) {
			t.Errorf("the browser shows\n%s", shown)
		}
	}
	back := func() {
		t.Helper()
		b.eval(`void (document.body.id = 'left', setTimeout(() => history.back()))`)
		b.waits(`document.body.id !== 'left' && document.readyState === 'complete'`)
	}
	back()
	b.sees("login", idField)
	showsNobody("alice")
	b.logsIn(s.URL+"/home", "frank", testPassword)
	b.isUser("frank")
	for range 2 {
		back()
		showsNobody("alice")
	}
	b.open(s.URL + "/home")
	b.isUser("frank")

	// A user who completes another one's step-up is told so, and does not see what that user wanted.
	b.open(s.URL + "/acme/login?fresh=1&return_to=/home")
	b.sees("login", idField)
	b.waits(`document.querySelector('#login').value === 'frank'`)
	b.fillsIn("alice@example.com", testPassword)
	b.shows("h1", "changed.heading")
	b.waits(`document.querySelector('.who b').textContent === 'alice@example.com' && document.querySelector('.lead b, .lead bdi').textContent === 'frank'`)
	b.reloads("already", ".stack")
	b.chooses("already.continue")
	b.isUser("alice")
	b.waits(`location.pathname === '/'`)

	// Nor does who logs in after a logout on the login page.
	b.open(s.URL + "/acme/login?return_to=/home")
	b.sees("already", ".stack")
	b.chooses("logout.submit")
	b.isTold("notice.logout.done")
	b.reloads("login", "h1 + form")
	b.fillsIn("frank", testPassword)
	b.isUser("frank")
	b.waits(`location.pathname === '/'`)

	// After a logout, the next user is not told who was logged in, even if a step-up had begun.
	b.open(s.URL + "/acme/login?fresh=1")
	b.sees("login", idField)
	b.open(s.URL + "/acme/login?return_to=/home")
	b.sees("already", ".stack")
	b.chooses("logout.submit")
	b.isTold("notice.logout.done")
	b.fillsIn("alice@example.com", testPassword)
	b.isUser("alice")

	// A browser that does not keep the cookie of a login leads here again, and says why.
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{})
		return err
	}))
	b.open(s.URL + "/home")
	b.isAlerted("error.cookies")
}

// A code that can't be replaced still works. A browser with the session of another
// company of the site can log out.
func TestBrowserAtASiteOfTwoCompanies(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{
		company: strings.Replace(people, "limits {", "limits {\nsms_per_account 1/10m", 1),
		more:    umbra, handler: "login_page acme umbra",
	})
	b := newBrowser(t)
	b.logsIn(s.URL+"/home", "carol@example.com", testPassword)
	b.sees("code", codeField)
	b.chooses("code.resend")
	b.sees("code-limit", ".alert")
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("carol")

	zoe := s.loginAt("umbra", "other-key", "zoe")
	b.holds(s, zoe)
	b.open(s.URL + "/home")
	b.isUser("zoe")
	b.logsOut(s) // on the page of acme
	s.get("/", zoe).want(wire.ErrTokenInvalid)
	b.open(s.URL + "/home")
	b.sees("login", idField)
}

// Back leads to the screen before, and never out of a login in progress. After the
// login it leads to the page before it.
func TestBrowserGoesBack(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{company: people, handler: "login_page {\nremember\n}"})
	b := newBrowser(t)
	back := func(screen, selector string) {
		t.Helper()
		b.eval(`void setTimeout(() => history.back())`)
		b.sees(screen, selector)
	}
	b.open(s.URL + "/acme/logout")
	b.sees("loggedout", "a.main")
	b.open(s.URL + "/home#part")
	b.sees("login", idField)
	b.enters("login", "carol@example.com")
	b.sees("password", passwordField)
	b.chooses("recover.offer")
	b.sees("recover", "#method")
	back("password", passwordField)
	back("login", idField)
	b.waits(`document.querySelector('#login').value === 'carol@example.com'`)
	b.submits()
	b.sees("password", passwordField)
	b.enters("password", testPassword)
	b.sees("code", codeField)
	if offered := b.eval(`document.querySelector('#screen').textContent.includes(` + quote(pageTexts()["backup.offer"]) + `)`); offered != false {
		t.Error("carol has no backup codes, and may enter one")
	}
	back("password", passwordField) // its step is over, so it begins again
	b.enters("password", testPassword)
	b.sees("code", codeField)
	b.reloads("code", codeField)

	// Back while the page can't find out the step
	b.startsWith(`{
		const { fetch } = globalThis;
		globalThis.fetch = (...request) => sessionStorage.offline && request[0].endsWith('/v2/session') ? Promise.reject(new TypeError('offline')) : fetch(...request);
	}`)
	b.eval(`void (sessionStorage.offline = 'yes')`)
	b.reloads("failed", ".alert")
	b.eval(`void setTimeout(() => history.back())`)
	b.waits(`!history.state?.mnemogate`)
	b.eval(`void sessionStorage.removeItem('offline')`)
	b.submits()
	b.sees("code", codeField)

	back("login", idField)
	b.eval(`document.querySelector('#remember').click()`)
	b.fillsIn("carol@example.com", testPassword)
	b.sees("code", codeField)
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("carol")
	b.waits(`location.pathname + location.hash === '/home#part'`)
	if cookies := b.cookies(); len(cookies) != 1 || cookies[0].Session {
		t.Errorf("the cookie ends with the browser: %+v", cookies)
	}
	b.open(s.URL + "/acme/login?fresh=1")
	b.sees("login", idField)
	b.enters("login", "carol@example.com")
	b.sees("password", passwordField)
	b.eval(`Object.keys(sessionStorage).filter((name) => /^mnemogate http\S+$/.test(name)).forEach((name) => { sessionStorage[name] = '{"token": "over"}'; })`)
	b.enters("password", testPassword)
	b.isTold("notice.login.fresh") // carol is logged in, but not anew
	b.enters("login", "carol@example.com")
	b.sees("password", passwordField)
	b.logsOut(s) // of the session, not only of the login that has begun
	b.open(s.URL + "/home")
	b.sees("login", "#remember:not(:checked)")
	b.fillsIn("carol@example.com", testPassword)
	b.sees("code", codeField)
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("carol")
	b.eval(`void setTimeout(() => history.back())`)
	b.waits(`location.pathname === '/acme/logout' && document.querySelector('#screen:not([aria-busy])')`)
}
