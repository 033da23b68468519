package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2client speaks HTTP/2 without TLS.
var h2client = func() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DisableCompression: true}, Timeout: 30 * time.Second}
}()

// An h2conn is a raw HTTP/2 connection, on which a client can send arbitrary frames.
// It has one stream.
type h2conn struct {
	t      *testing.T
	framer *http2.Framer
	names  bytes.Buffer // the encoder's output
	hpack  *hpack.Encoder
}

func (s *site) h2() *h2conn {
	s.t.Helper()
	conn := s.dial()
	s.t.Cleanup(func() { _ = conn.Close() })
	get(io.WriteString(conn, http2.ClientPreface))(s.t)
	c := &h2conn{t: s.t, framer: http2.NewFramer(conn, bufio.NewReader(conn))}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.hpack = hpack.NewEncoder(&c.names)
	must(c.t, c.framer.WriteSettings())
	return c
}

// headers sends the stream's headers or, the second time, its trailers. The fields
// are names and values in turn.
func (c *h2conn) headers(end bool, fields ...string) {
	c.t.Helper()
	c.names.Reset()
	for pair := range slices.Chunk(fields, 2) {
		must(c.t, c.hpack.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]}))
	}
	must(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.names.Bytes(), EndHeaders: true, EndStream: end}))
}

func (c *h2conn) data(b string, end bool) {
	c.t.Helper()
	must(c.t, c.framer.WriteData(1, end, []byte(b)))
}

// answer reads the response to its end or, if part is set, until the body contains
// part.
func (c *h2conn) answer(part string) (status, body string) {
	c.t.Helper()
	status, body, err := c.read(part)
	if _, ended := errors.AsType[http2.StreamError](err); err != nil && !ended {
		c.t.Fatalf("after %s %q: %v", status, body, err)
	}
	return status, body
}

// read is like answer, but returns errReset if the server ends the stream or the
// connection before the response.
func (c *h2conn) read(part string) (status, body string, err error) {
	c.t.Helper()
	for {
		frame, err := c.framer.ReadFrame()
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			c.t.Fatalf("no answer: %v", err)
		}
		if err != nil {
			return status, body, fmt.Errorf("%w: %w", errReset, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == 1 && status == "" {
				status = f.PseudoValue("status")
			}
		case *http2.DataFrame:
			body += string(f.Data())
		case *http2.RSTStreamFrame:
			return status, body, fmt.Errorf("%w: %w", errReset, http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode})
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return status, body, fmt.Errorf("%w: %v", errReset, f.ErrCode)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				must(c.t, c.framer.WriteSettingsAck())
			}
		}
		if h := frame.Header(); h.StreamID == 1 && h.Flags.Has(http2.FlagDataEndStream) || part != "" && strings.Contains(body, part) {
			return status, body, nil
		}
	}
}
