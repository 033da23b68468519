package sqlite

import (
	"bytes"
	"cmp"
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

	"github.com/mnemogate/mnemogate/flows/record"
)

// A Restore restores a backup to the file of a SQLite store.
type Restore struct {
	From, To string
	// Replace allows replacing an existing file.
	Replace bool
	// Unverified accepts a file without a checksum, as other programs make them.
	Unverified bool
	// KeepSessions keeps the sessions, codes and links of the backup. Sessions that
	// were revoked and codes that were used after the backup was made are then valid
	// again.
	KeepSessions bool
}

// Restored says what a restored store contains.
type Restored struct {
	Accounts      int64
	SessionsEnded int64 // sessions revoked, including links and pending logins
}

// Run restores the backup. No process may have the file to be replaced open. That file
// keeps its accounts until the restored one, complete and on the disk, takes its place.
func (r Restore) Run(ctx context.Context) (done Restored, err error) {
	size, line, err := checkHeader(r.From)
	if err != nil {
		return done, err
	}
	if line == "" && !r.Unverified {
		return done, fmt.Errorf("%s has no checksum: if another program than caddy mnemogate backup made it, add --unverified; otherwise it was changed since: take another backup", r.From)
	}
	to, err := filepath.Abs(r.To)
	if err != nil {
		return done, err
	}
	if target, err := filepath.EvalSymlinks(to); err == nil {
		to = target // replace the file, not a link to it
	}
	if err := r.mayReplace(to); err != nil {
		return done, err
	}
	if err := makeDirectory(filepath.Dir(to)); err != nil {
		return done, err
	}
	made, sum, err := copyPrivately(ctx, r.From, filepath.Dir(to), size)
	if err != nil {
		return done, fmt.Errorf("copying %s: %w", r.From, err)
	}
	defer remove(made)
	if line != "" && line != fmt.Sprintf(checksumLine, sum) {
		return done, fmt.Errorf("%s does not match its checksum: it has been changed since it was made; take another backup", r.From)
	}
	if done, err = r.prepare(ctx, made); err != nil {
		return done, err
	}
	return done, r.putInPlace(ctx, made, to)
}

