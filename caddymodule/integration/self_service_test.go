package integration

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// me sends a request to a route of self_service in acme.
func (s *site) me(method, path, token string, body fields) answer {
	s.t.Helper()
	return s.do(s.meRequest(method, path, token, body))
}

func (s *site) meRequest(method, path, token string, body fields) *http.Request {
	s.t.Helper()
	r := s.request(method, "/acme/v2/me/"+path, s.encoded(body))
	r.Header.Set("X-Api-Key", testKey)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// ownSessions returns the ids of the user's sessions. The current one comes first.
func (s *site) ownSessions(token string) (ids []string) {
	s.t.Helper()
	for _, one := range s.me("GET", "sessions", token, nil).wantStatus(200).JSON["sessions"].([]any) {
		if o := one.(fields); o["current"] == true {
			ids = slices.Insert(ids, 0, o["session_id"].(string))
		} else {
			ids = append(ids, o["session_id"].(string))
		}
	}
	return ids
}

const selfService = `
	cookie
	self_service`

// Contract, section 17: users see and revoke their sessions, and change what they log in
// with. The session that they do it with stays.
func TestUsersLookAfterTheirLogin(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{
		company: people, handler: selfService + "\nforward session",
		more: strings.Replace(umbra, "captcha off", "captcha off\nsecond_factor off", 1) +
			"company strict {\napi_key strict-key\ncaptcha off\nsecond_factor required\n" + account("zoe", "phone +37060000009") + "}",
	})
	s.run("sessions", func(t *testing.T) {
		token, second, third := s.login("alice@example.com"), s.login("alice@example.com"), s.login("alice@example.com")
		stranger := s.ownSessions(s.login("frank"))[0]
		s.remember(token, second, third)
		r := s.meRequest("GET", "sessions", token, nil)
		r.Header.Set("User-Agent", "not that of the login")
		list := s.do(r).wantStatus(200).JSON["sessions"].([]any)
		if len(list) != 3 {
			t.Fatalf("%d sessions, want 3", len(list))
		}
		for i, one := range list {
			if o := one.(fields); o["current"] != (i == 0) || o["address"] != "127.0.0.1" || o["user_agent"] != "Go-http-client/1.1" {
				t.Errorf("session %d is %v", i, o)
			}
		}
		for _, id := range []string{stranger, strings.ToUpper(stranger), "x", token} {
			a := s.me("DELETE", "sessions/"+id, token, nil)
			a.want(wire.ErrNoRoute)
		}
		s.me("DELETE", "sessions/"+list[1].(fields)["session_id"].(string), token, nil).wantStatus(200)
		s.gone(second)
		for _, path := range []string{"sessions", "devices", "totp"} { // a body that names one thing does not end all
			s.me("DELETE", path, token, fields{"session_id": "x"}).want(wire.ErrValidation)
			for _, long := range []string{"x", strings.Repeat("x", 1<<20)} {
				r = s.meRequest("DELETE", path, token, nil)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(long)), int64(len(long))
				s.do(r).wantStatus(400).want(wire.ErrValidation)
			}
		}
		s.get("/", third).wantStatus(200)
		step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
		recovery := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "x", "method": "PHONE"}).token()
		s.me("DELETE", "sessions", token, fields{}).wantStatus(200)
		s.gone(third)
		// Otherwise a thief could keep the owner out.
		owner := s.post("auth/checkpassword", step, fields{"password": testPassword}).wantState(record.Authorized).token()
		s.post("auth/recovery/checkotp", recovery, fields{"otp": s.sms.last("otp.recovery", "code")}).wantState(record.RecoveryPassword)
		s.me("DELETE", "sessions", owner, nil).wantStatus(200)
		s.gone(token)
		token = owner
		s.remember(token)
		for range s.nodes {
			s.get("/", token).wantStatus(200)
		}
		if left, want := s.ownSessions(token), s.get("/", token).header("X-Profile-Session"); len(left) != 1 || left[0] != want {
			t.Errorf("left: %q, want %s", left, want)
		}
		s.audits(3, `"actor":"the user","reason":"user"`)
		r = s.meRequest("DELETE", "sessions/"+s.ownSessions(token)[0], token, nil)
		r.Header.Set("Cookie", cookieName+"="+s.login("frank"))
		if a := s.do(r).wantStatus(200); a.Header["Set-Cookie"] != nil || a.Header["Clear-Site-Data"] != nil {
			t.Errorf("the cookie of another session is deleted: %v", a.Header)
		}
		s.gone(token)
	})
	s.run("a body that comes after the session's end", func(t *testing.T) {
		token := s.login("alice@example.com")
		r := s.meRequest("POST", "backup-codes", token, fields{})
		body, rest := io.Pipe()
		r.Body, r.ContentLength = body, 2
		answered := meanwhile(t, func() answer { return s.do(r) })
		_, _ = io.WriteString(rest, "{")
		for range 10 {
			s.get("/", token).wantStatus(200) // the server looks at the token of the change meanwhile
		}
		for _, node := range s.all() {
			node.admin("DELETE", "accounts/alice/sessions", nil)
		}
		s.gone(token)
		_, _ = io.WriteString(rest, "}")
		answered().want(wire.ErrTokenInvalid)
		if n := s.admin("GET", "accounts/alice", nil).JSON["backup_codes_left"]; n != 0. {
			t.Errorf("there are %v backup codes", n)
		}
	})
	s.run("the session of a cookie", func(t *testing.T) {
		cookie := s.moved("frank")
		headers := sessionKey + cookie
		list := s.ask("GET", "/acme/v2/me/sessions", headers).wantStatus(200).JSON["sessions"].([]any)
		for _, one := range list {
			if o := one.(fields); o["current"] == true {
				a := s.ask("DELETE", "/acme/v2/me/sessions/"+o["session_id"].(string), headers+"Sec-Fetch-Site: same-origin\r\n").wantStatus(200)
				if got := a.Header.Get("Set-Cookie"); !strings.HasPrefix(got, cookieName+"=; ") || a.Header.Get("Clear-Site-Data") != `"cache"` {
					t.Errorf("got %v", a.Header)
				}
				s.ask("GET", "/x", cookie).want(wire.ErrTokenInvalid)
				return
			}
		}
		t.Error("no session is the current one")
	})
	s.run("password", func(t *testing.T) {
		token, other := s.login("alice@example.com"), s.login("alice@example.com")
		const better = "a fine secret"
		change := func(body fields) answer { return s.me("POST", "password", token, body) }
		for _, bad := range []struct {
			body   fields
			want   *wire.Error
			reason string
		}{
			{fields{"new_password": better}, wire.ErrValidation, ""},
			{fields{"current_password": testPassword}, wire.ErrValidation, ""},
			{fields{"current_password": 1, "new_password": better}, wire.ErrValidation, ""},
			{fields{"current_password": testPassword, "new_password": strings.Repeat("x", 129)}, wire.ErrValidation, "password.too_long"},
			{fields{"current_password": "wrong", "new_password": better}, wire.ErrPasswordInvalid, ""},
			{fields{"current_password": testPassword, "new_password": "short"}, wire.ErrQuality, "password.too_short"},
			{fields{"current_password": testPassword, "new_password": "password1"}, wire.ErrQuality, "password.common"},
			{fields{"current_password": testPassword, "new_password": "alice@example.com"}, wire.ErrQuality, "password.personal"},
			{fields{"current_password": testPassword, "new_password": testPassword}, wire.ErrPasswordSame, ""},
		} {
			change(bad.body).want(bad.want).wantReason(bad.reason)
		}
		by := `"company":"acme","mnemocode":"alice","session":"` + s.ownSessions(token)[0] + `","address":"127.0.0.1","user_agent":"Go-http-client/1.1","actor":"the user"`
		s.audits(7, by+`,"route":"me/password","result":"request.validation.failed"`)
		s.audits(1, `"actor":"the user","route":"me/password","result":"auth.password.invalid"`)
		s.audits(1, `"msg":"mnemogate.account.password_wrong",`+by)
		s.get("/", other).wantStatus(200)
		change(fields{"current_password": testPassword, "new_password": better}).wantStatus(200)
		s.gone(other)
		s.get("/", token).wantStatus(200)
		s.credentials("alice@example.com", testPassword).want(wire.ErrCredentialsInvalid)
		s.notices(1, "notice.password_changed")
		s.audits(1, `"msg":"mnemogate.account.changed",`+by+`,"reason":"password"`)
		change(fields{"current_password": better, "new_password": testPassword}).wantStatus(200)
	})
	s.run("the first password", func(*testing.T) {
		step := s.post("auth/login", "", fields{"login_id": "+37060000002"}).token()
		token := s.post("auth/checkotp", step, fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized).token()
		s.me("POST", "password", token, fields{"current_password": "x", "new_password": "a fine secret"}).want(wire.ErrPasswordInvalid)
		s.me("POST", "password", token, fields{"new_password": "a fine secret"}).wantStatus(200)
		s.me("POST", "password", token, fields{"new_password": "another fine secret"}).want(wire.ErrValidation)
		s.signedIn("+37060000002", "a fine secret")
	})
	s.run("the user's name", func(t *testing.T) {
		token := s.login("alice@example.com")
		name := func(want string) {
			t.Helper()
			for _, path := range []string{"session", "me/factors"} {
				if got := s.ask("GET", "/acme/v2/"+path, sessionKey+bearer(token)).wantStatus(200).JSON["user"]; got != want {
					t.Errorf("%s: the user is %v, want %s", path, got, want)
				}
			}
		}
		name("alice@example.com")
		s.update("alice", func(a *record.Account) { a.LoginName, a.Email = "Alice", "" })
		name("Alice")
		s.update("alice", func(a *record.Account) { a.LoginName = "" })
		name("+37*******01")
		s.update("alice", func(a *record.Account) { a.Email = "alice@example.com" })
		step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
		if got := s.ask("GET", "/acme/v2/session", sessionKey+bearer(step)).wantStatus(200).JSON["user"]; got != nil {
			t.Errorf("before a login, the user is %v", got)
		}
	})
	s.run("second factor", func(t *testing.T) {
		token, other := s.login("alice@example.com"), s.login("alice@example.com")
		turn := func(token string, on any) answer {
			return s.me("POST", "second_factor", token, fields{"enabled": on})
		}
		for _, bad := range []any{nil, "true", 1} {
			turn(token, bad).want(wire.ErrValidation)
		}
		turn(token, false).wantStatus(200) // it was off
		s.get("/", other).wantStatus(200)
		turn(token, true).wantStatus(200)
		s.gone(other)
		s.get("/", token).wantStatus(200)
		s.credentials("alice@example.com", testPassword).wantState(record.CheckOTP)
		turn(token, false).wantStatus(200)
		s.signedIn("alice@example.com", testPassword)
		s.notices(1, "notice.second_factor_off")
		turn(s.login("frank"), true).want(wire.ErrConflict) // with neither app nor phone
		turnAt := func(company, key, token string, on bool) answer {
			r := s.meRequest("POST", "second_factor", token, fields{"enabled": on})
			r.URL.Path = "/" + company + "/v2/me/second_factor"
			r.Header.Set("X-Api-Key", key)
			return s.do(r)
		}
		turnAt("umbra", "other-key", s.loginAt("umbra", "other-key", "zoe"), true).want(wire.ErrUserRestricted) // the company decides
		step := s.postTo("strict", "strict-key", "auth/checkcredentials", "", fields{"login_id": "zoe", "password": testPassword}).wantState(record.CheckOTP).token()
		strict := s.postTo("strict", "strict-key", "auth/checkotp", step, fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized).token()
		turnAt("strict", "strict-key", strict, false).want(wire.ErrUserRestricted)
		turnAt("strict", "strict-key", strict, true).wantStatus(200)
	})
	s.run("authenticator app", func(t *testing.T) {
		token, other := s.login("alice@example.com"), s.login("alice@example.com")
		s.me("POST", "totp/confirm", token, fields{"code": "123456"}).want(wire.ErrValidation)
		made := s.me("POST", "totp", token, nil).wantStatus(200)
		secret := made.str("secret")
		if uri := made.str("uri"); !strings.HasPrefix(uri, "otpauth://totp/acme:alice@example.com?secret="+secret+"&") {
			t.Errorf("the uri is %s", uri)
		}
		s.me("POST", "totp/confirm", token, fields{"code": neverShown(t, secret)}).want(wire.ErrOTPInvalid)
		s.audits(1, `"actor":"the user","route":"me/totp/confirm","result":"auth.otp.invalid"`)
		s.get("/", other).wantStatus(200)
		confirmed := s.me("POST", "totp/confirm", token, fields{"code": appShows(t, secret, 0)}).wantStatus(200)
		s.gone(other)
		s.get("/", token).wantStatus(200)
		step := s.credentials("alice@example.com", testPassword).wantState(record.CheckOTP)
		other = s.post("auth/checkotp", step.token(), fields{"otp": appShows(t, secret, 30*time.Second)}).wantState(record.Authorized).token()

		if codes, _ := confirmed.JSON["backup_codes"].([]any); len(codes) != 10 {
			t.Errorf("with the app came the backup codes %v", codes)
		}
		codes := s.me("POST", "backup-codes", token, nil).wantStatus(200).JSON["backup_codes"].([]any)
		if len(codes) != 10 {
			t.Errorf("%d backup codes", len(codes))
		}
		step = s.credentials("alice@example.com", testPassword).wantState(record.CheckOTP)
		s.post("auth/checkotp", step.token(), fields{"backup_code": codes[0]}).wantState(record.Authorized)
		got := s.me("GET", "factors", token, nil).wantStatus(200).JSON
		if left, _ := got["fresh_for"].(float64); left < 500 || left > 600 {
			t.Errorf("fresh_for is %v", left)
		}
		if rules, _ := got["password_regex_description"].(string); !strings.HasPrefix(rules, "8 to 128 characters.") {
			t.Errorf("the rules are %q", rules)
		}
		delete(got, "password_regex_description")
		delete(got, "status")
		delete(got, "fresh_for")
		for _, contact := range []string{"phone", "email", "provable"} { // see TestUsersMoveToAnotherPhoneAndEmail
			delete(got, contact)
		}
		want := fmt.Sprint(fields{
			"user": "alice@example.com", "password_set": true, "totp": true, "backup_codes_left": 9., "passkeys": 0., "user_phone": "+37*******01", "provider_ids": []any{1.},
			"second_factor": true, "second_factor_policy": "per_account", "mfa_missing": false, "password_regex": nil,
		})
		if fmt.Sprint(got) != want {
			t.Errorf("factors are %v, want %v", got, want)
		}
		s.update("alice", func(a *record.Account) { a.Phone = "" })
		s.me("DELETE", "totp", token, nil).want(wire.ErrConflict) // nobody could log in then
		s.me("POST", "second_factor", token, fields{"enabled": false}).wantStatus(200)
		s.me("POST", "second_factor", token, fields{"enabled": true}).wantStatus(200) // by the app alone
		if again := s.me("POST", "totp", token, nil).wantStatus(200).str("secret"); s.me("POST", "totp/confirm", token, fields{"code": appShows(t, again, 0)}).wantStatus(200).JSON["backup_codes"] != nil {
			t.Error("the account gets backup codes, although it has some")
		}
		s.update("alice", func(a *record.Account) { a.Phone = "+37060000001" })
		s.me("DELETE", "totp", token, nil).wantStatus(200)
		s.gone(other)
		s.get("/", token).wantStatus(200)
		if a := s.credentials("alice@example.com", testPassword).wantState(record.CheckOTP); a.str("user_phone") == "" {
			t.Errorf("got %s, want a code by SMS", a.Body)
		}
		s.update("alice", func(a *record.Account) { a.SecondFactor = false })
	})
	s.run("wrong codes count as in a login", func(t *testing.T) {
		token := s.login("alice@example.com")
		secret := s.me("POST", "totp", token, nil).wantStatus(200).str("secret")
		wrong := neverShown(t, secret)
		for range 9 { // one was wrong above
			s.me("POST", "totp/confirm", token, fields{"code": wrong}).want(wire.ErrOTPInvalid)
		}
		s.me("POST", "totp/confirm", token, fields{"code": appShows(t, secret, 0)}).want(wire.ErrRestricted).wantReason("lock.codes")
	})
}

