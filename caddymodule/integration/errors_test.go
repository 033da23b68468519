package integration

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" { // only in the Caddy under test
		caddy.RegisterModule(panickingSMS{})
	}
}

const panicSecret = "the-gateway-password"

// panickingSMS is a sender with a defect: it panics with a value that must not be
// logged.
type panickingSMS struct{}

func (panickingSMS) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.panic", New: func() caddy.Module { return new(panickingSMS) }}
}

func (*panickingSMS) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (*panickingSMS) Send(_ context.Context, m message.Message) error {
	panic(errors.New(panicSecret + m.Code + m.Text))
}

const (
	human    = "I-am-human"
	callback = "https://app.example.com/callback"
)

// errorSite starts a site on which every error can be provoked.
func errorSite(t *testing.T) *site {
	const bob = "account bob {\nphone +37060000002\n}\n}\n"
	return startSite(t, siteConfig{
		global: `captcha static ` + human + `
		limits {
			captcha_after 2
			lock_after 3
			failures_per_address 1000/5m
			logins_per_address 1000/1m
		}`,
		company: account("alice", "email alice@example.com\nphone +37060000001\nquestion \"Name of your first cat?\" Whiskers") +
			account("carol", "phone +37060000003\nsecond_factor") + account("dave", "must_set_password") +
			account("frank", "") + account("grace", "") + account("heidi", "") + newGateway(t).provider(1, ""),
		handler: "self_service",
		more: "company legal {\napi_key " + testKey + disclaimers + "recovery {\nmethods MAIL\n}\n" + account("alice", "") + "}\n" +
			"company broken {\napi_key " + testKey + "\nsms panic\n" + bob +
			"company down {\napi_key " + testKey + "\nsms webhook " + nobodyListens(t) + " {\nsecret " + smsSecret + "\n}\n" + bob,
	})
}

// An errorCase provokes an error. It lists the fields that the error has in addition
// to the three fields of all errors.
type errorCase struct {
	name    string
	want    *wire.Error
	extra   []string
	provoke func() answer
}

