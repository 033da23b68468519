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

func TestPostgresNeverFallsBackToPlaintext(t *testing.T) {
	s := storetest.SharedPostgres(t) // it has no TLS
	proxy := storetest.NewProxy(t, "unix", s.Socket())
	dsn := strings.ReplaceAll(s.DSNThrough(proxy, s.NewSchema(t)), "sslmode=disable", "sslmode=require")
	if err := openStore(t, dsn, Options{}).Start(bg); err == nil || !strings.Contains(err.Error(), "; the server offers no TLS") {
		t.Errorf("Start: got error %v", err)
	}
}
