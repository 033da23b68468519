package integration

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// leakSite is configured as the pages recommend: secrets are placeholders, and the log
// has the filter of docs/security.md, at FILTER. The autosaved config is on.
const leakSite = `{
	admin unix/DIR/admin.sock
	auto_https off
	servers {
		trusted_proxies static 127.0.0.1
	}
	metrics
	log default {
		output stderr
		level DEBUG
		FILTER
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
	handle /check {
		mnemogate {
			check /check
			assertion leak
		}
	}
	handle /torn {
		mnemogate {
			assertion leak
			forward email phone
		}
		reverse_proxy GATEWAY {
			header_up X-Gateway-Key {env.LEAK_HEADER}
		}
	}
	handle {
		mnemogate {
			forward_authorization
		}
		reverse_proxy /dead 127.0.0.1:1
		reverse_proxy BACKEND
	}
}
`

// A leakTest knows every secret that it sent or received.
type leakTest struct {
	*site
	mu      sync.Mutex
	secrets map[string]string // what each secret is
	events  bytes.Buffer      // the bodies of the events that were sent
	last    map[string]string // the newest code or link, by type of message
	broken  []string          // the paths of services that fail and repeat everything that they received
	failed  map[string]bool   // the paths of those that did
}

// secret creates a unique secret.
func (l *leakTest) secret(what string) string {
	return l.note(what, "leak"+strings.ToLower(rand.Text()))
}

// note records a secret that was created elsewhere.
func (l *leakTest) note(what, secret string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if secret != "" {
		l.secrets[secret] = what
	}
	return secret
}

// ServeHTTP is every server that Caddy sends requests to. The responses of those that are
// broken leak as much as possible.
func (l *leakTest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	said := fmt.Sprintf("%s %v %s", r.URL, r.Header, body)
	form, _ := url.ParseQuery(string(body))
	l.mu.Lock()
	broken := slices.Contains(l.broken, r.URL.Path)
	l.failed[r.URL.Path] = l.failed[r.URL.Path] || broken
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
		if first {
			answer(http.StatusInternalServerError, said)
		}
	case r.URL.Path == "/torn": // its answer breaks off, so Caddy logs the request that it has sent
		l.note("an assertion", r.Header.Get("X-Mnemogate-Assertion"))
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
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
	case r.URL.Path == "/user" && broken:
		answer(http.StatusInternalServerError, said)
	case r.URL.Path == "/user":
		answer(http.StatusOK, fields{"id": "alice-at-provider", "name": said})
	}
}

// call posts to a company and records the token in the answer.
func (l *leakTest) call(company, key, route, token string, body fields) answer {
	l.t.Helper()
	a := l.do(keyed(l.postRequest(company, key, route, token, body), l.secret("an Idempotency-Key")))
	l.note("a session token", a.str("session_token"))
	return a
}

// latest returns the code or link token in the newest message of a type.
func (l *leakTest) latest(kind string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[kind]
}

// Every kind of secret passes through a Caddy with verbose logs, on paths that
// succeed and paths that fail. None of them appears in what Caddy writes.
func TestNoSecretIsEverWritten(t *testing.T) {
	t.Parallel()
	l := &leakTest{secrets: map[string]string{}, last: map[string]string{}, failed: map[string]bool{}}
	gateway := guesttest.Serve(t, l)
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
	filter := regexp.MustCompile(`(?s)format filter \{.*?\n\t\t\}`).FindString(pages(t)["docs/security.md"])
	l.site = startCaddyfile(t, strings.NewReplacer("GATEWAY", gateway.URL, "FILTER", filter).Replace(leakSite), env)

	breaks := func(paths ...string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.broken = paths
	}
	for _, broken := range [][]string{{}, {"/captcha", "/token"}, {"/sms", "/mail", "/user"}} {
		breaks(broken...)
		l.exerciseLogins(key, oldPassword)
		l.exerciseRecoveries(key, oldAnswer)
		l.exerciseProviders(key)
		l.exerciseMistakes(key)
		l.exercisePanics(key)
		for _, path := range broken {
			l.eventually("failure of "+path, func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.failed[path]
			})
		}
	}
	breaks()
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
	l.searchFiles() // while the WAL exists
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
	for _, said := range []string{`"mnemogate.audit"`, `"http.log.access`, `"X-Mnemogate-Assertion":["REDACTED"]`, `"http.log.error`, `mnemogate.setpassword.success`,
		"aborting with incomplete response", "a service did not answer", "an event was not delivered", "internal error; please report it", "a provider did not confirm a login"} {
		if !strings.Contains(all, said) {
			t.Errorf("the logs have no %s: not all was tried", said)
		}
	}
	for _, person := range []string{"alice@example.com", "37060000001", "37060000002", "37060000003", "37060000009"} {
		l.note("a phone or an email", person)
	}
	l.search("a log or an event", append(events, all...), true)
	if autosave := l.fileText("config/caddy/autosave.json"); !strings.Contains(autosave, "{env.LEAK_PASSWORD}") {
		t.Error("the config was not autosaved")
	}
}

