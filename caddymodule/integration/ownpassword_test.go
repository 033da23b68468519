package integration

import (
	"crypto/sha1"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// sessionID returns the id of the account's only session.
func (s *site) sessionID(account string) string {
	s.t.Helper()
	list := s.api(keyOfAll, "GET", "acme/accounts/"+account+"/sessions", nil).wantStatus(http.StatusOK).JSON["sessions"].([]any)
	if len(list) != 1 {
		s.t.Fatalf("%s has %d sessions, want one", account, len(list))
	}
	return list[0].(fields)["session_id"].(string)
}

func userChangesTheirPassword(t *testing.T, s *site) {
	s.api(keyOfAll, "POST", "acme/accounts", alice).wantStatus(http.StatusCreated)
	const path = "acme/accounts/alice/"
	kept := s.login("alice")
	id := s.sessionID("alice")
	other := s.login("alice")
	s.remember(kept, other)

	for _, bad := range []struct {
		body   fields
		status int
		field  string
		reason string
	}{
		{fields{"current_password": testPassword}, 400, "new_password", ""},
		{fields{"new_password": "x"}, 400, "current_password", ""},
		{fields{"current_password": 1, "new_password": "x"}, 400, "current_password", ""},
		{fields{"current_password": testPassword, "new_password": "a fine secret", "x": "y"}, 400, "x", ""},
		{fields{"current_password": testPassword, "new_password": "a fine secret", "address": "x"}, 400, "address", ""},
		{fields{"current_password": testPassword, "new_password": "a fine secret", "keep_session": "none"}, 400, "keep_session", ""},
		{fields{"current_password": testPassword, "new_password": "a fine secret", "keep_session": kept}, 400, "keep_session", ""}, // this is the token, not the id
		{fields{"current_password": testPassword, "new_password": "no one can \x00 send it"}, 400, "new_password", ""},
		{fields{"current_password": "wrong", "new_password": "a fine secret"}, 401, "current_password", "password.wrong"},
		{fields{"current_password": testPassword, "new_password": "short"}, 422, "new_password", "password.too_short"},
		{fields{"current_password": testPassword, "new_password": "alice@example.com"}, 422, "new_password", "password.personal"},
		{fields{"current_password": testPassword, "new_password": testPassword}, 422, "new_password", ""},
	} {
		a := s.api(keyOfAll, "POST", path+"password", bad.body).wantRefused(bad.status, bad.field)
		if a.wantReason(bad.reason); bad.status == 401 {
			a.wantHeader("WWW-Authenticate", `Bearer realm="mnemogate"`)
		}
	}
	s.get("/", other).wantStatus(http.StatusOK)
	s.api("reads-and-nothing-else", "POST", path+"password", fields{"current_password": testPassword, "new_password": "a fine secret"}).wantRefused(403, "")

	s.api(keyOfAll, "POST", path+"password", fields{"current_password": testPassword, "new_password": "a fine secret", "keep_session": id}).wantStatus(http.StatusNoContent)
	s.gone(other)
	for range s.nodes {
		s.get("/", kept).wantStatus(http.StatusOK)
	}
	s.credentials("alice", testPassword).want(wire.ErrCredentialsInvalid)
	s.credentials("alice", "a fine secret").wantState(record.Authorized)
	s.notices(1, "notice.password_changed")
	s.audits(1, `"msg":"mnemogate.account.changed","company":"acme","mnemocode":"alice","address":"127.0.0.1","actor":"all","reason":"password"`)

	s.api(keyOfAll, "POST", path+"check-password", fields{"current_password": "a fine secret"}).wantStatus(http.StatusNoContent)
	s.api("reads-and-nothing-else", "POST", path+"check-password", fields{"current_password": "a fine secret"}).wantRefused(403, "")
	s.api(keyOfAll, "POST", path+"password", fields{"current_password": "a fine secret", "new_password": "a finer secret", "keep_session": nil, "address": nil}).wantStatus(http.StatusNoContent)
	s.gone(kept)
	s.api(keyOfAll, "POST", path+"password", fields{"current_password": "a finer secret", "new_password": "a fine secret", "address": "203.0.113.7"}).wantStatus(http.StatusNoContent)
	s.audits(1, `"msg":"mnemogate.account.changed","company":"acme","mnemocode":"alice","address":"203.0.113.7","actor":"all","reason":"password"`)
	kept = s.signedIn("alice", "a fine secret")
	for range 10 {
		s.api(keyOfAll, "POST", path+"check-password", fields{"current_password": "wrong"}).wantRefused(401, "current_password")
	}
	for _, locked := range []answer{
		s.api(keyOfAll, "POST", path+"check-password", fields{"current_password": "a fine secret"}),
		s.api(keyOfAll, "POST", path+"password", fields{"current_password": "a fine secret", "new_password": testPassword}),
	} {
		locked.wantRefused(http.StatusTooManyRequests, "").wantReason("lock.password").wantRetryAfter()
	}
	s.credentials("alice", "a fine secret").want(wire.ErrRestricted) // they share one count
	s.get("/", kept).wantStatus(http.StatusOK)
	s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"status": "closed"}).wantStatus(http.StatusOK)
	s.api(keyOfAll, "POST", path+"check-password", fields{"current_password": "a fine secret"}).wantRefused(http.StatusConflict, "status")
	s.run("the session that is kept is never interrupted", s.keepsTheSession)
}

