package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// keyed sets the Idempotency-Key of a request.
func keyed(r *http.Request, keys ...string) *http.Request {
	r.Header["Idempotency-Key"] = keys
	return r
}

// twice sends a request twice with the same key, and checks that the second answer is the
// first one.
func (s *site) twice(request func() *http.Request) answer {
	s.t.Helper()
	key := rand.Text()
	first, second := s.do(keyed(request(), key)).inTime(), s.do(keyed(request(), key)).inTime()
	if first.Header.Get("Idempotent-Replayed") != "" || second.Header.Get("Idempotent-Replayed") != "true" {
		s.t.Errorf("Idempotent-Replayed is %q, then %q", first.Header.Get("Idempotent-Replayed"), second.Header.Get("Idempotent-Replayed"))
	}
	for _, a := range []answer{first, second} {
		for _, name := range []string{"Date", "Idempotent-Replayed"} {
			a.Header.Del(name)
		}
	}
	if first.Status != second.Status || !bytes.Equal(first.Body, second.Body) {
		s.t.Errorf("it gets %d %s, then %d %s", first.Status, first.Body, second.Status, second.Body)
	}
	if diff := cmp.Diff(first.Header, second.Header); diff != "" {
		s.t.Errorf("the headers differ: %s", diff)
	}
	return first
}

