// Package guesttest helps to test plugins: it parses their Caddyfile, starts them,
// and checks that their errors contain no secrets. It also sets up the environment
// that configurations in tests refer to.
package guesttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/flows/message"
)

// Secret is a secret that no output may contain.
const Secret = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ="

// Environment sets the variables that configurations in the tests of mnemogate itself refer
// to. It returns the directory in which a store may create its database.
func Environment(t *testing.T) (dir string) {
	dir = t.TempDir()
	for name, value := range map[string]string{
		"HOME": dir, "XDG_DATA_HOME": dir, "XDG_CONFIG_HOME": dir, "MNEMOGATE_TEST_DIR": dir,
		"MNEMOGATE_TEST_KEY": "key-of-acme", "MNEMOGATE_TEST_SECRET": Secret, "MNEMOGATE_TEST_EMPTY": "",
		"MNEMOGATE_TEST_REDIS": "redis://mg:secret@redis.example.com:6379",
		"MNEMOGATE_TEST_DSN":   "postgres://mg:secret@10.0.0.9/mg?sslmode=require",
	} {
		t.Setenv(name, value)
	}
	return dir
}

// Answering returns a provider that always gives the same answer.
func Answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
	}
}

// A Case is a Caddyfile of a plugin and its result: the module, or a part of the
// error.
type Case struct {
	Name, Text string
	Want       caddyfile.Unmarshaler
	Err        string
}

// Caddyfiles parses each case into a new module of the type of zero. The text begins with the
// module's name, as in "acme https://sms.example.com".
func Caddyfiles(t *testing.T, zero caddyfile.Unmarshaler, cases []Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got := reflect.New(reflect.TypeOf(zero).Elem()).Interface().(caddyfile.Unmarshaler)
			err := got.UnmarshalCaddyfile(caddyfile.NewTestDispenser(c.Text))
			if c.Err != "" {
				if err == nil || !strings.Contains(err.Error(), c.Err) {
					t.Fatalf("got %v, want an error with %q", err, c.Err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.Want) {
				t.Errorf("got %#v\nwant %#v", got, c.Want)
			}
			roundTrip(t, got)
		})
	}
}

// roundTrip checks that the JSON of a parsed module loads again.
func roundTrip(t *testing.T, m caddyfile.Unmarshaler) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	again := reflect.New(reflect.TypeOf(m).Elem()).Interface()
	if err := caddy.StrictUnmarshalJSON(text, again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, again) {
		t.Errorf("%s became %#v", text, again)
	}
}

// Start provisions and validates a module as Caddy does, but without apps and storage. It
// calls Cleanup when the test ends, or at once after an error.
func Start(t *testing.T, m any) (err error) {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	cleanUp := func() {
		cancel()
		if c, ok := m.(caddy.CleanerUpper); ok {
			if err := c.Cleanup(); err != nil {
				t.Error(err)
			}
		}
	}
	defer func() {
		if err != nil {
			cleanUp()
		} else {
			t.Cleanup(cleanUp)
		}
	}()
	if p, ok := m.(caddy.Provisioner); ok {
		if err := p.Provision(ctx); err != nil {
			return err
		}
	}
	if v, ok := m.(caddy.Validator); ok {
		return v.Validate()
	}
	return nil
}

// MustStart is Start for a module that must start without an error.
func MustStart[M any](t *testing.T, m M) M {
	t.Helper()
	if err := Start(t, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// NoSecrets checks that an error contains none of the secrets.
func NoSecrets(t *testing.T, err error, secrets ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, secret := range secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q tells %q", err, secret)
		}
	}
}

// Hang is a handler that does not answer until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // the server notices that the client left only once it has read the body
	<-r.Context().Done()
}

// Serve runs a handler on the loopback interface.
func Serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// SMS is a sample SMS.
var SMS = message.Message{
	ID:        "0123456789abcdef",
	Type:      message.OTPLogin,
	Company:   "acme",
	Mnemocode: "u-1",
	To:        "+37060000034",
	Code:      "918273",
	Text:      "918273 is your code <&>",
	Expires:   time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 7200)),
}

// Mail is a sample mail.
var Mail = message.Message{
	ID:        "fedcba9876543210",
	Type:      message.RecoveryLink,
	Company:   "acme",
	Mnemocode: "u-1",
	To:        "ana@example.com",
	Link:      "https://app.example.com/recover#mgl_secretlink",
	Subject:   "Recover",
	Text:      "Open https://app.example.com/recover#mgl_secretlink\n.\nEnd",
	Expires:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
}

// Raw returns a handler that writes answer to the connection as it is, so it can be
// invalid HTTP.
func Raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, answer)
	}
}

// Certificate creates a certificate for 127.0.0.1 and the names, and a pool that
// trusts it.
func Certificate(t testing.TB, names ...string) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     names,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, roots
}
