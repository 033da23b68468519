package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// adminClient returns a client of the site's admin endpoint.
func (s *site) adminClient() *http.Client {
	return &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.dir+"/admin.sock")
		},
	}}
}

// adminRaw sends a body unchanged. The path is relative to /mnemogate/.
func (s *site) adminRaw(method, path, body string) answer {
	s.t.Helper()
	began, stalled := time.Now(), storetest.WatchStalls()
	return get(s.tryAdmin(method, path, body))(s.t).repeatable(began, stalled, func() answer { return s.adminRaw(method, path, body) })
}

// tryAdmin is like adminRaw, but returns an error if Caddy does not answer.
func (s *site) tryAdmin(method, path, body string) (answer, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://127.0.0.1/mnemogate/"+path, reader)
	if err != nil {
		return answer{}, err
	}
	client := s.adminClient()
	defer client.CloseIdleConnections()
	return exchanged(s.t, client, r)
}

// admin sends a request for acme, with a JSON body.
func (s *site) admin(method, path string, body any) answer {
	s.t.Helper()
	return s.adminRaw(method, "acme/"+path, s.encoded(body))
}

// said returns the body without the ref of an error, which is never the same.
func (a answer) said() string {
	ref := a.str("ref")
	if ref == "" {
		return string(a.Body)
	}
	return strings.Replace(string(a.Body), ref, "", 1)
}

func (a answer) wantStatus(status int) answer {
	a.t.Helper()
	a = a.expected(status)
	if a.Status != status {
		a.t.Fatalf("got %d %s, want %d", a.Status, a.Body, status)
	}
	return a
}

// wantRefused checks that the answer is an error of the admin API.
func (a answer) wantRefused(status int, field string) answer {
	a.t.Helper()
	a = a.expected(status)
	if a.Status != status || a.str("field") != field || a.str("error") == "" {
		a.t.Fatalf("got %d %s, want %d with the field %q", a.Status, a.Body, status, field)
	}
	return a
}

// adminSite starts a site whose company acme has no accounts.
func adminSite(t *testing.T, c siteConfig) *site {
	t.Helper()
	c.company += "\ncaptcha off"
	return startSite(t, c)
}

var alice = fields{
	"profile_mnemocode": "alice", "primary_email": "Alice@Example.com", "primary_phone": "+370 600 12345",
	"login_name": "alice", "password": testPassword,
}

func with(base fields, more fields) fields {
	merged := maps.Clone(base)
	maps.Copy(merged, more)
	return merged
}

// One site serves all requests of the admin API.
func TestAdmin(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{})
	for name, do := range map[string]func(*testing.T, *site){
		"creates, shows, changes and deletes accounts": adminChangesAccounts,
		"refuses, and names the field at fault":        adminRefuses,
	} {
		s.run(name, func(t *testing.T) { do(t, s) })
		s.admin("DELETE", "accounts/alice", nil).wantStatus(204)
	}
}

