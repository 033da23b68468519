package integration

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
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
	return get(s.tryAdmin(method, path, body))(s.t)
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
	if a.Status != status {
		a.t.Fatalf("got %d %s, want %d", a.Status, a.Body, status)
	}
	return a
}

// wantRefused checks that the answer is an error of the admin API.
func (a answer) wantRefused(status int, field string) answer {
	a.t.Helper()
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
		"primary_email": "  Alice@Example.com ", "primary_phone": " 00370 (600) 12345 ", "login_name": "\t\u00a0alice \u3000\n",
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
		if !strings.Contains(string(got.Body), `{"code":"privacy","version":"1","accepted_at":"2026-01-03T03:04:05Z"},{"code":"terms","version":"4"`) {
			t.Errorf("got %s", got.Body)
		}
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
	for _, test := range []struct {
		body   any
		status int
		field  string
	}{
		{fields{}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": nil}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": ""}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": strings.Repeat("m", 129)}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": "a b"}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": "{x}"}, 400, "profile_mnemocode"},
		{fields{"profile_mnemocode": 1}, 400, "profile_mnemocode"},
		{bob(fields{"email": "x@example.com"}), 400, "email"},
		{bob(fields{"Role": "x"}), 400, "Role"},
		{bob(fields{"password_set": true}), 400, "password_set"},
		{bob(fields{"locked_until": nil}), 400, "locked_until"},
		{bob(fields{"created_at": "2026-01-01T00:00:00Z"}), 400, "created_at"},
		{bob(fields{"backup_code_hashes": []string{}}), 400, "backup_code_hashes"},
		{bob(fields{"primary_phone": "12345"}), 400, "primary_phone"},
		{bob(fields{"primary_phone": "+370 600 1234"}), 400, "primary_phone"},
		{bob(fields{"profile_mnemocode": "."}), 400, "profile_mnemocode"},
		{bob(fields{"profile_mnemocode": ".."}), 400, "profile_mnemocode"},
		{bob(fields{"login_name": "\u200b\u3164"}), 400, "login_name"},
		{bob(fields{"primary_email": "x@exam_ple.com"}), 400, "primary_email"},
		{bob(fields{"primary_email": "x@example..com"}), 400, "primary_email"},
		{bob(fields{"primary_email": strings.Repeat("😀", 240) + "@example.com"}), 400, "primary_email"},
		{bob(fields{"primary_email": "x"}), 400, "primary_email"},
		{bob(fields{"role": 3}), 400, "role"},
		{bob(fields{"role": "a\x00b"}), 400, "role"},
		{bob(fields{"role": strings.Repeat("r", 129)}), 400, "role"},
		{bob(fields{"status": "gone"}), 400, "status"},
		{bob(fields{"status": nil}), 400, "status"},
		{bob(fields{"second_factor": "yes"}), 400, "second_factor"},
		{bob(fields{"locale": "pt_BR"}), 400, "locale"},
		{bob(fields{"locale": 1}), 400, "locale"},
		{bob(fields{"password": ""}), 400, "password"},
		{bob(fields{"password": strings.Repeat("ä", 129)}), 400, "password"},
		{bob(fields{"password": "no one can \x00 send it"}), 400, "password"},
		{bob(fields{"primary_email": " "}), 400, "primary_email"},
		{bob(fields{"primary_email": "x @example.com"}), 400, "primary_email"},
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
		{bob(fields{"oauth_identities": fields{}}), 400, "oauth_identities"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 6, "subject": "x"}}}), 400, "oauth_identities"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 1, "subject": "x", "more": 1}}}), 400, "oauth_identities"},
		{bob(fields{"oauth_identities": []fields{{"provider_id": 1, "subject": "x"}, {"provider_id": 1, "subject": "y"}}}), 400, "oauth_identities"},
		{bob(fields{"disclaimers_accepted": []string{"terms"}}), 400, "disclaimers_accepted"},
		{bob(fields{"disclaimers_accepted": []fields{{"code": ""}}}), 400, "disclaimers_accepted"},
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
	if got := s.adminRaw("POST", "acme/import", `{"profile_mnemocode":""}`); !strings.Contains(string(got.Body), `"field":"profile_mnemocode"`) || !strings.Contains(string(got.Body), `"failed":1`) {
		t.Errorf("importing an account without a name: %d %s", got.Status, got.Body)
	}
	s.admin("PATCH", "accounts/bob", fields{"profile_mnemocode": ""}).wantRefused(400, "profile_mnemocode")
	s.admin("PATCH", "accounts/bob", fields{"profile_mnemocode": "alice"}).wantRefused(409, "profile_mnemocode")
	s.admin("PATCH", "accounts/bob", fields{"status": nil}).wantRefused(400, "status")
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
