package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// contactCompany has no limits but those that the tests are about.
const contactCompany = `
	limits {
		sms_per_account 1000/10m
		sms_per_address 1000/1h
		mails_per_account 1000/1h
		failures_per_address 1000/5m
		logins_per_address 1000/1m
		wrong_codes 100/24h
	}
	account alice {
		email alice@example.com
		phone +37060000001
		password "` + testPassword + `"
	}
	account bob {
		phone +37060000002
	}
	account frank {
		login frank
		password "` + testPassword + `"
	}
`

// verified returns when the contacts of an account were proven, as the accounts API shows it.
func (s *site) verified(mnemocode string) (phone, email any) {
	s.t.Helper()
	a := s.api(keyOfAll, "GET", "acme/accounts/"+mnemocode, nil).wantStatus(http.StatusOK)
	return a.JSON["phone_verified_at"], a.JSON["email_verified_at"]
}

// lately reports whether a value is a time of the last minute.
func lately(value any) bool {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && time.Since(at).Abs() < time.Minute
}

// loginByCode logs in an account without a password.
func (s *site) loginByCode(phone string) string {
	s.t.Helper()
	step := s.post("auth/login", "", fields{"login_id": phone}).wantState(record.CheckOTP)
	return s.post("auth/checkotp", step.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized).token()
}

// wrong returns a code that is not this one.
func wrong(code string) string {
	if code[0] == '0' {
		return "1" + code[1:]
	}
	return "0" + code[1:]
}

