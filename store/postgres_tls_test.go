package store

import (
	"fmt"
	"strings"
	"testing"

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
		p := startPostgres(t, good, PostgresOptions{})
		encrypted, err := queryOne(bg, p, "asking", scanValue[bool], "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
		must(t, err)
		wantEqual(t, "encrypted", encrypted, true)
	}
	for _, bad := range []string{dsn("127.0.0.1", "verify-full", other), dsn("localhost", "verify-full", certificate)} {
		if err := openPostgres(t, bad, PostgresOptions{}).Start(bg); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("Start with %s: got error %v", bad, err)
		}
	}
}

func TestPostgresNeverFallsBackToPlaintext(t *testing.T) {
	s := storetest.SharedPostgres(t) // it has no TLS
	proxy := storetest.NewProxy(t, "unix", s.Socket())
	dsn := strings.ReplaceAll(s.DSNThrough(proxy, s.NewSchema(t)), "sslmode=disable", "sslmode=require")
	if err := openPostgres(t, dsn, PostgresOptions{}).Start(bg); err == nil || !strings.Contains(err.Error(), "refused TLS") {
		t.Errorf("Start: got error %v", err)
	}
}
