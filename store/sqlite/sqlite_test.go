package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// startStore starts a store in a file and closes it when the test ends. The test
// fails if a statement that was run reads a whole table.
func startStore(t testing.TB, file string) *Store {
	t.Helper()
	s := Open(file)
	must(t, s.Start(bg))
	t.Cleanup(func() {
		if statements, err := s.Statements(bg); err == nil { // otherwise the test has closed it
			recordtest.WantNoScans(t, file, statements)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func tempFile(t testing.TB) string { return filepath.Join(t.TempDir(), "test.db") }

// Processes ask twice a second what is due, even with a large backlog.
func TestSQLiteDueReadsNoBacklog(t *testing.T) {
	s := startStore(t, tempFile(t))
	for _, step := range recordtest.SQLitePlan(t, s.file, sqlstore.Due) {
		// A step without a condition computes min.
		if strings.Contains(step, "outbox_queues") && !strings.Contains(step, "(company") && !strings.HasSuffix(step, "INDEX outbox_queues_turn") {
			t.Errorf("it reads more of a company than its first queue: %s", step)
		}
	}
}

func TestSQLitePlansAreSeen(t *testing.T) {
	s := startStore(t, tempFile(t))
	got := recordtest.SQLitePlan(t, s.file, "DELETE FROM sessions WHERE id = ?")
	wantEqual(t, "plan of a statement without an index", got, []string{"SCAN sessions"})
}

func TestSQLiteRefusesCallsUnlessOpen(t *testing.T) {
	s := Open(tempFile(t))
	if _, err := os.Stat(s.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenSQLite touched the disk: %v", err)
	}
	wantRefusedUnlessOpen(t, s, errNotOpen, s.Accounts(), s.Sessions())
	must(t, Open(s.file).Close())
}

func TestSQLiteFileIsTheUsersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	file := filepath.Join(t.TempDir(), "new", "deep", "test.db")
	s := startStore(t, file)
	must(t, s.Sessions().Create(bg, t0, session("a", 1, 1, record.CheckOTP)))
	for name, want := range map[string]os.FileMode{
		filepath.Dir(file): os.ModeDir | 0o700, file: 0o600, file + "-wal": 0o600, file + "-shm": 0o600,
	} {
		info, err := os.Stat(name)
		must(t, err)
		wantEqual(t, "mode of "+filepath.Base(name), info.Mode(), want)
	}
}

// If others can read a file, such as one that was copied into place, the store makes
// it private and logs that.
func TestSQLiteFileBecomesTheUsersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	var log bytes.Buffer
	file := tempFile(t)
	one := startStore(t, file)
	must(t, one.Sessions().Create(bg, t0, session("a", 1, 1, record.CheckOTP)))
	for name, mode := range map[string]os.FileMode{file: 0o644, file + "-wal": 0o660, file + "-shm": 0o604} {
		must(t, os.Chmod(name, mode))
	}
	two := Open(file)
	two.Log = slog.New(slog.NewTextHandler(&log, nil))
	must(t, two.Start(bg))
	defer two.Close()
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, err := os.Stat(name)
		must(t, err)
		wantEqual(t, "mode of "+filepath.Base(name), info.Mode(), os.FileMode(0o600))
		if !strings.Contains(log.String(), "file="+name+" ") {
			t.Errorf("the log does not tell of %s:\n%s", name, &log)
		}
	}
}

func TestSQLiteFileMayHaveAnyName(t *testing.T) {
	for _, name := range []string{"a b.db", "100%.db", "%20.db", "what?.db", "a#b.db", "a&_pragma=query_only(1).db", "a+b.db", "ž🗝.db", ":memory:"} {
		dir := t.TempDir()
		s := startStore(t, filepath.Join(dir, name))
		must(t, s.Sessions().Create(bg, t0, session("a", 1, 1, record.CheckOTP)))
		must(t, s.Close())
		entries, err := os.ReadDir(dir)
		must(t, err)
		if len(entries) != 1 || entries[0].Name() != name {
			t.Errorf("instead of %q there is %v", name, entries)
		}
	}
}

func TestSQLiteCommitsDurably(t *testing.T) {
	s := startStore(t, tempFile(t))
	must(t, s.write(bg, func(ctx context.Context, tx *queries) error {
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "2", "fullfsync": "1", "foreign_keys": "1", "busy_timeout": "5000",
		} {
			var got string
			if err := tx.Row(ctx, "PRAGMA "+pragma).Scan(&got); err != nil {
				return err
			}
			wantEqual(t, pragma, got, want)
		}
		return nil
	}))
	err := s.Reading(bg, func(ctx context.Context, q sqlstore.Queries) error { return second(q.Exec(ctx, deleteSession, "a")) })
	if err == nil {
		t.Error("the connections that read can write")
	}
}

