package integration

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// isAlerted waits for an error under the heading.
func (b *tab) isAlerted(text string) {
	b.t.Helper()
	b.shows(".alert", text)
}

// startPasskeySite starts a site of two companies with passkeys.
func startPasskeySite(t *testing.T, handler string) *site {
	t.Helper()
	return startBrowserSiteAt(t, nil, newBrowserApp(t), func(s *site) siteConfig {
		s.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
		of := "\npasskeys {\nrp_id localhost\norigins " + s.URL + "\n}"
		return siteConfig{company: people + of, more: strings.Replace(umbra, "captcha off", "captcha off"+of, 1), handler: handler}
	})
}

// startsWith runs a script before those of each page.
func (b *tab) startsWith(script string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	}))
}

// choosesPasskeys makes each page keep in calls how it asks for a passkey, in place of the
// list that a user chooses from: chooses lets the authenticator answer. minutes.abort() makes four minutes pass.
func (b *tab) choosesPasskeys() {
	b.t.Helper()
	b.startsWith(`
		const real = navigator.credentials.get.bind(navigator.credentials);
		const timeout = AbortSignal.timeout.bind(AbortSignal);
		globalThis.calls = [];
		globalThis.signals = {};
		for (const name of ['signalUnknownCredential', 'signalAllAcceptedCredentials', 'signalCurrentUserDetails']) PublicKeyCredential[name] = async (known) => { signals[name] = known; };
		AbortSignal.timeout = (time) => time === 240_000 ? (globalThis.minutes = new AbortController()).signal : timeout(time);
		navigator.credentials.get = (options) => options.mediation !== 'conditional' ? real(options) : new Promise((resolve, reject) => {
			const call = { began: Date.now(), aborted: false, chooses: () => real(options).then(resolve, reject), cancels: () => reject(new DOMException('', 'NotAllowedError')) };
			calls.push(call);
			options.signal.addEventListener('abort', () => { call.aborted = true; reject(options.signal.reason); });
		});`)
}

// One site serves all browsers with passkeys. Alice has none when each of them begins.
func TestBrowserAndPasskeys(t *testing.T) {
	s := startPasskeySite(t, "login_page acme umbra\nself_service")
	s.run("created and removed", func(t *testing.T) { browserCreatesAPasskey(t, s) })
	s.run("logging in", func(t *testing.T) { browserLogsInWithAPasskey(t, s) })
	s.run("of a password manager", func(t *testing.T) { browserHasAPasswordManager(t, s) })
	s.run("offered after a login", func(t *testing.T) { browserIsOfferedAPasskey(t, s) }) // also by another config
}

// addsPasskey logs a user in, adds a passkey and logs the user out.
func (b *tab) addsPasskey(s *site, loginID string) {
	b.t.Helper()
	b.logsIn(s.URL+"/acme/security", loginID, testPassword)
	b.sees("security", "#passkeys")
	b.authenticator(true)
	b.chooses("security.passkeys.add")
	b.sees("security-passkey", "#passkeys .main")
	b.do(chromedp.Click(chromedp.CSS("#passkeys .main")))
	b.tells("passkeys", "security.passkeys.done")
	b.logsOut(s)
}

// The passkeys of some password managers do not become JSON by themselves.
func browserHasAPasswordManager(t *testing.T, s *site) {
	b := newBrowser(t)
	b.startsWith(`if (globalThis.PublicKeyCredential) PublicKeyCredential.prototype.toJSON = () => { throw new TypeError('Illegal invocation') }`)
	b.choosesPasskeys()
	b.addsPasskey(s, "frank")
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.chooses("login.passkey")
	b.isUser("frank")
}

