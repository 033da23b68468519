package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"github.com/mnemogate/mnemogate/caddymodule/passkey"
	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	passkeySite   = "example.com"
	passkeyOrigin = "https://app.example.com"
	passkeys      = `
		passkeys {
			rp_id ` + passkeySite + `
			origins ` + passkeyOrigin + `
		}`
)

// newPasskey gives an account of acme a passkey, as me/passkeys does.
func (s *site) newPasskey(a *keytest.Authenticator, mnemocode string) record.Passkey {
	s.t.Helper()
	accounts := s.accounts()
	account := get(accounts.ByMnemocode(s.t.Context(), "acme", mnemocode))(s.t)
	verifier := get(passkey.New(passkey.Settings{RPID: passkeySite, Origins: []string{passkeyOrigin}, Name: "Acme"}))(s.t)
	challenge, owner := []byte("a challenge of this test"), tenant.PasskeyOwner{Handle: []byte("handle of " + mnemocode), Name: mnemocode}
	options := get(verifier.CreationOptions(challenge, owner, nil))(s.t)
	credential := get(a.Create(passkeyOrigin, options))(s.t)
	p := get(verifier.Register(challenge, owner, credential, false))(s.t)
	p.Account, p.Name, p.Created = account.ID, "Phone", account.Created
	must(s.t, accounts.AddPasskey(s.t.Context(), account.Created, account, p))
	return p
}

// passkeyAnswer returns the body of a login with new options of the company.
func (s *site) passkeyAnswer(a *keytest.Authenticator, company, origin string) fields {
	s.t.Helper()
	options := s.postTo(company, testKey, "passkey/options", "", nil).wantStatus(http.StatusOK)
	public := get(json.Marshal(options.JSON["public_key"]))(s.t)
	credential := get(a.Get(origin, public))(s.t)
	return fields{"challenge_token": options.str("challenge_token"), "credential": json.RawMessage(credential)}
}

// Contract, section 17: users log in with passkeys. They create, see and remove them.
func TestPasskeysOverHTTP(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{
		company: people + passkeys,
		more:    "company bare {\n api_key " + testKey + "\n captcha off\n}",
		handler: selfService + "\nforward auth_methods",
	})
	phone := new(keytest.Authenticator)
	stored := s.newPasskey(phone, "carol") // her password needs a code after it
	login := func(body fields) answer { return s.post("passkey/login", "", body) }
	answered := func() fields { return s.passkeyAnswer(phone, "acme", passkeyOrigin) }
	invalid := wire.ErrCredentialsInvalid

	s.run("login", func(t *testing.T) {
		a := login(answered()).wantState(record.Authorized)
		s.get("/", a.token()).wantStatus(200).wantBody("X-Profile-Auth-Methods: passkey mfa\r\n")
	})
	s.run("one challenge on two nodes", func(t *testing.T) {
		var body fields
		s.wantOne(10, func() { body = answered() }, func(int) answer { return login(body) }, invalid)
		login(body).want(invalid)
	})
	s.run("refused", func(t *testing.T) {
		login(s.passkeyAnswer(phone, "acme", "https://evil.example.com")).want(invalid)
		s.postTo("bare", testKey, "passkey/options", "", nil).want(wire.ErrNoRoute)
		s.postTo("bare", testKey, "passkey/login", "", answered()).want(wire.ErrNoRoute)
		s.postTo("acme", "wrong-key", "passkey/options", "", nil).want(wire.ErrAPIKeyInvalid)
		s.ask("GET", "/acme/v2/passkey/options", "").want(wire.ErrMethod)
		s.ask("POST", "/acme/v2/passkey/options/", "").want(wire.ErrHeaderMissing) // a protected path
	})
	s.run("operators", func(t *testing.T) {
		token := login(answered()).wantState(record.Authorized).token()
		list := s.admin("GET", "accounts/carol/passkeys", nil).wantStatus(200).JSON["passkeys"].([]any)
		if one := list[0].(fields); len(list) != 1 || one["id"] != stored.ID() || one["name"] != "Phone" || one["last_used"] == nil {
			t.Errorf("listed: %v", list)
		}
		if got := s.admin("GET", "accounts/carol", nil).wantStatus(200).JSON["passkeys"]; got != 1.0 {
			t.Errorf("carol has %v passkeys", got)
		}
		s.admin("DELETE", "accounts/carol/passkeys/AAAA", nil).wantStatus(404)
		s.admin("DELETE", "accounts/alice/passkeys/"+stored.ID(), nil).wantStatus(404)
		s.admin("DELETE", "accounts/carol/passkeys/"+stored.ID()+"?keep_session=x", nil).wantStatus(400)
		body := answered()
		s.admin("DELETE", "accounts/carol/passkeys/"+stored.ID(), nil).wantStatus(204)
		login(body).want(invalid)
		storetest.Eventually(t, time.Second, "the end of the session", func() bool { return s.get("/", token).fails(wire.ErrTokenInvalid) })

		s.admin("POST", "accounts", fields{"profile_mnemocode": "nobody", "login_name": "nobody"}).wantStatus(201)
		only := s.newPasskey(&keytest.Authenticator{}, "nobody")
		s.admin("DELETE", "accounts/nobody/passkeys/"+only.ID(), nil).wantStatus(409)
	})
	s.run("self_service", s.usersManageTheirPasskeys)
}

