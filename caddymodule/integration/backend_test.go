package integration

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// A webhookSink is a gateway for SMS and mails. It checks the signatures that the
// Standard Webhooks specification requires.
type webhookSink struct {
	*httptest.Server
	t        *testing.T
	mu       sync.Mutex
	messages []map[string]any
	status   int // the status of answers; 0 for 200
}

func newWebhookSink(t *testing.T) *webhookSink {
	s := &webhookSink{t: t}
	s.Server = guesttest.Serve(t, s)
	return s
}

func (s *webhookSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if want := signature(smsSecret, r.Header, string(body)); r.Header.Get("webhook-signature") != want {
		s.t.Errorf("webhook-signature is %q, want %q", r.Header.Get("webhook-signature"), want)
	}
	checkMessage(s.t, body)
	message := map[string]any{}
	if err := json.Unmarshal(body, &message); err != nil {
		s.t.Errorf("webhook body %s: %v", body, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, message)
	if s.status != 0 {
		w.Header().Set("Retry-After", "77")
		w.WriteHeader(s.status)
	}
}

func (s *webhookSink) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// of returns the messages received so far that have this type.
func (s *webhookSink) of(kind string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []map[string]any
	for _, m := range s.messages {
		if m["type"] == kind {
			found = append(found, m)
		}
	}
	return found
}

// last returns a field of the newest message of a type.
func (s *webhookSink) last(kind, field string) string {
	s.t.Helper()
	messages := s.of(kind)
	if len(messages) == 0 {
		s.t.Fatalf("no %s was sent", kind)
	}
	value, _ := messages[len(messages)-1][field].(string)
	return value
}

// linkToken returns the token in the newest recovery link.
func (s *webhookSink) linkToken() string {
	s.t.Helper()
	_, token, _ := strings.Cut(s.last("recovery.link", "link"), "#")
	return token
}

// A rawBackend answers each request with the exact bytes that it received. It
// accepts WebSocket handshakes and then echoes. Some paths differ: /sse sends an
// event every 50 ms, /download sends data as slowly but has a Content-Length,
// /pending never answers, /cors sends CORS headers, and /raw answers with the bytes
// in its query.
type rawBackend struct {
	t    *testing.T
	addr string
	mu   sync.Mutex
	seen []string
}

func newRawBackend(t *testing.T) *rawBackend {
	b := &rawBackend{t: t}
	b.addr = serveTCP(t, b.serve)
	return b
}

// serveTCP listens until the test ends, and calls serve for each connection.
func serveTCP(t *testing.T, serve func(net.Conn)) (addr string) {
	ln := get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return ln.Addr().String()
}

// requests returns the requests received so far, byte for byte.
func (b *rawBackend) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// last returns the newest request.
func (b *rawBackend) last() string {
	requests := b.requests()
	return requests[len(requests)-1]
}

// unreached returns a function that checks that the backend received no requests
// meanwhile.
func (s *site) unreached() func() {
	before := len(s.backend.requests())
	return func() {
		s.t.Helper()
		if got := s.backend.requests(); len(got) != before {
			s.t.Errorf("the application got %q", got[before:])
		}
	}
}

func (b *rawBackend) serve(conn net.Conn) {
	defer conn.Close()
	var raw bytes.Buffer
	reader := bufio.NewReader(io.TeeReader(conn, &raw))
	for {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		got := raw.String()
		raw.Reset()
		b.mu.Lock()
		b.seen = append(b.seen, got)
		b.mu.Unlock()
		switch {
		case r.Header.Get("Upgrade") != "":
			accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, section 4.2.2
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Accept: %s\r\n\r\n",
				r.Header.Get("Upgrade"), base64.StdEncoding.EncodeToString(accept[:]))
			_, _ = io.Copy(conn, reader)
			return
		case r.URL.Path == "/pending":
			_, _ = io.Copy(io.Discard, reader)
			return
		case r.URL.Path == "/raw":
			_, _ = io.WriteString(conn, r.URL.Query().Get("answer"))
		case r.URL.Path == "/cors":
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nVary: Accept\r\n"+
				"Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Origin: https://other.example.com\r\n"+
				"Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: X-Total\r\n\r\n")
		case r.URL.Path == "/sse" || r.URL.Path == "/download":
			header, part := "Content-Type: text/event-stream", "data: tick\n\n"
			if r.URL.Path == "/download" {
				header, part = "Content-Length: 1000000000", strings.Repeat("data", 10_000) // more than proxies buffer
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", header)
			for err == nil {
				_, err = io.WriteString(conn, part)
				time.Sleep(50 * time.Millisecond)
			}
			return
		case r.Method == http.MethodHead:
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
		default:
			more := ""
			if r.URL.Path == "/cached" {
				more = "Cache-Control: private, max-age=60\r\nVary: Accept\r\n"
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%sContent-Length: %d\r\n\r\n%s", more, len(got), got)
		}
	}
}