func adminChangesAccounts(t *testing.T, s *site) {
	created := s.admin("POST", "accounts", with(alice, fields{ // spaces around a login id are ignored, as in logins
		"primary_email": "  Alice@Example.com ", "primary_phone": " 00370\t(600)\n12345 ", "login_name": "\t\u00a0alice \u3000\n",
		"role": "tester", "locale": "pt-br", "second_factor": false, "control_question": "Cat?", "control_answer": "Tom",
		"oauth_identities":     []fields{{"provider_id": 2, "subject": "sub-2"}, {"provider_id": 1, "subject": "sub-1"}},
		"disclaimers_accepted": []fields{{"code": "terms", "version": "3"}, {"code": "privacy", "version": "", "accepted_at": "2026-01-02T03:04:05.123456789Z"}},
	})).wantStatus(201)
	created.wantHeader("Location", "/mnemogate/acme/accounts/alice")
	shown := s.admin("GET", "accounts/alice", nil).wantStatus(200)
	if string(shown.Body) != string(created.Body) {
		t.Errorf("created %s\nshown   %s", created.Body, shown.Body)
	}
	want := fields{
		"profile_mnemocode": "alice", "role": "tester", "primary_phone": "+37060012345", "primary_email": "Alice@Example.com",
		"login_name": "alice", "locale": "pt-BR", "status": "active", "second_factor": false, "must_set_password": false, "password_set": true,
		"control_question": "Cat?", "backup_codes_left": 0.0, "totp": false, "passkeys": 0.0, "locked_until": nil,
		"captcha_due": false,
	}
	for name, value := range want {
		if shown.JSON[name] != value {
			t.Errorf("%s is %v, want %v", name, shown.JSON[name], value)
		}
	}
	for _, secret := range []string{"argon2", testPassword, "Tom", "control_answer", "password_hash"} {
		if strings.Contains(string(shown.Body), secret) {
			t.Errorf("the answer holds %s", secret)
		}
	}
	for _, loginID := range []string{"  ALICE@example.com ", "\u00a0ALICE\t", " 00370 (600) 12345 "} {
		s.login(loginID)
	}

	s.run("a merge patch changes what it names", func(t *testing.T) {
		got := s.admin("PATCH", "accounts/alice", fields{"role": nil, "login_name": "Liz", "oauth_identities": nil}).wantStatus(200)
		if got.JSON["role"] != nil || got.str("login_name") != "Liz" || got.str("primary_phone") != "+37060012345" ||
			len(got.JSON["oauth_identities"].([]any)) != 0 {
			t.Errorf("got %s", got.Body)
		}
		if same := s.admin("PATCH", "accounts/alice", fields{"login_name": " Liz", "primary_email": "Alice@Example.com "}).wantStatus(200); same.str("updated_at") != got.str("updated_at") {
			t.Error("a patch that changes nothing has written")
		}
	})
	s.run("a question goes with its answer", func(t *testing.T) {
		s.admin("PATCH", "accounts/alice", fields{"control_answer": nil}).wantRefused(400, "control_question")
		s.admin("PATCH", "accounts/alice", fields{"control_question": nil}).wantStatus(200)
		s.admin("PATCH", "accounts/alice", fields{"control_question": "Dog?"}).wantRefused(400, "control_question")
		s.admin("PATCH", "accounts/alice", fields{"control_question": "Dog?", "control_answer": "Rex"}).wantStatus(200)
	})
	s.run("an account is found by each login id in any spelling", func(t *testing.T) {
		for _, id := range []string{"alice@EXAMPLE.com", " liz ", "0037060012345", "+370 (600) 12-345"} {
			found := s.admin("GET", "accounts?login_id="+url.QueryEscape(id), nil).wantStatus(200)
			if accounts := found.JSON["accounts"].([]any); len(accounts) != 1 {
				t.Errorf("%q found %s", id, found.Body)
			}
		}
		s.admin("PATCH", "accounts/alice", fields{"primary_email": "alice+home@example.com"}).wantStatus(200)
		for _, query := range []string{ // + means a space
			"+37060012345", "+370+600+12345", "%2B370%20600%2012345",
			"alice+home@example.com", "Alice%2BHome%40example.com", "+alice+home@example.com+", "Liz+", "+liz",
		} {
			found := s.admin("GET", "accounts?login_id="+query, nil).wantStatus(200)
			if accounts := found.JSON["accounts"].([]any); len(accounts) != 1 {
				t.Errorf("%q found %s", query, found.Body)
			}
		}
		s.admin("PATCH", "accounts/alice", fields{"primary_email": "alice@example.com"}).wantStatus(200)
		if found := s.admin("GET", "accounts?login_id=nobody", nil).wantStatus(200); string(found.Body) != "{\"accounts\":[]}\n" {
			t.Errorf("got %s", found.Body)
		}
	})
	s.run("acceptances are added and never taken away", func(t *testing.T) {
		s.admin("PATCH", "accounts/alice", fields{"disclaimers_accepted": []fields{}}).wantRefused(400, "disclaimers_accepted")
		got := s.admin("PATCH", "accounts/alice", fields{"disclaimers_accepted": []fields{
			{"code": "privacy", "version": "1", "accepted_at": "2026-01-03T03:04:05Z"}, {"code": "terms", "version": "4"},
		}}).wantStatus(200)
		got.wantBody(`{"code":"privacy","version":"1","accepted_at":"2026-01-03T03:04:05Z"},{"code":"terms","version":"4"`)
		got = s.admin("PATCH", "accounts/alice", fields{"disclaimers_accepted": []fields{ // the older version of terms replaces nothing
			{"code": "cookies", "version": "1"}, {"code": "privacy", "version": "1"}, {"code": "terms", "version": "3", "accepted_at": "2026-01-02T03:04:05Z"},
		}}).wantStatus(200)
		if accepted := string(got.Body); !strings.Contains(accepted, `{"code":"cookies","version":"1"`) || !strings.Contains(accepted, `{"code":"terms","version":"4"`) {
			t.Errorf("got %s", got.Body)
		}
	})
	s.run("a mnemocode may have odd characters", func(t *testing.T) {
		for _, mnemocode := range []string{"a/b", "...", "50%", "%2F", "a?b#c", "a;b", "a//b", "~!@$&'()*+,=:[]|\\^`\"<>"} {
			path := "accounts/" + url.PathEscape(mnemocode)
			got := s.admin("POST", "accounts", fields{"profile_mnemocode": mnemocode}).wantStatus(201)
			got.wantHeader("Location", "/mnemogate/acme/"+path)
			if got := s.admin("GET", path, nil).wantStatus(200); got.str("profile_mnemocode") != mnemocode {
				t.Errorf("%q: got %s", mnemocode, got.Body)
			}
			s.admin("PATCH", path, fields{"role": "x", "primary_email": "", "login_name": nil}).wantStatus(200)
			s.admin("POST", path+"/unlock", nil).wantStatus(200)
			s.admin("GET", path+"/sessions", nil).wantStatus(200)
			s.admin("DELETE", path, nil).wantStatus(204)
		}
	})
	s.run("a recreated account inherits nothing", func(t *testing.T) {
		token := s.login("liz")
		s.admin("POST", "accounts/alice/backup-codes", nil).wantStatus(200)
		if got := s.admin("DELETE", "accounts/alice", nil).wantStatus(204); len(got.Body) != 0 {
			t.Errorf("204 with %s", got.Body)
		}
		s.get("/", token).want(wire.ErrTokenInvalid)
		s.admin("GET", "accounts/alice", nil).wantRefused(404, "")
		s.admin("DELETE", "accounts/alice", nil).wantRefused(404, "")
		fresh := s.admin("POST", "accounts", alice).wantStatus(201)
		s.get("/", token).want(wire.ErrTokenInvalid)
		if fresh.JSON["backup_codes_left"] != 0.0 || len(fresh.JSON["disclaimers_accepted"].([]any)) != 0 || fresh.JSON["control_question"] != nil {
			t.Errorf("got %s", fresh.Body)
		}
		if sessions := s.admin("GET", "accounts/alice/sessions", nil); string(sessions.Body) != "{\"sessions\":[]}\n" {
			t.Errorf("got %s", sessions.Body)
		}
	})
}

