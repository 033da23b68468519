package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mnemogate/mnemogate/flows"
)

// SQLite keeps accounts and sessions in one file, for a single machine. Several
// processes may use the file at once. What a method has acknowledged survives
// power loss.
//
// Reads run on a few connections of their own. Writes queue for one goroutine,
// which commits all that wait in one transaction: an fsync costs more than a
// hundred writes.
//
// What is deleted is overwritten: once the sweep of the accounts that follows
// has ended, none of the files has it any more. Only where SQLite had moved a row
// to another page, a copy may be left in the unused part of the first (seen with
// one row in thousands), until VACUUM writes the file anew.
type SQLite struct {
	// Log is told what an operator should know; nil for nobody. It is set before
	// Start.
	Log *slog.Logger

	file string

	mu    sync.RWMutex // guards phase, and calls against an Add after Close
	phase sqlitePhase
	calls sync.WaitGroup

	readers *sql.DB
	reads   *sqliteQueries
	writers *sql.DB // one connection at most
	ops     chan *sqliteOp
	empties chan chan error            // of emptyLog
	feed    atomic.Pointer[flows.Feed] // of Run; nil before
	backups atomic.Int32               // under way
	quit    chan struct{}              // closed by Close
	stopped chan struct{}              // closed by the goroutine that writes
}

type sqlitePhase int

const (
	sqliteNew sqlitePhase = iota
	sqliteOpen
	sqliteClosed
)

const (
	sqliteReadConns    = 4
	sqliteMaxBatch     = 256
	sqliteDrainTimeout = 5 * time.Second
	sqliteStartTimeout = 10 * time.Second
	sqliteSweepChunk   = 100
	sqliteBusyTimeout  = "5000" // milliseconds
	sqliteClearChunk   = 100    // of sessions that an ending leaves, each in a page of its own
)

var errSQLiteNotOpen = errors.New("the SQLite store is not open")

// OpenSQLite returns the store in a file. It touches nothing before Start.
func OpenSQLite(file string) *SQLite { return &SQLite{file: file} }

// Accounts returns the accounts in the file.
func (s *SQLite) Accounts() flows.Accounts { return sqliteAccounts{s} }

// Sessions returns the sessions in the file.
func (s *SQLite) Sessions() flows.Sessions { return sqliteSessions{s} }

// Start opens the file, creating it and its directory for this user alone if
// they are missing, and brings its tables up to date. After a failure it may be
// called again; on a started store it does nothing. Its error wraps
// ErrUnreachable if the file is there, and its disk full or read-only.
func (s *SQLite) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.phase {
	case sqliteOpen:
		return nil
	case sqliteClosed:
		return errSQLiteNotOpen
	}
	info, _ := os.Stat(s.file)
	if err := s.open(ctx); err != nil {
		err = fmt.Errorf("opening the SQLite file %s: %w", s.file, err)
		if info != nil && info.Size() > 0 && takesNoWrites(err) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return err
	}
	s.ops, s.empties = make(chan *sqliteOp), make(chan chan error)
	s.quit, s.stopped = make(chan struct{}), make(chan struct{})
	s.phase = sqliteOpen
	go s.commitLoop()
	return nil
}

// Close lets the calls in flight finish, for a few seconds at most, and closes
// the file. Later calls of any method fail.
func (s *SQLite) Close() error {
	s.mu.Lock()
	before := s.phase
	s.phase = sqliteClosed
	s.mu.Unlock()
	if before != sqliteOpen {
		return nil
	}
	drained := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(sqliteDrainTimeout):
	}
	close(s.quit)
	<-s.stopped
	return errors.Join(s.readers.Close(), s.writers.Close())
}

// beginCall begins a call, unless the store is not open. Each one needs an endCall.
func (s *SQLite) beginCall() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.phase != sqliteOpen {
		return errSQLiteNotOpen
	}
	s.calls.Add(1)
	return nil
}

func (s *SQLite) endCall() { s.calls.Done() }

// Opening

func (s *SQLite) open(ctx context.Context) error {
	file, err := filepath.Abs(s.file)
	if err != nil {
		return err
	}
	if err := createPrivateFile(file); err != nil {
		return err
	}
	s.makePrivate(file)
	writers, err := sql.Open("sqlite", sqliteDSN(file, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		// A checkpoint each 4 MB; what a burst adds to the log is given back.
		"wal_autocheckpoint(1000)", "journal_size_limit(16777216)",
		// What is deleted is overwritten. The log still has it: see emptyLog.
		"secure_delete(1)"))
	if err != nil {
		return err
	}
	writers.SetMaxOpenConns(1)
	if err := migrateSQLite(ctx, writers); err != nil {
		return errors.Join(err, writers.Close())
	}
	readers, err := sql.Open("sqlite", sqliteDSN(file, "query_only(1)"))
	if err != nil {
		return errors.Join(err, writers.Close())
	}
	readers.SetMaxOpenConns(sqliteReadConns)
	readers.SetMaxIdleConns(sqliteReadConns)
	s.writers, s.readers, s.reads = writers, readers, newSQLiteQueries(readers)
	return nil
}

