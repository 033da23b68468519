package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A backup of a store under load is complete. After a restore all accounts exist,
// and nothing becomes valid again that was revoked or used since the backup.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	var people strings.Builder
	for i := range 20 {
		people.WriteString(account(fmt.Sprintf("user%d", i), ""))
	}
	s := startSite(t, siteConfig{company: roomy + passkeys + "\n" + account("alice", "email alice@example.com") + account("carol", "phone +37060000003\nsecond_factor") +
		account("dave", "must_set_password") + people.String(), handler: selfService})
	recovery := func() fields {
		s.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "any", "method": "MAIL"}).wantState(record.None)
		return fields{"token": s.sms.linkToken()}
	}
	ended, live := s.login("alice"), s.login("alice")
	pending := s.post("auth/login", "", fields{"login_id": "alice"}).token()
	coded := s.credentials("carol", testPassword).wantState(record.CheckOTP).token()
	code := fields{"otp": s.sms.last("otp.login", "code")}
	setting := s.credentials("dave", testPassword).wantState(record.SetPassword).token()
	link := recovery()
	phone := new(keytest.Authenticator)
	create := func() string {
		token := s.login("alice")
		return s.me("POST", "passkeys", token, s.created(phone, token, "")).wantStatus(200).str("id")
	}
	old := create()
	if exported := s.cli("", "export", "--with-secrets"); !strings.Contains(exported.out, `"credential_id":"`+old) || !strings.Contains(exported.out, "alice@example.com") {
		t.Errorf("exported: %s", exported.out)
	}
	withPasskey := func() answer { return s.post("passkey/login", "", s.passkeyAnswer(phone, "acme", passkeyOrigin)) }

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var logins atomic.Int64
	for i := range 4 {
		load.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				s.get("/", s.login(fmt.Sprintf("user%d", n%20))).wantStatus(http.StatusOK)
				logins.Add(1)
			}
		})
	}
	if a := s.adminRaw("HEAD", "backup", "").wantStatus(405); a.Header.Get("Allow") != "GET" || s.scrape()["mnemogate_last_backup_timestamp_seconds"] != 0 {
		t.Errorf("HEAD: got %v, or it counts as a backup", a.Header)
	}
	file := s.dir + "/backup.db"
	for range 3 {
		s.cli("", "backup", "--output", file, "--force").want(0, "backup.db: ", " bytes\n")
	}
	stop()
	load.Wait()
	t.Logf("%d logins meanwhile", logins.Load())
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s.tells("a backup was taken")
	s.audits(3, `"msg":"mnemogate.store.backed_up",`)
	s.tells(`"actor":"admin endpoint"}`)
	if s.scrape()["mnemogate_last_backup_timestamp_seconds"] < 1e9 {
		t.Error("the metrics do not tell of the backup")
	}

	s.post("auth/logout", ended, nil).wantState(record.None)
	s.post("auth/checkotp", coded, code).wantState(record.Authorized)
	s.post("auth/recovery/checklink", "", link).wantState(record.RecoveryPassword)
	s.cli("", "account", "add", "late").want(0)
	lost := phone.Copy()
	s.admin("DELETE", "accounts/alice/passkeys/"+old, nil).wantStatus(204)
	create()
	s.cli("", "restore", file, "--config", s.dir+"/Caddyfile", "--force").want(1, "--address out")
	restore := func(args ...string) outcome {
		return s.cliAt("", "", append([]string{"restore", file, "--config", s.dir + "/Caddyfile"}, args...)...)
	}
	restore().want(1, "mnemogate.db exists", "--force")
	restore("--force").want(1, "is open: stop Caddy")
	s.whileStopped(func() { restore("--force").want(0, "accounts restored: 23", "sessions and links revoked: ") })

	for what, token := range map[string]string{"a session": live, "an ended one": ended} {
		s.run(what, func(*testing.T) { s.get("/", token).want(wire.ErrTokenInvalid) })
	}
	s.post("auth/checkpassword", pending, fields{"password": testPassword}).want(wire.ErrTokenInvalid)
	s.post("auth/checkotp", coded, code).want(wire.ErrTokenInvalid)
	s.post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).want(wire.ErrTokenInvalid)
	s.post("auth/recovery/checklink", "", link).want(wire.ErrTokenInvalid)
	s.cli("", "account", "show", "late").want(2)
	withPasskey().want(wire.ErrCredentialsInvalid)
	phone = lost
	withPasskey().wantState(record.Authorized)
	for i := range 20 {
		s.get("/", s.login(fmt.Sprintf("user%d", i))).wantStatus(200)
	}
	s.post("auth/checkpassword", s.post("auth/login", "", fields{"login_id": "alice"}).token(), fields{"password": testPassword}).wantState(record.Authorized)
	s.post("auth/recovery/checklink", "", recovery()).wantState(record.RecoveryPassword)
	s.cli("", "sessions", "end", "--all", "--company", "acme").want(0)
	s.login("alice")
	s.cliAt("", "", "restore", file, "--to", s.dir+"/kept.db", "--keep-sessions").want(0, "sessions kept")
}

