package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
)

// backup returns the bytes of a backup.
func backup(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	var size int64
	must(t, s.Backup(bg, func(n int64) io.Writer { size = n; return &b }))
	if int64(b.Len()) != size || size == 0 {
		t.Errorf("the backup has %d bytes, and %d were announced", b.Len(), size)
	}
	return b.Bytes()
}

func writeFile(t testing.TB, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	must(t, os.WriteFile(file, data, 0o600))
	return file
}

// A backup is a snapshot, however much is written meanwhile.
func TestSQLiteBackupIsOfOneMoment(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	accounts := s.Accounts()
	alice := create(t, accounts, plain("acme", "alice"))
	for i := range 300 { // several chunks
		a := plain("acme", fmt.Sprintf("filler-%03d", i))
		a.Question = strings.Repeat("x", 2000)
		create(t, accounts, a)
	}
	// Each write changes the first and the last rows of the file together.
	ctx, stop := context.WithCancel(bg)
	var writers sync.WaitGroup
	written := make(chan bool, 1)
	for range 4 {
		writers.Go(func() {
			for ctx.Err() == nil {
				_, err := accounts.Update(bg, "acme", alice.ID, func(a *record.Account) (bool, error) {
					a.Role = fmt.Sprint(len(a.Question))
					a.Question += "x"
					return true, nil
				})
				if err != nil {
					t.Error(err)
				}
				select {
				case written <- true:
				default:
				}
			}
		})
	}
	<-written
	file := writeFile(t, backup(t, s))
	stop()
	writers.Wait()
	to := tempFile(t)
	done, err := Restore{From: file, To: to}.Run(bg)
	must(t, err)
	wantEqual(t, "accounts", done.Accounts, 301)
	restored := startStore(t, to)
	then := get[record.Account](t)(restored.Accounts().ByID(bg, "acme", alice.ID))
	if n := len(then.Question); n == 0 || then.Role != fmt.Sprint(n-1) || int64(n) != then.Generation-alice.Generation {
		t.Errorf("half a change: %d steps, %s, generation %d", n, then.Role, then.Generation)
	}
}

// A backup does not bring back codes that were used or sessions that were revoked
// after it was made.
func TestSQLiteRestoreEndsSessions(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	a := create(t, s.Accounts(), plain("acme", "alice"))
	for _, state := range record.StoredStates {
		must(t, s.Sessions().Create(bg, t0, session(string(state), a.ID, a.Generation, state)))
	}
	file := writeFile(t, backup(t, s))
	lost := get[record.Revocation](t)(s.Accounts().NewCompanyGeneration(bg, "acme")) // the backup does not know this generation

	to := tempFile(t)
	done, err := Restore{From: file, To: to}.Run(bg)
	must(t, err)
	wantEqual(t, "what was restored", done, Restored{Accounts: 1, SessionsEnded: int64(len(record.StoredStates))})
	restored := startStore(t, to)
	for _, state := range record.StoredStates {
		wantGone(t, restored.Sessions(), string(state))
	}
	again := get[record.Account](t)(restored.Accounts().ByID(bg, "acme", a.ID))
	if again.CompanyGeneration <= lost.Generation {
		t.Errorf("the company generation %d was there before: a login that was pending goes on", again.CompanyGeneration)
	}
	wantPending := get[[]record.Revocation](t)(restored.Accounts().PendingRevocations(bg, record.Revocation{}, 10))
	wantEqual(t, "pending revocations of sessions elsewhere", wantPending, []record.Revocation{{Company: "acme", Generation: again.CompanyGeneration}})
	must(t, restored.Sessions().End(bg, t0, wantPending[0]))
	begun := session("new", a.ID, again.Generation, record.Authorized)
	begun.CompanyGeneration = again.CompanyGeneration
	must(t, restored.Sessions().Create(bg, t0, begun))

	kept := tempFile(t)
	done, err = Restore{From: file, To: kept, KeepSessions: true}.Run(bg)
	must(t, err)
	wantEqual(t, "what was restored", done, Restored{Accounts: 1})
	wantSession(t, startStore(t, kept).Sessions(), session(string(record.Authorized), a.ID, a.Generation, record.Authorized))
}