func adminRefuses(t *testing.T, s *site) {
	s.admin("POST", "accounts", with(alice, fields{"oauth_identities": []fields{{"provider_id": 1, "subject": "a"}}})).wantStatus(201)
	s.admin("POST", "accounts", fields{"profile_mnemocode": "bob", "login_name": "bob"}).wantStatus(201)
	bob := func(more fields) fields { return with(fields{"profile_mnemocode": "x"}, more) }
	accepted := func(n int) (all []fields) {
		for i := range n {
			all = append(all, fields{"code": fmt.Sprint(i)})
		}
		return all
	}
	for _, test := range []struct {
		body   any
		status int
		field  string
	}{
		{fields{}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": nil}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": ""}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": "a b"}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": "{x}"}, 400, "profile_mnemocode"},
		{bob(fields{"email": "x@example.com"}), 400, "email"},
		{bob(fields{"Role": "x"}), 400, "Role"},
		{bob(fields{"password_set": true}), 400, "password_set"},
		{bob(fields{"locked_until": nil}), 400, "locked_until"},
		{bob(fields{"created_at": "2026-01-01T00:00:00Z"}), 400, "created_at"},
		{bob(fields{"backup_code_hashes": []string{}}), 400, "backup_code_hashes"},
		{bob(fields{"primary_phone": "12345"}), 400, "primary_phone"},
		{bob(fields{"profile_mnemocode": "."}), 400, "profile_mnemocode"},
		{bob(fields{"profile_mnemocode": ".."}), 400, "profile_mnemocode"},
		{bob(fields{"login_name": "\u200b\u3164"}), 400, "login_name"},
		{bob(fields{"primary_email": "x@exam_ple.com"}), 400, "primary_email"},
		{bob(fields{"primary_email": strings.Repeat("😀", 240) + "@example.com"}), 400, "primary_email"},
		{bob(fields{"role": "a\x00b"}), 400, "role"},
		{bob(fields{"status": nil}), 400, "status"},
		{bob(fields{"locale": "pt_BR"}), 400, "locale"},
		{bob(fields{"password": ""}), 400, "password"},
		{bob(fields{"password": "no one can \x00 send it"}), 400, "password"},
		{bob(fields{"primary_email": "x@example.com" + strings.Repeat(" ", 300) + "x"}), 400, "primary_email"},
		{bob(fields{"login_name": " \u00a0\u3000"}), 400, "login_name"},
		{bob(fields{"login_name": "a\tb"}), 400, "login_name"},
		{bob(fields{"password_hash": "plain"}), 400, "password_hash"},
		{bob(fields{"password_hash": ""}), 400, "password_hash"},
		{bob(fields{"password_hash": "$argon2id$v=19$m=4194304,t=99,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"}), 400, "password_hash"},
		{bob(fields{"password_hash": fields{"type": "otp"}}), 400, "password_hash"},
		{bob(fields{"password": "a", "password_hash": "b"}), 400, "password_hash"},
		{bob(fields{"control_question": "Cat?"}), 400, "control_question"},
		{bob(fields{"control_question": "Cat?", "control_answer": "  "}), 400, "control_answer"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 6, "subject": "x"}}}), 400, "oauth_identities"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 1, "subject": "x", "more": 1}}}), 400, "oauth_identities"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 1, "subject": "x"}, {"provider_id": 1, "subject": "y"}}}), 400, "oauth_identities"},
		{bob(fields{"disclaimers_accepted": []string{"terms"}}), 400, "disclaimers_accepted"},
		{bob(fields{"disclaimers_accepted": []fields{{"code": ""}}}), 400, "disclaimers_accepted"},
		{bob(fields{"disclaimers_accepted": accepted(257)}), 400, "disclaimers_accepted"},
		{[]int{}, 400, ""},
		{"x", 400, ""},
		{fields{"profile_mnemocode": "bob"}, 409, "profile_mnemocode"},
		{bob(fields{"login_name": "ALICE@example.com"}), 409, "login_name"},
		{bob(fields{"primary_email": "alice@example.COM"}), 409, "primary_email"},
		{bob(fields{"primary_email": "ali\u200bce@example。com"}), 409, "primary_email"},
		{bob(fields{"primary_phone": "+370 (0) 600 12345"}), 409, "primary_phone"},
		{bob(fields{"primary_phone": "0037060012345"}), 409, "primary_phone"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 1, "subject": "a"}}}), 409, "oauth_identities"},
	} {
		got := s.admin("POST", "accounts", test.body)
		if got.Status != test.status || got.str("field") != test.field || got.str("error") == "" {
			t.Errorf("%v: got %d %s, want %d %s", test.body, got.Status, got.Body, test.status, test.field)
		}
	}
	for _, raw := range []string{"", "{", `{"profile_mnemocode":"x"} {}`, "{\"role\":\"\xff\"}", `null`} {
		s.adminRaw("POST", "acme/accounts", raw).wantRefused(400, "")
	}
	s.adminRaw("POST", "acme/accounts", `{"profile_mnemocode":"x","role":"a","role":"b"}`).wantRefused(400, "role")
	s.adminRaw("POST", "acme/accounts", `{"profile_mnemocode":"x","oauth_identities":[{"subject":"a","subject":"b"}]}`).wantRefused(400, "subject")
	s.adminRaw("POST", "acme/accounts", `{"role":"`+strings.Repeat("x", 64<<10)+`"}`).wantRefused(413, "")
	s.adminRaw("POST", "acme/import", `{"profile_mnemocode":""}`).wantBody(`"field":"profile_mnemocode"`).wantBody(`"failed":1`)
	s.admin("PATCH", "accounts/bob", fields{"profile_mnemocode": ""}).wantRefused(400, "profile_mnemocode")
	s.admin("PATCH", "accounts/bob", fields{"profile_mnemocode": "alice"}).wantRefused(409, "profile_mnemocode")
	s.admin("PATCH", "accounts/bob", fields{"status": nil}).wantRefused(400, "status")
	s.admin("PATCH", "accounts/bob", fields{"disclaimers_accepted": accepted(256)}).wantStatus(200)
	s.admin("PATCH", "accounts/bob", fields{"login_name": "alice"}).wantRefused(409, "login_name")
	s.admin("PATCH", "accounts/nobody", fields{"role": "x"}).wantRefused(404, "")
	for _, route := range []string{"GET", "DELETE"} {
		s.admin(route, "accounts/nobody/sessions", nil).wantRefused(404, "")
	}
	s.admin("DELETE", "accounts/nobody/devices", nil).wantRefused(404, "")
	s.admin("POST", "accounts/nobody/unlock", nil).wantRefused(404, "")
	s.admin("POST", "accounts/nobody/backup-codes", nil).wantRefused(404, "")
	for _, path := range []string{"nothing", "accounts/", "accounts//sessions", "accounts/bob/", "accounts/bob/nothing", "accounts/bob/sessions/x/y", "sessions/x", "import/x", "export/"} {
		if got := s.admin("GET", path, nil); got.Status != 404 && got.Status != 301 && got.Status != 307 {
			t.Errorf("%s: got %d %s, want 404", path, got.Status, got.Body)
		}
	}
	s.adminRaw("GET", "other/accounts", "").wantRefused(404, "company")
	s.adminRaw("GET", "other/accounts/bob", "").wantRefused(404, "company")
	for path, allow := range map[string]string{
		"accounts": "GET, POST", "accounts/bob": "DELETE, GET, PATCH", "accounts/bob/unlock": "POST",
		"accounts/bob/backup-codes": "POST", "accounts/bob/sessions": "DELETE, GET", "accounts/bob/sessions/x": "DELETE", "sessions": "DELETE", "import": "POST", "export": "GET",
	} {
		s.admin("PUT", path, fields{}).wantRefused(405, "").wantHeader("Allow", allow)
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit"} {
		s.admin("GET", "accounts?"+query, nil).wantRefused(400, field)
	}
	s.admin("POST", "import?update=maybe", nil).wantRefused(400, "update")
	s.adminRaw("POST", "", "").wantRefused(405, "")
	if got := s.adminRaw("GET", "", "").wantStatus(200); string(got.Body) != "{\"companies\":[\"acme\"]}\n" {
		t.Errorf("got %s", got.Body)
	}
}

