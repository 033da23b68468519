package store

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A column is what a program of an older version relies on: the column exists, has
// its type, and may be omitted in an INSERT if it was added later.
type column struct {
	kind     string
	optional bool // may be omitted in an INSERT
}

// wantOnlyAdded checks that the tables of before are unchanged, except for new
// columns that may be omitted.
func wantOnlyAdded(t *testing.T, before, after map[string]column) {
	t.Helper()
	if len(before) < 50 {
		t.Fatalf("only %d columns were found", len(before))
	}
	tables := map[string]bool{}
	for name, c := range before {
		table, _, _ := strings.Cut(name, ".")
		tables[table] = true
		if after[name] != c {
			t.Errorf("%s was %+v and is %+v: the version before can't go on with that", name, c, after[name])
		}
	}
	for name, c := range after {
		table, _, _ := strings.Cut(name, ".")
		if _, there := before[name]; !there && tables[table] && !c.optional {
			t.Errorf("%s was added, and rows of the version before don't have it: give it a default", name)
		}
	}
}

func release(t *testing.T, name string) []byte {
	return get[[]byte](t)(os.ReadFile("testdata/v0.1.0/" + name))
}

// If you go back to the previous release, it can work with the tables. Only that
// release refuses a file with a migration that it does not know.
func TestSQLiteGoesBackToTheRelease(t *testing.T) {
	t.Parallel()
	file := tempFile(t)
	columns := func() map[string]column {
		t.Helper()
		db := get[*sql.DB](t)(sql.Open("sqlite", sqliteDSN(file)))
		defer db.Close()
		rows := get[*sql.Rows](t)(db.Query(`
			SELECT t.name || '.' || c.name, c.type, NOT c."notnull" OR c.dflt_value IS NOT NULL
			FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'`))
		defer rows.Close()
		all := map[string]column{}
		for rows.Next() {
			var name string
			var c column
			must(t, rows.Scan(&name, &c.kind, &c.optional))
			all[name] = c
		}
		must(t, rows.Err())
		return all
	}
	db := get[*sql.DB](t)(sql.Open("sqlite", sqliteDSN(file)))
	_, err := db.Exec(string(release(t, "sqlite.sql")))
	must(t, errors.Join(err, db.Close()))
	before := columns()
	startSQLite(t, file)
	wantOnlyAdded(t, before, columns())
	db = get[*sql.DB](t)(sql.Open("sqlite", sqliteDSN(file)))
	defer db.Close()
	var last string
	must(t, db.QueryRow(`SELECT max(name) FROM migrations`).Scan(&last))
	wantEqual(t, "last migration that v0.1.0 looks for", last, sqliteLastMigration)
}

func TestPostgresGoesBackToTheRelease(t *testing.T) {
	t.Parallel()
	postgres := storetest.SharedPostgres(t)
	schema := postgres.NewSchema(t)
	columns := func() map[string]column {
		t.Helper()
		conn := get[*pgx.Conn](t)(pgx.Connect(bg, postgres.DSN(schema)))
		defer conn.Close(bg)
		rows, _ := conn.Query(bg, `
			SELECT table_name || '.' || column_name, data_type, is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'
			FROM information_schema.columns WHERE table_schema = $1`, schema)
		all := map[string]column{}
		var name string
		var c column
		_, err := pgx.ForEachRow(rows, []any{&name, &c.kind, &c.optional}, func() error { all[name] = c; return nil })
		must(t, err)
		return all
	}
	postgres.Restore(t, schema, bytes.ReplaceAll(release(t, "postgres.sql"), []byte("test1"), []byte(schema)))
	before := columns()
	startPostgres(t, postgres.DSN(schema), PostgresOptions{})
	wantOnlyAdded(t, before, columns())
}

// An older version accepts a file to whose tables a newer version has only added.
func TestSQLiteGoesOnWithWhatANewerVersionAdded(t *testing.T) {
	t.Parallel()
	file := tempFile(t)
	must(t, func() error { s := OpenSQLite(file); return errors.Join(s.Start(bg), s.Close()) }())
	db := get[*sql.DB](t)(sql.Open("sqlite", sqliteDSN(file)))
	_, err := db.Exec(`INSERT INTO additions VALUES ('999_future.sql'); ALTER TABLE accounts ADD COLUMN future TEXT NOT NULL DEFAULT ''`)
	must(t, errors.Join(err, db.Close()))
	s := startSQLite(t, file)
	create(t, s.Accounts(), plain("acme", "alice"))
}