// A thief with a session keeps nothing of it: what its owner revokes while new backup
// codes are hashed gets none of them.
func TestARevocationLeavesNoNewBackupCodes(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := start(t, siteConfig{company: people, global: realHashing, handler: selfService}) // ten codes take a while
		patient := &http.Client{Timeout: 2 * time.Minute}                                     // they get little of a busy machine
		for name, revoke := range map[string]func(token string){
			"logout":  func(token string) { s.post("auth/logout", token, nil).wantStatus(200) },
			"account": func(string) { s.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(204) },
			"status": func(string) {
				s.admin("PATCH", "accounts/alice", fields{"status": "restricted"}).wantStatus(200)
				s.admin("PATCH", "accounts/alice", fields{"status": "active"}).wantStatus(200)
			},
		} {
			for tries := 1; ; tries++ {
				token := s.login("alice@example.com")
				made := meanwhile(t, func() answer { return get(s.try(patient, s.meRequest("POST", "backup-codes", token, fields{})))(t) })
				storetest.Eventually(t, 20*time.Second, "hashing", func() bool {
					return slices.ContainsFunc(s.all(), func(node *site) bool { return node.scrape()["mnemogate_hash_queue"] > 0 })
				})
				began := time.Now()
				revoke(token)
				took, a := time.Since(began), made()
				s.gone(token)
				if a.Status == 200 && took > 200*time.Millisecond && tries < 4 { // it came too late
					s.setBackupCodes("alice") // none
					continue
				}
				if a.Status != 503 && a.Status != 401 {
					t.Errorf("%s: got %d %s", name, a.Status, a.Body)
				}
				break
			}
		}
		if left := s.admin("GET", "accounts/alice", nil).JSON["backup_codes_left"]; left != 0.0 {
			t.Errorf("%v codes were stored", left)
		}
	})
}

