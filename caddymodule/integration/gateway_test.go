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

// misbehaviours returns the ways in which a gateway can fail, by name.
func (g *gateway) misbehaviours() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"slow":  g.hang,
		"error": guesttest.Answering(http.StatusInternalServerError, ""),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"huge": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
		"drip": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = http.NewResponseController(w).Flush()
			g.hang(w, r)
		},
		"garbage":     guesttest.Raw("\x00\x01\x02 this is no HTTP\r\n\r\n"),
		"no answer":   guesttest.Raw(""),
		"half a line": guesttest.Raw("HTTP/1.1 200"),
	}
}

// unavailable checks that the answer reports a failed gateway.
func (a answer) unavailable() {
	a.t.Helper()
	a.want(wire.ErrUnavailable).wantError(nil, nil)
}

// If a gateway fails, the answer is service.unavailable, within the gateway's
// timeout. The code or link that it received is void but counts towards the budgets.
// Nothing else remains.
func TestGatewaysMayFail(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	misbehaviours := g.misbehaviours()
	names := slices.Sorted(maps.Keys(misbehaviours))
	names = append(names, "refused")
	webhook := func(url string) string {
		return `webhook ` + url + ` {
			secret ` + smsSecret + `
			timeout 300ms
		}
		`
	}
	// at configures a company that uses the gateways at url.
	at := func(url, captcha string) string {
		config := `api_key ` + testKey + `
		sms ` + webhook(url+"/sms") + `mail ` + webhook(url+"/mail") + captcha + `
		limits {
			sms_per_account 3/10m
			mails_per_account 2/1h
			failures_per_address 1000/5m
			logins_per_address 1000/1m
		}
		` + providerAt(url, 2, "timeout 300ms")
		for i, name := range names {
			name = strings.ReplaceAll(name, " ", "-")
			config += fmt.Sprintf("account %s {\nlogin %[1]s\nemail %[1]s@example.com\nphone +3706000%04d\nquestion Cat? Whiskers\nidentity 2 %[1]s\n}\n", name, i)
		}
		return config
	}
	captcha := func(url string) string {
		return "captcha siteverify " + url + "/captcha hidden-captcha-secret {\ntimeout 300ms\n}"
	}
	refused := nobodyListens(t)
	s := startSite(t, siteConfig{
		company: "captcha off",
		more: "company up {\n" + at(g.URL, "captcha off") + "}\n" +
			"company refused {\n" + at(refused, "captcha off") + "}\n" +
			"company up-human {\n" + at(g.URL, captcha(g.URL)) + "}\n" +
			"company refused-human {\n" + at(refused, captcha(refused)) + "}\n",
	})
	// each runs f once for each way to fail, with the company for it.
	each := func(name, kind string, f func(company, account string, fail, heal func())) {
		s.run(name, func(*testing.T) {
			for _, how := range names {
				s.run(how, func(*testing.T) {
					company := "up" + kind
					if how == "refused" {
						company = "refused" + kind
					}
					f(company, strings.ReplaceAll(how, " ", "-"), func() { g.behave(misbehaviours[how]) }, func() { g.behave(nil) })
				})
			}
		})
	}
	open := func(company, account string, want int) {
		s.t.Helper()
		if got := len(s.sessionsOf(company, account)); got != want {
			s.t.Errorf("%d sessions, want %d", got, want)
		}
	}

	each("SMS", "", func(company, account string, fail, heal func()) {
		post := func(route, token string, body fields) answer { return s.postTo(company, testKey, route, token, body) }
		login := func() answer { return post("auth/login", "", fields{"login_id": account}) }
		fail()
		s.timely(login).unavailable()
		open(company, account, 0)
		heal()
		if company == "refused" {
			login().unavailable()
			login().unavailable()
			login().want(wire.ErrRestricted) // each failure was counted
			return
		}
		a := login().wantState(record.CheckOTP)
		first := g.last("code")
		fail()
		s.timely(func() answer { return post("auth/renewotp", a.token(), nil) }).unavailable()
		void := g.last("code")
		heal()
		for _, code := range []string{first, void} {
			post("auth/checkotp", a.token(), fields{"otp": code}).want(wire.ErrOTPInvalid)
		}
		post("auth/renewotp", a.token(), nil).want(wire.ErrRestricted) // this would be the fourth
		open(company, account, 1)
	})
	each("mail", "", func(company, account string, fail, heal func()) {
		post := func(route string, body fields) answer { return s.postTo(company, testKey, route, "", body) }
		recovery := func() answer {
			return post("auth/recovery/recover", fields{"login_id": account, "captcha_response": "any", "method": "MAIL"})
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
			return
		}
		post("auth/recovery/checklink", link()).want(wire.ErrTokenInvalid)
		recovery().wantState(record.None)
		post("auth/recovery/checklink", link()).wantState(record.RecoveryPassword)
		recovery().want(wire.ErrRestricted) // this would be the third
	})
	each("captcha", "-human", func(company, account string, fail, heal func()) {
		recovery := func() answer {
			return s.postTo(company, testKey, "auth/recovery/recover", "",
				fields{"login_id": account, "captcha_response": "response-of-" + account, "method": "QUESTION"})
		}
		fail()
		s.timely(recovery).unavailable()
		heal()
		open(company, account, 0)
		if company == "refused-human" {
			return
		}
		recovery().wantState(record.RecoveryQuestion)
		recovery().want(wire.ErrCaptchaInvalid) // it was used before
	})
	each("OAuth", "", func(company, account string, fail, heal func()) {
		login := func() answer {
			return s.postTo(company, testKey, "auth/oauth", "", fields{"provider_id": 2, "code": codeOf(account), "redirect_uri": callback})
		}
		sessions := len(s.sessionsOf(company, account))
		fail()
		a := s.timely(login)
		if a.str("error_code") != wire.ErrOAuthFailed.Code {
			a.unavailable()
		} else if account != "redirect" && account != "huge" { // a working provider never gives these answers
			s.t.Errorf("got %d %s", a.Status, a.Body)
		}
		heal()
		open(company, account, sessions)
		if company != "refused" {
			login().wantState(record.Authorized)
		}
	})
	if n := g.count("/elsewhere"); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
	s.wantNoneLogged("hidden-captcha-secret", "hidden-client-secret", "code-of-", "response-of-")
}