// Contract, section 22: users move to a new phone and email. The old ones stay in force
// until the last step; the session stays, and all else is revoked.
func TestUsersMoveToAnotherPhoneAndEmail(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startNodes, allKeys, siteConfig{handler: selfService + "\nforward phone email", company: contactCompany})
	send := func(token, kind, value string) answer {
		return s.me("POST", kind, token, fields{kind: value})
	}
	confirm := func(token, kind string, sent answer, code string) answer {
		return s.me("POST", kind+"/confirm", token, fields{"contact_token": sent.str("contact_token"), "code": code})
	}
	s.run("a new phone, then a new email", func(t *testing.T) {
		token, other := s.login("alice@example.com"), s.login("alice@example.com")
		s.remember(token, other)
		sent := send(token, "phone", "+370 600-00011").wantStatus(http.StatusOK)
		left, _ := sent.JSON["expires_in"].(float64)
		if sent.str("user_phone") != "+37*******11" || left < 290 || left > 300 || sent.JSON["user_email"] != nil {
			t.Errorf("got %s", sent.Body)
		}
		code := s.sms.last("contact.code", "code")
		if to, owner := s.sms.last("contact.code", "to"), s.sms.last("contact.code", "profile_mnemocode"); to != "+37060000011" || owner != "alice" || len(code) != 6 {
			t.Errorf("%s went to %s of %s", code, to, owner)
		}
		s.get("/", other).wantStatus(http.StatusOK)
		s.post("auth/login", "", fields{"login_id": "+37060000001"}).wantState(record.CheckPassword)
		s.post("auth/login", "", fields{"login_id": "+37060000011"}).want(wire.ErrLoginIDNotFound)
		confirm(other, "phone", sent, code).want(wire.ErrOTPInvalid) // another session of the same user
		confirm(token, "phone", sent, code).wantStatus(http.StatusOK)
		s.gone(other)
		for range s.all() {
			s.get("/", token).wantStatus(http.StatusOK)
		}
		s.post("auth/login", "", fields{"login_id": "+37060000001"}).want(wire.ErrLoginIDNotFound)
		if phone, email := s.verified("alice"); !lately(phone) || email != nil {
			t.Errorf("proven: %v, %v", phone, email)
		}
		confirm(token, "phone", sent, code).want(wire.ErrOTPInvalid)
		for _, to := range []string{"+37060000001", "alice@example.com"} {
			s.tellsOwner("notice.phone_changed", to)
		}

		sent = send(token, "email", " Alice.New@example.com ").wantStatus(http.StatusOK)
		code = s.sms.last("contact.code", "code")
		if sent.str("user_email") != "Alice.New@example.com" || len(code) != 8 || !strings.Contains(s.sms.last("contact.code", "html"), code) {
			t.Errorf("got %s and %s", sent.Body, code)
		}
		for range 4 {
			confirm(token, "email", sent, wrong(code)).want(wire.ErrOTPInvalid)
		}
		confirm(token, "email", sent, "1234567").want(wire.ErrValidation) // is no guess
		confirm(token, "phone", sent, code).want(wire.ErrOTPInvalid)      // for the email; the fifth guess
		confirm(token, "email", sent, code).want(wire.ErrOTPInvalid)
		sent = send(token, "email", "Alice.New@example.com").wantStatus(http.StatusOK)
		confirm(token, "email", sent, s.sms.last("contact.code", "code")).wantStatus(http.StatusOK)
		s.post("auth/login", "", fields{"login_id": "alice@example.com"}).want(wire.ErrLoginIDNotFound)
		s.post("auth/login", "", fields{"login_id": "alice.new@example.com"}).wantState(record.CheckPassword)
		for _, to := range []string{"alice@example.com", "Alice.New@example.com"} {
			s.tellsOwner("notice.email_changed", to)
		}
		for _, node := range s.all() { // backends hear of it with the next request
			if got := string(node.get("/", token).wantStatus(http.StatusOK).Body); !strings.Contains(got, "X-Profile-Phone: +37060000011") || !strings.Contains(got, "X-Profile-Email: Alice.New@example.com") {
				t.Errorf("the backend got %s", got)
			}
		}
		factors := s.me("GET", "factors", token, nil).wantStatus(http.StatusOK).JSON
		phone, email := factors["phone"].(fields), factors["email"].(fields)
		if phone["value"] != "+37*******11" || !lately(phone["verified_at"]) || phone["removable"] != true ||
			email["value"] != "Alice.New@example.com" || !lately(email["verified_at"]) || email["removable"] != true {
			t.Errorf("factors: %v", factors)
		}
	})
	s.run("one's own contact", func(t *testing.T) {
		token, other := s.login("alice.new@example.com"), s.login("alice.new@example.com")
		s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"email_verified_at": nil}).wantStatus(http.StatusOK)
		sent := send(token, "email", "alice.NEW@example.com").wantStatus(http.StatusOK)
		sent.wantField("user_email", "Alice.New@example.com")
		confirm(token, "email", sent, s.sms.last("contact.code", "code")).wantStatus(http.StatusOK)
		if _, email := s.verified("alice"); !lately(email) {
			t.Errorf("proven: %v", email)
		}
		s.get("/", other).wantStatus(http.StatusOK)
	})
	s.run("the contact of another account", func(t *testing.T) {
		token := s.login("frank")
		sent := send(token, "phone", "+37060000002").wantStatus(http.StatusOK)
		confirm(token, "phone", sent, wrong(s.sms.last("contact.code", "code"))).want(wire.ErrOTPInvalid)
		confirm(token, "phone", sent, s.sms.last("contact.code", "code")).want(wire.ErrOTPInvalid) // one guess
		sent = send(token, "phone", "+37060000002").wantStatus(http.StatusOK)
		confirm(token, "phone", sent, s.sms.last("contact.code", "code")).want(wire.ErrConflict)
		s.get("/", token).wantStatus(http.StatusOK)
	})
	s.run("what can be removed", func(t *testing.T) {
		token := s.login("alice.new@example.com")
		s.me("DELETE", "phone", token, nil).wantStatus(http.StatusOK)
		s.me("DELETE", "phone", token, nil).wantStatus(http.StatusOK)
		s.me("DELETE", "email", token, nil).want(wire.ErrConflict) // no other way to recover
		bob := s.loginByCode("+37060000002")
		s.me("DELETE", "phone", bob, nil).want(wire.ErrConflict) // no other way to log in
		sent := send(bob, "email", "bob@example.com").wantStatus(http.StatusOK)
		confirm(bob, "email", sent, s.sms.last("contact.code", "code")).wantStatus(http.StatusOK)
		s.me("DELETE", "phone", bob, nil).want(wire.ErrConflict) // a recovery is no login
		s.me("DELETE", "email", bob, nil).wantStatus(http.StatusOK)
		for _, node := range s.all() {
			node.get("/", token).wantStatus(http.StatusOK)
			node.get("/", bob).wantStatus(http.StatusOK)
		}
	})
	s.run("what is no contact", func(t *testing.T) {
		token := s.login("frank")
		for kind, values := range map[string][]any{"phone": {"+3706", "alice@example.com", "", nil, 1}, "email": {"+37060000001", "a@b@c", "", nil}} {
			for _, value := range values {
				s.me("POST", kind, token, fields{kind: value}).want(wire.ErrValidation)
			}
		}
		for _, sent := range []string{"x", strings.Repeat("A", 300), strings.Repeat("A", 2049)} {
			if a := s.me("POST", "phone/confirm", token, fields{"contact_token": sent, "code": "123456"}); a.Status != http.StatusUnauthorized && a.Status != http.StatusBadRequest {
				t.Errorf("%.10s: got %d %s", sent, a.Status, a.Body)
			}
		}
	})
	s.run("one proof has one effect", func(t *testing.T) { oneProofHasOneEffect(t, s) })
}

