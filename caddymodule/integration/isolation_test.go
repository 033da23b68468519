package integration

import (
	"fmt"
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

func (c customer) recovery(loginID, method string) answer {
	c.s.t.Helper()
	return c.post("auth/recovery/recover", "", fields{"login_id": loginID, "captcha_response": "human-of-" + c.company, "method": method})
}

func (c customer) oauth(user string) answer {
	c.s.t.Helper()
	return c.post("auth/oauth", "", fields{"provider_id": 3, "code": codeOf(user), "redirect_uri": callback})
}

// lastCode returns the newest login code that the company sent.
func (c customer) lastCode() string {
	c.s.t.Helper()
	code := ""
	for _, m := range c.s.sms.of("otp.login") {
		if m["company_code"] == c.company {
			code, _ = m["code"].(string)
		}
	}
	return code
}

// Two companies have accounts that are as equal as possible. Nothing of one company
// works in the other, and nothing that is done to one affects the other.
func TestCompaniesAreIsolated(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	twin := func(company, more string) string {
		return `
		captcha static human-of-` + company + `
		limits {
			lock_after 3
			wrong_codes 3/1h
			sms_per_account 12/10m
			sms_per_phone 12/24h
			sms_per_address 40/1h
			mails_per_account 2/1h
			failures_per_address 15/5m
		}
		` + g.provider(3, "") + `
		account bob {
			phone +37060000002
		}
		account bea {
			phone +37060000012
		}
		` + account("alice", "email alice@example.com\nphone +37060000001\nquestion Cat? Whiskers\nidentity 3 alice") +
			account("carol", "email carol@example.com\nphone +37060000003\nquestion Cat? Whiskers\nsecond_factor") +
			account("dave", "must_set_password") +
			account("lou", "") + more
	}
	legal := func(company string) string {
		return "company " + company + " {\napi_key key-of-" + company + roomy + disclaimers + account("alice", "identity 3 alice") + g.provider(3, "") + "}\n"
	}
	s := startSite(t, siteConfig{
		company: twin("acme", account("zoe", "email zoe@example.com\nidentity 3 zoe")),
		more:    "company other {\napi_key key-of-other\n" + twin("other", "") + "}\n" + legal("one") + legal("two"),
	})
	acme, other := customer{s, "acme", testKey}, customer{s, "other", "key-of-other"}
	password := fields{"password": testPassword}

	s.run("API keys", func(*testing.T) {
		customer{s, "other", testKey}.login("alice").want(wire.ErrAPIKeyInvalid)
		customer{s, "acme", "key-of-other"}.login("alice").want(wire.ErrAPIKeyInvalid)
	})
	s.run("tokens of every state", func(*testing.T) {
		one, two := customer{s, "one", "key-of-one"}, customer{s, "two", "key-of-two"}
		for _, c := range []struct {
			own, foreign customer
			state        record.State
			token        func() answer
			route        string
			body         fields
		}{
			{acme, other, record.CheckPassword, func() answer { return acme.login("alice") }, "auth/checkpassword", password},
			{acme, other, record.CheckOTP, func() answer { return acme.login("+37060000012") }, "auth/checkotp", nil},
			{acme, other, record.CheckOTP, func() answer { return acme.login("+37060000012") }, "auth/renewotp", nil},
			{acme, other, record.SetPassword, func() answer { return acme.credentials("dave", testPassword) }, "auth/setpassword", fields{"new_password": "a much better secret"}},
			{one, two, record.AcceptDisclaimers, func() answer { return one.oauth("alice") }, "auth/acceptdisclaimers", fields{"accept_disclaimers": []string{"terms", "privacy"}}},
			{acme, other, record.RecoveryOTP, func() answer { return acme.recovery("carol", "PHONE") }, "auth/recovery/checkotp", nil},
			{acme, other, record.RecoveryOTP, func() answer { return acme.recovery("carol", "PHONE") }, "auth/recovery/renewotp", nil},
			{acme, other, record.RecoveryQuestion, func() answer { return acme.recovery("carol", "QUESTION") }, "auth/recovery/checkquestion", fields{"control_answer": "Whiskers"}},
			{acme, other, record.Authorized, func() answer { return acme.credentials("alice", testPassword) }, "auth/logout", nil},
		} {
			s.run(c.route, func(t *testing.T) {
				token := c.token().wantState(c.state).token()
				body := c.body
				switch c.route {
				case "auth/checkotp":
					body = fields{"otp": c.own.lastCode()}
				case "auth/recovery/checkotp":
					body = fields{"otp": s.sms.last("otp.recovery", "code")}
				}
				c.foreign.post(c.route, token, body).want(wire.ErrTokenInvalid)
				c.foreign.post("auth/logout", token, nil).want(wire.ErrTokenInvalid)
				if a := c.own.post(c.route, token, body); a.Status != 200 { // it was not affected
					t.Errorf("at its own company: %d %s", a.Status, a.Body)
				}
			})
		}
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
	s.run("codes", func(t *testing.T) {
		a, b := acme.login("+37060000002").wantState(record.CheckOTP), other.login("+37060000002").wantState(record.CheckOTP)
		codeA, codeB := fields{"otp": acme.lastCode()}, fields{"otp": other.lastCode()}
		for codeA["otp"] == codeB["otp"] { // they are equal once in a million
			other.post("auth/renewotp", b.token(), nil).wantState(record.None)
			codeB = fields{"otp": other.lastCode()}
		}
		other.post("auth/checkotp", b.token(), codeA).want(wire.ErrOTPInvalid)
		acme.post("auth/checkotp", a.token(), codeA).wantState(record.Authorized)
		other.post("auth/checkotp", b.token(), codeB).want(wire.ErrOTPInvalid) // it was used
	})
	s.run("backup codes", func(*testing.T) {
		s.setBackupCodes("carol", "AAAAABBBBB")
		other.credentials("carol", testPassword).wantState(record.CheckOTP)
		b := other.credentials("carol", testPassword).wantState(record.CheckOTP).token()
		other.post("auth/checkotp", b, fields{"backup_code": "AAAAABBBBB"}).want(wire.ErrBackupCodeInvalid)
		a := acme.credentials("carol", testPassword).wantState(record.CheckOTP).token()
		acme.post("auth/checkotp", a, fields{"backup_code": "AAAAABBBBB"}).wantState(record.Authorized)
	})
	s.run("links", func(*testing.T) {
		acme.recovery("alice", "MAIL").wantState(record.None)
		link := fields{"token": s.sms.linkToken()}
		other.post("auth/recovery/checklink", "", link).want(wire.ErrTokenInvalid)
		other.recovery("alice", "MAIL").wantState(record.None) // revokes no link of acme
		acme.post("auth/recovery/checklink", "", link).wantState(record.RecoveryPassword)
	})
	s.run("captcha responses", func(*testing.T) {
		other.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "human-of-acme", "method": "QUESTION"}).
			want(wire.ErrCaptchaInvalid)
	})
	s.run("accounts", func(*testing.T) {
		acme.login("zoe").wantState(record.CheckPassword)
		other.login("zoe@example.com").want(wire.ErrLoginIDNotFound)
		other.credentials("zoe", testPassword).want(wire.ErrCredentialsInvalid)
		other.recovery("zoe", "MAIL").want(wire.ErrLoginIDNotFound)
	})
	s.run("provider's users", func(*testing.T) {
		if a := acme.oauth("alice").wantState(record.Authorized); s.get("/other", a.token()).Status == 200 {
			s.t.Error("acme's alice is let in at the other company")
		}
		acme.oauth("zoe").wantState(record.Authorized)
		other.oauth("zoe").want(wire.ErrOAuthNotFound)
	})
	s.run("accepted disclaimers", func(*testing.T) { // accepted at one company above
		customer{s, "one", "key-of-one"}.oauth("alice").wantState(record.Authorized)
		customer{s, "two", "key-of-two"}.oauth("alice").wantState(record.AcceptDisclaimers)
	})
	s.run("passwords, sessions and statuses", func(t *testing.T) {
		theirs := other.credentials("carol", testPassword).wantState(record.CheckOTP).token()
		a := acme.post("auth/recovery/checkquestion", acme.recovery("carol", "QUESTION").token(), fields{"control_answer": "whiskers"})
		acme.post("auth/setpassword", a.token(), fields{"new_password": "a much better secret"}).wantState(record.None)
		other.post("auth/checkotp", theirs, fields{"otp": other.lastCode()}).wantState(record.Authorized)
		other.credentials("carol", "a much better secret").want(wire.ErrCredentialsInvalid)
		other.credentials("carol", testPassword).wantState(record.CheckOTP)
		s.admin("PATCH", "accounts/carol", fields{"status": "closed"}).wantStatus(200)
		acme.login("carol").want(wire.ErrUserClosed)
		other.login("carol").wantState(record.CheckPassword)
	})
	s.run("counts and locks", func(*testing.T) {
		for _, loginID := range []string{"lou", "an-unknown-login"} {
			for range 3 {
				acme.credentials(loginID, "a wrong password").want(wire.ErrCredentialsInvalid)
			}
			acme.credentials(loginID, testPassword).want(wire.ErrRestricted)
		}
		other.credentials("lou", testPassword).wantState(record.Authorized)
		other.credentials("an-unknown-login", testPassword).want(wire.ErrCredentialsInvalid)
		for range 3 {
			a := acme.login("+37060000002").wantState(record.CheckOTP)
			acme.post("auth/checkotp", a.token(), fields{"otp": "000000"}).want(wire.ErrOTPInvalid)
		}
		acme.login("+37060000002").want(wire.ErrRestricted)
		other.login("+37060000002").wantState(record.CheckOTP)
	})
	s.run("budgets", func(t *testing.T) {
		for sent := 0; acme.login("+37060000012").Status == 200; sent++ {
			if sent > 12 {
				t.Fatal("there is no end to it")
			}
		}
		other.login("+37060000012").wantState(record.CheckOTP) // neither the account nor the phone is affected
		for acme.recovery("alice", "MAIL").Status == 200 {
		}
		acme.recovery("alice", "MAIL").want(wire.ErrRestricted)
		other.recovery("alice", "MAIL").wantState(record.None)
	})
	s.run("failures of an address", func(t *testing.T) {
		for i := 0; acme.login(fmt.Sprint("nobody-", i)).Status == 404; i++ {
			if i > 15 {
				t.Fatal("there is no end to it")
			}
		}
		acme.login("alice").want(wire.ErrRestricted)
		other.login("alice").wantState(record.CheckPassword)
	})
}
