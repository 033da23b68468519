package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"golang.org/x/net/websocket"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// These tests use a browser: Chromium's headless shell, which needs half the CPU time of
// Chromium, or Chromium. All tests share one process, but each has its own cookies and
// storage.

// patience is the timeout for the browser on a busy machine.
const patience = time.Minute

func chromiumPath() (string, error) {
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	return path, err
}

var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := chromiumPath()
	if err != nil {
		return nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, // root can't use the sandbox
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"), // no requests to the internet
		chromedp.Flag("force-prefers-reduced-motion", true), chromedp.Flag("accept-lang", "en-US"), chromedp.WSURLReadTimeout(patience))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	return ctx, chromedp.Do(ctx)
})

// closeChromium closes the browser, if a test has started it.
var closeChromium = func() {}

// A tab is a tab of the browser. Hidden problems fail the test: an error on the
// console, or a violation of the page's policy.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu        sync.Mutex
	complains []string
	addresses []string // of all requests and pages
	scripted  []string // of the requests by scripts
	loud      bool     // errors are expected
	thrown    bool     // a script has failed, so what is waited for may never come
}

// newBrowser opens a tab with empty cookies and storage.
func newBrowser(t *testing.T) *tab {
	t.Helper()
	shared, err := chromium()
	if err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("%v: install chromium", err))
	}
	closeChromium = func() { _ = chromedp.Cancel(shared) }
	return openTab(t, shared, chromedp.WithNewBrowserContext())
}

// another opens a tab that shares cookies and localStorage with this one.
func (b *tab) another() *tab { return openTab(b.t, b.ctx) }

func openTab(t *testing.T, of context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(of, append(options, chromedp.WithListener(b.hear))...)
	t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx, looking("light")); err != nil { // without a timeout: the tab would close with it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, complaint := range b.complains {
			if !b.loud {
				t.Errorf("the console says: %s", complaint)
			}
		}
	})
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.addresses = append(b.addresses, e.Request.URL+e.Request.URLFragment)
		if e.Initiator.Type == network.InitiatorTypeScript {
			b.scripted = append(b.scripted, e.Request.URL)
		}
	case *page.EventFrameNavigated:
		b.addresses = append(b.addresses, e.Frame.URL+e.Frame.URLFragment)
	case *page.EventNavigatedWithinDocument:
		b.addresses = append(b.addresses, e.URL)
	case *runtime.EventExceptionThrown:
		b.complains = append(b.complains, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		b.thrown = !b.loud
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.complains = append(b.complains, fmt.Sprintf("%s %s", e.Type, e.Args[0].Value))
		}
	case *browserlog.EventEntryAdded:
		// The console also reports each route that refuses a request.
		refused := e.Entry.Source == browserlog.EntrySourceNetwork && strings.Contains(e.Entry.URL, "/v2/")
		if e.Entry.Level == browserlog.EntryLevelError && !refused {
			b.complains = append(b.complains, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.shown())
	}
}