// Restore refuses a file that is not a complete backup of mnemogate, and a
// destination that exists. Both leave everything unchanged.
func TestSQLiteRestoreRefuses(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	for _, name := range []string{"alice", "bob", "carol"} {
		a := plain("acme", name)
		a.LoginName = name
		create(t, s.Accounts(), a)
	}
	complete := backup(t, s)
	whole := complete[:len(complete)-int(checksumSize)]
	change := func(statements ...string) []byte {
		t.Helper()
		file := writeFile(t, whole)
		db := get[*sql.DB](t)(sql.Open("sqlite", dsn(file, "journal_mode(DELETE)")))
		for _, statement := range statements {
			must(t, second(db.Exec(statement)))
		}
		must(t, db.Close())
		return get[[]byte](t)(os.ReadFile(file))
	}
	other := writeFile(t, nil)
	db := get[*sql.DB](t)(sql.Open("sqlite", dsn(other)))
	_, err := db.Exec(`CREATE TABLE accounts (id INTEGER)`)
	must(t, errors.Join(err, db.Close()))
	damaged := bytes.Clone(whole)
	for i := len(damaged) / 3; i < len(damaged); i++ {
		damaged[i] ^= 0x5a
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "is not a backup of mnemogate; decompress it"},
		{"a header alone", whole[:100], "is cut off: it has 100 of"},
		{"cut off", whole[:len(whole)-4096], "bytes; take another backup"},
		{"cut off by a byte", whole[:len(whole)-1], "is cut off"},
		{"cut off in its checksum", complete[:len(complete)-1], fmt.Sprintf("is cut off: it has %d of %d bytes", len(complete)-1, len(complete))},
		{"JSON lines", bytes.Repeat([]byte(`{"profile_mnemocode":"alice"}`+"\n"), 9), "is not a backup of mnemogate"},
		{"of another program", get[[]byte](t)(os.ReadFile(other)), "belongs to another program"},
		{"damaged", damaged, "; take another backup"},
		{"with an index that lies", change(`PRAGMA writable_schema = 1`,
			`UPDATE sqlite_schema SET sql = 'CREATE INDEX login_ids_account ON login_ids (company)' WHERE name = 'login_ids_account'`), "is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := tempFile(t)
			_, err := Restore{From: writeFile(t, c.data), To: to, Unverified: true}.Run(bg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left := get[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(to))); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	if _, err := (Restore{From: s.file, To: tempFile(t)}).Run(bg); err == nil || !strings.Contains(err.Error(), "the file of a store") || !strings.Contains(err.Error(), "if its machine is gone, start Caddy with both") {
		t.Errorf("a file with its log: %v", err)
	}
	file := writeFile(t, complete)
	if _, err := (Restore{From: file, To: file, Replace: true}).Run(bg); err == nil || !strings.Contains(err.Error(), "--to") {
		t.Errorf("onto itself: %v", err)
	}
	if _, err := (Restore{From: file, To: t.TempDir(), Replace: true}).Run(bg); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("to a directory: %v", err)
	}
	if _, err := (Restore{From: file + "-none", To: tempFile(t)}).Run(bg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no backup: %v", err)
	}
}

// A backup can be used directly as a store. The start removes its checksum line, but nothing of
// another file of such a length.
func TestSQLiteBackupIsAStore(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	create(t, s.Accounts(), plain("acme", "alice"))
	foreign := writeFile(t, bytes.Repeat([]byte("a"), 512+int(checksumSize)))
	if err := Open(foreign).Start(bg); err == nil {
		t.Error("a file of another program is taken")
	}
	wantEqual(t, "size of another program's file", get[os.FileInfo](t)(os.Stat(foreign)).Size(), 512+checksumSize)
	file := writeFile(t, backup(t, s))
	left := file + "-wal" // of another file
	must(t, os.WriteFile(left, []byte("log"), 0o600))
	refused := Open(file)
	if err := refused.Start(bg); err == nil || !strings.Contains(err.Error(), left+" belongs to the file that was here before") {
		t.Errorf("with the log of another file: %v", err)
	}
	must(t, os.Remove(left))
	var log bytes.Buffer
	used := Open(file)
	used.Log = slog.New(slog.NewTextHandler(&log, nil))
	must(t, used.Start(bg))
	create(t, used.Accounts(), plain("acme", "bob"))
	again := backup(t, used)
	crashed := writeFile(t, get[[]byte](t)(os.ReadFile(file)))
	must(t, os.WriteFile(crashed+"-wal", get[[]byte](t)(os.ReadFile(left)), 0o600))
	after := startStore(t, crashed)
	wantEqual(t, "accounts after a crash", len(get[[]record.Account](t)(after.Accounts().List(bg, "acme", "", 9))), 2)
	must(t, used.Close())
	later := Open(file)
	later.Log = used.Log
	must(t, later.Start(bg))
	wantEqual(t, "warnings", strings.Count(log.String(), "copied from a backup"), 1)
	must(t, later.Close())
	if _, err := (Restore{From: file, To: tempFile(t)}).Run(bg); err == nil || !strings.Contains(err.Error(), "has no checksum") {
		t.Errorf("a store that was in use: %v", err)
	}
	done, err := Restore{From: writeFile(t, again), To: tempFile(t)}.Run(bg)
	must(t, err)
	wantEqual(t, "accounts", done.Accounts, 2)
}

