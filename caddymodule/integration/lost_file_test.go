package integration

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Somebody removes the log of the file with all accounts. A logout then does not seem to
// succeed, since the session would be valid again after a crash. doctor tells why, and what
// was acknowledged before is kept.
func TestARemovedLogLosesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let open files be removed")
	}
	t.Parallel()
	s := startSite(t, siteConfig{company: roomy + account("alice", "")})
	s.login("alice")
	s.restart() // moves what the log has into the file
	live, ended := s.login("alice"), s.login("alice")
	s.post("auth/logout", ended, nil).wantState(record.None)
	must(t, os.Remove(s.dir+"/mnemogate.db-wal"))
	s.post("auth/logout", live, nil).want(wire.ErrUnavailable)
	s.credentials("alice", testPassword).want(wire.ErrUnavailable)
	s.cli("", "doctor").want(1, "mnemogate.db-wal was moved, removed or replaced while it was open", "stop Caddy with SIGTERM")
	s.stop(syscall.SIGTERM)
	s.startAgain()
	s.get("/", live).wantStatus(200)
	s.get("/", ended).want(wire.ErrTokenInvalid)
	s.cli("", "doctor").want(0)
}

// A path that leads to something else is refused, and what is there stays as it is.
func TestAStoreIsNoOtherFile(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: roomy + account("alice", "")})
	other := s.dir + "/notes"
	must(t, os.WriteFile(other, []byte(strings.Repeat("a note\n", 1000)), 0o644))
	for path, want := range map[string]string{
		other:                 "file is not a database",
		s.dir + "/admin.sock": "it is no regular file; name one",
	} {
		err := s.reload(siteConfig{stores: "store sqlite " + path, company: roomy + account("alice", "")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	info, err := os.Stat(other)
	must(t, err)
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o644 {
		t.Errorf("it has the mode %v", info.Mode())
	}
	s.login("alice")
}