// notices waits until the owners of accounts got so many notices of a kind.
func (s *site) notices(n int, kind string) {
	s.t.Helper()
	storetest.Eventually(s.t, 10*time.Second, fmt.Sprint(n, " ", kind), func() bool { return len(s.sms.of(kind)) == n })
}

// tellsOwner waits until a notice went to an address.
func (s *site) tellsOwner(kind, to string) {
	s.t.Helper()
	storetest.Eventually(s.t, 5*time.Second, kind+" to "+to, func() bool {
		return slices.ContainsFunc(s.sms.of(kind), func(m map[string]any) bool { return m["to"] == to })
	})
}

// prove returns a proof of a contact, from the accounts API.
func (s *site) prove(kind, value string) string {
	s.t.Helper()
	sent := s.api(keyOfAll, "POST", "acme/contacts", fields{kind: value}).wantStatus(http.StatusAccepted)
	proven := s.api(keyOfAll, "POST", "acme/contacts/confirm", fields{"contact_token": sent.str("contact_token"), "code": s.sms.last("contact.code", "code")}).wantStatus(http.StatusOK)
	if proven.str(kind) != value {
		s.t.Errorf("%s is proven, want %s", proven.Body, value)
	}
	return proven.str("proof")
}

// Contract, section 22: backends prove contacts before they create accounts.
func TestBackendsProveContacts(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t)
	s := accountsSite(t, startNodes, allKeys, siteConfig{
		company: contactCompany + receiver.events("types contact.verified welcome.used"),
		more:    "company umbrella {\napi_key off\ncaptcha off\n}",
	})
	const signup = "creates-and-nothing-else"
	create := func(mnemocode string, more fields) answer {
		return s.api(signup, "POST", "acme/accounts", with(fields{"profile_mnemocode": mnemocode}, more))
	}
	s.run("a sign-up", func(t *testing.T) {
		sent := s.api(signup, "POST", "acme/contacts", fields{"phone": "+370 600 00021", "locale": "lt"}).wantStatus(http.StatusAccepted)
		code, message := s.sms.last("contact.code", "code"), s.sms.of("contact.code")
		last := message[len(message)-1]
		if _, named := last["profile_mnemocode"]; named || last["locale"] != "lt" || !strings.Contains(last["text"].(string), "kodas numeriui patvirtinti") {
			t.Errorf("sent: %v", last)
		}
		confirm := func(key, token, code string) answer {
			return s.api(key, "POST", "acme/contacts/confirm", fields{"contact_token": token, "code": code})
		}
		confirm(signup, sent.str("contact_token"), wrong(code)).wantRefused(http.StatusUnprocessableEntity, "code")
		confirm(signup, sent.str("contact_token"), code).wantRefused(http.StatusUnprocessableEntity, "code")
		confirm(signup, sent.str("contact_token"), "12").wantRefused(http.StatusBadRequest, "code")
		phone, email := s.prove("phone", "+37060000021"), s.prove("email", "new@example.com")
		create("new", fields{"primary_phone": "+37060000022", "phone_proof": phone}).wantRefused(http.StatusBadRequest, "phone_proof")
		create("new", fields{"primary_phone": "+37060000021", "phone_proof": email}).wantRefused(http.StatusBadRequest, "phone_proof")
		create("new", fields{"phone_proof": phone}).wantRefused(http.StatusBadRequest, "phone_proof")
		create("new", fields{"primary_phone": "+37060000021", "phone_proof": ""}).wantRefused(http.StatusBadRequest, "phone_proof")
		create("new", fields{"primary_phone": "+37060000021", "phone_verified_at": "2026-01-01T00:00:00Z"}).wantRefused(http.StatusForbidden, "")
		create("alice", fields{"primary_phone": "+37060000021", "phone_proof": phone}).wantRefused(http.StatusConflict, "profile_mnemocode")
		s.api(keyOfAll, "POST", "umbrella/accounts", fields{"profile_mnemocode": "new", "primary_phone": "+37060000021", "phone_proof": phone}).wantRefused(http.StatusBadRequest, "phone_proof")
		created := create("new", fields{"primary_phone": "370600-00021", "phone_proof": phone, "primary_email": "NEW@example.com", "email_proof": email})
		created.wantRefused(http.StatusBadRequest, "primary_phone") // without a plus; nothing was spent
		created = create("new", fields{"primary_phone": "+370 600-00021", "phone_proof": phone, "primary_email": "NEW@example.com", "email_proof": email}).wantStatus(http.StatusCreated)
		if !lately(created.JSON["phone_verified_at"]) || !lately(created.JSON["email_verified_at"]) {
			t.Errorf("created: %s", created.Body)
		}
		patch := func(body fields) answer { return s.api(keyOfAll, "PATCH", "acme/accounts/new", body) }
		patch(fields{"phone_proof": phone}).wantRefused(http.StatusBadRequest, "phone_proof")
		again := s.prove("phone", "+37060000021")
		patch(fields{"phone_proof": again, "phone_verified_at": nil}).wantRefused(http.StatusBadRequest, "phone_proof")
		patch(fields{"phone_proof": again}).wantStatus(http.StatusOK)
		patch(fields{"phone_proof": again}).wantRefused(http.StatusBadRequest, "phone_proof")
		if a := patch(fields{"primary_email": "other@example.com"}).wantStatus(http.StatusOK); a.JSON["email_verified_at"] != nil || !lately(a.JSON["phone_verified_at"]) {
			t.Errorf("changed: %s", a.Body)
		}
		patch(fields{"email_verified_at": "2026-01-01T00:00:00Z"}).wantStatus(http.StatusOK).wantField("email_verified_at", "2026-01-01T00:00:00Z")
		patch(fields{"primary_email": nil, "email_verified_at": "2026-01-01T00:00:00Z"}).wantRefused(http.StatusBadRequest, "email_verified_at")
		s.api(keyOfAll, "GET", "acme/export", nil).wantBody(`"email_verified_at":"2026-01-01T00:00:00Z"`)
		receiver.hears("new", "contact.verified contact.verified contact.verified")
	})
	s.run("what is refused", func(t *testing.T) {
		for _, body := range []fields{{}, {"phone": "+37060000021", "email": "a@example.com"}, {"phone": "x"}, {"email": "x"}, {"email": "a@example.com", "locale": "?"}, {"email": "a@example.com", "address": "x"}} {
			s.api(signup, "POST", "acme/contacts", body).wantStatus(http.StatusBadRequest)
		}
		s.api("reads-and-nothing-else", "POST", "acme/contacts", fields{"phone": "+37060000021"}).wantRefused(http.StatusForbidden, "")
		s.api("reads-and-nothing-else", "POST", "acme/contacts/confirm", fields{"contact_token": "x", "code": "123456"}).wantRefused(http.StatusForbidden, "")
		s.sms.answer(http.StatusServiceUnavailable)
		s.api(signup, "POST", "acme/contacts", fields{"phone": "+37060000021"}).wantRefused(http.StatusServiceUnavailable, "")
		s.sms.answer(0)
	})
	s.run("codes and links that are used", func(t *testing.T) {
		s.loginByCode("+37060000002")
		if phone, _ := s.verified("bob"); !lately(phone) {
			t.Errorf("bob's phone is proven: %v", phone)
		}
		s.loginByCode("+37060000002")
		receiver.hears("bob", "contact.verified")
		s.login("alice@example.com")
		if phone, email := s.verified("alice"); phone != nil || email != nil {
			t.Errorf("a password proves %v, %v", phone, email)
		}
		s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "x", "method": "MAIL"}).wantStatus(http.StatusOK)
		if _, email := s.verified("alice"); email != nil {
			t.Errorf("a link that was not opened proves the email: %v", email)
		}
		s.post("auth/recovery/checklink", "", fields{"token": s.sms.linkToken()}).wantState(record.RecoveryPassword)
		recovery := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "x", "method": "PHONE"})
		s.post("auth/recovery/checkotp", recovery.token(), fields{"otp": s.sms.last("otp.recovery", "code")}).wantState(record.RecoveryPassword)
		if phone, email := s.verified("alice"); !lately(phone) || !lately(email) {
			t.Errorf("proven: %v, %v", phone, email)
		}
		receiver.hears("alice", "contact.verified contact.verified")
		create("guest", fields{"primary_email": "guest@example.com"}).wantStatus(http.StatusCreated)
		s.api(signup, "POST", "acme/accounts/guest/welcome", nil).wantStatus(http.StatusAccepted)
		_, token, _ := strings.Cut(s.sms.last("welcome.link", "link"), "#")
		s.post("auth/recovery/checklink", "", fields{"token": token}).wantState(record.RecoveryPassword)
		receiver.hears("guest", "welcome.used contact.verified")
	})
	s.run("keep_session", func(t *testing.T) {
		token, other := s.login("frank"), s.login("frank")
		list := s.api(keyOfAll, "GET", "acme/accounts/frank/sessions", nil).JSON["sessions"].([]any)
		id := list[0].(fields)["session_id"].(string)
		patch := func(body fields) answer {
			return s.api(keyOfAll, "PATCH", "acme/accounts/frank", with(body, fields{"keep_session": id}))
		}
		patch(fields{"status": "closed"}).wantRefused(http.StatusBadRequest, "keep_session")
		patch(fields{"primary_phone": "+37060000031", "role": "x"}).wantRefused(http.StatusBadRequest, "keep_session")
		s.api(keyOfAll, "PATCH", "acme/accounts/frank", fields{"login_name": "frank", "keep_session": "x"}).wantRefused(http.StatusBadRequest, "keep_session")
		s.get("/", other).wantStatus(http.StatusOK)
		patch(fields{"primary_phone": "+37060000031", "primary_email": "frank@example.com"}).wantStatus(http.StatusOK)
		patch(fields{"second_factor": true}).wantStatus(http.StatusOK)
		s.gone(other)
		for _, node := range s.all() {
			node.get("/", token).wantStatus(http.StatusOK)
		}
	})
}

