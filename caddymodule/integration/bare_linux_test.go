package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// bareVar holds the only directory that a process in a bare world can write to.
const bareVar = "MNEMOGATE_TEST_BARE"

// nobodysID is the id of a user without a name, a home, or a line in /etc/passwd.
const nobodysID = 61234

// From the kernel's prctl.h and capability.h.
const (
	prCapAmbient         = 47
	prCapAmbientClearAll = 4
	capSysAdmin          = 21
)

// A process in a bare world begins in mounts of its own, and continues as a new one.
func init() {
	dir := os.Getenv(bareVar)
	if dir == "" {
		return
	}
	err := enterBareWorld(dir)
	if err == nil {
		env := []string{"MNEMOGATE_TEST_CADDY=1"}
		for _, variable := range os.Environ() {
			if strings.HasPrefix(variable, "XDG_") || strings.HasPrefix(variable, "GORACE=") {
				env = append(env, variable)
			}
		}
		err = syscall.Exec("/proc/self/exe", os.Args, env)
	}
	fmt.Fprintln(os.Stderr, "no bare world:", err)
	os.Exit(1)
}

// enterBareWorld makes everything read-only except the directory, and leaves the process
// no rights.
func enterBareWorld(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", dir, err)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer mounts.Close()
	flags := map[string]uintptr{"nosuid": syscall.MS_NOSUID, "nodev": syscall.MS_NODEV, "noexec": syscall.MS_NOEXEC, "noatime": syscall.MS_NOATIME,
		"nodiratime": syscall.MS_NODIRATIME, "relatime": syscall.MS_RELATIME}
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		words := strings.Fields(lines.Text()) // id, parent, device, root, mount point, options
		if words[4] == dir {
			continue
		}
		keep := uintptr(syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY)
		for _, option := range strings.Split(words[5], ",") {
			keep |= flags[option]
		}
		_ = syscall.Mount("", words[4], "", keep, "") // some can't be reached; the check below counts
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setgid(nobodysID); err != nil {
			return err
		}
		if err := syscall.Setuid(nobodysID); err != nil {
			return err
		}
	} else if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClearAll, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	for _, place := range []string{"/", "/tmp", "/var/tmp", "/usr/tmp", "/dev/shm", os.TempDir()} {
		if f, err := os.CreateTemp(place, "bare-*"); err == nil {
			_ = os.Remove(f.Name())
			return fmt.Errorf("%s can be written", place)
		}
	}
	return nil
}

// bare lets a command run where only the site's directory can be written, as a user without
// a name, a home and a temporary directory.
func (s *site) bare(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.Dir = "/"
	cmd.Env = []string{bareVar + "=" + s.dir, "XDG_DATA_HOME=" + s.dir + "/data", "XDG_CONFIG_HOME=" + s.dir + "/data"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() == 0 {
		must(s.t, filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return nil // Caddy may have just removed it
			}
			return os.Lchown(path, nobodysID, nobodysID)
		}))
		return
	}
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobodysID, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobodysID, HostID: os.Getgid(), Size: 1}}
	cmd.SysProcAttr.AmbientCaps = []uintptr{capSysAdmin}
}

// needBareWorld skips the test where no process may have mounts of its own.
func needBareWorld(t *testing.T) {
	t.Helper()
	s := &site{t: t, dir: shortTempDir(t)}
	cmd := exec.Command(os.Args[0], "version")
	s.bare(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("no process can have mounts of its own; run as root, or allow user namespaces: %v: %s", err, out))
	}
}

// Caddy and all commands work in a container as the deployment files make it: a read-only
// root, one writable directory, and a user without a name, a home and a temporary directory.
func TestEverythingWorksInABareWorld(t *testing.T) {
	t.Parallel()
	needBareWorld(t)
	config := siteConfig{global: realHashing, company: people, site: "mnemogate {\nhealth /health\nlogin_page\n}\nreverse_proxy BACKEND"}
	s := launchBare(t, func(s *site) string { return config.caddyfile(s.dir, s.sms.URL, s.backend.addr) })
	file := func(name string) string { return s.dir + "/" + name }
	s.wantHealth(t, 200)
	token := s.login("alice@example.com")
	s.get("/", token).wantStatus(200)
	s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantState(record.CheckOTP)

	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, `{"profile_mnemocode":"user-%d","primary_email":"user-%[1]d@example.com","role":"%s"}`+"\n", i, strings.Repeat("r", 60))
	}
	s.cli(lines.String(), "account", "import").want(0, "3,000 created")
	s.cli("a much better secret\n", "account", "add", "zoe", "--email", "zoe@example.com", "--password").want(0)
	s.cli("", "account", "list").want(0, "user-1")
	s.cli("", "account", "show", "zoe").want(0, "password_set          yes")
	s.cli("", "account", "set", "zoe", "--role", "editor").want(0, "editor")
	s.cli("", "account", "unlock", "zoe").want(0)
	s.cli("", "backup-codes", "zoe").want(0)
	s.cli("", "sessions", "list", "alice").want(0, "authorized")
	s.cli("", "account", "history", "alice").want(0, "success")
	s.cli("", "export", "--output", file("export.jsonl")).want(0)
	s.cli("", "backup", "--output", file("backup.db")).want(0)
	s.cliAt("", "", "restore", file("backup.db"), "--to", file("restored.db")).want(0, "accounts restored: 3,0")
	s.doctor(0, "it reads and writes")
	s.cli("", "sessions", "end", "alice").want(0)
	s.cli("", "account", "delete", "zoe", "--yes").want(0)
	for _, args := range [][]string{{"version"}, {"list-modules"}, {"validate", "--config", file("Caddyfile")}, {"adapt", "--config", file("Caddyfile")},
		{"reload", "--force", "--config", file("Caddyfile"), "--address", "unix/" + file("admin.sock")}} {
		output(t, s.caddy(args...))
	}
	s.previewsIn(t, file("Caddyfile"))

	s.wantNoneLogged("passwords are hashed in this process", "disk I/O error", "read-only file system", `"level":"panic"`)
}

