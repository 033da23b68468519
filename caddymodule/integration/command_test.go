package integration

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// An outcome is the result of a command.
type outcome struct {
	t         *testing.T
	args      []string
	out, errs string
	exit      int
}

// cli runs caddy mnemogate against the site.
func (s *site) cli(stdin string, args ...string) outcome {
	s.t.Helper()
	return s.cliAt("unix/"+s.dir+"/admin.sock", stdin, args...)
}

func (s *site) cliAt(address, stdin string, args ...string) outcome {
	s.t.Helper()
	if address != "" {
		args = append([]string{"--address", address}, args...)
	}
	cmd := s.caddy(append([]string{"mnemogate"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	o := outcome{t: s.t, args: args, out: out.String(), errs: errs.String()}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		o.exit = ended.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (o outcome) want(exit int, parts ...string) outcome {
	o.t.Helper()
	if o.exit != exit {
		o.t.Fatalf("%v: exit status %d, want %d\n%s%s", o.args, o.exit, exit, o.out, o.errs)
	}
	for _, part := range parts {
		if !strings.Contains(o.out+o.errs, part) {
			o.t.Fatalf("%v: no %q in\n%s%s", o.args, part, o.out, o.errs)
		}
	}
	return o
}

// A session that is named by mistake ends nothing else: the path of .. below sessions would
// be that of the account, and the path of . would be that of all sessions.
func TestASessionOfDotsEndsNothing(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: "captcha off\n" + account("alice", "")})
	tokens := []string{s.login("alice"), s.login("alice")}
	for _, session := range []string{"..", ".", "../.."} {
		s.cli("", "sessions", "end", "alice", session).want(2, "session")
	}
	s.cli("", "sessions", "end", "--all", "--company", ".").want(2, "no such company")
	s.cli("", "--company", "..", "account", "show", "alice").want(2, "no such company")
	for _, token := range tokens {
		s.get("/", token).wantStatus(200)
	}
	s.cli("", "account", "show", "alice").want(0)
}

// A DELETE that follows a redirect would delete something else.
func TestCommandsFollowNoRedirects(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			asked.Store(true)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	s := &site{t: t, dir: t.TempDir()}
	s.cliAt(strings.TrimPrefix(server.URL, "http://"), "", "sessions", "end", "--all", "--company", "acme").want(1, "307")
	if asked.Load() {
		t.Error("the command followed the redirect")
	}
}