// Contract, section 20: a client that sends a request again gets the first answer, and
// nothing happens twice.
func TestARequestIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startNodes, allKeys, siteConfig{
		company: strings.NewReplacer("captcha off", "", "limits {", "limits {\nsms_per_account 100/10m\nsms_per_phone 100/24h").Replace(people), more: umbra, handler: selfService + "\ncors https://app.example.com",
	})
	login := func(who string) *http.Request {
		return s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": who})
	}
	s.run("a login by code", func(t *testing.T) {
		a := s.twice(func() *http.Request { return login("+37060000002") }).wantState(record.CheckOTP)
		if n := len(s.sms.of("otp.login")); n != 1 {
			t.Fatalf("%d SMS were sent", n)
		}
		check := func(otp string) *http.Request {
			return s.postRequest("acme", testKey, "auth/checkotp", a.token(), fields{"otp": otp})
		}
		code := s.sms.last("otp.login", "code")
		token := s.twice(func() *http.Request { return check(code) }).wantState(record.Authorized).token()
		s.get("/", token)
		s.do(check(code)).want(wire.ErrTokenInvalid) // as without the header
		s.twice(func() *http.Request { return s.postRequest("acme", testKey, "auth/logout", token, nil) }).wantStatus(200)
	})
	s.run("with a cookie that the route does not take", func(t *testing.T) {
		s.twice(func() *http.Request {
			r := login("alice@example.com")
			r.Header.Set("Cookie", cookieName+"=x; "+cookieName+"=y")
			return r
		}).wantState(record.CheckPassword)
	})
	s.run("a wrong password", func(t *testing.T) {
		token := s.do(login("alice@example.com")).wantState(record.CheckPassword).token()
		s.twice(func() *http.Request {
			return s.postRequest("acme", testKey, "auth/checkpassword", token, fields{"password": "wrong"})
		}).want(wire.ErrPasswordInvalid)
		if n := s.failureCount("alice", record.WrongPasswords); n != 1 {
			t.Errorf("it counts %d times", n)
		}
	})
	s.run("what is another request", func(t *testing.T) {
		key := rand.Text()
		first := s.do(keyed(login("+37060000002"), key)).wantState(record.CheckOTP)
		s.do(keyed(login("alice@example.com"), key)).want(wire.ErrOtherBody)
		s.do(keyed(s.postRequest("acme", testKey, "auth/recovery/recover", "", fields{"login_id": "+37060000002", "captcha_response": "x"}), key)).wantState(record.RecoveryOTP)
		s.do(keyed(s.postRequest("umbra", "other-key", "auth/login", "", fields{"login_id": "+37060000002"}), key)).want(wire.ErrLoginIDNotFound)
		if again := s.do(keyed(login("+37060000002"), key)); again.token() != first.token() {
			t.Error("it is forgotten")
		}
	})
	s.run("bad keys", func(t *testing.T) {
		for _, keys := range [][]string{{""}, {"a", "a"}, {"a b"}, {"ä"}, {strings.Repeat("x", 256)}} {
			s.do(keyed(login("frank"), keys...)).want(wire.ErrValidation)
		}
		s.do(keyed(login("frank"), strings.Repeat("~", 255))).wantState(record.CheckPassword)
		counted := func() (n float64) {
			for _, node := range s.all() {
				n += node.scrape()[`mnemogate_requests_total{company="acme",result="`+wire.ErrValidation.Code+`",route="login"}`]
			}
			return n
		}
		before := counted()
		bad := s.do(keyed(login("frank"), "a b")).want(wire.ErrValidation)
		if n := counted() - before; n != 1 {
			t.Errorf("it is counted %v times", n)
		}
		s.audits(1, `"route":"auth/login","result":"`+wire.ErrValidation.Code+`","reason":"Send one Idempotency-Key of 1 to 255 visible ASCII characters.","ref":"`+bad.ref()+`"`)
	})
	s.run("what is not kept", func(t *testing.T) {
		key := rand.Text()
		s.do(keyed(s.postRequest("acme", "wrong", "auth/login", "", fields{"login_id": "frank"}), key)).want(wire.ErrAPIKeyInvalid)
		s.do(keyed(s.postRequest("acme", testKey, "auth/login", "", fields{}), key)).want(wire.ErrValidation)
		s.do(keyed(s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": strings.Repeat("x", 20000)}), key)).want(wire.ErrTooLarge)
		token := s.do(keyed(login("frank"), key)).wantState(record.CheckPassword).token()
		check := s.postRequest("acme", testKey, "auth/checkotp", token, fields{"otp": "123456"})
		s.do(keyed(check, key)).want(wire.ErrSessionInvalid)
		s.do(keyed(s.postRequest("acme", testKey, "auth/checkotp", token, fields{"otp": "123456"}), key)).want(wire.ErrSessionInvalid).
			wantHeader("Idempotent-Replayed", "") // a refused token is not kept
		options := func() answer {
			return s.do(keyed(s.getRequest("/acme/v2/client.json", ""), "a b"))
		}
		if a := options(); a.str("error_code") == wire.ErrValidation.Code {
			t.Error("a GET has a key")
		}
	})
	s.run("self-service", func(t *testing.T) {
		token := s.login("alice@example.com")
		codes := s.twice(func() *http.Request { return s.meRequest("POST", "backup-codes", token, nil) }).wantStatus(200)
		if codes.JSON["backup_codes"] == nil {
			t.Errorf("got %s", codes.Body)
		}
		key := rand.Text()
		s.do(keyed(s.meRequest("POST", "password", token, fields{}), key)).want(wire.ErrValidation)
		change := fields{"current_password": "wrong", "new_password": "a fine new secret"}
		s.do(keyed(s.meRequest("POST", "password", token, change), key)).want(wire.ErrPasswordInvalid)
		change["new_password"] = "a fine new secret!"
		s.do(keyed(s.meRequest("POST", "password", token, change), key)).want(wire.ErrOtherBody)
		s.do(keyed(s.meRequest("DELETE", "devices", token, nil), "a b")).want(wire.ErrValidation)
		for path, body := range map[string]fields{"phone": {"phone": "abc"}, "totp/confirm": {"code": "123456"}} { // the body was accepted, so they count as changes
			if a := s.twice(func() *http.Request { return s.meRequest("POST", path, token, body) }); a.Status == 200 {
				t.Errorf("%s: got %s", path, a.Body)
			}
		}
	})
	s.run("a logout by cookie", func(t *testing.T) {
		token := s.login("alice@example.com")
		id := s.ownSessions(token)[0]
		moved, set := s.session("POST", "acme", "X-Api-Key: "+testKey+"\r\nAuthorization: Bearer "+token+"\r\n")
		moved.wantStatus(200)
		end := func(origin string) *http.Request {
			r := s.meRequest("DELETE", "sessions/"+id, "", nil)
			r.Header.Set("Cookie", set.Name+"="+set.Value)
			r.Header.Set("Sec-Fetch-Site", origin)
			return r
		}
		a := s.twice(func() *http.Request { return end("same-origin") }).wantStatus(200)
		if !strings.HasPrefix(a.Header.Get("Set-Cookie"), set.Name+"=;") {
			t.Errorf("Set-Cookie is %q", a.Header.Get("Set-Cookie"))
		}
		key := rand.Text()
		s.do(keyed(end("same-origin"), key))
		s.do(keyed(end("cross-site"), key)).want(wire.ErrHeaderInvalid)
	})
	s.run("a session into a cookie", func(t *testing.T) {
		token, cookies := s.login("alice@example.com"), ""
		move := func(token string) *http.Request {
			r := s.postRequest("acme", testKey, "session", token, fields{"remember": true})
			r.Header.Set("Cookie", cookies)
			cookies = cookieName + "=x; " + cookieName + "-device=y" // the browser may have stored them without the rest of the answer
			return r
		}
		a := s.twice(func() *http.Request { return move(token) }).wantStatus(200)
		s.get("/", get(http.ParseSetCookie(a.Header.Get("Set-Cookie")))(t).Value).wantStatus(200)
		key := rand.Text()
		s.do(keyed(move(s.login("alice@example.com")), key)).wantStatus(200)
		for _, other := range []string{"", token, s.login("alice@example.com")} {
			a := s.do(keyed(move(other), key))
			if a.Header.Get("Idempotent-Replayed") != "" || a.Status == 200 && other == token {
				t.Errorf("another token gets %d %s", a.Status, a.Body)
			}
		}
	})
	s.run("from another origin", func(t *testing.T) {
		r := keyed(login("frank"), rand.Text())
		r.Header.Set("Origin", "https://app.example.com")
		if a := s.do(r); !strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "Idempotent-Replayed") {
			t.Errorf("Access-Control-Expose-Headers is %q", a.Header.Get("Access-Control-Expose-Headers"))
		}
	})
	s.run("at once", func(t *testing.T) {
		before, key := len(s.sms.of("otp.login")), rand.Text()
		answers := storetest.Together(40, func(int) answer { return s.do(keyed(login("+37060000002"), key)) })
		for _, a := range answers {
			if a.token() != answers[0].token() {
				t.Error("the answers differ")
			}
		}
		if n := len(s.sms.of("otp.login")) - before; n != 1 {
			t.Errorf("%d SMS were sent", n)
		}
	})
	s.run("the accounts API", func(t *testing.T) {
		account := fields{"profile_mnemocode": "gina", "primary_email": "gina@example.com"}
		request := func(method, path string, body any) func() *http.Request {
			return func() *http.Request { return s.apiRequest(keyOfAll, method, "acme/accounts"+path, body) }
		}
		s.twice(request("POST", "", account)).wantStatus(201)
		s.twice(request("PATCH", "/gina", fields{"role": "admin"})).wantStatus(200)
		s.twice(request("POST", "/gina/welcome", nil)).wantStatus(202)
		if n := len(s.sms.of("welcome.link")); n != 1 {
			t.Errorf("%d welcome mails", n)
		}
		s.twice(request("DELETE", "/gina", nil)).wantStatus(204)
		key := rand.Text()
		s.do(keyed(request("POST", "", fields{"profile_mnemocode": 5})(), key)).wantStatus(400)
		s.do(keyed(request("POST", "", account)(), key)).wantStatus(201)
		account["role"] = "x"
		for _, bad := range []struct {
			keys   []string
			status int
		}{{[]string{key}, 422}, {[]string{"a", "b"}, 400}, {[]string{"a b"}, 400}} {
			s.do(keyed(request("POST", "", account)(), bad.keys...)).wantStatus(bad.status).wantField("field", "Idempotency-Key")
		}
		s.do(keyed(s.apiRequest("wrong", "DELETE", "acme/accounts/gina", nil), key)).wantStatus(401)
		for _, match := range []string{`"stale"`, "*"} { // the advice of 412 is to repeat the change
			r := keyed(request("PATCH", "/gina", fields{"role": "user"})(), key)
			r.Header.Set("If-Match", match)
			s.do(r).wantStatus(map[string]int{`"stale"`: 412, "*": 200}[match])
		}
		changing, changed := context.WithCancel(t.Context())
		var changes sync.WaitGroup
		changes.Go(func() {
			for i := 0; changing.Err() == nil; i++ {
				s.do(request("PATCH", "/gina", fields{"role": fmt.Sprint(i)})()).wantStatus(200)
			}
		})
		storetest.Eventually(t, 30*time.Second, "change meanwhile", func() bool { // its advice is to try again, too
			key := rand.Text()
			if s.do(keyed(request("POST", "/gina/backup-codes", nil)(), key)).Status != 409 {
				return false
			}
			return s.do(keyed(request("POST", "/gina/backup-codes", nil)(), key)).Header.Get("Idempotent-Replayed") == ""
		})
		changed()
		changes.Wait()
		s.do(keyed(request("DELETE", "/gina/sessions", fields{})(), key)).wantStatus(204)
		s.do(keyed(request("DELETE", "/gina/sessions", nil)(), key)).wantStatus(422).wantField("field", "Idempotency-Key")
		for range 2 {
			a := s.do(keyed(s.apiRequest(keyOfAll, "POST", "acme/introspect", fields{"token": "x"}), "a b"))
			if a.Status == 400 && a.str("field") == "Idempotency-Key" || a.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("introspect: %d %s", a.Status, a.Body)
			}
		}
	})
	for line := range strings.Lines(s.log()) {
		if strings.Contains(line, "could not be kept") && !strings.Contains(line, "deadline exceeded") && !strings.Contains(line, "i/o timeout") { // the store was late
			t.Errorf("the log has %s", line)
		}
	}
}

