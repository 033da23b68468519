package integration

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// newer adds options that the release lacks to a Caddyfile with these comments. Change it
// with each release.
var newer = strings.NewReplacer(
	"# all", "devices 90d",
	"# acme", passkeys,
	"# site", "assertion profile-api\nself_service\n",
)

// An operator upgrades from the release of -old, uses what is new, goes back, and
// upgrades again. Users keep their accounts, sessions, passkeys and devices, and what
// the release changed counts.
func TestUpgradeAndBack(t *testing.T) {
	if *oldProgram == "" {
		t.Skip("needs -old <program>, as in .ci/run install upgrade")
	}
	config := siteConfig{global: "# all", handler: "# site", company: roomy + account("alice", "") +
		account("bob", "") + account("carol", "second_factor\nphone +37060000003") + "# acme"}
	t.Run("embedded", func(t *testing.T) {
		s := newNode(t, config, newRawBackend(t), newWebhookSink(t))
		s.goesBack(s)
	})
	t.Run("two nodes", func(t *testing.T) {
		servers := sharedServers(t)
		config.stores = servers.direct()
		s := &site{t: t, backend: newRawBackend(t), sms: newWebhookSink(t)}
		for range 2 {
			s.nodes = append(s.nodes, newNode(t, config, s.backend, s.sms))
		}
		s.goesBack(s.nodes...)
	})
}

func (s *site) goesBack(nodes ...*site) {
	configs := map[*site]string{}
	for _, node := range nodes {
		configs[node] = node.config
	}
	become := func(program string) {
		s.t.Helper()
		for _, node := range nodes {
			if node.cmd != nil {
				node.stop(syscall.SIGTERM)
			}
		}
		for _, node := range nodes {
			node.program, node.config = program, configs[node]
			if program == "" {
				node.config = newer.Replace(node.config)
			}
			node.writeCaddyfile()
			node.startAgain()
		}
	}
	cli := nodes[0].cli
	passkeyLogin := func(phone *keytest.Authenticator) string {
		s.t.Helper()
		return s.post("passkey/login", "", s.passkeyAnswer(phone, "acme", passkeyOrigin)).wantState(record.Authorized).token()
	}

	become(*oldProgram)
	first, gone := s.login("alice"), s.login("alice")
	s.post("auth/logout", gone, nil).wantStatus(200)
	pending := s.credentials("carol", testPassword).wantState(record.CheckOTP).token()
	code := s.sms.last("otp.login", "code")

	become("")
	s.get("/", first).wantStatus(200)
	s.get("/", gone).want(wire.ErrTokenInvalid)
	s.post("auth/checkotp", pending, fields{"otp": code}).wantState(record.Authorized)
	second, device := s.login("alice"), s.remembered("alice")
	phone, carols := new(keytest.Authenticator), new(keytest.Authenticator)
	s.me("POST", "passkeys", second, s.created(phone, second, "Phone")).wantStatus(200)
	carol := s.post("auth/checkotp", s.credentials("carol", testPassword).token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized).token()
	s.me("POST", "passkeys", carol, s.created(carols, carol, "Phone")).wantStatus(200)
	third := passkeyLogin(phone)
	signed := s.keySet("/acme/v2/jwks.json").Keys[0].KeyID
	s.lockedByStrangers("bob")

	become(*oldProgram)
	for _, token := range []string{first, second, third} {
		s.get("/", token).wantStatus(200)
	}
	s.get("/", gone).want(wire.ErrTokenInvalid)
	s.credentials("bob", testPassword).want(wire.ErrRestricted)
	s.post("auth/logout", third, nil).wantStatus(200)
	fourth := s.login("alice")
	cli("", "account", "delete", "carol", "--yes").want(0)
	cli("", "account", "unlock", "bob").want(0)
	bobs := s.login("bob")
	cli("", "account", "set", "bob", "--status", "restricted").want(0)
	cli(testPassword, "account", "add", "dave", "--login", "dave", "--password").want(0)
	daves := s.login("dave")

	become("")
	for _, token := range []string{first, second, fourth, daves} {
		s.get("/", token).wantStatus(200)
	}
	for _, token := range []string{gone, third, bobs, carol} {
		s.get("/", token).want(wire.ErrTokenInvalid)
	}
	s.credentials("bob", testPassword).want(wire.ErrUserRestricted)
	s.get("/", passkeyLogin(phone)).wantStatus(200)
	s.post("passkey/login", "", s.passkeyAnswer(carols, "acme", passkeyOrigin)).want(wire.ErrCredentialsInvalid)
	s.lockedByStrangers("alice")
	s.loginWith("alice", testPassword, fields{"device_token": device}).wantState(record.Authorized)
	if got := s.keySet("/acme/v2/jwks.json").Keys[0].KeyID; got != signed {
		s.t.Errorf("assertions are signed with %s, not with %s", got, signed)
	}
	if events := named(s.history("alice", 1)); !slices.Contains(events, "account.passkey_added") {
		s.t.Errorf("alice's history is %v", events)
	}
}
