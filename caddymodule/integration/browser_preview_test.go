package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/caddymodule/page"
)

// previews starts the preview of a page with these options, and returns the names of
// its scenes and their addresses. Each scene has one of the languages or, for
// screenshots, English.
func (b *tab) previews(o page.Options, company string, languages ...string) (names, addresses []string) {
	b.t.Helper()
	handler := get(page.Preview(o, company, page.Mails{}))(b.t)
	server := guesttest.Serve(b.t, handler)
	if screenshots != "" {
		languages = []string{"en"}
	}
	b.open(server.URL + "/preview/")
	list := b.eval(`import('/preview/scenes.js').then(({ scenes, addressOf }) => Object.keys(scenes).map((name, i) => [name, addressOf(name, 'auto', ` + quote(languages) + `[i % ` + quote(languages) + `.length])]))`)
	for _, scene := range list.([]any) {
		names = append(names, scene.([]any)[0].(string))
		addresses = append(addresses, server.URL+scene.([]any)[1].(string))
	}
	return names, addresses
}

// opens opens a scene of the preview and waits until it has played.
func (b *tab) opens(address string) {
	b.t.Helper()
	b.open(address)
	b.waits(`document.documentElement.dataset.preview === 'done'`)
}

// is checks that an expression of JavaScript is true.
func (b *tab) is(what string) {
	b.t.Helper()
	if b.eval(what) != true {
		b.t.Errorf("%s is not so:\n%s", what, b.shown())
	}
}

// Screen readers hear what the focus has skipped: it describes the element with the focus.
func TestBrowserDescribesWhatHasTheFocus(t *testing.T) {
	b := newBrowser(t)
	names, addresses := b.previews(page.Options{}, "Acme", "en")
	for name, key := range map[string]string{
		"code":                    "code.sent",
		"link":                    "link.text",
		"disclaimers-missing":     "error.auth.disclaimer.invalid",
		"security-app":            "security.app.scan",
		"security-passkey":        "security.passkeys.create.text",
		"code-app":                "code.auto", // what sends itself says so before
		"stepup-code":             "code.auto",
		"security-passkey-remove": "security.passkeys.remove.text",
	} {
		b.opens(addresses[slices.Index(names, name)])
		want := strings.NewReplacer("{phone}", "+37*******34", "{name}", "iPhone").Replace(pageTexts()[key])
		got := b.eval(`document.activeElement.getAttribute('aria-describedby')?.split(' ').map((id) => document.getElementById(id).textContent).join(' ') ?? ''`)
		if !strings.Contains(got.(string), want) {
			t.Errorf("%s: the focus is described by %q, want %q", name, got, want)
		}
	}
}

