package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const bodyWithin = 10 * time.Second // promised by package bodies

// The body of any request that mnemogate answers itself has a time limit, even if
// nothing reads the body. Refusals do not wait for it. Then the connection ends, and
// Caddy can shut down. Bodies for the backend, and answers, may take longer.
func TestBodiesThatNeverEnd(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := startSite(t, siteConfig{company: people + "sms webhook " + g.URL + "/sms {\nsecret " + smsSecret + "\ntimeout 20s\n}\n", site: `
		handle_path /manage/* {
			mnemogate_accounts {
				key backend a-key-of-a-backend {
					may read
				}
				key writer a-key-of-a-writer {
					may write introspect
				}
			}
		}
		handle {
			mnemogate {
				login_page
				cors https://app.example.com
				health /health
			}
			reverse_proxy BACKEND
		}`})
	const (
		reader    = "Authorization: Bearer a-key-of-a-backend\r\n"
		writer    = "Authorization: Bearer a-key-of-a-writer\r\nContent-Type: application/json\r\n"
		preflight = "Origin: https://app.example.com\r\nAccess-Control-Request-Method: POST\r\n"
		json      = sessionKey + "Content-Type: application/json\r\n"
	)
	token := s.login("alice@example.com")
	tests := []struct {
		request, headers string
		status           int
	}{
		{"GET /acme/v2/client.js", "", 200},
		{"HEAD /acme/v2/client.js", "", 200},
		{"POST /acme/v2/client.js", "", 405},
		{"GET /nobody/v2/client.d.ts", "", 200},
		{"GET /acme/v2/page/1/page.css", "", 200},
		{"GET /acme/v2/page/1/none", "", 404},
		{"POST /acme/v2/page/1/page.css", "", 405},
		{"GET /acme/login", "", 200},
		{"POST /acme/login", "", 405},
		{"GET /acme/logout", "", 200},
		{"PUT /acme/logout", "", 405},
		{"GET /acme/v2/openapi.json", sessionKey, 200},
		{"POST /acme/v2/openapi.json", sessionKey, 405},
		{"GET /acme/v2/client.json", sessionKey, 200},
		{"GET /acme/v2/captcha", sessionKey, 404},
		{"GET /acme/v2/session", sessionKey + bearer(token), 200},
		{"POST /acme/v2/session", sessionKey, 401},
		{"DELETE /acme/v2/session", "", 401},
		{"PUT /acme/v2/session", sessionKey, 405},
		{"POST /acme/v2/auth/login", json, 400},
		{"POST /acme/v2/auth/login", "", 401},
		{"GET /acme/v2/auth/login", sessionKey, 405},
		{"POST /acme/v2/auth/none", sessionKey, 404},
		{"POST /acme/v2/auth/logout", json + bearer(token), 400},
		{"GET /health", "", 200},
		{"POST /health", "", 405},
		{"OPTIONS /acme/v2/auth/login", preflight, 204},
		{"OPTIONS /orders", preflight, 204},
		{"GET /orders", "", 401},
		{"GET /orders", navigates, 303},
		{"GET /manage/", "", 401},
		{"POST /manage/acme/accounts", "", 401},
		{"GET /manage/", reader + "Origin: https://app.example.com\r\n", 403},
		{"POST /manage/acme/accounts", reader, 403},
		{"GET /manage/none", reader, 404},
		{"PUT /manage/", reader, 405},
		{"GET /manage/openapi.json", reader, 200},
		{"GET /manage/acme/accounts", reader, 200},
		{"POST /manage/acme/accounts", writer, 400},
		{"PATCH /manage/acme/accounts/alice", writer, 400},
		{"POST /manage/acme/introspect", writer, 400},
	}
	quit := make(chan struct{})
	var drips sync.WaitGroup
	defer drips.Wait()
	defer close(quit)
	drip := func(to io.Writer) {
		drips.Go(func() {
			ticks := time.NewTicker(bodyWithin / 100)
			defer ticks.Stop()
			for {
				select {
				case <-quit:
					return
				case <-ticks.C:
					if _, err := to.Write([]byte{' '}); err != nil {
						return
					}
				}
			}
		})
	}
	const counted, chunked = "Content-Length: 10000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2710\r\n"
	begin := func(request, headers, framing string) net.Conn { // a chunk stays incomplete
		conn := get(net.Dial("tcp", s.addr))(t)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(4 * bodyWithin))
		get(fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\n%s%s{", request, headers, framing))(t)
		if framing == counted {
			drip(conn)
		}
		return conn
	}
	var all sync.WaitGroup
	for i, test := range tests {
		method, path, _ := strings.Cut(test.request, " ")
		watch := storetest.StartWatch()
		for _, framing := range []string{counted, chunked} {
			conn := begin(test.request, test.headers, framing)
			all.Go(func() {
				reader := bufio.NewReader(conn)
				response, err := http.ReadResponse(reader, &http.Request{Method: method})
				if err != nil {
					t.Errorf("%s: no answer: %v", test.request, err)
					return
				}
				body, err := io.ReadAll(response.Body)
				if err != nil || response.StatusCode != test.status {
					t.Errorf("%s: %s, %v; want %d", test.request, response.Status, err, test.status)
				}
				if test.status == 400 && strings.Contains(path, "/auth/") && !bytes.Contains(body, []byte(wire.ErrValidation.Code)) {
					t.Errorf("%s: %s", test.request, body)
				}
				if took := watch.Took(); test.status > 400 && took >= bodyWithin {
					t.Errorf("%s: answered after %v", test.request, took)
				}
				for err == nil {
					_, err = reader.ReadByte()
				}
				if took := watch.Took(); took > bodyWithin*3/2 {
					t.Errorf("%s: the connection ends after %v: %v", test.request, took, err)
				}
			})
		}
		all.Go(func() {
			body, rest := io.Pipe()
			defer rest.Close()
			if i%2 == 0 { // the other bodies don't even begin
				drip(rest)
			}
			r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
			if err != nil {
				t.Error(err)
				return
			}
			for line := range strings.SplitSeq(test.headers, "\r\n") {
				if name, value, ok := strings.Cut(line, ": "); ok {
					r.Header.Set(name, value)
				}
			}
			h2 := http.Client{Transport: h2client.Transport, CheckRedirect: client.CheckRedirect, Timeout: 4 * bodyWithin}
			if a, err := exchanged(t, &h2, r); err != nil || a.Status != test.status || watch.Took() > bodyWithin*3/2 {
				t.Errorf("%s over HTTP/2: %d, %v after %v; want %d", test.request, a.Status, err, watch.Took(), test.status)
			}
		})
	}
	all.Go(func() { // the backend reads bodies as slowly as they arrive
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(6 * bodyWithin))
		fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 26\r\n\r\n", token)
		for b := byte('a'); b <= 'z'; b++ {
			if _, err := conn.Write([]byte{b}); err != nil {
				t.Errorf("a slow body for the application: %v", err)
				return
			}
			time.Sleep(bodyWithin / 20)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("a slow body for the application: %v", err)
			return
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 || !bytes.HasSuffix(body, []byte("xyz")) {
			t.Errorf("a slow body for the application: %s, %v", response.Status, err)
		}
	})
	g.behave(g.hang)
	began := time.Now()
	time.AfterFunc(bodyWithin+time.Second, func() { g.behave(nil) })
	for _, c := range []*http.Client{client, h2client} {
		all.Go(func() { // a complete request that waits for a slow gateway
			r := s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": "+37060000002"})
			if a, err := exchanged(t, c, r); err != nil || a.Status != http.StatusOK || time.Since(began) < bodyWithin {
				t.Errorf("with a slow gateway: %d %s, %v", a.Status, a.Body, err)
			}
		})
	}
	all.Wait()

	for _, test := range tests {
		begin(test.request, test.headers, counted)
	}
	s.ask("GET", "/health", "").wantStatus(200)
	watch := storetest.StartWatch()
	s.stop(syscall.SIGTERM)
	if took := watch.Took(); took > bodyWithin*3/2 {
		t.Errorf("caddy ends after %v", took)
	}
}

// Caddy's request_body may let less through than max_body. A body whose length it can't
// see is then refused while mnemogate reads it.
func TestBodiesThatCaddyCuts(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		request_body {
			max_size 100
		}
		handle_path /manage/* {
			mnemogate_accounts {
				key writer a-key-of-a-writer {
					may write
				}
			}
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	for path, key := range map[string]string{
		"/acme/v2/auth/login":   sessionKey,
		"/manage/acme/accounts": "Authorization: Bearer a-key-of-a-writer\r\n",
	} {
		conn := s.dial()
		get(fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n80\r\n%128s\r\n0\r\n\r\n", path, key, "{}"))(t)
		response := get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		if body := get(io.ReadAll(response.Body))(t); response.StatusCode != http.StatusRequestEntityTooLarge || !bytes.Contains(body, []byte("error")) {
			t.Errorf("%s: got %s, %s", path, response.Status, body)
		}
		_ = conn.Close()
	}
}
