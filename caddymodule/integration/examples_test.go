package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

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
	return startWith(t, &site{backend: backend}, func(s *site) string {
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
		if got := s.do(r); got.Status != http.StatusNoContent || got.Header.Get("X-Profile-Mnemocode") != "alice" {
			t.Errorf("got %d %v", got.Status, got.Header)
		}
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

// The commands that docs/examples/README.md shows for production start the example, and their
// checks answer what it says.
func TestExampleInProduction(t *testing.T) {
	t.Parallel()
	need(t, "openssl", "curl")
	shown := blocks(section(t, "docs/examples/README.md", "In production"), "sh")
	s := &site{t: t, dir: shortTempDir(t), backend: newRawBackend(t)}
	must(t, os.Symlink(get(filepath.Abs("../../docs"))(t), s.dir+"/docs"))
	url := fmt.Sprint("http://localhost:", storetest.FreePorts(t, 1)[0])
	start := changed(t, shown[0], "https://api.example.com", url, "localhost:9000", s.backend.addr, "https://mail.example.com/send", "http://"+s.backend.addr+"/send",
		"caddy run --config docs/examples/one-api/Caddyfile --envfile acme.env\n", "caddy run --config docs/examples/one-api/Caddyfile --envfile acme.env 2>log &\n")
	cmd := s.shell("set -e\n" + start + "trap 'kill $!; wait $!' EXIT\ncurl -s --retry 50 --retry-delay 1 --retry-connrefused -o /dev/null " + url + "/health\n" + shown[1])
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"Valid configuration\n", "ok       acme: mail", `"error_code":"auth.header.missing"`, "\r\nX-Profile-Mnemocode: alice\r\n"} {
		if err != nil || strings.Count(string(out), want) != 1 {
			t.Fatalf("%v, and %q is not there once:\n%s", err, want, out)
		}
	}
	for _, of := range s.backend.requests() {
		if strings.Contains(of, "bob") {
			t.Errorf("the backend got %s", of)
		}
	}
}
