package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// wantOneFactor checks that the answer says that the session needs another factor.
func (a answer) wantOneFactor() {
	a.t.Helper()
	a.wantScope("mfa", `"insufficient_user_authentication", acr_values="mfa"`)
}

// Contract, section 21: these paths need two factors. The user of a session by password gives
// a code for the payment page. The session, its token and what is open elsewhere stay, and
// every node knows at once.
func TestAPaymentPageAsksForOneCode(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := start(t, siteConfig{company: people + passkeys, servers: "trusted_proxies static 127.0.0.1/32", handler: `
			login_page acme
			check /check
			public /open/*
			fresh 1h /pay/new
			mfa /pay/* /open/pay/*
			forward auth_methods session
			assertion profile-api`})
		one, two := s.all()[0], s.all()[len(s.all())-1]
		token := s.login("alice@example.com")
		s.run("without a session", func(*testing.T) {
			one.ask("GET", "/pay/x", "").want(wire.ErrHeaderMissing)
			one.ask("GET", "/open/pay/x", "").want(wire.ErrHeaderMissing)
			one.ask("GET", "/open/x", "").wantStatus(200)
		})
		s.run("with one factor", func(*testing.T) {
			const asked = "X-Forwarded-Method: GET\r\nX-Forwarded-Host: example.com\r\nX-Forwarded-Uri: "
			for range 2 { // from the store and from memory
				for _, uri := range []string{"/pay/x", "/PAY", "/pay/new", "/open/pay/x", "/x/..;/pay/x", "/x%00", "/open/../pay/x"} {
					one.ask("GET", uri, bearer(token)).wantOneFactor()
				}
				one.ask("POST", "/pay/x", bearer(token)+"Content-Length: 0\r\n").wantOneFactor()
				one.ask("GET", "/check", bearer(token)+asked+"/x/..;/pay/x\r\n").wantOneFactor()
				one.ask("GET", "/check", bearer(token)+asked+"/payments\r\n").wantStatus(204)
			}
			cookie := s.moved("alice@example.com")
			one.ask("GET", "/pay/x", navigates+cookie).wantRedirect("/acme/login?return_to=%2Fpay%2Fx&mfa=1")
		})
		tab := one.stream("SSE", token)
		s.remember(token)
		begun := one.post("stepup", token, fields{}).wantStatus(200)
		if got := s.encoded(begun.JSON["factors"]); got != `["sms"]` || begun.str("user_phone") != "+37*******01" {
			t.Fatalf("got %s", begun.Body)
		}
		raise := fields{"stepup_token": begun.str("stepup_token"), "otp": s.sms.last("otp.stepup", "code")}
		answered := two.post("stepup/check", token, raise).wantState("authorized")
		raised := time.Now()
		if got := s.encoded(answered.JSON["auth_methods"]); got != `["pwd","sms","mfa"]` {
			t.Errorf("got %s", answered.Body)
		}
		storetest.Eventually(t, heardWithin, "the raise on the other node", func() bool { return one.get("/pay/x", token).Status == 200 })
		for _, node := range s.all() {
			node.get("/pay/new", token).wantStatus(200)
			claims, err := verified(s.asserted("X-Mnemogate-Assertion"), s.keySet("/acme/v2/jwks.json"))
			if err != nil || s.encoded(claims["amr"]) != `["pwd","sms","mfa"]` || claims["auth_time"].(float64) < float64(raised.Unix()-60) {
				t.Errorf("the application is told %v, %v", claims, err)
			}
			if got := node.get("/x", token).told(); !strings.Contains(strings.Join(got, "\n"), "X-Profile-Auth-Methods: pwd sms mfa") {
				t.Errorf("the application got %q", got)
			}
		}
		tab.lives(t)
		one.post("stepup/check", token, raise).want(wire.ErrValidation)
		s.audits(1, `"msg":"mnemogate.session.raised","company":"acme","mnemocode":"alice"`)
		s.wantNoneLogged(begun.str("stepup_token"))
		s.run("by a passkey", func(t *testing.T) { aPasskeyRaisesASession(t, s) })
	})
}

// With `self_service mfa`, whoever has only the password can't set up the factor that the paths
// of mfa ask for. An account without a second factor gets its first one.
func TestChangesOfFactorsNeedTheOtherFactor(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people + passkeys, handler: "self_service 10m mfa\nmfa /pay/*"})
	token := s.login("alice@example.com")
	changes := []string{
		"POST password", "POST second_factor", "POST totp", "POST totp/confirm", "DELETE totp", "POST backup-codes", "POST passkeys", "POST passkeys/options", "DELETE passkeys/1",
		"POST phone", "POST phone/confirm", "DELETE phone", "POST email", "POST email/confirm", "DELETE email",
	}
	for _, change := range changes {
		method, path, _ := strings.Cut(change, " ")
		s.me(method, path, token, nil).wantOneFactor()
	}
	if s.me("GET", "factors", token, nil).JSON["mfa_missing"] != true {
		t.Error("factors does not say that a factor is missing")
	}
	s.me("DELETE", "sessions", token, nil).wantStatus(200)
	begun := s.post("stepup", token, fields{}).wantStatus(200)
	s.post("stepup/check", token, fields{"stepup_token": begun.str("stepup_token"), "otp": s.sms.last("otp.stepup", "code")}).wantState("authorized")
	s.me("POST", "backup-codes", token, nil).wantStatus(200)
	if s.me("GET", "factors", token, nil).JSON["mfa_missing"] != false {
		t.Error("factors says that a factor is missing")
	}
	s.me("POST", "totp", s.login("frank"), nil).wantStatus(200)
}

