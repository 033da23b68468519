package sqlite

import (
	"database/sql"
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
	startStore(t, file)
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

// Without a directory for temporary files, a large write would fail.
func TestSQLiteMakesNoTemporaryFiles(t *testing.T) {
	db := get[*sql.DB](t)(sql.Open("sqlite", dsn(writeFile(t, nil))))
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		`CREATE TABLE numbers (n INTEGER, text TEXT)`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO numbers SELECT i, hex(randomblob(64)) FROM n`,
		`BEGIN IMMEDIATE`,
		`UPDATE numbers SET n = n + 1`,
		`SAVEPOINT op`, // its journal keeps each page that the next statement changes
		`UPDATE numbers SET n = n + 1`,
	} {
		must(t, second(db.Exec(statement)))
	}
	for _, fd := range get[[]string](t)(filepath.Glob("/proc/self/fd/*")) {
		if name, _ := os.Readlink(fd); strings.Contains(name, "etilqs_") {
			t.Errorf("SQLite has opened %s", name)
		}
	}
}