// keepsTheSession checks that the session to keep is valid at every moment, on every
// node, whether the node remembers it or reads it from the store. No other earlier
// session is.
func (s *site) keepsTheSession(t *testing.T) {
	s.api(keyOfAll, "POST", "acme/accounts", fields{"profile_mnemocode": "bob", "login_name": "bob", "password": testPassword}).wantStatus(http.StatusCreated)
	kept := s.login("bob")
	id := s.sessionID("bob")
	var done atomic.Bool
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for !done.Load() {
				if a := s.get("/", kept); a.Status != http.StatusOK {
					t.Errorf("got %d %s", a.Status, a.Body)
					return
				}
			}
		})
	}
	password := testPassword
	for i := range 6 {
		other := s.signedIn("bob", password)
		next := fmt.Sprint("another fine secret ", i)
		s.api(keyOfAll, "POST", "acme/accounts/bob/password", fields{"current_password": password, "new_password": next, "keep_session": id}).wantStatus(http.StatusNoContent)
		password = next
		s.gone(other)
	}
	done.Store(true)
	users.Wait()
}

func (s *site) signedIn(login, password string) string {
	s.t.Helper()
	return s.credentials(login, password).wantState(record.Authorized).token()
}

// rangesOf serves the range API for a list of these passwords.
func rangesOf(t *testing.T, passwords ...string) (server *httptest.Server, asked *atomic.Int64) {
	asked = &atomic.Int64{}
	server = guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		for _, password := range passwords {
			sum := fmt.Sprintf("%X", sha1.Sum([]byte(password)))
			if r.URL.Path == "/range/"+sum[:5] {
				fmt.Fprintf(w, "%s:7\r\n", sum[5:])
			}
		}
	}))
	return server, asked
}

func TestBreachedPasswords(t *testing.T) {
	t.Parallel()
	const newPassword, good = "a horse of course", "another fine secret"
	ranges, asked := rangesOf(t, testPassword, newPassword)
	s := startSite(t, siteConfig{
		global:  "password {\nargon2id 64 1 1 insecure\nbreached " + ranges.URL + "/range at_login\n}\n",
		company: "captcha off\n" + account("alice", "") + account("bob", "second_factor\nphone +37060000001\n"),
	})
	s.credentials("alice", "wrong").want(wire.ErrCredentialsInvalid)
	if asked.Load() != 0 {
		t.Error("the list was asked about a wrong password")
	}
	s.credentials("alice", testPassword).wantState(record.SetPassword)
	due := s.credentials("alice", testPassword).wantState(record.SetPassword)
	if asked.Load() != 1 {
		t.Errorf("the list was asked %d times", asked.Load())
	}
	s.post("auth/setpassword", due.token(), fields{"new_password": newPassword}).want(wire.ErrQuality).wantField("reason", string(wire.PasswordBreached))
	s.post("auth/setpassword", due.token(), fields{"new_password": good}).wantState(record.Authorized)
	s.credentials("alice", good).wantState(record.Authorized)

	code := s.credentials("bob", testPassword).wantState(record.CheckOTP)
	s.post("auth/checkotp", code.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.SetPassword)
	s.admin("PATCH", "accounts/bob?rules=user", fields{"password": newPassword}).wantStatus(422).wantField("reason", string(wire.PasswordBreached)).wantField("field", "password")

	ranges.Close()
	s.admin("PATCH", "accounts/bob?rules=user", fields{"password": newPassword}).wantStatus(200)
	scraped := s.fromAdmin("/metrics")
	for outcome, n := range map[string]int{"listed": 4, "unlisted": 2, "failed": 1} {
		if want := fmt.Sprintf("mnemogate_breached_lookups_total{company=\"acme\",outcome=%q} %d\n", outcome, n); !strings.Contains(scraped, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	s.tells("the list of breached passwords did not answer")
}