func TestSQLiteRestoreReplaces(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	create(t, s.Accounts(), plain("acme", "alice"))
	from := writeFile(t, backup(t, s))
	refused := func(r Restore, want string) {
		t.Helper()
		if _, err := r.Run(bg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	to := filepath.Join(t.TempDir(), "new", "mnemogate.db") // the directory does not exist yet
	must(t, second(Restore{From: from, To: to}.Run(bg)))
	refused(Restore{From: from, To: to}, "--force")

	running := Open(to)
	must(t, running.Start(bg))
	create(t, running.Accounts(), plain("acme", "bob"))
	refused(Restore{From: from, To: to, Replace: true}, "is open: stop Caddy")
	create(t, running.Accounts(), plain("acme", "carol"))
	must(t, running.Close())

	// SQLite would take a log without its file for the log of the new one.
	crashed := Open(to)
	must(t, crashed.Start(bg))
	create(t, crashed.Accounts(), plain("acme", "dave"))
	log := get[[]byte](t)(os.ReadFile(to + "-wal"))
	must(t, crashed.Close())
	must(t, os.WriteFile(to+"-wal", log, 0o600))
	must(t, os.Remove(to))
	refused(Restore{From: from, To: to}, "-wal exists")
	must(t, second(Restore{From: from, To: to, Replace: true}.Run(bg)))
	restored := startStore(t, to)
	for mnemocode, want := range map[string]error{"alice": nil, "bob": record.ErrNotFound, "dave": record.ErrNotFound} {
		wantErr(t, mnemocode, second(restored.Accounts().ByMnemocode(bg, "acme", mnemocode)), want)
	}
	info := get[os.FileInfo](t)(os.Stat(to))
	wantEqual(t, "mode", info.Mode().Perm(), 0o600)

	// A file that SQLite can't read can be replaced.
	must(t, os.WriteFile(from+"-garbage", bytes.Repeat([]byte("garbage "), 1000), 0o644))
	must(t, second(Restore{From: from, To: from + "-garbage", Replace: true}.Run(bg)))

	if runtime.GOOS != "windows" { // where only administrators can create links
		must(t, os.Symlink(to+"-linked", to+"-link"))
		must(t, os.WriteFile(to+"-linked", nil, 0o600))
		must(t, second(Restore{From: from, To: to + "-link", Replace: true}.Run(bg)))
		if info := get[os.FileInfo](t)(os.Stat(to + "-linked")); info.Size() == 0 {
			t.Error("the link was replaced, not its file")
		}
	}
}

// A backup stops, and leaves nothing behind, if its receiver or its caller goes away.
// Close ends it without waiting for a slow receiver.
func TestSQLiteBackupBreaksOff(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	gone := errors.New("gone")
	err := s.Backup(bg, func(int64) io.Writer { return writerFunc(func([]byte) (int, error) { return 0, gone }) })
	wantErr(t, "a receiver that is gone", err, gone)
	ctx, cancel := context.WithCancel(bg)
	err = s.Backup(ctx, func(int64) io.Writer { cancel(); return io.Discard })
	wantErr(t, "a caller who is gone", err, context.Canceled)
	create(t, s.Accounts(), plain("acme", "alice"))
	must(t, s.Accounts().Sweep(bg, t0))
	info, err := os.Stat(s.file + "-wal")
	must(t, err)
	wantEqual(t, "length of the log", info.Size(), 0)

	long := plain("acme", "bob")
	long.Question = strings.Repeat("x", 4096*2*backupChunk)
	create(t, s.Accounts(), long)
	begun, goOn, ended := make(chan bool, 1), make(chan bool), make(chan error)
	go func() {
		ended <- s.Backup(bg, func(int64) io.Writer {
			return writerFunc(func(p []byte) (int, error) {
				begun <- true
				<-goOn
				return len(p), nil
			})
		})
	}()
	<-begun
	must(t, s.Close())
	close(goOn)
	wantErr(t, "a backup of a closed store", <-ended, errNotOpen)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The file of a running store, its log or its locks are moved, removed, replaced or emptied. From then
// on no call may seem to succeed, and no other file may take its place.
func TestSQLiteNoticesThatItsFileIsGone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let open files be moved")
	}
	for name, change := range map[string]func(file string) error{
		"moved":    func(file string) error { return os.Rename(file, file+".old") },
		"removed":  os.Remove,
		"replaced": func(file string) error { return errors.Join(os.Remove(file), os.WriteFile(file, nil, 0o600)) },
		"emptied":  func(file string) error { return os.Truncate(file, 0) },
		"restored": func(file string) error {
			data, err := os.ReadFile(file)
			return errors.Join(err, os.WriteFile(file+".new", data, 0o600), os.Rename(file+".new", file))
		},
	} {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if name == "emptied" && suffix != "" {
				continue // as SQLite does it itself with the log
			}
			t.Run(name+suffix, func(t *testing.T) {
				file := tempFile(t)
				s := startStore(t, file)
				a := create(t, s.Accounts(), plain("acme", "a"))
				gone := file + suffix
				must(t, os.Link(gone, gone+".kept"))
				content := get[[]byte](t)(os.ReadFile(gone))
				must(t, change(gone))
				before, _ := os.ReadFile(gone)
				_, loadErr := s.Accounts().ByID(bg, "acme", a.ID)
				_, createErr := s.Accounts().Create(bg, t0, plain("acme", "b"))
				var begun bool
				for call, err := range map[string]error{
					"a read": loadErr, "a write": createErr, "a check": s.Check(bg),
					"a backup": s.Backup(bg, func(int64) io.Writer { begun = true; return io.Discard }),
					"a sweep":  s.Sessions().Sweep(bg, t0),
				} {
					if !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), gone+" was ") {
						t.Errorf("%s: got %v", call, err)
					}
				}
				if after, _ := os.ReadFile(gone); begun || !bytes.Equal(before, after) {
					t.Errorf("a backup began: %v; the file at the path was written to: %v", begun, !bytes.Equal(before, after))
				}
				must(t, os.Rename(gone+".kept", gone))
				if name == "emptied" {
					must(t, os.WriteFile(gone, content, 0o600))
				}
				create(t, s.Accounts(), plain("acme", "b"))
				must(t, s.Check(bg))
			})
		}
	}
}

