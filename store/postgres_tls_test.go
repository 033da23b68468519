package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPostgresIsReachedByTLS(t *testing.T) {
	s := ownPG(t)
	s.stop()
	certificate, key := s.selfSigned(t, "127.0.0.1")
	other, _ := s.selfSigned(t, "127.0.0.1")
	s.port = freePort(t)
	must(t, s.start("listen_addresses=127.0.0.1", "ssl=on", "ssl_cert_file="+certificate, "ssl_key_file="+key))

	dsn := func(host, mode, ca string) string {
		return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=%s sslrootcert=%s", host, s.port, mode, ca)
	}
	for _, good := range []string{dsn("127.0.0.1", "verify-full", certificate), dsn("localhost", "verify-ca", certificate)} {
		p := startPostgres(t, good, PostgresOptions{})
		must(t, p.read(bg, func(ctx context.Context, q postgresQueries) error {
			var encrypted bool
			err := q.row(ctx, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted)
			wantEqual(t, "encrypted", encrypted, true)
			return err
		}))
	}
	for _, bad := range []string{dsn("127.0.0.1", "verify-full", other), dsn("localhost", "verify-full", certificate)} {
		if err := openPostgres(t, bad, PostgresOptions{}).Start(bg); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("Start with %s: got error %v", bad, err)
		}
	}
}

func TestPostgresNeverFallsBackToPlaintext(t *testing.T) {
	s := usePG(t) // which has no TLS
	proxy := newFaultProxy(t, "unix", s.socket())
	dsn := strings.ReplaceAll(s.dsnThrough(proxy, s.newSchema(t)), "sslmode=disable", "sslmode=require")
	if err := openPostgres(t, dsn, PostgresOptions{}).Start(bg); err == nil || !strings.Contains(err.Error(), "refused TLS") {
		t.Errorf("Start: got error %v", err)
	}
}

// selfSigned makes a certificate that is its own CA, and its key, in files that
// the server reads.
func (s *pgServer) selfSigned(t testing.TB, ip string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	return s.writePEM(t, "CERTIFICATE", signed), s.writePEM(t, "PRIVATE KEY", encoded)
}

func (s *pgServer) writePEM(t testing.TB, kind string, data []byte) string {
	t.Helper()
	f, err := os.CreateTemp(s.dir, "*.pem")
	must(t, err)
	defer f.Close()
	must(t, pem.Encode(f, &pem.Block{Type: kind, Bytes: data}))
	if credential := serverCredential("postgres"); credential != nil {
		must(t, f.Chown(int(credential.Uid), int(credential.Gid)))
	}
	return f.Name()
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}
