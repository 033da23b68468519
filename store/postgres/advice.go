package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
)

// This file says what an operator can do about the errors of PostgreSQL. Its texts are part of
// the errors.

// code returns the SQLSTATE, or "" if err is not the server's.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Answer implements sqlstore.Database. attempt has explained the error.
func (p *Store) Answer(err error) error {
	if code(err) == "23503" { // foreign key violation: the account was deleted
		return record.ErrNotFound
	}
	return err
}

const noPooled = "a pooler such as PgBouncer lost a prepared statement: set its max_prepared_statements to 200, or its pool_mode to session"

const noTable = "these are not the tables that this node started with: put them back, and see docs/many-nodes.md (Backup and restore) if the database was restored or replaced"

// noSchema is for tables that PostgreSQL does not find. It leaves a schema out of search_path
// once the role loses USAGE, so the tables may all be there.
const noSchema = "these are not the tables that this node started with, or it can't see them any more: if they are there, give its role USAGE and CREATE on their schema again, and the search_path that it had; otherwise put them back, and see docs/many-nodes.md (Backup and restore) if the database was restored or replaced"

var steps = causes.Steps{
	causes.Authority: "this machine does not trust the authority of its certificate: name that authority's certificate in the DSN, as sslrootcert=<file>",
	causes.NoTLS:     "the server offers no TLS: set ssl = on with a certificate there, and keep the sslmode",
	causes.Silent:    "check that it runs and how busy it is, that no transaction holds locks there (pg_blocking_pids), that no firewall is between, and that the standby follows if synchronous_standby_names is set",
}

// stepsByCode are by SQLSTATE and by a part of the message, the first that fits. PgBouncer
// has 08P01 for almost everything.
var stepsByCode = []struct{ code, text, step string }{
	{"28P01", "", "correct the user and the password in the DSN, with %xx for special characters"},
	{"28000", "no encryption", "the server does not admit this user from this machine without TLS: set sslmode=verify-full in the DSN, or add a line for both to its pg_hba.conf, and reload it"},
	{"28000", "pg_hba.conf", "the server does not admit this user from this machine: add a line for both to its pg_hba.conf, and reload it"},
	{"28000", "authentication failed", "the server wants the role's name as that of the user that Caddy runs as, or of a certificate: name that role in the DSN, or write scram-sha-256 into the line of its pg_hba.conf, and reload it"},
	{"28000", "not permitted to log in", "let its administrator run: ALTER ROLE … LOGIN"},
	{"28", "", "create the role, as in CREATE ROLE mnemogate LOGIN PASSWORD '…', or correct the user in the DSN"},
	{"3D000", "", "create the database, as in CREATE DATABASE mnemogate OWNER mnemogate, or correct its name in the DSN"},
	{"53300", "", "it takes no more connections: raise its max_connections or the limit of the role, or lower max_conns on the nodes"},
	{"53100", "", causes.NoSpace},
	{"25006", "", causes.NoSpace},
	{"55000", "not currently accepting connections", "let its administrator run: ALTER DATABASE … ALLOW_CONNECTIONS true"},
	{"57P05", "", "its idle_session_timeout is too short: let the owner of the role run ALTER ROLE … SET idle_session_timeout = 0"},
	{"57P0", "", "it is starting or stopping: wait, or see its log if this lasts"},
	{"55P03", "", "another transaction reads the tables, such as pg_dump: wait for its end"},
	{"42P01", "", noSchema},
	{"42703", "", noTable}, // no such column
	{"26000", "", noPooled},
	{"42P05", "", noPooled},
	{"08P01", "prepared statement", noPooled},
	{"08P01", "search_path", "PgBouncer can't pass it on: let the owner of the role run ALTER ROLE … SET search_path, and take it out of the DSN; do not let PgBouncer ignore it, or all tables would begin anew"},
	{"08P01", "startup parameter", "PgBouncer refuses a parameter: name it in its ignore_startup_parameters, and set it with ALTER ROLE (docs/many-nodes.md has both)"},
	{"08P01", "max_", "PgBouncer takes no more connections: raise the limit that it names, or lower max_conns on the nodes"},
	{"08P01", "query_wait_timeout", "PgBouncer has no free connection to PostgreSQL: raise its default_pool_size, or find out what holds them"},
	{"08P01", "no such", "PgBouncer does not know it: add the database to its [databases], and the user to its auth_file"},
	{"08P01", "auth", "PgBouncer refuses the user or the password: correct them in the DSN or in its auth_file"},
	{"08P01", "", "this is an error of a pooler such as PgBouncer, which perhaps does not reach PostgreSQL: see its log"},
}

// explain adds what to do about an error of the server, which knows this client by
// a role.
func explain(err error, role string) error {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return causes.Explain(err, "the server that answers takes no writes: see that the primary runs and name it in the DSN, or promote this standby; default_transaction_read_only must be off")
	}
	if !ok {
		return causes.Explain(err, steps.Step(err))
	}
	role = pgx.Identifier{role}.Sanitize()
	switch answer.Code {
	case "3F000": // no schema in search_path, or none that the role may use
		return causes.Explain(err, "create the schema, or let its owner run: GRANT USAGE, CREATE ON SCHEMA <schema> TO "+role)
	case "42501":
		if schema, ok := strings.CutPrefix(answer.Message, "permission denied for schema "); ok {
			return causes.Explain(err, "let its owner run: GRANT USAGE, CREATE ON SCHEMA "+pgx.Identifier{schema}.Sanitize()+" TO "+role)
		}
		if database, ok := strings.CutPrefix(answer.Message, "permission denied for database "); ok { // in quotes
			return causes.Explain(err, "let its owner run: GRANT CONNECT ON DATABASE "+database+" TO "+role)
		}
		return causes.Explain(err, "the tables must be mnemogate's own, with all rights: let the owner of each run: ALTER TABLE <table> OWNER TO "+role+"; GRANT ALL ON <table> TO "+role)
	}
	for _, a := range stepsByCode {
		if strings.HasPrefix(answer.Code, a.code) && strings.Contains(answer.Message, a.text) {
			return causes.Explain(err, a.step)
		}
	}
	return err
}
