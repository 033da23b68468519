package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// The use of each API key is counted and recorded in the audit log, on all routes.
// So operators can see when an old key is no longer in use and remove it. A wrong
// key is reported for the company that it was sent to, if that exists.
func TestAnAPIKeyThatIsUsedIsSeen(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-key-of-globex", "the-second-key-of-globex"
	s := startSite(t, siteConfig{
		company: people, handler: "login_page acme globex\nrequire_api_key",
		more: "company globex {\napi_key " + first + " " + second + "\ncaptcha off\n" + account("gloria", "") + "}",
	})
	credentials := "X-Api-Key: " + second + "\r\n" + bearer(s.loginAt("globex", first, "gloria"))
	s.postTo("globex", second, "auth/login", "", fields{"login_id": "nobody"}).want(wire.ErrLoginIDNotFound)
	for _, path := range []string{"client.json", "openapi.json", "session"} {
		s.ask("GET", "/globex/v2/"+path, credentials).wantStatus(200)
	}
	s.ask("GET", "/", credentials).wantStatus(200)
	s.ask("GET", "/globex/orders", credentials).wantStatus(200)
	s.ask("POST", "/globex/v2/session", credentials).wantStatus(200)
	s.postTo("globex", "a-wrong-key", "auth/login", "", fields{"login_id": "gloria"}).want(wire.ErrAPIKeyInvalid)
	s.postTo("nobody", first, "auth/login", "", fields{"login_id": "gloria"}).want(wire.ErrAPIKeyInvalid)
	page := keyOfPage.FindSubmatch(s.get("/globex/login", "").wantStatus(200).Body)
	s.postTo("globex", string(page[1]), "auth/login", "", fields{"login_id": "nobody"}).want(wire.ErrLoginIDNotFound)

	metrics := s.scrape()
	for name, want := range map[string]float64{
		`mnemogate_api_key_requests_total{company="acme",key="1"}`:                                0,
		`mnemogate_api_key_requests_total{company="globex",key="1"}`:                              1,
		`mnemogate_api_key_requests_total{company="globex",key="2"}`:                              7,
		`mnemogate_api_key_requests_total{company="globex",key="page"}`:                           1,
		`mnemogate_requests_total{company="globex",result="auth.apikey.invalid",route="login"}`:   1,
		`mnemogate_requests_total{company="unknown",result="auth.apikey.invalid",route="login"}`:  1,
		`mnemogate_requests_total{company="globex",result="auth.loginid.notfound",route="login"}`: 2,
		`mnemogate_requests_total{company="globex",result="success",route="checkcredentials"}`:    1,
		`mnemogate_sessions_begun_total{company="globex",state="authorized"}`:                     1,
		`mnemogate_protected_requests_total{reason="",result="pass"}`:                             2,
	} {
		if got, ok := metrics[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}

	s.tells(`"key":"page"`)
	var told []string
	for line := range strings.Lines(s.log()) {
		var e struct{ Logger, Msg, Company, Key, Result string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Logger == "mnemogate.audit" && !strings.HasPrefix(e.Msg, "mnemogate.account.") {
			told = append(told, strings.Join([]string{strings.TrimPrefix(e.Msg, "mnemogate."), e.Company, e.Key, e.Result}, " "))
		}
	}
	if want := []string{
		"checkcredentials.success globex 1 success",
		"login.failure globex 2 auth.loginid.notfound",
		"session.moved globex 2 ",
		"login.failure globex  auth.apikey.invalid",
		"login.failure   auth.apikey.invalid",
		"login.failure globex page auth.loginid.notfound",
	}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}