// Every error code of the interface and of both extensions is returned with the
// status, fields and headers that the contract specifies.
func TestEveryErrorIsAnsweredAsTheContractSays(t *testing.T) {
	t.Parallel()
	s := errorSite(t)
	var secrets []string // the secrets that were sent
	post := func(company, key, route, token string, body fields) answer {
		secrets = append(secrets, key, token)
		for name, value := range body {
			if text, ok := value.(string); ok && name != "method" && name != "login_id" {
				secrets = append(secrets, text)
			}
		}
		return s.postTo(company, key, route, token, body)
	}
	call := func(route, token string, body fields) answer { return post("acme", testKey, route, token, body) }
	login := func(loginID string) string { return call("auth/login", "", fields{"login_id": loginID}).token() }
	credentials := func(loginID, password, captcha string) answer {
		return call("auth/checkcredentials", "", fields{"login_id": loginID, "password": password, "captcha_response": captcha})
	}
	recovery := func(loginID, method string) answer {
		return call("auth/recovery/recover", "", fields{"login_id": loginID, "captcha_response": human, "method": method})
	}
	oauth := func(code string) answer {
		return call("auth/oauth", "", fields{"provider_id": 1, "code": code, "redirect_uri": callback})
	}
	authorization := func(lines ...string) answer {
		r := s.request(http.MethodPost, "/acme/v2/auth/logout", "")
		r.Header["X-Api-Key"] = []string{testKey}
		r.Header["Authorization"] = lines
		return s.do(r)
	}
	raw := func(path, contentType, body string) answer {
		r := s.request("POST", path, body)
		r.Header.Set("X-Api-Key", testKey)
		r.Header.Set("Content-Type", contentType)
		return s.do(r)
	}
	loginWith := func(body string) answer { return raw("/acme/v2/auth/login", "application/json", body) }
	checkOTP := func(body fields) answer {
		token := credentials("carol", testPassword, "").wantState(record.CheckOTP).token()
		return call("auth/checkotp", token, body)
	}
	status := func(status record.Status) {
		s.admin("PATCH", "accounts/frank", fields{"status": status}).wantStatus(200)
	}
	newPassword := func(password string) answer {
		token := credentials("dave", testPassword, "").wantState(record.SetPassword).token()
		return call("auth/setpassword", token, fields{"new_password": password})
	}

	cases := []errorCase{
		{"no API key", wire.ErrAPIKeyMissing, nil, func() answer { return post("acme", "", "auth/login", "", nil) }},
		{"another API key", wire.ErrAPIKeyInvalid, nil, func() answer { return post("acme", "some-other-key", "auth/login", "", nil) }},

		{"no Authorization", wire.ErrHeaderMissing, nil, func() answer { return authorization() }},
		{"another scheme", wire.ErrHeaderInvalid, nil, func() answer { return authorization("Basic YWxpY2U6c2VjcmV0") }},
		{"two Authorizations", wire.ErrHeaderInvalid, nil, func() answer { return authorization("Bearer abcd", "Bearer efgh") }},
		{"unknown token", wire.ErrTokenInvalid, nil, func() answer { return call("auth/logout", "mgs_"+strings.Repeat("A", 43), nil) }},
		{"expired token", wire.ErrTokenExpired, nil, func() answer { return call("auth/logout", s.expired("mgs_", record.Authorized), nil) }},
		{"token of another state", wire.ErrSessionInvalid, nil, func() answer { return call("auth/checkotp", login("frank"), fields{"otp": "12-34-57"}) }},

		{"unknown login id", wire.ErrLoginIDNotFound, nil, func() answer { return call("auth/login", "", fields{"login_id": "nobody@example.com"}) }},
		{"restricted account", wire.ErrUserRestricted, nil, func() answer {
			status(record.StatusRestricted)
			return call("auth/login", "", fields{"login_id": "frank"})
		}},
		{"closed account", wire.ErrUserClosed, nil, func() answer { status(record.StatusClosed); return credentials("frank", testPassword, "") }},
		{"denied account", wire.ErrUserDenied, nil, func() answer { status(record.StatusDenied); return recovery("frank", "") }},

		{"wrong password", wire.ErrPasswordInvalid, nil, func() answer {
			return call("auth/checkpassword", login("grace"), fields{"password": "wrong password 1"})
		}},
		{"wrong credentials, a captcha is due", wire.ErrCredentialsInvalid, []string{"captcha_required"}, func() answer { return credentials("grace", "wrong password 2", "") }},
		{"no captcha", wire.ErrCaptchaMissing, []string{"captcha_required"}, func() answer { return credentials("grace", testPassword, "") }},
		{"bad captcha", wire.ErrCaptchaInvalid, []string{"captcha_required"}, func() answer { return credentials("grace", testPassword, "I-am-a-robot") }},
		{"wrong password again", wire.ErrPasswordInvalid, []string{"captcha_required"}, func() answer {
			return call("auth/checkpassword", login("grace"), fields{"password": "wrong password 3", "captcha_response": human})
		}},
		{"locked account", wire.ErrRestricted, []string{"reason lock.password"}, func() answer { return credentials("grace", testPassword, human) }},

		{"wrong code", wire.ErrOTPInvalid, nil, func() answer { return checkOTP(fields{"otp": "12-34-56"}) }},
		{"wrong backup code", wire.ErrBackupCodeInvalid, nil, func() answer { return checkOTP(fields{"backup_code": "ABCDE-FGHIJ"}) }},
		{"disclaimers not accepted", wire.ErrDisclaimerInvalid, []string{"disclaimers_required"}, func() answer {
			return post("legal", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword})
		}},
		{"provider's user unknown", wire.ErrOAuthNotFound, nil, func() answer { return oauth("the-code-of-a-stranger") }},
		{"provider refuses the code", wire.ErrOAuthFailed, nil, func() answer { return oauth("some-made-up-code") }},
		{"wrong answer", wire.ErrAnswerInvalid, nil, func() answer {
			token := recovery("alice@example.com", "QUESTION").wantState(record.RecoveryQuestion).token()
			return call("auth/recovery/checkquestion", token, fields{"control_answer": "Rover the dog"})
		}},
		{"method not allowed", wire.ErrMethodRestricted, nil, func() answer {
			return post("legal", testKey, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": human, "method": "PHONE"})
		}},
		{"no phone", wire.ErrPhoneNotSet, nil, func() answer { return recovery("dave", "PHONE") }},
		{"no email", wire.ErrEmailNotSet, nil, func() answer { return recovery("dave", "MAIL") }},
		{"no question", wire.ErrQuestionNotSet, nil, func() answer { return recovery("dave", "QUESTION") }},

		{"no login_id", wire.ErrValidation, nil, func() answer { return loginWith(`{}`) }},
		{"weak password", wire.ErrQuality, []string{"reason password.common"}, func() answer { return newPassword("password123") }},
		{"current password", wire.ErrPasswordSame, nil, func() answer { return newPassword(testPassword) }},
		{"no such route", wire.ErrNoRoute, nil, func() answer { return raw("/acme/v2/auth/signup", "application/json", "{}") }},
		{"another method", wire.ErrMethod, nil, func() answer {
			return s.ask("GET", "/acme/v2/auth/login", "X-HTTP-Method-Override: POST\r\nX-Method-Override: POST\r\nX-Api-Key: wrong\r\n")
		}},
		{"too large a body", wire.ErrTooLarge, nil, func() answer { return loginWith(`{"login_id":"` + strings.Repeat("a", 20<<10) + `"}`) }},
		{"not JSON", wire.ErrMediaType, nil, func() answer { return raw("/acme/v2/auth/login", "text/plain", `{"login_id":"frank"}`) }},

		{"gateway that is down", wire.ErrUnavailable, nil, func() answer {
			return post("down", testKey, "auth/login", "", fields{"login_id": "+37060000002"})
		}},
		{"a defect", wire.ErrService, nil, func() answer {
			return post("broken", testKey, "auth/login", "", fields{"login_id": "+37060000002"})
		}},

		{"the app that the next login needs", wire.ErrConflict, nil, func() answer {
			token := post("acme", testKey, "auth/checkpassword", login("heidi"), fields{"password": testPassword}).wantState(record.Authorized).token()
			secret := s.me("POST", "totp", token, nil).wantStatus(200).str("secret")
			s.me("POST", "totp/confirm", token, fields{"code": appShows(t, secret, 0)}).wantStatus(200)
			return s.me("DELETE", "totp", token, nil)
		}},

		{"protected path without a token", wire.ErrHeaderMissing, nil, func() answer { return s.get("/acme/profile", "") }},
		{"protected path with an unknown token", wire.ErrTokenInvalid, nil, func() answer { return s.get("/acme/profile", "abcd") }},
		{"protected path with a step's token", wire.ErrSessionInvalid, nil, func() answer { return s.get("/acme/profile", login("dave")) }},
		{"protected path with an expired token", wire.ErrTokenExpired, nil, func() answer { return s.get("/acme/profile", s.expired("mgs_", record.Authorized)) }},
	}
	left := declaredErrors(t)
	delete(left, errorKey(wire.ErrOtherBody)) // see TestARequestIsAnsweredAgain
	delete(left, errorKey(wire.ErrEarlyData)) // see TestEarlyDataIsNotAnswered
	for _, c := range cases {
		s.run(c.name, func(*testing.T) {
			c.provoke().want(c.want).wantError(c.extra, secrets)
			delete(left, errorKey(c.want))
		})
	}
	for _, name := range left {
		t.Errorf("no case provokes wire.%s; write one above", name)
	}
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("a refused request went to the application: %q", got)
	}
	log := s.log()
	for _, secret := range append(secrets, panicSecret, "hidden-client-secret", "access-the-code") {
		if len(secret) >= 4 && strings.Contains(log, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
	if !strings.Contains(log, "panickingSMS") {
		t.Error("the log does not tell where the panic was")
	}
	// The challenge does not reveal which companies exist.
	post("nobody", testKey, "auth/login", "", nil).wantChallenge()
	for _, path := range []string{"/legal/x", "/nobody/x", "/"} {
		s.get(path, "").wantChallenge()
	}
}

// Whatever API answers a defect, it is counted once, doctor tells of it, and the audit log
// has it.
func TestADefectIsCounted(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: "captcha off\nsms panic\n" + account("alice", "") + "account bob {\nphone +37060000002\n}\n", handler: "self_service"})
	token := s.login("alice")
	defects := func() float64 { return s.scrape()["mnemogate_defects_total"] }
	for i, ask := range []func(){
		func() { s.post("auth/login", "", fields{"login_id": "+37060000002"}).want(wire.ErrService) },
		func() { s.me("POST", "phone", token, fields{"phone": "+37060000003"}).want(wire.ErrService) },
		func() {
			s.admin("POST", "contacts", fields{"phone": "+37060000003"}).wantStatus(http.StatusInternalServerError)
		},
	} {
		if ask(); defects() != float64(i+1) {
			t.Errorf("request %d: %v defects are counted", i, defects())
		}
	}
	s.doctor(1, ", 3 requests got service.error")
	s.audits(1, `"msg":"mnemogate.login.failure"`)
	s.audits(1, `"msg":"mnemogate.account.change_failed"`)
}