func TestBackupsOfASite(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "email customer@example.com"), handler: "health /health"})
	s.run("the file of the store is moved away", func(t *testing.T) { fileOfTheStoreIsMovedAway(t, s) }) // before there is a backup
	s.run("a failed backup leaves no file", func(t *testing.T) { failedBackupLeavesNoFile(t, s) })
	s.run("restore guesses no file", func(t *testing.T) { restoreGuessesNoFile(t, s) })
}

func failedBackupLeavesNoFile(t *testing.T, s *site) {
	onFullDisk := func(name string, writes func(file string) outcome) {
		s.run(name, func(t *testing.T) {
			dir := smallDisk(t)
			must(t, fillDisk(s, dir))
			writes(filepath.Join(dir, "b.db")).want(1, "no space left on device")
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("beside what fills the disk, there is %v, %v", left, err)
			}
		})
	}
	s.run("the default name", func(t *testing.T) {
		cmd := s.caddy("mnemogate", "backup", "--address", "unix/"+s.dir+"/admin.sock", "--json")
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		found := regexp.MustCompile(`^\{"bytes":\d+,"file":"(mnemogate-\d{8}T\d{6}Z\.db)"\}\n$`).FindSubmatch(out)
		if err != nil || found == nil {
			t.Fatalf("%v: %s", err, out)
		}
		to := filepath.Join(cmd.Dir, "restored.db")
		s.cliAt("", "", "restore", filepath.Join(cmd.Dir, string(found[1])), "--to", to, "--json").want(0, `"accounts":2`, `"sessions_ended":2`)
	})
	s.run("a file that is there", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "precious")
		must(t, os.WriteFile(file, []byte("precious"), 0o600))
		s.cli("", "backup", "--output", file).want(1, "precious exists", "--force")
		if data, err := os.ReadFile(file); string(data) != "precious" {
			t.Errorf("it is %q now, %v", data, err)
		}
	})
	s.run("standard output", func(t *testing.T) {
		s.cli("", "backup", "--output", "-").want(1, "name a file with --output")
		s.cli("", "export", "--output", "-").want(0, "alice")
	})
	s.run("what is no regular file", func(t *testing.T) { // such as /dev/null, which root could replace
		for _, output := range []string{s.dir, s.dir + "/admin.sock"} {
			s.cli("", "backup", "--output", output, "--force").want(1, "is no regular file")
		}
	})
	s.run("a link", func(t *testing.T) {
		file, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "link")
		must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link)))
		s.cli("", "backup", "--output", link).want(1, "exists", "--force")
		s.cli("", "backup", "--output", link, "--force").want(0)
		if info := get(os.Stat(file))(t); info.Size() == 0 {
			t.Error("the link was replaced, not the file")
		}
	})
	s.run("no directory", func(t *testing.T) {
		s.cli("", "backup", "--output", filepath.Join(t.TempDir(), "none", "b.db")).want(1, "no such file or directory")
	})
	onFullDisk("a full disk", func(to string) outcome { return s.cli("", "backup", "--output", to) })
	file := filepath.Join(s.dir, "b.db")
	s.cli("", "backup", "--output", file).want(0)
	onFullDisk("a full disk to restore to", func(to string) outcome { return s.cliAt("", "", "restore", file, "--to", to) })
	s.run("what can't be asked so", func(t *testing.T) {
		s.cliAt("", "", "backup", "--api", "https://127.0.0.1:1", "--key-file", "none").want(1, "leave --api out")
	})
}