// fileText reads a file in the site's directory.
func (l *leakTest) fileText(name string) string {
	l.t.Helper()
	content := get(os.ReadFile(filepath.Join(l.dir, name)))(l.t)
	return string(content)
}

// searchFiles searches all files that Caddy has written. A store may contain hashes
// of tokens, and login ids.
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
	must(l.t, err)
}

// search looks for every secret in every form that it could have. If strict is true,
// it also looks for hashes of tokens.
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

func (l *leakTest) captcha() string {
	return l.note("a captcha response", "leakgood"+strings.ToLower(rand.Text()))
}

// exerciseLogins fails in all ways, and succeeds unless a service is broken.
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
		return // the captcha or the gateway is broken
	}
	token = a.token()
	l.call("acme", key, "auth/checkotp", token, fields{"otp": l.note("a wrong code", "90909"+digits(5))})
	l.call("acme", key, "auth/checkotp", token, fields{"backup_code": l.note("a wrong backup code", rand.Text()[:10])})
	l.call("acme", key, "auth/renewotp", token, nil)
	token = l.call("acme", key, "auth/checkotp", token, fields{"otp": l.latest("otp.login")}).wantState(record.SetPassword).token()
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": "no" + l.secret("a weak password")}).want(wire.ErrQuality)
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": password}).want(wire.ErrPasswordSame)
	l.call("acme", key, "auth/logout", token, nil).wantState(record.None)
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
		l.call("acme", key, "auth/recovery/checkotp", token, fields{"otp": l.note("a wrong code", "80808"+digits(5))}).want(wire.ErrOTPInvalid)
		l.call("acme", key, "auth/recovery/renewotp", token, nil)
		l.call("acme", key, "auth/recovery/checkotp", token, fields{"otp": l.latest("otp.recovery")}).wantState(record.RecoveryPassword)
	}
	if token := recover("QUESTION"); token != "" {
		l.call("acme", key, "auth/recovery/checkquestion", token, fields{"control_answer": l.secret("a wrong answer")}).want(wire.ErrAnswerInvalid)
		l.call("acme", key, "auth/recovery/checkquestion", token, fields{"control_answer": answer}).wantState(record.RecoveryPassword)
	}
}

func (l *leakTest) exerciseProviders(key string) {
	login := func(code, redirect string) answer {
		return l.call("acme", key, "auth/oauth", "", fields{"provider_id": 1, "code": code, "redirect_uri": redirect,
			"code_verifier": l.note("a code verifier", rand.Text()+rand.Text()), "nonce": l.secret("a nonce")})
	}
	const callback = "https://app.example.com/callback"
	login(l.secret("a bad authorization code"), callback).want(wire.ErrOAuthFailed)
	login(l.secret("a bad authorization code"), "https://evil.example.com/?x="+l.secret("a redirect_uri")).want(wire.ErrOAuthFailed)
	login(l.note("an authorization code", "good"+rand.Text()), callback)
}

// exerciseMistakes sends secrets in the wrong places.
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
	a.want(wire.ErrService)
	l.note("what a panic holds", panicSecret)
}

// exerciseSuccesses completes every flow.
func (l *leakTest) exerciseSuccesses(key string) {
	fresh := l.secret("a new password")
	l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.captcha(), "method": "MAIL"}).wantField("verification", "MAIL")
	token := l.call("acme", key, "auth/recovery/checklink", "", fields{"token": l.latest("recovery.link")}).wantState(record.RecoveryPassword).token()
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": fresh}).wantState(record.None)
	token = l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice", "password": fresh}).wantState(record.Authorized).token()
	l.get("/", token)
	r := l.getRequest("/dead", token)
	r.Header.Set("X-Api-Key", key)
	l.do(r).wantStatus(http.StatusBadGateway)
	if torn, err := client.Do(l.getRequest("/torn", token)); err == nil {
		_, err = io.ReadAll(torn.Body)
		torn.Body.Close()
		if err == nil {
			l.t.Errorf("an answer did not break off: %v", torn)
		}
	}
	r = l.getRequest("/check", token)
	for name, value := range map[string]string{"Method": "GET", "Host": "example.com", "Uri": "/orders"} {
		r.Header.Set("X-Forwarded-"+name, value)
	}
	if l.note("an assertion", l.do(r).wantStatus(http.StatusNoContent).Header.Get("X-Mnemogate-Assertion")) == "" {
		l.t.Error("nothing is asserted")
	}
	l.call("acme", key, "auth/logout", token, nil).wantState(record.None)
	token = l.call("acme", key, "auth/oauth", "", fields{"provider_id": 1, "code": l.note("an authorization code", "good"+rand.Text()),
		"redirect_uri": "https://app.example.com/callback"}).wantState(record.Authorized).token()
	l.get("/", token)
}