// Of new backup codes that are made at once, those of one answer work. Another answer has codes
// only if it is later.
func TestOneOfManyMakesBackupCodes(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, global: realHashing, handler: selfService}) // ten codes take a while
	token := s.login("alice@example.com")
	s.update("alice", func(a *record.Account) { a.SecondFactor = true })
	patient := &http.Client{Timeout: 2 * time.Minute}
	for range 2 { // the second time, there are codes to replace
		answers := storetest.Together(4, func(int) answer {
			return get(s.try(patient, s.meRequest("POST", "backup-codes", token, fields{})))(t)
		})
		work := 0
		for _, a := range answers {
			if codes, made := a.JSON["backup_codes"].([]any); made {
				step := s.credentials("alice@example.com", testPassword).wantState(record.CheckOTP)
				if s.post("auth/checkotp", step.token(), fields{"backup_code": codes[0]}).Status == 200 {
					work++
				}
			}
		}
		if work != 1 {
			t.Errorf("the codes of %d answers work, want 1", work)
		}
	}
}

// Contract, section 17: nobody repeats a change without end, whatever comes of it. Requests
// that are malformed do not count.
func TestEachKindOfChangeHasABudget(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: selfService})
	token, other := s.login("alice@example.com"), s.login("frank")
	for range 31 {
		s.me("POST", "password", token, fields{"new_password": 1}).want(wire.ErrValidation)
		s.me("POST", "totp/confirm", token, fields{"code": "12345"}).want(wire.ErrValidation)
	}
	for range 30 {
		s.me("POST", "password", token, fields{"current_password": testPassword, "new_password": "short"}).want(wire.ErrQuality)
		s.me("POST", "totp", token, nil).wantStatus(200)
		s.me("DELETE", "devices/x", token, nil).want(wire.ErrNoRoute)
	}
	for method, path := range map[string]string{"POST": "totp", "DELETE": "devices/y"} {
		s.me(method, path, token, nil).want(wire.ErrRestricted).wantReason("limit.changes").wantRetryAfter()
	}
	s.me("POST", "password", token, fields{"current_password": testPassword, "new_password": "a fine secret"}).want(wire.ErrRestricted)
	s.me("POST", "totp", other, nil).wantStatus(200)
	s.me("DELETE", "sessions", token, nil).wantStatus(200)
	s.me("DELETE", "sessions/"+s.ownSessions(token)[0], token, nil).wantStatus(200)
}

