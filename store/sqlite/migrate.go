package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/*.sql
var migrations embed.FS

// These tables have the names of the applied migrations. A version refuses to run if
// migrations has a name that it does not know. It can run with unknown names in
// additions, because those migrations only add. The migrations of v0.1.0 are in
// migrations.
const (
	createMigrations = `
		CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT;
		CREATE TABLE IF NOT EXISTS additions (name TEXT PRIMARY KEY) STRICT`
	selectMigrations = `SELECT name, false FROM migrations UNION ALL SELECT name, true FROM additions ORDER BY name`
	insertMigration  = `INSERT INTO migrations (name) VALUES (?)`
	insertAddition   = `INSERT INTO additions (name) VALUES (?)`

	lastMigration = "006_sessions.sql"
)

// migrate updates the tables. Another process may do the same at the same
// time.
func migrate(ctx context.Context, db *sql.DB) error {
	entries, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	// Limit only the waiting: indexing a large file takes long.
	waiting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, name := range names {
		if err := whileBusy(waiting, func() error { return migrateOnce(ctx, db, names, name) }); err != nil {
			return fmt.Errorf("applying migration %s: %w", name, err)
		}
	}
	return nil
}

// migrateOnce applies a migration unless it has been applied. Its transaction
// locks the file from the beginning, so that no other process applies it meanwhile.
func migrateOnce(ctx context.Context, db *sql.DB, known []string, name string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, createMigrations); err != nil {
		return err
	}
	applied, err := appliedMigrations(ctx, tx)
	if err != nil {
		return err
	}
	if err := refuseNewer(applied, known); err != nil {
		return err
	}
	if _, is := applied[name]; is {
		return nil
	}
	script, err := migrations.ReadFile("migrations/" + name)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, string(script)); err != nil {
		return err
	}
	insert := insertAddition
	if name <= lastMigration {
		insert = insertMigration
	}
	if _, err := tx.ExecContext(ctx, insert, name); err != nil {
		return err
	}
	return tx.Commit()
}

// appliedMigrations returns the names of the applied migrations. The value is
// true for those that only add.
func appliedMigrations(ctx context.Context, tx *sql.Tx) (map[string]bool, error) {
	rows, err := tx.QueryContext(ctx, selectMigrations)
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