// wantError checks the other properties of an error: its fields are those of all
// errors and extra, and it contains no secrets. An element of extra is a name, which
// may be followed by a space and the value.
func (a answer) wantError(extra, secrets []string) {
	a.t.Helper()
	want := []string{"error_code", "message", "ref", "status"}
	for _, field := range extra {
		name, value, given := strings.Cut(field, " ")
		if given && a.str(name) != value {
			a.t.Errorf("%s is %q, want %q", name, a.str(name), value)
		}
		want = append(want, name)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(a.JSON)); !slices.Equal(got, want) {
		a.t.Errorf("the fields are %v, want %v", got, want)
	}
	if required, ok := a.JSON["captcha_required"]; ok && required != true {
		a.t.Errorf("captcha_required is %v", required)
	}
	if required, ok := a.JSON["disclaimers_required"]; ok && fmt.Sprint(required) == "[]" {
		a.t.Error("disclaimers_required is empty")
	}
	for _, secret := range secrets {
		if len(secret) >= 4 && strings.Contains(string(a.Body), secret) {
			a.t.Errorf("%s repeats %q", a.Body, secret)
		}
	}
	allow := ""
	if a.Status == http.StatusMethodNotAllowed {
		allow = "POST"
	}
	a.wantHeader("Allow", allow)
	a.wantRetryAfter()
	a.wantChallenge()
}

