package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If a configuration names no file for its store, or one by a relative path, the file
// depends on the environment of the service. The operator who restores a backup may have
// another environment. So restore refuses unless it is told where to put the file.
func TestRestoreGuessesNoFile(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "email customer@example.com")})
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
			restore("--to", filepath.Join(t.TempDir(), "to.db")).want(0, "accounts restored: 1")
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
		restore(data).want(0, "accounts restored: 1")
		older := data[:len(data)/4096*4096]
		restore(older).want(1, "has no checksum", "--unverified")
		restore(older, "--unverified").want(0, "accounts restored: 1")
	})
}