// Of the requests that race with one code or one proof on two nodes, one has an effect.
func oneProofHasOneEffect(t *testing.T, s *site) {
	// race lets n requests race, of which so many have an effect. The answer may be late.
	race := func(what string, n, effects int, ask func(i int) answer) {
		t.Helper()
		done, late := 0, 0
		for _, a := range storetest.Together(n, ask) {
			switch a.Status {
			case http.StatusOK, http.StatusCreated:
				done++
			case http.StatusServiceUnavailable:
				late++
			}
		}
		if done > effects || done+late < effects || late == n {
			t.Errorf("%s had an effect %d times, want %d; %d answers were late", what, done, effects, late)
		}
	}
	proof := s.prove("phone", "+37060000041")
	race("a proof for new accounts", 24, 1, func(i int) answer {
		return s.api(keyOfAll, "POST", "acme/accounts", fields{"profile_mnemocode": fmt.Sprint("racer-", i), "primary_phone": "+37060000041", "phone_proof": proof})
	})
	proof = s.prove("email", "one@example.com")
	s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"primary_email": "one@example.com"}).wantStatus(http.StatusOK)
	race("a proof", 24, 1, func(int) answer {
		return s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"email_proof": proof})
	})
	sent := s.api(keyOfAll, "POST", "acme/contacts", fields{"email": "two@example.com"}).wantStatus(http.StatusAccepted)
	code := s.sms.last("contact.code", "code")
	race("a code by mail", 40, 5, func(int) answer {
		return s.api(keyOfAll, "POST", "acme/contacts/confirm", fields{"contact_token": sent.str("contact_token"), "code": code})
	})
	token := s.login("frank")
	sent = s.me("POST", "phone", token, fields{"phone": "+37060000042"}).wantStatus(http.StatusOK)
	code = s.sms.last("contact.code", "code")
	race("a code by SMS", 24, 1, func(int) answer {
		return s.me("POST", "phone/confirm", token, fields{"contact_token": sent.str("contact_token"), "code": code})
	})
}