func TestSQLiteStartsTwiceAtOnceOnAFreshFile(t *testing.T) {
	for range 10 {
		file := tempFile(t)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				s := Open(file)
				if err := s.Start(bg); err != nil {
					t.Error(err)
				}
				if _, err := s.Accounts().Secrets(bg); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestSQLiteTakesAFileOfANewerVersion(t *testing.T) {
	file := tempFile(t)
	s := startStore(t, file)
	must(t, s.write(bg, func(ctx context.Context, tx *queries) error {
		return second(tx.Exec(ctx, insertMigration, "999_future.sql"))
	}))
	must(t, s.Close())
	db := get[*sql.DB](t)(sql.Open("sqlite", dsn(file)))
	_, err := db.Exec(`ALTER TABLE accounts ADD COLUMN future TEXT NOT NULL DEFAULT ''`)
	must(t, errors.Join(err, db.Close()))
	create(t, startStore(t, file).Accounts(), plain("acme", "alice"))
}

// A file that is none of ours stays as it is, with its mode, and so does a directory. The
// error names the file and says what to do. Once that is gone, the store starts.
func TestSQLiteLeavesOtherFilesAlone(t *testing.T) {
	database := func(statement string) func(string) error {
		return func(file string) error {
			db, err := sql.Open("sqlite", "file:"+file)
			if err != nil {
				return err
			}
			_, err = db.Exec(statement)
			return errors.Join(err, db.Close())
		}
	}
	socket := func(file string) error {
		dir, err := os.MkdirTemp(filepath.Join(file, "../../.."), "mg") // short, for the socket
		if err != nil {
			return err
		}
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/socket"})
		if err != nil {
			return err
		}
		listener.SetUnlinkOnClose(false)
		return errors.Join(listener.Close(), os.Rename(dir+"/socket", file), os.Remove(dir))
	}
	for name, c := range map[string]struct {
		make func(string) error
		want string
	}{
		"a text":           {func(file string) error { return os.WriteFile(file, []byte(strings.Repeat("text ", 1000)), 0o644) }, "file is not a database (26); correct the path if"},
		"a directory":      {func(file string) error { return os.Mkdir(file, 0o755) }, "it is no regular file; name one"},
		"a socket":         {socket, "it is no regular file; name one"},
		"a database":       {database(`CREATE TABLE notes (text)`), "it has tables of another program; if it is another program's database, name another file"},
		"other accounts":   {database(`CREATE TABLE accounts (id)`), "it has tables of another program; if"},
		"other migrations": {database(`CREATE TABLE migrations (id, batch)`), "name another file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := tempFile(t)
			must(t, c.make(file))
			must(t, os.Chmod(file, 0o755))
			before, _ := os.ReadFile(file)
			s := Open(file)
			err := s.Start(bg)
			if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			after, _ := os.ReadFile(file)
			info := get[os.FileInfo](t)(os.Stat(file))
			if info.Mode().Perm() != 0o755 && runtime.GOOS != "windows" || !bytes.Equal(before, after) {
				t.Errorf("it has the mode %v; it was written to: %v", info.Mode(), !bytes.Equal(before, after))
			}
			must(t, os.Remove(file))
			must(t, s.Start(bg))
			must(t, s.Close())
		})
	}
}

// modernc.org/sqlite is C code translated for one version of modernc.org/libc and
// fails in subtle ways with any other. A dependency that needs a newer libc would
// silently bring it in.
func TestSQLiteHasTheLibcItWasMadeFor(t *testing.T) {
	list := func(format, module string) string {
		out, err := exec.Command("go", "list", "-m", "-f", format, module).Output()
		if err != nil {
			t.Fatalf("asking the go command: %v", err)
		}
		return strings.TrimSpace(string(out))
	}
	mod, err := os.ReadFile(list("{{.GoMod}}", "modernc.org/sqlite"))
	must(t, err)
	want := regexp.MustCompile(`modernc\.org/libc (\S+)`).FindStringSubmatch(string(mod))
	if want == nil {
		t.Fatal("the go.mod of modernc.org/sqlite names no modernc.org/libc")
	}
	wantEqual(t, "version of modernc.org/libc", list("{{.Version}}", "modernc.org/libc"), want[1])
}

// A reload calls Start. If Start waited for a slow call, all new calls would wait, too.
func TestSQLiteStartsAgainBesideACall(t *testing.T) {
	s := startStore(t, tempFile(t))
	reads, ends := make(chan bool), make(chan bool)
	var calls sync.WaitGroup
	calls.Go(func() {
		_ = s.Reading(bg, func(context.Context, sqlstore.Queries) error {
			reads <- true
			<-ends
			return nil
		})
	})
	<-reads
	started := make(chan error, 1)
	go func() { started <- s.Start(bg) }()
	select {
	case err := <-started:
		must(t, err)
	case <-time.After(5 * time.Second):
		t.Error("Start waits for a call in flight")
	}
	close(ends)
	calls.Wait()
}