// A client that hangs up is no outage: the access log, the audit log and the metrics say what it
// did, and whoever sends its request again gets the answer to the first.
func TestAClientThatHangsUpIsNoOutage(t *testing.T) {
	t.Parallel()
	slow, file := newGateway(t), filepath.Join(t.TempDir(), "access.log")
	answering := make(chan struct{})
	answers := sync.OnceFunc(func() { close(answering) })
	defer answers()
	slow.behave(func(w http.ResponseWriter, _ *http.Request) { <-answering })
	s := startSite(t, siteConfig{
		company: roomy + "sms webhook " + slow.URL + "/sms {\nsecret " + smsSecret + "\ntimeout 20s\n}\n" + "account alice {\nphone +37060000001\n}\n",
		site:    "log {\noutput file " + file + "\n}\nmnemogate\nreverse_proxy BACKEND",
	})
	key := rand.Text()
	login := func() *http.Request {
		return keyed(s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": "+37060000001"}), key)
	}
	first := make(chan answer)
	go func() { first <- s.do(login()) }()
	storetest.Eventually(t, 10*time.Second, "the first SMS", func() bool {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		return slow.asked["/sms"] == 1
	})
	gone, hangUp := context.WithTimeout(t.Context(), 2*time.Second) // by then it has come, even on a busy machine
	defer hangUp()
	if _, err := s.try(client, login().WithContext(gone)); err == nil { // it waits for the first
		t.Error("it is answered")
	}
	s.audits(1, `"route":"auth/login","result":"canceled","reason":"waiting for another request: context canceled"`)
	answers()
	token := (<-first).wantState(record.CheckOTP).token()
	if again := s.do(login()); again.token() != token {
		t.Errorf("another gets %d %s", again.Status, again.Body)
	}
	counted := s.scrape()
	for result, want := range map[string]float64{"canceled": 1, "success": 1, "service.unavailable": 0} {
		if n := counted[`mnemogate_requests_total{company="acme",result="`+result+`",route="login"}`]; n != want {
			t.Errorf("%s is counted %v times", result, n)
		}
	}
	log := string(get(os.ReadFile(file))(t))
	if !strings.Contains(log, `"status":499,`) || !strings.Contains(log, `"error_code":"canceled"`) || strings.Contains(log, `"level":"error"`) {
		t.Errorf("the access log has %s", log)
	}
	if strings.Contains(s.log(), "a service did not answer") {
		t.Error("the log tells of an outage")
	}
}

var lossyRounds = flag.Int("lossy", 5, "how often TestALossyConnection walks")

// A lossy is a connection that drops every third answer.
type lossy struct {
	mu sync.Mutex
	n  int
}

var errLost = errors.New("the answer was lost")

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := client.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; l.n%3 != 0 {
		return response, nil
	}
	_, _ = io.Copy(io.Discard, response.Body) // the server has sent it
	_ = response.Body.Close()
	return nil, errLost
}

