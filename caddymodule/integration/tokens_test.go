package integration

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
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
		s := accountsSite(t, start, tokenKeys, siteConfig{company: account("alice", "email alice@example.com") + "\nissued_tokens {\nper_account 4\n}", site: "log\n", handler: `
			websocket_token
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
				s.api(keyOfAll, "POST", tokens, body).wantStatus(400).wantField("field", field)
			}
			for range 5 { // the field at fault is the first, and one that was sent
				body := fields{"paths": []string{"/*"}, "methods": []string{"GET"}, "actor": "anna\n", "reason": "x\n"}
				s.api(keyOfAll, "POST", tokens, body).wantStatus(400).wantField("field", "actor")
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
				for _, name := range []string{"X-HTTP-Method-Override", "x-http-method", "X-METHOD-OVERRIDE"} {
					s.ask("POST", "/reports/x", bearer(token)+"Content-Length: 0\r\n"+name+": DELETE\r\n").wantOutOfScope()
				}
				for _, uri := range []string{"/", "/x", "/reports/../x", "/reports/..%2fx", "/reports/..;/x", "/reports/%2e%2e/x", "/x/../reports/y", "/reports%00", "/reports/x%3f", "/Reports/x", "/REPORTS"} {
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
			s.post("auth/logout", token, nil).want(wire.ErrSessionInvalid).wantBody("for the application alone")
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
			_, id := s.issue("alice", nil)
			s.api(keyOfAll, "POST", tokens, fields{"name": "x", "paths": []string{"/*"}, "methods": []string{"GET"}}).wantStatus(409)
			s.api(keyOfAll, "DELETE", tokens+"/"+id, nil).wantStatus(204)
			token, _ := s.issue("alice", fields{"expires_in": 1})
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
			s.notices(1, "notice.acted")
			s.api(keyOfAll, "GET", "acme/accounts/alice/history", nil).wantStatus(200).wantBody(`"` + id + ` Anna Ö: ticket 4711"`)
			s.ask("DELETE", "/refused", bearer(token)).wantOutOfScope()
			s.ask("GET", "/redacted", bearer(token)+"Sec-WebSocket-Protocol: mnemogate.bearer.x\r\n").wantStatus(200)
			for _, uri := range []string{"/x", "/refused", "/redacted"} {
				line := regexp.MustCompile(`"handled request".*"uri":"` + uri + `".*"user_id":"alice".*"actor":"Anna Ö"`)
				s.eventually("the access log says who acted", func() bool { return line.MatchString(s.log()) })
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

const byUsers = `
	issued_tokens {
		per_account 4
		by_users
	}`

// tokenUsers are people who issue tokens. accountsSite says the captcha.
var tokenUsers = strings.Replace(people, "captcha off", "", 1) + byUsers

var ownToken = fields{"name": "Nightly <report>", "paths": []string{"/*"}, "methods": []string{"GET"}}

// ownTokens returns the user's tokens by their ids.
func (s *site) ownTokens(session string) map[string]fields {
	s.t.Helper()
	list := map[string]fields{}
	for _, one := range s.me("GET", "tokens", session, nil).wantStatus(200).JSON["tokens"].([]any) {
		list[one.(fields)["id"].(string)] = one.(fields)
	}
	return list
}

// Contract, section 24, by_users: users issue tokens for themselves, and see and revoke
// those that others have issued.
func usersIssueTokens(t *testing.T, s *site) {
	session := s.login("alice@example.com")
	s.run("what can't be issued", func(*testing.T) {
		for field, value := range map[string]any{"name": "", "paths": []string{"no-slash"}, "methods": []string{"get"}, "expires_in": 0, "actor": "anna", "reason": "x"} {
			a := s.me("POST", "tokens", session, with(ownToken, fields{field: value}))
			if known := field != "actor" && field != "reason"; known {
				if a.want(wire.ErrValidation); !strings.Contains(a.str("message"), field) {
					t.Errorf("%s: got %s", field, a.Body)
				}
			} else if a.wantStatus(200).JSON[field] != nil {
				t.Errorf("%s: got %s", field, a.Body)
			}
		}
		long := "/" + strings.Repeat("a", 253) + "/*"
		s.me("POST", "tokens", session, with(ownToken, fields{"paths": []string{long}})).wantStatus(200)
		for _, path := range []string{"", "/a" + long[1:]} {
			a := s.me("POST", "tokens", session, with(ownToken, fields{"paths": []string{path}})).want(wire.ErrValidation)
			if got, want := a.str("message"), "Each element of paths must have 1 to 256 characters."; got != want {
				t.Errorf("a path of %d characters: got %q, want %q", len(path), got, want)
			}
		}
		for id := range s.ownTokens(session) {
			s.me("DELETE", "tokens/"+id, session, nil).wantStatus(200)
		}
		for field, value := range map[string]any{"expires_in": 90*24*3600 + 1, "paths": strings.Split(strings.Repeat("/x ", 21)+"/x", " "), "methods": strings.Fields(strings.Repeat("GET ", 21)), "name": "a\nb"} {
			s.me("POST", "tokens", session, with(ownToken, fields{field: value})).want(wire.ErrValidation)
		}
		for _, field := range []string{"name", "paths", "methods"} {
			body := with(ownToken, nil)
			delete(body, field)
			s.me("POST", "tokens", session, body).want(wire.ErrValidation)
		}
	})
	s.run("what is issued", func(*testing.T) {
		a := s.twice(func() *http.Request { return s.meRequest("POST", "tokens", session, ownToken) }).wantStatus(200)
		token, id := a.str("token"), a.str("id")
		if !strings.HasPrefix(token, "mgp_") || a.str("name") != ownToken["name"] || a.JSON["last_used"] != nil || a.JSON["acting"] != false {
			t.Errorf("got %s", a.Body)
		}
		s.notices(4, "notice.token_issued") // three of above
		s.remember(token)
		s.ask("POST", "/x", bearer(token)+"Content-Length: 0\r\n").wantOutOfScope()
		if own := s.ownTokens(session); len(own) != 1 || own[id]["token"] != nil {
			t.Errorf("the user sees %v", own)
		}
		for _, route := range []string{"factors", "tokens"} {
			s.me("GET", route, token, nil).want(wire.ErrSessionInvalid)
		}
		s.me("POST", "tokens", token, ownToken).want(wire.ErrSessionInvalid)
		s.me("DELETE", "tokens/"+id, token, nil).want(wire.ErrSessionInvalid)
		frank := s.login("frank")
		s.me("DELETE", "tokens/"+id, frank, nil).want(wire.ErrNoRoute)
		if own := s.ownTokens(frank); len(own) != 0 {
			t.Errorf("another user sees %v", own)
		}
		s.twice(func() *http.Request { return s.meRequest("DELETE", "tokens/"+id, session, nil) }).wantStatus(200)
		s.gone(token)
		s.remember(session)
		s.me("DELETE", "tokens/"+id, session, nil).want(wire.ErrNoRoute)
		for _, kind := range []string{"issued", "removed"} {
			storetest.Eventually(t, 10*time.Second, "an event that names who has "+kind+" the token", func() bool {
				return slices.ContainsFunc(s.history("alice", 1), func(e map[string]string) bool {
					return e["event"] == "mnemogate.account.token_"+kind && e["actor"] == record.ActorUser && e["reason"] == id
				})
			})
		}
		s.wantNoneLogged(token)
	})
	s.run("of others", func(*testing.T) {
		plain, plainID := s.issue("alice", nil)
		acting, actingID := s.issue("alice", fields{"name": "", "actor": "Anna Ö", "reason": "a secret suspicion"})
		if own := s.ownTokens(session); own[plainID]["name"] != "nightly" || own[plainID]["acting"] != false || own[actingID]["acting"] != true ||
			strings.Contains(s.encoded(own), "Anna") || strings.Contains(s.encoded(own), "suspicion") {
			t.Errorf("the user sees %v", own)
		}
		s.remember(plain, acting)
		for _, id := range []string{plainID, actingID} {
			s.me("DELETE", "tokens/"+id, session, nil).wantStatus(200)
		}
		s.gone(plain, acting)
	})
	s.run("how many", func(*testing.T) {
		for range 4 {
			s.me("POST", "tokens", session, ownToken).wantStatus(200)
		}
		s.me("POST", "tokens", session, ownToken).want(wire.ErrConflict)
		for id := range s.ownTokens(session) {
			s.me("DELETE", "tokens/"+id, session, nil).wantStatus(200)
		}
	})
	s.run("without by_users", func(*testing.T) {
		zoe := s.loginAt("bare", "other-key", "zoe")
		for method, path := range map[string]string{"GET": "tokens", "POST": "tokens", "DELETE": "tokens/x"} {
			body := ownToken
			if method != "POST" {
				body = nil
			}
			r := s.meRequest(method, path, zoe, body)
			r.URL.Path = "/bare/v2/me/" + path
			r.Header.Set("X-Api-Key", "other-key")
			s.do(r).want(wire.ErrNoRoute)
		}
		for company, want := range map[string]string{"acme": `"issued_tokens":{"lifetime":7776000}`, "bare": `"issued_tokens":null`} {
			r := s.request("GET", "/"+company+"/v2/client.json", "")
			r.Header.Set("X-Api-Key", map[string]string{"acme": testKey, "bare": "other-key"}[company])
			s.do(r).wantStatus(200).wantBody(want)
		}
	})
}

// Contract, section 24: what revokes all sessions of an account revokes its tokens, on each
// node. A logout, a password change, the end of other sessions and the removal of a passkey
// do not, and no session to keep keeps a token.
func TestWhatRevokesIssuedTokens(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := accountsSite(t, start, tokenKeys, siteConfig{
			company: tokenUsers + passkeys, handler: selfService,
			more: "company bare {\napi_key other-key\ncaptcha off\nissued_tokens {\n}\n" + account("zoe", "") + "}",
		})
		if s.nodes != nil {
			s.run("users issue tokens", func(t *testing.T) { usersIssueTokens(t, s) })
		}
		const alice = "acme/accounts/alice"
		session := s.login("alice@example.com")
		issue := func() string {
			return s.me("POST", "tokens", session, ownToken).wantStatus(200).str("token")
		}
		s.run("what does not", func(*testing.T) {
			token, password := issue(), testPassword
			revoked, id := s.issue("alice", nil)
			s.remember(token, session, revoked)
			s.api(keyOfAll, "DELETE", alice+"/tokens/"+id, nil).wantStatus(204)
			s.gone(revoked)
			s.remember(token, session)
			passkey := s.me("POST", "passkeys", session, s.created(new(keytest.Authenticator), session, "Phone")).wantStatus(200).str("id")
			var other string
			for _, end := range []func(){
				func() { s.post("auth/logout", other, nil).wantStatus(200) },
				func() { s.me("DELETE", "sessions", session, nil).wantStatus(200) },
				func() { s.me("DELETE", "sessions/"+s.ownSessions(other)[0], session, nil).wantStatus(200) },
				func() { s.me("DELETE", "passkeys/"+passkey, session, nil).wantStatus(200) },
				func() {
					s.me("POST", "password", session, fields{"current_password": password, "new_password": "a fine secret"}).wantStatus(200)
					password = "a fine secret"
				},
				func() {
					s.api(keyOfAll, "POST", alice+"/password", fields{"current_password": password, "new_password": testPassword, "keep_session": s.ownSessions(session)[0]}).wantStatus(204)
					password = testPassword
				},
			} {
				other = s.loginWith("alice@example.com", password, nil).token()
				s.remember(token, session, other)
				end()
				s.gone(other) // each node has heard what there is to hear
				s.remember(token, session)
			}
			recovery := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "x", "method": "PHONE"}).token()
			recovery = s.post("auth/recovery/checkotp", recovery, fields{"otp": s.sms.last("otp.recovery", "code")}).wantState(record.RecoveryPassword).token()
			s.post("auth/setpassword", recovery, fields{"new_password": "a fine secret"}).wantStatus(200)
			s.gone(session)
			s.remember(token)
			s.api(keyOfAll, "PATCH", alice, fields{"password": testPassword}).wantStatus(200)
			session = s.login("alice@example.com")
			s.remember(token)
		})
		s.run("a revocation while tokens are issued", func(t *testing.T) {
			for range 9 {
				frank := s.login("frank")
				s.remember(frank)
				answers := storetest.Together(4, func(i int) answer {
					if i == 3 {
						return s.api(keyOfAll, "DELETE", "acme/accounts/frank/sessions", nil)
					}
					return s.me("POST", "tokens", frank, ownToken)
				})
				for _, a := range answers {
					if token := a.str("token"); token != "" {
						s.gone(token)
					}
				}
				if left := s.api(keyOfAll, "GET", "acme/accounts/frank/tokens", nil).wantStatus(200).JSON["tokens"].([]any); len(left) > 0 {
					t.Fatalf("left are %v", left)
				}
			}
		})
		s.run("what does, and no session to keep keeps it", func(*testing.T) {
			for _, revoke := range []func(){
				func() { s.me("POST", "second_factor", session, fields{"enabled": true}).wantStatus(200) },
				func() {
					s.api(keyOfAll, "PATCH", alice, fields{"second_factor": false, "keep_session": s.ownSessions(session)[0]}).wantStatus(200)
				},
			} {
				token := issue()
				s.remember(token, session)
				revoke()
				s.gone(token)
				s.remember(session)
			}
			for _, revoke := range []func(){
				func() { s.api(keyOfAll, "DELETE", alice+"/sessions", nil).wantStatus(204) },
				func() { s.api(keyOfAll, "PATCH", alice, fields{"primary_phone": "+37060000099"}).wantStatus(200) },
				func() { s.api(keyOfAll, "PATCH", alice, fields{"role": "admin"}).wantStatus(200) },
				func() { s.api(keyOfAll, "DELETE", "acme/sessions", nil).wantStatus(204) },
				func() {
					s.api(keyOfAll, "PATCH", alice, fields{"status": "closed"}).wantStatus(200)
					s.api(keyOfAll, "POST", alice+"/tokens", ownToken).wantStatus(409)
					s.api(keyOfAll, "PATCH", alice, fields{"status": "active"}).wantStatus(200)
				},
			} {
				token := issue()
				s.remember(token, session)
				revoke()
				s.gone(token, session)
				session = s.login("alice@example.com")
			}
			token := issue()
			s.remember(token)
			s.api(keyOfAll, "DELETE", alice, nil).wantStatus(204)
			s.gone(token)
		})
	})
}

// Operators issue, list and revoke tokens. Only the token is on standard output.
func TestCommandsForTokens(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people + byUsers + "\naccount robot\n"})
	issued := s.cli("", "tokens", "issue", "robot", "--name", "nightly", "--path", "/reports/*", "--method", "GET,POST", "--for", "12h").want(0)
	token := strings.TrimSuffix(issued.out, "\n")
	s.get("/reports/x", token).wantStatus(200)
	s.get("/x", token).want(wire.ErrSessionInvalid)
	id, _, _ := strings.Cut(issued.errs, ":")
	s.cli("", "tokens", "list", "robot").want(0, id, "nightly", "GET POST", "/reports/*")
	s.cli("", "tokens", "issue", "alice@example.com", "--actor", "anna", "--reason", "ticket 1", "--path", "/*", "--json").want(0, `"actor":"anna"`, `"token":"mgp_`)
	s.cli("", "tokens", "issue", "robot", "--name", "x").want(1, "paths: name at least one path")
	s.cli("", "tokens", "issue", "robot", "--name", "x", "--path", "/*", "--for", "0s").want(1, "--for: write a duration")
	s.cli("", "tokens", "remove", "robot", "x").want(2, "no such token")
	s.cli("", "tokens", "remove", "robot", id).want(0, "robot: the token is revoked")
	s.get("/reports/x", token).want(wire.ErrTokenInvalid)
	s.wantNoneLogged(token)
}

// What a node remembers of a token outlives a reload, but not what the configuration said.
func TestTokensFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	with := siteConfig{global: "session {\nstream_recheck 1s\n}\n", company: account("alice", "email alice@example.com") + "\nissued_tokens {\nper_account 4\n}"}
	c := with
	s := accountsSite(t, func(t *testing.T, made siteConfig) *site { c = made; return startSite(t, c) }, tokenKeys, with)
	token, _ := s.issue("alice", nil)
	const email = "X-Profile-Email: alice@example.com"
	if told := s.ask("GET", "/", bearer(token)).wantStatus(200).told(); slices.Contains(told, email) {
		t.Errorf("without forward, the application got %q", told)
	}
	c.site = strings.Replace(c.site, "mnemogate {\n", "mnemogate {\nforward email\n", 1)
	must(t, s.reload(c))
	if told := s.ask("GET", "/", bearer(token)).wantStatus(200).told(); !slices.Contains(told, email) {
		t.Errorf("with forward, the application got %q", told)
	}
	streams := s.streams(token)
	for _, f := range streams {
		f.lives(t)
	}
	c.company = strings.Replace(c.company, "issued_tokens {\nper_account 4\n}", "", 1)
	must(t, s.reload(c))
	for _, f := range streams {
		f.isCut(t)
	}
	s.ask("GET", "/", bearer(token)).want(wire.ErrTokenInvalid)
}
