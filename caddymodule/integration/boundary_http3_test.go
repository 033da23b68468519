package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// An h3site is a site that also accepts HTTP/3.
type h3site struct {
	*site
	udp string
	tls *tls.Config
}

// startHTTP3 starts Caddy with the same directives for HTTP/1, HTTP/2 and HTTP/3.
// For HTTP/3 it passes a socket to Caddy.
func startHTTP3(t *testing.T, c siteConfig) *h3site {
	t.Helper()
	conn := get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer conn.Close()
	file := get(conn.File())(t)
	t.Cleanup(func() { _ = file.Close() })
	cert, key, roots := certificateFiles(t)
	c.files = []*os.File{file}
	c.env = append(c.env, "GODEBUG=http2xconnect=1") // WebSockets over HTTP/2
	c.site += "\n}\nhttps:// {\nbind fdgram/4 {\nprotocols h3\n}\ntls " + cert + " " + key + "\n" + c.site
	return &h3site{
		site: startSite(t, c),
		udp:  conn.LocalAddr().String(),
		tls:  &tls.Config{RootCAs: roots, ServerName: "localhost"},
	}
}

func certificateFiles(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	config, roots := guesttest.Certificate(t, "localhost")
	private := get(x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey))(t)
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return file
	}
	return write("cert.pem", "CERTIFICATE", config.Certificates[0].Certificate[0]), write("key.pem", "PRIVATE KEY", private), roots
}

// h3client returns a client that speaks HTTP/3 with the site, on one connection.
func (s *h3site) h3client() *http.Client {
	transport := &http3.Transport{
		TLSClientConfig:    s.tls,
		DisableCompression: true,
		Dial: func(ctx context.Context, _ string, config *tls.Config, quicConfig *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, s.udp, config, quicConfig)
		},
	}
	s.t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// errReset means that the server closed a stream or connection without a response.
var errReset = errors.New("reset")

// An h3stream is a raw HTTP/3 request, in which a client can send arbitrary frames.
// It has a connection of its own.
type h3stream struct {
	t      *testing.T
	stream *quic.Stream
}

func (s *h3site) h3() *h3stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	config := s.tls.Clone()
	config.NextProtos = []string{http3.NextProtoH3}
	conn := get(quic.DialAddr(ctx, s.udp, config, nil))(s.t)
	s.t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	control := get(conn.OpenUniStream())(s.t)
	get(control.Write([]byte{0, 4, 0}))(s.t) // a control stream with empty SETTINGS
	stream := get(conn.OpenStreamSync(ctx))(s.t)
	// On a busy machine the handshake is slow, and QUIC waits several times as long
	// before it repeats a lost packet.
	_ = stream.SetDeadline(time.Now().Add(time.Minute))
	return &h3stream{s.t, stream}
}

// early sends a request in early data and reads the answer. It never completes the handshake.
// On a busy machine the request may not be sent in time, and then it is not sent at all.
func (s *h3site) early(body string, fields ...string) (status, answer string) {
	s.t.Helper()
	err := errors.New("")
	for wait := 100 * time.Millisecond; err != nil && wait <= 10*time.Second; wait *= 10 {
		status, answer, err = s.sendEarly(wait, body, fields...)
	}
	must(s.t, err)
	return status, answer
}

func (s *h3site) sendEarly(wait time.Duration, body string, fields ...string) (status, answer string, err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	config := s.tls.Clone()
	config.NextProtos, config.ClientSessionCache = []string{http3.NextProtoH3}, tls.NewLRUClientSessionCache(1)
	before := get(quic.DialAddr(ctx, s.udp, config, nil))(s.t)
	storetest.Eventually(s.t, 20*time.Second, "a session ticket", func() bool { _, has := config.ClientSessionCache.Get("localhost"); return has })
	must(s.t, before.CloseWithError(0, ""))
	flight := &firstFlight{PacketConn: get(net.ListenPacket("udp", "127.0.0.1:0"))(s.t), sent: make(chan struct{})}
	transport := &quic.Transport{Conn: flight}
	defer transport.Close()
	conn := get(transport.DialEarly(ctx, get(net.ResolveUDPAddr("udp", s.udp))(s.t), config, nil))(s.t)
	get(get(conn.OpenUniStream())(s.t).Write([]byte{0, 4, 0}))(s.t)
	c := &h3stream{s.t, get(conn.OpenStreamSync(ctx))(s.t)}
	_ = c.stream.SetDeadline(time.Now().Add(20 * time.Second))
	c.headers(false, fields...)
	c.data(body, true)
	time.AfterFunc(wait, func() { close(flight.sent) })
	if status, answer, err = c.read(""); err == nil && !conn.ConnectionState().Used0RTT {
		err = errors.New("the server took no early data")
	}
	return status, answer, err
}

