package integration

import (
	"crypto/sha256"
	"encoding/hex"
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
		company: people, handler: "login_page acme globex\nrequire_api_key\nself_service",
		more: "company globex {\napi_key " + first + " " + second + "\ncaptcha off\n" + account("gloria", "") + "}",
	})
	credentials := "X-Api-Key: " + second + "\r\n" + bearer(s.loginAt("globex", first, "gloria"))
	s.postTo("globex", second, "auth/login", "", fields{"login_id": "nobody"}).want(wire.ErrLoginIDNotFound)
	for _, path := range []string{"client.json", "openapi.json", "session"} {
		s.ask("GET", "/globex/v2/"+path, credentials).wantStatus(200)
	}
	s.ask("GET", "/", credentials).wantStatus(200)
	s.ask("GET", "/globex/orders", credentials).wantStatus(200)
	s.ask("DELETE", "/globex/v2/me/sessions", credentials).wantStatus(200)
	s.ask("POST", "/globex/v2/session", credentials).wantStatus(200)
	s.postTo("globex", "a-wrong-key", "auth/login", "", fields{"login_id": "gloria"}).want(wire.ErrAPIKeyInvalid)
	s.postTo("nobody", first, "auth/login", "", fields{"login_id": "gloria"}).want(wire.ErrAPIKeyInvalid)
	page := keyOfPage.FindSubmatch(s.get("/globex/login", "").wantStatus(200).Body)
	s.postTo("globex", string(page[1]), "auth/login", "", fields{"login_id": "nobody"}).want(wire.ErrLoginIDNotFound)

	metrics := s.scrape()
	for name, want := range map[string]float64{
		`mnemogate_api_key_requests_total{company="acme",key="1"}`:                                0,
		`mnemogate_api_key_requests_total{company="globex",key="1"}`:                              1,
		`mnemogate_api_key_requests_total{company="globex",key="2"}`:                              8,
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
	for _, path := range []string{"/", "/globex/orders", "/globex/v2/openapi.json"} { // the page's key opens none
		s.ask("GET", path, strings.Replace(credentials, second, string(page[1]), 1)).want(wire.ErrAPIKeyInvalid)
	}
}

// Contract, section 2: a wrong key, two keys, another company's key and an unknown
// company get the same answer.
func TestAPIKeysOfProtectedPaths(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("second-key"))
	s := startSite(t, siteConfig{company: people, handler: "require_api_key", more: strings.Replace(umbra, "other-key", "other-key sha256:"+hex.EncodeToString(sum[:]), 1)})
	token := s.login("alice@example.com")
	zoe := s.loginAt("umbra", "second-key", "zoe")
	unreached := s.unreached()
	ask := func(start, keys, token string) answer {
		s.t.Helper()
		return s.exchange(start + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\nAuthorization: Bearer " + token + "\r\n" + keys + "\r\n")
	}
	key := func(keys ...string) string {
		lines := ""
		for _, k := range keys {
			lines += "X-API-key: " + k + "\r\n"
		}
		return lines
	}
	refused := []struct {
		name, start, keys string
		want              *wire.Error
	}{
		{"none", "GET /acme/x", "", wire.ErrAPIKeyMissing},
		{"none, no company", "GET /x", "", wire.ErrAPIKeyMissing},
		{"none, auth route", "POST /acme/v2/auth/logout", "", wire.ErrAPIKeyMissing},
		{"none, unknown company's auth route", "POST /nobody/v2/auth/logout", "", wire.ErrAPIKeyMissing},
		{"in the query", "GET /acme/x?X-Api-Key=" + testKey, "", wire.ErrAPIKeyMissing},
		{"wrong", "GET /acme/x", key("wrong"), wire.ErrAPIKeyInvalid},
		{"empty", "GET /acme/x", key(""), wire.ErrAPIKeyInvalid},
		{"in another case", "GET /acme/x", key(strings.ToUpper(testKey)), wire.ErrAPIKeyInvalid},
		{"two", "GET /acme/x", key(testKey, testKey), wire.ErrAPIKeyInvalid},
		{"two in one", "GET /acme/x", key(testKey + ", " + testKey), wire.ErrAPIKeyInvalid},
		{"two, no company", "GET /x", key(testKey, testKey), wire.ErrAPIKeyInvalid},
		{"wrong, no company", "GET /x", key("wrong"), wire.ErrAPIKeyInvalid},
		{"another company's", "GET /acme/x", key("other-key"), wire.ErrAPIKeyInvalid},
		{"another company's, auth route", "POST /acme/v2/auth/logout", key("other-key"), wire.ErrAPIKeyInvalid},
		{"wrong, auth route", "POST /acme/v2/auth/logout", key("wrong"), wire.ErrAPIKeyInvalid},
		{"two, auth route", "POST /acme/v2/auth/logout", key(testKey, testKey), wire.ErrAPIKeyInvalid},
		{"the hash", "POST /umbra/v2/auth/logout", key("sha256:" + hex.EncodeToString(sum[:])), wire.ErrAPIKeyInvalid},
		{"unknown company", "POST /nobody/v2/auth/logout", key(testKey), wire.ErrAPIKeyInvalid},
		{"unknown company, wrong", "POST /nobody/v2/auth/logout", key("wrong"), wire.ErrAPIKeyInvalid},
		{"company in another case", "POST /ACME/v2/auth/logout", key(testKey), wire.ErrAPIKeyInvalid},
		{"another company's token", "GET /x", key("other-key"), wire.ErrTokenInvalid}, // the token must belong to the key's company
		{"TRACE", "TRACE /acme/x", "", wire.ErrMethod},
	}
	bodies := map[*wire.Error]string{}
	for _, test := range refused {
		s.run(test.name, func(t *testing.T) {
			a := ask(test.start, test.keys, token).want(test.want)
			a.wantChallenge()
			said := a.said()
			if body, ok := bodies[test.want]; ok && body != said {
				t.Errorf("got %s, others got %s", a.Body, body)
			}
			bodies[test.want] = said
		})
	}
	// The key is checked before the token.
	ask("GET /acme/x", "", "x").want(wire.ErrAPIKeyMissing)
	ask("GET /acme/x", key(testKey), "x").want(wire.ErrTokenInvalid)
	unreached()
	for _, test := range []struct{ start, key, token string }{
		{"GET /acme/x", testKey, token}, {"GET /x", testKey, token}, {"GET /", "other-key", zoe}, {"GET /umbra", "second-key", zoe},
	} {
		ask(test.start, key(test.key), test.token).wantStatus(200)
	}
	s.wantNoneLogged(testKey, token, "second-key")
}
