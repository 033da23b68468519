package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrations embed.FS // as in package sqlite, they only add

const (
	createMigrations = `CREATE TABLE IF NOT EXISTS mnemogate_migrations (name text PRIMARY KEY)`
	selectMigrations = `SELECT name FROM mnemogate_migrations`
	migrationApplied = `SELECT EXISTS (SELECT 1 FROM mnemogate_migrations WHERE name = $1)`
	insertMigration  = `INSERT INTO mnemogate_migrations (name) VALUES ($1)`
)

// tables returns the names of mnemogate's tables.
func tables() (names []string) {
	entries, _ := fs.ReadDir(migrations, "migrations") // which are in the program
	scripts := createMigrations
	for _, e := range entries {
		script, _ := fs.ReadFile(migrations, "migrations/"+e.Name())
		scripts += "\n" + string(script)
	}
	for _, found := range regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`).FindAllStringSubmatch(scripts, -1) {
		names = append(names, found[1])
	}
	return names
}

// prepare updates the tables. If they are up to date, it takes no longer than a
// call, because requests may wait for it.
func (p *Store) prepare(ctx context.Context) error {
	quick, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := p.acquire(quick, p.pool)
	if err != nil {
		return unreachable("connecting", err)
	}
	defer conn.Release()
	if encoding := conn.Conn().PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s; create it with ENCODING 'UTF8'", encoding)
	}
	applied, err := appliedMigrations(quick, conn)
	if err != nil {
		return unreachable("reading which migrations were applied", err)
	}
	p.created.Store(len(applied) == 0)
	entries, err := fs.ReadDir(p.migrations, "migrations")
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	for _, e := range entries {
		name := e.Name()
		if slices.Contains(applied, name) {
			continue
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return p.migrate(ctx, tx, name) })
		if err != nil {
			return unreachable("applying migration "+name, err)
		}
	}
	return nil
}

// appliedMigrations returns the names of the applied migrations.
func appliedMigrations(ctx context.Context, conn *pgxpool.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, selectMigrations) // CollectRows returns the error of Query
	applied, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if code(err) == "42P01" { // undefined table: no migration was applied
		return nil, nil
	}
	return applied, err
}

// migrate applies a migration, unless another node has applied it while this
// one waited for the lock.
func (p *Store) migrate(ctx context.Context, tx pgx.Tx, name string) error {
	script, err := fs.ReadFile(p.migrations, "migrations/"+name)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, createMigrations); err != nil {
		return err
	}
	var applied bool
	if err := tx.QueryRow(ctx, migrationApplied, name).Scan(&applied); err != nil || applied {
		return err
	}
	// Reads of a table wait behind a change of it that waits, for a dump to end for example.
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '500ms'`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, string(script)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insertMigration, name)
	return err
}
