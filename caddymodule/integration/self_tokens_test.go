package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

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
func TestUsersIssueTokens(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := accountsSite(t, start, tokenKeys, siteConfig{
			company: tokenUsers,
			more:    "company bare {\napi_key other-key\ncaptcha off\nissued_tokens {\n}\n" + account("zoe", "") + "}",
			handler: selfService,
		})
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
			storetest.Eventually(t, 10*time.Second, "notice to the owner", func() bool { return len(s.sms.of("notice.token_issued")) == 3 }) // two of above
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
				if a := s.do(r).wantStatus(200); !strings.Contains(string(a.Body), want) {
					t.Errorf("%s: got %s", company, a.Body)
				}
			}
		})
	})
}

// Contract, section 24: what revokes all sessions of an account revokes its tokens, on each
// node. A logout, a password change, the end of other sessions and the removal of a passkey
// do not, and no session to keep keeps a token.
func TestWhatRevokesIssuedTokens(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := accountsSite(t, start, tokenKeys, siteConfig{company: tokenUsers + passkeys, handler: selfService})
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
