package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
)

// An outcome is the result of a command.
type outcome struct {
	t         *testing.T
	args      []string
	out, errs string
	exit      int
	again     func() outcome // runs the command once more
}

// cli runs caddy mnemogate against the site.
func (s *site) cli(stdin string, args ...string) outcome {
	s.t.Helper()
	return s.cliAt("unix/"+s.dir+"/admin.sock", stdin, args...)
}

func (s *site) cliAt(address, stdin string, args ...string) outcome {
	s.t.Helper()
	asked := args
	if address != "" {
		args = append([]string{"--address", address}, args...)
	}
	cmd := s.caddy(append([]string{"mnemogate"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	o := outcome{t: s.t, args: args, out: out.String(), errs: errs.String()}
	o.again = func() outcome { return s.cliAt(address, stdin, asked...) }
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		o.exit = ended.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// is reports whether the command has ended so, and says these parts.
func (o outcome) is(exit int, parts ...string) bool {
	return o.exit == exit && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(o.out+o.errs, part) })
}

// want checks how the command has ended, and what it says. If it was told that the service is not
// available, as on a busy machine, it runs again.
func (o outcome) want(exit int, parts ...string) outcome {
	o.t.Helper()
	for n := 0; n < 5 && o.exit == 4 && exit != 4 && mayRepeat(o.t, o.errs); n++ {
		o = o.again()
	}
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

// A login name may have a space where another account's email has a plus.
func TestCommandsTakeASpaceForASpace(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: "sms capture\n" + "account plus {\nemail anna+maria@example.com\n}\naccount space {\nlogin \"anna maria@example.com\"\n}\n"})
	s.cli("", "account", "show", "anna maria@example.com").want(0, "space")
	s.cli("", "account", "delete", "--yes", "anna maria@example.com").want(0, "space")
	s.cli("", "account", "delete", "--yes", "anna maria@example.com").want(2)
	s.cli("", "account", "explain", "anna maria@example.com").want(1, "no account")
	s.cli("", "account", "show", "anna+maria@example.com").want(0, "plus")
}

// A DELETE that follows a redirect would delete something else.
func TestCommandsFollowNoRedirects(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	server := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			asked.Store(true)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	s := &site{t: t, dir: t.TempDir()}
	s.cliAt(strings.TrimPrefix(server.URL, "http://"), "", "sessions", "end", "--all", "--company", "acme").want(1, "307")
	if asked.Load() {
		t.Error("the command followed the redirect")
	}
}

// A proxy in front of the accounts API tells that the API did not answer.
func TestAProxysRefusalIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	writeFile(t, s.dir+"/key", "some-key-of-enough-characters")
	for _, status := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		var asked atomic.Int32
		server := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				http.Error(w, "upstream failed", status)
				return
			}
			io.WriteString(w, `{"created":1,"updated":0,"skipped":0,"failed":0}`)
		}))
		args := []string{"--api", server.URL, "--key-file", s.dir + "/key", "--company", "acme", "account"}
		if o := s.cliAt("", "", append(args, "show", "a")...).want(4, "the server answered "+strconv.Itoa(status)); strings.Contains(o.errs, "--api") {
			t.Errorf("it blames --api: %s", o.errs)
		}
		asked.Store(0)
		s.cliAt("", `{"profile_mnemocode":"a"}`, append(args, "import")...).want(0, "1 created")
	}
}

// The shell completes what can be typed.
func TestCommandsAreCompleted(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	for typed, want := range map[string][]string{"s": {"set\tChanges an account", "show\t"}, "set alice --status ": {"restricted\n"}} {
		out := get(s.caddy(append([]string{"__complete", "mnemogate", "account"}, strings.Split(typed, " ")...)...).Output())(t)
		for _, line := range want {
			if !strings.Contains("\n"+string(out), "\n"+line) {
				t.Errorf("%s: no %q in %s", typed, line, out)
			}
		}
	}
}

