package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// moduleAt creates a client of client.js in a page of the site.
const moduleAt = `const { connect } = await import('/acme/v2/client.js');
	const client = connect({ company: '/acme', apiKey: '` + testKey + `', cookie: true });`

// inModule returns a script that runs with such a client.
func inModule(script string) string { return "await (async () => {" + moduleAt + script + "})()" }

// What browsers do with the cookie. One site serves all of them.
func TestBrowserAndTheCookie(t *testing.T) {
	s, app := startBrowserSite(t, siteConfig{
		global: "session {\nstream_recheck 1s\n}\n", company: strings.Replace(people, "captcha off", "captcha pow 14", 1), handler: "cookie\npublic /"})
	s.run("streams", func(t *testing.T) { browserStreamsWithTheCookie(t, s) })
	s.run("other origins", func(t *testing.T) { otherOriginsCantUseTheCookie(t, s, app) })
	s.run("tabs", func(t *testing.T) { browserModuleInTabs(t, s) })
	s.run("a captcha", func(t *testing.T) { browserWorksForACaptcha(t, s) })
}

// WebSocket, EventSource and pages use the cookie, and no script can read the token.
// A logout cuts them.
func browserStreamsWithTheCookie(t *testing.T, s *site) {
	b := newBrowser(t)
	b.open(s.URL + "/")
	got := b.eval(inModule(`
		let step = await client.resume();
		step = await step.login('frank');
		const token = JSON.parse(Object.values(sessionStorage)[0]).token;
		step = await step.checkPassword('` + testPassword + `');
		return [step.state, token.slice(0, 4), JSON.stringify({ ...sessionStorage, ...localStorage }), document.cookie, JSON.stringify(step.headers())];`))
	if want := "[authorized mgs_ {}  {}]"; fmt.Sprint(got) != want {
		t.Fatalf("got %v, want %s", got, want)
	}
	b.open(s.URL + "/page")
	b.waits(`document.querySelector('#user').textContent === 'frank'`)
	b.loud = true // errors are expected for the streams that are cut
	b.eval(`(() => {
		globalThis.heard = [];
		const socket = new WebSocket('/ws'), events = new EventSource('/sse');
		socket.onmessage = ({ data }) => heard.push('socket ' + data);
		socket.onclose = () => heard.push('socket closed');
		events.onmessage = ({ data }) => heard.push('events ' + data);
		events.onerror = () => { heard.push('events closed'); events.close(); };
	})()`)
	b.waits(`heard.includes('socket tick') && heard.includes('events tick') && !heard.some((what) => what.includes('closed'))`)
	b.eval(inModule(`await (await client.resume()).logout(); return null;`))
	b.waits(`heard.includes('socket closed') && heard.includes('events closed')`)
	b.open(s.URL + "/page")
	b.waits(`document.body.innerText.includes('auth.header.missing')`)
	b.sawNowhere("mgs_")
}

