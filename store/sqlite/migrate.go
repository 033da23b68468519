package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations only add, so a file with migrations that this version does not know can be
// used, too.
const (
	createMigrations = `CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT`
	migrationApplied = `SELECT EXISTS (SELECT 1 FROM migrations WHERE name = ?)`
	insertMigration  = `INSERT INTO migrations (name) VALUES (?)`
	// Ours have a table of migrations with a column of this name, if any.
	isForeign = `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\')
		AND NOT EXISTS (SELECT 1 FROM pragma_table_info('migrations') WHERE name = 'name')`
)

var errForeign = errors.New("it has tables of another program")

// checkOurs refuses a file with which another program works.
func checkOurs(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var foreign bool
	err := whileBusy(ctx, func() error { return conn.QueryRowContext(ctx, isForeign).Scan(&foreign) })
	if err == nil && foreign {
		err = errForeign
	}
	return err
}

// migrate updates the tables. Another process may do the same at the same
// time.
func migrate(ctx context.Context, db *sql.DB) error {
	entries, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return err
	}
	// Limit only the waiting: indexing a large file takes long.
	waiting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, e := range entries {
		if err := whileBusy(waiting, func() error { return migrateOnce(ctx, db, e.Name()) }); err != nil {
			return fmt.Errorf("applying migration %s: %w", e.Name(), err)
		}
	}
	return nil
}

// migrateOnce applies a migration unless it has been applied. Its transaction
// locks the file from the beginning, so that no other process applies it meanwhile.
func migrateOnce(ctx context.Context, db *sql.DB, name string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, createMigrations); err != nil {
		return err
	}
	var applied bool
	if err := tx.QueryRowContext(ctx, migrationApplied, name).Scan(&applied); err != nil || applied {
		return err
	}
	script, err := migrations.ReadFile("migrations/" + name)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, string(script)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insertMigration, name); err != nil {
		return err
	}
	return tx.Commit()
}

// whileBusy repeats f while the file is locked. The busy timeout does not
// cover all cases: if two connections turn a new file to WAL mode, one of them fails
// at once.
func whileBusy(ctx context.Context, f func() error) error {
	for {
		err := f()
		if code(err)&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
