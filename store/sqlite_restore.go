package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	sqlite3 "modernc.org/sqlite/lib"
)

// A SQLiteRestore puts a backup where a SQLite store is to find it.
type SQLiteRestore struct {
	From, To string
	// Replace a file that is there.
	Replace bool
	// Unverified takes a file without a checksum, which an older version made.
	Unverified bool
	// KeepSessions goes on with the sessions, codes and links in the backup. What
	// was ended or spent since it was made is then good again.
	KeepSessions bool
}

// SQLiteRestored is what a restored store has.
type SQLiteRestored struct {
	Accounts      int64
	SessionsEnded int64 // with links and pending logins
}

// Run does it. Nobody may have the file open that is replaced. Until all is
// right and on the disk that stays as it is, and after an error all is as it was.
func (r SQLiteRestore) Run(ctx context.Context) (done SQLiteRestored, err error) {
	size, line, err := checkSQLiteHeader(r.From)
	if err != nil {
		return done, err
	}
	if line == "" && !r.Unverified {
		return done, fmt.Errorf("%s has no checksum: a version before v0.2.0 made it, which --unverified restores, or it was changed since; then take another backup", r.From)
	}
	to, err := filepath.Abs(r.To)
	if err != nil {
		return done, err
	}
	if err := r.mayReplace(to); err != nil {
		return done, err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return done, err
	}
	made, sum, err := copyPrivately(ctx, r.From, filepath.Dir(to), size)
	if err != nil {
		return done, fmt.Errorf("copying %s: %w", r.From, err)
	}
	defer removeSQLite(made)
	if line != "" && line != fmt.Sprintf(sqliteChecksumLine, sum) {
		return done, fmt.Errorf("%s does not match its checksum: it has been changed since it was made; take another backup", r.From)
	}
	if done, err = r.prepare(ctx, made); err != nil {
		return done, err
	}
	return done, r.putInPlace(ctx, made, to)
}

// mayReplace refuses where something is in the way. A log without its file is, too: SQLite
// would take it for the log of the restored one.
func (r SQLiteRestore) mayReplace(to string) error {
	if same, err := sameFile(r.From, to); err != nil || same {
		return errors.Join(err, errors.New("the backup is the file to restore: name another with --to"))
	}
	for _, file := range append([]string{to}, sqliteBeside(to)...) {
		if _, err := os.Lstat(file); err == nil && !r.Replace {
			return fmt.Errorf("%s is there: look whether it is still of use, and replace it with --force", file)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func sameFile(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second), nil
}

// checkSQLiteHeader refuses a file that is not SQLite's, or not whole. It returns the
// size of its pages, and the line that follows them if it is as long as that of a checksum.
func checkSQLiteHeader(file string) (size int64, line string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	var header [100]byte
	if _, err := io.ReadFull(f, header[:]); err != nil || !bytes.HasPrefix(header[:], []byte("SQLite format 3\x00")) {
		return 0, "", fmt.Errorf("%s is no backup of mnemogate", file)
	}
	page := int64(binary.BigEndian.Uint16(header[16:]))
	if page == 1 {
		page = 65536
	}
	size = page * int64(binary.BigEndian.Uint32(header[28:]))
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	switch behind := info.Size() - size; {
	case behind < 0, behind > 0 && behind < sqliteChecksumSize:
		return 0, "", fmt.Errorf("%s is cut off: it has %d of %d bytes", file, info.Size(), size+sqliteChecksumSize)
	case behind == sqliteChecksumSize:
		last := make([]byte, behind)
		if _, err := f.ReadAt(last, size); err != nil {
			return 0, "", err
		}
		line = string(last)
	}
	if log, err := os.Stat(file + "-wal"); err == nil && log.Size() > 0 {
		return 0, "", fmt.Errorf("%s is not a backup but a store's own file, and what changed last is in %s-wal: "+
			"make a backup of it with caddy mnemogate backup", file, file)
	}
	return size, line, nil
}

// copyPrivately copies the first bytes of a file to a new one in dir that nobody else can
// read, and returns their checksum.
func copyPrivately(ctx context.Context, from, dir string, size int64) (name string, sum []byte, err error) {
	source, err := os.Open(from)
	if err != nil {
		return "", nil, err
	}
	defer source.Close()
	made, err := os.CreateTemp(dir, ".mnemogate-restore-*") // 0600
	if err != nil {
		return "", nil, err
	}
	hash := sha256.New()
	_, err = io.CopyN(io.MultiWriter(made, hash), readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return source.Read(p)
	}), size)
	if err = errors.Join(err, made.Close()); err != nil {
		os.Remove(made.Name())
	}
	return made.Name(), hash.Sum(nil), err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

const (
	sqliteIsOurs = `SELECT count(*) = 3 FROM sqlite_schema WHERE type = 'table' AND name IN ('migrations', 'accounts', 'secret')`
	// At the start of the store the ending of an era that is owed reaches also
	// sessions that are kept elsewhere. Seconds since 1970, because an era may
	// never be given twice, also not one that was begun since the backup.
	sqliteRestoreGenerations = `
		INSERT INTO eras (company, era) SELECT company, unixepoch() FROM (SELECT company FROM accounts UNION SELECT company FROM eras) WHERE true
		ON CONFLICT (company) DO UPDATE SET era = max(era + 1, excluded.era)`
)

// prepare checks a copy of the backup and brings it up to date.
func (r SQLiteRestore) prepare(ctx context.Context, file string) (done SQLiteRestored, err error) {
	db, err := sql.Open("sqlite", sqliteDSN(file, "journal_mode(DELETE)", "synchronous(FULL)", "foreign_keys(1)", "secure_delete(1)"))
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	var ours bool
	if err := db.QueryRowContext(ctx, sqliteIsOurs).Scan(&ours); err != nil {
		return done, r.damaged(err)
	}
	if !ours {
		return done, fmt.Errorf("%s is of another program, or a copy of a running store's file, most of which is in the -wal beside it: "+
			"make backups with caddy mnemogate backup", r.From)
	}
	var result string
	if err := db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&result); err != nil {
		return done, r.damaged(err)
	}
	if result != "ok" {
		return done, r.damaged(errors.New(result))
	}
	if err := migrateSQLite(ctx, db); err != nil {
		return done, fmt.Errorf("%s: %w", r.From, err)
	}
	if !r.KeepSessions {
		if done.SessionsEnded, err = endAllSQLite(ctx, db); err != nil {
			return done, fmt.Errorf("ending sessions: %w", err)
		}
	}
	return done, db.QueryRowContext(ctx, `SELECT count(*) FROM accounts`).Scan(&done.Accounts)
}