func TestAdminSpeaksToTheConfigThatIsRunning(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{})
	s.admin("POST", "accounts", alice).wantStatus(201)
	good := s.config
	for name, broken := range map[string]string{
		"provisioning": strings.Replace(good, "api_key "+testKey, "api_key {env.MNEMOGATE_TEST_UNSET}", 1),
		"starting":     strings.Replace(good, "bind fd/3", "bind 203.0.113.1", 1),
	} {
		s.run("a reload failed at "+name, func(t *testing.T) {
			s.config = broken
			if err := s.load(); err == nil {
				t.Fatal("the broken config was loaded")
			}
			s.config = good
			s.admin("GET", "accounts/alice", nil).wantStatus(200)
			s.admin("PATCH", "accounts/alice", fields{"role": name}).wantStatus(200)
			token := s.login("alice")
			s.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(204)
			s.get("/", token).want(wire.ErrTokenInvalid)
		})
	}
	s.run("a reload brought another company", func(t *testing.T) {
		s.config = strings.Replace(good, "company acme {", "company umbrella {\napi_key k\ncaptcha off\n}\ncompany acme {", 1)
		must(t, s.load())
		s.adminRaw("POST", "umbrella/accounts", `{"profile_mnemocode":"alice","login_name":"alice"}`).wantStatus(201)
		if got := s.adminRaw("GET", "umbrella/accounts", "").wantStatus(200); strings.Contains(string(got.Body), "Example.com") {
			t.Errorf("another company's account is seen: %s", got.Body)
		}
	})
	s.run("there is no mnemogate any more", func(t *testing.T) {
		s.config = "{\nadmin unix/" + s.dir + "/admin.sock\npersist_config off\n}\n"
		must(t, s.load())
		s.admin("GET", "accounts", nil).wantRefused(503, "")
	})
}

