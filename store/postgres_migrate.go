package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/postgres/*.sql
var postgresMigrations embed.FS

const (
	postgresCreateMigrations = `CREATE TABLE IF NOT EXISTS mnemogate_migrations (name text PRIMARY KEY)`
	postgresSelectMigrations = `SELECT name FROM mnemogate_migrations`
	postgresMigrationApplied = `SELECT EXISTS (SELECT 1 FROM mnemogate_migrations WHERE name = $1)`
	postgresInsertMigration  = `INSERT INTO mnemogate_migrations (name) VALUES ($1)`
)

// prepare updates the tables. If they are up to date, it takes no longer than a
// call, because requests may wait for it.
func (p *Postgres) prepare(ctx context.Context) error {
	quick, cancel := context.WithTimeout(ctx, postgresTimeout)
	defer cancel()
	conn, err := p.acquire(quick, p.pool)
	if err != nil {
		return unreachable("connecting", err)
	}
	defer conn.Release()
	if encoding := conn.Conn().PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s; create it with ENCODING 'UTF8'", encoding)
	}
	missing, err := p.missingMigrations(quick, conn)
	if err != nil {
		return unreachable("reading which migrations were applied", err)
	}
	ctx, cancel = context.WithTimeout(ctx, postgresMigrateTimeout)
	defer cancel()
	for _, name := range missing {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migratePostgres(ctx, tx, name) })
		if err != nil {
			return unreachable("applying migration "+name, err)
		}
	}
	return nil
}

func (p *Postgres) missingMigrations(ctx context.Context, conn *pgxpool.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, postgresSelectMigrations) // CollectRows returns the error of Query
	applied, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil && postgresCode(err) != "42P01" { // undefined table: no migration was applied
		return nil, err
	}
	entries, err := fs.ReadDir(postgresMigrations, "migrations/postgres")
	if err != nil {
		return nil, err
	}
	p.created.Store(len(applied) == 0)
	var missing []string
	for _, e := range entries {
		if !slices.Contains(applied, e.Name()) {
			missing = append(missing, e.Name())
		}
	}
	return missing, nil
}

// migratePostgres applies a migration, unless another node has applied it while this
// one waited for the lock.
func migratePostgres(ctx context.Context, tx pgx.Tx, name string) error {
	script, err := postgresMigrations.ReadFile("migrations/postgres/" + name)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, postgresMigrationLock); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, postgresCreateMigrations); err != nil {
		return err
	}
	var applied bool
	if err := tx.QueryRow(ctx, postgresMigrationApplied, name).Scan(&applied); err != nil || applied {
		return err
	}
	// Reads of a table wait behind a change of it that waits, for a dump to end for example.
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '500ms'`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, string(script)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, postgresInsertMigration, name)
	return err
}