// A server that gives an import up has done the lines before the one that it names. The
// command reports these, and does not send them again.
func TestAnImportThatIsGivenUpTellsWhatWasDone(t *testing.T) {
	t.Parallel()
	for flag, advice := range map[string]string{"--update=false": "run the same command again", "--update": "import the file from this line on"} {
		var mu sync.Mutex
		var bodies []string
		server := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			if bodies = append(bodies, string(body)); len(bodies) > 1 {
				io.WriteString(w, `{"created":0,"updated":0,"skipped":0,"failed":0,"line":1,"error":"the store is gone"}`)
				return
			}
			io.WriteString(w, `{"line":2,"field":"role","error":"it is wrong"}
{"line":5,"skipped":"it is there"}
{"line":3,"skipped":"it is there"}
{"created":1,"updated":0,"skipped":2,"failed":1,"line":4,"error":"the store is gone"}
`)
		}))
		s := &site{t: t, dir: t.TempDir()}
		var lines []string
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			lines = append(lines, `{"profile_mnemocode":"`+name+`"}`+"\n")
		}
		s.cliAt(strings.TrimPrefix(server.URL, "http://"), "\n"+strings.Join(lines, ""), "--company", "acme", "account", "import", flag).
			want(4, "1 created, 0 updated, 1 skipped, 1 failed", "line 3: role: it is wrong", "skipped lines 4: it is there", "the store is gone; the import stopped at line 5: "+advice)
		if want := strings.Join(lines[3:], ""); len(bodies) != 6 || bodies[1] != want || bodies[5] != want {
			t.Errorf("the command sent %q", bodies)
		}
	}
}

func TestCommandsOverTCP(t *testing.T) {
	t.Parallel()
	addr, file := listener(t)
	s := &site{backend: newRawBackend(t), sms: newWebhookSink(t), more: []*os.File{file}}
	startWith(t, s, func(s *site) string {
		c := siteConfig{company: "captcha off\n" + account("alice", "")}
		return strings.Replace(c.caddyfile(s.dir, s.sms.URL, s.backend.addr), "admin unix/"+s.dir+"/admin.sock", "admin fd/4", 1)
	})
	s.run("the address in events is the client's, without its port", func(t *testing.T) {
		s.cliAt(addr, "", "account", "set", "alice", "--role", "tester").want(0)
		var newest struct{ Address string }
		must(t, json.Unmarshal([]byte(s.cliAt(addr, "", "account", "history", "alice", "--limit", "1", "--json").want(0, "account.changed").out), &newest))
		if newest.Address != "127.0.0.1" {
			t.Errorf("the address is %q", newest.Address)
		}
	})
	// A terminal would obey the characters that hide or move text. JSON escapes them.
	s.run("tables have no characters that a terminal obeys", func(t *testing.T) {
		s.update("alice", func(a *record.Account) { a.LoginName, a.Question = "a\u009b2Jb\u202ec", "d\x1b[2Je\nf" })
		for _, args := range []string{"account show alice", "account list"} {
			if o := s.cliAt(addr, "", strings.Fields(args)...).want(0, "a\ufffd2Jb\ufffdc"); strings.ContainsAny(o.out, "\u009b\u202e\x1b") {
				t.Errorf("%s: %q", args, o.out)
			}
		}
		s.cliAt(addr, "", "account", "show", "alice").want(0, "d\ufffd[2Je\ufffdf")
		s.cliAt(addr, "", "account", "list", "--json").want(0, "a\u009b2Jb\u202ec")
	})
}

// An operator whose admin endpoint is elsewhere, or strict, learns how to name or set it.
func TestCommandsSayHowTheyReachTheAdminEndpoint(t *testing.T) {
	t.Parallel()
	s := startWith(t, &site{backend: newRawBackend(t), sms: newWebhookSink(t)}, func(s *site) string {
		socket := "admin unix/" + s.dir + "/admin.sock"
		return strings.Replace(siteConfig{company: "captcha off\n"}.caddyfile(s.dir, s.sms.URL, s.backend.addr), socket, socket+" {\nenforce_origin\n}", 1)
	})
	for _, address := range []string{"http://localhost:2019", "https://localhost:2019", s.dir + "/admin.sock"} {
		s.cliAt(address, "", "account", "list").want(1, "is not an address of an admin endpoint; write it like localhost:2019 or unix//run/caddy/admin.sock")
	}
	s.cli("", "account", "list").want(1, "the global option admin may have no enforce_origin")
}

