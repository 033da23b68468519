package caddymodule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where a configuration names no file for its store, that lies where the service's
// environment says, which need not be that of whoever restores: restore then puts a
// backup nowhere unless it is told where.
func TestRestoreGuessesNoFile(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "")})
	backup := filepath.Join(s.dir, "backup.db")
	s.cli("", "backup", "--output", backup).want(0)
	store := "store sqlite " + s.dir + "/mnemogate.db"
	for name, line := range map[string]string{"no file": "store sqlite", "no store": ""} {
		s.run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "Caddyfile")
			if err := os.WriteFile(config, []byte(strings.Replace(s.config, store, line, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			restore := func(args ...string) outcome {
				return s.cliAt("", "", append([]string{"restore", backup, "--config", config, "--force"}, args...)...)
			}
			restore().want(1, config+" names no file", "--to")
			if _, err := os.Stat(filepath.Join(s.dir, "data", "caddy", "mnemogate")); err == nil {
				t.Error("it restored into the data directory")
			}
			restore("--to", filepath.Join(t.TempDir(), "to.db")).want(0, "1 accounts restored")
		})
	}
	s.run("no configuration", func(*testing.T) {
		s.cliAt("", "", "restore", backup).want(0, filepath.Join(s.dir, "data", "caddy", "mnemogate", "mnemogate.db")+": 1 accounts restored")
	})
}
