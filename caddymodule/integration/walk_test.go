package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// people is a company's part of a Caddyfile, with one account for each path through
// the interface's table.
const people = `
	captcha off
	limits {
		sms_per_address 1000/1h
		failures_per_address 1000/5m
		logins_per_address 1000/1m
	}
	account alice { # a password, nothing more
		email alice@example.com
		phone +37060000001
		password "` + testPassword + `"
		question "Name of your first cat?" "Whiskers"
		identity 1 alice-at-provider
	}
	account bob { # no password: codes
		phone +37060000002
	}
	account carol { # password, then a code
		email carol@example.com
		phone +37060000003
		password "` + testPassword + `"
		second_factor
	}
	account dave { # password, then a new password
		email dave@example.com
		phone +37060000004
		password "` + testPassword + `"
		must_set_password
	}
	account erin { # password, a code, then a new password
		email erin@example.com
		phone +37060000005
		password "` + testPassword + `"
		second_factor
		must_set_password
	}
	account frank { # a login name only
		login frank
		password "` + testPassword + `"
	}
`

const disclaimers = `
	disclaimer terms 1 {
		title "Terms"
		description "The terms of use"
		link https://example.com/terms
	}
	disclaimer privacy 3 {
		title "Privacy"
		description "What we keep"
		link https://example.com/privacy
	}
`

// Each row of the interface's table of states and transitions, over HTTP.
func TestEveryTransition(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, everyTransition)
}