// caddy mnemogate page --preview needs only a configuration.
func TestThePreviewOfACaddyfile(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: shortTempDir(t)}
	s.config = siteConfig{global: "mail_color \"#336699\"\n", company: "captcha off\nname \"The Company\"\nsupport https://acme.example/help", more: umbra, site: `
		handle /other/* {
			mnemogate {
				company umbra
				login_page {
					link Other /other
				}
			}
		}
		handle {
			mnemogate {
				company acme
				login_page {
					link Imprint /imprint
				}
			}
		}`}.caddyfile(s.dir, "http://127.0.0.1:1", "127.0.0.1:1")
	s.writeCaddyfile()
	cmd := s.caddy("mnemogate", "page", "--preview", "acme", "--config", s.dir+"/Caddyfile", "--adapter", "caddyfile", "--listen", "127.0.0.1:0")
	out := get(cmd.StdoutPipe())(t)
	must(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, url, _ := strings.Cut(strings.TrimSpace(line), " at ")
	response := get(http.Get(strings.TrimSuffix(url, "/") + "/dark/code/login?lang=de"))(t)
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	body := string(content)
	if csp := response.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'self'") || strings.Contains(csp, "unsafe") {
		t.Errorf("the policy is %s", csp)
	}
	for _, want := range []string{"The Company", ">Imprint</a>", "/preview/preview.js", `<html lang="de"`, `content="dark"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %s\n%s", want, body)
		}
	}
	mail := get(http.Get(strings.TrimSuffix(url, "/") + "/mails/dark/notice.phone_changed?lang=de"))(t)
	defer mail.Body.Close()
	content, _ = io.ReadAll(mail.Body)
	for _, want := range []string{"The Company</h1>", `<html lang="de"`, "https://acme.example/help</a>", "(min-width: 0)"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the mail has no %s\n%s", want, content)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	s.cliAt("", "", "page", "--preview", "nobody", "--config", s.dir+"/Caddyfile").want(1, "there is no company nobody in it")
	s.cliAt("", "", "page", "--preview").want(1, "name the configuration with --config")
	s.cliAt("", "", "page").want(1, "add --preview")
}

// No screen in any state has a problem that axe finds, in light and dark, and each fits
// into the narrowest window. With MNEMOGATE_TEST_SCREENSHOTS the test takes pictures.
func TestBrowserSeesEveryScreen(t *testing.T) {
	b := newBrowser(t)
	names, addresses := b.previews(page.Options{
		Logo:     "testdata/logo.svg",
		Title:    "Association of Friends of Extraordinarily Long Names",
		Links:    []page.Link{{Text: "Imprint", URL: "/imprint"}, {Text: "Privacy", URL: "/privacy"}, {Text: "Help", URL: "mailto:help@example.com", Support: true}},
		SignUp:   []page.Link{{Text: "Create an account", URL: "/signup"}},
		Remember: true,
	}, "Acme", "en", "de", "fr", "es", "lt")
	if len(names) < 50 {
		t.Errorf("the preview has only the scenes %q", names)
	}
	screens := map[string]bool{"going": true} // which no scene shows for long
	const fields = `[...document.querySelectorAll('#screen input')].map(({ id }) => id).join(' ')`
	shown := map[string]any{}
	for i, address := range addresses {
		b.opens(address)
		shown[names[i]] = b.eval(fields)
		screens[b.eval(`document.querySelector('main').dataset.screen`).(string)] = true
		b.judge(names[i])
	}
	_, listed, _ := strings.Cut(pages(t)["docs/login-page.md"], "| `main[data-screen]` |")
	listed, _, _ = strings.Cut(listed, "\n")
	for _, name := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(listed, -1) {
		if !screens[name[1]] {
			t.Errorf("docs/login-page.md lists the screen %s, which no scene has", name[1])
		}
		delete(screens, name[1])
	}
	if len(screens) > 0 {
		t.Errorf("docs/login-page.md does not list the screens %v", screens)
	}
	b.do(chromedp.EmulateViewport(320, 640))
	if lines := b.eval(`((title) => Math.round(title.offsetHeight / parseFloat(getComputedStyle(title).lineHeight)))(document.querySelector('.brand p'))`); lines != 3. {
		t.Errorf("beside the logo, the long title has %v lines", lines)
	}
	b.listsAtOnce(names[:24], shown, fields)
}

// listsAtOnce checks that screens that load at once in the list have the same fields as
// alone.
func (b *tab) listsAtOnce(names []string, alone map[string]any, fields string) {
	b.t.Helper()
	b.do(chromedp.ResetViewport())
	b.open(b.eval(`location.origin + '/preview/'`).(string))
	b.waits(`document.querySelector('iframe')`)
	b.eval(quote(names) + `.forEach((name) => { document.querySelector('iframe[title=' + name + ']').loading = 'eager'; })`)
	for _, name := range names {
		shown := `((document) => document?.documentElement.dataset.preview === 'done' && ` + fields + `)(document.querySelector('iframe[title=` + name + `]').contentDocument)`
		b.waits(shown + ` !== false`)
		if got := b.eval(shown); got != alone[name] {
			b.t.Errorf("in the list, %s has the fields %q; alone, %q", name, got, alone[name])
		}
	}
}

// What a screen says is so: an answer that was lost may mean that all went well, a code that
// was used up can't be entered, and what is over looks over. The card's top stays where it is.
func TestBrowserTellsTheTruth(t *testing.T) {
	b := newBrowser(t)
	names, addresses := b.previews(page.Options{Links: []page.Link{{Text: "Help", URL: "/help", Support: true}}}, "Acme", "en")
	b.do(chromedp.EmulateViewport(1280, 800))
	scene := func(name string) {
		b.opens(addresses[slices.Index(names, name)])
		b.is(`document.querySelector('main').offsetTop === 96`)
	}
	for name, want := range map[string][2]string{ // an element, and its text
		"login-unconfirmed":            {"h1", "unconfirmed.heading"},
		"login-unconfirmed-over":       {".notice", "notice.lost.login"},
		"login-disabled-for-good":      {".alert p", "lock.support"},
		"password-lost":                {".alert p", "reason.lost.step"},
		"newpassword-unsure":           {".alert p", "reason.lost.password"},
		"newpassword-lost":             {".notice", "notice.lost.password"},
		"link-lost":                    {".lead", "deadlink.lost"},
		"provider-unavailable":         {".alert p", "error.service.unavailable"},
		"login-blank":                  {"#login-error", "error.empty"},
		"login-changed":                {"h1", "changed.heading"},
		"password-captcha":             {"form > .hint", "captcha.done"},
		"code-lost-phone":              {"details p", "code.lost.backup"},
		"code-expired":                 {"#code-hint span", "code.over"},
		"code-choices":                 {".check", "code.device"},
		"password-choices":             {".check", "login.device"},
		"password":                     {".beside", "recover.offer"},
		"disclaimers-missing":          {"#disclaimers-0-error", "error.auth.disclaimer.invalid"},
		"security-twostep-off":         {"#twostep .main", "security.twostep.turnoff"},
		"security-app-codes":           {"#codes .done", "security.codes.app"},
		"security-phone-code-wrong":    {"#code-error", "security.contact.wrong"},
		"security-passkeys-full":       {"#passkeys .done", "security.passkeys.full"},
		"security-email-code-wrong":    {"#code-error", "error.auth.otp.invalid"}, // it can be tried again
		"security-phone-alike":         {"#phone .done", "security.phone.changed"},
		"security-phone-country":       {"#phone .done", "reason.limit.sms_country"}, // waiting may not help
		"security-codes-first":         {"#codes-ask", "security.codes.once"},
		"security-password-none":       {"#sessions .row p", "security.sessions.text.none"},
		"login-devices":                {".check", "login.device"},
		"stepup-code-unavailable":      {".notice", "notice.login.fresh"}, // another way may do
		"security-app-extra":           {"#twostep, #app .row p", "security.app.extra"},
		"newpassword-rules":            {"#newpassword-error", "reason.password.too_short"},
		"security-session-unavailable": {"#sessions .done", "error.service.unavailable"},
	} {
		scene(name)
		b.shows(want[0], want[1])
	}
	for name, what := range map[string]string{
		"login-fresh":                `document.querySelector('#login').value === 'alice@example.com'`,
		"login-fresh-phone":          `document.querySelector('#login').value === '' && document.querySelector('.lead').textContent.includes('+37*******34')`,
		"newpassword-lost":           `document.querySelector('#login').value === 'alice@example.com'`,
		"already":                    `document.querySelector('.who b').textContent === 'alice@example.com'`,
		"logout":                     `document.querySelector('.who b').textContent === 'alice@example.com'`,
		"code":                       `document.querySelector('.who b').textContent === 'alice@example.com'`,
		"link-password":              `document.querySelector('.who b').textContent === 'alice@example.com' && document.querySelector('[autocomplete=username]').value === 'alice@example.com'`,
		"security-password":          `document.querySelector('#password [autocomplete=username]').value === 'alice@example.com'`,
		"code-spent":                 `document.querySelector('#code') === null && document.querySelector('#screen .main').textContent === 'Send a new code'`,
		"code-resent":                `document.querySelector('#code-hint').textContent === 'The code expires in 5 minutes.'.repeat(2) + ' ` + pageTexts()["code.auto"] + `' && document.querySelector('#code').offsetWidth < 240`,
		"code-disclaimers":           `document.querySelector('#code-hint').textContent.trim() === 'The code expires in 5 minutes.'.repeat(2)`, // with boxes below, it may not be sent by itself
		"newpassword-rules":          `document.querySelector('.rules li').textContent === '12 to 128 characters'`,
		"newpassword-unsure":         `document.querySelector('.rules .kept') !== null`,
		"newpassword-weak":           `document.querySelector('.rules .kept') === null`,
		"stepup-limit":               `document.querySelector('.alert').textContent.includes('Try again in 50 minutes.') && document.querySelector('.alert a[href=logout]') !== null`,
		"security-codes":             `document.querySelector('.codes').translate === false`,
		"security-app":               `document.querySelector('.secret').translate === false`,
		"security-password-disabled": `document.querySelector('#password .done').textContent.endsWith('choose “Forgot password?” on the login page.')`,
		"security-passkey-last":      `document.querySelector('#passkeys .danger') === null`,
		"security-passkey-provider":  `document.querySelector('#passkeys .danger') !== null`,
		"security-devices-none":      `document.querySelector('#devices .row p').textContent.includes('“Remember this device”')`,
		"login-choices":              `document.querySelectorAll('.check').length === 1 && document.querySelector('#login').dir === 'auto'`,
		"security-passkey-remove":    `document.querySelectorAll('#passkeys .item').length === 2 && document.querySelector('#passkeys .item:first-child .ask .danger') !== null`,
		"code-wrong-limit":           `document.querySelector('#code') === null && document.querySelector('#screen .main').textContent === 'Back to login'`,
		"recover-mails":              `document.querySelector('.alert p').textContent.startsWith(` + quote(pageTexts()["reason.limit.mails"]+" Try again in 50 minutes.") + `)`,
		"security-phone-limit":       `document.querySelector('#phone .done').textContent === ` + quote(pageTexts()["reason.limit.sms"]+" Try again in 10 minutes."),
		"security": `import(new URL('device.js', document.querySelector('script[src*="/v2/page/"]').src)).then(({ moment, ago }) => {
			Object.defineProperty(navigator, 'languages', { value: ['fr-CA', 'en-GB', 'en'] });
			const day = moment(new Date(2026, 0, 31));
			const long = ['de', 'fr', 'es', 'lt'].flatMap((language) => [49, 70].map((hours) => ago(Date.now() - hours * 3600000)(language)));
			return day('en').startsWith('31 Jan 2026') && day('de').startsWith('31.01.2026') && ago(Date.now())('en') === 'now' &&
				[...new Set(long)].join() === 'vor 2 Tagen,il y a 2 jours,hace 2 días,prieš 2 dienas';
		})`,
	} {
		scene(name)
		b.is(what)
	}
	scene("newpassword-typed")
	var said []string // by screen readers, of what has a description
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		tree, err := cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		for _, node := range tree.Nodes {
			if node.Description != nil {
				var text string
				must(t, json.Unmarshal(node.Description.Value, &text))
				said = append(said, text)
			}
		}
		return err
	}))
	if all := strings.Join(said, "\n"); !strings.Contains(all, "✓ 8 to 128 characters") {
		t.Errorf("nothing says that the password is long enough:\n%s", all)
	}
	scene("code-resent")
	b.is(`(() => {
		const again = [...document.querySelectorAll('.links button')].find(({ textContent }) => /^Send a new code \(\d+s\)$/.test(textContent));
		const { fetch } = globalThis;
		let sent = 0;
		globalThis.fetch = (...request) => (sent++, fetch(...request));
		for (let i = 0; i < 5; i++) again.click();
		return sent === 0 && again.getAttribute('aria-disabled') === 'true';
	})()`)
	b.is(`new Promise((resume) => {
		const silent = []; // whether screen readers say nothing of a change
		new MutationObserver((changes) => silent.push(...changes.map(({ target }) => target.closest('[aria-hidden]') !== null))).observe(document.querySelector('#screen'), { subtree: true, childList: true });
		setTimeout(() => resume(silent.length > 0 && silent.every(Boolean)), 2500);
	})`)
	b.eval(`void (Date.now = () => performance.timeOrigin + performance.now() + 60_000)`)
	b.waits(`(() => {
		const again = [...document.querySelectorAll('.links button')].find(({ textContent }) => textContent === 'Send a new code');
		if (again) globalThis.kept = { again, text: again.firstChild };
		return again && !again.hasAttribute('aria-disabled');
	})()`)
	b.is(`new Promise((resume) => setTimeout(resume, 1500)).then(() => kept.again.firstChild === kept.text)`) // a selection stays
	for _, pasted := range []string{"Your code is 123 456. It is valid for 5 minutes.", "Kodas: 123–456", "رمزك هو \u2067١٢٣\u200f٤٥٦\u2069"} {
		scene("code")
		b.eval(`(() => {
			const clipboardData = new DataTransfer();
			clipboardData.setData('text', '` + pasted + `');
			document.querySelector('#code').dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
		})()`)
		b.sees("newpassword", "#newpassword")
	}
}

// After an error, the keyboard is where the user goes on, and a link or button offers what
// helps. A lock of one account does not lock the form for others. English fallbacks on a page from right to left have their
// own direction. The language menu speaks the chosen language.
func TestBrowserGoesOnAfterAnError(t *testing.T) {
	texts := t.TempDir()
	must(t, os.WriteFile(texts+"/ar.json", []byte(`{"language": "العربية", "language.choose": "اللغة", "login.heading": "تسجيل الدخول"}`), 0o600))
	b := newBrowser(t)
	names, addresses := b.previews(page.Options{Texts: texts, Links: []page.Link{{Text: "Privacy", URL: "/privacy"}, {Text: "Help", URL: "/help", Support: true}}}, "Acme", "en")
	scene := func(name string) { b.opens(addresses[slices.Index(names, name)]) }
	scene("login-unavailable")
	b.is(`document.activeElement.id === 'login' && document.activeElement.getAttribute('aria-describedby').endsWith(' told')`)
	scene("code-wrong")
	b.is(`document.activeElement.id === 'code' && document.activeElement.value === ''`)
	scene("code-limit")
	b.is(`!document.querySelector('#screen .main').hasAttribute('aria-disabled')`)
	b.chooses("backup.offer")
	b.sees("backup", "#backup")
	scene("code-wrong-limit")
	b.is(`!document.querySelector('#screen .main').hasAttribute('aria-disabled')`)
	b.chooses("login.back")
	b.sees("login", idField)
	for scenes, ways := range map[string]string{
		"login-restricted login-closed login-denied provider-unknown": "Help",
		"login-address login-unavailable login-locked-hardened":       "",
		"code-locked recover-question-locked":                         "Help," + pageTexts()["login.back"],
		"password-locked":                                             pageTexts()["lock.recover"] + "," + pageTexts()["login.back"],
		"login-disabled":                                              pageTexts()["lock.recover"] + ",Help",
		"code-limit":                                                  pageTexts()["backup.offer"],
	} {
		for _, name := range strings.Fields(scenes) {
			scene(name)
			if got := b.eval(`[...document.querySelectorAll('.alert .links > *')].map(({ textContent }) => textContent).join()`); got != ways {
				t.Errorf("%s offers %q, want %q", name, got, ways)
			}
		}
	}
	scene("recover-notset")
	b.is(`document.querySelector('#method-error a').textContent === 'Help'`)
	scene("login-empty")
	b.shows("#said", "error.empty") // the focus was there before
	b.is(`document.activeElement.enterKeyHint === 'next'`)
	b.eval(`document.documentElement.style.setProperty('--link', 'color(unknown)')`) // as for browsers without relative colors
	b.is(`getComputedStyle(document.activeElement).outlineStyle === 'solid'`)
	scene("offer-refused")
	b.shows(".alert p", "offer.cancelled")
	scene("login-disabled") // waiting does not help
	b.is(`!document.querySelector('#screen .main').hasAttribute('aria-disabled')`)
	scene("logout-unavailable") // the user may still be logged in
	b.shows("h1", "logout.heading")
	b.shows("#screen .main", "error.again")
	b.is(`(() => {
		let asked = 0;
		globalThis.fetch = () => { asked++; return new Promise(() => {}); };
		const main = document.querySelector('#screen .main');
		for (let i = 0; i < 2; i++) main.click();
		globalThis.asked = () => asked;
		return main.matches('.busy') && getComputedStyle(main, '::after').animationName === 'none'; // this browser's user wants no motion
	})()`)
	b.waits(`asked() > 0`)
	b.is(`asked() === 1`)
	scene("recover-mailed")
	b.chooses("mail.again")
	b.sees("recover", "#method")
	b.chooses("recover.stop")
	b.sees("login", idField)
	b.is(`sessionStorage.getItem('mnemogate-page language') === 'en'`) // as the address says, for the pages that have no say
	scene("stepup-code")
	b.chooses("login.other")
	b.sees("login", idField)
	b.is(`document.querySelector('#login').value === ''`)

	// Somebody else has logged in. What is shown once stays until the user does something.
	scene("security-codes")
	b.eval(`(() => {
		globalThis.isOld = true;
		globalThis.fetch = async () => new Response('{"status": "success", "session_state": "authorized", "expires_in": 600, "profile_mnemocode": "bob-0002"}');
		dispatchEvent(new Event('focus'));
		return new Promise((resume) => setTimeout(resume, 500));
	})()`)
	b.is(`globalThis.isOld === true`)
	b.chooses("security.sessions.end")
	b.waits(`globalThis.isOld === undefined`)

	// A screen stays until the answer has come.
	stall := func() { b.eval(`(() => { globalThis.fetch = () => new Promise(() => {}); })()`) }
	scene("password")
	stall()
	b.enters("password", "right")
	b.chooses("recover.offer")
	b.is(`document.querySelector('#password') !== null`)
	scene("security-password")
	stall()
	b.types("current", "right")
	b.enters("newpassword", "correct horse battery")
	b.chooses("security.cancel")
	b.chooses("security.phone.change")
	b.is(`document.querySelector('#current') !== null && document.querySelector('#newphone') === null`)

	scene("login-locked")
	b.is(`document.querySelector('#screen .main').getAttribute('aria-disabled') === 'true'`)
	b.submits()
	if got := b.eval(`document.querySelector('#said').textContent`); got != pageTexts()["reason.lock.password"]+" Try again in 15 minutes." {
		t.Errorf("during a lock, the page says %q", got)
	}
	b.eval(`(() => {
		document.querySelector('.alert button').focus();
		const { now } = Date;
		Date.now = () => now() + 1e6;
	})()`)
	b.waits(`document.activeElement.id === 'login' && document.querySelector('.notice')?.textContent === ` + quote(pageTexts()["lock.over"]))
	scene("login-locked")
	b.types("login", "bob@example.com")
	b.is(`!document.querySelector('#screen .main').hasAttribute('aria-disabled')`)
	b.is(`document.querySelector('.alert p').textContent.trim() === ` + quote(pageTexts()["reason.lock.password"]))
	b.eval(`new Promise((resume) => setTimeout(resume, 1500))`)
	b.is(`document.querySelector('.alert') !== null`) // nothing is over for this one
	b.chooses("lock.recover")
	b.sees("recover", "#method")
	scene("password-locked") // the step ends before the lock, so nobody waits for it here
	if got, want := b.eval(`document.querySelector('.alert p').textContent`), pageTexts()["reason.lock.password"]+" Try again in 15 minutes. "+pageTexts()["lock.ends"]; got != want {
		t.Errorf("during a lock that outlasts the step, the page says %q, want %q", got, want)
	}
	b.chooses("login.back")
	b.sees("login", idField)
	scene("stepup-password-locked")
	b.is(`document.querySelector('#screen .main').getAttribute('aria-disabled') === 'true'`)
	b.chooses("lock.recover")
	b.sees("recover", "#method")
	b.enters("login", "alice@example.com")
	b.sees("recover-code", codeField)
	speak := func(language string) {
		b.eval(`(() => {
			const menu = document.querySelector('#language');
			menu.value = ` + quote(language) + `;
			menu.dispatchEvent(new Event('change'));
		})()`)
		b.waits(`document.documentElement.lang === ` + quote(language))
	}
	speak("ar")
	b.waits(`document.documentElement.dir === 'rtl' && document.querySelector('footer label span').textContent === 'اللغة'`)
	b.sees("recover", `h1 > span[lang=en][dir=ltr]`)
	b.judge("recover-rtl")
	scene("code-resent")
	speak("ar")
	b.sees("code", `.links button[aria-disabled] > span[lang=en]`)
	scene("security")
	speak("ar")
	b.sees("security", `h1 > span[lang=en]`) // it is shown anew, without what was told before
	b.chooses("security.sessions.end")
	b.sees("security", `#sessions .done > span[lang=en]`)
	stall()
	b.chooses("security.sessions.all")
	b.is(`document.querySelector('#sessions .quiet.busy[aria-disabled]') !== null`)
	scene("security-app")
	b.types("code", "12")
	speak("ar")
	b.sees("security", `#app-ask > p > span[lang=en]`)
	b.is(`document.querySelector('#code').value === '12'`)
	scene("logout-unavailable")
	speak("ar")
	b.sees("failed", `h1 > span[lang=en]`)
	scene("security-password")
	b.types("current", "right")
	b.types("newpassword", "correct horse battery")
	filled := `document.querySelector('#current')?.value === 'right' && document.querySelector('#newpassword').value === 'correct horse battery' && document.querySelector('.rules .kept') !== null`
	b.chooses("security.sessions.end")
	b.tells("sessions", "security.sessions.ended")
	b.is(filled)
	speak("ar")
	b.sees("security", `h1 > span[lang=en]`)
	b.is(filled)
	scene("password-disclaimers")
	b.eval(`void document.querySelector('#disclaimers input').click()`)
	speak("fr")
	b.waits(`document.querySelector('#disclaimers input:checked') && document.querySelector('h1').textContent === 'Saisissez votre mot de passe'`)
	b.eval(`void sessionStorage.removeItem('mnemogate ' + location.href.replace(/\/login.*/, ''))`) // the step is over
	speak("en")
	b.sees("login", idField)
	b.eval(`(() => {
		globalThis.fetch = () => Promise.reject(new TypeError('offline'));
		const menu = document.querySelector('#language');
		menu.value = 'fr';
		menu.dispatchEvent(new Event('change'));
	})()`)
	b.isAlerted("error.network")
	b.is(`document.querySelector('#language').value === 'en'`)

	// The operator has changed the captcha, whose script comes with the page.
	for _, name := range []string{"recover-captcha", "recover-captcha-gone"} {
		scene(name)
		b.waits(`document.querySelector('.alert, #login-error:not([hidden])')`)
		b.eval(`import('/preview/scenes.js').then(({ scenes }) => {
			scenes[` + quote(name) + `].config = { captcha: { type: 'turnstile', site_key: 'x' } };
			globalThis.isOld = true;
		})`)
		b.submits()
		b.waits(`globalThis.isOld === undefined && document.querySelector('#screen:not([aria-busy])')`)
	}

	// Captchas
	widget := func(script string) any {
		return b.eval(`(async () => {
			const page = document.querySelector('script[src*="/v2/page/"]').src;
			const [{ captcha }, { complain, isFilled }] = await Promise.all(['captcha.js', 'ui.js'].map((name) => import(new URL(name, page))));
			const form = document.querySelector('#screen form');
			` + script + `
		})()`)
	}
	scene("login")
	if got := widget(`
		globalThis.turnstile = { render(place) { place.innerHTML = '<input type="hidden">'; } };
		document.head.append = (script) => script.dispatchEvent(new Event('load'));
		form.append(captcha({ type: 'turnstile' }).element);
		await new Promise((resume) => setTimeout(resume));
		complain('captcha', 'missing');
		return document.activeElement.id`); got != "captcha" {
		t.Errorf("the focus is at %q", got)
	}
	if got := widget(`
		document.head.append = (script) => script.dispatchEvent(new Event('error'));
		form.append(captcha({ type: 'hcaptcha' }).element);
		await new Promise((resume) => setTimeout(resume));
		isFilled(form);
		return document.querySelector('[role=alert]:not([hidden])')?.textContent`); got != pageTexts()["captcha.unreachable"] {
		t.Errorf("without a captcha, the page says %q", got)
	}

	// What is said is in sight, also with large text or a keyboard on the screen.
	b.do(chromedp.EmulateViewport(500, 257))
	for name, said := range map[string]string{"code-limit": ".alert", "code-resent": ".notice", "login-locked": ".alert", "security-password-unsure": ".done.bad"} {
		scene(name)
		b.is(`(({ top, bottom }) => Math.round(top) >= 0 && bottom <= innerHeight)(document.querySelector('` + said + `').getBoundingClientRect())`)
	}
	b.do(chromedp.ResetViewport())

	// The security page
	scene("security-twostep-off")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.waits(`document.activeElement.matches('#twostep h2') && document.querySelectorAll('.main').length === 0`)
	scene("password")
	b.is(`(() => {
		const field = document.querySelector('#password'), hint = () => document.querySelector('.field [role=status]').textContent;
		const said = [];
		for (const modifierCapsLock of [true, false]) {
			field.dispatchEvent(new KeyboardEvent('keydown', { key: 'A', modifierCapsLock }));
			said.push(hint());
		}
		field.dispatchEvent(new Event('keydown')); // autofill
		return said.join() === ` + quote(pageTexts()["password.capslock"]+",") + ` && hint() === '';
	})()`)
	b.eval(`(() => {
		const { setTimeout } = globalThis;
		globalThis.setTimeout = (f, wait) => setTimeout(f, wait >= 10_000 ? 0 : wait);
	})()`)
	b.submits()
	b.shows("#password-error", "error.empty")
	b.waits(`document.querySelector('#said').textContent === ''`)
	scene("security-password") // the login is fresh for only 20 seconds
	b.is(`document.querySelector('#current') !== null`)
	for name, told := range map[string]string{"password-unsure": "notice.lost.password", "passkey-refused": "offer.cancelled", "session-over": ""} {
		scene("security-" + name)
		if got := b.eval(`[...document.querySelectorAll('.done')].map(({ textContent }) => textContent).join('')`); got != pageTexts()[told] {
			t.Errorf("%s says %q", name, got)
		}
	}
	scene("security-tokens")
	b.chooses("security.tokens.create")
	b.eval(`document.querySelectorAll('#methods input')[1].click()`)
	speak("fr")
	b.waits(`document.querySelectorAll('#methods input')[1]?.checked && document.querySelector('h1').textContent === 'Connexion et sécurité'`)
	for _, wanted := range []string{"security-required twostep", "security-contacts-none phone-remove"} { // what can't be done has no dialog
		name, dialog, _ := strings.Cut(wanted, " ")
		b.opens(addresses[slices.Index(names, name)] + "#" + dialog)
		b.is(`document.querySelector('#screen .main') === null`)
	}

	// A key that is held
	scene("security-passkeys")
	b.eval(`document.querySelector('#passkeys .danger').focus()`)
	for i := range 3 {
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13, AutoRepeat: new(i > 0)})
			return err
		}))
		b.is(`document.activeElement.matches('#passkeys .main:not(.busy)')`)
	}

	// What has changed while the page was open
	changes := func(name, what string) {
		b.eval(`import('/preview/scenes.js').then(({ scenes }) => {
			const scene = scenes[` + quote(name) + `];
			const fails = (status, error_code) => ({ status, error_code });
			const answers = (route, answer) => { scene.answers = { ...scene.answers, [route]: answer }; };
			` + what + `
		})`)
	}
	scene("security-twostep-off") // a proxy's 404 does not say that it is off
	changes("security-twostep-off", `answers('me/second_factor', fails(404))`)
	b.submits()
	b.tells("twostep", "security.unsure")
	scene("security-session-over")
	changes("security-session-over", `answers('me/sessions/b', fails(404))`)
	b.chooses("security.sessions.end")
	b.tells("sessions", "error.network")
	scene("security-app-remove")
	changes("security-app-remove", `answers('me/totp', fails(409, 'request.validation.failed'))`)
	b.submits()
	b.tells("app", "error.superseded")
	scene("login-passkeys")
	changes("login-passkeys", `
		answers('passkey/options', fails(404, 'request.validation.failed'));
		scene.config = { passkeys: false };`)
	b.chooses("login.passkey")
	b.isAlerted("error.request.validation.failed")
	b.is(`document.querySelector('.stack').textContent.includes(` + quote(pageTexts()["login.passkey"]) + `) === false`)
	scene("password") // bob has logged in in another tab
	changes("password", `
		answers('auth/checkpassword', fails(401, 'auth.token.expired'));
		Object.assign(scene, { session: { ...scenes.already.session, user: 'bob' }, cookie: true });`)
	b.enters("password", "right")
	b.shows("h1", "already.heading")
	b.is(`document.querySelector('.who b').textContent === 'bob'`)

	// What an extension puts into a form
	scene("password-wrong")
	b.eval(`document.querySelector('#screen form').append(document.createElement('input'), Object.assign(document.createElement('input'), { name: '2fa' }))`)
	b.enters("password", "wrong")
	b.waits(`document.querySelector('[name="2fa"]') === null`)
	b.shows("#password-error", "error.auth.password.invalid")
}

