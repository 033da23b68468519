package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const tokenKeys = `
		key all ` + keyOfAll + ` {
			may read write sessions introspect issue act
		}
		key issuer issues-and-nothing-else {
			may issue
		}
		key support acts-and-nothing-else {
			may act
		}`

// wantOutOfScope checks that the answer says that an issued token does not cover the request.
func (a answer) wantOutOfScope() {
	a.t.Helper()
	a.wantScope("scope", `"insufficient_scope"`)
}

// issue issues a token that opens the paths for GET and POST.
func (s *site) issue(mnemocode string, more fields) (token, id string) {
	s.t.Helper()
	body := fields{"name": "nightly", "paths": []string{"/*"}, "methods": []string{"GET", "POST"}}
	for name, value := range more {
		body[name] = value
	}
	a := s.api(keyOfAll, "POST", "acme/accounts/"+mnemocode+"/tokens", body).wantStatus(http.StatusCreated)
	return a.str("token"), a.str("id")
}

// Contract, section 24: an issued token opens the paths and methods that it names, as the
// user of its account, and nothing else. Every node hears that it was revoked.
func TestIssuedTokens(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := accountsSite(t, start, tokenKeys, siteConfig{company: account("alice", "email alice@example.com") + "\nissued_tokens {\nper_account 4\n}", handler: `
			public /open/*
			fresh 1h /new/*
			mfa /pay/*
			role admin /adm/*
			forward role session auth_time auth_methods token
			assertion profile-api`})
		const tokens = "acme/accounts/alice/tokens"
		s.run("what can't be issued", func(*testing.T) {
			for field, body := range map[string]fields{
				"name":       {"name": ""},
				"paths":      {"paths": []string{"no-slash"}},
				"methods":    {"methods": []string{"get"}},
				"expires_in": {"expires_in": 90*24*3600 + 1},
				"reason":     {"actor": "anna"},
				"actor":      {"reason": "ticket 1"},
			} {
				for name, value := range (fields{"name": "x", "paths": []string{"/*"}, "methods": []string{"GET"}}) {
					if body[name] == nil {
						body[name] = value
					}
				}
				if a := s.api(keyOfAll, "POST", tokens, body).wantStatus(400); a.str("field") != field {
					t.Errorf("%v: got %s", body, a.Body)
				}
			}
			for range 5 { // the field at fault is the first, and one that was sent
				body := fields{"paths": []string{"/*"}, "methods": []string{"GET"}, "actor": "anna\n", "reason": "x\n"}
				if a := s.api(keyOfAll, "POST", tokens, body).wantStatus(400); a.str("field") != "actor" {
					t.Errorf("got %s", a.Body)
				}
			}
			s.api(keyOfAll, "POST", tokens, fields{"name": "x", "methods": []string{"GET"}}).wantStatus(400)
			s.api(keyOfAll, "POST", tokens, fields{"name": "x", "paths": []string{"/*"}, "methods": []string{"GET"}, "expires_in": 0}).wantStatus(400)
			s.api(keyOfAll, "POST", tokens, fields{"name": "x", "paths": []string{"/*"}, "methods": []string{"GET"}, "actor": "anna", "reason": "x", "expires_in": 3601}).wantStatus(400)
		})
		s.run("what it opens", func(*testing.T) {
			token, id := s.issue("alice", fields{"paths": []string{"/reports/*", "/open/*", "/new/*", "/pay/*", "/adm/*"}})
			if !strings.HasPrefix(token, "mgp_") || len(token) != 47 {
				t.Fatal("the token is no mgp_")
			}
			for range 2 * len(s.all()) { // from the store and from memory
				told := s.ask("GET", "/reports/x", bearer(token)+"X-Profile-Token: mallory\r\nX-Profile-Actor: mallory\r\nX-Profile-Session: mallory\r\n").wantStatus(200).told()
				if want := []string{"X-Profile-Auth-Methods: token", "X-Profile-Token: " + id}; !slices.Equal(slices.Sorted(slices.Values(told)), want) {
					t.Errorf("the application got %q, want %q", told, want)
				}
				s.ask("HEAD", "/reports/x", bearer(token)).wantStatus(200)
				s.ask("POST", "/reports", bearer(token)+"Content-Length: 0\r\n").wantStatus(200)
				s.ask("DELETE", "/reports/x", bearer(token)).wantOutOfScope()
				for _, uri := range []string{"/", "/x", "/reports/../x", "/reports/..%2fx", "/reports/..;/x", "/reports/%2e%2e/x", "/x/../reports/y", "/reports%00", "/reports/x%3f"} {
					s.ask("GET", uri, bearer(token)).wantOutOfScope()
				}
				s.ask("GET", "/new/x", bearer(token)).want(wire.ErrSessionInvalid).wantReason("too_old")
				s.ask("GET", "/pay/x", bearer(token)).want(wire.ErrSessionInvalid).wantReason("mfa")
				s.ask("GET", "/adm/x", bearer(token)).wantRoleRefused()
				if told := s.ask("GET", "/open/x", bearer(token)).wantStatus(200).told(); len(told) == 0 {
					t.Error("a public path that it covers does not tell of its user")
				}
			}
			claims, err := verified(s.asserted("X-Mnemogate-Assertion"), s.keySet("/acme/v2/jwks.json"))
			if err != nil || claims["token"] != id || claims["sub"] != "alice" || claims["sid"] != nil || claims["auth_time"] != nil || claims["act"] != nil {
				t.Errorf("the application is told %v, %v", claims, err)
			}
			listed := s.api("issues-and-nothing-else", "GET", tokens, nil).wantStatus(200)
			if strings.Contains(string(listed.Body), token) || !strings.Contains(string(listed.Body), id) {
				t.Errorf("the list is %s", listed.Body)
			}
			s.eventually("its use is noted", func() bool {
				last := s.api(keyOfAll, "GET", tokens, nil).JSON["tokens"].([]any)[0].(fields)["last_used"]
				at, _ := last.(string)
				return strings.HasSuffix(at, ":00Z")
			})
			narrow, narrowID := s.issue("alice", fields{"paths": []string{"/reports/*"}})
			if told := s.ask("GET", "/open/x", bearer(narrow)).wantStatus(200).told(); len(told) > 0 {
				t.Errorf("on a public path that it does not cover the application got %q", told)
			}
			if got := s.worth(token); !strings.Contains(got, `"token":"`+id+`"`) || !strings.Contains(got, `"active":true`) || strings.Contains(got, `"sid"`) || strings.Contains(got, `"auth_time"`) {
				t.Errorf("it is worth %s", got)
			}
			if n := len(s.sessions("alice")); n != 0 {
				t.Errorf("it is listed as one of %d sessions", n)
			}
			s.api(keyOfAll, "DELETE", tokens+"/"+narrowID, nil).wantStatus(204)
			s.api(keyOfAll, "DELETE", tokens+"/"+narrowID, nil).wantStatus(404)
			s.ask("GET", "/reports/x", bearer(narrow)).want(wire.ErrTokenInvalid)
			s.ask("GET", "/reports/x", bearer(token)).wantStatus(200)
			s.api(keyOfAll, "DELETE", tokens+"/"+id, nil).wantStatus(204)
		})
		s.run("elsewhere", func(*testing.T) {
			token, id := s.issue("alice", nil)
			s.post("auth/logout", token, nil).want(wire.ErrSessionInvalid)
			s.post("auth/checkpassword", token, fields{"password": testPassword}).want(wire.ErrSessionInvalid)
			s.post("auth/checkotp", token, fields{"otp": "123456"}).want(wire.ErrSessionInvalid)
			r := s.request("GET", "/acme/v2/session", "")
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("X-Api-Key", testKey)
			s.do(r).want(wire.ErrTokenInvalid)
			s.ask("GET", "/x", bearer("mgp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")).want(wire.ErrTokenInvalid)
			s.api(keyOfAll, "DELETE", tokens+"/"+id, nil).wantStatus(204)
		})
		s.run("how many, and for how long", func(*testing.T) {
			for range 3 {
				s.issue("alice", nil)
			}
			token, _ := s.issue("alice", fields{"expires_in": 1})
			s.api(keyOfAll, "POST", tokens, fields{"name": "x", "paths": []string{"/*"}, "methods": []string{"GET"}}).wantStatus(409)
			s.eventually("it expires", func() bool { return s.ask("GET", "/x", bearer(token)).Status == 401 })
			s.ask("GET", "/x", bearer(token)).want(wire.ErrTokenExpired)
			s.issue("alice", nil)
		})
		s.run("support", func(*testing.T) {
			s.api(keyOfAll, "DELETE", "acme/accounts/alice/sessions", nil).wantStatus(204)
			plain, plainID := s.issue("alice", nil)
			body := fields{"actor": "Anna Ö", "reason": "ticket 4711", "paths": []string{"/*"}, "methods": []string{"GET"}}
			s.api("issues-and-nothing-else", "POST", tokens, body).wantStatus(403)
			a := s.api("acts-and-nothing-else", "POST", tokens, body).wantStatus(201)
			token, id := a.str("token"), a.str("id")
			if expires := get(time.Parse(time.RFC3339, a.str("expires_at")))(t); expires.After(time.Now().Add(time.Hour)) {
				t.Errorf("it is valid until %v", expires)
			}
			delete(body, "actor")
			delete(body, "reason")
			body["name"] = "x"
			s.api("acts-and-nothing-else", "POST", tokens, body).wantStatus(403)
			lines := linesNamed(string(s.ask("GET", "/x", bearer(token)+"X-Profile-Actor: mallory\r\nX_Profile_Actor: mallory\r\n").wantStatus(200).Body), "X-Profile-Actor")
			if !slices.Equal(lines, []string{"X-Profile-Actor: Anna%20%C3%96"}) {
				t.Errorf("the application got %q", lines)
			}
			claims, err := verified(s.asserted("X-Mnemogate-Assertion"), s.keySet("/acme/v2/jwks.json"))
			if err != nil || s.encoded(claims["act"]) != `{"sub":"Anna Ö"}` {
				t.Errorf("the application is told %v, %v", claims, err)
			}
			if got := s.worth(token); !strings.Contains(got, `"act":{"sub":"Anna Ö"}`) {
				t.Errorf("it is worth %s", got)
			}
			storetest.Eventually(t, 10*time.Second, "notice to the owner", func() bool { return len(s.sms.of("notice.acted")) == 1 })
			history := s.api(keyOfAll, "GET", "acme/accounts/alice/history", nil).wantStatus(200)
			if !strings.Contains(string(history.Body), "Anna Ö: ticket 4711") {
				t.Errorf("the history is %s", history.Body)
			}
			if listed := s.api("acts-and-nothing-else", "GET", tokens, nil).wantStatus(200).JSON["tokens"].([]any); len(listed) != 1 {
				t.Errorf("support sees %v", listed)
			}
			s.api("acts-and-nothing-else", "DELETE", tokens+"/"+plainID, nil).wantStatus(404)
			s.remember(plain, token)
			s.api("acts-and-nothing-else", "DELETE", tokens+"/"+id, nil).wantStatus(204)
			s.gone(token)
			s.remember(plain)
			s.wantNoneLogged(plain, token)
		})
		s.run("a machine", func(*testing.T) {
			s.api(keyOfAll, "POST", "acme/accounts", fields{"profile_mnemocode": "robot", "role": "admin"}).wantStatus(201)
			token, _ := s.issue("robot", nil)
			s.ask("GET", "/adm/x", bearer(token)).wantStatus(200)
		})
	})
}