// looking sets the color scheme that the user prefers.
func looking(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// shown describes the address and the content of the tab.
func (b *tab) shown() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + '\n' + document.body?.innerText`))
	return text
}

func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
}

func (b *tab) reload() {
	b.t.Helper()
	b.do(chromedp.Reload())
}

// cookies returns the cookies that the browser sends to the page.
func (b *tab) cookies() (kept []*network.Cookie) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		got, err := cdp.Call(ctx, target, network.GetCookies, network.GetCookiesParams{})
		kept = got.Cookies
		return err
	}))
	return kept
}

// eval runs a script in the page, awaits its promise and returns the result.
func (b *tab) eval(script string) (result any) {
	b.t.Helper()
	if err := b.try(patience, script, &result); err != nil {
		b.t.Fatalf("%s: %v\n%s", script, err, b.shown())
	}
	return result
}

func (b *tab) try(limit time.Duration, script string, result any) error {
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => JSON.stringify((await ("+script+")) ?? null))()",
		chromedp.EvalAwaitPromise, func(p *runtime.EvaluateParams) { p.UserGesture = new(true) }))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), result)
}

// waits waits until a script returns true, on this page or the next. A script in a
// page that the browser leaves may never return.
func (b *tab) waits(script string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		var is bool
		if err := b.try(5*time.Second, "Boolean("+script+")", &is); err == nil && is {
			return
		}
		b.mu.Lock()
		thrown := b.thrown
		b.mu.Unlock()
		if thrown || time.Now().After(deadline) {
			b.t.Fatalf("%s is not so within %v, or a script has failed:\n%s", script, patience, b.shown())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// quote returns a string or strings in JavaScript.
func quote[S string | []string](s S) string {
	quoted, _ := json.Marshal(s)
	return string(quoted)
}

// sawNowhere checks that no address contained the secret.
func (b *tab) sawNowhere(secret string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range b.addresses {
		if strings.Contains(address, secret) {
			b.t.Errorf("an address has %s in it: %s", secret, address)
		}
	}
}

// A browserApp is a backend with pages. Each page shows the user of the request and
// has the policy in its query. /ws is a WebSocket and /sse a stream; both tick.
type browserApp struct {
	*httptest.Server
	mu       sync.Mutex
	got      []string // method, path and user
	authTime string   // of the last request
}

func newBrowserApp(t *testing.T) *browserApp {
	a := new(browserApp)
	a.Server = guesttest.Serve(t, a)
	return a
}

func (a *browserApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := r.Header.Get("X-Profile-Mnemocode")
	a.mu.Lock()
	a.got = append(a.got, r.Method+" "+r.URL.Path+" "+user)
	a.authTime = r.Header.Get("X-Profile-Auth-Time")
	a.mu.Unlock()
	switch r.URL.Path {
	case "/ws":
		websocket.Handler(func(conn *websocket.Conn) {
			for websocket.Message.Send(conn, "tick") == nil {
				time.Sleep(20 * time.Millisecond)
			}
		}).ServeHTTP(w, r)
	case "/sse":
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			fmt.Fprint(w, "data: tick\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	case "/nothing": // like a download, it leaves the browser where it is
		w.WriteHeader(http.StatusNoContent)
	case "/eager": // it makes the browser load /pay/x before the user opens that
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>App</title><link rel="icon" href="data:,">
<script type="speculationrules">{"prerender":[{"urls":["/pay/x"],"eagerness":"immediate"}]}</script>
<script>new BroadcastChannel('open').onmessage = () => location.assign('/pay/x')</script>`)
	default:
		if policy := r.URL.Query().Get("policy"); policy != "" {
			w.Header().Set("Content-Security-Policy", policy)
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>App</title><link rel="icon" href="data:,"><h1 id="user">%s</h1>`, html.EscapeString(user))
	}
}

func (a *browserApp) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.got)
}

// startBrowserSite starts a site in front of a backend with pages.
func startBrowserSite(t *testing.T, c siteConfig) (*site, *browserApp) {
	t.Helper()
	app := newBrowserApp(t)
	return startBrowserSiteAt(t, c.env, app, func(*site) siteConfig { return c }), app
}

// startBrowserSiteAt starts a site whose configuration names its own address.
func startBrowserSiteAt(t *testing.T, env []string, app *browserApp, config func(*site) siteConfig) *site {
	t.Helper()
	s := &site{backend: &rawBackend{t: t, addr: app.Listener.Addr().String()}, sms: newWebhookSink(t), env: env}
	return startWith(t, s, func(s *site) string { return config(s).caddyfile(s.dir, s.sms.URL, s.backend.addr) })
}

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
	b.eval(`document.querySelector('a.main').click()`)
	b.sees("security", "#app")
	b.setsUpAppFor("/pay/x")
	b.isUser("frank")

	// The security page asks for the other factor before a change, and then goes on with it,
	// also where the application has filled the tab's storage.
	b = newBrowser(t)
	b.startsWith(`Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); }`)
	b.logsIn(s.URL+"/acme/security", "alice@example.com", testPassword)
	b.sees("security", "#app")
	b.chooses("security.app.setup")
	b.sees("stepup-code", codeField)
	b.enters("code", s.sms.last("otp.stepup", "code"))
	b.sees("security-app", "svg.qr")
}

// setsUpAppFor sets up an app on the security page, to which a path has led, and goes on there.
func (b *tab) setsUpAppFor(path string) {
	b.t.Helper()
	b.chooses("security.app.setup")
	b.sees("security-app", "svg.qr")
	secret := strings.ReplaceAll(fmt.Sprint(b.eval(`document.querySelector('.secret').textContent`)), " ", "")
	b.enters("code", appShows(b.t, secret, 0))
	b.tells("app", "security.app.done")
	b.chooses("security.codes.kept")
	b.eval(`document.querySelector('#screen > a').click()`)
	b.sees("stepup-app", codeField)
	b.enters("code", appShows(b.t, secret, 30*time.Second))
	b.waits(`location.pathname === ` + quote(path))
}

// Where no login asks for a second factor, a path that needs one leads to the way to set up
// an app. A user who is not sent the code for a more recent login may log in another way.
func TestBrowserNeedsASecondFactorThatNoLoginAsksFor(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{
		company: "captcha off\nsecond_factor off\n" + account("frank", "") + "account bob {\nphone +37060000002\n}\n",
		handler: "login_page\nself_service\nmfa /pay/*\nfresh 1s /account/*",
	})
	b := newBrowser(t)
	b.logsIn(s.URL+"/acme/security", "frank", testPassword)
	b.sees("security", "main:not(:has(#app, #twostep)) #sessions")
	b.open(s.URL + "/pay/x")
	b.sees("stepup-none", "a.main")
	b.eval(`document.querySelector('a.main').click()`)
	b.sees("security", "main:not(:has(#twostep)) #app")
	b.shows("#app .row p", "security.app.extra")
	b.setsUpAppFor("/pay/x")
	b.open(s.URL + "/acme/security") // the app is there to be removed, and so are its backup codes
	b.sees("security", "main:has(#codes) #app .danger")
	b.eval(`document.querySelector('#app .danger').click()`)
	b.submits()
	b.tells("app", "security.app.removed")
	b.sees("security", "main:not(:has(#codes)) #app")

	b = newBrowser(t)
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.enters("login", "+37060000002")
	b.sees("code", codeField)
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("bob")
	s.sms.answer(http.StatusServiceUnavailable)
	time.Sleep(time.Second)
	b.open(s.URL + "/account/x")
	b.sees("login", idField)
	b.isTold("notice.login.fresh")
}

// A reload goes on with the code that was sent, which another one would replace. It does
// not with that of another user, and a code of another session leads to a new one.
func TestBrowserReloadsAStepUp(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{
		company: people + "account gina {\nemail gina@example.com\nphone +37060000007\npassword \"" + testPassword + "\"\n}",
		handler: "login_page\nmfa /pay/*",
	})
	b := newBrowser(t)
	sent := func(want int) {
		t.Helper()
		if got := len(s.sms.of("otp.stepup")); got != want {
			t.Fatalf("%d codes were sent, want %d", got, want)
		}
	}
	enters := func(tab *tab) {
		t.Helper()
		tab.enters("code", s.sms.last("otp.stepup", "code"))
		tab.waits(`location.pathname === '/pay/now'`)
	}
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword)
	b.isUser("alice")
	b.open(s.URL + "/pay/now")
	b.sees("stepup-code", codeField)
	b.reloadsLater("stepup-code")
	copied := b.another() // it has what this tab has kept
	copied.open(s.URL + "/home")
	copied.eval(`Object.assign(sessionStorage, ` + fmt.Sprint(b.eval(`JSON.stringify(sessionStorage)`)) + `)`)
	copied.open(s.URL + "/pay/now")
	copied.sees("stepup-code", codeField)
	sent(1)
	enters(b)
	enters(copied) // the step-up is over, and nothing is missing
	sent(1)

	// After a wrong code, the reload goes on with the one that was sent then.
	b.holds(s, s.login("alice@example.com"))
	b.open(s.URL + "/pay/now")
	b.sees("stepup-code", codeField)
	sent(2)
	b.enters("code", wrong(s.sms.last("otp.stepup", "code")))
	b.isTold("notice.code.wrong.resent")
	b.reloads("stepup-code", codeField)
	sent(3)

	// In another session of the user its code is worth nothing.
	b.holds(s, s.login("alice@example.com"))
	b.reloads("stepup-code", codeField)
	sent(3)
	b.enters("code", "12345") // it can't be a code, which says nothing of the step-up
	b.complainsOf("code", "error.request.validation.failed")
	sent(3)
	b.enters("code", s.sms.last("otp.stepup", "code"))
	b.isTold("notice.code.resent")
	sent(4)
	b.reloads("stepup-code", codeField)
	sent(4)

	// Another user gets another code. A reload at another factor begins with the first one.
	s.admin("POST", "accounts/gina/backup-codes", nil).wantStatus(200)
	b.holds(s, s.login("gina@example.com"))
	b.reloads("stepup-code", codeField)
	sent(5)
	b.chooses("stepup.use.backup")
	b.sees("stepup-backup", "#backup")
	b.reloads("stepup-code", codeField)
	sent(6)
	enters(b)
	b.isUser("gina")

	// Nor is a step-up without an SMS one of another session. The page says why it asks again.
	b.open(s.URL + "/acme/login?fresh=1")
	b.sees("stepup-password", passwordField)
	b.holds(s, s.login("alice@example.com"))
	b.enters("password", testPassword)
	b.isAlerted("error.superseded")
	b.waits(`document.querySelector('.who b').textContent === 'alice@example.com'`)
	b.enters("password", testPassword)
	b.waits(`location.pathname === '/'`)
	b.isUser("alice")
}

// A browser may load a page before the user opens it, or in a tab that nobody looks at. That
// sends no code, and asks for nothing else.
func TestBrowserLoadsAheadOfTheUser(t *testing.T) {
	s, _ := startBrowserSite(t, siteConfig{company: people, handler: "login_page\nself_service\nmfa /pay/*"})
	b := newBrowser(t)
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword)
	b.isUser("alice")
	sent := func(want int) {
		t.Helper()
		if got := len(s.sms.of("otp.stepup")); got != want {
			t.Errorf("%d codes were sent, want %d", got, want)
		}
	}
	b.eval(`void open('/eager', '_blank', 'noopener')`) // where this test is attached, the browser loads nothing ahead
	s.audits(1, `"route":"/pay/*","result":"auth.session.invalid","reason":"mfa"`)
	time.Sleep(2 * time.Second)
	sent(0)
	b.eval(`new BroadcastChannel('open').postMessage('')`)
	storetest.Eventually(t, patience, "a code", func() bool { return len(s.sms.of("otp.stepup")) > 0 })
	tabs := get(chromedp.Targets(b.ctx))(t)
	i := slices.IndexFunc(tabs, func(tab *target.Info) bool { return strings.HasPrefix(tab.URL, s.URL+"/acme/login") })
	opened := openTab(t, b.ctx, chromedp.WithTargetID(tabs[i].TargetID))
	opened.sees("stepup-code", codeField)
	if ahead := opened.eval(`performance.getEntriesByType('navigation')[0].activationStart > 0`); ahead != true {
		t.Error("the browser did not load the page ahead")
	}
	sent(1)

	hidden := b.another()
	hidden.startsWith(`Object.defineProperty(document, 'hidden', { get: () => !globalThis.looked });`)
	for _, at := range [][2]string{{"/acme/security", "#sessions"}, {"/pay/x", codeField}} {
		hidden.open(s.URL + at[0])
		time.Sleep(time.Second)
		sent(1)
		if busy := hidden.eval(`document.querySelector('#screen[aria-busy]') !== null`); busy != true {
			t.Errorf("%s begins in a tab that nobody looks at", at[0])
		}
		hidden.eval(`(globalThis.looked = true) && document.dispatchEvent(new Event('visibilitychange'))`)
		hidden.sees(at[0], at[1])
	}
	sent(2)
}
