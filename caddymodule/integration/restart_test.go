package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// After a restart, everything that was acknowledged is still there, and nothing that was
// used or revoked is valid again. caddy validate changes nothing. For reloads see
// TestReloadsLoseNothing.
func TestNothingIsLostAndNothingComesBack(t *testing.T) {
	t.Parallel()
	s := startSite(t, survivorConfig())
	checks := prepare(s)
	output(t, s.caddy("validate", "--config", s.dir+"/Caddyfile")) // beside the running server
	s.check(checks[:1])
	s.restart()
	s.check(checks)
}

// survivorConfig returns a configuration in which prepare can create each state.
func survivorConfig() siteConfig {
	phone := func(n int) string { return fmt.Sprintf("phone +37060000%03d\n", n) }
	accounts := account("dave", "must_set_password")
	for n, name := range []string{"alice", "lou", "mia", "olga", "ann"} {
		accounts += account(name, phone(n)+"email "+name+"@example.com\nquestion Cat? Whiskers")
	}
	for n, name := range []string{"carol", "cora", "pat", "ned"} {
		accounts += account(name, phone(10+n)+"second_factor")
	}
	return siteConfig{
		global: `captcha off
		limits {
			lock_after 3
			failures_per_address 1000/5m
			logins_per_address 1000/1m
			sms_per_account 2/10m
			mails_per_account 2/1h
		}
		`,
		company: accounts,
		more:    "company legal {\napi_key " + testKey + "\n" + disclaimers + account("reader", "") + "}\n",
	}
}

// A survivor is a state that must not change.
type survivor struct {
	promise string
	check   func()
}

func (s *site) check(survivors []survivor) {
	for _, c := range survivors {
		s.run(c.promise, func(*testing.T) { c.check() })
	}
}

// prepare creates one of each state, and returns checks that must hold afterwards.
func prepare(s *site) (after []survivor) {
	post := func(route, token string, body fields) answer { s.t.Helper(); return s.post(route, token, body) }
	login := func(name string) answer {
		s.t.Helper()
		return post("auth/login", "", fields{"login_id": name})
	}
	credentials := func(name, password string) answer { s.t.Helper(); return s.credentials(name, password) }
	recovery := func(name, method string) answer {
		s.t.Helper()
		return post("auth/recovery/recover", "", fields{"login_id": name, "captcha_response": "any", "method": method})
	}
	right := fields{"password": testPassword}
	promise := func(promise string, check func()) { after = append(after, survivor{promise, check}) }

	authorized := credentials("alice", testPassword).token()
	promise("a session", func() {
		s.get("/", authorized).wantStatus(200)
	})
	half := login("alice").token()
	promise("a half-done login", func() { post("auth/checkpassword", half, right).wantState(record.Authorized) })
	used := login("alice").token()
	post("auth/checkpassword", used, right).wantState(record.Authorized)
	promise("a step's token that was used", func() { post("auth/checkpassword", used, right).want(wire.ErrTokenInvalid) })
	ended := credentials("alice", testPassword).token()
	post("auth/logout", ended, nil).wantState(record.None)
	promise("a logout", func() { s.get("/", ended).want(wire.ErrTokenInvalid) })

	pending := credentials("carol", testPassword).wantState(record.CheckOTP).token()
	pendingCode := fields{"otp": s.sms.last("otp.login", "code")}
	promise("a pending code", func() { post("auth/checkotp", pending, pendingCode).wantState(record.Authorized) })
	spent := credentials("cora", testPassword).wantState(record.CheckOTP).token()
	spentCode := fields{"otp": s.sms.last("otp.login", "code")}
	post("auth/checkotp", spent, fields{"otp": "000000"}).want(wire.ErrOTPInvalid)
	promise("a spent code, and that it can be renewed", func() {
		post("auth/checkotp", spent, spentCode).want(wire.ErrOTPInvalid)
		post("auth/renewotp", spent, nil).wantState(record.None)
		post("auth/checkotp", spent, fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)
	})
	promise("the count of wrong codes", func() {
		if n := s.failureCount("cora", record.WrongCodes); n != 1 {
			s.t.Errorf("%d were counted, want 1", n)
		}
	})
	recoveryPending := recovery("ann", "PHONE").wantState(record.RecoveryOTP).token()
	recoveryCode := fields{"otp": s.sms.last("otp.recovery", "code")}
	promise("a pending recovery code", func() {
		post("auth/recovery/checkotp", recoveryPending, recoveryCode).wantState(record.RecoveryPassword)
	})
	asked := recovery("ann", "QUESTION").wantState(record.RecoveryQuestion).token()
	promise("a question that was asked", func() {
		post("auth/recovery/checkquestion", asked, fields{"control_answer": "whiskers"}).wantState(record.RecoveryPassword)
	})
	s.setBackupCodes("pat", "AAAAABBBBB", "CCCCCDDDDD")
	post("auth/checkotp", credentials("pat", testPassword).token(), fields{"backup_code": "AAAAABBBBB"}).wantState(record.Authorized)
	patPending := credentials("pat", testPassword).wantState(record.CheckOTP).token()
	promise("a used backup code, and one that was not", func() {
		post("auth/checkotp", patPending, fields{"backup_code": "AAAAABBBBB"}).want(wire.ErrBackupCodeInvalid)
		post("auth/checkotp", patPending, fields{"backup_code": "CCCCCDDDDD"}).wantState(record.Authorized)
	})

	recovery("alice", "MAIL").wantState(record.None)
	usedLink := fields{"token": s.sms.linkToken()}
	linked := post("auth/recovery/checklink", "", usedLink).wantState(record.RecoveryPassword).token()
	promise("a used link and what it led to", func() {
		post("auth/recovery/checklink", "", usedLink).want(wire.ErrTokenInvalid)
		post("auth/setpassword", linked, fields{"new_password": "short"}).want(wire.ErrQuality)
	})
	recovery("ann", "MAIL").wantState(record.None)
	replacedLink := fields{"token": s.sms.linkToken()}
	recovery("ann", "MAIL").wantState(record.None)
	link := fields{"token": s.sms.linkToken()}
	promise("a link, and that it replaced another", func() {
		post("auth/recovery/checklink", "", replacedLink).want(wire.ErrTokenInvalid)
		post("auth/recovery/checklink", "", link).wantState(record.RecoveryPassword)
	})
	promise("the budget of mails", func() { recovery("ann", "MAIL").want(wire.ErrRestricted) })

	must := credentials("dave", testPassword).wantState(record.SetPassword).token()
	promise("a new password that is due", func() {
		post("auth/setpassword", must, fields{"new_password": "a much better secret"}).wantState(record.Authorized)
	})
	before := credentials("olga", testPassword).token()
	olga := post("auth/recovery/checkquestion", recovery("olga", "QUESTION").token(), fields{"control_answer": "Whiskers"}).token()
	post("auth/setpassword", olga, fields{"new_password": "a much better secret"}).wantState(record.None)
	promise("a changed password and what it ended", func() {
		s.get("/", before).want(wire.ErrTokenInvalid)
		post("auth/setpassword", olga, fields{"new_password": "yet another secret"}).want(wire.ErrTokenInvalid)
		credentials("olga", testPassword).want(wire.ErrCredentialsInvalid)
		credentials("olga", "a much better secret").wantState(record.Authorized)
	})

	for range 3 {
		credentials("lou", "a wrong password").want(wire.ErrCredentialsInvalid)
	}
	promise("a lock", func() {
		credentials("lou", testPassword).want(wire.ErrRestricted)
		login("lou").want(wire.ErrRestricted)
	})
	for range 2 {
		credentials("mia", "a wrong password").want(wire.ErrCredentialsInvalid)
	}
	promise("the count of wrong passwords", func() {
		credentials("mia", "a wrong password").want(wire.ErrCredentialsInvalid)
		credentials("mia", testPassword).want(wire.ErrRestricted)
	})
	for range 2 {
		credentials("ned", testPassword).wantState(record.CheckOTP)
	}
	promise("the budget of SMS", func() { credentials("ned", testPassword).want(wire.ErrRestricted) })

	reader := fields{"login_id": "reader", "password": testPassword, "accept_disclaimers": []string{"terms", "privacy"}}
	s.postTo("legal", testKey, "auth/checkcredentials", "", reader).wantState(record.Authorized)
	promise("accepted disclaimers", func() {
		delete(reader, "accept_disclaimers")
		s.postTo("legal", testKey, "auth/checkcredentials", "", reader).wantState(record.Authorized)
	})
	return after
}

