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
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// leakSite is configured as docs/configuration.md recommends: secrets are
// placeholders, and the access log omits X-Api-Key. The autosaved config is on.
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
		format filter {
			wrap json
			fields {
				request>headers>X-Api-Key delete
				request>headers>Idempotency-Key delete
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
	handle /check {
		mnemogate {
			check /check
			assertion leak
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
		"a service did not answer", "an event was not delivered", "internal error; please report it", "a provider did not confirm a login"} {
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
