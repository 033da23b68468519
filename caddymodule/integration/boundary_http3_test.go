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
