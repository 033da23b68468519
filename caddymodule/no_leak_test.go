package caddymodule

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
)

// leakSite is configured as docs/configuration.md advises: secrets are placeholders, the
// access log leaves X-Api-Key out. The autosaved config is on.
const leakSite = `{
	admin unix/DIR/admin.sock
	auto_https off
	metrics
	log default {
		output stderr
		level DEBUG
		format filter {
			wrap json
			fields {
				request>headers>X-Api-Key delete
			}
		}
	}
	log audit {
		include mnemogate.audit
		output file DIR/audit.log
		level DEBUG
	}
	events {
		on * mnemogate_test DIR/events.log
	}
	mnemogate {
		store sqlite DIR/mnemogate.db
		captcha siteverify GATEWAY/captcha {env.LEAK_CAPTCHA}
		sms webhook GATEWAY/sms {
			secret {env.LEAK_SMS}
			header X-Gateway-Key {env.LEAK_HEADER}
		}
		mail webhook GATEWAY/mail {
			secret {env.LEAK_MAIL}
		}
		events webhook GATEWAY/events?key={env.LEAK_HEADER} {
			secret {env.LEAK_EVENTS} {env.LEAK_MAIL}
			header X-Gateway-Key {env.LEAK_HEADER}
			retry 100ms
		}
		otp {
			length 10
		}
		password {
			argon2id 64 1 1 insecure
			regex ^leak "begin with leak"
		}
		recovery {
			methods PHONE MAIL QUESTION
			link https://app.example.com/recover#{token}
		}
		limits {
			captcha_after 1
			lock_after 50
			wrong_codes 50/24h
			wrong_answers 50/24h
			failures_per_address 1000/5m
			logins_per_address 1000/1m
			sms_per_account 100/10m
			sms_per_phone 100/24h
			sms_per_address 1000/1h
			mails_per_account 100/1h
		}
		company acme {
			api_key {env.LEAK_KEY}
			oauth 1 oauth2 {
				token_url GATEWAY/token
				userinfo_url GATEWAY/user
				subject id
				client_id us
				client_secret {env.LEAK_CLIENT}
				redirect_uri https://app.example.com/callback
			}
			account alice {
				login alice
				email alice@example.com
				phone +37060000001
				password {env.LEAK_PASSWORD}
				question "Name of your first cat?" {env.LEAK_ANSWER}
				identity 1 alice-at-provider
			}
			account carol {
				login carol
				phone +37060000003
				password {env.LEAK_PASSWORD}
				second_factor
				must_set_password
			}
		}
		company panics {
			api_key {env.LEAK_KEY}
			sms panic
			account bob {
				phone +37060000002
			}
		}
	}
}
http:// {
	bind fd/3
	log
	mnemogate {
		forward_authorization
	}
	reverse_proxy /dead 127.0.0.1:1
	reverse_proxy BACKEND
}
`

// A leakTest knows every secret that went in or came out.
type leakTest struct {
	*site
	mu      sync.Mutex
	secrets map[string]string // what they are, by secret
	events  bytes.Buffer      // the bodies of those that were sent
	last    map[string]string // code or link of a type of message
	broken  bool              // the gateway fails, and says all that it was sent
}

// secret makes a unique one.
func (l *leakTest) secret(what string) string {
	return l.note(what, "leak"+strings.ToLower(rand.Text()))
}

// note remembers one that someone else made.
func (l *leakTest) note(what, secret string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if secret != "" {
		l.secrets[secret] = what
	}
	return secret
}