// takesNoWrites reports whether an error is one of the disk's, which may pass.
func takesNoWrites(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
		return true
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// createPrivateFile sees to it that nobody else can read the file. SQLite gives the
// files beside it the same mode.
func createPrivateFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// makePrivate sees to it that nobody else can read files that were there before,
// as one that was copied into place.
func (s *SQLite) makePrivate(file string) {
	if runtime.GOOS == "windows" {
		return // which has no file modes
	}
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(name, info.Mode().Perm()&^0o077); err != nil {
			log.Warn("others may read or write this file, with all accounts: let its owner run chmod 600 on it", "file", name, "mode", info.Mode(), "error", err)
			continue
		}
		log.Warn("others could read or write this file, with all accounts; it is this user's alone now", "file", name, "mode", info.Mode())
	}
}

// sqliteDSN names the file as a URI, so that a space, % or ? in it is a part of the
// name. The pragmas are applied to each connection that is opened.
func sqliteDSN(file string, pragmas ...string) string {
	file = filepath.ToSlash(file)
	if !strings.HasPrefix(file, "/") { // C:/…
		file = "/" + file
	}
	query := url.Values{
		"_pragma": append([]string{"busy_timeout(" + sqliteBusyTimeout + ")"}, pragmas...),
		"_txlock": {"immediate"},
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: query.Encode()}).String()
}

// Migrations

//go:embed migrations/sqlite/*.sql
var sqliteMigrations embed.FS

// Names of what was applied. What is in migrations an older version refuses to
// run with; what only adds, so that it can, is in additions. Those of v0.1.0
// are in migrations.
const (
	sqliteCreateMigrations = `
		CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT;
		CREATE TABLE IF NOT EXISTS additions (name TEXT PRIMARY KEY) STRICT`
	sqliteSelectMigrations = `SELECT name, false FROM migrations UNION ALL SELECT name, true FROM additions ORDER BY name`
	sqliteInsertMigration  = `INSERT INTO migrations (name) VALUES (?)`
	sqliteInsertAddition   = `INSERT INTO additions (name) VALUES (?)`

	sqliteLastMigration = "006_sessions.sql"
)

// migrateSQLite brings the tables up to date. Another process may be at the same.
func migrateSQLite(ctx context.Context, db *sql.DB) error {
	entries, err := fs.ReadDir(sqliteMigrations, "migrations/sqlite")
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	// Only waiting is bounded: to index a large file takes its time.
	waiting, cancel := context.WithTimeout(ctx, sqliteStartTimeout)
	defer cancel()
	for i := range names {
		if err := whileSQLiteIsBusy(waiting, func() error { return migrateSQLiteOnce(ctx, db, names, names[i]) }); err != nil {
			return fmt.Errorf("applying migration %s: %w", names[i], err)
		}
	}
	return nil
}

// migrateSQLiteOnce applies one migration unless it has been. Its transaction locks
// the file from its beginning, so nobody else applies it meanwhile.
func migrateSQLiteOnce(ctx context.Context, db *sql.DB, known []string, name string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, sqliteCreateMigrations); err != nil {
		return err
	}
	applied, err := appliedSQLiteMigrations(ctx, tx)
	if err != nil {
		return err
	}
	if err := refuseNewer(applied, known); err != nil {
		return err
	}
	if _, is := applied[name]; is {
		return nil
	}
	script, err := sqliteMigrations.ReadFile("migrations/sqlite/" + name)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, string(script)); err != nil {
		return err
	}
	insert := sqliteInsertAddition
	if name <= sqliteLastMigration {
		insert = sqliteInsertMigration
	}
	if _, err := tx.ExecContext(ctx, insert, name); err != nil {
		return err
	}
	return tx.Commit()
}

// appliedSQLiteMigrations returns which only add, by their names.
func appliedSQLiteMigrations(ctx context.Context, tx *sql.Tx) (map[string]bool, error) {
	rows, err := tx.QueryContext(ctx, sqliteSelectMigrations)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := map[string]bool{}
	for rows.Next() {
		var name string
		var adds bool
		if err := rows.Scan(&name, &adds); err != nil {
			return nil, err
		}
		applied[name] = adds
	}
	return applied, rows.Err()
}

