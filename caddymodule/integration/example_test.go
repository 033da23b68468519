package integration

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// startExample runs Caddyfile.example. It replaces its two ports with listeners of
// the test. It removes the admin endpoint, whose port may be in use.
func startExample(t *testing.T) *site {
	profile, file := listener(t)
	return startWith(t, &site{more: []*os.File{file}, unraced: true}, func(s *site) string {
		byName := strings.Replace(s.addr, "127.0.0.1", "localhost", 1)
		return changed(t, string(get(os.ReadFile("../../Caddyfile.example"))(t)),
			"auto_https off", "auto_https off\n\tadmin off",
			"http://:9000 {\n\tbind 127.0.0.1\n", "http:// {\n\tbind fd/4\n",
			"http://127.0.0.1:8080, http://localhost:8080 {\n\tbind 127.0.0.1\n", "http://"+s.addr+", http://"+byName+" {\n\tbind fd/3\n",
			"origins http://localhost:8080", "origins http://"+byName,
			"reverse_proxy 127.0.0.1:9000", "reverse_proxy "+profile,
			"captcha pow\n", "captcha pow 8\n") // makes the work faster
	})
}

// logged waits until a pattern is in the log, and returns the last match of its
// group.
func (s *site) logged(pattern string) string {
	s.t.Helper()
	var found [][]string
	storetest.Eventually(s.t, 10*time.Second, pattern+" in the log", func() bool {
		found = regexp.MustCompile(pattern).FindAllStringSubmatch(s.log(), -1)
		return len(found) > 0
	})
	return found[len(found)-1][1]
}

// The example does what its comments and the README promise, and its log contains no
// warnings that it need not have.
func TestExampleWorks(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	const key = "try-this-key"
	s := startExample(t)
	byName := strings.Replace(s.addr, "127.0.0.1", "localhost", 1)
	secrets := []string{"correct horse battery"}
	post := func(route, token string, body fields) answer {
		s.t.Helper()
		for _, field := range []string{"password", "new_password", "captcha_response", "control_answer"} {
			if value, ok := body[field].(string); ok {
				secrets = append(secrets, value)
			}
		}
		a := s.postTo("acme", key, route, token, body)
		if token := a.str("session_token"); token != "" {
			secrets = append(secrets, token)
		}
		return a
	}
	profile := func(token, mnemocode string) {
		s.t.Helper()
		r := s.request(http.MethodGet, "/profile", "")
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("X-Profile-Mnemocode", "somebody-else")
		r.Host = byName // what a browser sends for http://localhost:8080
		got := s.do(r)
		want := "X-Profile-Mnemocode: " + mnemocode + "\nX-Company-Code: acme\nAuthorization: \nX-Api-Key: \n"
		if got.Status != 200 || strings.TrimSpace(string(got.Body)) != strings.TrimSpace(want) {
			s.t.Errorf("the application answered %d %q, want %q", got.Status, got.Body, want)
		}
	}
	terms := []string{"terms"}
	captcha := func() string { return worked(s.challenge("GET", "/acme/v2/captcha", key).str("challenge"), 1)[0] }

	s.run("Alice logs in, as the README shows", func(t *testing.T) {
		named := s.getRequest("/", "")
		named.Host = byName
		s.do(named).want(wire.ErrHeaderMissing)
		token := regexp.MustCompile(`mgs_[\w-]{43,156}`)
		actual := map[string]string{} // tokens by their spelling on the page
		for _, step := range consoleSteps(pages(t)["README.md"]) {
			command := strings.ReplaceAll(step.command, "http://127.0.0.1:8080", s.URL)
			for shown, now := range actual {
				command = strings.ReplaceAll(command, shown, now)
			}
			out := output(t, exec.Command("sh", "-c", "api="+s.URL+"\n"+command))
			step.compare(t, out, regexp.MustCompile(token.String()+`|"ref":"\w{10}"`))
			if shown, now := token.FindString(step.shown), token.FindString(out); shown != "" {
				actual[shown] = now
				secrets = append(secrets, now)
			}
		}
		if len(actual) != 2 {
			t.Errorf("the page shows %d tokens, want those of two steps", len(actual))
		}
	})
	s.run("a browser is sent to the login page", func(t *testing.T) {
		browse := func(path string) answer {
			r := s.getRequest(path, "")
			r.Header.Set("Accept", "text/html")
			return s.do(r)
		}
		browse(browse("/").Header.Get("Location")).wantStatus(http.StatusOK).wantBody("<title>Acme</title>")
	})
	s.run("Bob gets a code", func(*testing.T) {
		bob := fields{"login_id": "bob", "password": "staple gun tuesday"}
		post("auth/checkcredentials", "", bob).want(wire.ErrDisclaimerInvalid)
		bob["accept_disclaimers"] = terms
		a := post("auth/checkcredentials", "", bob)
		code := s.logged(`"type":"otp.login".*"text":"(\d{6}) is your acme login code`)
		b := post("auth/checkotp", a.wantState(record.CheckOTP).token(), fields{"otp": code, "accept_disclaimers": terms})
		profile(b.wantState(record.Authorized).token(), "bob-0002")
	})
	s.run("a captcha is due", func(*testing.T) {
		wrong := fields{"login_id": "bob", "password": "a wrong password"}
		for range 3 {
			post("auth/checkcredentials", "", wrong).want(wire.ErrCredentialsInvalid)
		}
		post("auth/checkcredentials", "", wrong).want(wire.ErrCaptchaMissing)
		post("auth/checkcredentials", "", fields{"login_id": "bob", "password": "staple gun tuesday", "captcha_response": captcha()}).wantState(record.CheckOTP)
	})
	s.run("Alice recovers her access by mail", func(*testing.T) {
		a := post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": captcha(), "method": "MAIL"})
		a.wantState(record.None)
		link := s.logged(`http://localhost:8080/acme/login#(mgl_[\w-]+)`)
		b := post("auth/recovery/checklink", "", fields{"token": link}).wantState(record.RecoveryPassword)
		post("auth/setpassword", b.token(), fields{"new_password": "a much better secret"}).wantState(record.None)
		c := post("auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": "a much better secret"})
		profile(c.wantState(record.Authorized).token(), "alice-0001")
	})
	s.run("and by her question", func(*testing.T) {
		a := post("auth/recovery/recover", "", fields{"login_id": "+370 600 12345", "captcha_response": captcha(), "method": "QUESTION"})
		post("auth/recovery/checkquestion", a.wantState(record.RecoveryQuestion).token(), fields{"control_answer": "Whiskers"}).
			wantState(record.RecoveryPassword)
	})

	s.stop(syscall.SIGTERM) // then the log is complete
	requests := 0
	for line := range strings.Lines(s.log()) {
		var entry struct {
			Message string `json:"msg"`
			Request struct {
				Headers map[string]any
			}
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("a line of the log is %s", line)
		}
		if entry.Message == "handled request" {
			requests++
			if _, ok := entry.Request.Headers["X-Api-Key"]; ok {
				t.Errorf("the access log has the API key's header: %s", line)
			}
		}
		for _, secret := range append(secrets, key, "mgs_") {
			if strings.Contains(line, secret) {
				t.Errorf("the log holds %q: %s", secret, line)
			}
		}
		sent := entry.Message == "message not sent, but logged"
		if !sent && (strings.Contains(line, "mgl_") || strings.Contains(line, " is your ")) {
			t.Errorf("the log holds a link or a code: %s", line)
		}
	}
	if requests < 15 {
		t.Errorf("the access log has %d requests", requests)
	}
}