// This checks what docs/many-nodes.md says about a PostgreSQL and a Redis that were
// backed up at different times.
func TestRestoreOfOneStoreOfTwo(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := servers.start(siteConfig{company: roomy + account("alice", "email alice@example.com") + account("carol", "phone +37060000003\nsecond_factor")},
		servers.direct())
	s.cli("", "backup", "--output", filepath.Join(t.TempDir(), "b.db")).want(1, "pg_dump")
	s.cliAt("", "", "restore", servers.redis.Dir(), "--config", s.dir+"/Caddyfile").want(1, "keeps accounts in postgres")
	s.setBackupCodes("carol", "AAAAABBBBB", "CCCCCDDDDD")
	ended := s.login("alice")
	coded := s.credentials("carol", testPassword).wantState(record.CheckOTP).token()
	code := fields{"otp": s.sms.last("otp.login", "code")}
	s.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "any", "method": "MAIL"}).wantState(record.None)
	link := fields{"token": s.sms.linkToken()}

	dump := servers.postgres.Dump(t, servers.schema)
	servers.redis.Ask(t, "SAVE")

	s.post("auth/logout", ended, nil).wantState(record.None)
	s.post("auth/checkotp", coded, code).wantState(record.Authorized)
	s.post("auth/checkotp", s.credentials("carol", testPassword).token(), fields{"backup_code": "AAAAABBBBB"}).wantState(record.Authorized)
	s.post("auth/recovery/checklink", "", link).wantState(record.RecoveryPassword)
	s.cli("", "account", "add", "mallory", "--login", "mallory", "--must-set-password").want(0)
	s.cli(testPassword+"\n", "account", "set", "mallory", "--password").want(0)
	mallory := s.login("mallory")
	s.cli("", "account", "set", "alice", "--role", "changed").want(0)
	s.login("alice")

	s.run("Redis of before", func(*testing.T) {
		s.whileStopped(func() {
			servers.redis.Kill()
			must(t, servers.redis.Start())
		})
		s.get("/", ended).wantStatus(200) // it is valid again
		s.post("auth/checkotp", coded, code).wantState(record.Authorized)
		s.get("/", mallory).want(wire.ErrTokenInvalid)                         // sessions that began since are gone
		s.post("auth/recovery/checklink", "", link).want(wire.ErrTokenInvalid) // the account's session generation has increased
	})
	s.run("PostgreSQL of before, Redis of now", func(*testing.T) {
		mallory = s.login("mallory")
		s.cli("", "account", "set", "alice", "--role", "changed again").want(0)
		s.whileStopped(func() { servers.postgres.Restore(t, servers.schema, dump) })
		s.cli("", "account", "show", "mallory").want(2)
		s.get("/", mallory).wantStatus(200)                            // the session has no account
		s.credentials("alice", testPassword).want(wire.ErrUnavailable) // two revocations of its sessions are missing in PostgreSQL
		s.tells("end the sessions once more")
		for range 2 {
			s.cli("", "sessions", "end", "alice").want(0)
		}
		s.get("/", s.login("alice")).wantStatus(200)
		s.post("auth/checkotp", s.credentials("carol", testPassword).token(), fields{"backup_code": "AAAAABBBBB"}).wantState(record.Authorized)
	})
	s.run("PostgreSQL of before, an empty Redis", func(*testing.T) {
		s.whileStopped(func() { servers.postgres.Restore(t, servers.schema, dump); servers.redis.Ask(t, "FLUSHALL") })
		s.get("/", mallory).want(wire.ErrTokenInvalid)
		s.get("/", s.login("alice")).wantStatus(200)
	})
}

// If the store's file is moved away, nothing seems to succeed any more, and nothing makes an
// empty file in its place.
func fileOfTheStoreIsMovedAway(t *testing.T, s *site) {
	s.login("alice")
	file, backup := s.dir+"/mnemogate.db", s.dir+"/backup.db"
	must(t, os.Rename(file, file+".away"))
	s.cli("", "account", "add", "bob").want(1, "its file was moved")
	s.credentials("alice", testPassword).want(wire.ErrUnavailable)
	s.cli("", "backup", "--output", backup).want(1, "its file was moved")
	s.cli("", "export").want(1, "its file was moved")
	s.doctorBlames("accounts store", "mnemogate.db was moved, removed or replaced")
	storetest.Eventually(t, 10*time.Second, "503", func() bool { return s.ask("GET", "/health", "").Status == http.StatusServiceUnavailable })
	for _, name := range []string{file, backup} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	if got := s.scrape(); got["mnemogate_store_damage_total"] == 0 || got["mnemogate_last_backup_timestamp_seconds"] != 0 {
		t.Errorf("damage: %v, last backup: %v", got["mnemogate_store_damage_total"], got["mnemogate_last_backup_timestamp_seconds"])
	}
	must(t, os.Rename(file+".away", file))
	s.cli("", "account", "add", "bob").want(0)
	s.login("alice")
}