// Contract, section 20, on a connection that drops every third answer after the server has
// sent it: logins, recoveries and changes come to their end, nobody begins again, no SMS or
// mail is sent twice, and no counter moves twice.
func TestALossyConnection(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := accountsSite(t, start, allKeys, siteConfig{
			company: strings.NewReplacer("captcha off", "", "limits {", `limits {
				sms_per_account 100000/10m
				sms_per_phone 100000/24h
				mails_per_account 100000/1h`, "sms_per_address 1000", "sms_per_address 100000").Replace(people),
			handler: selfService, servers: "trusted_proxies static 127.0.0.1",
		})
		lossyClient := &http.Client{Transport: &lossy{}}
		lost := 0
		address := ""
		ask := func(request func() *http.Request) answer {
			for key := rand.Text(); ; {
				r := keyed(request(), key)
				r.Header.Set("X-Forwarded-For", address)
				a, err := s.try(lossyClient, r)
				if err == nil {
					return a
				}
				if !errors.Is(err, errLost) {
					s.t.Fatal(err)
				}
				lost++
			}
		}
		step := func(route, token string, body fields) answer {
			return ask(func() *http.Request { return s.postRequest("acme", testKey, route, token, body) })
		}
		sent := func(kind string, f func()) string {
			before := len(s.sms.of(kind))
			f()
			if n := len(s.sms.of(kind)) - before; n != 1 {
				t.Errorf("%d messages of type %s, want 1", n, kind)
			}
			return s.sms.last(kind, "code")
		}
		for i := range *lossyRounds {
			address = fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
			var a answer
			sent("otp.login", func() { a = step("auth/login", "", fields{"login_id": "+37060000002"}).wantState(record.CheckOTP) })
			code := sent("otp.login", func() { step("auth/renewotp", a.token(), nil).wantStatus(200) })
			bob := step("auth/checkotp", a.token(), fields{"otp": code}).wantState(record.Authorized).token()
			step("auth/logout", bob, nil).wantStatus(200)

			a = step("auth/login", "", fields{"login_id": "carol@example.com"}).wantState(record.CheckPassword)
			before := s.failureCount("carol", record.WrongPasswords)
			step("auth/checkpassword", a.token(), fields{"password": "wrong"}).want(wire.ErrPasswordInvalid)
			if n := s.failureCount("carol", record.WrongPasswords) - before; n != 1 {
				t.Errorf("a wrong password counts %d times", n)
			}
			token := a.token()
			code = sent("otp.login", func() {
				a = step("auth/checkpassword", token, fields{"password": testPassword}).wantState(record.CheckOTP)
			})
			step("auth/checkotp", a.token(), fields{"otp": code}).wantState(record.Authorized)

			create := func(account fields) {
				ask(func() *http.Request { return s.apiRequest(keyOfAll, "POST", "acme/accounts", account) }).wantStatus(201)
			}
			create(fields{"profile_mnemocode": "gina", "primary_email": "gina@example.com", "primary_phone": "+37060000077", "password": testPassword})
			code = sent("otp.recovery", func() {
				a = step("auth/recovery/recover", "", fields{"login_id": "gina@example.com", "captcha_response": "x"}).wantState(record.RecoveryOTP)
			})
			a = step("auth/recovery/checkotp", a.token(), fields{"otp": code}).wantState(record.RecoveryPassword)
			step("auth/setpassword", a.token(), fields{"new_password": "a fine new secret"}).wantStatus(200)
			gina := step("auth/checkcredentials", "", fields{"login_id": "gina@example.com", "password": "a fine new secret"}).wantState(record.Authorized).token()
			me := func(method, path string, body fields) answer {
				return ask(func() *http.Request { return s.meRequest(method, path, gina, body) })
			}
			me("POST", "password", fields{"current_password": "a fine new secret", "new_password": "another new secret"}).wantStatus(200)
			me("POST", "backup-codes", nil).wantStatus(200)
			me("DELETE", "sessions", nil).wantStatus(200)
			create(fields{"profile_mnemocode": "hugo", "primary_email": "hugo@example.com"})
			sent("welcome.link", func() {
				ask(func() *http.Request { return s.apiRequest(keyOfAll, "POST", "acme/accounts/hugo/welcome", nil) }).wantStatus(202)
			})
			for _, name := range []string{"gina", "hugo"} {
				ask(func() *http.Request { return s.apiRequest(keyOfAll, "DELETE", "acme/accounts/"+name, nil) }).wantStatus(204)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
		if lost < 3**lossyRounds {
			t.Errorf("only %d answers were lost", lost)
		}
	})
}