// launchBare is startWith in a bare world.
func launchBare(t *testing.T, caddyfile func(*site) string) *site {
	t.Helper()
	s := &site{backend: newRawBackend(t), sms: newWebhookSink(t)}
	s.within = s.bare
	return startWith(t, s, caddyfile)
}

// previewsIn checks that the command page serves the page.
func (s *site) previewsIn(t *testing.T, config string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := s.caddy("mnemogate", "page", "--preview", "--config", config, "--listen", "127.0.0.1:0")
	out := get(cmd.StdoutPipe())(t)
	exited := get(storetest.Start(cmd))(t)
	context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "The preview is at") {
		t.Errorf("page --preview: %q, %v", line, err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-exited
}

// The configurations of the example and of the deployment files start in a bare world.
func TestDeployedFilesWorkInABareWorld(t *testing.T) {
	t.Parallel()
	needBareWorld(t)
	for _, name := range []string{"Caddyfile", "compose.Caddyfile", "../../Caddyfile.example"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			s := launchBare(t, func(s *site) string { return s.deployed(t, readDeploy(t, name)) })
			key := "try-this-key"
			if !strings.HasSuffix(name, "example") {
				key = keyInFile
			}
			answer := s.postTo("acme", key, "auth/login", "", fields{"login_id": "nobody@example.com"})
			if answer.Status/100 != 4 || answer.JSON["error_code"] == nil {
				t.Errorf("%d %s", answer.Status, answer.Body)
			}
			s.cli("", "doctor") // providers can't be reached
			s.cli("", "account", "add", "zoe", "--email", "zoe@example.com").want(0)
			s.cli("", "backup", "--output", s.dir+"/backup.db").want(0)
		})
	}
}

const keyInFile = "key-in-a-file-of-a-deployment"

// deployed returns a Caddyfile that keeps its files in the site's directory, and listens
// where the site does.
func (s *site) deployed(t *testing.T, text string) string {
	t.Helper()
	must(t, os.WriteFile(s.dir+"/secret", []byte(keyInFile), 0o600))
	text = secretFile.ReplaceAllString(text, "{file."+s.dir+"/secret}")
	var kept []string
	for line := range strings.Lines(text) {
		switch words := strings.Fields(line); {
		case len(words) > 0 && slices.Contains([]string{"admin", "auto_https", "email", "bind"}, words[0]):
		case strings.HasPrefix(line, "api.example.com {"), strings.HasPrefix(line, "http://127.0.0.1:8080"):
			kept = append(kept, "http:// {\nbind fd/3\n")
		case strings.HasPrefix(line, "http://:9180 {"), strings.HasPrefix(line, "http://:9000 {"):
			kept = append(kept, "http:// {\nbind unix/"+s.dir+"/other.sock\n")
		case line == "{\n":
			kept = append(kept, "{\nadmin unix/"+s.dir+"/admin.sock\nauto_https off\n")
		default:
			kept = append(kept, line)
		}
	}
	return strings.NewReplacer("/var/lib/mnemogate", s.dir, "/var/log/mnemogate", s.dir, "/data/", s.dir+"/").Replace(strings.Join(kept, ""))
}

// Somebody takes the directory of the file from Caddy's user. Then the log does not say that
// the file is gone and a backup is needed, and all works once the directory is given back.
func TestADirectoryThatIsTakenAway(t *testing.T) {
	t.Parallel()
	needBareWorld(t)
	config := siteConfig{company: roomy + account("alice", "")}
	s := launchBare(t, func(s *site) string {
		config.stores = "store sqlite " + s.dir + "/state/mnemogate.db"
		return config.caddyfile(s.dir, s.sms.URL, s.backend.addr)
	})
	token := s.login("alice")
	must(t, os.Chmod(s.dir+"/state", 0))
	s.clearLog()
	s.post("auth/logout", token, nil).want(wire.ErrUnavailable)
	s.tells("their directory to the user that Caddy runs as")
	s.wantNoneLogged("restore a backup")
	must(t, os.Chmod(s.dir+"/state", 0o700))
	s.get("/", token).wantStatus(200)
	s.post("auth/logout", token, nil).wantState(record.None)
}
