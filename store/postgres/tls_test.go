package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mnemogate/mnemogate/store/sqlstore"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestPostgresIsReachedByTLS(t *testing.T) {
	s := storetest.OwnPostgres(t)
	s.Stop()
	certificate, key := s.Certificate(t, "server")
	other, _ := s.Certificate(t, "other")
	s.Port = storetest.FreePorts(t, 1)[0]
	must(t, s.Start("listen_addresses=127.0.0.1", "ssl=on", "ssl_cert_file="+certificate, "ssl_key_file="+key))

	dsn := func(host, mode, ca string) string {
		return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=%s sslrootcert=%s", host, s.Port, mode, ca)
	}
	for _, good := range []string{dsn("127.0.0.1", "verify-full", certificate), dsn("localhost", "verify-ca", certificate)} {
		p := startStore(t, good, Options{})
		encrypted, err := sqlstore.QueryOne(bg, p, "asking", sqlstore.ScanValue[bool], "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
		must(t, err)
		wantEqual(t, "encrypted", encrypted, true)
	}
	s.Exec(t, "CREATE ROLE weak LOGIN", "CREATE ROLE full LOGIN CONNECTION LIMIT 0", "CREATE ROLE idle", "CREATE ROLE peered LOGIN",
		"CREATE DATABASE others", "REVOKE CONNECT ON DATABASE others FROM PUBLIC", "CREATE DATABASE closed ALLOW_CONNECTIONS false")
	must(t, os.WriteFile(filepath.Join(s.Dir(), "data", "pg_hba.conf"), []byte(
		"local all peered peer\nlocal all all trust\nhostssl all weak 127.0.0.1/32 md5\nhostssl all postgres,full,nobody 127.0.0.1/32 trust\n"), 0o600))
	s.Exec(t, "SELECT pg_reload_conf()")
	as := func(user string) string { return dsn("127.0.0.1", "verify-full", certificate) + " user=" + user }
	local := fmt.Sprintf("host=%s port=%d dbname=postgres sslmode=disable", s.Dir(), s.Port)
	for bad, want := range map[string]string{
		dsn("127.0.0.1", "verify-full", other):       "; this machine does not trust the authority of its certificate: name that authority's certificate in the DSN, as sslrootcert",
		dsn("localhost", "verify-full", certificate): "; its certificate is for another name",
		dsn("127.0.0.1", "disable", certificate):     "; the server does not admit this user from this machine without TLS: set sslmode=verify-full",
		as("weak password=hidden"):                   "; correct the user and the password in the DSN",
		as("nobody"):                                 "; create the role",
		as("else"):                                   "; the server does not admit this user from this machine",
		as("full"):                                   "; it takes no more connections: raise its max_connections or the limit of the role",
		as("postgres dbname=nowhere"):                "; create the database",
		as("postgres dbname=closed"):                 "; let its administrator run: ALTER DATABASE … ALLOW_CONNECTIONS true",
		local + " user=idle":                         "; let its administrator run: ALTER ROLE … LOGIN",
		local + " user=peered":                       "; the server wants the role's name",
		local + " user=weak dbname=others":           `; let its owner run: GRANT CONNECT ON DATABASE "others" TO "weak"`,
		"host=/nowhere user=x":                       "; there is no such socket or file",
		"sslmode=disable user=x host=127.0.0.1 port=" + strings.TrimPrefix(answering(t, ""), "127.0.0.1:"): "; it closed the connection",
		"sslmode=disable user=x host=127.0.0.1 port=1":                                                     "; nothing listens there",
		"sslmode=disable user=x host=" + strings.Repeat("a", 64):                                           "; check that the name is right", // too long a label, so no resolver is asked
	} {
		if err := openStore(t, bad, Options{}).Start(bg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("Start with %s: got %v, want %q", bad, err, want)
		}
	}
}

// What PgBouncer says has one code for almost everything.
func TestErrorsOfPgBouncerSayWhatToDo(t *testing.T) {
	for said, want := range map[string]string{
		"unsupported startup parameter: jit":                          "ignore_startup_parameters",
		"unsupported startup parameter: search_path":                  "do not let PgBouncer ignore it",
		"no more connections allowed (max_client_conn)":               "lower max_conns on the nodes",
		"query_wait_timeout":                                          "default_pool_size",
		"no such database: mnemogate":                                 "add the database",
		"SASL authentication failed":                                  "auth_file",
		"server login has been failing, cached error: connect failed": "does not reach PostgreSQL",
		"prepared statement did not exist":                            "max_prepared_statements",
	} {
		err := explain(fmt.Errorf("connecting: %w", &pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: said}), "mnemogate")
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", said, err)
		}
	}
}

