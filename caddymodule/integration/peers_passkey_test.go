package integration

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mnemogate/mnemogate/store/storetest"
)

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