// mayReplace returns an error if a file is in the way. A -wal file without its main
// file counts too, because SQLite would take it for the log of the restored file.
func (r Restore) mayReplace(to string) error {
	same, err := sameFile(r.From, to)
	if err != nil {
		return err
	}
	if same {
		return errors.New("the backup is the file to restore: name another with --to")
	}
	if err := RefuseIrregular(to); err != nil {
		return err
	}
	for _, file := range append([]string{to}, sideFiles(to)...) {
		if _, err := os.Lstat(file); err == nil && !r.Replace {
			return fmt.Errorf("%s exists: if you no longer need it, replace it with --force", file)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// RefuseIrregular returns an error if the name is that of something else than a file. Root
// could replace /dev/null.
func RefuseIrregular(name string) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: name another", name)
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

// checkHeader refuses a file that is not a SQLite file or not complete. It
// returns the size of its pages. If the bytes after the pages are as long as a
// checksum line, it returns them as line.
func checkHeader(file string) (size int64, line string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	var header [100]byte
	if _, err := io.ReadFull(f, header[:]); err != nil || !bytes.HasPrefix(header[:], []byte("SQLite format 3\x00")) {
		return 0, "", fmt.Errorf("%s is not a backup of mnemogate; decompress it if it is compressed, or take another file", file)
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
	case behind < 0, behind > 0 && behind < checksumSize:
		return 0, "", fmt.Errorf("%s is cut off: it has %d of %d bytes; take another backup", file, info.Size(), size+checksumSize)
	case behind == checksumSize:
		last := make([]byte, behind)
		if _, err := f.ReadAt(last, size); err != nil {
			return 0, "", err
		}
		line = string(last)
	}
	if log, err := os.Stat(file + "-wal"); err == nil && log.Size() > 0 {
		return 0, "", fmt.Errorf("%s is not a backup but the file of a store, whose latest changes are in %s-wal: "+
			"make a backup with caddy mnemogate backup or, if its machine is gone, start Caddy with both in place of the store's file", file, file)
	}
	return size, line, nil
}

// makeDirectory creates a directory that is missing, with its parents. Those that root
// creates get the owner of the nearest directory that exists.
func makeDirectory(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(dir); err == nil || parent == dir {
		return err
	}
	if err := makeDirectory(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return giveToOwner(dir, parent)
}

// copyPrivately copies the first size bytes of a file to a new file in dir that only
// this user can read. It returns the SHA-256 of these bytes.
func copyPrivately(ctx context.Context, from, dir string, size int64) (name string, sum []byte, err error) {
	source, err := os.Open(from)
	if err != nil {
		return "", nil, err
	}
	defer source.Close()
	defer context.AfterFunc(ctx, func() { source.Close() })()
	made, err := os.CreateTemp(dir, ".mnemogate-restore-*") // mode 0600
	if err != nil {
		return "", nil, err
	}
	hash := sha256.New()
	_, err = io.CopyN(io.MultiWriter(made, hash), source, size)
	if err = errors.Join(cmp.Or(ctx.Err(), err), made.Close()); err != nil {
		os.Remove(made.Name())
	}
	return made.Name(), hash.Sum(nil), err
}

const (
	isOurs = `SELECT count(*) = 3 FROM sqlite_schema WHERE type = 'table' AND name IN ('migrations', 'accounts', 'secrets')`
	// Each company gets a new generation. That leaves a pending revocation, so that
	// the next start of the store also revokes sessions that are kept elsewhere. The
	// generation is the time in seconds since 1970, because a generation must never
	// be used twice, not even one that began after the backup was made.
	restoreGenerations = `
		INSERT INTO company_generations (company, generation) SELECT company, unixepoch() FROM (SELECT company FROM accounts UNION SELECT company FROM company_generations) WHERE true
		ON CONFLICT (company) DO UPDATE SET generation = max(generation + 1, excluded.generation)`
)

// prepare checks a copy of the backup and updates its tables. Unless KeepSessions is
// set, it also revokes all sessions.
func (r Restore) prepare(ctx context.Context, file string) (done Restored, err error) {
	db, err := sql.Open("sqlite", dsn(file, "journal_mode(DELETE)", "synchronous(FULL)", "fullfsync(1)", "foreign_keys(1)", "secure_delete(1)"))
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	err = check(ctx, db)
	if errors.Is(err, errNotOurs) {
		return done, fmt.Errorf("%s belongs to another program, or is a copy of a running store's file without its -wal file: "+
			"make backups with caddy mnemogate backup", r.From)
	}
	if err != nil {
		return done, fmt.Errorf("%s is damaged: %w; take another backup", r.From, err)
	}
	if err := migrate(ctx, db); err != nil {
		return done, fmt.Errorf("%s: %w", r.From, err)
	}
	if !r.KeepSessions {
		if done.SessionsEnded, err = endAll(ctx, db); err != nil {
			return done, fmt.Errorf("ending sessions: %w", err)
		}
	}
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM accounts`).Scan(&done.Accounts)
	return done, err
}

var errNotOurs = fmt.Errorf("%w: it has not all tables of mnemogate", record.ErrDamaged)

// check reads the whole file. It returns an error if the file is damaged, or not
// a store of ours.
func check(ctx context.Context, on interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	var ours bool
	var result string
	if err := on.QueryRowContext(ctx, isOurs).Scan(&ours); err != nil {
		return err
	}
	if !ours {
		return errNotOurs
	}
	if err := on.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&result); err != nil {
		return err
	}
	if result != "ok" {
		return fmt.Errorf("%w: %s", record.ErrDamaged, result)
	}
	return nil
}

// endAll revokes all sessions with their codes, all links, and the pending
// logins that exist only as stateless tokens.
func endAll(ctx context.Context, db *sql.DB) (n int64, err error) {
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
	if _, err := tx.ExecContext(ctx, restoreGenerations); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// putInPlace moves the restored file made to its place at to.
func (r Restore) putInPlace(ctx context.Context, made, to string) error {
	if err := giveToOwner(made, to); err != nil {
		return err
	}
	if err := SyncFile(made); err != nil {
		return err
	}
	unlock, err := lock(ctx, to)
	if err != nil {
		return err
	}
	defer unlock()
	for _, file := range sideFiles(to) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if runtime.GOOS == "windows" {
		// Windows replaces no file that is open, not even for the process that locks it. If
		// another process opens the file now, the rename fails. Elsewhere it would succeed,
		// and the log of that process would damage the restored file: keep the lock there.
		unlock()
	}
	if err := os.Rename(made, to); err != nil {
		return err
	}
	return SyncFile(filepath.Dir(to))
}

// lock makes sure that no other process has the file open, and locks them out
// until unlock is called. SQLite takes a file out of WAL mode only if no other
// process has it open. That also removes the log.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	db, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, statement := range []string{`PRAGMA busy_timeout = 500`, `PRAGMA journal_mode = DELETE`, `BEGIN EXCLUSIVE`} {
		if _, err = db.ExecContext(ctx, statement); err != nil {
			break
		}
	}
	switch code(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		err = fmt.Errorf("%s is open: stop Caddy, and whatever else reads it", file)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT: // no process can be using it
		err = nil
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return func() { db.Close() }, nil
}

// sideFiles returns the files that SQLite keeps next to its main file.
func sideFiles(file string) []string {
	return []string{file + "-wal", file + "-shm", file + "-journal"}
}

func remove(file string) {
	for _, name := range append(sideFiles(file), file) {
		os.Remove(name)
	}
}

// SyncFile makes sure that a file, or the entries of a directory, survive power
// loss.
func SyncFile(name string) error {
	flag := os.O_RDWR // Windows syncs no file that is open only for reading
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if runtime.GOOS == "windows" {
			return nil // Windows can't sync a directory
		}
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