// Pages of other origins can't use the cookie, whether they are same-site or not:
// not with a form, a script or a WebSocket. They can't end the session either.
func otherOriginsCantUseTheCookie(t *testing.T, s *site, app *browserApp) {
	before := len(app.requests())
	evil := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Evil</title><link rel="icon" href="data:,"><form method="post" action="%s/pay"><button>Win!</button></form>`, s.URL)
	}))
	b := newBrowser(t)
	b.loud = true // errors are expected for what the browser blocks
	b.open(s.URL + "/")
	b.eval(inModule(`await (await client.resume()).loginWithPassword('frank', '` + testPassword + `'); return null;`))
	for _, origin := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		b.open(origin)
		b.eval(`document.querySelector('button').click()`)
		b.waits(`location.pathname === '/pay' && document.body.innerText.includes('error_code')`)
		b.open(origin)
		b.eval(`Promise.allSettled([
			fetch('` + s.URL + `/pay', { method: 'POST', mode: 'no-cors', credentials: 'include', body: 'all' }),
			fetch('` + s.URL + `/acme/v2/session', { method: 'DELETE', credentials: 'include' }),
			new Promise((resolve, reject) => {
				const socket = new WebSocket('` + strings.Replace(s.URL, "http", "ws", 1) + `/ws');
				Object.assign(socket, { onopen: resolve, onerror: reject });
			}),
		]).then((all) => all.map(({ status }) => status))`)
	}
	b.open(s.URL + "/page")
	b.waits(`document.querySelector('#user').textContent === 'frank'`)
	for _, request := range app.requests()[before:] {
		if !slices.Contains([]string{"GET / ", "GET /page frank", "GET /favicon.ico frank"}, request) {
			t.Errorf("the application got %s", request)
		}
	}
}

// If a reload interrupts a login, the tab that began it can continue. If two tabs
// use one token, one is logged in. The other one gets an error and ends nothing.
func browserModuleInTabs(t *testing.T, s *site) {
	b := newBrowser(t)
	b.open(s.URL + "/")
	b.eval(inModule(`await (await client.resume()).login('frank'); return null;`))
	b.reload()
	b.waits(inModule(`return (await client.resume()).state === 'checkpassword'`))
	other := b.another()
	other.open(s.URL + "/")
	if got := other.eval(inModule(`return (await client.resume()).state`)); got != "start" {
		t.Errorf("another tab finds %v", got)
	}
	copied := b.eval(`JSON.stringify(sessionStorage)`)
	other.eval(`Object.entries(JSON.parse(` + quote(copied.(string)) + `)).forEach(([name, value]) => sessionStorage.setItem(name, value))`)
	const race = `
		const step = await client.resume();
		if (step.state !== 'checkpassword') return step.state;
		globalThis.raced = step.checkPassword('` + testPassword + `').then(({ state }) => state, (error) => error.code + ' ' + error.step.state);
		return step.state;`
	for _, tab := range []*tab{b, other} {
		if got := tab.eval(inModule(race)); got != "checkpassword" && tab == b {
			t.Fatalf("before the race: %v", got)
		}
	}
	first, second := b.eval(`await raced`), other.eval(`await globalThis.raced ?? 'too late'`)
	if got := []any{first, second}; first != "authorized" || second != "superseded authorized" && second != "too late" {
		t.Errorf("the race ended %q", got)
	}
	for _, tab := range []*tab{b, other} {
		tab.waits(inModule(`const step = await client.resume(); return step.state === 'authorized' && step.profileMnemocode === 'frank'`))
		if kept := tab.eval(`JSON.stringify(sessionStorage)`); kept != "{}" {
			t.Errorf("a tab keeps %s", kept)
		}
	}
	b.eval(inModule(`await (await client.resume()).logout(); return null;`))

	// All tabs click at once. Their storage is shared.
	const shared = `const { connect } = await import('/acme/v2/client.js');
		const client = connect({ company: '/acme', apiKey: '` + testKey + `', storage: localStorage });`
	b.eval(`await (async () => {` + shared + `await (await client.resume()).login('frank'); })()`)
	for _, tab := range []*tab{b, other} {
		tab.eval(`await (async () => {` + shared + `globalThis.step = await client.resume(); })()`)
	}
	for _, tab := range []*tab{b, other} {
		tab.eval(`void (globalThis.raced = Promise.all([1, 2].map(() => step.checkPassword('` + testPassword + `').then(({ state }) => state, ({ code }) => code))).then((all) => all.join(' ')))`)
	}
	// A browser may show a tab only later what another one has stored.
	if first, second := b.eval(`await raced`), other.eval(`await raced`); first != "authorized busy" || second != "superseded busy" && second != "auth.token.invalid busy" {
		t.Errorf("the race ended %q, %q", first, second)
	}
	other.waits(`await (async () => {` + shared + ` const step = await client.resume(); return (await step.fetch('/page')).status === 200 })()`)

	// A tab that still sees an old token does not remove the new one.
	if got := other.eval(`await (async () => {
		const { connect } = await import('/acme/v2/client.js');
		const old = { __proto__: Storage.prototype, getItem: () => '{"token": "old"}', removeItem() { this.removed = true; } };
		const { state } = await connect({ company: '/acme', apiKey: '` + testKey + `', storage: old }).resume();
		return state + ' ' + old.removed;
	})()`); got != "start undefined" {
		t.Errorf("with an old token: got %v", got)
	}

	// A login goes on if the app has filled the storage.
	if got := b.eval(`await (async () => {
		const { connect } = await import('/acme/v2/client.js');
		const full = { getItem: () => null, setItem() { throw new DOMException('', 'QuotaExceededError'); }, removeItem() {} };
		let step = await connect({ company: '/acme', apiKey: '` + testKey + `', storage: full }).resume();
		step = await step.login('frank');
		return (await step.checkPassword('` + testPassword + `')).state;
	})()`); got != "authorized" {
		t.Errorf("with a full storage: got %v", got)
	}

	// A tab whose request gets no answer does not keep the others waiting.
	other.eval(`void navigator.locks.request('mnemogate ` + s.URL + `/acme', () => new Promise(() => {}))`)
	if got := b.eval(inModule(`return (await client.resume()).state`)); got != "start" {
		t.Errorf("beside a tab that waits: got %v", got)
	}
}

// The module solves captcha pow in a worker if the page allows it, and otherwise in
// the page, without blocking it.
func browserWorksForACaptcha(t *testing.T, s *site) {
	b := newBrowser(t)
	b.loud = true // errors are expected if workers are not allowed
	for _, policy := range []string{"", "script-src 'self'; worker-src 'self'", "script-src 'self'; worker-src 'none'"} {
		b.open(s.URL + "/?policy=" + url.QueryEscape(policy))
		got := b.eval(inModule(`
			const begun = [], Real = globalThis.Worker;
			globalThis.Worker = class extends Real { constructor(...of) { super(...of); begun.push(of[0]); } };
			const step = await (await client.resume()).recover('alice@example.com', { method: 'QUESTION' });
			await step.cancel();
			return [step.state, begun.length];`))
		if fmt.Sprint(got) != "[recovery-checkquestion 1]" {
			t.Errorf("with %q: got %v", policy, got)
		}
	}
}