// One command gives all nodes a new secret, while users log in. It asks for no restart, and
// sessions in Redis, apps and begun logins stay.
func TestRekey(t *testing.T) {
	t.Parallel()
	need(t, "oathtool")
	s := accountsSite(t, startNodes, allKeys, siteConfig{company: account("alice", "")})
	s.api(keyOfAll, "POST", "acme/accounts", carol).wantStatus(201)
	secret := s.api(keyOfAll, "POST", "acme/accounts/carol/totp", nil).wantStatus(200).str("secret")
	s.api(keyOfAll, "POST", "acme/accounts/carol/totp/confirm", fields{"code": oathtool(t, secret, 0)}).wantStatus(200)
	session := s.login("alice")
	done := make(chan outcome, 1)
	go func() { done <- s.cli("", "rekey") }()
	var o outcome
	for over := false; !over; {
		begun := s.post("auth/login", "", fields{"login_id": "alice"}).wantState(record.CheckPassword).token()
		s.post("auth/checkpassword", begun, fields{"password": testPassword}).wantState(record.Authorized)
		for range s.nodes {
			s.get("/", session).wantStatus(200)
		}
		select {
		case o = <-done:
			over = true
		case <-time.After(1500 * time.Millisecond):
		}
	}
	o.want(0, "all nodes use the new secret; secrets of apps that were sealed again: 1\n")
	watch := storetest.StartWatch()
	s.cli("", "rekey").want(0, "all nodes use the secret of ", ", which an earlier rekey made; another can be made from ", "; secrets of apps that were sealed again: 0\n")
	if took := watch.Took(); took > 10*time.Second {
		t.Errorf("a repeated rekey took %v", took)
	}
	s.get("/", session).wantStatus(200)
	s.post("auth/checkotp", s.secondStep("carol").token(), fields{"otp": oathtool(t, secret, 30*time.Second)}).wantState(record.Authorized)
	line := string(s.api(keyOfAll, "GET", "acme/export?secrets=true", nil).wantStatus(200).Body)
	if !strings.Contains(line, `"totp_secret":"`+secret+`"`) {
		t.Errorf("the export has %s", line)
	}
	s.audits(1, `"msg":"mnemogate.store.rekeyed","actor":"admin endpoint"`)
}