func refuseNewer(applied map[string]bool, known []string) error {
	for name, adds := range applied {
		if !adds && !slices.Contains(known, name) {
			return fmt.Errorf("a newer version of mnemogate has changed the file (migration %q is not known here): "+
				"run that version, or put back a copy of the file from before the upgrade", name)
		}
	}
	return nil
}

// whileSQLiteIsBusy repeats f while the file is locked. The busy timeout does not
// cover everything: of two connections that turn a new file to WAL mode, one
// fails at once.
func whileSQLiteIsBusy(ctx context.Context, f func() error) error {
	for {
		err := f()
		if sqliteCode(err)&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Reading and writing

// read runs f with the connections that read. The caller's context is looked at
// before: to interrupt a statement takes longer than the statement, and costs
// the connection.
func (s *SQLite) read(ctx context.Context, f func(context.Context, *sqliteQueries) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	return f(context.WithoutCancel(ctx), s.reads)
}

// A sqliteOp is a write that waits to be committed.
type sqliteOp struct {
	run   func(context.Context, *sqliteQueries) error
	taken atomic.Bool // by the goroutine that writes, or by its caller, who gives it up
	err   error       // of run
	done  chan error
}

// write runs f in a transaction and returns once that is durable. If f fails,
// nothing of it is stored and its error is returned; any other error means that
// it may have been stored or not. A caller whose context ends gives its write up
// only before it has begun, so f is never running when write has returned.
func (s *SQLite) write(ctx context.Context, f func(context.Context, *sqliteQueries) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	o := &sqliteOp{run: f, done: make(chan error, 1)}
	select {
	case s.ops <- o:
	case <-s.quit:
		return errSQLiteNotOpen
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		if o.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		return <-o.done
	}
}

// emptyLog takes what was deleted out of the log, see sqliteWriter.
func (s *SQLite) emptyLog(ctx context.Context) error {
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	done := make(chan error, 1)
	select {
	case s.empties <- done:
		return <-done
	case <-s.quit:
		return errSQLiteNotOpen
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitLoop commits what waits, until Close.
func (s *SQLite) commitLoop() {
	defer close(s.stopped)
	var c sqliteWriter
	defer c.discard()
	for {
		select {
		case o := <-s.ops:
			s.commit(&c, s.waiting(o))
		case done := <-s.empties:
			err := flows.Contain(func() error { return c.emptyLog(context.Background(), s.writers) })
			if err != nil && err != errSQLiteRead {
				c.discard() // its busy timeout may be the short one
			}
			done <- err
		case <-s.quit:
			return
		}
	}
}

// waiting returns first and the writes that wait behind it.
func (s *SQLite) waiting(first *sqliteOp) []*sqliteOp {
	batch := []*sqliteOp{first}
	for len(batch) < sqliteMaxBatch {
		select {
		case o := <-s.ops:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch in one transaction and then answers all of it. If the
// transaction failed, so did every op, whatever its own result was: that may
// have come from what another op wrote. What state the connection is in then is
// not worth finding out; closing it rolls back.
func (s *SQLite) commit(c *sqliteWriter, batch []*sqliteOp) {
	err := flows.Contain(func() error { return c.transact(context.Background(), s.writers, batch) })
	if err != nil {
		c.discard()
	}
	for _, o := range batch {
		if err != nil {
			o.err = err
		}
		o.done <- o.err
	}
}

// A sqliteWriter is the connection that writes, if there is one, and its statements.
type sqliteWriter struct {
	conn *sql.Conn
	*sqliteQueries
}

func (c *sqliteWriter) connect(ctx context.Context, db *sql.DB) error {
	if c.conn != nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	c.conn, c.sqliteQueries = conn, newSQLiteQueries(conn)
	return nil
}

func (c *sqliteWriter) transact(ctx context.Context, db *sql.DB, batch []*sqliteOp) error {
	if err := c.connect(ctx, db); err != nil {
		return err
	}
	if _, err := c.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return fmt.Errorf("beginning: %w", err)
	}
	for _, o := range batch {
		if !o.taken.CompareAndSwap(false, true) {
			continue
		}
		if err := c.attempt(ctx, o); err != nil {
			return err
		}
	}
	if _, err := c.exec(ctx, `COMMIT`); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	return nil
}

// attempt runs an op in a savepoint, so that one which fails leaves the others
// as they are. Its own error is in o.err; the one returned is the transaction's.
func (c *sqliteWriter) attempt(ctx context.Context, o *sqliteOp) error {
	if _, err := c.exec(ctx, `SAVEPOINT op`); err != nil {
		return fmt.Errorf("setting a savepoint: %w", err)
	}
	if o.err = flows.Contain(func() error { return o.run(ctx, c.sqliteQueries) }); o.err != nil {
		if _, err := c.exec(ctx, `ROLLBACK TO op`); err != nil {
			// %v: to the other callers this op's error is no answer.
			return fmt.Errorf("rolling back after %v: %w", o.err, err)
		}
		if sqliteCode(o.err)&0xff == sqlite3.SQLITE_READONLY {
			// Opened while the file was read-only, a connection stays so. A new
			// one may not.
			return o.err
		}
	}
	if _, err := c.exec(ctx, `RELEASE op`); err != nil {
		return fmt.Errorf("releasing a savepoint: %w", err)
	}
	return nil
}

// emptyLog moves what the log holds into the file, where secure_delete has
// overwritten what was deleted, and cuts the log to nothing: until then the log
// still has what was deleted. Whoever reads an older state is waited for, but
// not for long, since nobody can write meanwhile.
func (c *sqliteWriter) emptyLog(ctx context.Context, db *sql.DB) error {
	if err := c.connect(ctx, db); err != nil {
		return err
	}
	// Not prepared: SQLite sets this while it compiles the statement.
	if _, err := c.conn.ExecContext(ctx, `PRAGMA busy_timeout = 100`); err != nil {
		return err
	}
	var busy, length, moved int
	if err := c.row(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &length, &moved); err != nil {
		return err
	}
	_, err := c.conn.ExecContext(ctx, `PRAGMA busy_timeout = `+sqliteBusyTimeout)
	if err == nil && busy != 0 {
		return errSQLiteRead
	}
	return err
}

var errSQLiteRead = errors.New("another process reads or writes the file all the time, " +
	"so what was deleted can't be taken out of its log yet")

// discard closes the connection instead of giving it back to its pool. Without
// its statements being closed, SQLite would keep it open, and what it has locked.
func (c *sqliteWriter) discard() {
	if c.conn == nil {
		return
	}
	for _, stmt := range c.prepared {
		stmt.Close()
	}
	c.conn.Raw(func(any) error { return driver.ErrBadConn })
	*c = sqliteWriter{}
}

// Statements

// sqliteQueries runs statements, each prepared once, on a pool or a connection.
type sqliteQueries struct {
	on       preparer
	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

// A preparer is a *sql.DB or *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func newSQLiteQueries(on preparer) *sqliteQueries {
	return &sqliteQueries{on: on, prepared: map[string]*sql.Stmt{}}
}

func (q *sqliteQueries) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if stmt := q.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := q.on.PrepareContext(ctx, query)
	if err == nil {
		q.prepared[query] = stmt
	}
	return stmt, err
}

// exec returns how many rows a statement changed.
func (q *sqliteQueries) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// execOr is exec that fails with otherwise where no row was changed.
func (q *sqliteQueries) execOr(ctx context.Context, otherwise error, query string, args ...any) error {
	n, err := q.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

func (q *sqliteQueries) row(ctx context.Context, query string, args ...any) scanner {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return noRow{err}
	}
	return stmt.QueryRowContext(ctx, args...)
}

type noRow struct{ err error }

func (r noRow) Scan(...any) error { return r.err }

// collectSQLite returns all rows of a query.
func collectSQLite[T any](
	ctx context.Context, q *sqliteQueries, scan func(scanner) (T, error), query string, args ...any,
) ([]T, error) {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		t, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, rows.Err()
}

// sweep repeats a statement that deletes up to sqliteSweepChunk rows until none
// is left. Each chunk is a write of its own, so that others come between.
func (s *SQLite) sweep(ctx context.Context, query string, before int64) error {
	for {
		var n int64
		err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
			n, err = tx.exec(ctx, query, before, sqliteSweepChunk)
			return err
		})
		if err != nil || n < sqliteSweepChunk {
			return err
		}
	}
}

// Errors

// translateSQLite returns what the interfaces promise in place of the driver's
// errors, and any other error with what was being done.
func translateSQLite(doing string, err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[refusal](err); ok {
		return r.error
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return flows.ErrConflict
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return flows.ErrNotFound
	}
	if errors.Is(err, sql.ErrNoRows) {
		return flows.ErrNotFound
	}
	if flows.IsAnswer(err) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// sqliteCode returns SQLite's extended result code, 0 if err is not SQLite's.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}