// Section 22 has the budgets of SMS and mails.
func TestCodesForContactsHaveBudgets(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, allKeys, siteConfig{handler: selfService, company: `
		account alice {
			email alice@example.com
			password "` + testPassword + `"
		}
		limits {
			sms_countries +370
		}`})
	refused := func(a answer, reason string) {
		t.Helper()
		a.wantStatus(http.StatusTooManyRequests).wantReason(reason).wantRetryAfter()
	}
	send := func(body fields) answer { return s.api(keyOfAll, "POST", "acme/contacts", body) }
	for i := range 3 {
		send(fields{"email": "same@example.com", "address": fmt.Sprint("192.0.2.", i)}).wantStatus(http.StatusAccepted)
	}
	refused(send(fields{"email": "SAME@example.com", "address": "192.0.2.9"}), "limit.mails")
	for i := range 3 {
		send(fields{"email": fmt.Sprint(i, "@example.com")}).wantStatus(http.StatusAccepted)
	}
	refused(send(fields{"email": "4@example.com"}), "limit.mails")
	send(fields{"email": "4@example.com", "address": "192.0.2.10"}).wantStatus(http.StatusAccepted)
	for range 10 {
		send(fields{"phone": "+37060000051"}).wantStatus(http.StatusAccepted)
	}
	refused(send(fields{"phone": "+37060000051"}), "limit.sms_phone")
	for i := range 20 {
		send(fields{"phone": fmt.Sprint("+370600001", 10+i)}).wantStatus(http.StatusAccepted)
	}
	refused(send(fields{"phone": "+37060000199"}), "limit.sms_address")
	refused(send(fields{"phone": "+491701234567", "address": "192.0.2.11"}), "limit.sms_country")
	token := s.login("alice@example.com")
	for i := range 3 {
		s.me("POST", "email", token, fields{"email": fmt.Sprint("alice", i, "@example.com")}).wantStatus(http.StatusOK)
	}
	refused(s.me("POST", "email", token, fields{"email": "alice9@example.com"}), "limit.mails")
	refused(s.me("POST", "phone", token, fields{"phone": "+37060000061"}), "limit.sms_address")
}
