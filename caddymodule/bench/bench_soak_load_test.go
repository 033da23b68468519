package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// The load of BenchmarkSoak: users that come and go, and what they are answered.

const (
	soakUsers = 50  // with a password; and as many with a phone alone
	soakMost  = 200 // sessions
)

// A soakSMS is the gateway: it knows the last code of each phone.
type soakSMS struct {
	url   string
	codes sync.Map
}

func startSoakSMS(b testing.TB) *soakSMS {
	s := &soakSMS{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message struct{ To, Code string }
		if json.NewDecoder(r.Body).Decode(&message) == nil {
			s.codes.Store(message.To, message.Code)
		}
	}))
	b.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *soakSMS) code(phone string) string {
	code, _ := s.codes.Load(phone)
	text, _ := code.(string)
	return text
}

// A soakLoad is the users of one deployment.
type soakLoad struct {
	name    string
	s       *subject
	sms     *soakSMS
	client  *http.Client
	walking sync.Mutex // one journey at a time

	mu       sync.Mutex
	sessions []*soakSession
	answers  map[string]int // by what came of them
}

type soakSession struct {
	token, user string
	ended       bool // or it may be; guarded by the load's mu
}

func newSoakLoad(name string, s *subject, sms *soakSMS) *soakLoad {
	return &soakLoad{
		name: name, s: s, sms: sms, answers: map[string]int{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 10 * time.Second},
	}
}

// phone is another one on each deployment.
func (l *soakLoad) phone(i int) string { return fmt.Sprintf("+37060%02d%04d", len(l.name), i) }

func phoneUser(i int) string { return fmt.Sprint("phone", i) }
func wordUser(i int) string  { return fmt.Sprint("word", i) }

// prepare makes the accounts and the first sessions, and takes each step once.
func (l *soakLoad) prepare() {
	create := func(user, more string) {
		body := fmt.Sprintf(`{"profile_mnemocode":%q,%s}`, user, more)
		storetest.Eventually(l.s.b, 30*time.Second, "account", func() bool {
			status, _ := l.send(l.s.admin, "POST", "http://localhost/mnemogate/acme/accounts", "", body, nil)
			return status == http.StatusCreated || status == http.StatusConflict
		})
	}
	hash := templateAccount().PasswordHash
	for i := range soakUsers {
		create(wordUser(i), fmt.Sprintf(`"login_name":%q,"password_hash":%q`, wordUser(i), hash))
		create(phoneUser(i), fmt.Sprintf(`"primary_phone":%q`, l.phone(i)))
	}
	for l.live() < soakMost/2 {
		l.loginBySMS(1)
	}
	for _, step := range []func(){l.loginByPassword, l.wrongPassword, l.abandon, l.logout, l.end, l.request} {
		step()
	}
}

// every calls f so often a second, beside calls that still wait, until stop is
// closed.
func every(second time.Duration, stop chan struct{}, f func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		tick := time.NewTicker(time.Second / second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				waiting.Go(f)
			}
		}
	}()
	return done
}

// journey is what one user does.
func (l *soakLoad) journey() {
	if !l.walking.TryLock() {
		return
	}
	defer l.walking.Unlock()
	few, many := l.live() < soakMost/2, l.live() >= soakMost
	switch n := rand.IntN(60); {
	case n < 6:
		l.wrongPassword()
	case n < 7:
		l.abandon()
	case many || !few && n < 21:
		l.logout()
	case !few && n < 27:
		l.end()
	case n < 39:
		l.loginByPassword()
	default:
		l.loginBySMS(n % 2)
	}
}

func (l *soakLoad) loginByPassword() {
	user := wordUser(rand.IntN(soakUsers))
	token, ok := l.auth("login by password", "checkcredentials", "", fmt.Sprintf(`{"login_id":%q,"password":%q}`, user, testPassword), http.StatusOK)
	l.begun(user, token, ok)
}

func (l *soakLoad) wrongPassword() {
	l.auth("wrong password", "checkcredentials", "",
		fmt.Sprintf(`{"login_id":%q,"password":"wrong %s"}`, wordUser(rand.IntN(soakUsers)), testPassword), http.StatusUnauthorized)
}

// loginBySMS sends so many wrong codes before the right one.
func (l *soakLoad) loginBySMS(wrong int) {
	i := rand.IntN(soakUsers)
	token, ok := l.auth("login by SMS", "login", "", fmt.Sprintf(`{"login_id":%q}`, l.phone(i)), http.StatusOK)
	for range wrong {
		if !ok {
			return
		}
		digits := strings.Map(func(digit rune) rune { return '0' + (digit-'0'+1)%10 }, l.sms.code(l.phone(i)))
		l.auth("wrong code", "checkotp", token, fmt.Sprintf(`{"otp":%q}`, digits), http.StatusUnauthorized)
		_, ok = l.auth("another code", "renewotp", token, "{}", http.StatusOK)
	}
	if ok {
		token, ok = l.auth("code", "checkotp", token, fmt.Sprintf(`{"otp":%q}`, l.sms.code(l.phone(i))), http.StatusOK)
		l.begun(phoneUser(i), token, ok)
	}
}

