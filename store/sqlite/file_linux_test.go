package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
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

// While strangers hold all connections that Caddy may have, no file can be opened. Logins of
// those who are connected go on.
func TestSQLiteNeedsNoMoreFilesOnceItIsOpen(t *testing.T) {
	s := startStore(t, tempFile(t))
	open := func() (n int) {
		t.Helper()
		for _, fd := range get[[]string](t)(filepath.Glob("/proc/self/fd/*")) {
			if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, s.file) {
				n++
			}
		}
		return n
	}
	before := open()
	var reads sync.WaitGroup
	all := make(chan struct{}, readConns)
	for range readConns {
		reads.Go(func() {
			err := s.Reading(bg, func(ctx context.Context, q sqlstore.Queries) error {
				return q.Each(ctx, func(sqlstore.Scanner) error {
					all <- struct{}{}
					for len(all) < readConns {
						time.Sleep(time.Millisecond)
					}
					return nil
				}, `SELECT count(*) FROM accounts`)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	reads.Wait()
	must(t, s.Sessions().Create(bg, t0, session("s", 1, 1, record.CheckOTP)))
	if after := open(); after != before {
		t.Errorf("%d of its files are open, and %d were before", after, before)
	}
}

// SQLite only says that it can't open the file.
func TestSQLiteTellsThatNoFileCanBeOpened(t *testing.T) {
	s := startStore(t, tempFile(t))
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	err := s.Check(bg)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if err == nil || !strings.Contains(err.Error(), "raise LimitNOFILE") {
		t.Errorf("got %v", err)
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
