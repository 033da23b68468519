package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/sqlite"
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

// releaseWrites creates dave, changes alice and deletes carol, with the columns that
// v0.1.0 knows. Both databases accept it.
const releaseWrites = `
	INSERT INTO accounts (company, mnemocode, role, phone, email, login_name, status, second_factor, must_set_password,
		password_hash, question, answer_hash, totp, totp_pending, created, updated)
	VALUES ('acme', 'dave', 'r', '', '', 'dave', 'active', true, false, 'h', '', '', '', '', 1, 1);
	INSERT INTO login_ids (company, login_id, account) SELECT company, 'dave', id FROM accounts WHERE mnemocode = 'dave';
	UPDATE accounts SET mnemocode = 'alice', role = 'of the release', phone = '', email = 'alice@example.com', login_name = 'alice',
		status = 'active', second_factor = true, must_set_password = false, password_hash = 'h', question = '', answer_hash = '',
		totp = '', totp_pending = '', epoch = epoch, updated = 2 WHERE mnemocode = 'alice';
	DELETE FROM accounts WHERE mnemocode = 'carol'`

// wantBothKept uses what is new in the upgraded stores of v0.1.0, lets that release
// write, and checks that the next upgrade finds what either version has stored.
func wantBothKept(t *testing.T, upgraded func() record.Accounts, write func(sql string)) {
	t.Helper()
	s := upgraded()
	alice, carol := get[record.Account](t)(s.ByMnemocode(bg, "acme", "alice")), get[record.Account](t)(s.ByMnemocode(bg, "acme", "carol"))
	for _, a := range []record.Account{alice, carol} {
		must(t, s.AddPasskey(bg, "acme", passkey(a.ID, a.Mnemocode)))
		must(t, s.AddDevice(bg, "acme", a.ID, device(a.Mnemocode), ""))
		failOn(t, s, a, device(a.Mnemocode).ID)
	}
	must(t, s.(record.SigningKeys).AddSigningKey(bg, "acme", signingKey(1)))
	must(t, s.(record.History).Record(bg, []record.Event{happened(alice, 1, quiet), happened(carol, 1, quiet)}))
	_, err := s.Update(bg, "acme", alice.ID, func(a *record.Account) (bool, error) { a.Locale = "lt"; return false, nil })
	must(t, err)
	write(releaseWrites)

	s = upgraded()
	a := get[record.Account](t)(s.ByMnemocode(bg, "acme", "alice"))
	wantEqual(t, "alice's role, locale and number of passkeys", []any{a.Role, a.Locale, a.Passkeys}, []any{"of the release", "lt", 1})
	wantEqual(t, "her passkey", get[record.Passkey](t)(s.Passkey(bg, "acme", []byte("alice"))), passkey(alice.ID, "alice"))
	hers := device("alice")
	hers.Failures = 1
	wantEqual(t, "her device", get[record.Device](t)(s.Device(bg, "acme", alice.ID, hers.Hash)), hers)
	wantEqual(t, "her history", recorded(t, s, alice, 10), []record.Event{happened(alice, 1, quiet)})
	wantEqual(t, "signing keys", signingKeys(t, s, "acme"), []record.SigningKey{signingKey(1)})
	dave := get[record.Account](t)(s.ByLoginID(bg, "acme", "dave", ""))
	wantEqual(t, "dave's role and locale", []string{dave.Role, dave.Locale}, []string{"r", ""})
	wantErr(t, "carol", second(s.ByMnemocode(bg, "acme", "carol")), record.ErrNotFound)
	wantErr(t, "carol's passkey", second(s.Passkey(bg, "acme", []byte("carol"))), record.ErrNotFound)
	wantErr(t, "carol's device", second(s.Device(bg, "acme", carol.ID, device("carol").Hash)), record.ErrNotFound)
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
		db := get[*sql.DB](t)(sql.Open("sqlite", file))
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
	db := get[*sql.DB](t)(sql.Open("sqlite", file))
	_, err := db.Exec(string(release(t, "sqlite.sql")))
	must(t, errors.Join(err, db.Close()))
	before := columns()
	startSQLite(t, file)
	wantOnlyAdded(t, before, columns())
	db = get[*sql.DB](t)(sql.Open("sqlite", file))
	defer db.Close()
	var last string
	must(t, db.QueryRow(`SELECT max(name) FROM migrations`).Scan(&last))
	wantEqual(t, "last migration that v0.1.0 looks for", last, "006_sessions.sql")
	wantBothKept(t, func() record.Accounts { return startSQLite(t, file).Accounts() }, func(sql string) {
		_, err := db.Exec(`PRAGMA foreign_keys = ON;` + sql) // as in that release
		must(t, err)
	})
}