// Browsers read at the domain of a passkey which pages elsewhere may use it (WebAuthn Level 3,
// section 5.11).
func TestPasskeysOfSeveralDomains(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{
		company: people + strings.Replace(passkeys, passkeyOrigin, passkeyOrigin+" https://app.example.de https://example.co.uk", 1),
		more:    "company bare {\n api_key " + testKey + "\n captcha off\n" + strings.Replace(passkeys, passkeyOrigin, "https://bare.example.com", 1) + "\n}",
		handler: "public /.well-known/*",
	})
	ask := func(method, host string) answer {
		return s.exchange(method + " /.well-known/webauthn HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
	}
	for _, host := range []string{"example.com", "EXAMPLE.com:443"} {
		a := ask("GET", host).wantStatus(http.StatusOK)
		if want := `{"origins":["https://app.example.de","https://example.co.uk"]}`; strings.TrimSpace(string(a.Body)) != want || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %s, %v", host, a.Body, a.Header)
		}
	}
	ask("POST", "example.com").want(wire.ErrMethod)
	if a := ask("GET", "app.example.com").wantStatus(http.StatusOK); strings.Contains(string(a.Body), "origins") {
		t.Errorf("another host: it is not the application's: %s", a.Body)
	}
}

// created returns the body of a request that adds a new passkey of an authenticator.
func (s *site) created(a *keytest.Authenticator, token, name string) fields {
	s.t.Helper()
	options := s.me("POST", "passkeys/options", token, nil).wantStatus(http.StatusOK)
	public := get(json.Marshal(options.JSON["public_key"]))(s.t)
	credential := get(a.Create(passkeyOrigin, public))(s.t)
	return fields{"challenge_token": options.str("challenge_token"), "credential": json.RawMessage(credential), "name": name}
}

