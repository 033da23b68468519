package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// With a fixed code, a static captcha and higher limits, the tests of a client are not
// treated as an attack.
func TestAClientsTestsAreNoAttack(t *testing.T) {
	t.Parallel()
	s := startCaddyfile(t, `{
	admin off
	mnemogate {
		otp {
			fixed 424242 +37060012345
		}
		password {
			argon2id 64 1 1 insecure
		}
		captcha static ci-captcha
		limits {
			failures_per_address 1000000/1m
			logins_per_address 1000000/1m
		}
		sms log
		company acme {
			api_key ci-api-key
			account alice-0001 {
				phone +37060012345
				email alice@example.com
				password "correct horse battery"
			}
			account bob-0002 {
				login bob
				password "correct horse battery"
			}
		}
	}
}

http:// {
	bind fd/3
	mnemogate
	reverse_proxy BACKEND
}
`, nil)
	const key, captcha = "ci-api-key", "ci-captcha"
	post := func(route, token string, body fields) answer { return s.postTo("acme", key, route, token, body) }
	credentials := func(login, password string) answer {
		return post("auth/checkcredentials", "", fields{"login_id": login, "password": password})
	}
	for range 31 { // more than the default limits of an address: 30 failures and 60 logins
		credentials("bob", "wrong").want(wire.ErrCredentialsInvalid)
		credentials("nobody", "wrong")
		s.wantProfile(credentials("bob", testPassword).wantState(record.Authorized), "bob-0002")
	}

	// A captcha is required, and the code is the fixed one of the phone, even after
	// more codes than a phone may receive.
	for range 3 {
		credentials("bob", "wrong").want(wire.ErrCredentialsInvalid)
	}
	credentials("bob", testPassword).want(wire.ErrCaptchaMissing)
	post("auth/checkcredentials", "", fields{"login_id": "bob", "password": testPassword, "captcha_response": captcha}).wantState(record.Authorized)
	for range 12 {
		a := post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": captcha, "method": "PHONE"})
		post("auth/recovery/checkotp", a.wantState(record.RecoveryOTP).token(), fields{"otp": "424242"}).wantState(record.RecoveryPassword)
	}
}

// The redirect_uri of a native app may use a scheme of its own.
func TestAnAppsOwnSchemeIsARedirectURI(t *testing.T) {
	const uri = "com.example.app:/callback"
	if !strings.Contains(section(t, "docs/clients.md", "In a native app"), "`"+uri+"`") {
		t.Errorf("docs/clients.md does not show %s", uri)
	}
	_, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key off\ncaptcha off\noauth 1 oidc https://id.example.com {\nclient_id a\nclient_secret b\nredirect_uri " + uri + "\n}\n}\n}\n}\n:80 {\nmnemogate\nreverse_proxy localhost:9000\n}")
	if err != nil {
		t.Error(err)
	}
}

const webApp = "../../docs/examples/web-app/"

// runWebApp runs the app of docs/examples/web-app, and returns its address.
func runWebApp(t *testing.T, site string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "node server.mjs & cat >&2; kill $!; wait") // it ends with its standard input
	cmd.Dir = newWorkshop(t, nil, webApp+"server.mjs", webApp+"user.mjs").dir
	cmd.Env = append(os.Environ(), "SITE="+site, "PORT=0")
	return fmt.Sprint("localhost:", runBackend(t, cmd))
}

// startWebApp starts docs/examples/web-app, with its app behind it.
func startWebApp(t *testing.T) *site {
	t.Helper()
	backend := &rawBackend{t: t}
	return startInFrontOf(t, backend, "web-app", func(s *site) []string {
		backend.addr = runWebApp(t, s.URL)
		return nil
	})
}

// While the keys can't be loaded, the app of docs/examples/web-app says that it can't answer
// now. It does not refuse the user.
func TestTheWebAppOfThePageWithoutKeys(t *testing.T) {
	t.Parallel()
	key := get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	address := runWebApp(t, "http://127.0.0.1:1")
	for assertion, want := range map[string]int{"": 403, "mallory": 403, signedAssertion(t, jose.ES256, key, fields{"sub": "alice"}): 503} {
		if a, err := askBackend(t, address, assertion); err != nil || a.Status != want {
			t.Errorf("got %d, %v, want %d", a.Status, err, want)
		}
	}
}

