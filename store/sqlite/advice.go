package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
)

// This file says what an operator can do about the errors of SQLite. Its texts are part of
// the errors.

// code returns SQLite's extended result code, or 0 if err is not SQLite's.
func code(err error) int {
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		return e.Code()
	}
	return 0
}

// Answer implements sqlstore.Database.
func (s *Store) Answer(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return record.ErrConflict
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return record.ErrNotFound
	}
	if isDamage(err) {
		err = fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	if s.locked.Load() && isStalled(err) {
		return causes.Explain(err, stepLocked)
	}
	return explain(err)
}

// isLocked reports whether another process holds the file's lock.
func isLocked(err error) bool {
	return code(err)&0xff == sqlite3.SQLITE_BUSY || code(err)&0xff == sqlite3.SQLITE_LOCKED
}

// isStalled reports whether a call did not wait longer.
func isStalled(err error) bool {
	return errors.Is(err, errStalled) || errors.Is(err, context.DeadlineExceeded)
}

func isDamage(err error) bool {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return isCut(err)
}

const stepDamage = "stop Caddy, keep a copy of the file and its -wal file, and restore the latest backup (caddy mnemogate restore); until then, delete no older backup"

const stepLocked = "another program holds the file, for example sqlite3 with an open transaction: end it"

const stepOwner = "give the file, the -wal and -shm files beside it, and their directory to the user that Caddy runs as, for example with chown"

// mayNotWriteBeside reports whether this user may write the file, but not create its log.
func mayNotWriteBeside(err error) bool { return code(err) == sqlite3.SQLITE_READONLY_DIRECTORY }

// noFiles returns what to do if this process can open no file at all, which SQLite does not
// tell.
func noFiles() (step string) {
	f, err := os.Open(os.DevNull) // not the store's: see createPrivateFile
	if err == nil {
		_ = f.Close()
	}
	if causes.Of(err) != causes.NoFiles {
		return ""
	}
	return causes.Steps{}.Step(err)
}

// explain adds what to do about an error of the file.
func explain(err error) error {
	step, code := "", code(err)&0xff
	if code == sqlite3.SQLITE_CANTOPEN {
		step = noFiles()
	}
	switch {
	case step != "":
	case errors.Is(err, record.ErrDamaged), isDamage(err):
		step = stepDamage
		if code == sqlite3.SQLITE_NOTADB {
			step = "correct the path if it leads to another file; otherwise " + stepDamage
		}
	case errors.Is(err, errForeign):
		step = "if it is another program's database, name another file"
	case mayNotWriteBeside(err), errors.Is(err, fs.ErrPermission), code == sqlite3.SQLITE_CANTOPEN, code == sqlite3.SQLITE_PERM, code == sqlite3.SQLITE_AUTH:
		step = stepOwner
	case code == sqlite3.SQLITE_READONLY:
		step = "if Caddy may not write the file, " + stepOwner + "; otherwise " + causes.NoSpace
	case diskTakesNoWrites(err):
		step = causes.NoSpace
	case isStalled(err):
		step = "look at its disk, for example with df, mount and dmesg: it is stuck, or too slow"
	case errors.Is(err, errRead):
		step = "end it: it may be sqlite3, or a program that makes backups"
	case isLocked(err):
		step = stepLocked
	}
	return causes.Explain(err, step)
}