// usersManageTheirPasskeys is the part of TestPasskeysOverHTTP with the routes of
// self_service.
func (s *site) usersManageTheirPasskeys(t *testing.T) {
	token, phone := s.login("alice@example.com"), new(keytest.Authenticator)
	body := s.created(phone, token, "Phone")
	add := func(int) answer { return s.me("POST", "passkeys", token, body) }
	_, won := s.wantOne(10, func() {}, add, wire.ErrCredentialsInvalid) // then the challenge is spent
	id := won.str("id")
	s.notices(1, "notice.passkey_added")

	other := s.post("passkey/login", "", s.passkeyAnswer(phone, "acme", passkeyOrigin)).wantState(record.Authorized).token()
	list := s.me("GET", "passkeys", other, nil).wantStatus(200).JSON["passkeys"].([]any)
	if p := list[0].(fields); len(list) != 1 || p["id"] != id || p["name"] != "Phone" || p["last_used"] == nil {
		t.Errorf("the list is %v", list)
	}
	if n := s.me("GET", "factors", token, nil).wantStatus(200).JSON["passkeys"]; n != 1. {
		t.Errorf("factors has %v passkeys", n)
	}

	frank := s.login("frank")
	s.me("DELETE", "passkeys/"+id, frank, nil).want(wire.ErrNoRoute)
	s.me("PATCH", "passkeys/"+id, frank, fields{"name": "Mine"}).want(wire.ErrNoRoute)
	s.me("POST", "passkeys", frank, s.created(new(keytest.Authenticator), token, "")).want(wire.ErrCredentialsInvalid) // alice's challenge
	s.audits(10, `"actor":"the user","route":"me/passkeys","result":"auth.credentials.invalid"`)                       // nine of them alice's
	for _, bad := range []fields{
		{"challenge_token": "x", "credential": fields{}},
		{"challenge_token": "x", "credential": "x"},
		{"challenge_token": "x"},
		{"credential": fields{}},
		{"challenge_token": body["challenge_token"], "credential": body["credential"], "name": strings.Repeat("x", 65)},
	} {
		if a := s.me("POST", "passkeys", token, bad); a.Status != 400 && a.Status != 401 {
			t.Errorf("%v: got %d %s", bad, a.Status, a.Body)
		}
	}

	s.me("PATCH", "passkeys/"+id, token, fields{"name": " Old phone "}).wantStatus(200)
	s.audits(1, `"actor":"the user","reason":"passkeys"`)
	s.me("PATCH", "passkeys/AAAA", token, fields{"name": "x"}).want(wire.ErrNoRoute)
	for _, bad := range []fields{{}, {"name": ""}, {"name": strings.Repeat("x", 65)}, {"name": "a\nb"}} {
		s.me("PATCH", "passkeys/"+id, token, bad).want(wire.ErrValidation)
	}
	if p := s.me("GET", "passkeys", other, nil).wantStatus(200).JSON["passkeys"].([]any)[0].(fields); p["name"] != "Old phone" {
		t.Errorf("the passkey is %v", p)
	}

	s.remember(token, other)
	s.me("DELETE", "passkeys/"+id, token, nil).wantStatus(200)
	s.gone(other)
	for range s.nodes {
		s.get("/", token).wantStatus(200)
	}
	s.me("DELETE", "passkeys/"+id, token, nil).want(wire.ErrNoRoute)
	s.post("passkey/login", "", s.passkeyAnswer(phone, "acme", passkeyOrigin)).want(wire.ErrCredentialsInvalid)

	s.update("alice", func(a *record.Account) { a.PasswordHash, a.Phone = "", "" })
	// Without a name it has that of its provider, or else of the device.
	named := s.me("POST", "passkeys", token, s.created(&keytest.Authenticator{AAGUID: uuid.MustParse("bada5566-a7aa-401f-bd96-45619a55120d")}, token, " ")).wantStatus(200)
	named.wantField("name", "1Password")
	unknown := s.created(phone, token, "")
	r := s.meRequest("POST", "passkeys", token, unknown)
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
	added := s.do(r).wantStatus(200)
	added.wantField("name", "Firefox (Linux)")
	last := added.str("id")
	s.me("DELETE", "passkeys/"+named.str("id"), token, nil).wantStatus(200)
	s.me("DELETE", "passkeys/"+last, token, nil).want(wire.ErrConflict)
	s.update("alice", func(a *record.Account) { a.PasswordHash, a.SecondFactor = "h", true }) // no code would come
	s.me("DELETE", "passkeys/"+last, token, nil).want(wire.ErrConflict)

	for range record.MaxPasskeys - 1 {
		s.newPasskey(&keytest.Authenticator{}, "alice")
	}
	s.me("POST", "passkeys/options", token, nil).want(wire.ErrConflict)

	old := s.begun("mgs_", record.Authorized, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	for _, route := range [][2]string{{"POST", "passkeys/options"}, {"POST", "passkeys"}, {"PATCH", "passkeys/" + last}, {"DELETE", "passkeys/" + last}} {
		s.me(route[0], route[1], old, nil).want(wire.ErrSessionInvalid).wantReason("too_old")
	}
	s.me("GET", "passkeys", old, nil).wantStatus(200)
}

// authenticator gives the tab an authenticator. Unless it is ready, its user cancels.
func (b *tab) authenticator(ready bool) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, webauthn.Disable, cdp.Empty{}); err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, t, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: ready, AutomaticPresenceSimulation: true,
		}})
		return err
	}))
}

// A user creates a passkey in two clicks, and removes it again.
func browserCreatesAPasskey(t *testing.T, s *site) {
	b := newBrowser(t)
	b.logsIn(s.URL+"/acme/security", "alice@example.com", testPassword)
	b.sees("security", "#passkeys")
	b.authenticator(false)
	b.chooses("security.passkeys.add")
	b.sees("security-passkey", "#passkeys .main")
	b.submits()
	b.tells("passkeys", "offer.cancelled")
	b.authenticator(true)
	b.submits()
	b.tells("passkeys", "security.passkeys.done")
	b.waits(`document.querySelector('#passkeys b')?.textContent === 'Chrome (Linux)'`)
	b.sees("security-passkeys", "#passkeys .item")
	b.chooses("security.passkeys.rename")
	b.waits(`document.activeElement.value === 'Chrome (Linux)'`)
	b.enters("name", "Work laptop")
	b.tells("passkeys", "security.passkeys.renamed")
	b.waits(`document.querySelector('#passkeys b')?.textContent === 'Work laptop'`)
	b.chooses("security.passkeys.add")
	b.submits()
	b.tells("passkeys", "security.passkeys.exists")
	b.chooses("security.cancel")
	b.eval(`[...document.querySelectorAll("#passkeys .item button")].at(-1).click()`) // other sections have a button with this text, too
	b.submits()
	b.tells("passkeys", "security.passkeys.removed")
	b.waits(`document.querySelector('#passkeys .item') === null`)
}
