package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hiddenRequest is what the bodies of TestNothingBehindAnEarlyAnswerIsARequest consist of. Its
// length divides the sizes of buffers. So a server that takes the rest of a body for requests
// finds one at once.
var hiddenRequest = fmt.Sprintf("GET /pub/hidden HTTP/1.1\r\nHost: x\r\nX-Filler: %s\r\n\r\n", strings.Repeat("x", 15))

// Over HTTP/1, an answer that begins before the request's body has ended is the last on its
// connection, whoever gives it. The client gets it at once.
func TestNothingBehindAnEarlyAnswerIsARequest(t *testing.T) {
	t.Parallel()
	part := strings.Repeat(hiddenRequest, 640) // more than io.Copy reads at a time
	bodyLength := 30 * len(part)
	framings := map[string]string{
		"a length": fmt.Sprintf("Content-Length: %d\r\n\r\n", bodyLength),
		"chunks":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", bodyLength),
	}
	if len(hiddenRequest) != 64 {
		t.Fatalf("it has %d bytes", len(hiddenRequest))
	}
	for _, servers := range []string{"", "enable_full_duplex"} {
		t.Run("servers "+servers, func(t *testing.T) {
			t.Parallel()
			s, hidden := startEarly(t, servers)
			token := "Authorization: Bearer " + s.login("alice@example.com") + "\r\n"
			for _, c := range []struct {
				path, header string
				status       int
			}{
				{"/early", token, 413},
				{"/pub/early", "", 413},
				{"/pub/early", "Expect: 100-continue\r\n", 413},
				{"/pub/half", "", 200},
				{"/pub/kept/early", "", 413},
				{"/pub/responds", "", 200},
				{"/pub/fails", "", 502},
				{"/pub/fails/and/goes/on", "", 413},
				{"/pub/reads", "", 0}, // the body comes too slowly: 499 or 504
				{"/check", "X-Forwarded-Method: GET\r\nX-Forwarded-Host: x\r\nX-Forwarded-Uri: /pub/x\r\n", 204},
				{"/refused", "", 401},
				{"/acme/v2/auth/login", "X-Api-Key: " + testKey + "\r\nContent-Type: text/plain\r\n", 0}, // 413, or 400 for chunks
			} {
				for name, framing := range framings {
					s.run(fmt.Sprint(c.path, ", ", c.header[:min(7, len(c.header))], ", ", name), func(t *testing.T) {
						conn := s.dial()
						defer conn.Close()
						reader := bufio.NewReader(conn)
						get(io.WriteString(conn, "POST "+c.path+" HTTP/1.1\r\nHost: x\r\n"+c.header+framing))(t)
						for range 2 {
							get(io.WriteString(conn, part))(t)
							time.Sleep(100 * time.Millisecond)
						}
						response := get(http.ReadResponse(reader, nil))(t)
						for response.StatusCode == http.StatusContinue {
							response = get(http.ReadResponse(reader, nil))(t)
						}
						get(io.Copy(io.Discard, response.Body))(t)
						if c.status > 0 && response.StatusCode != c.status {
							t.Errorf("got %s, want %d", response.Status, c.status)
						}
						if kept := strings.HasPrefix(c.path, "/pub/kept/"); !kept && !response.Close {
							t.Errorf("the connection stays open: %v", response.Header)
						}
						go func() {
							_, _ = io.WriteString(conn, strings.Repeat(part, 28))
							_ = conn.(*net.TCPConn).CloseWrite()
						}()
						if more, _ := io.ReadAll(reader); len(more) > 0 {
							t.Errorf("the body got an answer: %.200q", more)
						}
						if n := hidden.Swap(0); n > 0 {
							t.Errorf("the application got %d requests of the body", n)
						}
					})
				}
			}
			t.Run("what was read leaves the connection open", func(t *testing.T) {
				for framing, body := range map[string]string{"Content-Length: 3": "abc", "Transfer-Encoding: chunked": "3\r\nabc\r\n0\r\n\r\n"} {
					c := &h1conn{s: s}
					a := c.ask("POST /pub/reads HTTP/1.1\r\nHost: x\r\n" + framing + "\r\n\r\n" + body)
					if a.Status != 200 || string(a.Body) != "abc" || a.Closes {
						t.Errorf("%s: got %d %q, closes: %t", framing, a.Status, a.Body, a.Closes)
					}
					c.close()
				}
			})
			t.Run("what the application reads after its answer has begun is whole", func(t *testing.T) {
				conn := s.dial()
				defer conn.Close()
				reader := bufio.NewReader(conn)
				get(io.WriteString(conn, "POST /pub/echoes HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"))(t)
				response := get(http.ReadResponse(reader, nil))(t)
				for range 10 {
					sent, got := strings.Repeat("x", 10_000), make([]byte, 10_000)
					get(io.WriteString(conn, sent))(t)
					if get(io.ReadFull(response.Body, got))(t); string(got) != sent {
						t.Errorf("got %.100q", got)
					}
				}
				if rest := get(io.ReadAll(response.Body))(t); len(rest) > 0 {
					t.Errorf("more came: %.100q", rest)
				}
			})
		})
	}
}

// startEarly starts a site in front of an application that need not read bodies. It counts the
// hidden requests.
func startEarly(t *testing.T, servers string) (*site, *atomic.Int64) {
	var hidden atomic.Int64
	early := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // otherwise it reads some of the body
		switch path := r.URL.Path; {
		case path == "/pub/hidden":
			hidden.Add(1)
		case path == "/pub/reads":
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		case path == "/pub/half":
			_, _ = io.CopyN(w, r.Body, 1)
			_ = http.NewResponseController(w).Flush()
		case path == "/pub/echoes":
			_ = http.NewResponseController(w).Flush()
			for p := make([]byte, 1000); ; {
				n, err := r.Body.Read(p)
				_, _ = w.Write(p[:n])
				_ = http.NewResponseController(w).Flush()
				if err != nil {
					return
				}
			}
		default:
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body) // a server that does not would reset the connection
		}
	}))
	t.Cleanup(early.Close)
	app := early.Listener.Addr().String()
	s := startSite(t, siteConfig{
		company: people,
		servers: servers + "\ntrusted_proxies static 127.0.0.1/8\ntimeouts {\nread_body_idle 1s\n}",
		site: `
		mnemogate {
			public /pub/*
			check /check
		}
		@kept path /pub/kept/*
		header @kept {
			Connection keep-alive
			defer
		}
		respond /pub/responds 200
		reverse_proxy /pub/fails* 127.0.0.1:1
		reverse_proxy ` + app + `
		handle_errors 502 {
			@goes path */goes/on
			reverse_proxy @goes ` + app + `
		}`,
	})
	return s, &hidden
}