func everyTransition(t *testing.T, start starter) {
	s := start(t, siteConfig{company: people})
	const captcha = "a response"
	login := func(loginID string) answer {
		return s.post("auth/login", "", fields{"login_id": loginID})
	}
	passed := func(loginID string) answer { // login and password
		return s.post("auth/checkpassword", login(loginID).token(), fields{"password": testPassword})
	}
	quality := func(t *testing.T, a answer) {
		t.Helper()
		if v, ok := a.JSON["password_regex"]; !ok || v != nil {
			t.Errorf("password_regex is %v (there: %v), want null", v, ok)
		}
		if rules := a.str("password_regex_description"); !strings.Contains(rules, "8 to 128 ") {
			t.Errorf("password_regex_description is %q", rules)
		}
	}

	s.run("login with a password set", func(t *testing.T) {
		a := login("alice@example.com").wantState(record.CheckPassword)
		if list, ok := a.JSON["disclaimers_required"].([]any); !ok || len(list) != 0 {
			t.Errorf("disclaimers_required is %v, want []", a.JSON["disclaimers_required"])
		}
		if _, ok := a.JSON["captcha_required"]; ok {
			t.Error("captcha_required without need")
		}
	})
	s.run("login without a password", func(t *testing.T) {
		a := login("+370 600 00002").wantState(record.CheckOTP)
		a.wantField("user_phone", "+37*******02")
		s.wantProfile(s.post("auth/checkotp", a.token(), fields{"otp": s.sms.last("otp.login", "code")}), "bob")
		s.get("/", a.token()).want(wire.ErrTokenInvalid) // another token replaced it
	})
	s.run("password, nothing further", func(t *testing.T) {
		s.wantProfile(passed("frank"), "frank")
	})
	s.run("password, second factor", func(t *testing.T) {
		a := passed("carol@example.com").wantState(record.CheckOTP)
		a.wantField("user_phone", "+37*******03")
		s.wantProfile(s.post("auth/checkotp", a.token(), fields{"otp": s.sms.last("otp.login", "code")}), "carol")
	})
	s.run("renewed code", func(t *testing.T) {
		a := passed("carol@example.com").wantState(record.CheckOTP)
		s.post("auth/renewotp", a.token(), nil).wantState(record.None).wantField("user_phone", "+37*******03")
		s.post("auth/checkotp", a.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)
	})
	s.run("password, new password required", func(t *testing.T) {
		a := passed("dave@example.com").wantState(record.SetPassword)
		quality(t, a)
		s.wantProfile(s.post("auth/setpassword", a.token(), fields{"new_password": "a much better secret"}), "dave")
		s.wantProfile(s.credentials("dave@example.com", "a much better secret"), "dave")
	})
	s.run("password, code, new password required", func(t *testing.T) {
		a := s.credentials("erin@example.com", testPassword).wantState(record.CheckOTP)
		b := s.post("auth/checkotp", a.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.SetPassword)
		quality(t, b)
		s.wantProfile(s.post("auth/setpassword", b.token(), fields{"new_password": "a much better secret"}), "erin")
	})
	s.run("credentials", func(t *testing.T) {
		a := s.credentials("ALICE@example.com ", testPassword)
		s.wantProfile(a, "alice")
		s.credentials("carol@example.com", testPassword).wantState(record.CheckOTP)
		s.admin("PATCH", "accounts/frank", fields{"must_set_password": true}).wantStatus(200)
		b := s.credentials("frank", testPassword)
		quality(t, b.wantState(record.SetPassword))
	})
	s.run("recovery by phone", func(t *testing.T) {
		a := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": captcha})
		a.wantState(record.RecoveryOTP).wantField("verification", "PHONE").wantField("user_phone", "+37*******01")
		s.post("auth/recovery/renewotp", a.token(), nil).wantState(record.None)
		b := s.post("auth/recovery/checkotp", a.token(), fields{"otp": s.sms.last("otp.recovery", "code")})
		quality(t, b.wantState(record.RecoveryPassword))
		c := s.post("auth/setpassword", b.token(), fields{"new_password": testPassword + " 2"}).wantState(record.None)
		if _, ok := c.JSON["session_token"]; ok {
			t.Error("a recovery must end without a token")
		}
		storetest.Eventually(t, 20*time.Second, "history of the recovery", func() bool {
			history := s.cli("", "account", "history", "alice").want(0).out
			return strings.Contains(history, "recovery.checkotp.success  recovery-setpassword  sms") && regexp.MustCompile(`\bsetpassword\.success +success `).MatchString(history)
		})
		s.credentials("alice@example.com", testPassword+" 2").wantState(record.Authorized)
	})
	s.run("recovery by question", func(t *testing.T) {
		a := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": captcha, "method": "QUESTION"})
		a.wantState(record.RecoveryQuestion).wantField("verification", "QUESTION").wantField("control_question", "Name of your first cat?")
		b := s.post("auth/recovery/checkquestion", a.token(), fields{"control_answer": " whiskers"})
		quality(t, b.wantState(record.RecoveryPassword))
	})
	s.run("recovery by mail", func(t *testing.T) {
		a := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": captcha, "method": "MAIL"})
		a.wantState(record.None).wantField("verification", "MAIL").wantField("user_email", "alice@example.com").wantField("session_token", nil)
		b := s.postTo("acme", testKey, "auth/recovery/checklink", "", fields{"token": s.sms.linkToken()})
		quality(t, b.wantState(record.RecoveryPassword))
		s.post("auth/setpassword", b.token(), fields{"new_password": testPassword + " 3"}).wantState(record.None)
	})
	s.run("logout in any state", func(t *testing.T) {
		for _, a := range []answer{login("carol@example.com"), login("+37060000002"), passed("frank").wantState(record.SetPassword)} {
			s.post("auth/logout", a.token(), nil).wantState(record.None)
			s.post("auth/logout", a.token(), nil).want(wire.ErrTokenInvalid)
		}
	})
}