// Every mail in every language fits into the narrowest window, loads nothing, and has
// nothing that axe finds in one mail of each form.
func TestBrowserSeesEveryMail(t *testing.T) {
	b := newBrowser(t)
	server := guesttest.Serve(t, get(page.Preview(page.Options{}, "Association of Friends of Extraordinarily Long Names", page.Mails{Color: "#ffcc00", Support: "https://acme.example/help"}))(t))
	b.open(server.URL + "/preview/")
	wrong := b.eval(`(async () => {
		const types = await (await fetch('/mails')).json(), languages = await (await fetch('/languages')).json();
		const frames = types.flatMap((type) => languages.flatMap((language) => [320, 600].map((width) => {
			const frame = document.createElement('iframe');
			Object.assign(frame, { width, height: 300, src: '/mails/light/' + type + '?lang=' + language });
			return frame;
		})));
		const loaded = frames.map((frame) => new Promise((resolve) => { frame.onload = resolve; }));
		document.body.replaceChildren(...frames);
		await Promise.all(loaded);
		if (frames.length < 160) return [frames.length];
		return frames.filter(({ width, contentWindow: { performance }, contentDocument: { documentElement: shown } }) => (
			!shown.querySelector('h1') || !shown.lang || shown.scrollWidth > width || performance.getEntriesByType('resource').length > 0
		)).map(({ src }) => src);
	})()`)
	for _, mail := range wrong.([]any) {
		t.Errorf("wrong: %v", mail)
	}
	for _, kind := range []string{"recovery.link", "notice.passkey_added"} {
		b.open(server.URL + "/mails/auto/" + kind + "?lang=de")
		b.judge("mail-" + kind)
	}
}