// Contract, section 21: a browser on a path that names no company is led to the page of its
// session's company, because only that can raise the session.
func TestABrowserIsRaisedByItsOwnCompany(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra, site: `
		handle_path /one/* {
			mnemogate {
				login_page acme
				mfa /pay/*
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate {
				login_page acme umbra
				mfa /pay/*
				fresh 1s /old/*
			}
			reverse_proxy BACKEND
		}`})
	_, set := s.session("POST", "umbra", "X-Api-Key: other-key\r\n"+bearer(s.loginAt("umbra", "other-key", "zoe")))
	zoe, alice := navigates+"Cookie: "+cookieName+"="+set.Value+"\r\n", navigates+s.moved("alice@example.com")
	s.ask("GET", "/pay/x", zoe).wantRedirect("/umbra/login?return_to=%2Fpay%2Fx&mfa=1")
	s.ask("GET", "/pay/x", alice).wantRedirect("/acme/login?return_to=%2Fpay%2Fx&mfa=1")
	storetest.Eventually(t, 5*time.Second, "a login that is too old", func() bool { return s.ask("GET", "/old/x", zoe).Status != 200 })
	s.ask("GET", "/old/x", zoe).wantRedirect("/umbra/login?return_to=%2Fold%2Fx&fresh=1")
	s.ask("GET", "/one/pay/x", zoe).wantRedirect("/one/acme/login?return_to=%2Fone%2Fpay%2Fx&mfa=1") // umbra has no page there
	s.ask("GET", "/pay/x", navigates+"Cookie: "+cookieName+"=mgs_x\r\n").wantRedirect("/acme/login?return_to=%2Fpay%2Fx")
	s.run("the cookie", func(t *testing.T) { aCookieIsRaised(t, s) })
}

// The step-up takes the cookie, under the rules against cross-site requests.
func aCookieIsRaised(t *testing.T, s *site) {
	cookie := s.moved("alice@example.com")
	post := func(path, headers, body string) answer {
		t.Helper()
		r := s.request("POST", "/acme/v2/"+path, body)
		for line := range strings.Lines("Content-Type: application/json\r\n" + headers + cookie) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Set(name, value)
		}
		return s.do(r)
	}
	post("stepup", "Sec-Fetch-Site: same-origin\r\n", "{}").want(wire.ErrAPIKeyMissing)
	post("stepup", sessionKey+"Sec-Fetch-Site: cross-site\r\n", "{}").want(wire.ErrHeaderInvalid).wantReason("cross_site")
	const own = sessionKey + "Sec-Fetch-Site: same-origin\r\n"
	begun := post("stepup", own, "{}").wantStatus(200)
	begun.wantHeader("Vary", "Authorization, Cookie")
	post("stepup/check", own, s.encoded(fields{"stepup_token": begun.str("stepup_token"), "otp": s.sms.last("otp.stepup", "code")})).wantStatus(200)
	s.ask("GET", "/pay/x", cookie).wantStatus(200)
}

// A passkey is both factors. Only one of the session's own user raises it, and its challenge
// works once.
func aPasskeyRaisesASession(t *testing.T, s *site) {
	own, others := new(keytest.Authenticator), new(keytest.Authenticator)
	s.newPasskey(own, "alice")
	s.newPasskey(others, "bob")
	token := s.login("alice@example.com")
	answer := func(a *keytest.Authenticator) fields {
		begun := s.post("stepup", token, fields{"factor": "passkey"}).wantStatus(200)
		if got := s.encoded(begun.JSON["factors"]); got != `["passkey","sms"]` {
			t.Errorf("the factors are %s", got)
		}
		credential := get(a.Get(passkeyOrigin, get(json.Marshal(begun.JSON["public_key"]))(t)))(t)
		return fields{"stepup_token": begun.str("stepup_token"), "challenge_token": begun.str("challenge_token"), "credential": json.RawMessage(credential)}
	}
	s.post("stepup/check", token, answer(others)).want(wire.ErrCredentialsInvalid)
	s.get("/pay/x", token).wantOneFactor()
	raise := answer(own)
	raised := s.post("stepup/check", token, raise).wantState(record.Authorized)
	if got := s.encoded(raised.JSON["auth_methods"]); got != `["pwd","passkey","mfa"]` {
		t.Errorf("got %s", raised.Body)
	}
	s.get("/pay/x", token).wantStatus(200)
	s.post("stepup/check", token, raise).want(wire.ErrValidation)
	other := s.login("alice@example.com")
	s.post("passkey/login", "", fields{"challenge_token": raise["challenge_token"], "credential": raise["credential"]}).want(wire.ErrCredentialsInvalid)
	s.get("/pay/x", other).wantOneFactor()
}
