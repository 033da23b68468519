package integration

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// header returns a header that the backend received, or "".
func (a answer) header(name string) string {
	lines := linesNamed(string(a.Body), name)
	if len(lines) != 1 {
		return ""
	}
	_, value, _ := strings.Cut(lines[0], ": ")
	return value
}

// Contract, section 15: forward session, auth_time and auth_methods, and the page of
// docs/backends.md that is built on them: it shows which device is this one, and
// changes of the second factor keep its session.
func TestThePageOfYourDevices(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startNodes, allKeys, siteConfig{handler: "cookie\nforward session auth_time auth_methods role"})
	s.api(keyOfAll, "POST", "acme/accounts", with(alice, fields{"role": "Büro"})).wantStatus(http.StatusCreated)
	began := time.Now()
	cookie := s.moved("alice")
	ended := time.Now()
	here, id := cookie, s.sessionID("alice")
	var since string
	for range 6 { // from the store and from memory, on each node
		a := s.ask("GET", "/devices", here).wantStatus(200)
		if a.header("X-Profile-Session") != id || a.header("X-Profile-Auth-Methods") != "pwd" || a.header("X-Profile-Role") != "B%C3%BCro" {
			t.Errorf("the application got %q, want the session %s", a.told(), id)
		}
		since = a.header("X-Profile-Auth-Time")
		if at, err := strconv.ParseInt(since, 10, 64); err != nil || at < began.Unix() || at > ended.Unix() {
			t.Errorf("the login was at %q, want %d to %d", since, began.Unix(), ended.Unix())
		}
	}

	const path = "acme/accounts/alice/totp"
	other := s.login("alice")
	s.remember(other)
	secret := s.api(keyOfAll, "POST", path, nil).wantStatus(http.StatusOK).str("secret")
	code := appShows(t, secret, 0)
	for _, bad := range []string{"none", other} {
		s.api(keyOfAll, "POST", path+"/confirm", fields{"code": code, "keep_session": bad}).wantRefused(http.StatusBadRequest, "keep_session")
		s.api(keyOfAll, "DELETE", path+"?keep_session="+bad, nil).wantRefused(http.StatusBadRequest, "keep_session")
	}
	s.api(keyOfAll, "DELETE", path+"?session="+id, nil).wantRefused(http.StatusBadRequest, "session")
	s.get("/", other).wantStatus(200)
	keeps := func(other string) {
		t.Helper()
		for _, node := range append(s.nodes, s) {
			s.hears(node, other)
			a := node.ask("GET", "/devices", here).wantStatus(200)
			if want := []string{"X-Profile-Auth-Methods: pwd", "X-Profile-Auth-Time: " + since, "X-Profile-Role: B%C3%BCro", "X-Profile-Session: " + id}; !slices.Equal(a.told(), want) {
				t.Errorf("the application got %q, want %q", a.told(), want)
			}
		}
	}
	s.api(keyOfAll, "POST", path+"/confirm", fields{"code": code, "keep_session": id}).wantStatus(http.StatusOK)
	keeps(other)
	s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"second_factor": true}).wantStatus(http.StatusOK)

	next := appShows(t, secret, 30*time.Second)
	other = s.post("auth/checkotp", s.secondStep("alice").token(), fields{"otp": next}).wantState(record.Authorized).token()
	if got := s.get("/", other).wantStatus(200).header("X-Profile-Auth-Methods"); got != "pwd otp mfa" {
		t.Errorf("after a code of the app: %q", got)
	}
	s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"second_factor": false}).wantStatus(http.StatusOK)
	here = s.moved("alice")
	id = s.sessionID("alice")
	since = s.ask("GET", "/", here).wantStatus(200).header("X-Profile-Auth-Time")
	lost := s.login("alice")
	s.api(keyOfAll, "DELETE", "acme/accounts/alice/sessions/"+s.get("/", lost).wantStatus(200).header("X-Profile-Session"), nil).wantStatus(http.StatusNoContent)
	keeps(lost)
	other = s.login("alice")
	s.remember(other)
	s.api(keyOfAll, "DELETE", path+"?keep_session="+id, nil).wantStatus(http.StatusNoContent)
	keeps(other)
	s.api(keyOfAll, "DELETE", path, nil).wantStatus(http.StatusNoContent) // there is none any more, so no session ends
	s.ask("GET", "/", here).wantStatus(200)
}