// If an operator deletes an account that is in the configuration, loading the
// configuration again does not restore the account with its old password.
func TestDeletedAccountOfTheConfigurationDoesNotComeBack(t *testing.T) {
	t.Parallel()
	c := siteConfig{company: "captcha off\naccount eve {\nlogin eve\npassword \"the old password\"\n}\naccount kept {\nlogin kept\n}"}
	s := startSite(t, c)
	s.admin("DELETE", "accounts/eve", nil).wantStatus(http.StatusNoContent)
	old := fields{"login_id": "eve", "password": "the old password"}
	gone := func() {
		t.Helper()
		s.admin("GET", "accounts/kept", nil).wantStatus(http.StatusOK)
		s.admin("GET", "accounts/eve", nil).wantStatus(http.StatusNotFound)
		s.post("auth/checkcredentials", "", old).want(wire.ErrCredentialsInvalid)
	}
	must(t, s.reload(c))
	gone()
	s.restart()
	gone()

	s.admin("POST", "accounts", fields{"profile_mnemocode": "eve", "login_name": "eve", "password": "a new password"}).wantStatus(http.StatusCreated)
	must(t, s.reload(c))
	s.post("auth/checkcredentials", "", old).want(wire.ErrCredentialsInvalid)
	s.post("auth/checkcredentials", "", fields{"login_id": "eve", "password": "a new password"}).wantState(record.Authorized)
	s.admin("DELETE", "accounts/eve", nil).wantStatus(http.StatusNoContent)
	must(t, s.reload(c))
	gone()
}