// A user creates a passkey, logs out and logs in with it by autofill, also after a reload,
// but not to another company of the site. A cancelled dialog and a removed passkey leave
// the form usable, and the field offers passkeys again.
func browserLogsInWithAPasskey(t *testing.T, s *site) {
	b := newBrowser(t)
	b.choosesPasskeys()
	b.addsPasskey(s, "alice@example.com")

	b.open(s.URL + "/umbra/login")
	b.sees("login", idField)
	b.waits(`calls.length === 1`)
	b.eval(`void calls[0].chooses()`)
	b.isAlerted("error.auth.credentials.invalid")

	b.open(s.URL + "/home")
	b.sees("login", `#login[autocomplete="username webauthn"]`)
	b.waits(`calls.length === 1`)
	b.reloads("login", idField)
	b.waits(`calls.length === 1`)
	b.eval(`void calls[0].chooses()`)
	b.isUser("alice")
	b.waits(`location.pathname === '/home'`)
	b.logsOut(s)

	// The browser hears which passkeys there are, and of one that is unknown.
	b.open(s.URL + "/acme/login")
	b.logsIn(s.URL+"/acme/security", "alice@example.com", testPassword)
	b.sees("security", "#passkeys")
	b.waits(`signals.signalAllAcceptedCredentials?.allAcceptedCredentialIds.length === 1 && signals.signalCurrentUserDetails.name === 'alice@example.com' && signals.signalCurrentUserDetails.rpId === 'localhost'`)
	b.logsOut(s)

	// By the buttons, also on the screen of the password
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.chooses("login.passkey")
	b.isUser("alice")
	b.logsOut(s)
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.enters("login", "frank")
	b.sees("password", passwordField)
	b.chooses("login.passkey")
	b.isUser("alice")
	b.logsOut(s)

	// Sending the form and leaving the screen stop asking.
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.waits(`calls.length === 1`)
	b.enters("login", "nobody@example.com")
	b.complainsOf("login", "error.auth.loginid.notfound")
	b.waits(`calls[0].aborted && calls.length === 2`)
	b.chooses("recover.offer")
	b.sees("recover", "#method")
	b.waits(`calls[1].aborted`)
	b.chooses("recover.stop")
	b.waits(`calls.length === 3`)

	// A challenge is renewed before it is over.
	b.eval(`void minutes.abort()`)
	b.waits(`calls[2].aborted && calls.length === 4`)

	// The user cancels, after the second in which nobody can.
	b.waits(`Date.now() - calls[3].began > 1000`)
	b.eval(`void calls[3].cancels()`)
	b.isAlerted("error.passkey")
	b.waits(`calls.length === 5 && !calls[4].aborted`)

	// While the device sleeps, no timer runs.
	b.eval(`(() => {
		const { now } = Date;
		Date.now = () => now() + 301_000;
		void calls[4].chooses();
	})()`)
	b.isAlerted("error.passkey")
	b.waits(`calls.length === 6 && !calls[5].aborted`)

	list := s.admin("GET", "accounts/alice/passkeys", nil).wantStatus(200).JSON["passkeys"].([]any)
	s.admin("DELETE", "accounts/alice/passkeys/"+list[0].(fields)["id"].(string), nil).wantStatus(204)
	b.eval(`void calls[5].chooses()`)
	b.isAlerted("reason.passkey.unknown")
	b.waits(`signals.signalUnknownCredential?.rpId === 'localhost' && signals.signalUnknownCredential.credentialId.length > 20`)
	b.waits(`calls.length === 7 && !calls[6].aborted`)

	b.authenticator(true) // another one, without a passkey
	b.eval(`void calls[6].chooses()`)
	b.enters("login", "alice@example.com")
	b.sees("password", passwordField)
	b.waits(`calls[6].aborted`)
	b.enters("password", testPassword)
	b.isUser("alice")
}

// A browser without autofill of passkeys has only the button.
func browserWithoutAutofillOfPasskeys(t *testing.T, s *site) {
	b := newBrowser(t)
	b.choosesPasskeys()
	b.startsWith(`delete PublicKeyCredential.isConditionalMediationAvailable; delete AbortSignal.timeout`)
	b.open(s.URL + "/home")
	b.sees("login", idField)
	if buttons := b.eval(`[...document.querySelectorAll('#screen button')].map((button) => button.textContent)`); len(buttons.([]any)) != 3 {
		t.Errorf("the page has the buttons %v, want only continue, recover and that for passkeys", buttons)
	}
	b.fillsIn("alice@example.com", testPassword)
	b.isUser("alice")
	if asked := b.eval(`calls.length`); asked != 0. {
		t.Error("the page asks for a passkey")
	}
}