// ServeHTTP is all that Caddy talks to. Where it fails it is as indiscreet as
// can be.
func (l *leakTest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	said := fmt.Sprintf("%s %v %s", r.URL, r.Header, body)
	form, _ := url.ParseQuery(string(body))
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	l.note("the header for a gateway", r.Header.Get("X-Gateway-Key"))
	switch {
	case r.URL.Path == "/sms" || r.URL.Path == "/mail":
		message := map[string]string{}
		_ = json.Unmarshal(body, &message)
		l.note("a code", message["code"])
		_, token, _ := strings.Cut(message["link"], "#")
		l.note("the token of a link", token)
		l.mu.Lock()
		l.last[message["type"]] = message["code"] + token
		l.mu.Unlock()
		if broken {
			answer(http.StatusInternalServerError, said)
		}
	case r.URL.Path == "/events":
		l.mu.Lock()
		l.events.Write(body)
		first := l.events.Len() == len(body)
		l.mu.Unlock()
		if broken || first {
			answer(http.StatusInternalServerError, said)
		}
	case r.URL.Path == "/captcha" && broken:
		answer(http.StatusOK, fields{"success": false, "error-codes": []string{"invalid-input-secret", said}, "hostname": said})
	case r.URL.Path == "/captcha":
		answer(http.StatusOK, fields{"success": strings.HasPrefix(form.Get("response"), "leakgood"), "error-codes": []string{said}})
	case r.URL.Path == "/token" && broken:
		answer(http.StatusBadRequest, fields{"error": "invalid_client " + said, "error_description": said, "error_uri": said})
	case r.URL.Path == "/token" && strings.HasPrefix(form.Get("code"), "good"):
		answer(http.StatusOK, fields{"access_token": l.secret("an access token"), "token_type": "bearer", "refresh_token": l.secret("a refresh token")})
	case r.URL.Path == "/token":
		answer(http.StatusBadRequest, fields{"error": "invalid_grant", "error_description": said})
	case r.URL.Path == "/user":
		answer(http.StatusOK, fields{"id": "alice-at-provider", "name": said})
	}
}

// call posts to a company and notes the token that comes back.
func (l *leakTest) call(company, key, route, token string, body fields) answer {
	l.t.Helper()
	a := l.postTo(company, key, route, token, body)
	l.note("a session token", a.str("session_token"))
	return a
}

// latest is the code or link token of the newest message of a type.
func (l *leakTest) latest(kind string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[kind]
}

// administer asks the admin API.
func (l *leakTest) administer(method, path string, body any) (int, string) {
	l.t.Helper()
	raw, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			l.t.Fatal(err)
		}
		raw = string(b)
	}
	r, err := http.NewRequestWithContext(l.t.Context(), method, "http://localhost/mnemogate/acme/"+path, strings.NewReader(raw))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.dir+"/admin.sock")
	}
	response, err := (&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}).Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	answered, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return response.StatusCode, string(answered)
}

// Every secret that there is goes through a Caddy that logs all it can, on ways
// that succeed and ways that fail, and none is found again in what it writes.
func TestNoSecretIsEverWritten(t *testing.T) {
	t.Parallel()
	l := &leakTest{secrets: map[string]string{}, last: map[string]string{}}
	gateway := httptest.NewServer(l)
	t.Cleanup(gateway.Close)
	key, oldPassword, oldAnswer := l.secret("the API key"), l.secret("a password"), l.secret("a control answer")
	webhook := func(what string) string {
		return "whsec_" + l.note(what, base64.StdEncoding.EncodeToString([]byte(rand.Text())))
	}
	env := []string{
		"LEAK_KEY=" + key,
		"LEAK_PASSWORD=" + oldPassword,
		"LEAK_ANSWER=" + oldAnswer,
		"LEAK_CAPTCHA=" + l.secret("the captcha secret"),
		"LEAK_SMS=" + webhook("the SMS secret"),
		"LEAK_MAIL=" + webhook("the mail secret"),
		"LEAK_EVENTS=" + webhook("the secret of events"),
		"LEAK_HEADER=" + l.secret("the header for a gateway"),
		"LEAK_CLIENT=" + l.secret("the client secret"),
		"LEAK_BAD=" + l.secret("an API key that can't be") + " with spaces",
	}
	l.site = startCaddyfile(t, strings.ReplaceAll(leakSite, "GATEWAY", gateway.URL), env)

	for _, broken := range []bool{false, true} {
		l.mu.Lock()
		l.broken = broken
		l.mu.Unlock()
		l.exerciseLogins(key, oldPassword)
		l.exerciseRecoveries(key, oldAnswer)
		l.exerciseProviders(key)
		l.exerciseMistakes(key)
		l.exercisePanics(key)
	}
	l.mu.Lock()
	l.broken = false
	l.mu.Unlock()
	l.exerciseSuccesses(key)
	l.exerciseAdmin(key)
	l.exerciseCommands()
	output := l.exerciseBadConfig()
	if len(l.secrets) < 80 {
		t.Errorf("only %d secrets went around", len(l.secrets))
	}

	l.search("the output of caddy reload", []byte(output), true)
	l.search("/metrics", []byte(l.fromAdmin("/metrics")), true)
	l.search("/config/", []byte(l.fromAdmin("/config/")), true)
	l.searchFiles() // with the WAL
	var events []byte
	l.eventually("event of a deletion", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		events = bytes.Clone(l.events.Bytes())
		return bytes.Contains(events, []byte("account.deleted"))
	})
	l.search("an event", events, true)
	l.stop(syscall.SIGTERM)
	l.search("the log", []byte(l.log()), true)
	l.searchFiles()
	all := l.log() + l.fileText("audit.log") + l.fileText("events.log")
	for _, said := range []string{`"mnemogate.audit"`, `"http.log.access`, `"http.log.error`, `mnemogate.setpassword.success`,
		"a service did not answer", "an event was not delivered", "a defect of this program, please report it", "a provider did not confirm a login"} {
		if !strings.Contains(all, said) {
			t.Errorf("the logs have no %s: not all was tried", said)
		}
	}
	if autosave := l.fileText("config/caddy/autosave.json"); !strings.Contains(autosave, "{env.LEAK_PASSWORD}") {
		t.Error("the config was not autosaved")
	}
}