// A damaged store can't be restored from its backup, and may hide accounts from a list. Its
// operator must notice before the last good backup is deleted.
func TestADamagedStoreIsNoticed(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "")})
	file, backup := s.dir+"/mnemogate.db", s.dir+"/backup.db"
	for i := range 40 {
		s.admin("POST", "accounts", fields{"profile_mnemocode": fmt.Sprint("number-", i)}).wantStatus(201)
	}
	s.doctor(0, "it is not damaged")
	s.whileStopped(func() {
		data := get(os.ReadFile(file))(t)
		must(t, os.WriteFile(file, bytes.ReplaceAll(data, []byte("number-1"), []byte("number-X")), 0o600))
	})
	s.cli("", "backup", "--output", backup).want(1, "the store is damaged")
	if _, err := os.Stat(backup); err == nil {
		t.Error("there is a backup")
	}
	s.cli("", "export").want(1, "the store is damaged")
	blamed := func(o outcome) bool { return strings.Contains(fmt.Sprint(failed(o.out)), "restore the latest backup") }
	if o := s.doctorUntil(blamed).want(1); !blamed(o) {
		t.Errorf("doctor says %s", o.out)
	}
	if got := s.scrape(); got["mnemogate_store_damage_total"] == 0 || got["mnemogate_last_backup_timestamp_seconds"] != 0 {
		t.Errorf("damage: %v, last backup: %v", got["mnemogate_store_damage_total"], got["mnemogate_last_backup_timestamp_seconds"])
	}
}

// If a configuration names no file for its store, or one by a relative path, the file
// depends on the environment of the service. The operator who restores a backup may have
// another environment. So restore refuses unless it is told where to put the file.
func restoreGuessesNoFile(t *testing.T, s *site) {
	backup := filepath.Join(s.dir, "backup.db")
	s.cli("", "backup", "--output", backup).want(0)
	store := "store sqlite " + s.dir + "/mnemogate.db"
	for name, line := range map[string]string{"no file": "store sqlite", "no store": "", "a relative path": "store sqlite restored/mnemogate.db"} {
		s.run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "Caddyfile")
			writeFile(t, config, strings.Replace(s.config, store, line, 1))
			restore := func(args ...string) outcome {
				return s.cliAt("", "", append([]string{"restore", backup, "--config", config, "--force"}, args...)...)
			}
			restore().want(1, config+" names no absolute path", "--to")
			if _, err := os.Stat(filepath.Join(s.dir, "data", "caddy", "mnemogate")); err == nil {
				t.Error("it restored into the data directory")
			}
			restore("--to", filepath.Join(t.TempDir(), "to.db")).want(0, "accounts restored: 2")
		})
	}
	s.run("no configuration", func(t *testing.T) {
		s.cliAt("", "", "restore", backup).want(1, "--config", "--to")
		if _, err := os.Stat(filepath.Join(s.dir, "data", "caddy", "mnemogate")); err == nil {
			t.Error("it restored into the data directory")
		}
	})
	// A backup ends with a checksum. Without it, SQLite would not notice a change within
	// a row.
	s.run("a backup that was changed", func(t *testing.T) {
		data := get(os.ReadFile(backup))(t)
		restore := func(data []byte, args ...string) outcome {
			t.Helper()
			must(t, os.WriteFile(backup, data, 0o600))
			return s.cliAt("", "", append([]string{"restore", backup, "--to", filepath.Join(t.TempDir(), "restored.db")}, args...)...)
		}
		changed := bytes.Replace(data, []byte("customer"), []byte("operator"), 1)
		restore(changed).want(1, "does not match its checksum")
		restore(changed, "--unverified").want(1, "does not match its checksum")
		restore(data).want(0, "accounts restored: 2")
		older := data[:len(data)/4096*4096]
		restore(older).want(1, "has no checksum", "--unverified")
		restore(older, "--unverified").want(0, "accounts restored: 2")
	})
}

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
	s.doctor(1, "mnemogate.db-wal was moved, removed or replaced while it was open", "stop Caddy with SIGTERM")
	s.stop(syscall.SIGTERM)
	s.startAgain()
	s.get("/", live).wantStatus(200)
	s.get("/", ended).want(wire.ErrTokenInvalid)
	s.doctor(0)
}

// A store that takes longer to read than doctor has is as good as its last backup was.
func TestDoctorOfALargeStore(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "")})
	s.cli("", "backup", "--output", s.dir+"/backup.db").want(0)
	db := get(sql.Open("sqlite", "file:"+s.dir+"/mnemogate.db?_pragma=ignore_check_constraints(1)"))(t)
	_, err := db.Exec(`CREATE TABLE slow (a CHECK (length(hex(zeroblob(a))) > 0));
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
		INSERT INTO slow SELECT 10000000 FROM numbers`)
	must(t, errors.Join(err, db.Close()))
	s.doctor(0, "it was not damaged at the backup of 20")
}
