package integration

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// nobodyListens returns a URL whose port refuses connections and is not given to
// other tests.
func nobodyListens(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("http://127.0.0.1:", storetest.FreePorts(t, 1)[0])
}

// A gateway is a server for SMS, mails and captchas, and an OAuth provider. Tests
// can make it misbehave.
type gateway struct {
	*httptest.Server
	release chan struct{} // closed when handlers must stop hanging

	mu       sync.Mutex
	answers  http.HandlerFunc // nil for correct answers
	messages []map[string]any
	asked    map[string]int // number of requests by path
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{release: make(chan struct{}), asked: map[string]int{}}
	g.Server = httptest.NewServer(g)
	t.Cleanup(func() {
		g.behave(nil)
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	message := map[string]any{}
	_ = json.Unmarshal(body, &message)
	g.mu.Lock()
	g.asked[r.URL.Path]++
	g.messages = append(g.messages, message)
	answers := g.answers
	g.mu.Unlock()
	if answers != nil {
		answers(w, r)
		return
	}
	switch r.URL.Path {
	case "/captcha":
		form, _ := url.ParseQuery(string(body))
		fmt.Fprintf(w, `{"success":%t}`, form.Get("response") != "bad")
	case "/token":
		form, _ := url.ParseQuery(string(body))
		w.Header().Set("Content-Type", "application/json")
		if form.Get("redirect_uri") != callback || !strings.Contains(form.Get("code"), "code-of-") {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		fmt.Fprintf(w, `{"access_token":"access-%s","token_type":"bearer"}`, form.Get("code"))
	case "/user":
		_, user, _ := strings.Cut(r.Header.Get("Authorization"), "code-of-")
		fmt.Fprintf(w, `{"id":%q,"email":"%[1]s@example.com","verified":true}`, user)
	}
}

// codeOf returns a valid code of the provider for a user. It can be exchanged any
// number of times.
func codeOf(user string) string { return rand.Text() + "-code-of-" + user }

// provider returns the part of a Caddyfile that uses the gateway as an OAuth
// provider.
func (g *gateway) provider(id int, more string) string { return providerAt(g.URL, id, more) }

func providerAt(url string, id int, more string) string {
	return fmt.Sprintf(`
		oauth %d oauth2 {
			token_url %s/token
			userinfo_url %[2]s/user
			subject id
			email email verified
			client_id me
			client_secret hidden-client-secret
			redirect_uri %s
			%s
		}
	`, id, url, callback, more)
}

// behave sets how the gateway answers from now on; nil means correctly.
func (g *gateway) behave(answers http.HandlerFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = answers
	if answers == nil {
		close(g.release)
		g.release = make(chan struct{})
	}
}

// hang answers when the gateway behaves again, or returns when the client is gone.
func (g *gateway) hang(_ http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	release := g.release
	g.mu.Unlock()
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

func (g *gateway) last(field string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	value, _ := g.messages[len(g.messages)-1][field].(string)
	return value
}

func (g *gateway) count(path string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked[path]
}

// unavailable checks that the answer reports a failed gateway.
func (a answer) unavailable() {
	a.t.Helper()
	a.want(wire.ErrUnavailable).wantError(nil, nil)
}

// gatewayTries is how many accounts TestGatewaysMayFail has for each case.
const gatewayTries = 3

// If a gateway fails, the answer is service.unavailable, within the gateway's
// timeout. The code or link that it received is void but counts towards the budgets.
// Nothing else remains.
func TestGatewaysMayFail(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	misbehaviours := map[string]http.HandlerFunc{
		"slow": g.hang,
		"drip": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = http.NewResponseController(w).Flush()
			g.hang(w, r)
		},
		"refused": nil,
	}
	var companies string
	for company, url := range map[string]string{"up": g.URL, "refused": nobodyListens(t)} {
		webhook := func(path string) string {
			return "webhook " + url + path + " {\nsecret " + smsSecret + "\ntimeout 1s\n}\n"
		}
		companies += "company " + company + " {\napi_key " + testKey + "\ncaptcha off\nsms " + webhook("/sms") + "mail " + webhook("/mail") + `
			limits {
				sms_per_account 3/10m
				mails_per_account 2/1h
				failures_per_address 1000/5m
				logins_per_address 1000/1m
			}
		`
		for i, name := range slices.Sorted(maps.Keys(misbehaviours)) {
			for try := range gatewayTries {
				companies += fmt.Sprintf("account %s-%d {\nemail %[1]s-%[2]d@example.com\nphone +3706000%[3]d%03[2]d\n}\n", name, try, i)
			}
		}
		companies += "}\n"
	}
	s := startSite(t, siteConfig{company: "captcha off", more: companies})
	// each runs f for each way to fail, with the company for it. If f returns false because a
	// gateway that works was late, f runs again with another account.
	each := func(name string, f func(company, account string, fail, heal func()) bool) {
		s.run(name, func(*testing.T) {
			for how, fails := range misbehaviours {
				s.run(how, func(*testing.T) {
					company := "up"
					if fails == nil {
						company = "refused"
					}
					for try := range gatewayTries {
						if f(company, fmt.Sprint(how, "-", try), func() { g.behave(fails) }, func() { g.behave(nil) }) {
							return
						}
					}
					s.t.Error("a gateway that works is always late")
				})
			}
		})
	}
	late := func(a answer) bool { return a.fails(wire.ErrUnavailable) && a.took > 900*time.Millisecond }
	open := func(company, account string, want int) {
		s.t.Helper()
		if got := len(s.sessionsOf(company, account)); got != want {
			s.t.Errorf("%d sessions, want %d", got, want)
		}
	}

	each("SMS", func(company, account string, fail, heal func()) bool {
		post := func(route, token string, body fields) answer { return s.postTo(company, testKey, route, token, body) }
		login := func() answer { return post("auth/login", "", fields{"login_id": account + "@example.com"}) }
		fail()
		s.timely(login).unavailable()
		open(company, account, 0)
		heal()
		if company == "refused" {
			login().unavailable()
			login().unavailable()
			login().want(wire.ErrRestricted) // each failure was counted
			return true
		}
		a := login()
		if late(a) {
			return false
		}
		a.wantState(record.CheckOTP)
		first := g.last("code")
		fail()
		s.timely(func() answer { return post("auth/renewotp", a.token(), nil) }).unavailable()
		void := g.last("code")
		heal()
		check := func(code string) answer { return post("auth/checkotp", a.token(), fields{"otp": code}) }
		if strings.HasPrefix(account, "drip") {
			check(void).want(wire.ErrOTPInvalid) // which spends the first
			check(first).want(wire.ErrOTPInvalid)
			post("auth/renewotp", a.token(), nil).want(wire.ErrRestricted) // this would be the fourth
		} else {
			check(first).wantState(record.Authorized)
		}
		open(company, account, 1)
		return true
	})
	each("mail", func(company, account string, fail, heal func()) bool {
		post := func(route string, body fields) answer { return s.postTo(company, testKey, route, "", body) }
		recovery := func() answer {
			return post("auth/recovery/recover", fields{"login_id": account + "@example.com", "captcha_response": "any", "method": "MAIL"})
		}
		link := func() fields {
			_, token, _ := strings.Cut(g.last("link"), "#")
			return fields{"token": token}
		}
		sessions := len(s.sessionsOf(company, account))
		fail()
		s.timely(recovery).unavailable()
		heal()
		open(company, account, sessions)
		if company == "refused" {
			recovery().unavailable()
			recovery().want(wire.ErrRestricted)
			return true
		}
		post("auth/recovery/checklink", link()).want(wire.ErrTokenInvalid)
		a := recovery()
		if late(a) {
			return false
		}
		a.wantState(record.None)
		post("auth/recovery/checklink", link()).wantState(record.RecoveryPassword)
		recovery().want(wire.ErrRestricted) // this would be the third
		return true
	})
}

// With a dead, a slow and a healthy gateway, every login gets its code, once, and is charged
// for one SMS. 95 of 100 logins wait for it less than 3 s.
func TestACodeGoesThroughTheNextGateway(t *testing.T) {
	t.Parallel()
	const logins = 40
	slow := guesttest.Serve(t, http.HandlerFunc(guesttest.Hang))
	healthy := newWebhookSink(t)
	company := strings.Replace(roomy, "sms_per_account 1000/10m", "sms_per_account 2/10m", 1)
	for _, g := range [][3]string{{"dead", nobodyListens(t), "1s"}, {"slow", slow.URL, "1s"}, {"healthy", healthy.URL, "5s"}} {
		company += fmt.Sprintf("sms webhook %s {\nname %s\nsecret %s\ntimeout %s\n}\n", g[1], g[0], smsSecret, g[2])
	}
	for i := range logins {
		company += account(fmt.Sprint("user-", i), fmt.Sprintf("phone +370600000%02d\nsecond_factor", i))
	}
	s := startSite(t, siteConfig{company: company})
	var mu sync.Mutex
	var waited []time.Duration
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	for i := range logins {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			token := s.post("auth/login", "", fields{"login_id": fmt.Sprint("user-", i)}).wantState(record.CheckPassword).token()
			watch := storetest.StartWatch()
			coded := s.post("auth/checkpassword", token, fields{"password": testPassword}).wantState(record.CheckOTP)
			took := watch.Took()
			s.post("auth/checkotp", coded.token(), fields{"otp": healthy.codeTo(fmt.Sprintf("+370600000%02d", i))}).wantState(record.Authorized)
			mu.Lock()
			defer mu.Unlock()
			waited = append(waited, took)
		})
	}
	all.Wait()
	slices.Sort(waited)
	if len(waited) != logins || len(healthy.of("otp.login")) != logins {
		t.Fatalf("%d logins and %d codes", len(waited), len(healthy.of("otp.login")))
	}
	t.Logf("half of the logins had the code within %v, 95 %% within %v", waited[logins/2], waited[logins*95/100])
	if waited[logins*95/100] > 3*time.Second {
		t.Errorf("95 %% of the logins had the code only within %v", waited[logins*95/100])
	}
	metrics := s.scrape()
	count := func(gateway, result string) (n float64) {
		for series, value := range metrics {
			if strings.HasPrefix(series, "mnemogate_messages_total{") && strings.Contains(series, `gateway="`+gateway+`"`) && strings.Contains(series, `result="`+result+`"`) {
				n += value
			}
		}
		return n
	}
	if n := count("healthy", "accepted"); n != logins {
		t.Errorf("the healthy gateway took %v", n)
	}
	if count("dead", "failed") == 0 || count("slow", "failed") == 0 || count("healthy", "failed") != 0 {
		t.Errorf("failures: %v", metrics)
	}
	s.eventually("the gateway in the audit log", func() bool { return strings.Contains(s.log(), `"gateway":"healthy"`) })
	for _, gateway := range []string{"dead", "slow"} {
		s.tells(`"gateway":"` + gateway + `","error":"`)
		if out := s.cli("", "doctor").out; !strings.Contains(strings.Join(strings.Fields(out), " "), "messages were not taken by the gateway "+gateway) {
			t.Errorf("doctor does not say that %s fails:\n%s", gateway, out)
		}
	}
	again := s.credentials("user-0", testPassword).wantState(record.CheckOTP)
	s.post("auth/checkotp", again.token(), fields{"otp": healthy.codeTo("+37060000000")}).wantState(record.Authorized)
	s.credentials("user-0", testPassword).want(wire.ErrRestricted) // a third SMS
}

// What a gateway answers for good is not asked of another one. A phone that none serves gets
// no code.
func TestGatewaysOfCountries(t *testing.T) {
	t.Parallel()
	dutch, others := newWebhookSink(t), newWebhookSink(t)
	gateway := func(sink *webhookSink, block string) string {
		return fmt.Sprintf("sms webhook %s {\nsecret %s\n%s\n}\n", sink.URL, smsSecret, block)
	}
	s := startSite(t, siteConfig{company: roomy + gateway(dutch, "countries +31") + gateway(others, "countries +370\nheader X-Name dutch") +
		account("anna", "phone +31612345678\nsecond_factor") + account("jonas", "phone +37060000001\nsecond_factor") + account("max", "phone +4915112345678\nsecond_factor")})
	s.credentials("anna", testPassword).wantState(record.CheckOTP)
	s.credentials("jonas", testPassword).wantState(record.CheckOTP)
	if len(dutch.of("otp.login")) != 1 || len(others.of("otp.login")) != 1 {
		t.Errorf("%d and %d messages", len(dutch.of("otp.login")), len(others.of("otp.login")))
	}
	s.admin("POST", "contacts", fields{"phone": "+37060000009"}).wantStatus(http.StatusAccepted)
	first, second := "127.0.0.1", strings.TrimPrefix(others.URL, "http://") // two on one host
	s.eventually("the gateways in the audit log", func() bool {
		lines := strings.Split(s.log(), "\n")
		has := func(event, country, gateway string) bool {
			return slices.ContainsFunc(lines, func(line string) bool {
				return strings.Contains(line, event) && strings.Contains(line, `"country":"`+country+`"`) && strings.Contains(line, `"gateway":"`+gateway+`"`)
			})
		}
		return has("checkcredentials", "+31", first) && has("checkcredentials", "+370", second) && has("contact.code_sent", "+370", second)
	})
	s.credentials("max", testPassword).want(wire.ErrRestricted).wantReason("limit.sms_country")
	dutch.answer(http.StatusBadRequest)
	s.credentials("anna", testPassword).want(wire.ErrUnavailable)
	if len(others.of("otp.login")) != 1 {
		t.Error("a message that was refused went to another gateway")
	}
}

// A notice that waits for a gateway goes through the one that a reload puts in its place.
func TestANoticeFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	down := newGateway(t)
	down.behave(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	company := roomy + account("alice", "phone +37060000001\nmust_set_password")
	s := startSite(t, siteConfig{company: company + "sms webhook " + down.URL + "/sms {\nsecret " + smsSecret + "\n}\n"})
	s.post("auth/setpassword", s.credentials("alice", testPassword).token(), fields{"new_password": "a much better secret"}).wantState(record.Authorized)
	must(t, s.reload(siteConfig{company: company}))
	s.eventually("the notice", func() bool { return len(s.sms.of("notice.password_changed")) == 1 })
}

// If the SMS gateway of a company hangs, only codes of this company are lost. Its
// notices are sent, and so are all messages of other companies. The lost codes are
// counted, and the log names their accounts.
func TestASlowGatewayDropsOnlyItsCompanysCodes(t *testing.T) {
	t.Parallel()
	const recoveries, atOnce = 300, 256
	slow := newGateway(t)
	slow.behave(slow.hang)
	defer slow.behave(nil)
	owner := func(name string) string { return account(name, "email "+name+"@example.com\nmust_set_password") }
	acme := roomy + "hardened\nsms webhook " + slow.URL + "/sms {\nsecret " + smsSecret + "\ntimeout 20s\n}\n" + owner("alice")
	for i := range recoveries {
		acme += fmt.Sprintf("account user-%d {\nphone +3706001%04[1]d\n}\n", i)
	}
	s := startSite(t, siteConfig{
		company: acme,
		more: "company umbrella {\napi_key " + testKey + "\nhardened\n" + roomy + account("bob", "phone +37060000002") + "}\n" +
			"company zeta {\napi_key " + testKey + "\n" + roomy + owner("carol") + "}\n",
	})
	recover := func(company, loginID string) answer {
		return s.postTo(company, testKey, "auth/recovery/recover", "", fields{"login_id": loginID, "captcha_response": "any", "method": "PHONE"})
	}
	for _, a := range storm(recoveries, func(i int) answer { return recover("acme", fmt.Sprintf("+3706001%04d", i)) }) {
		a.wantStatus(http.StatusOK)
	}
	const dropped = "mnemogate_messages_dropped_total"
	if n := s.scrape()[dropped+`{company="acme"}`]; n != recoveries-atOnce {
		t.Errorf("%v messages of acme were dropped, want %d", n, recoveries-atOnce)
	}
	setPassword := func(company, loginID string) {
		token := s.postTo(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword}).
			wantState(record.SetPassword).token()
		s.postTo(company, testKey, "auth/setpassword", token, fields{"new_password": "a much better secret"}).wantState(record.Authorized)
	}
	recover("umbrella", "+37060000002").wantState(record.RecoveryOTP)
	setPassword("zeta", "carol")
	setPassword("acme", "alice")
	s.eventually("the messages of umbrella and zeta, and acme's notice", func() bool {
		return len(s.sms.of("otp.recovery")) == 1 && len(s.sms.of("notice.password_changed")) == 2
	})
	for _, company := range []string{"umbrella", "zeta"} {
		if n, told := s.scrape()[dropped+`{company="`+company+`"}`]; n != 0 || !told {
			t.Errorf("%v messages of %s were dropped (%t), want 0", n, company, told)
		}
	}
	s.eventually("a line of the log for each message", func() bool {
		return strings.Count(s.log(), "a message was dropped") == recoveries-atOnce
	})
	for line := range strings.Lines(s.log()) {
		if !strings.Contains(line, "a message was dropped") {
			continue
		}
		for _, want := range []string{`"company":"acme"`, `"mnemocode":"user-`, `"type":"otp.recovery"`, "find out why the gateway is slow"} {
			if !strings.Contains(line, want) {
				t.Errorf("%q does not hold %s", line, want)
			}
		}
		if strings.Contains(line, "+370") {
			t.Errorf("a phone is logged: %q", line)
		}
	}
}