// exerciseCommands passes secrets to commands.
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
	l.admin("POST", "accounts", fields{"profile_mnemocode": "dave", "login_name": "dave", "password": wrong,
		"control_question": "Cat?", "control_answer": l.secret("an answer set by an administrator")}).wantStatus(http.StatusCreated)
	l.admin("PATCH", "accounts/dave", fields{"password": right, "primary_phone": "+37060000009"}).wantStatus(http.StatusOK)
	sent := l.admin("POST", "contacts", fields{"phone": "+37060000008"}).wantStatus(http.StatusAccepted)
	confirm := fields{"contact_token": l.note("a contact token", sent.str("contact_token")), "code": l.latest("contact.code")}
	proof := l.admin("POST", "contacts/confirm", confirm).wantStatus(http.StatusOK)
	l.admin("PATCH", "accounts/dave", fields{"primary_phone": "+37060000008", "phone_proof": l.note("a proof", proof.str("proof"))}).wantStatus(http.StatusOK)
	for _, bad := range []fields{
		{"password": []string{l.secret("a misplaced secret")}},
		{l.secret("a misplaced secret"): 1},
		{"password_hash": l.secret("a bad hash")},
		{"status": l.secret("a misplaced secret")},
	} {
		l.admin("PATCH", "accounts/dave", bad).wantStatus(http.StatusBadRequest)
	}
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": right}).wantState(record.Authorized)
	codes := l.admin("POST", "accounts/dave/backup-codes", nil).wantStatus(http.StatusOK).JSON["backup_codes"].([]any)
	for _, code := range codes {
		l.note("a backup code", code.(string))
		l.note("a backup code", strings.NewReplacer("-", "", " ", "").Replace(code.(string)))
	}
	l.admin("PATCH", "accounts/dave", fields{"second_factor": true}).wantStatus(http.StatusOK)
	token := l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": right}).wantState(record.CheckOTP).token()
	l.call("acme", key, "auth/checkotp", token, fields{"backup_code": codes[0]}).wantState(record.Authorized)
	l.exerciseApp(key, right)
	l.adminRaw("POST", "acme/import", `{"profile_mnemocode":"erin","login_name":"erin","password":"`+l.secret("an imported password")+`"}
{"profile_mnemocode":"frank","login_name":"frank","password_hash":"`+l.secret("a bad hash")+`"}
{"profile_mnemocode":"`+l.secret("a misplaced secret")+`{}","password":"`+l.secret("an imported password")+`"}
`+l.secret("a misplaced secret")+"\n").wantStatus(http.StatusOK)
	l.admin("POST", "accounts/dave/unlock", nil).wantStatus(http.StatusOK)
	l.admin("DELETE", "accounts/dave/sessions", nil).wantStatus(http.StatusNoContent)
	l.admin("DELETE", "accounts/dave", nil).wantStatus(http.StatusNoContent)
}

// exerciseApp logs in with an authenticator app.
func (l *leakTest) exerciseApp(key, password string) {
	secret := l.note("the secret of an app", l.admin("POST", "accounts/dave/totp", nil).wantStatus(http.StatusOK).str("secret"))
	raw := get(tokens.ParseTOTPSecret(secret))(l.t)
	l.note("the secret of an app", string(raw))
	l.admin("POST", "accounts/dave/totp/confirm", fields{"code": appShows(l.t, secret, 0)}).wantStatus(http.StatusOK)
	token := l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": password}).wantState(record.CheckOTP).token()
	l.call("acme", key, "auth/checkotp", token, fields{"otp": appShows(l.t, secret, 30*time.Second)}).wantState(record.Authorized)
	for path, body := range map[string]fields{
		"password":       {"current_password": l.secret("a wrong current password"), "new_password": l.secret("a new password")},
		"check-password": {"current_password": password, l.secret("a misplaced secret"): "x"},
	} {
		if a := l.admin("POST", "accounts/dave/"+path, body); a.Status < 400 {
			l.t.Errorf("%s: %d", path, a.Status)
		}
	}
}

// exerciseBadConfig loads configs with invalid secrets.
func (l *leakTest) exerciseBadConfig() string {
	var output strings.Builder
	good := l.config
	for _, change := range [][2]string{
		{"api_key {env.LEAK_KEY}", "api_key {env.LEAK_BAD}"},
		{"sms webhook", "locale ?\n\t\tsms webhook"},
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