func TestAdminSetsPasswordsAndUnlocks(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{global: "limits {\nlock_after 2\ndisable_after 3\nlock_for 4s\nfailures_per_address 1000/1h\n}"})
	s.admin("POST", "accounts", with(alice, fields{"must_set_password": true})).wantStatus(201)
	wrong := func() answer {
		return s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "wrong"})
	}
	lock := func(n int) {
		s.t.Helper()
		for range n {
			for wrong().Status == http.StatusTooManyRequests {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	s.run("a lock is seen and cleared", func(t *testing.T) {
		var until time.Time
		storetest.Eventually(t, 20*time.Second, "a lock that is not over when it is read", func() bool {
			s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
			lock(2)
			var err error
			until, err = time.Parse(time.RFC3339, s.admin("GET", "accounts/alice", nil).str("locked_until"))
			return err == nil
		})
		if time.Until(until) > 5*time.Second {
			t.Errorf("locked until %v", until)
		}
		s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200).wantField("locked_until", nil)
		wrong().want(wire.ErrCredentialsInvalid)
		s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
	})
	s.run("a disabled password is unlocked", func(t *testing.T) {
		lock(3)
		time.Sleep(4100 * time.Millisecond)
		wrong().want(wire.ErrRestricted)
		s.admin("GET", "accounts/alice", nil).wantField("locked_until", "9999-12-31T23:59:59Z")
		s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
		wrong().want(wire.ErrCredentialsInvalid)
	})
	s.run("a new password clears the lock and what it was for", func(t *testing.T) {
		lock(2)
		sent := len(s.sms.of("notice.password_changed"))
		s.admin("PATCH", "accounts/alice", fields{"password": "new", "primary_email": "other@example.com"}).wantStatus(200).wantField("locked_until", nil).wantField("must_set_password", false)
		s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "new"}).wantState(record.Authorized)
		s.eventually("notice", func() bool { return len(s.sms.of("notice.password_changed")) > sent })
		if to := s.sms.last("notice.password_changed", "to"); to != "Alice@Example.com" {
			t.Errorf("the notice went to %q", to)
		}
		s.admin("PATCH", "accounts/alice", fields{"password": "new", "must_set_password": true}).wantStatus(200)
		s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "new"}).wantState(record.SetPassword)
	})
}