func (l *leakTest) captcha() string {
	return l.note("a captcha response", "leakgood"+strings.ToLower(rand.Text()))
}

// exerciseLogins fails in all ways, and succeeds if the gateway does.
func (l *leakTest) exerciseLogins(key, password string) {
	typed := l.secret("a password typed as login id")
	l.call("acme", key, "auth/login", "", fields{"login_id": typed})
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": typed, "password": l.secret("a wrong password")})
	login := func() string { return l.call("acme", key, "auth/login", "", fields{"login_id": "carol"}).token() }
	token := login()
	l.call("acme", key, "auth/checkpassword", token, fields{"password": l.secret("a wrong password")})
	l.call("acme", key, "auth/checkpassword", token, fields{"password": l.secret("a wrong password"), "captcha_response": l.secret("a wrong captcha response")})
	l.call("acme", key, "auth/checkpassword", token, fields{"password": l.secret("a wrong password"), "captcha_response": l.captcha()})
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice", "password": l.secret("a wrong password"), "captcha_response": l.captcha()})
	a := l.call("acme", key, "auth/checkpassword", token, fields{"password": password, "captcha_response": l.captcha()})
	if a.str("session_token") == "" {
		return // the gateway fails
	}
	token = a.token()
	l.call("acme", key, "auth/checkotp", token, fields{"otp": l.note("a wrong code", "90909"+digits(9))})
	l.call("acme", key, "auth/checkotp", token, fields{"backup_code": l.secret("a wrong backup code")})
	l.call("acme", key, "auth/renewotp", token, nil)
	token = l.call("acme", key, "auth/checkotp", token, fields{"otp": l.latest("otp.login")}).wantState(flows.SetPassword).token()
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": "no" + l.secret("a weak password")}).want(flows.ErrQuality)
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": password}).want(flows.ErrPasswordSame)
	l.call("acme", key, "auth/logout", token, nil).wantState(flows.None)
}

func digits(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	for i := range b {
		b[i] = '0' + b[i]%10
	}
	return string(b)
}