// wantRetryAfter checks that 429 and 503 have a Retry-After, and no other status.
func (a answer) wantRetryAfter() {
	a.t.Helper()
	after := a.Header.Get("Retry-After")
	if a.Status != http.StatusTooManyRequests && a.Status != http.StatusServiceUnavailable {
		if after != "" {
			a.t.Errorf("%d with Retry-After %q", a.Status, after)
		}
		return
	}
	if seconds, err := strconv.Atoi(after); err != nil || seconds < 1 || seconds > 24*60*60 {
		a.t.Errorf("Retry-After is %q, want a number of seconds", after)
	}
}

// wantChallenge checks the challenge of RFC 6750, section 3, for the statuses of the
// contract.
func (a answer) wantChallenge() {
	a.t.Helper()
	reason := map[string]string{
		"auth.header.invalid":  "invalid_request",
		"auth.token.invalid":   "invalid_token",
		"auth.token.expired":   "invalid_token",
		"auth.session.invalid": "insufficient_scope",
	}[a.str("error_code")]
	var want []string
	switch {
	case reason != "":
		want = []string{`Bearer realm="mnemogate", error="` + reason + `"`}
	case a.Status == http.StatusUnauthorized:
		want = []string{`Bearer realm="mnemogate"`}
	}
	if got := a.Header["Www-Authenticate"]; !slices.Equal(got, want) {
		a.t.Errorf("WWW-Authenticate is %q, want %q", got, want)
	}
}

func errorKey(e *wire.Error) string { return fmt.Sprint(e.Status, " ", e.Code, " ", e.Message) }

// declaredErrors returns the names of the errors that flows/wire/errors.go declares,
// by errorKey.
func declaredErrors(t *testing.T) map[string]string {
	t.Helper()
	file := get(parser.ParseFile(token.NewFileSet(), "../../flows/wire/errors.go", nil, 0))(t)
	declared := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, value := range spec.Values {
			pointer, ok := value.(*ast.UnaryExpr)
			if !ok {
				continue
			}
			literal, ok := pointer.X.(*ast.CompositeLit)
			if !ok || fmt.Sprint(literal.Type) != "Error" || len(literal.Elts) != 3 {
				t.Fatalf("%s is no &Error{code, status, message}", spec.Names[i])
			}
			code, _ := strconv.Unquote(literal.Elts[0].(*ast.BasicLit).Value)
			message, _ := strconv.Unquote(literal.Elts[2].(*ast.BasicLit).Value)
			key := literal.Elts[1].(*ast.BasicLit).Value + " " + code + " " + message
			if other, ok := declared[key]; ok {
				t.Fatalf("%s and %s are the same", other, spec.Names[i])
			}
			declared[key] = spec.Names[i].Name
		}
		return true
	})
	if len(declared) < 30 {
		t.Fatalf("only %d errors were found in flows/wire/errors.go", len(declared))
	}
	return declared
}

// expired stores a session of alice that expired a minute ago, and returns its
// token.
func (s *site) expired(prefix string, state record.State) string {
	s.t.Helper()
	past := time.Now().Add(-time.Minute)
	return s.begun(prefix, state, past.Add(-time.Minute), past)
}

// begun stores a session of alice and returns its token.
func (s *site) begun(prefix string, state record.State, created, expires time.Time) string {
	s.t.Helper()
	db, ctx := s.store(), s.t.Context()
	alice := get(db.Accounts().ByMnemocode(ctx, "acme", "alice"))(s.t)
	for {
		token := prefix + base64.RawURLEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
		hash := record.TokenHash(sha256.Sum256([]byte(token)))
		if hash.Bucket() != record.AccountBucket("acme", alice.ID) {
			continue
		}
		must(s.t, db.Sessions().Create(ctx, time.Now(), record.Session{
			Hash: hash, ID: rand.Text(), Company: "acme", Account: alice.ID, Mnemocode: "alice", Generation: alice.Generation,
			State: state, Created: created, Expires: expires, Ends: expires,
		}))
		return token
	}
}