// After a login with a password, the page offers to create a passkey: once per browser, if
// it can have one, and without a click more for users who can't have one or don't want it.
func browserIsOfferedAPasskey(t *testing.T, s *site) {
	b := newBrowser(t)
	b.choosesPasskeys() // the authenticator would answer before the user types
	offered := func(loginID string) {
		t.Helper()
		b.logsIn(s.URL+"/home", loginID, testPassword)
		b.waits(`document.querySelector('h1')?.textContent === ` + quote(pageTexts()["offer.heading"]) + ` && document.activeElement.matches('.main')`)
	}
	isHome := func() {
		t.Helper()
		b.isUser("alice")
		b.waits(`location.pathname === '/home'`)
		b.logsOut(s)
	}
	forgets := func() { b.eval(`localStorage.clear()`) } // what this browser was offered
	created := func(want int) {
		t.Helper()
		list := s.admin("GET", "accounts/alice/passkeys", nil).wantStatus(200).JSON["passkeys"].([]any)
		if len(list) != want || want > 0 && list[0].(fields)["name"] != "Chrome (Linux)" {
			t.Errorf("the passkeys are %v, want %d", list, want)
		}
	}

	b.open(s.URL + "/acme/login")
	b.authenticator(false)
	offered("alice@example.com")
	b.submits()
	b.isAlerted("offer.cancelled")
	b.chooses("offer.skip")
	isHome()
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword) // it was offered
	isHome()

	forgets()
	b.open(s.URL + "/home")
	b.sees("login", idField)
	b.enters("login", "+37060000002")
	b.sees("code", codeField)
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("bob") // without a password
	b.logsOut(s)
	created(0)

	offered("alice@example.com")
	b.reload()
	b.sees("already", ".main")
	b.chooses("already.continue")
	isHome()

	// A browser that creates one without a question needs no offer. The login does not wait for
	// long where the server does not answer.
	b.authenticator(true)
	forgets()
	b.startsWith(`if (sessionStorage.silent) {
		PublicKeyCredential.getClientCapabilities = async () => ({ conditionalCreate: true });
		const create = navigator.credentials.create.bind(navigator.credentials);
		navigator.credentials.create = ({ mediation, ...options }) => {
			if (mediation !== 'conditional' || options.publicKey.authenticatorSelection.userVerification !== 'preferred') throw new DOMException('', 'NotAllowedError');
			return create(options);
		};
		const { fetch } = globalThis;
		globalThis.fetch = (...request) => sessionStorage.silent === 'stalled' && String(request[0]).endsWith('me/passkeys/options') ? new Promise(() => {}) : fetch(...request);
	}`)
	b.open(s.URL + "/home")
	b.eval(`void (sessionStorage.silent = 'stalled')`)
	offered("alice@example.com")
	b.chooses("offer.skip")
	isHome()
	created(0)
	forgets()
	b.eval(`void (sessionStorage.silent = 'yes')`)
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword)
	isHome()
	created(1)
	b.eval(`sessionStorage.clear()`)
	list := s.admin("GET", "accounts/alice/passkeys", nil).wantStatus(200).JSON["passkeys"].([]any)
	s.admin("DELETE", "accounts/alice/passkeys/"+list[0].(fields)["id"].(string), nil).wantStatus(204)

	b.authenticator(true)
	forgets()
	offered("alice@example.com")
	b.do(chromedp.SendKeys(chromedp.CSS("#screen .main"), "\r"))
	isHome()
	created(1)
	forgets()
	offered("alice@example.com")
	b.submits() // the authenticator has one
	isHome()
	created(1)

	forgets()
	b.logsIn(s.URL+"/acme/login?fresh=1&return_to=/home", "alice@example.com", testPassword)
	isHome() // the user had something else in mind

	// A user who must give the other factor first can then create the passkey, and go on from there.
	s.config = strings.Replace(s.config, "\nself_service", "\nself_service mfa", 1)
	must(t, s.load())
	list = s.admin("GET", "accounts/alice/passkeys", nil).wantStatus(200).JSON["passkeys"].([]any)
	s.admin("DELETE", "accounts/alice/passkeys/"+list[0].(fields)["id"].(string), nil).wantStatus(204)
	forgets()
	offered("alice@example.com")
	b.submits()
	b.sees("stepup-code", codeField)
	b.enters("code", s.sms.last("otp.stepup", "code"))
	b.sees("security-passkey", "#passkeys .main")
	b.waits(`document.querySelector('#screen > a').getAttribute('href') === '/home'`)
	b.logsOut(s)

	s.config = strings.Replace(s.config, "\nself_service mfa", "", 1)
	must(t, s.load())
	b.logsIn(s.URL+"/home", "alice@example.com", testPassword)
	isHome() // there are no routes to create one
	s.run("without autofill", func(t *testing.T) { browserWithoutAutofillOfPasskeys(t, s) })
}

