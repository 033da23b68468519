package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A reload may name the file by another path while the old store is open. If the new one
// ended the locks of the old one, other programs could delete its log.
func TestASecondStoreKeepsTheLocksOfTheFirst(t *testing.T) {
	file := tempFile(t)
	startSQLite(t, file)
	locks := func() (n int) {
		t.Helper()
		info, err := os.Stat(file)
		must(t, err)
		all, err := os.ReadFile("/proc/locks")
		must(t, err)
		for line := range strings.Lines(string(all)) {
			if strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) && strings.Contains(line, fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)) {
				n++
			}
		}
		return n
	}
	before := locks()
	if before == 0 {
		storetest.SkipOrFail(t, "the kernel does not list locks")
	}
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(file, link))
	must(t, createPrivateFile(link))
	if after := locks(); after != before {
		t.Errorf("it has %d locks, and had %d before", after, before)
	}
}
