// Package sqlite keeps accounts and sessions in one file, for a single machine. Begin with
// Store, then read write.go.
package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// A Store keeps accounts and sessions in one file. Several
// processes may use the file at once. A change that a method has acknowledged
// survives power loss.
//
// Reads use a few connections of their own. Writes queue for one goroutine, which
// commits all waiting writes in one transaction, because an fsync costs more than a
// hundred writes.
//
// Deleted data are overwritten. After the next sweep of the accounts, no file
// contains them. There is one exception: when SQLite has moved a row to another
// page, a copy may stay in the unused part of the old page until VACUUM rewrites the
// file. Tests saw this with one row in thousands.
type Store struct {
	record.Observed

	// Log receives what an operator should know. Set it before Start. Default:
	// nothing is logged.
	Log *slog.Logger

	file   string
	path   string // the absolute one, which Start found
	opened []openedFile

	calls   sync.RWMutex // each call holds a read lock, so that Close waits for it; guards phase and created
	phase   phase
	created bool // Start found no file

	readers *sql.DB
	keeper  *sql.Conn     // of readers; keeps the log from being removed by its last user
	half    sqlstore.Half // of readers
	reading chan struct{} // calls that have a connection of readers
	reads   *queries
	writers *sql.DB // at most one connection
	ops     chan *op
	empties chan chan error             // requests of emptyLog
	feed    atomic.Pointer[record.Feed] // set by Run; nil before
	holding atomic.Int32                // backups and checks under way, which read for long
	checks  chan struct{}               // checks under way: at most one
	locked  atomic.Bool                 // the latest write failed because another process holds the lock
	quit    chan struct{}               // closed by Close
	stopped chan struct{}               // closed by the writing goroutine
}

// An openedFile is a file or its log, as Start opened it.
type openedFile struct {
	name string
	info os.FileInfo
	step string // what to do if it is gone
}

type phase int

const (
	phaseNew phase = iota
	phaseOpen
	phaseClosed
)

const (
	readConns    = 4
	maxBatch     = 256
	startTimeout = 10 * time.Second
	sweepChunk   = 100
	busyTimeout  = "5000" // milliseconds
	clearChunk   = 100    // revoked sessions deleted per write; each is on a page of its own
)

var errNotOpen = errors.New("the SQLite store is not open")

// Open returns the store in a file. It does not touch the file before Start.
func Open(file string) *Store {
	return &Store{file: file, half: sqlstore.HalfOf(readConns), reading: make(chan struct{}, readConns), checks: make(chan struct{}, 1)}
}

// Accounts returns the accounts in the file. Its methods fail until Start has succeeded.
func (s *Store) Accounts() record.Accounts {
	return accounts{s, sqlstore.Accounts{Database: s, Dialect: dialect}}
}

// Sessions returns the sessions in the file. Its methods fail until Start has succeeded.
func (s *Store) Sessions() record.Sessions { return sessions{s} }

// Start opens the file and updates its tables. If the file or its directory is
// missing, it creates them, readable only by this user. After an error you may call
// it again. On a started store it does nothing. Its error wraps record.ErrUnreachable if
// the file exists but the disk is full or read-only.
func (s *Store) Start(ctx context.Context) error {
	if s.beginCall() == nil { // don't wait for calls in flight, as new calls would wait, too
		s.endCall()
		return nil
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	switch s.phase {
	case phaseOpen:
		return nil
	case phaseClosed:
		return errNotOpen
	}
	info, _ := os.Stat(s.file)
	if err := s.open(ctx); err != nil {
		err = fmt.Errorf("opening the SQLite file %s: %w", s.file, err)
		if info != nil && info.Size() > 0 && diskTakesNoWrites(err) {
			err = fmt.Errorf("%w: %w", record.ErrUnreachable, err)
		}
		return explain(err)
	}
	s.ops, s.empties = make(chan *op), make(chan chan error)
	s.quit, s.stopped = make(chan struct{}), make(chan struct{})
	s.phase, s.created = phaseOpen, info == nil || info.Size() == 0
	go s.commitLoop()
	return nil
}

// Place returns the file, and whether Start created it.
func (s *Store) Place() (string, bool) {
	s.calls.RLock()
	defer s.calls.RUnlock()
	return s.file, s.created
}

// Close waits for the calls in flight, ends backups and closes the file. Later calls
// of any method fail. If a disk is stuck, Close returns after a while and goes on in the
// background; later calls then wait for it.
func (s *Store) Close() error {
	closed := make(chan error, 1)
	go func() { closed <- s.close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(3 * stall): // waiting calls end after stall, then the write that is under way
		return errStalled
	}
}

func (s *Store) close() error {
	s.calls.Lock()
	defer s.calls.Unlock()
	before := s.phase
	s.phase = phaseClosed
	if before != phaseOpen {
		return nil
	}
	close(s.quit)
	select {
	case <-s.stopped:
	case <-time.After(stall):
		return errStalled
	}
	return errors.Join(s.keeper.Close(), s.readers.Close(), s.writers.Close())
}

// beginCall begins a call. It fails if the store is not open, or its file is not in its
// place. After it, call endCall.
func (s *Store) beginCall() error {
	s.calls.RLock()
	err := errNotOpen
	if s.phase == phaseOpen {
		err = s.inPlace()
	}
	if err != nil {
		s.calls.RUnlock()
	}
	return err
}

// inPlace returns an error if another file is at the path of the open one or of its log, or
// none, or if the file was emptied. Changes would then be lost with the next start.
func (s *Store) inPlace() error {
	for i, opened := range s.opened {
		info, err := os.Stat(opened.name)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return explain(fmt.Errorf("looking whether the file is in its place: %w", err))
		case err != nil || !os.SameFile(opened.info, info):
			err = fmt.Errorf("%w: %s was moved, removed or replaced while it was open", record.ErrDamaged, opened.name)
		case i == 0 && info.Size() == 0:
			err = fmt.Errorf("%w: %s was emptied while it was open", record.ErrDamaged, opened.name)
		default:
			continue
		}
		return causes.Explain(err, opened.step)
	}
	return nil
}

