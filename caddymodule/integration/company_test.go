package integration

import (
	"bytes"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Operators need no curl for what users have.
func TestCommandsForPasskeysDevicesAndKeys(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{handler: "assertion profile-api", global: "devices 720h\n",
		company: "captcha off\n" + passkeys + "\n" + account("alice", "phone +37060000001\nemail alice@example.com") + account("bob", "") + "account carol {\nemail carol@example.com\n}"})
	s.admin("PATCH", "accounts/alice", fields{"role": "editor"}).wantStatus(http.StatusOK)
	phone := s.newPasskey(new(keytest.Authenticator), "alice").ID()
	token := s.signedIn("alice", testPassword)
	s.remembered("alice")
	s.remembered("bob")
	s.remembered("bob")

	s.cli("", "passkeys", "list", "alice").want(0, phone, "Phone")
	s.cli("", "passkeys", "remove", "--", "alice", "AAAA").want(2, "no such passkey")
	s.cli("", "passkeys", "remove", "alice").want(1, "wrong number of arguments")
	s.cli("", "devices", "remove", "alice", "none").want(2, "no such device")
	listed := strings.Fields(s.cli("", "devices", "list", "alice", "--json").want(0, `"skip_second_factor":false`).out)
	if len(strings.Split(s.cli("", "devices", "list", "bob").want(0).out, "\n")) != 4 || len(listed) == 0 {
		t.Error("bob has not two devices")
	}
	s.cli("", "devices", "remove", "bob").want(0, "bob: removed")
	if out := s.cli("", "devices", "list", "bob").want(0).out; strings.Count(out, "\n") != 1 {
		t.Errorf("bob has still %s", out)
	}
	s.cli("", "passkeys", "remove", "--", "alice", phone).want(0, "the passkey is removed")
	s.get("/", token).want(wire.ErrTokenInvalid)
	s.cli("", "account", "welcome", "carol").want(0, "the link is on its way")
	s.sms.last("welcome.link", "link")
	s.cli("", "account", "welcome", "alice").want(3, "can log in already")

	before := len(s.keySet("/acme/v2/jwks.json").Keys)
	s.cli("", "company", "rotate-key").want(0, "acme: the new key signs in 20 minutes")
	s.restart()
	if after := len(s.keySet("/acme/v2/jwks.json").Keys); after != before+1 {
		t.Errorf("%d keys are published, want %d", after, before+1)
	}

	for range 10 {
		s.credentials("bob", "wrong").want(wire.ErrCredentialsInvalid)
	}
	for flag, want := range map[string]string{"--locked": "bob", "--role=editor": "alice", "--no-second-factor": "bob carol"} {
		var got []string
		for line := range strings.Lines(s.cli("", "account", "list", "--json", flag).want(0).out) {
			got = append(got, regexp.MustCompile(`"profile_mnemocode":"(\w+)"`).FindStringSubmatch(line)[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s lists %q, want %s", flag, got, want)
		}
	}
	s.cli("", "account", "explain", "alice").want(0, "the account is alice")
	s.cli("", "account", "explain", "bob", "--from", "127.0.0.1").want(1, "auth.restricted lock.password", "account unlock", ", for ")
	s.cli("", "account", "explain", "nobody").want(1, "auth.credentials.invalid")
	s.cli("", "account", "explain", "bob", "--from", "here").want(1, "address: it must be the user's IP address")
}

// A renamed company keeps its accounts with all that they log in with and the events that
// wait, and loses its sessions at once on all nodes. An erased company leaves nothing, on any
// kind of store.
func TestCompaniesComeAndGo(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, start starter, kept func(*site) []byte) {
		const other = "company other {\napi_key other-key\ncaptcha off\n}"
		r := newReceiver(t)
		s := start(t, siteConfig{company: "captcha off\n" + r.events("") + passkeys + "\n" + account("configured", "") + account("unloved", ""), more: other, audit: true})
		first, last := s.all()[0], s.all()[len(s.all())-1]
		const secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
		first.importAll("", `{"profile_mnemocode":"alice-of-acme","login_name":"alice","password":"`+testPassword+`","second_factor":true,"totp_secret":"`+secret+`"}`)
		first.admin("DELETE", "accounts/unloved", nil).wantStatus(http.StatusNoContent)
		phone := new(keytest.Authenticator)
		s.newPasskey(phone, "alice-of-acme")
		token := s.login("configured")
		for range s.all() {
			s.get("/", token).wantStatus(http.StatusOK)
		}

		r.behave(down)
		first.admin("PATCH", "accounts/alice-of-acme", fields{"role": "editor"}).wantStatus(http.StatusOK)
		first.cli("", "company", "rename", "acme", "new").want(1, "These are lost: all sessions", "add --yes")
		first.cli("", "company", "rename", "acme", "no/code", "--yes").want(1, "64 letters")
		first.cli("", "company", "rename", "acme", "acme", "--yes").want(1, "another code")
		first.cli("", "company", "erase", "acme", "--yes").want(3, "still configured")
		first.cli("", "company", "rename", "acme", "new", "--yes").want(0, "acme: renamed to new, with accounts: 2")
		s.gone(token)
		s.post("auth/login", "", fields{"login_id": "alice"}).want(wire.ErrLoginIDNotFound)

		reload := func(node *site, changes ...string) {
			node.config = changed(t, node.config, changes...)
			must(t, node.load())
		}
		for _, node := range s.all() {
			reload(node, "company acme {", "company new {")
		}
		r.behave(nil)
		r.hears("alice-of-acme", "account.created account.changed")
		asked := s.postTo("new", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).wantState(record.CheckOTP)
		s.postTo("new", testKey, "auth/checkotp", asked.token(), fields{"otp": appShows(t, secret, 0)}).wantState(record.Authorized)
		s.postTo("new", testKey, "passkey/login", "", s.passkeyAnswer(phone, "new", passkeyOrigin)).wantState(record.Authorized)
		last.cli("", "account", "history", "alice-of-acme", "--company", "new").want(0, "account.created")
		if got := last.cli("", "account", "list", "--company", "new").want(0, "configured").out; strings.Count(got, "\n") != 3 {
			t.Errorf("the company has\n%s", got)
		}
		first.cli("", "company", "rename", "other", "new", "--yes").want(3, "has accounts already")
		first.cli("", "account", "add", "configured", "--company", "other").want(0)
		first.cli("", "company", "rename", "other", "new", "--yes", "--resume").want(3, "account configured", "its profile_mnemocode")
		first.cli("", "account", "delete", "configured", "--company", "other", "--yes").want(0)
		first.cli("", "company", "rename", "other", "new", "--yes", "--resume").want(0, "accounts: 0")

		// The other node has not heard of the end of the company.
		token = s.loginAt("new", testKey, "configured")
		for range s.all() {
			s.get("/", token).wantStatus(http.StatusOK)
		}
		without, _, _ := strings.Cut(first.config, "company new {")
		_, rest, _ := strings.Cut(first.config, other)
		reload(first, first.config, without+other+rest)
		erased, accounts := first.cli("", "company", "erase", "new", "--yes"), "2"
		if erased.exit == 4 { // a store was late, and some accounts are gone when the command is repeated
			accounts = ""
		}
		erased.want(0, "new: erased, with accounts: "+accounts)
		s.hears(last, token)
		if last != first {
			last.postTo("new", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).want(wire.ErrCredentialsInvalid)
		}
		if log := get(os.ReadFile(first.dir + "/audit.log"))(t); bytes.Count(log, []byte("mnemogate.company.renamed")) < 2 || !bytes.Contains(log, []byte(`"mnemogate.company.erased","company":"new"`)) {
			t.Errorf("the audit log has\n%s", log)
		}
		if kept := kept(first); bytes.Contains(kept, []byte("alice-of-acme")) || bytes.Contains(kept, []byte("unloved")) || len(kept) < 1000 {
			t.Errorf("the store has\n%.20000q", kept)
		}
	}
	t.Run("embedded", func(t *testing.T) {
		test(t, startSite, func(s *site) []byte {
			s.stop(syscall.SIGTERM) // empties the write-ahead log
			return get(os.ReadFile(s.dir + "/mnemogate.db"))(t)
		})
	})
	t.Run("two nodes", func(t *testing.T) {
		servers := sharedServers(t)
		test(t, func(_ *testing.T, c siteConfig) *site { return servers.start(c, servers.direct(), servers.direct()) }, func(*site) []byte {
			return append(servers.postgres.Dump(t, servers.schema), strings.Join(redisContent(t, servers.redis), "\n")...)
		})
	})
}
