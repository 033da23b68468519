package caddymodule

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

)

// accountsSite is the site of a test beside an accounts API, at /api, with these
// lines in its directive.
func accountsSite(t *testing.T, keys string, c siteConfig) *site {
	t.Helper()
	c.global += fastHashing
	c.company += "\ncaptcha off"
	c.site = "handle_path /api/* {\nmnemogate_accounts {\n" + keys + "\n}\n}\nhandle {\nmnemogate\nreverse_proxy BACKEND\n}"
	return startSite(t, c)
}

// api sends a value as JSON to the accounts API, with a key.
func (s *site) api(key, method, path string, body any) answer {
	s.t.Helper()
	return s.do(s.apiRequest(key, method, path, body))
}

func (s *site) apiRequest(key, method, path string, body any) *http.Request {
	s.t.Helper()
	raw := ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		raw = string(b)
	}
	r := s.request(method, "/api/"+path, raw)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	return r
}

func TestKeyOpensWhatItMay(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, `
		key all key-that-may-do-all {
			may read write sessions introspect import export
		}
		key reader reads-and-nothing-else
		key writer writes-and-nothing-else {
			company acme
			may write
		}`, siteConfig{more: "company umbrella {\napi_key off\ncaptcha off\n}"})
	s.api("writes-and-nothing-else", "POST", "acme/accounts", alice).wantStatus(http.StatusCreated)
	s.api("reads-and-nothing-else", "GET", "acme/accounts/alice", nil).wantStatus(http.StatusOK)
	s.api("reads-and-nothing-else", "PATCH", "acme/accounts/alice", fields{"role": "x"}).wantRefused(http.StatusForbidden, "")
	s.api("writes-and-nothing-else", "GET", "acme/accounts/alice", nil).wantRefused(http.StatusForbidden, "")
	if a := s.api("writes-and-nothing-else", "PATCH", "acme/accounts/alice", fields{"role": "x"}).wantStatus(http.StatusOK); len(a.JSON) != 1 {
		t.Errorf("who may not read is shown %s", a.Body)
	}
	s.api("writes-and-nothing-else", "POST", "umbrella/accounts", alice).wantRefused(http.StatusNotFound, "company")
	s.api("key-that-may-do-all", "POST", "umbrella/accounts", alice).wantStatus(http.StatusCreated)
	s.api("", "GET", "", nil).wantRefused(http.StatusUnauthorized, "")
	s.api("another", "GET", "", nil).wantRefused(http.StatusUnauthorized, "")
	s.api("key-that-may-do-all", "GET", "doctor", nil).wantRefused(http.StatusNotFound, "")
	s.login("alice")
	for _, line := range []string{`"msg":"mnemogate.account.changed","company":"acme","mnemocode":"alice","address":"127.0.0.1","actor":"writer"`,
		`"msg":"mnemogate.key.refused","company":"acme","address":"127.0.0.1","actor":"reader","reason":"write"`} {
		if !strings.Contains(s.log(), line) {
			t.Errorf("the audit log lacks %s", line)
		}
	}
}