// A user of the README's example creates a passkey, logs out, and logs in with it.
func TestBrowserInTheExample(t *testing.T) {
	s := startExample(t)
	s.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	const loginID, password = "alice@example.com", "correct horse battery"
	s.postTo("acme", "try-this-key", "auth/checkcredentials", "", fields{"login_id": loginID, "password": password, "accept_disclaimers": []string{"terms"}})
	b := newBrowser(t)
	b.choosesPasskeys()
	b.open(s.URL + "/acme/login")
	b.authenticator(true)
	isAlice := func() {
		t.Helper()
		b.waits(`document.body.textContent.includes('X-Profile-Mnemocode: alice-0001')`)
	}
	b.logsIn(s.URL, loginID, password)
	b.waits(`document.querySelector('h1')?.textContent === ` + quote(pageTexts()["offer.heading"]))
	b.submits()
	isAlice()
	b.logsOut(s)

	b.open(s.URL)
	b.waits(`calls.length === 1`)
	b.eval(`void calls[0].chooses()`)
	isAlice()
}

// A page that uses the library SimpleWebAuthn instead of client.js creates a passkey and
// logs in with it.
func TestBrowserUsesSimpleWebAuthn(t *testing.T) {
	storetest.NeedPeers(t, peersDir)
	library := get(os.ReadFile(peersDir + "/node_modules/@simplewebauthn/browser/dist/bundle/index.umd.min.js"))(t)
	s := startPasskeySite(t, "self_service\npublic /app")
	b := newBrowser(t)
	b.open(s.URL + "/app")
	b.authenticator(true)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	get(chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](string(library))))(t)
	got := b.eval(`(async (key, token) => {
		const { startRegistration, startAuthentication } = SimpleWebAuthnBrowser;
		const post = async (path, body, headers) => (await fetch('/acme/v2/' + path, {
			method: 'POST', headers: { 'X-Api-Key': key, 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body),
		})).json();
		const user = { Authorization: 'Bearer ' + token };
		const begun = await post('me/passkeys/options', {}, user);
		const created = await startRegistration({ optionsJSON: begun.public_key });
		const added = await post('me/passkeys', { challenge_token: begun.challenge_token, credential: created, name: 'Laptop' }, user);
		const asked = await post('passkey/options', {});
		const credential = await startAuthentication({ optionsJSON: asked.public_key });
		const login = await post('passkey/login', { challenge_token: asked.challenge_token, credential });
		const again = await post('me/passkeys/options', {}, user);
		const second = await startRegistration({ optionsJSON: again.public_key }).catch(({ code }) => code);
		return [added.name, login.session_state, login.profile_mnemocode, second];
	})(` + quote(testKey) + `, ` + quote(s.login("alice@example.com")) + `)`)
	if want := []any{"Laptop", "authorized", "alice", "ERROR_AUTHENTICATOR_PREVIOUSLY_REGISTERED"}; !slices.Equal(got.([]any), want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