// A mistyped command does nothing and fails, so that a script that ends sessions
// does not continue.
func TestACommandThatThereIsNotFails(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	for _, args := range []string{"nosuch", "account remove alice", "sessions stop alice", "session end alice"} {
		s.cliAt("", "", strings.Fields(args)...).want(1, "there is no command", "--help")
	}
	for _, args := range []string{"", "account", "sessions"} {
		s.cliAt("", "", strings.Fields(args)...).want(0, "Available Commands:")
	}
}

// A file that is incomplete because of a signal or a broken response is removed. It
// would contain secrets of the store, and an export could be mistaken for a complete
// one.
func TestNothingIsLeftOfWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) { // by nohup, and then by commands that tests run
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	for args, brokenOff := range map[string]string{
		"backup --output ":                "the backup was interrupted, and there is no file",
		"export --company acme --output ": "is not complete",
	} {
		for how, signal := range map[string]syscall.Signal{"a broken answer": 0, "SIGTERM": syscall.SIGTERM, "a closed terminal": syscall.SIGHUP, "SIGKILL": syscall.SIGKILL} {
			t.Run(strings.Fields(args)[0]+", "+how, func(t *testing.T) {
				sent := make(chan bool)
				server := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Write(bytes.Repeat([]byte("{}\n"), 1<<15))
					w.(http.Flusher).Flush()
					if how == "a broken answer" {
						panic(http.ErrAbortHandler)
					}
					sent <- true
					<-r.Context().Done()
				}))
				dir := t.TempDir()
				s := &site{t: t, dir: t.TempDir()}
				cmd := s.caddy(append([]string{"mnemogate", "--address", strings.TrimPrefix(server.URL, "http://")}, strings.Fields(args+dir+"/whole")...)...)
				var errs bytes.Buffer
				cmd.Stderr = &errs
				must(t, cmd.Start())
				want, exit := brokenOff, 4
				if signal != 0 {
					<-sent
					want, exit = "interrupted", 1
					must(t, cmd.Process.Signal(signal))
				}
				if signal == syscall.SIGKILL { // only a part that nobody can take for the whole
					_ = cmd.Wait()
					if _, err := os.Stat(dir + "/whole"); err == nil {
						t.Error("it is there")
					}
					return
				}
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exit || !strings.Contains(errs.String(), want) {
					t.Errorf("%v, want exit status %d: %s", err, exit, errs.String())
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("%v is left: %v", left, err)
				}
			})
		}
	}
}

// An import of a pipe or terminal on which nothing comes can be interrupted.
func TestASilentImportIsInterrupted(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	asked := make(chan bool, 1)
	server := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"companies":["acme"]}`)
		asked <- true
	}))
	silent, open, err := os.Pipe()
	must(t, err)
	defer silent.Close()
	defer open.Close()
	cmd := s.caddy("mnemogate", "--address", strings.TrimPrefix(server.URL, "http://"), "account", "import")
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = silent, &errs
	must(t, cmd.Start())
	<-asked
	time.Sleep(200 * time.Millisecond) // now it reads
	must(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// With GODEBUG=fips140=only, Go panics where a program computes SHA-1 and the like. Nothing
// may do so while the program or a configuration is loaded.
func TestTheProgramStartsWithFIPSOnly(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir(), env: []string{"GODEBUG=fips140=only"}}
	config := siteConfig{company: people + passkeys, handler: selfService, stores: "store postgres postgres://localhost/db\nsessions redis redis://localhost"}
	must(t, os.WriteFile(s.dir+"/Caddyfile", []byte(config.caddyfile(s.dir, "http://127.0.0.1:1", "127.0.0.1:1")), 0o600))
	for _, args := range [][]string{{"version"}, {"validate", "--config", s.dir + "/Caddyfile"}} {
		output(t, s.caddy(args...))
	}
}
