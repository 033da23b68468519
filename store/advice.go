package store

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
)

// This file says what an operator can do about the errors of each server. Its texts are
// part of the errors.

const (
	noSpace  = "it answers and takes no writes: free or add space on its disk, and check that neither the disk nor the server is read-only; nobody can log in until then"
	noPooled = "a pooler such as PgBouncer lost a prepared statement: set its max_prepared_statements to 200, or its pool_mode to session"
)

// explainSQLite adds what to do about an error of the file.
func explainSQLite(err error) error {
	step := ""
	switch code := sqliteCode(err) & 0xff; {
	case errors.Is(err, record.ErrDamaged), code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		step = "stop Caddy, keep a copy of the file and its -wal file, and restore the latest backup (caddy mnemogate restore); until then, delete no older backup"
	case diskTakesNoWrites(err):
		step = noSpace
	case errors.Is(err, fs.ErrPermission), code == sqlite3.SQLITE_CANTOPEN, code == sqlite3.SQLITE_PERM, code == sqlite3.SQLITE_AUTH:
		step = "give the file, the -wal and -shm files beside it, and their directory to the user that Caddy runs as, for example with chown"
	case code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_LOCKED:
		step = "another program holds the file, for example sqlite3 with an open transaction: end it"
	}
	return causes.Explain(err, step)
}

var postgresSteps = causes.Steps{
	causes.Authority: "this machine does not trust the authority of its certificate: name that authority's certificate in the DSN, as sslrootcert=<file>",
	causes.NoTLS:     "the server offers no TLS: set ssl = on with a certificate there, and keep the sslmode",
	causes.Silent:    "check that it runs and how busy it is, and that no firewall is between",
}

// postgresAnswers are by SQLSTATE and by a part of the message, the first that fits. PgBouncer
// has 08P01 for almost everything.
var postgresAnswers = []struct{ code, text, step string }{
	{"28P01", "", "correct the user and the password in the DSN, with %xx for special characters"},
	{"28000", "no encryption", "the server wants TLS: set sslmode=verify-full in the DSN"},
	{"28000", "pg_hba.conf", "the server does not admit this user from this machine: add a line for both to its pg_hba.conf, and reload it"},
	{"28", "", "create the role, as in CREATE ROLE mnemogate LOGIN PASSWORD '…', or correct the user in the DSN"},
	{"3D000", "", "create the database, as in CREATE DATABASE mnemogate OWNER mnemogate, or correct its name in the DSN"},
	{"53300", "", "it takes no more connections: raise its max_connections or the limit of the role, or lower max_conns on the nodes"},
	{"53100", "", noSpace},
	{"25006", "", noSpace},
	{"57P0", "", "it is starting or stopping: wait, or see its log if this lasts"},
	{"55P03", "", "another transaction reads the tables, such as pg_dump: wait for its end"},
	{"26000", "", noPooled},
	{"42P05", "", noPooled},
	{"08P01", "prepared statement", noPooled},
	{"08P01", "startup parameter", "PgBouncer refuses a parameter: name it in its ignore_startup_parameters (docs/many-nodes.md has the list)"},
	{"08P01", "max_", "PgBouncer takes no more connections: raise the limit that it names, or lower max_conns on the nodes"},
	{"08P01", "query_wait_timeout", "PgBouncer has no free connection to PostgreSQL: raise its default_pool_size, or find out what holds them"},
	{"08P01", "no such", "PgBouncer does not know it: add the database to its [databases], and the user to its auth_file"},
	{"08P01", "auth", "PgBouncer refuses the user or the password: correct them in the DSN or in its auth_file"},
	{"08P01", "", "this is an error of a pooler such as PgBouncer, which perhaps does not reach PostgreSQL: see its log"},
}

// explainPostgres adds what to do about an error of the server, which knows this client by
// a role.
func explainPostgres(err error, role string) error {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return causes.Explain(err, postgresSteps.Step(err))
	}
	role = pgx.Identifier{role}.Sanitize()
	switch answer.Code {
	case "3F000": // no schema in search_path, or none that the role may use
		return causes.Explain(err, "create the schema, or let its owner run: GRANT USAGE, CREATE ON SCHEMA <schema> TO "+role)
	case "42501":
		if schema, ok := strings.CutPrefix(answer.Message, "permission denied for schema "); ok {
			return causes.Explain(err, "let its owner run: GRANT USAGE, CREATE ON SCHEMA "+pgx.Identifier{schema}.Sanitize()+" TO "+role)
		}
		return causes.Explain(err, "the tables must be mnemogate's own: let the owner of each run: ALTER TABLE <table> OWNER TO "+role)
	}
	for _, a := range postgresAnswers {
		if strings.HasPrefix(answer.Code, a.code) && strings.Contains(answer.Message, a.text) {
			return causes.Explain(err, a.step)
		}
	}
	return err
}

var redisSteps = causes.Steps{
	causes.Authority: "this machine does not trust the authority of its certificate: name that authority's certificate in the URL, as ?ca=<file>",
	causes.NoTLS:     "it answers without TLS: turn TLS on there, or write redis:// if it is on this machine",
	causes.Closed:    "it closed the connection: if it expects TLS on this port, write rediss://; otherwise see its log",
	causes.Silent:    "check that it runs and how busy it is, that no firewall is between, and that it has TLS on this port if the URL begins with rediss://",
}

// redisAnswers are by the beginning of the answer.
var redisAnswers = []struct{ prefix, step string }{
	{"WRONGPASS", "correct the user and the password before the @ of its URL, with %xx for special characters"},
	{"NOAUTH", "it wants a password: write redis://<user>:<password>@<host>"},
	{"NOPERM", "give this user the rights that docs/many-nodes.md lists for it (ACL SETUSER): channels &mnemogate:*, keys ~{mg:*, and commands"},
	{redisIsFull, "it takes no more connections: raise its maxclients, or lower pool_size on the nodes"},
	{"OOM ", "its memory is full, and it takes no writes: raise its maxmemory; nobody can log in until then"},
	{"MISCONF ", noSpace},
	{"READONLY ", "it is a replica and takes no writes: name its master, or use sentinel"},
	{"NOREPLICAS ", "it has too few replicas for its min-replicas-to-write: see that they run and follow"},
	{"LOADING ", "it is loading its data: wait"},
	{"MASTERDOWN ", "it is a replica that does not reach its master: see that the master runs"},
	{"CLUSTERDOWN ", "a part of the Cluster is down: see CLUSTER INFO and CLUSTER NODES there"},
}

// explainRedis adds what to do about an error of a server.
func explainRedis(err error) error {
	step := ""
	switch {
	case errors.Is(err, errRedisReplicas):
		step = "see that its replicas run and follow, or lower wait_replicas"
	case err != nil && strings.Contains(err.Error(), "redis: all sentinels"):
		step = "no sentinel answers, or none knows the master: check their addresses and the name of the master"
	}
	for _, a := range redisAnswers {
		if redis.HasErrorPrefix(err, a.prefix) {
			step = a.step
		}
	}
	return causes.Explain(err, cmp.Or(step, redisSteps.Step(err)))
}
