package integration

import (
	"crypto/sha1"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// rangesOf serves the range API for a list of these passwords.
func rangesOf(t *testing.T, passwords ...string) (server *httptest.Server, asked *atomic.Int64) {
	asked = &atomic.Int64{}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		for _, password := range passwords {
			sum := fmt.Sprintf("%X", sha1.Sum([]byte(password)))
			if r.URL.Path == "/range/"+sum[:5] {
				fmt.Fprintf(w, "%s:7\r\n", sum[5:])
			}
		}
	}))
	t.Cleanup(server.Close)
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
	refused := s.post("auth/setpassword", due.token(), fields{"new_password": newPassword}).want(wire.ErrQuality)
	if refused.JSON["reason"] != string(wire.PasswordBreached) {
		t.Errorf("got %s", refused.Body)
	}
	s.post("auth/setpassword", due.token(), fields{"new_password": good}).wantState(record.Authorized)
	s.credentials("alice", good).wantState(record.Authorized)

	code := s.credentials("bob", testPassword).wantState(record.CheckOTP)
	s.post("auth/checkotp", code.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.SetPassword)
	got := s.admin("PATCH", "accounts/bob?rules=user", fields{"password": newPassword}).wantStatus(422)
	if got.JSON["reason"] != string(wire.PasswordBreached) || got.JSON["field"] != "password" {
		t.Errorf("got %s", got.Body)
	}

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
