//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What root restores belongs to the owner of the nearest directory that existed, with
// the directories in between.
func TestSQLiteRestoreByRootIsTheOwners(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root restores for another user")
	}
	const uid, gid = 1234, 1235
	s := startStore(t, tempFile(t))
	home := t.TempDir()
	must(t, os.Chown(home, uid, gid))
	to := filepath.Join(home, "caddy", "mnemogate", "mnemogate.db")
	must(t, second(Restore{From: writeFile(t, backup(t, s)), To: to}.Run(bg)))
	for name := to; name != home; name = filepath.Dir(name) {
		if owner := get[os.FileInfo](t)(os.Stat(name)).Sys().(*syscall.Stat_t); owner.Uid != uid || owner.Gid != gid {
			t.Errorf("%s belongs to %d:%d", name, owner.Uid, owner.Gid)
		}
	}
}