// What a store has acknowledged is in its file once it is closed, even if its log was
// removed.
func TestSQLiteKeepsWhatWasInARemovedLog(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let open files be removed")
	}
	file := tempFile(t)
	s := startStore(t, file)
	a := create(t, s.Accounts(), plain("acme", "a"))
	must(t, os.Remove(file+"-wal"))
	if _, err := s.Accounts().ByID(bg, "acme", a.ID); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	must(t, s.Close())
	s = startStore(t, file)
	get[record.Account](t)(s.Accounts().ByID(bg, "acme", a.ID))
	must(t, s.Check(bg))
}

// A log that was cut is damage, and not a disk without space.
func TestSQLiteKnowsACutLog(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let open files be cut")
	}
	file := tempFile(t)
	s := Open(file)
	must(t, s.Start(bg))
	for n := range 50 {
		create(t, s.Accounts(), plain("acme", fmt.Sprint(n)))
	}
	must(t, os.Truncate(file+"-wal", 0))
	if err := s.Check(bg); !errors.Is(err, record.ErrDamaged) || strings.Contains(err.Error(), causes.NoSpace) {
		t.Errorf("got %v", err)
	}
	_ = s.Close()
}

// A backup of a damaged store fails before it begins: it could not be restored.
func TestSQLiteDamage(t *testing.T) {
	file := tempFile(t)
	s := startStore(t, file)
	for n := range 200 {
		create(t, s.Accounts(), plain("acme", fmt.Sprint("account ", n)))
	}
	must(t, s.Check(bg))
	backup(t, s)
	must(t, s.emptyLog(bg))
	must(t, s.Close())
	data := get[[]byte](t)(os.ReadFile(file))
	for i := range data {
		if i >= 4096 && bytes.HasPrefix(data[i:], []byte("account 1")) {
			copy(data[i:], "account X")
		}
	}
	must(t, os.WriteFile(file, data, 0o600))
	s = startStore(t, file) // a damaged index does not keep it from starting
	err := s.Backup(bg, func(int64) io.Writer {
		t.Error("a backup began")
		return io.Discard
	})
	for _, err := range []error{err, s.Check(bg)} {
		if !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "restore the latest backup") {
			t.Errorf("got %v", err)
		}
	}
}
