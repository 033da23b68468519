package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A diskTrouble makes a disk refuse the writes of stores.SQLite.
type diskTrouble struct {
	name string
	// dir returns the directory for the file. It skips the test if this machine does
	// not allow the trouble. Limiting the size of files needs no privileges.
	dir         func(*testing.T) string
	begin, heal func(*site, string) error
}

var diskTroubles = []diskTrouble{
	{"no byte can be written", shortTempDir, limitFiles(0), limitFiles(^uint64(0))},
	{"the disk is full", smallDisk, fillDisk, freeDisk},
	{"the file is read-only", immutableDir, setImmutable(true), setImmutable(false)},
}

// While the disk accepts no writes, every step that must write is refused and
// changes nothing, and doctor tells why. Users who are logged in stay logged in. When
// there is space again, everything works.
func TestDiskThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	for _, trouble := range diskTroubles {
		t.Run(trouble.name, func(t *testing.T) { diskTakesNoWrites(t, trouble) })
	}
}

func diskTakesNoWrites(t *testing.T, trouble diskTrouble) {
	t.Parallel()
	dir := trouble.dir(t)
	config := siteConfig{
		stores: "store sqlite " + dir + "/mnemogate.db",
		company: roomy + account("alice", "email alice@example.com") + account("carol", "phone +37060000003\nsecond_factor") +
			account("dave", "must_set_password") + "account erin {\nphone +37060000004\n}\n",
		more: "company brief {\napi_key " + testKey + "\n" + roomy + "session {\nidle 5s\n}\n" + account("alice", "") + "}\n",
	}
	s := startSite(t, config)
	live, leaving, ended := s.login("alice"), s.login("alice"), s.login("alice")
	s.post("auth/logout", ended, nil).wantState(record.None)
	half := s.post("auth/login", "", fields{"login_id": "alice"}).token()
	pending := s.credentials("carol", testPassword).wantState(record.CheckOTP).token()
	code := fields{"otp": s.sms.last("otp.login", "code")}
	setting := s.credentials("dave", testPassword).wantState(record.SetPassword).token()
	brief := s.postTo("brief", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).token()

	if err := trouble.begin(s, dir); errors.Is(err, errors.ErrUnsupported) {
		storetest.SkipOrFail(t, "the tests can limit the size of files on Linux only")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trouble.heal(s, dir) })
	// This session should be extended by each request, but can't be.
	storetest.Eventually(t, 30*time.Second, "end of a session that could not be extended", func() bool {
		s.get("/", live).wantStatus(http.StatusOK)
		a := s.get("/", brief)
		if a.Status != http.StatusOK {
			a.want(wire.ErrTokenExpired)
		}
		return a.Status != http.StatusOK
	})
	s.tells("could not be extended")
	s.doctorBlames("accounts store", "free or add space") // and not a server that is down
	for what, a := range map[string]answer{
		"login by code":    s.post("auth/login", "", fields{"login_id": "+37060000004"}),
		"checkpassword":    s.post("auth/checkpassword", half, fields{"password": testPassword}),
		"a wrong password": s.credentials("alice", "a wrong password"),
		"checkcredentials": s.credentials("alice", testPassword),
		"checkotp":         s.post("auth/checkotp", pending, code),
		"renewotp":         s.post("auth/renewotp", pending, nil),
		"setpassword":      s.post("auth/setpassword", setting, fields{"new_password": "a much better secret"}),
		"recover":          s.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "any", "method": "MAIL"}),
		"logout":           s.post("auth/logout", leaving, nil),
	} {
		if !a.fails(wire.ErrUnavailable) || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d %s with Retry-After %q", what, a.Status, a.Body, a.Header.Get("Retry-After"))
		}
	}
	s.admin("PATCH", "accounts/alice", fields{"status": "closed"}).wantStatus(503)
	s.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(503)
	s.admin("DELETE", "accounts/alice", nil).wantStatus(503)

	s.admin("GET", "accounts/alice", nil).wantStatus(200)
	s.get("/", ended).want(wire.ErrTokenInvalid)
	s.get("/", "mgs_"+strings.Repeat("A", 43)).want(wire.ErrTokenInvalid)
	s.get("/", pending).want(wire.ErrSessionInvalid)
	config.company += account("eve", "")
	if err := s.reload(config); err != nil {
		t.Errorf("a reload: %v", err)
	}
	s.get("/", live).wantStatus(http.StatusOK)

	must(t, trouble.heal(s, dir))
	storetest.Eventually(t, 10*time.Second, "login once there is room", func() bool {
		return s.credentials("alice", testPassword).Status == http.StatusOK
	})
	for _, token := range []string{live, leaving} { // nothing was revoked
		s.get("/", token).wantStatus(http.StatusOK)
	}
	s.post("auth/logout", leaving, nil).wantState(record.None)
	s.get("/", leaving).want(wire.ErrTokenInvalid)
	s.post("auth/checkpassword", half, fields{"password": testPassword}).wantState(record.Authorized)
	s.post("auth/checkotp", pending, code).wantState(record.Authorized) // the code was not used up
	s.post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).wantState(record.Authorized)
	storetest.Eventually(t, seedAgainAfter+10*time.Second, "account that a config has added meanwhile", func() bool {
		return s.credentials("eve", testPassword).Status == http.StatusOK
	})
	if n := s.admin("GET", "accounts/alice/sessions", nil); strings.Contains(string(n.Body), "mailed") {
		t.Errorf("a link is left of a recovery that was refused: %s", n.Body)
	}
	s.checkFile(dir)
}

// Starting while the disk is full does not affect other sites. When there is space,
// no second restart is needed.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	s := startSite(t, siteConfig{stores: "store sqlite " + dir + "/mnemogate.db", company: roomy + account("alice", "")})
	live := s.login("alice")
	s.stop(syscall.SIGTERM)
	must(t, fillDisk(s, dir))
	s.start()
	s.get("/", live).want(wire.ErrUnavailable)
	s.credentials("alice", testPassword).want(wire.ErrUnavailable)
	s.tells("a store can't be reached; until it can")
	must(t, freeDisk(s, dir))
	storetest.Eventually(t, 30*time.Second, "login once there is room", func() bool {
		return s.credentials("alice", testPassword).Status == http.StatusOK
	})
	s.get("/", live).wantStatus(http.StatusOK)
}

func fillDisk(_ *site, dir string) error {
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func freeDisk(_ *site, dir string) error { return os.RemoveAll(filepath.Join(dir, "other")) }

// setImmutable makes the files of stores.SQLite immutable, which also affects
// processes that have them open.
func setImmutable(on bool) func(*site, string) error {
	return func(_ *site, dir string) error {
		for _, name := range []string{"mnemogate.db", "mnemogate.db-wal"} {
			if err := changeImmutable(filepath.Join(dir, name), on); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
}

func immutableDir(t *testing.T) string {
	dir := tempDirIn(t, "/var/tmp") // tmpfs has no such files
	probe := filepath.Join(dir, "probe")
	must(t, os.WriteFile(probe, nil, 0o600))
	if err := changeImmutable(probe, true); err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("a file can't be made immutable: %v", err))
	}
	must(t, changeImmutable(probe, false))
	return dir
}