// startFrom runs an example of docs/examples on a port of the test, in front of a
// backend of the test.
func startFrom(t *testing.T, example string, env ...string) *site {
	t.Helper()
	return startInFrontOf(t, newRawBackend(t), example, func(*site) []string { return env })
}

// startInFrontOf is startFrom with this backend, whose address may depend on the site.
func startInFrontOf(t *testing.T, backend *rawBackend, example string, env func(*site) []string) *site {
	t.Helper()
	file := "../../docs/examples/" + example + "/Caddyfile"
	raw := get(os.ReadFile(file))(t)
	if lines := strings.Count(string(raw), "\n"); lines > 40 {
		t.Errorf("%s has %d lines, more than 40", file, lines)
	}
	return startWith(t, &site{backend: backend, unraced: true}, func(s *site) string {
		s.env = env(s)
		s.env = append(s.env, "SITE="+s.URL, "BACKEND="+s.backend.addr)
		config := strings.Replace(string(raw), "{\n", "{\n\tadmin off\n", 1)
		config = strings.Replace(config, "shutdown_delay 5s", "shutdown_delay 10ms", 1) // no balancer waits for it
		config = strings.Replace(config, "} {\n", "} {\n\tbind fd/3\n", 1)              // the site's block
		return strings.Replace(config, "bind 127.0.0.1\n", "bind fd/3\n", 1)
	})
}

// The examples are formatted, and Caddy has no other warnings about them.
func TestExamplesAreWellFormatted(t *testing.T) {
	t.Setenv("POSTGRES", "postgres://localhost/db")
	t.Setenv("REDIS", "redis://localhost")
	files, _ := filepath.Glob("../../docs/examples/*/*Caddyfile")
	if len(files) < 4 {
		t.Fatalf("there are only %d", len(files))
	}
	for _, file := range append(files, "../../docs/brands/Caddyfile", "../../Caddyfile.example") {
		_, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(get(os.ReadFile(file))(t), map[string]any{"filename": file})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", file, err, warnings)
		}
	}
}