// The app of docs/examples/web-app knows who is logged in, by the cookie alone. No page
// and no script sees a token, forged headers do nothing, and a logout ends it.
func TestBrowserUsesTheWebAppOfThePage(t *testing.T) {
	s := startWebApp(t)
	b := newBrowser(t)
	b.open(s.URL + "/about")
	b.waits(`document.body.innerText.includes('Log in')`)
	b.logsIn(s.URL+"/", "alice@example.com", "correct horse battery")
	b.isUser("alice")
	b.open(s.URL + "/about")
	b.isUser("alice")
	if fetched := fmt.Sprint(b.eval(`await fetch('/').then((answer) => answer.text())`)); !strings.Contains(fetched, "alice") || strings.Contains(fetched, "eyJ") {
		t.Errorf("a script got %s", fetched)
	}
	var cookie string
	for _, c := range b.cookies() {
		if strings.HasPrefix(c.Value, "mgs_") {
			cookie = "Cookie: " + c.Name + "=" + c.Value + "\r\n"
			if !c.HTTPOnly || !c.Secure {
				t.Errorf("the cookie is %+v", c)
			}
		}
	}
	ask := func(method, path, headers string) answer {
		return s.exchange(method + " " + path + " HTTP/1.1\r\nHost: " + s.addr + "\r\nConnection: close\r\n" + headers + "\r\n")
	}
	shows := func(a answer, want string) {
		t.Helper()
		if body := string(a.Body); a.Status != http.StatusOK || !strings.Contains(body, want) || strings.Contains(body, "mallory") {
			t.Errorf("got %d %s, want %s", a.Status, body, want)
		}
	}
	const forged = "X-Profile-Mnemocode: mallory\r\nx_mnemogate_assertion: mallory\r\nX-Mnemogate-Assertion: mallory\r\nx-middleware-subrequest: middleware\r\n"
	shows(ask("GET", "/", cookie+forged), `<b id="user">alice</b>`)
	shows(ask("GET", "/about", forged), "Log in")
	for _, path := range []string{"/", "//", "/./", "/about/../", "/about%2f..%2f"} {
		ask("GET", path, forged).want(wire.ErrHeaderMissing)
	}
	ask("POST", "/", cookie+"Sec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n").want(wire.ErrHeaderInvalid).wantReason("cross_site")
	for _, header := range []string{"X-Profile-Mnemocode", "X-Mnemogate-Assertion"} { // past Caddy
		r := get(http.NewRequest("GET", "http://"+s.backend.addr+"/", nil))(t)
		r.Header.Set(header, "mallory")
		past := get(client.Do(r))(t)
		past.Body.Close()
		if past.StatusCode != http.StatusForbidden {
			t.Errorf("past Caddy, with %s: got %d", header, past.StatusCode)
		}
	}
	b.open(s.URL + "/")
	b.eval(`document.querySelector('a').click()`)
	b.sees("logout", "form")
	b.submits()
	b.sees("loggedout", "a.main")
	ask("GET", "/", cookie).want(wire.ErrTokenInvalid)
	b.open(s.URL + "/")
	b.sees("login", idField)
}

// What docs/web-apps.md shows for each framework gives the assertion to userOf, and the user
// to the page.
func TestFrameworksOfThePage(t *testing.T) {
	t.Parallel()
	shown := blocks(section(t, "docs/web-apps.md", "In the server's code"), "js")
	if len(shown) != 3 {
		t.Fatalf("there are %d", len(shown))
	}
	const userOf = "const userOf = async (assertion) => assertion === 'alice-1' ? 'alice' : null;\n"
	w := newWorkshop(t, map[string]string{
		"next-headers.mjs": "export const headers = async () => new Headers({ 'X-Mnemogate-Assertion': 'alice-1' });\n",
		"next.mjs":         userOf + changed(t, shown[0], "next/headers", "./next-headers.mjs"),
		"nuxt.mjs":         userOf + "const defineEventHandler = (f) => f, getRequestHeader = (event, name) => event.headers.get(name);\n" + shown[1],
		"svelte.mjs":       userOf + shown[2],
		"all.mjs": `
import { user } from './next.mjs';
import nuxt from './nuxt.mjs';
import { handle } from './svelte.mjs';
const headers = new Headers({ 'X-Mnemogate-Assertion': 'alice-1' });
const event = { headers, request: { headers }, context: {}, locals: {} };
await nuxt(event);
console.log(await user(), event.context.user, await handle({ event, resolve: ({ locals }) => locals.user }));
`})
	if got := w.node(t, "all.mjs"); got != "alice alice alice\n" {
		t.Errorf("got %s", got)
	}
}