// abandon leaves a step that expires.
func (l *soakLoad) abandon() {
	l.auth("login by SMS", "login", "", fmt.Sprintf(`{"login_id":%q}`, l.phone(rand.IntN(soakUsers))), http.StatusOK)
}

func (l *soakLoad) logout() {
	s := l.any()
	if s == nil {
		return
	}
	l.ends(func(other *soakSession) bool { return other == s })
	if _, ok := l.auth("logout", "logout", s.token, "{}", http.StatusOK); ok {
		l.refused(s)
	}
}

// end has an operator end all sessions of a user.
func (l *soakLoad) end() {
	s := l.any()
	if s == nil {
		return
	}
	l.ends(func(other *soakSession) bool { return other.user == s.user })
	status, code := l.send(l.s.admin, "DELETE", "http://localhost/mnemogate/acme/accounts/"+s.user+"/sessions", "", "", nil)
	if l.came("ending", status, http.StatusNoContent, code) {
		l.refused(s)
	}
}

// request sends a protected request.
func (l *soakLoad) request() {
	s := l.any()
	if s == nil {
		return
	}
	status, code := l.send(l.client, "GET", "http://"+l.s.addr+"/items/1", s.token, "", nil)
	l.mu.Lock()
	want := http.StatusOK
	if s.ended { // meanwhile
		want = status
	}
	l.mu.Unlock()
	l.came("request", status, want, code)
}

// refused sees that a session has ended.
func (l *soakLoad) refused(s *soakSession) {
	status, code := l.send(l.client, "GET", "http://"+l.s.addr+"/items/1", s.token, "", nil)
	l.came("request after the end", status, http.StatusUnauthorized, code)
}

// Sessions

func (l *soakLoad) live() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sessions)
}

func (l *soakLoad) any() *soakSession {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sessions) == 0 {
		return nil
	}
	return l.sessions[rand.IntN(len(l.sessions))]
}

func (l *soakLoad) begun(user, token string, ok bool) {
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions = append(l.sessions, &soakSession{token: token, user: user})
}

// ends takes sessions out that are about to end.
func (l *soakLoad) ends(which func(*soakSession) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions = slices.DeleteFunc(l.sessions, func(s *soakSession) bool {
		s.ended = s.ended || which(s)
		return s.ended
	})
}

// Answers

// auth calls a route and returns the token of the answer, if it is the one that
// was wanted.
func (l *soakLoad) auth(step, route, token, body string, want int) (issued string, ok bool) {
	var reply struct {
		Token string `json:"session_token"`
	}
	status, code := l.send(l.client, "POST", "http://"+l.s.addr+"/acme/v2/auth/"+route, token, body, &reply)
	return reply.Token, l.came(step, status, want, code)
}

// send returns status 0 where there was no answer.
func (l *soakLoad) send(client *http.Client, method, url, token, body string, reply any) (status int, code string) {
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("X-Api-Key", testKey)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	var answer json.RawMessage
	if json.NewDecoder(response.Body).Decode(&answer) == nil {
		var failure struct {
			Code string `json:"error_code"`
		}
		_ = json.Unmarshal(answer, &failure)
		code = failure.Code
		if reply != nil {
			_ = json.Unmarshal(answer, reply)
		}
	}
	return response.StatusCode, code
}

// came counts an answer and reports whether it was the one that was wanted.
func (l *soakLoad) came(step string, status, want int, code string) bool {
	what := "as wanted"
	switch {
	case status == want:
	case status == 0 || status == http.StatusServiceUnavailable:
		what = "unavailable"
	default:
		what = fmt.Sprintf("%s: %d %s instead of %d", step, status, code, want)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[what]++
	return status == want
}

// told is all that came, and fails the benchmark where something else did than
// should.
func (l *soakLoad) told() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(l.answers)) {
		all = append(all, fmt.Sprintf("%d %s", l.answers[what], what))
	}
	if len(slices.DeleteFunc(slices.Collect(maps.Keys(l.answers)), func(what string) bool { return !strings.Contains(what, ": ") })) > 0 {
		l.s.b.Errorf("%s: %s", l.name, strings.Join(all, ", "))
	}
	return strings.Join(all, ", ")
}