// Each example runs as it is, and its user gets in.
func TestExamplesOfDocs(t *testing.T) {
	t.Parallel()
	const key, password = "only-to-try-it-0001", "correct horse battery"
	t.Run("one-api", func(t *testing.T) {
		t.Parallel()
		s := startFrom(t, "one-api")
		r := s.getRequest("/", "")
		r.Header.Set("Accept", "text/html")
		page := s.do(r)
		if page = s.get(page.Header.Get("Location"), ""); !strings.Contains(string(page.Body), "<title>Acme</title>") {
			t.Errorf("got %d %s", page.Status, page.Body)
		}
		a := s.postTo("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": password})
		s.get("/orders", a.wantState(record.Authorized).token()).wantStatus(http.StatusOK)
		s.get("/orders", "").want(wire.ErrHeaderMissing)
		s.get("/health", "").wantStatus(http.StatusOK)
	})
	t.Run("own-login-page", func(t *testing.T) {
		t.Parallel()
		s := startFrom(t, "own-login-page")
		for accept, want := range map[string]int{"text/html,*/*": http.StatusSeeOther, "application/json": http.StatusUnauthorized} {
			r := s.getRequest("/orders?of=a&b", "")
			r.Header.Set("Accept", accept)
			a := s.do(r).wantStatus(want)
			if want == http.StatusSeeOther {
				a.wantHeader("Location", "/log-in?return_to=%2Forders%3Fof%3Da%26b").wantHeader("Cache-Control", "no-store")
			}
		}
		s.get("/log-in", "").wantStatus(http.StatusOK)
		a := s.postTo("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": password})
		s.get("/orders", a.wantState(record.Authorized).token()).wantStatus(http.StatusOK)
	})
	t.Run("mobile-app", func(t *testing.T) {
		t.Parallel()
		s := startFrom(t, "mobile-app")
		a := s.postTo("acme", key, "auth/checkcredentials", "", fields{"login_id": "+37060012345", "password": password})
		code := s.logged(`"type":"otp.login".*"text":"(\d{6}) is your`)
		a = s.postTo("acme", key, "auth/checkotp", a.wantState(record.CheckOTP).token(), fields{"otp": code})
		token := a.wantState(record.Authorized).token()
		s.get("/orders", token).want(wire.ErrAPIKeyMissing)
		r := s.getRequest("/orders", token)
		r.Header.Set("X-Api-Key", key)
		s.do(r).wantStatus(http.StatusOK)
		r.Header.Set("X-Api-Key", "only-to-try-it-0002")
		s.do(r).want(wire.ErrTokenInvalid)
	})
	t.Run("behind-nginx", func(t *testing.T) { // TestOtherProxiesOfThePage has more
		t.Parallel()
		s := startFrom(t, "behind-nginx")
		a := s.postTo("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": password})
		r := s.getRequest("/check", a.wantState(record.Authorized).token())
		for name, value := range map[string]string{"Method": "GET", "Host": "example.com", "Uri": "/orders"} {
			r.Header.Set("X-Forwarded-"+name, value)
		}
		s.do(r).wantStatus(http.StatusNoContent).wantHeader("X-Profile-Mnemocode", "alice")
		need(t, "nginx")
		front := s.nginx(t)
		check := front.unreached()
		for _, host := range []string{front.addr, "example.com", "anything"} {
			front.exchange("GET /orders HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n").want(wire.ErrHeaderMissing)
		}
		check()
	})
	t.Run("two-nodes", func(t *testing.T) {
		t.Parallel()
		with := sharedServers(t)
		for statement := range strings.Lines(blocks(section(t, "docs/many-nodes.md", "Setting up"), "sql")[0]) {
			with.postgres.Exec(t, statement)
		}
		t.Cleanup(func() { with.postgres.Exec(t, "DROP DATABASE mnemogate (FORCE)", "DROP ROLE mnemogate") })
		dsn := strings.NewReplacer("user=postgres", "user=mnemogate", "dbname=postgres", "dbname=mnemogate").Replace(with.postgres.DSN("public"))
		env := []string{"POSTGRES=" + dsn, "REDIS=" + with.redis.URL()}
		one, two := startFrom(t, "two-nodes", env...), startFrom(t, "two-nodes", env...)
		a := one.postTo("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": password})
		token := a.wantState(record.Authorized).token()
		two.get("/orders", token).wantStatus(http.StatusOK)
		two.postTo("acme", key, "auth/logout", token, nil).wantState(record.None)
		one.get("/orders", token).want(wire.ErrTokenInvalid)
	})
}
