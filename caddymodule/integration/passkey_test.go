package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

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
	must(s.t, accounts.AddPasskey(s.t.Context(), account, p))
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
		if got := s.get("/", a.token()).wantStatus(200); !strings.Contains(string(got.Body), "X-Profile-Auth-Methods: passkey mfa\r\n") {
			t.Errorf("the backend gets %s", got.Body)
		}
	})
	s.run("one challenge on two nodes", func(t *testing.T) {
		body := answered()
		s.wantOne(storetest.Together(10, func(int) answer { return login(body) }), invalid)
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
	s := startNodes(t, siteConfig{
		company: people + strings.Replace(passkeys, passkeyOrigin, passkeyOrigin+" https://app.example.de https://example.co.uk", 1),
		more:    "company bare {\n api_key " + testKey + "\n captcha off\n" + strings.Replace(passkeys, passkeyOrigin, "https://bare.example.com", 1) + "\n}",
		handler: "public /.well-known/*",
	})
	ask := func(method, host string) answer {
		return s.nodes[0].exchange(method + " /.well-known/webauthn HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
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
