package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	sandboxKey         = "try-this-key"
	sandboxAccountsKey = "try-this-accounts-key"
)

// A sandbox is a running caddy mnemogate sandbox. Its files are in directories of the test.
type sandbox struct {
	*site
	socket string   // its admin endpoint
	output *os.File // what it prints
	errs   bytes.Buffer
}

func (s *sandbox) printed() string { return string(get(os.ReadFile(s.output.Name()))(s.t)) }

// prints waits until the sandbox has printed a text.
func (s *sandbox) prints(text string) {
	s.t.Helper()
	storetest.Eventually(s.t, 20*time.Second, text+" is printed", func() bool { return strings.Contains(s.printed(), text) })
}

// newSandbox starts a sandbox at a free port, and waits until it runs.
func newSandbox(t *testing.T, args ...string) *sandbox {
	t.Helper()
	output := get(os.CreateTemp(t.TempDir(), "output"))(t)
	t.Cleanup(func() { _ = output.Close() })
	s := startSandbox(t, output, args...)
	s.prints("CODE OR LINK\n")
	s.socket = regexp.MustCompile(`unix/\S+/admin.sock`).FindString(s.printed())
	return s
}

// startSandbox starts a sandbox at a free port. It prints to output.
func startSandbox(t *testing.T, output *os.File, args ...string) *sandbox {
	t.Helper()
	s := &sandbox{site: &site{t: t, dir: shortTempDir(t)}, output: output}
	s.addr = fmt.Sprint("localhost:", storetest.FreePorts(t, 1)[0])
	s.URL = "http://" + s.addr
	must(t, os.Mkdir(s.dir+"/tmp", 0o700))
	s.env = []string{"TMPDIR=" + s.dir + "/tmp"}
	s.cmd = s.caddy(append([]string{"mnemogate", "sandbox", "--listen", s.addr}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, &s.errs
	must(t, s.cmd.Start())
	s.exited = make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() { s.stop(syscall.SIGTERM) })
	return s
}

// ends sends a signal to the sandbox, after which nothing is left of it.
func (s *sandbox) ends(signal os.Signal) {
	s.t.Helper()
	children := fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid)
	var pids []string
	for _, file := range get(filepath.Glob(children))(s.t) {
		list, _ := os.ReadFile(file)
		pids = append(pids, strings.Fields(string(list))...)
	}
	s.stop(signal)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 || s.errs.Len() > 0 {
		s.t.Errorf("it ended with %d and wrote %s", code, &s.errs)
	}
	left := get(filepath.Glob(s.dir + "/*/*"))(s.t)
	all := get(os.ReadDir(s.dir))(s.t)
	if len(left) > 0 || len(all) != 1 {
		s.t.Errorf("left are %v, %v", all, left)
	}
	for _, pid := range pids {
		storetest.Eventually(s.t, 10*time.Second, "the end of process "+pid, func() bool {
			state, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(state), ") Z ")
		})
	}
}

// A sandbox that needs long to end leaves nothing, either. Here, whoever reads what it prints
// is slow.
func TestASandboxThatEndsSlowlyLeavesNothing(t *testing.T) {
	t.Parallel()
	from, to, err := os.Pipe()
	must(t, err)
	defer from.Close()
	defer to.Close()
	s := startSandbox(t, to)
	for lines, line := bufio.NewReader(from), ""; !strings.HasSuffix(line, "CODE OR LINK\n"); {
		line, err = lines.ReadString('\n')
		must(t, err)
	}
	go func() { _, _ = to.Write(make([]byte, 1<<20)) }() // more than the pipe takes
	s.postTo("acme", sandboxKey, "auth/login", "", fields{"login_id": "carol@example.com"}).wantState(record.CheckOTP)
	time.AfterFunc(5*time.Second, func() { _, _ = io.Copy(io.Discard, from) })
	s.ends(os.Interrupt)
}