func TestPostgresGoesBackToTheRelease(t *testing.T) {
	t.Parallel()
	server := storetest.SharedPostgres(t)
	schema := server.NewSchema(t)
	columns := func() map[string]column {
		t.Helper()
		conn := get[*pgx.Conn](t)(pgx.Connect(bg, server.DSN(schema)))
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
	server.Restore(t, schema, bytes.ReplaceAll(release(t, "postgres.sql"), []byte("test1"), []byte(schema)))
	before := columns()
	start := func() record.Accounts { return startPostgres(t, server.DSN(schema), postgres.Options{}).Accounts() }
	start()
	wantOnlyAdded(t, before, columns())
	wantBothKept(t, start, func(sql string) {
		conn := get[*pgx.Conn](t)(pgx.Connect(bg, server.DSN(schema)))
		defer conn.Close(bg)
		_, err := conn.Exec(bg, sql)
		must(t, err)
	})
}

// Behind a waiting change of a table, PostgreSQL makes all reads of the table wait, too.
func TestPostgresUpgradesOnlyOnceALongTransactionHasEnded(t *testing.T) {
	t.Parallel()
	server := storetest.SharedPostgres(t)
	schema := server.NewSchema(t)
	server.Restore(t, schema, bytes.ReplaceAll(release(t, "postgres.sql"), []byte("test1"), []byte(schema)))
	const read = `SELECT FROM accounts`
	dump, old := get[*pgx.Conn](t)(pgx.Connect(bg, server.DSN(schema))), get[*pgx.Conn](t)(pgx.Connect(bg, server.DSN(schema)))
	defer dump.Close(bg)
	defer old.Close(bg)
	tx := get[pgx.Tx](t)(dump.Begin(bg))
	get[pgconn.CommandTag](t)(tx.Exec(bg, read))

	p := get[*postgres.Store](t)(postgres.Open(server.DSN(schema), postgres.Options{}))
	defer p.Close()
	for range 3 {
		started := make(chan error, 1)
		go func() { started <- p.Start(bg) }()
		for ended := false; !ended; {
			ctx, cancel := context.WithTimeout(bg, 2*time.Second)
			_, err := old.Exec(ctx, read)
			cancel()
			must(t, err)
			select {
			case err := <-started:
				wantErr(t, "Start", err, record.ErrUnreachable)
				ended = true
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	must(t, tx.Commit(bg))
	must(t, p.Start(bg))
}

// An older version accepts a file to whose tables a newer version has only added.
func TestSQLiteGoesOnWithWhatANewerVersionAdded(t *testing.T) {
	t.Parallel()
	file := tempFile(t)
	must(t, func() error { s := sqlite.Open(file); return errors.Join(s.Start(bg), s.Close()) }())
	db := get[*sql.DB](t)(sql.Open("sqlite", file))
	_, err := db.Exec(`INSERT INTO additions VALUES ('999_future.sql'); ALTER TABLE accounts ADD COLUMN future TEXT NOT NULL DEFAULT ''`)
	must(t, errors.Join(err, db.Close()))
	s := startSQLite(t, file)
	create(t, s.Accounts(), plain("acme", "alice"))
}