func (l *leakTest) exerciseRecoveries(key, answer string) {
	recover := func(method string) string {
		a := l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.captcha(), "method": method})
		return a.str("session_token")
	}
	l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.secret("a wrong captcha response")})
	l.call("acme", key, "auth/recovery/checklink", "", fields{"token": l.note("a wrong link", "mgl_"+rand.Text()+rand.Text()[:17])})
	recover("MAIL")
	if token := recover("PHONE"); token != "" {
		l.call("acme", key, "auth/recovery/checkotp", token, fields{"otp": l.note("a wrong code", "80808"+digits(9))}).want(flows.ErrOTPInvalid)
		l.call("acme", key, "auth/recovery/renewotp", token, nil)
		l.call("acme", key, "auth/recovery/checkotp", token, fields{"otp": l.latest("otp.recovery")}).wantState(flows.RecoveryPassword)
	}
	if token := recover("QUESTION"); token != "" {
		l.call("acme", key, "auth/recovery/checkquestion", token, fields{"control_answer": l.secret("a wrong answer")}).want(flows.ErrAnswerInvalid)
		l.call("acme", key, "auth/recovery/checkquestion", token, fields{"control_answer": answer}).wantState(flows.RecoveryPassword)
	}
}

func (l *leakTest) exerciseProviders(key string) {
	login := func(code, redirect string) answer {
		return l.call("acme", key, "auth/oauth", "", fields{"provider_id": 1, "code": code, "redirect_uri": redirect,
			"code_verifier": l.note("a code verifier", rand.Text()+rand.Text()), "nonce": l.secret("a nonce")})
	}
	const callback = "https://app.example.com/callback"
	login(l.secret("a bad authorization code"), callback).want(flows.ErrOAuthFailed)
	login(l.secret("a bad authorization code"), "https://evil.example.com/?x="+l.secret("a redirect_uri")).want(flows.ErrOAuthFailed)
	login(l.note("an authorization code", "good"+rand.Text()), callback)
}

// exerciseMistakes puts secrets where they don't belong.
func (l *leakTest) exerciseMistakes(key string) {
	send := func(company, body string, header ...string) {
		r := l.request(http.MethodPost, "/"+company+"/v2/auth/checkpassword", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Api-Key", key)
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		l.do(r)
	}
	secret := func() string { return l.secret("a misplaced secret") }
	live := l.call("acme", key, "auth/login", "", fields{"login_id": "alice"}).token()
	bearer := []string{"Authorization", "Bearer " + live}
	send("acme", `{"password":"`+secret()+`"`, bearer...)
	send("acme", `{"password":["`+secret()+`"]}`, bearer...)
	send("acme", `{"Password":"`+secret()+`","`+secret()+`":1}`, bearer...)
	send("acme", `{"password":"`+secret()+`","password":"`+secret()+`"}`, bearer...)
	send("acme", secret(), bearer...)
	send("acme", `{"password":"x"}`, append(bearer, "X-Api-Key", l.secret("a second API key"))...)
	send("acme", `{"password":"x"}`, "Authorization", "Basic "+secret())
	send("acme", `{"password":"x"}`, "Authorization", "Bearer "+secret())
	l.call("acme", l.secret("a wrong API key"), "auth/login", "", fields{"login_id": "alice"})
	l.call("nobody", l.secret("a wrong API key"), "auth/login", "", fields{"login_id": "alice"})
	for _, path := range []string{"/", "/acme/x", "/dead"} {
		l.get(path, l.secret("a wrong token"))
		r := l.getRequest(path, live)
		r.Header.Set("X-Api-Key", l.secret("an API key on a protected path"))
		l.do(r)
	}
}

func (l *leakTest) exercisePanics(key string) {
	a := l.call("panics", key, "auth/login", "", fields{"login_id": "+37060000002"})
	a.want(flows.ErrService)
	l.note("what a panic holds", panicSecret)
}

// exerciseSuccesses goes to the end of every way.
func (l *leakTest) exerciseSuccesses(key string) {
	fresh := l.secret("a new password")
	a := l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.captcha(), "method": "MAIL"})
	if a.str("verification") != "MAIL" {
		l.t.Fatalf("no link was mailed: %s", a.Body)
	}
	token := l.call("acme", key, "auth/recovery/checklink", "", fields{"token": l.latest("recovery.link")}).wantState(flows.RecoveryPassword).token()
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": fresh}).wantState(flows.None)
	token = l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice", "password": fresh}).wantState(flows.Authorized).token()
	l.get("/", token)
	r := l.getRequest("/dead", token)
	r.Header.Set("X-Api-Key", key)
	if a := l.do(r); a.Status != http.StatusBadGateway {
		l.t.Errorf("/dead: %d", a.Status)
	}
	l.call("acme", key, "auth/logout", token, nil).wantState(flows.None)
	token = l.call("acme", key, "auth/oauth", "", fields{"provider_id": 1, "code": l.note("an authorization code", "good"+rand.Text()),
		"redirect_uri": "https://app.example.com/callback"}).wantState(flows.Authorized).token()
	l.get("/", token)
}