// The sandbox does what docs/testing.md promises: its accounts log in, messages are shown,
// and nothing is left. Another one runs beside it.
func TestSandbox(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	backend := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Profile-Mnemocode")
		w.WriteHeader(http.StatusTeapot)
	}))
	s, other := newSandbox(t), newSandbox(t, "--backend", backend.URL)
	post := func(route, token string, body fields) answer {
		s.t.Helper()
		return s.postTo("acme", sandboxKey, "auth/"+route, token, body)
	}
	shows := func(a answer, mnemocode string) {
		s.t.Helper()
		got := s.do(s.getRequest("/profile?a=b", a.wantState(record.Authorized).token()))
		if body := string(got.Body); got.Status != 200 || !strings.HasPrefix(body, "GET /profile?a=b\n") ||
			!strings.Contains(body, "\nX-Profile-Mnemocode: "+mnemocode+"\n") || !strings.Contains(body, "\nX-Company-Code: acme\n") || strings.Contains(body, "Authorization") {
			s.t.Errorf("the page shows %d %s", got.Status, body)
		}
	}
	lastCode := func(to string) string {
		s.t.Helper()
		out := strings.Fields(s.cliAt(s.socket, "", "messages", "--to", to).want(0).out)
		s.prints(to + "  " + out[len(out)-1])
		return out[len(out)-1]
	}
	s.run("it prints what the page shows", func(t *testing.T) {
		step := consoleSteps(pages(t)["docs/testing.md"])[0]
		step.compare(t, strings.ReplaceAll(s.printed(), s.addr, "localhost:8080"), regexp.MustCompile(`unix/\S+/mnemogate-\d+`))
	})
	s.run("a password", func(*testing.T) {
		shows(post("checkcredentials", "", fields{"login_id": "alice@example.com", "password": "correct horse battery"}), "alice-0001")
	})
	s.run("a password and a code", func(*testing.T) {
		a := post("checkcredentials", "", fields{"login_id": "bob@example.com", "password": "staple gun tuesday"})
		shows(post("checkotp", a.wantState(record.CheckOTP).token(), fields{"otp": lastCode("+37060054321")}), "bob-0002")
	})
	s.run("a code alone", func(*testing.T) {
		a := post("login", "", fields{"login_id": "carol@example.com"})
		shows(post("checkotp", a.wantState(record.CheckOTP).token(), fields{"otp": lastCode("+37060067890")}), "carol-0003")
	})
	s.run("a recovery by mail", func(t *testing.T) {
		post("recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "x", "method": "MAIL"}).wantStatus(200)
		page, token, _ := strings.Cut(lastCode("alice@example.com"), "#")
		if page != s.URL+"/acme/login" {
			t.Errorf("the link leads to %s", page)
		}
		post("recovery/checklink", "", fields{"token": token}).wantState(record.RecoveryPassword)
	})
	s.run("a browser gets the login page", func(t *testing.T) {
		browse := func(path string) answer {
			r := s.getRequest(path, "")
			r.Header.Set("Accept", "text/html")
			return s.do(r)
		}
		browse(browse("/").Header.Get("Location")).wantStatus(200).wantBody("<title>Sandbox</title>")
	})
	s.run("by the names of a development server and of an emulator", func(*testing.T) {
		for _, host := range []string{"localhost:5173", "10.0.2.2:8080"} {
			r := s.postRequest("acme", sandboxKey, "auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": "correct horse battery"})
			r.Host = host
			r.Header.Set("Origin", "http://"+host)
			s.do(r).wantState(record.Authorized)
		}
	})
	s.run("the accounts API has the messages", func(t *testing.T) {
		r := s.getRequest("/mnemogate/acme/messages?to="+url.QueryEscape("+37060067890"), sandboxAccountsKey)
		if got := s.do(r).wantStatus(200).JSON["messages"].([]any); len(got) != 1 {
			t.Errorf("got %v", got)
		}
	})
	s.run("addresses have no limits, SMS no budgets", func(*testing.T) {
		for range 65 {
			post("checkcredentials", "", fields{"login_id": "nobody", "password": "a wrong password"}).want(wire.ErrCredentialsInvalid)
			post("login", "", fields{"login_id": "carol@example.com"}).wantState(record.CheckOTP)
		}
	})
	other.run("another, of a backend", func(t *testing.T) { other.ofABackend(t, seen) })
	other.ends(syscall.SIGINT)
	post("checkcredentials", "", fields{"login_id": "alice@example.com", "password": "correct horse battery"}).wantState(record.Authorized)
	s.ends(syscall.SIGTERM)
}

