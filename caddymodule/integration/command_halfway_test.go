package integration

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
)

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
	for args, brokenOff := range map[string]string{
		"backup --output ":                "the backup was interrupted, and there is no file",
		"export --company acme --output ": "is not complete",
	} {
		for _, how := range []string{"a signal", "a broken answer"} {
			t.Run(strings.Fields(args)[0]+", "+how, func(t *testing.T) {
				sent := make(chan bool)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Write(bytes.Repeat([]byte("{}\n"), 1<<15))
					w.(http.Flusher).Flush()
					if how == "a broken answer" {
						panic(http.ErrAbortHandler)
					}
					sent <- true
					<-r.Context().Done()
				}))
				defer server.Close()
				dir := t.TempDir()
				s := &site{t: t, dir: t.TempDir()}
				cmd := s.caddy(append([]string{"mnemogate", "--address", strings.TrimPrefix(server.URL, "http://")}, strings.Fields(args+dir+"/whole")...)...)
				var errs bytes.Buffer
				cmd.Stderr = &errs
				must(t, cmd.Start())
				want, exit := brokenOff, 4
				if how == "a signal" {
					<-sent
					want, exit = "interrupted", 1
					must(t, cmd.Process.Signal(syscall.SIGTERM))
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
