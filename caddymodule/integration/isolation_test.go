package integration

import (
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A customer is a company of a site, with its API key.
type customer struct {
	s       *site
	company string
	key     string
}

func (c customer) post(route, token string, body fields) answer {
	c.s.t.Helper()
	return c.s.postTo(c.company, c.key, route, token, body)
}

func (c customer) login(loginID string) answer {
	c.s.t.Helper()
	return c.post("auth/login", "", fields{"login_id": loginID})
}

func (c customer) credentials(loginID, password string) answer {
	c.s.t.Helper()
	return c.post("auth/checkcredentials", "", fields{"login_id": loginID, "password": password})
}

// Nothing of one company works in the other. What is done to one affects no other: TestMachine
// shows that.
func TestCompaniesAreIsolated(t *testing.T) {
	t.Parallel()
	twin := func(company string) string {
		return "captcha static human-of-" + company + "\n" + account("alice", "question Cat? Whiskers")
	}
	s := startSite(t, siteConfig{company: twin("acme"), more: "company other {\napi_key key-of-other\n" + twin("other") + "}\n"})
	acme, other := customer{s, "acme", testKey}, customer{s, "other", "key-of-other"}

	s.run("API keys", func(*testing.T) {
		customer{s, "other", testKey}.login("alice").want(wire.ErrAPIKeyInvalid)
		customer{s, "acme", "key-of-other"}.login("alice").want(wire.ErrAPIKeyInvalid)
	})
	s.run("tokens on protected paths", func(t *testing.T) {
		for _, c := range []customer{acme, other} {
			token := c.credentials("alice", testPassword).wantState(record.Authorized).token()
			foreign := map[string]string{"acme": "other", "other": "acme"}[c.company]
			for _, path := range []string{"/", "/profile", "/" + c.company, "/" + c.company + "/x", "/nobody/x"} {
				got := s.get(path, token)
				if got.Status != 200 || !strings.Contains(string(got.Body), "\r\nX-Company-Code: "+c.company+"\r\n") {
					t.Errorf("%s: %d %q", path, got.Status, got.Body)
				}
			}
			unreached := s.unreached()
			for _, path := range []string{"", "/", "/x", "/v2/profile", "/../" + c.company + "/x", "/%2e%2e/" + c.company} {
				s.get("/"+foreign+path, token).want(wire.ErrTokenInvalid)
			}
			s.get("/"+c.company+"/..%2f"+foreign+"/x", token).want(wire.ErrTokenInvalid)
			unreached()
		}
	})
	s.run("captcha responses", func(*testing.T) {
		other.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "human-of-acme", "method": "QUESTION"}).
			want(wire.ErrCaptchaInvalid)
	})
}