// What to do if the file, its log or the file with its locks is gone. Closing the store moves what is in the log,
// which it still has open, into the file.
const (
	stepFileGone  = "put it back, or else stop Caddy and restore a backup (caddy mnemogate restore)"
	stepLocksGone = "stop Caddy with SIGTERM, as systemctl stop does, and start it again: until then, another program that opens the file damages it"
	stepLogGone   = "put it back, or else stop Caddy with SIGTERM, as systemctl stop does, and start it again: it keeps what is in this file only if it is not killed"
)

func (s *Store) endCall() { s.calls.RUnlock() }

// Reading implements sqlstore.Database, on the reading connections. It checks the caller's
// context only before f: interrupting a statement takes longer than running it, and
// costs the connection. It waits for a connection until then, or for stall: a disk that is
// stuck may hold all of them.
func (s *Store) Reading(ctx context.Context, f func(context.Context, sqlstore.Queries) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leave, err := s.half.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	select {
	case s.reading <- struct{}{}:
	default:
		stalled := time.NewTimer(stall)
		defer stalled.Stop()
		select {
		case s.reading <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled.C:
			return errStalled
		}
	}
	defer func() { <-s.reading }()
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	return f(context.WithoutCancel(ctx), s.reads)
}

// Writing uses a transaction, as every write does.
func (s *Store) Writing(ctx context.Context, f func(context.Context, sqlstore.Queries) error) error {
	return s.Transaction(ctx, f)
}

func (s *Store) Transaction(ctx context.Context, f func(context.Context, sqlstore.Queries) error) error {
	return s.write(ctx, func(ctx context.Context, tx *queries) error { return f(ctx, tx) })
}

// trialRows is how many rows Check writes: more than a batch of logins.
const trialRows = 1000