// Requests of logged-in users reach the backend that is named. If a sandbox can't start, it
// says what to do, and leaves nothing.
func (s *sandbox) ofABackend(t *testing.T, seen chan string) {
	token := s.postTo("acme", sandboxKey, "auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": "correct horse battery"}).wantState(record.Authorized).token()
	s.do(s.getRequest("/", "")).want(wire.ErrHeaderMissing)
	s.do(s.getRequest("/", token)).wantStatus(http.StatusTeapot)
	if got := <-seen; got != "alice-0001" {
		t.Errorf("the backend got %s", got)
	}
	for want, args := range map[string][]string{
		"let --listen localhost:0 choose one":              {"--listen", s.addr},
		"--listen: write a host and a port":                {"--listen", "8080"},
		"write localhost, or an address of this machine":   {"--listen", "192.0.2.1:8080"},
		"--backend: write a URL without a path, like http": {"--backend", "localhost:9000"},
		"--backend: write a URL":                           {"--backend", "http://localhost:9000/api"},
	} {
		if got := s.cliAt("", "", append([]string{"sandbox"}, args...)...); got.exit != 1 || !strings.Contains(got.errs, want) {
			t.Errorf("%v: %d %s", args, got.exit, got.errs)
		}
	}
}

// The tests that docs/testing.md shows pass, by the commands of the page.
func TestTestsOfThePage(t *testing.T) {
	t.Parallel()
	need(t, "node", "openssl", "go", "curl")
	page := pages(t)["docs/testing.md"]
	in := func(dir, script string, env ...string) {
		t.Helper()
		s := &site{t: t, dir: shortTempDir(t)}
		s.env = env
		cmd := s.shell(script)
		cmd.Dir = dir
		output(t, cmd)
	}
	const examples = "../../docs/examples/testing/"
	t.Run("the job", func(t *testing.T) {
		at := fmt.Sprint("localhost:", storetest.FreePorts(t, 1)[0])
		job := strings.ReplaceAll(regexp.MustCompile(`(?m)^- run: `).ReplaceAllString(blocks(page, "yaml")[0], ""), "localhost:8080", at)
		job = changed(t, job, "caddy mnemogate sandbox >", "caddy mnemogate sandbox --listen "+at+" >")
		// The peers have Playwright, and the browser is Debian's.
		job = changed(t, job, "npm install --save-dev @playwright/test && npx playwright install --with-deps chromium\n", "")
		path, err := chromiumPath()
		if err != nil {
			storetest.SkipOrFail(t, fmt.Sprintf("%v: install chromium", err))
		}
		w := newWorkshop(t, map[string]string{"playwright.config.mjs": fmt.Sprintf(`export default {
			timeout: 180_000, expect: { timeout: 60_000 }, // for a busy machine
			use: { launchOptions: { executablePath: %q, chromiumSandbox: false } },
		}`, path)}, examples+"login.test.mjs", examples+"login.spec.mjs", examples+"sandbox.mjs")
		in(w.dir, "set -e\ntrap 'kill -INT $!; wait $!' EXIT\n"+job, "SANDBOX=http://"+at)
	})
	t.Run("in Go", func(t *testing.T) {
		in(examples, "go test -count=1 login_test.go", "HOME="+os.Getenv("HOME"), "GOFLAGS=")
	})
	t.Run("a backend", func(t *testing.T) {
		w := newWorkshop(t, nil)
		for _, dir := range []string{"testing", "assertions"} {
			must(t, os.CopyFS(w.dir+"/"+dir, os.DirFS("../../docs/examples/"+dir)))
		}
		in(w.dir+"/testing", "set -e\n"+blocks(page, "sh")[0])
	})
}