// Contract, section 17: who may ask, and from where.
func TestWhoMayUseSelfService(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people + byUsers, more: umbra, handler: selfService + " 5m\npublic /acme/*"})
	type route struct {
		method, path string
		body         fields
		changes      bool // and so needs a recent login
	}
	routes := []route{
		{"GET", "factors", nil, false},
		{"GET", "sessions", nil, false},
		{"DELETE", "sessions", nil, true},
		{"DELETE", "sessions/x", nil, true},
		{"POST", "password", fields{"current_password": testPassword, "new_password": "a fine secret"}, true},
		{"POST", "phone", fields{"phone": "+37060000099"}, true},
		{"POST", "phone/confirm", fields{"contact_token": "x", "code": "123456"}, true},
		{"DELETE", "phone", nil, true},
		{"POST", "email", fields{"email": "x@example.com"}, true},
		{"POST", "email/confirm", fields{"contact_token": "x", "code": "12345678"}, true},
		{"DELETE", "email", nil, true},
		{"POST", "totp", nil, true},
		{"POST", "totp/confirm", fields{"code": "123456"}, true},
		{"DELETE", "totp", nil, true},
		{"POST", "second_factor", fields{"enabled": true}, true},
		{"POST", "backup-codes", nil, true},
		{"GET", "devices", nil, false},
		{"DELETE", "devices", nil, true},
		{"DELETE", "devices/x", nil, true},
		{"GET", "passkeys", nil, false},
		{"POST", "passkeys/options", nil, true},
		{"POST", "passkeys", fields{"challenge_token": "x", "credential": fields{}}, true},
		{"PATCH", "passkeys/x", fields{"name": "x"}, true},
		{"DELETE", "passkeys/x", nil, true},
		{"GET", "tokens", nil, false},
		{"POST", "tokens", fields{"name": "x", "paths": []string{"/*"}, "methods": []string{"GET"}}, true},
		{"DELETE", "tokens/x", nil, true},
	}
	for path, item := range document(t).Paths.Map() {
		rest, mine := strings.CutPrefix(path, "/{company_code}/v2/me/")
		rest = regexp.MustCompile(`\{.+\}`).ReplaceAllString(rest, "x")
		for method := range item.Operations() {
			if mine && !slices.ContainsFunc(routes, func(r route) bool { return r.method == method && r.path == rest }) {
				t.Errorf("%s %s is not tested", method, path)
			}
		}
	}
	s.run("keys and tokens", func(*testing.T) {
		token := s.login("alice@example.com")
		step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
		foreign, expired := s.loginAt("umbra", "other-key", "zoe"), s.expired("mgs_", record.Authorized)
		for _, route := range routes {
			for _, bad := range []struct {
				company, key, token string
				want                *wire.Error
			}{
				{"acme", "", token, wire.ErrAPIKeyMissing},
				{"acme", "other-key", token, wire.ErrAPIKeyInvalid},
				{"nobody", testKey, token, wire.ErrAPIKeyInvalid},
				{"umbra", "other-key", token, wire.ErrTokenInvalid},
				{"acme", testKey, foreign, wire.ErrTokenInvalid},
				{"acme", testKey, "", wire.ErrHeaderMissing},
				{"acme", testKey, "mgs_x", wire.ErrTokenInvalid},
				{"acme", testKey, step, wire.ErrSessionInvalid},
				{"acme", testKey, expired, wire.ErrTokenExpired},
			} {
				r := s.meRequest(route.method, route.path, bad.token, route.body)
				r.URL.Path = "/" + bad.company + "/v2/me/" + route.path
				if r.Header.Set("X-Api-Key", bad.key); bad.key == "" {
					r.Header.Del("X-Api-Key")
				}
				s.do(r).want(bad.want)
			}
		}
		s.signedIn("alice@example.com", testPassword) // nothing has changed
	})
	s.run("a stolen token is too old for changes", func(t *testing.T) {
		old := s.begun("mgs_", record.Authorized, time.Now().Add(-6*time.Minute), time.Now().Add(time.Hour))
		for _, route := range routes {
			a := s.me(route.method, route.path, old, route.body)
			if !route.changes {
				a.wantStatus(200)
			} else {
				a.wantScope("too_old", `"insufficient_user_authentication", max_age="300"`)
			}
		}
		s.audits(1, `"actor":"the user","route":"me/password","result":"auth.session.invalid","reason":"too_old"`)
		s.me("DELETE", "sessions/"+s.ownSessions(old)[0], old, nil).wantStatus(200) // a logout
		s.me("GET", "sessions", old, nil).want(wire.ErrTokenInvalid)
	})
	s.run("a query changes nothing", func(*testing.T) {
		token, other := s.login("alice@example.com"), s.login("alice@example.com")
		for _, route := range routes {
			for _, query := range []string{"?session_id=x", "?device_id=x", "?%", "?x"} {
				s.me(route.method, route.path+query, token, route.body).want(wire.ErrValidation)
			}
		}
		if left := s.ownSessions(other); !slices.Contains(left, s.ownSessions(token)[0]) {
			s.t.Errorf("left: %q", left)
		}
	})
	s.run("pages of other sites", func(*testing.T) {
		cookie := s.moved("alice@example.com")
		for _, route := range routes {
			for _, from := range []string{
				"", "Origin: https://evil.example.com\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\nOrigin: http://example.com\r\n",
			} {
				a := s.ask(route.method, "/acme/v2/me/"+route.path, sessionKey+cookie+from)
				if route.method == "GET" {
					a.wantStatus(200)
				} else {
					a.want(wire.ErrHeaderInvalid).wantReason("cross_site")
				}
			}
			s.ask(route.method, "/acme/v2/me/"+route.path, sessionKey+cookie+"Origin: http://example.com\r\n").wantReason("")
		}
	})
	s.run("methods and paths", func(t *testing.T) {
		token := s.login("alice@example.com")
		for path, allow := range map[string]string{"sessions": "DELETE, GET", "sessions/x": "DELETE", "totp": "DELETE, POST", "factors": "GET"} {
			s.me("PUT", path, token, nil).want(wire.ErrMethod).wantHeader("Allow", allow)
		}
		for _, path := range []string{"x", "sessions/", "sessions/x/y", "Sessions", "totp/confirm/"} {
			s.me("GET", path, token, nil).want(wire.ErrNoRoute)
		}
		s.me("POST", "passkeys/options", token, nil).want(wire.ErrNoRoute) // the company has none
		if list := s.me("GET", "passkeys", token, nil).wantStatus(200).JSON["passkeys"].([]any); len(list) != 0 {
			t.Errorf("the list of passkeys is %v", list)
		}
		if got := s.backend.requests(); len(got) != 0 {
			t.Errorf("the application got %q", got)
		}
	})
}
