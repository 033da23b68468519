package integration

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A flowing is an open stream that receives data every 50 ms.
type flowing struct {
	kind  string
	got   atomic.Int64 // number of bytes
	ended chan struct{}
	err   error // when it ended
}

var streamKinds = []string{"WebSocket", "SSE", "download", "SSE over HTTP/2", "download over HTTP/2"}

// stream opens a stream with a token.
func (s *site) stream(kind, token string) *flowing {
	s.t.Helper()
	f := &flowing{kind: kind, ended: make(chan struct{})}
	authorization := "Authorization: Bearer " + token + "\r\n"
	var body io.Reader
	switch path, overHTTP2 := strings.CutSuffix(kind, " over HTTP/2"); {
	case kind == "WebSocket":
		conn, reader := s.open("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n"+authorization, 101)
		_ = conn.SetDeadline(time.Time{}) // without a deadline
		body = reader
		go func() {
			for {
				if _, err := io.WriteString(conn, "tick"); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
	case overHTTP2:
		r := s.request("GET", "/"+strings.ToLower(path), "")
		r.Header.Set("Authorization", "Bearer "+token)
		response := get((&http.Client{Transport: h2client.Transport}).Do(r))(s.t) // without a timeout
		s.t.Cleanup(func() { _ = response.Body.Close() })
		if response.StatusCode != 200 || response.ProtoMajor != 2 {
			s.t.Fatalf("got %s %s", response.Proto, response.Status)
		}
		body = response.Body
	default:
		var conn net.Conn
		conn, body = s.open("/"+strings.ToLower(path), authorization, 200)
		_ = conn.SetDeadline(time.Time{})
	}
	go func() {
		defer close(f.ended)
		b := make([]byte, 1024)
		for f.err == nil {
			var n int
			n, f.err = body.Read(b)
			f.got.Add(int64(n))
		}
	}()
	return f
}

func (s *site) streams(token string) []*flowing {
	var all []*flowing
	for _, kind := range streamKinds {
		all = append(all, s.stream(kind, token))
	}
	return all
}

// lives waits until more data arrives.
func (f *flowing) lives(t *testing.T) {
	t.Helper()
	before := f.got.Load()
	storetest.Eventually(t, 5*time.Second, "more of "+f.kind, func() bool {
		select {
		case <-f.ended:
			t.Fatalf("%s was cut: %v", f.kind, f.err)
		default:
		}
		return f.got.Load() > before
	})
}

// isCut waits for the end of the stream and checks that it does not look complete.
func (f *flowing) isCut(t *testing.T) {
	t.Helper()
	storetest.Eventually(t, 3*time.Second, "end of "+f.kind, func() bool { // some times the stream_recheck
		select {
		case <-f.ended:
			return true
		default:
			return false
		}
	})
	if f.err == io.EOF && f.kind != "WebSocket" {
		t.Errorf("%s looks whole", f.kind)
	}
}

// Contract, section 3: open streams are cut within stream_recheck after their
// session was revoked or has expired. Other streams are not cut.
func TestStreamsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{global: "session {\nstream_recheck 1s\n}\n", company: people, more: `
	company brief {
		api_key brief-key
		captcha off
		session {
			lifetime 8s
		}
		account bea {
			login bea
			password "` + testPassword + `"
		}
	}`})
	brief := s.streams(s.postTo("brief", "brief-key", "auth/checkcredentials", "", fields{"login_id": "bea", "password": testPassword}).token())
	expired := time.Now().Add(8 * time.Second) // at the latest
	token := s.login("alice@example.com")
	alices := s.streams(token)
	franks := s.streams(s.login("frank"))
	pending := make(chan *http.Response, 1)
	r := s.request("GET", "/pending", "")
	r.Header.Set("Authorization", "Bearer "+token)
	go func() {
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
		}
		pending <- response
	}()
	var uploads []net.Conn // in the middle of a body
	for _, framing := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
		conn := s.dial()
		defer conn.Close()
		get(io.WriteString(conn, "POST /pending HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+token+"\r\n"+framing+"\r\n\r\n4\r\n"))(t)
		uploads = append(uploads, conn)
	}
	for _, f := range append(alices, franks...) {
		f.lives(t)
	}
	s.post("auth/logout", token, nil).wantState(record.None)
	for _, f := range alices {
		f.isCut(t)
	}
	// If the answer had not begun, it is a refusal.
	if response := <-pending; response != nil {
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		newAnswer(t, response, body).want(wire.ErrTokenInvalid)
	}
	watch := storetest.StartWatch()
	for _, conn := range uploads {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if response := get(http.ReadResponse(bufio.NewReader(conn), nil))(t); response.StatusCode != http.StatusUnauthorized || watch.Took() > 3*time.Second {
			t.Errorf("upload: got %s after %v", response.Status, watch.Took())
		}
	}
	time.Sleep(time.Until(expired))
	for _, f := range brief {
		f.isCut(t)
	}
	for _, f := range franks {
		f.lives(t)
	}
	s.admin("PATCH", "accounts/frank", fields{"status": "closed"}).wantStatus(200)
	for _, f := range franks {
		f.isCut(t)
	}
	s.wantNoneLogged(token, "panic")
}