// A firstFlight reads nothing until the early data is sent, and then sends nothing else.
type firstFlight struct {
	net.PacketConn
	sent chan struct{}
}

func (c *firstFlight) ReadFrom(b []byte) (int, net.Addr, error) {
	<-c.sent
	return c.PacketConn.ReadFrom(b)
}

func (c *firstFlight) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-c.sent:
		if b[0]&0xf0 != 0xd0 { // early data: RFC 9000, section 17.2.3
			return len(b), nil
		}
	default:
	}
	return c.PacketConn.WriteTo(b, to)
}

const (
	h3data    = 0
	h3headers = 1
)

// write sends a frame. It ignores errors, since the server may have stopped reading.
func (s *h3stream) write(kind uint64, payload []byte, end bool) {
	frame := quicvarint.Append(quicvarint.Append(nil, kind), uint64(len(payload)))
	_, _ = s.stream.Write(append(frame, payload...))
	if end {
		_ = s.stream.Close()
	}
}

// headers sends the stream's headers or, the second time, its trailers. The fields are
// names and values in turn.
func (s *h3stream) headers(end bool, fields ...string) {
	s.t.Helper()
	var block bytes.Buffer
	encoder := qpack.NewEncoder(&block)
	for pair := range slices.Chunk(fields, 2) {
		must(s.t, encoder.WriteField(qpack.HeaderField{Name: pair[0], Value: pair[1]}))
	}
	s.write(h3headers, block.Bytes(), end)
}

func (s *h3stream) data(b string, end bool) { s.write(h3data, []byte(b), end) }

// read reads the response to its end or, if part is set, until the body contains
// part.
func (s *h3stream) read(part string) (status, body string, err error) {
	s.t.Helper()
	reader := quicvarint.NewReader(s.stream)
	for part == "" || !strings.Contains(body, part) {
		kind, err := quicvarint.Read(reader)
		if err == io.EOF && status != "" {
			break
		}
		if err != nil {
			return status, body, s.reset(err)
		}
		length, err := quicvarint.Read(reader)
		if err != nil {
			return status, body, s.reset(err)
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(s.stream, payload); err != nil {
			return status, body, s.reset(err)
		}
		switch {
		case kind == h3data:
			body += string(payload)
		case kind == h3headers && status == "":
			next := qpack.NewDecoder().Decode(payload)
			for field, err := next(); err == nil; field, err = next() {
				if field.Name == ":status" {
					status = field.Value
				}
			}
		}
	}
	return status, body, nil
}

// reset returns errReset if the server refused the request, and err if it did not
// answer.
func (s *h3stream) reset(err error) error {
	s.t.Helper()
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		s.t.Fatalf("no answer: %v", err)
	}
	return fmt.Errorf("%w: %w", errReset, err)
}

// sendTrailers sends a request with trailers over HTTP/2 and HTTP/3, frame by frame,
// and calls answered with each response.
func (s *h3site) sendTrailers(fields, trailers []string, answered func(version, status, body string)) {
	s.t.Helper()
	for version := 2; version <= 3; version++ {
		c := s.framed(version)
		c.headers(false, fields...)
		c.data("abc", false)
		c.headers(true, trailers...)
		status, body, err := c.read("")
		must(s.t, err)
		answered(fmt.Sprint("HTTP/", version), status, body)
	}
}

// A framed is an h2conn or an h3stream.
type framed interface {
	headers(end bool, fields ...string)
	data(b string, end bool)
	read(part string) (status, body string, err error)
}

func (s *h3site) framed(version int) framed {
	s.t.Helper()
	if version == 2 {
		return s.h2()
	}
	return s.h3()
}

// Clients that send early data can claim any address. Their wrong passwords lock nobody out.
func TestEarlyDataIsNotAnswered(t *testing.T) {
	t.Parallel()
	s := startHTTP3(t, siteConfig{
		company: people,
		global:  "limits {\nfailures_per_address 3/5m\n}\n",
		site:    "handle_path /api/* {\nmnemogate_accounts {\nkey shop " + strings.Repeat("k1", 16) + "\n}\n}\nhandle {\nmnemogate\nreverse_proxy BACKEND\n}",
	})
	for range 4 {
		for path, want := range map[string]string{"/acme/v2/auth/checkcredentials": wire.ErrValidation.Code, "/api/acme/introspect": wire.ErrEarlyData.Message} {
			status, body := s.early(`{"login_id":"alice@example.com","password":"wrong"}`,
				":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", path, "x-api-key", testKey, "authorization", "Bearer wrong", "content-type", "application/json")
			if status != "425" || !strings.Contains(body, want) {
				t.Errorf("%s: got %s, %s", path, status, body)
			}
		}
	}
	s.login("alice@example.com")
	if status, body := s.early("", ":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/x", "authorization", "Bearer "+s.login("alice@example.com")); status != "200" {
		t.Errorf("the application's path: got %s, %s", status, body)
	}
}