// Rule 2 of the interface: pending disclaimers are accepted within the verification
// call. Every answer has them in the language of Accept-Language.
func TestDisclaimersAreAcceptedOnTheWay(t *testing.T) {
	t.Parallel()
	translated := strings.Replace(disclaimers, `title "Terms"`, `title "Terms"
		title lt "Sąlygos"
		title de "Bedingungen"`, 1)
	s := startSite(t, siteConfig{company: people + translated})
	carol := fields{"login_id": "carol@example.com", "password": testPassword}
	a := s.post("auth/login", "", fields{"login_id": "carol@example.com"}).wantState(record.CheckPassword)
	list, _ := a.JSON["disclaimers_required"].([]any)
	if len(list) != 2 {
		t.Fatalf("disclaimers_required is %v", list)
	}
	terms, _ := list[0].(map[string]any)
	if terms["code"] != "terms" || terms["title"] != "Terms" || terms["description"] != "The terms of use" || terms["link"] != "https://example.com/terms" {
		t.Errorf("the first disclaimer is %v", terms)
	}
	for accept, want := range map[string]string{"fr": "Terms", "lt-LT,lt;q=0.9,en;q=0.8": "Sąlygos", "fr, de;q=0.1": "Bedingungen", "not a header\t": "Terms"} {
		for what, r := range map[string]*http.Request{
			"login":            s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": "carol@example.com"}),
			"checkcredentials": s.postRequest("acme", testKey, "auth/checkcredentials", "", carol),
			"checkpassword":    s.postRequest("acme", testKey, "auth/checkpassword", a.token(), fields{"password": testPassword}),
			"session":          s.getRequest("/acme/v2/session", a.token()),
			"client.json":      s.getRequest("/acme/v2/client.json", ""),
		} {
			r.Header.Set("X-Api-Key", testKey)
			r.Header.Set("Accept-Language", accept)
			got := s.do(r)
			if title := fmt.Sprintf(`"title":%q`, want); !strings.Contains(string(got.Body), title) {
				t.Errorf("%s with %q: got %d %s, want %s", what, accept, got.Status, got.Body, title)
			}
		}
	}
	refused := s.post("auth/checkpassword", a.token(), fields{"password": testPassword, "accept_disclaimers": []string{"terms"}})
	refused.want(wire.ErrDisclaimerInvalid)
	if list, _ := refused.JSON["disclaimers_required"].([]any); len(list) != 2 {
		t.Errorf("disclaimers_required is %v, want both", list)
	}
	b := s.post("auth/checkpassword", a.token(), fields{"password": testPassword, "accept_disclaimers": []string{"privacy", "terms", "other"}})
	s.post("auth/checkotp", b.wantState(record.CheckOTP).token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)
	pending := func(want int) {
		t.Helper()
		a := s.post("auth/login", "", fields{"login_id": "carol@example.com"})
		if list, _ := a.JSON["disclaimers_required"].([]any); len(list) != want {
			t.Errorf("disclaimers_required is %v, want %d", list, want)
		}
	}
	pending(0)
	// A new version is pending for users who accepted an older one.
	must(t, s.reload(siteConfig{company: people + strings.Replace(disclaimers, "terms 1", "terms 2", 1)}))
	pending(1)
}

// Contract, section 19: phones, emails and codes are read alike in the Caddyfile, in the
// accounts API and in a login, as people of many countries write them.
func TestWhatPeopleOfManyCountriesType(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: `
		captcha off
		phone_region JP
		otp {
			fixed "１２３ ４５６" ０９０ー１２３４ー５６７８
		}
		account hanako {
			phone ０９０ー１２３４ー５６７８
		}`})
	for _, phone := range []string{"09012345678", "０９０－１２３４－５６７８", "090ｰ1234ｰ5678", "+81(0)90 1234 5678", "\u200e+٨١٩٠١٢٣٤٥٦٧٨"} {
		a := s.post("auth/login", "", fields{"login_id": phone}).wantState(record.CheckOTP)
		s.wantProfile(s.post("auth/checkotp", a.token(), fields{"otp": "१२३-४५६"}).wantState(record.Authorized), "hanako")
	}
	for _, nothing := range []string{" ", "\u200b", "\u00ad\u3000\ufeff"} {
		s.post("auth/login", "", fields{"login_id": nothing}).want(wire.ErrValidation)
		s.post("auth/checkcredentials", "", fields{"login_id": nothing, "password": "x"}).want(wire.ErrValidation)
		s.post("auth/recovery/recover", "", fields{"login_id": nothing, "captcha_response": "x"}).want(wire.ErrValidation)
		s.admin("GET", "explain?login_id="+url.QueryEscape(nothing), nil).wantRefused(400, "login_id")
	}
	// The joiner in this domain tells it from another one, which may belong to somebody else.
	for typed, to := range map[string]string{"a@نامه\u200cای.example": "a@نامه\u200cای.example", "a\u200b@例え。example": "a@例え.example"} {
		s.admin("POST", "accounts", fields{"primary_email": typed, "profile_mnemocode": url.PathEscape(to)}).wantStatus(201)
		s.post("auth/recovery/recover", "", fields{"login_id": typed, "method": "MAIL", "captcha_response": "x"}).wantStatus(200)
		if got := s.sms.last("recovery.link", "to"); got != to {
			t.Errorf("the mail for %q goes to %q, want %q", typed, got, to)
		}
	}
}
