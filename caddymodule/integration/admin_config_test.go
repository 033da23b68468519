package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

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
