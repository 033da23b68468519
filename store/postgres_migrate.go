package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	missing, err := missingPostgresMigrations(quick, conn)
	if err != nil {
		return unreachable("reading which migrations were applied", err)
	}
	ctx, cancel = context.WithTimeout(ctx, postgresMigrateTimeout)
	defer cancel()
	for _, name := range missing {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migratePostgres(ctx, tx, name) })
		if err != nil {
			return unreachable("applying migration "+name, withMissingGrant(err, conn.Conn().Config().User))
		}
	}
	return nil
}

// withMissingGrant adds the statement that gives the role what it lacks.
func withMissingGrant(err error, role string) error {
	role = pgx.Identifier{role}.Sanitize()
	switch refused, _ := errors.AsType[*pgconn.PgError](err); postgresCode(err) {
	case "3F000": // no schema in search_path, or none that the role may use
		return fmt.Errorf("%w; create the schema, or let its owner run: GRANT USAGE, CREATE ON SCHEMA <schema> TO %s", err, role)
	case "42501":
		schema, ok := strings.CutPrefix(refused.Message, "permission denied for schema ")
		if !ok {
			return fmt.Errorf("%w; the tables must be mnemogate's own: let the owner of each run: ALTER TABLE <table> OWNER TO %s", err, role)
		}
		return fmt.Errorf("%w; let its owner run: GRANT USAGE, CREATE ON SCHEMA %s TO %s", err, pgx.Identifier{schema}.Sanitize(), role)
	}
	return err
}

func missingPostgresMigrations(ctx context.Context, conn *pgxpool.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, postgresSelectMigrations) // CollectRows returns the error of Query
	applied, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil && postgresCode(err) != "42P01" { // undefined table: no migration was applied
		return nil, err
	}
	entries, err := fs.ReadDir(postgresMigrations, "migrations/postgres")
	if err != nil {
		return nil, err
	}
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
