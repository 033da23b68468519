package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// isAlerted waits for an error under the heading.
func (b *tab) isAlerted(text string) {
	b.t.Helper()
	b.waits(`document.querySelector('.alert')?.textContent === ` + quote(pageTexts()[text]) + ` && !document.querySelector('.main.busy')`)
}

// choosesPasskeys makes each page keep in calls how it asks for a passkey, in place of the
// list that a user chooses from: chooses lets the authenticator answer. minutes.abort() makes four minutes pass.
func (b *tab) choosesPasskeys() {
	b.t.Helper()
	const script = `
		const real = navigator.credentials.get.bind(navigator.credentials);
		const timeout = AbortSignal.timeout.bind(AbortSignal);
		globalThis.calls = [];
		AbortSignal.timeout = (time) => time === 240_000 ? (globalThis.minutes = new AbortController()).signal : timeout(time);
		navigator.credentials.get = (options) => new Promise((resolve, reject) => {
			const call = { began: Date.now(), aborted: false, chooses: () => real(options).then(resolve, reject), cancels: () => reject(new DOMException('', 'NotAllowedError')) };
			if (options.mediation === 'conditional') calls.push(call);
			options.signal.addEventListener('abort', () => { call.aborted = true; reject(options.signal.reason); });
		});`
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	}))
}

// A user creates a passkey, logs out and logs in with it by autofill. A cancelled dialog
// and a removed passkey leave the form usable, and the field offers passkeys again.
func TestBrowserLogsInWithAPasskey(t *testing.T) {
	config := siteConfig{company: people, handler: "login_page\nself_service"}
	s, _ := startBrowserSite(t, config)
	s.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	config.company += "\npasskeys {\nrp_id localhost\norigins " + s.URL + "\n}"
	if err := s.reload(config); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	b.choosesPasskeys()
	b.logsIn(s.URL+"/acme/security", "alice@example.com", testPassword)
	b.sees("security", "#passkeys")
	b.authenticator(true)
	b.chooses("security.passkeys.add")
	b.sees("security-passkey", "#name")
	b.submits()
	b.tells("passkeys", "security.passkeys.done")
	b.logsOut(s)

	b.open(s.URL + "/home")
	b.sees("login", `#login[autocomplete="username webauthn"]`)
	b.waits(`calls.length === 1`)
	b.eval(`void calls[0].chooses()`)
	b.isUser("alice")
	b.waits(`location.pathname === '/home'`)
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

	list := s.admin("GET", "accounts/alice/passkeys", nil).wantStatus(200).JSON["passkeys"].([]any)
	s.admin("DELETE", "accounts/alice/passkeys/"+list[0].(fields)["id"].(string), nil).wantStatus(204)
	b.eval(`void calls[4].chooses()`)
	b.isAlerted("error.auth.credentials.invalid")
	b.waits(`calls.length === 6 && !calls[5].aborted`)

	b.enters("login", "alice@example.com")
	b.sees("password", passwordField)
	b.waits(`calls[5].aborted`)
	b.enters("password", testPassword)
	b.isUser("alice")
}
