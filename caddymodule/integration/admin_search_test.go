package integration

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

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
	for _, c := range []struct{ query, want string }{
		{"password_set=true", "m02 to "},
		{"password_set=false&contains=ann_0&limit=3", "m00 m01 m03 to m03"},
		{"updated_since=" + url.QueryEscape(since.Format(time.RFC3339Nano)), "m02 to "},
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