// Filters find accounts by status, a part of a login id, the lack of a second factor or a
// password, and the time of their last change.
func TestAccountsAreFound(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: "captcha off", more: "company other {\napi_key off\ncaptcha off\n}"})
	var lines strings.Builder
	for i := range 30 {
		status := record.Statuses[i%len(record.Statuses)]
		fmt.Fprintf(&lines, `{"profile_mnemocode":"m%02d","login_name":"Ann_%02d","primary_phone":"+370600123%02d","status":%q}`+"\n", i, i, i, status)
	}
	s.importAll("", lines.String())
	s.admin("POST", "accounts", fields{"profile_mnemocode": "n1", "login_name": "without", "status": "closed"}).wantStatus(201)
	s.adminRaw("POST", "other/accounts", `{"profile_mnemocode":"z","login_name":"Ann_99"}`).wantStatus(201)
	search := func(query string) (names []string, next string) {
		got := s.admin("GET", "accounts?"+query, nil).wantStatus(200)
		for _, a := range got.JSON["accounts"].([]any) {
			names = append(names, a.(map[string]any)["profile_mnemocode"].(string))
		}
		next, _ = got.JSON["next"].(string)
		return names, next
	}
	since := time.Now()
	s.admin("PATCH", "accounts/m02", fields{"role": "editor", "password": testPassword}).wantStatus(200)
	s.importAll("", `{"profile_mnemocode":"old","primary_phone":"+37061000000","created_at":"2020-01-01T00:00:00Z"}`)
	for _, c := range []struct{ query, want string }{
		{"password_set=true", "m02 to "},
		{"password_set=false&contains=ann_0&limit=3", "m00 m01 m03 to m03"},
		{"updated_since=" + url.QueryEscape(since.Format(time.RFC3339Nano)), "m02 old to "},
		{"status=restricted", "m01 m05 m09 m13 m17 m21 m25 m29 to "},
		{"contains=ann_1&status=active", "m12 m16 to "},
		{"contains=ANN_2&limit=3", "m20 m21 m22 to m22"},
		{"contains=ANN_2&limit=3&after=m22", "m23 m24 m25 to m25"},
		{"contains=ANN_2&limit=7&after=m22", "m23 m24 m25 m26 m27 m28 m29 to "},
		{"contains=" + url.QueryEscape("+370 600 123-07"), "m07 to "},
		{"contains=+370&limit=2", "m00 m01 to m01"}, // the + is not escaped
		{"no_second_factor=true&limit=1", "n1 to "},
		{"no_second_factor=true&status=active", " to "},
		{"contains=%25", " to "},
		{"contains=zoe", " to "},
	} {
		names, next := search(c.query)
		if got := strings.Join(names, " ") + " to " + next; got != c.want {
			t.Errorf("%s: got %q, want %q", c.query, got, c.want)
		}
	}
	for query, field := range map[string]string{
		"status=gone": "status", "status=": "status", "contains=": "contains", "contains=%20": "contains", "contains=%ff": "contains",
		"contains=" + strings.Repeat("a", 255): "contains", "login_id=m1&status=active": "login_id", "no_second_factor=false": "no_second_factor",
		"updated_since=yesterday": "updated_since", "password_set=yes": "password_set",
	} {
		s.admin("GET", "accounts?"+query, nil).wantRefused(400, field)
	}
}