func (r SQLiteRestore) damaged(err error) error {
	return fmt.Errorf("%s is damaged: %w", r.From, err)
}

// endAllSQLite ends all sessions, with their codes, all links, and the pending
// logins that only their tokens hold.
func endAllSQLite(ctx context.Context, db *sql.DB) (n int64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, `DELETE FROM sessions`)
	if err != nil {
		return 0, err
	}
	if n, err = result.RowsAffected(); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, sqliteRestoreGenerations); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// putInPlace makes of the file made the one at to.
func (r SQLiteRestore) putInPlace(ctx context.Context, made, to string) error {
	if err := giveToOwner(made, to); err != nil {
		return err
	}
	if err := SyncFile(made); err != nil {
		return err
	}
	unlock, err := lockSQLite(ctx, to)
	if err != nil {
		return err
	}
	defer unlock()
	for _, file := range sqliteBeside(to) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(made, to); err != nil {
		return err
	}
	return SyncFile(filepath.Dir(to))
}

// lockSQLite makes sure that nobody has the file open, and keeps others out until
// it is unlocked. Only who is alone can take a file out of WAL mode, which also
// takes its log away.
func lockSQLite(ctx context.Context, file string) (unlock func(), err error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	db, err := sql.Open("sqlite", sqliteDSN(file))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, statement := range []string{`PRAGMA busy_timeout = 500`, `PRAGMA journal_mode = DELETE`, `BEGIN EXCLUSIVE`} {
		if _, err = db.ExecContext(ctx, statement); err != nil {
			break
		}
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		err = fmt.Errorf("%s is open: stop Caddy, and whatever else reads it", file)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT: // nobody makes use of it
		err = nil
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return func() { db.Close() }, nil
}

// sqliteBeside are the files that SQLite keeps beside its file.
func sqliteBeside(file string) []string {
	return []string{file + "-wal", file + "-shm", file + "-journal"}
}

func removeSQLite(file string) {
	for _, name := range append(sqliteBeside(file), file) {
		os.Remove(name)
	}
}

// SyncFile sees to it that a file, or what is in a directory, survives power loss.
func SyncFile(name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() && runtime.GOOS == "windows" {
		return nil // which can't
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