// PgBouncer ignores parameters at the start of a connection, or refuses them. A database may
// have default privileges for other roles.
func TestPostgresTellsWhatItsSurroundingsBreak(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	role := "reader of " + schema
	s.Exec(t, "CREATE TABLE "+schema+".orders (id int)", fmt.Sprintf(`CREATE ROLE %q`, role), fmt.Sprintf(`ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT SELECT ON TABLES TO PUBLIC, %q`, schema, role),
		fmt.Sprintf(`GRANT SELECT ON %s.orders TO %q`, schema, role))
	p := openStore(t, s.DSN(schema)+" client_encoding=LATIN1", Options{})
	for name := range settings {
		delete(p.config.ConnConfig.RuntimeParams, name)
	}
	storetest.Started(t, p.Start)
	encoding, err := sqlstore.QueryOne(bg, p, "asking", sqlstore.ScanValue[string], "SELECT current_setting('client_encoding')")
	must(t, err)
	wantEqual(t, "the encoding", encoding, "UTF8")
	p.config.ConnConfig.User = "postgres.project" // as a pooler may name the role
	granted := func() string {
		t.Helper()
		tables, err := sqlstore.QueryOne(bg, p, "asking", sqlstore.ScanValue[string],
			`SELECT coalesce(string_agg(DISTINCT table_name, ' '), '') FROM information_schema.table_privileges WHERE grantee IN ($1, 'PUBLIC') AND table_schema = current_schema()`, role)
		must(t, err)
		return tables
	}
	advice := func() (all string) {
		t.Helper()
		faults, err := p.Faults(bg)
		must(t, err)
		for _, f := range faults {
			all += f.Advice + "\n"
		}
		return all
	}
	before := advice()
	for _, want := range []string{
		`ALTER ROLE postgres SET statement_timeout = '2000'`, `ALTER ROLE postgres SET idle_in_transaction_session_timeout = '2000'`,
		`ALTER ROLE postgres SET plan_cache_mode = 'force_generic_plan'`, `ALTER ROLE postgres SET enable_seqscan = 'off'`,
		`ALTER ROLE postgres SET jit = 'off'`, "that, run: REVOKE ALL ON " + schema + ".acceptances, ", fmt.Sprintf(" FROM %q, PUBLIC\n", role),
	} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is not in:\n%s", want, before)
		}
	}
	revoke := before[strings.Index(before, "REVOKE"):]
	s.Exec(t, revoke)
	wantEqual(t, "the tables that the other role may use", granted(), "orders")
	s.Exec(t, fmt.Sprintf(`DROP OWNED BY %q`, role), fmt.Sprintf(`DROP ROLE %q`, role))
	if after := advice(); strings.Contains(after, "REVOKE") || strings.Contains(after, "default_transaction_isolation") {
		t.Errorf("it advises:\n%s", after)
	}
	straight, err := startStore(t, s.DSN(schema), Options{}).Faults(bg)
	must(t, err)
	wantEqual(t, "faults without a pooler", len(straight), len(unsafe))
	writer, node := "writer_"+schema, "node_"+schema
	s.Exec(t, "CREATE ROLE "+writer, fmt.Sprintf("GRANT ALL ON ALL TABLES IN SCHEMA %s TO %s", schema, writer),
		fmt.Sprintf("GRANT ALL ON SCHEMA %s TO %s", schema, writer), fmt.Sprintf("CREATE ROLE %s LOGIN IN ROLE %s", node, writer))
	straight, err = startStore(t, s.DSN(schema)+" user="+node, Options{}).Faults(bg)
	must(t, err)
	wantEqual(t, "faults of a role that needs the rights of another", len(straight), len(unsafe))
	s.Exec(t, fmt.Sprintf("DROP OWNED BY %s, %s", node, writer), fmt.Sprintf("DROP ROLE %s, %s", node, writer))
}

func TestPostgresNeverFallsBackToPlaintext(t *testing.T) {
	s := storetest.SharedPostgres(t) // it has no TLS
	proxy := storetest.NewProxy(t, "unix", s.Socket())
	dsn := strings.ReplaceAll(s.DSNThrough(proxy, s.NewSchema(t)), "sslmode=disable", "sslmode=require")
	if err := openStore(t, dsn, Options{}).Start(bg); err == nil || !strings.Contains(err.Error(), "; the server offers no TLS") {
		t.Errorf("Start: got error %v", err)
	}
}