func TestAnAccountTellsWhatWrongPasswordsHaveDone(t *testing.T) {
	t.Parallel()
	careful := "captcha static tea\nlimits {\ncaptcha_after 2\n}\n" + account("alice", "")
	s := startSite(t, siteConfig{company: careful, more: "company umbra {\napi_key other-key\nhardened\n" + careful + "}"})
	due := func() any { return s.admin("GET", "accounts/alice", nil).wantStatus(200).JSON["captcha_due"] }
	for try, told := range []string{"no", "no", "yes"} {
		if due() != (told == "yes") {
			t.Errorf("after %d wrong passwords: got %v", try, due())
		}
		s.cli("", "account", "show", "alice", "--company", "acme").want(0, "captcha_due           "+told+"\n")
		if try < 2 {
			s.credentials("alice", "wrong").want(wire.ErrCredentialsInvalid)
		}
	}
	s.admin("PATCH", "accounts/alice", fields{"captcha_due": false}).wantRefused(400, "captcha_due")
	s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
	if due() != false {
		t.Error("it is due after the account was unlocked")
	}

	// In a hardened company, wrong passwords lock the login id that was sent. An operator
	// sees that lock with the account.
	try := func(times int, password string) (a answer) {
		for range times {
			a = s.postTo("umbra", "other-key", "auth/checkcredentials", "", fields{"login_id": "alice", "password": password, "captcha_response": "tea"})
		}
		return a
	}
	shown := func(method, path string, body any) fields {
		return s.adminRaw(method, "umbra/"+path, s.encoded(body)).wantStatus(200).JSON
	}
	try(2, "wrong").want(wire.ErrCredentialsInvalid)
	try(1, testPassword).wantState(record.Authorized) // clears the account's own count
	if a := shown("GET", "accounts/alice", nil); a["captcha_due"] != true || a["locked_until"] != nil {
		t.Errorf("after two wrong passwords: got %v", a)
	}
	try(8, "wrong").want(wire.ErrCredentialsInvalid)
	try(1, testPassword).want(wire.ErrRestricted)
	for method, body := range map[string]any{"GET": nil, "PATCH": fields{"locale": "lt"}} {
		if a := shown(method, "accounts/alice", body); a["locked_until"] == nil {
			t.Errorf("%s after ten wrong passwords: got %v", method, a)
		}
	}
	if listed := shown("GET", "accounts", nil)["accounts"].([]any)[0].(fields); listed["locked_until"] != nil {
		t.Errorf("a list has %v", listed)
	}
	if a := shown("POST", "accounts/alice/unlock", nil); a["captcha_due"] != false || a["locked_until"] != nil {
		t.Errorf("unlocked: got %v", a)
	}
}

// Two editors cannot lose each other's change: of many that name one version, one succeeds.
func TestAnAccountIsChangedInTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		key := "key-of-the-editors"
		s := accountsSite(t, start, "key editors "+key+" {\nmay read write\n}\nkey writer key-of-a-writer {\nmay write\n}", siteConfig{company: account("alice", "")})
		send := func(method, etag string, body any) answer {
			r := s.apiRequest(key, method, "acme/accounts/alice", body)
			if etag != "" {
				r.Header.Set("If-Match", etag)
			}
			a := s.do(r)
			checkInDocument(t, r, a)
			return a
		}
		shown := send("GET", "", nil).wantStatus(200)
		read := shown.Header.Get("ETag")
		s.adminRaw("DELETE", "acme/accounts/alice/sessions", "").wantStatus(204) // it changes no field
		won := 0
		for _, a := range storetest.Together(20, func(i int) answer { return send("PATCH", read, fields{"role": fmt.Sprint("role-", i)}) }) {
			if a.Status == http.StatusOK && a.Header.Get("ETag") != read {
				won++
			} else {
				a.wantStatus(http.StatusPreconditionFailed)
			}
		}
		if won != 1 {
			t.Errorf("%d editors succeeded with one version", won)
		}
		now := send("GET", "", nil).Header.Get("ETag")
		if again := send("PATCH", `"other", `+now, fields{"locale": "lt"}).wantStatus(200).Header.Get("ETag"); again == now || again != send("GET", "", nil).Header.Get("ETag") {
			t.Errorf("the ETag after the change is %s", again)
		}
		send("DELETE", now, nil).wantStatus(http.StatusPreconditionFailed)
		send("PATCH", "*", fields{"locale": "de"}).wantStatus(200)
		send("PATCH", "", fields{"locale": "fr"}).wantStatus(200)
		send("DELETE", send("GET", "", nil).Header.Get("ETag"), nil).wantStatus(204)
		send("PATCH", "*", fields{"locale": "de"}).wantStatus(http.StatusPreconditionFailed)
		send("DELETE", "*", nil).wantStatus(http.StatusPreconditionFailed)
		send("DELETE", "", nil).wantStatus(http.StatusNotFound)
		if created := s.api(key, "POST", "acme/accounts", fields{"profile_mnemocode": "bob"}).wantStatus(201); created.Header.Get("ETag") != s.api(key, "GET", "acme/accounts/bob", nil).Header.Get("ETag") {
			t.Error("a new account has another ETag")
		}
		if blind := s.api("key-of-a-writer", "PATCH", "acme/accounts/bob", fields{"locale": "lt"}).wantStatus(200); blind.Header.Get("ETag") != s.api(key, "GET", "acme/accounts/bob", nil).Header.Get("ETag") {
			t.Error("the ETag for a key that may not read is another")
		}
	})
}