// exerciseCommands hands secrets to commands.
func (l *leakTest) exerciseCommands() {
	said := ""
	run := func(exit int, stdin string, args ...string) {
		l.t.Helper()
		o := l.cli(stdin, append(args, "--company", "acme")...).want(exit)
		said += o.out + o.errs
	}
	line := func(what string) string { return l.secret(what) + "\n" }
	run(0, line("a password typed at a command")+line("an answer typed at a command"),
		"account", "add", "kate", "--login", "kate", "--password", "--question", "Cat?", "--answer")
	run(0, line("a password typed at a command"), "account", "set", "kate", "--password")
	run(1, `{"profile_mnemocode":"lena","password":"`+l.secret("an imported password")+"\"}\n"+
		`{"profile_mnemocode":"mona","password_hash":"`+l.secret("a bad hash")+"\"}\n", "import")
	run(0, "", "account", "show", "kate")
	said += l.cli("", "doctor").out
	l.search("the output of commands", []byte(said), true)
}

func (l *leakTest) exerciseAdmin(key string) {
	wrong, right := l.secret("a password set by an administrator"), l.secret("a password set by an administrator")
	check := func(what string, want, got int, body string) {
		l.t.Helper()
		if got != want {
			l.t.Errorf("%s: got %d %s, want %d", what, got, body, want)
		}
	}
	status, body := l.administer("POST", "accounts", fields{"profile_mnemocode": "dave", "login_name": "dave", "password": wrong,
		"control_question": "Cat?", "control_answer": l.secret("an answer set by an administrator")})
	check("create", http.StatusCreated, status, body)
	status, body = l.administer("PATCH", "accounts/dave", fields{"password": right, "primary_phone": "+37060000009"})
	check("change", http.StatusOK, status, body)
	for _, bad := range []fields{
		{"password": []string{l.secret("a misplaced secret")}},
		{l.secret("a misplaced secret"): 1},
		{"password_hash": l.secret("a bad hash")},
		{"status": l.secret("a misplaced secret")},
	} {
		if status, body = l.administer("PATCH", "accounts/dave", bad); status != http.StatusBadRequest {
			l.t.Errorf("a bad change: got %d %s", status, body)
		}
	}
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": right}).wantState(flows.Authorized)
	status, body = l.administer("POST", "accounts/dave/backup-codes", "")
	check("backup codes", http.StatusOK, status, body)
	var codes struct {
		BackupCodes []string `json:"backup_codes"`
	}
	if err := json.Unmarshal([]byte(body), &codes); err != nil || len(codes.BackupCodes) != 10 {
		l.t.Fatalf("backup codes: %v: %s", err, body)
	}
	for _, code := range codes.BackupCodes {
		l.note("a backup code", code)
		l.note("a backup code", strings.NewReplacer("-", "", " ", "").Replace(code))
	}
	status, body = l.administer("PATCH", "accounts/dave", fields{"second_factor": true})
	check("second factor", http.StatusOK, status, body)
	token := l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": right}).wantState(flows.CheckOTP).token()
	l.call("acme", key, "auth/checkotp", token, fields{"backup_code": codes.BackupCodes[0]}).wantState(flows.Authorized)
	l.exerciseApp(key, right)
	status, body = l.administer("POST", "import", `{"profile_mnemocode":"erin","login_name":"erin","password":"`+l.secret("an imported password")+`"}
{"profile_mnemocode":"frank","login_name":"frank","password_hash":"`+l.secret("a bad hash")+`"}
{"profile_mnemocode":"`+l.secret("a misplaced secret")+`{}","password":"`+l.secret("an imported password")+`"}
`+l.secret("a misplaced secret")+"\n")
	check("import", http.StatusOK, status, body)
	for _, path := range []string{"accounts/dave/unlock", "accounts/dave/sessions"} {
		method := "POST"
		if strings.HasSuffix(path, "sessions") {
			method = "DELETE"
		}
		if status, body = l.administer(method, path, ""); status >= 300 {
			l.t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body = l.administer("DELETE", "accounts/dave", ""); status >= 300 {
		l.t.Errorf("delete: %d %s", status, body)
	}
}

// exerciseApp logs in with an authenticator app.
func (l *leakTest) exerciseApp(key, password string) {
	status, body := l.administer("POST", "accounts/dave/totp", "")
	var made flows.TOTPSecret
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != http.StatusOK {
		l.t.Fatalf("an app: %d %s", status, body)
	}
	raw, err := flows.ParseTOTPSecret(l.note("the secret of an app", made.Secret))
	if err != nil {
		l.t.Fatal(err)
	}
	l.note("the secret of an app", string(raw))
	status, body = l.administer("POST", "accounts/dave/totp/confirm", fields{"code": appShows(l.t, made.Secret, 0)})
	if status != http.StatusOK {
		l.t.Fatalf("an app: %d %s", status, body)
	}
	token := l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": password}).wantState(flows.CheckOTP).token()
	l.call("acme", key, "auth/checkotp", token, fields{"otp": appShows(l.t, made.Secret, 30*time.Second)}).wantState(flows.Authorized)
	for path, body := range map[string]fields{
		"password":       {"current_password": l.secret("a wrong current password"), "new_password": l.secret("a new password")},
		"check-password": {"current_password": password, l.secret("a misplaced secret"): "x"},
	} {
		if status, _ := l.administer("POST", "accounts/dave/"+path, body); status < 400 {
			l.t.Errorf("%s: %d", path, status)
		}
	}
}

// exerciseBadConfig loads configs whose secrets are at fault.
func (l *leakTest) exerciseBadConfig() string {
	var output strings.Builder
	good := l.config
	for _, change := range [][2]string{
		{"api_key {env.LEAK_KEY}", "api_key {env.LEAK_BAD}"},
		{"sms webhook", "mail log\n\t\tsms webhook"},
	} {
		l.config = strings.Replace(good, change[0], change[1], 1)
		if err := l.load(); err != nil {
			output.WriteString(err.Error())
		} else {
			l.t.Errorf("%s was taken", change[1])
		}
	}
	l.config = good
	l.writeCaddyfile()
	return output.String()
}

// fileText reads a file of the site's directory.
func (l *leakTest) fileText(name string) string {
	l.t.Helper()
	content, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(content)
}

// searchFiles searches all that Caddy has written. A store may hold hashes of
// tokens, and login ids.
func (l *leakTest) searchFiles() {
	l.t.Helper()
	err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		l.search(strings.TrimPrefix(path, l.dir+"/"), content, !strings.Contains(path, "mnemogate.db"))
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// search looks for every secret in every form that it could have taken. Strict:
// also for hashes of tokens.
func (l *leakTest) search(where string, content []byte, strict bool) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for secret, what := range l.secrets {
		sum := sha256.Sum256([]byte(secret))
		forms := map[string]string{
			"":                  secret,
			" (escaped)":        url.QueryEscape(secret),
			" (in upper case)":  strings.ToUpper(secret),
			" (in hex)":         hex.EncodeToString([]byte(secret)),
			" (in base64)":      strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="),
			" (in base64, URL)": strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(secret)), "="),
		}
		if strict {
			forms[" (its SHA-256)"] = hex.EncodeToString(sum[:])
			forms[" (its raw SHA-256)"] = string(sum[:])
		}
		for form, text := range forms {
			if at := bytes.Index(content, []byte(text)); at >= 0 {
				l.t.Errorf("%s holds %s%s: …%q", where, what, form, content[max(0, at-120):min(len(content), at+len(text)+40)])
			}
		}
	}
}