// Check writes and deletes as much as many logins do. Then it reads the whole file and
// finds out whether it is damaged. Checks wait for each other before they read.
func (s *Store) Check(ctx context.Context) error {
	err := s.call(ctx, "writing to the file", func(ctx context.Context, tx *queries) error {
		const company = "/check"
		for range trialRows {
			tx.Later(ctx, sqlstore.InsertFailures, company, 0, rand.Text(), string(record.WrongPasswords), 1, 0, 0)
		}
		tx.Later(ctx, `DELETE FROM failures WHERE company = $1`, company)
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case s.checks <- struct{}{}:
		defer func() { <-s.checks }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.holding.Add(1)
	defer s.holding.Add(-1)
	return sqlstore.Call(ctx, s, "checking the file", func() error {
		db, err := s.another()
		if err != nil {
			return err
		}
		defer db.Close()
		return check(ctx, db)
	})
}

// Opening

func (s *Store) open(ctx context.Context) error {
	file, err := filepath.Abs(s.file)
	if err != nil {
		return err
	}
	if err := createPrivateFile(file); err != nil {
		return err
	}
	if err := s.fromBackup(file); err != nil {
		return err
	}
	readers, err := sql.Open("sqlite", dsn(file, "query_only(1)"))
	if err != nil {
		return err
	}
	readers.SetMaxOpenConns(readConns + 1)
	readers.SetMaxIdleConns(readConns)
	keeper, err := readers.Conn(ctx)
	if err != nil {
		return errors.Join(err, readers.Close())
	}
	if err := checkOurs(ctx, keeper); err != nil { // before anything is written to the file
		return errors.Join(err, keeper.Close(), readers.Close())
	}
	writers, err := sql.Open("sqlite", dsn(file, "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "foreign_keys(1)",
		// Checkpoint every 4 MB, and give space back after the log has grown in a
		// burst.
		"wal_autocheckpoint(1000)", "journal_size_limit(16777216)",
		// Overwrite deleted data. The log still has them: see emptyLog.
		"secure_delete(1)"))
	if err != nil {
		return errors.Join(err, keeper.Close(), readers.Close())
	}
	writers.SetMaxOpenConns(1)
	if err = migrate(ctx, writers); err == nil {
		err = s.keep(ctx, keeper, file)
	}
	if err == nil {
		err = openAll(ctx, readers)
	}
	if err != nil {
		return errors.Join(err, keeper.Close(), readers.Close(), writers.Close())
	}
	s.makePrivate(file) // not before it is known to be ours
	s.path, s.writers, s.readers, s.keeper, s.reads = file, writers, readers, keeper, newQueries(readers)
	return nil
}

// another returns a connection for a call that reads for minutes, so that it takes none
// from readers.
func (s *Store) another() (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(s.path, "query_only(1)"))
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// openAll opens the connections of readers, which stay open. So no call has to open a file,
// which it can't while strangers hold all connections that Caddy may have.
func openAll(ctx context.Context, readers *sql.DB) error {
	for range readConns {
		conn, err := readers.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // gives it back, once all are open
		if err := openLog(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

func openLog(ctx context.Context, conn *sql.Conn) error {
	var tables int
	return conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables)
}

// keep opens the log on a connection that stays open, and notes which files are open.
func (s *Store) keep(ctx context.Context, keeper *sql.Conn, file string) error {
	err := openLog(ctx, keeper)
	if err == nil {
		file, err = filepath.EvalSymlinks(file) // the log is beside the file itself
	}
	s.opened = []openedFile{{name: s.file, step: stepFileGone}, {name: file + "-wal", step: stepLogGone}, {name: file + "-shm", step: stepLocksGone}}
	for i, opened := range s.opened {
		if err == nil {
			s.opened[i].info, err = os.Stat(opened.name)
		}
	}
	return err
}

// diskTakesNoWrites reports whether err comes from the disk, so that a later attempt
// may succeed.
func diskTakesNoWrites(err error) bool {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
		return !isCut(err)
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// isCut reports whether a file has less than SQLite has written to it.
func isCut(err error) bool { return code(err) == sqlite3.SQLITE_IOERR_SHORT_READ }

// createPrivateFile creates a file that only this user can read. SQLite gives its
// -wal and -shm files the same mode.
func createPrivateFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		return causes.Explain(errors.New("it is no regular file"), "name one, as in /var/lib/mnemogate/mnemogate.db")
	}
	if err == nil {
		// Do not open it: closing it would end all locks of this process on it
		// (sqlite.org/howtocorrupt.html, 2.2), and another store may have it open.
		if err := os.Chmod(file, info.Mode().Perm()); errors.Is(err, syscall.EROFS) {
			return err // SQLite only says that it can't open the file
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600) // also behind a link
	if err != nil {
		return err
	}
	return f.Close()
}

// fromBackup looks whether somebody has copied a backup to the file's place, and removes its
// checksum line. Otherwise SQLite would mix the log of the file that was there before into it.
func (s *Store) fromBackup(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Size()%512 != checksumSize { // pages are multiples of 512 bytes
		return err // a store that is open ends here: closing its file once more would end its locks
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	begins, _, _ := strings.Cut(checksumLine, "%")
	line := make([]byte, len(begins))
	if _, err := f.ReadAt(line, info.Size()-checksumSize); err != nil || string(line) != begins {
		return err
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	if log, err := os.Stat(target + "-wal"); err == nil && log.Size() > 0 {
		return causes.Explain(fmt.Errorf("it was copied from a backup, and %s-wal belongs to the file that was here before", target), "restore the backup instead: caddy mnemogate restore --force")
	}
	if s.Log != nil {
		s.Log.Warn("this file was copied from a backup: sessions that were revoked and codes that were used since are valid again; unless you want that, stop Caddy and restore the backup instead (caddy mnemogate restore --force)", "file", file)
	}
	if err := f.Truncate(info.Size() - checksumSize); err != nil {
		return err
	}
	return f.Sync() // before its log has anything
}

// makePrivate removes other users' access to existing files, such as a file that was
// copied into place.
func (s *Store) makePrivate(file string) {
	if runtime.GOOS == "windows" {
		return // Windows has no file modes
	}
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(name, info.Mode().Perm()&^0o077); err != nil {
			log.Warn("other users can read or write this file, which holds all accounts: let its owner run chmod 600 on it", "file", name, "mode", info.Mode(), "error", err)
			continue
		}
		log.Warn("other users could read or write this file, which holds all accounts; now only this user can", "file", name, "mode", info.Mode())
	}
}

// dsn names the file as a URI, so that it may contain a space, % or ?. The
// pragmas apply to each connection that is opened. Temporary data stay in memory,
// because a service with a read-only root may have no directory for temporary files. The
// file must exist: an empty one must not take the place of one that was moved away.
func dsn(file string, pragmas ...string) string {
	file = filepath.ToSlash(file)
	if !strings.HasPrefix(file, "/") { // C:/…
		file = "/" + file
	}
	query := url.Values{
		"_pragma": append([]string{"busy_timeout(" + busyTimeout + ")", "temp_store(MEMORY)"}, pragmas...),
		"_txlock": {"immediate"},
		"mode":    {"rw"},
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: query.Encode()}).String()
}
