package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// handshake returns the headers of a WebSocket handshake with these protocols.
func handshake(protocols ...string) string {
	headers := "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for _, line := range protocols {
		headers += "Sec-WebSocket-Protocol: " + line + "\r\n"
	}
	return headers
}

// Contract, section 12, websocket_token: what the backend receives, byte for byte,
// and which requests are refused.
func TestAWebSocketMayBringItsTokenAsAProtocol(t *testing.T) {
	t.Parallel()
	application := guesttest.Serve(t, websocket.Server{ // it accepts the first protocol that it is offered
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = config.Protocol[:1]
			return nil
		},
		Handler: func(conn *websocket.Conn) { _, _ = io.Copy(conn, conn) },
	})
	s := startSite(t, siteConfig{global: "session {\nstream_recheck 1s\n}\n", company: people, more: umbra, env: []string{"GODEBUG=http2xconnect=1"}, site: `
		mnemogate {
			websocket_token
			cookie
			public /open
			cors https://app.example.com
		}
		reverse_proxy /live ` + application.Listener.Addr().String() + `
		reverse_proxy BACKEND`})
	s.run("the page", func(t *testing.T) { aWebSocketAsThePageShowsIt(t, s) })
	token, cookie := s.login("alice@example.com"), s.moved("frank")
	ours := "mnemogate.bearer." + token
	last := func() string { return s.backend.requests()[len(s.backend.requests())-1] }
	told := func() []string {
		return linesNamed(last(), "X-Profile-Mnemocode", "Sec-WebSocket-Protocol", "Authorization", "Cookie")
	}
	const alice, frank = "X-Profile-Mnemocode: alice", "X-Profile-Mnemocode: frank"
	protocol := func(lines ...string) (wanted []string) {
		for _, line := range lines {
			wanted = append(wanted, "Sec-WebSocket-Protocol: "+line)
		}
		return wanted
	}
	s.run("who passes", func(t *testing.T) {
		for name, c := range map[string]struct {
			headers string
			want    []string
		}{
			"before":                  {handshake("chat, " + ours), append(protocol("chat"), alice)},
			"between":                 {handshake("chat," + ours + ", v2"), append(protocol("chat, v2"), alice)},
			"lines":                   {handshake("chat", ours, "v2 ,v3"), append(protocol("chat", "v2 ,v3"), alice)},
			"a cookie beside":         {cookie + handshake("chat, "+ours) + "Origin: https://evil.example\r\n", append(protocol("chat"), alice)},
			"Authorization":           {bearer(token) + handshake("chat, mnemogate.bearer.x"), append(protocol("chat"), alice)},
			"Authorization, alone":    {bearer(token) + handshake("mnemogate.bearer.x"), []string{alice}},
			"Authorization, two":      {bearer(token) + handshake("mnemogate.bearer.x, "+ours+",chat"), append(protocol("chat"), alice)},
			"another's protocols":     {bearer(token) + handshake("mnemogate.bearerx,chat "), append(protocol("mnemogate.bearerx,chat"), alice)},
			"the cookie, as ever":     {cookie + handshake("chat") + "Sec-Fetch-Site: same-origin\r\n", append(protocol("chat"), frank)},
			"Upgrade in another case": {strings.ReplaceAll(handshake("chat,"+ours), "websocket", "WebSocket"), append(protocol("chat"), alice)},
		} {
			s.open("/", c.headers, 101)
			slices.Sort(c.want)
			if got := told(); !slices.Equal(got, c.want) {
				t.Errorf("%s: the application got %q, want %q", name, got, c.want)
			}
		}
	})
	s.run("who does not", func(*testing.T) {
		ended := s.login("frank")
		s.post("auth/logout", ended, nil).wantState(record.None)
		step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
		before := len(s.backend.requests())
		for headers, want := range map[string]*wire.Error{
			handshake(ours):                                   wire.ErrHeaderInvalid,
			handshake(ours + ", ,"):                           wire.ErrHeaderInvalid,
			handshake(ours, ours, "chat"):                     wire.ErrHeaderInvalid,
			handshake("chat," + ours + "," + ours):            wire.ErrHeaderInvalid,
			handshake("chat, mnemogate.bearer."):              wire.ErrHeaderInvalid,
			handshake("chat, mnemogate.bearer.a b"):           wire.ErrHeaderInvalid,
			handshake("chat, mnemogate.bearer." + ended):      wire.ErrTokenInvalid,
			handshake("chat, mnemogate.bearer." + step):       wire.ErrSessionInvalid,
			handshake("chat, Mnemogate.Bearer." + token[:9]):  wire.ErrHeaderMissing,
			"Sec-WebSocket-Protocol: chat, " + ours + "\r\n":  wire.ErrHeaderMissing,
			"Authorization: x\r\n" + handshake("chat, "+ours): wire.ErrHeaderInvalid,
		} {
			s.ask("GET", "/", headers).want(want)
		}
		s.ask("POST", "/", handshake("chat, "+ours)).want(wire.ErrHeaderMissing)
		s.ask("GET", "/umbra/x", handshake("chat, "+ours)).want(wire.ErrTokenInvalid)
		if got := len(s.backend.requests()); got != before {
			s.t.Errorf("the application got %d requests", got-before)
		}
	})
	s.run("where nobody must", func(t *testing.T) {
		for headers, want := range map[string][]string{
			handshake("chat, " + ours):                  append(protocol("chat"), alice),
			handshake("chat, mnemogate.bearer.unknown"): protocol("chat"),
			handshake(ours):                             {alice},
		} {
			s.open("/open", headers, 101)
			slices.Sort(want)
			if got := told(); !slices.Equal(got, want) {
				t.Errorf("%q: the application got %q, want %q", headers, got, want)
			}
		}
	})
	s.run("over HTTP/2", func(t *testing.T) { // RFC 8441
		before := len(s.backend.requests())
		for protocols, want := range map[string]string{ours: "400", "chat, " + ours: "200", "chat, " + ours + "x": "401"} {
			c := s.h2()
			c.headers(false, ":method", "CONNECT", ":authority", "x", ":scheme", "http", ":path", "/x", ":protocol", "websocket",
				"sec-websocket-version", "13", "sec-websocket-protocol", protocols)
			body := ""
			if want == "200" {
				body = "ping"
				c.data(body, false)
			}
			if status, got := c.answer(body); status != want || body != "" && got != body {
				t.Errorf("%q: got %s %q, want %s", protocols, status, got, want)
			}
		}
		if got, want := told(), append(protocol("chat"), alice); len(s.backend.requests()) != before+1 || !slices.Equal(got, want) {
			t.Errorf("the application got %q, want %q", s.backend.requests()[before:], want)
		}
	})
	s.run("until the session ends", func(t *testing.T) {
		token := s.login("alice@example.com")
		conn, reader := s.open("/", handshake("chat, mnemogate.bearer."+token), 101)
		get(io.WriteString(conn, "hello"))(t)
		if echo, err := reader.Peek(5); err != nil || string(echo) != "hello" {
			t.Errorf("got %q, %v", echo, err)
		}
		s.post("auth/logout", token, nil).wantState(record.None)
		if rest, err := io.ReadAll(reader); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the logout comes %q", rest)
		}
	})
}

// Caddy's access log omits handshakes; another line has the same information. Other
// requests are in the access log, but their tokens are not.
func TestNoTokenAmongProtocolsIsLogged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	s := startSite(t, siteConfig{company: people, env: []string{"GODEBUG=http2xconnect=1"}, site: `
		log {
			output file ` + file + `
		}
		log_skip /skipped
		mnemogate {
			websocket_token
			public /open /skipped
			check /check
		}
		reverse_proxy /away* 127.0.0.1:1
		reverse_proxy BACKEND`})
	token := s.login("alice@example.com")
	protocols := "Sec-WebSocket-Protocol: chat, mnemogate.bearer." + token + "\r\nUser-Agent: curious/1\r\n"
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	ask := func(line, headers string, status int) {
		t.Helper()
		s.exchange(line + "\r\nHost: example.com\r\nContent-Length: 0\r\n" + headers + "\r\n").wantStatus(status)
	}
	ask("POST /post?q=1 HTTP/1.1", protocols+upgrade, 401)
	ask("GET /open?q=1 HTTP/1.1", protocols, 200)
	ask("GET /skipped HTTP/1.1", protocols, 200)
	ask("GET /close HTTP/1.1", protocols+"Connection: close\r\nUpgrade: websocket\r\n", 401)
	ask("GET /old HTTP/1.0", protocols+upgrade, 401)
	ask("PUT /away HTTP/1.1", protocols+bearer(token), 502)
	ask("GET /away/socket HTTP/1.1", protocols+upgrade, 502)
	ask("POST /acme/v2/auth/login HTTP/1.1", protocols, 401)
	ask("GET /check HTTP/1.1", protocols+upgrade, 403)
	r := s.request("POST", "/two", "")
	r.Header.Set("Sec-WebSocket-Protocol", "mnemogate.bearer."+token)
	r.Header.Set("User-Agent", "curious/1")
	s.doH2(r).wantStatus(401)
	for _, path := range []string{"/skipped?handshake", "/handshake?q=1"} {
		conn, _ := s.open(path, protocols+upgrade, 101)
		_ = conn.Close()
	}
	c := s.h2()
	c.headers(false, ":method", "CONNECT", ":authority", "example.com", ":scheme", "http", ":path", "/extended?q=1", ":protocol", "websocket",
		"sec-websocket-version", "13", "sec-websocket-protocol", "chat, mnemogate.bearer."+token+"x", "user-agent", "curious/1")
	if status, _ := c.answer(""); status != "401" {
		t.Errorf("got %s", status)
	}
	s.get("/last", "").wantStatus(401)

	var log string
	s.eventually("the last entry", func() bool {
		content, _ := os.ReadFile(file)
		log = wholeLines(string(content))
		return strings.Contains(log, `"/last"`)
	})
	var entries []string
	for line := range strings.Lines(log) {
		var entry struct {
			Level, Msg string
			Request    struct {
				ClientIP string `json:"client_ip"`
				Method   string
				URI      string
				Host     string
				Headers  http.Header
			}
			Status   int
			Duration float64
			UserID   string `json:"user_id"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r := entry.Request; r.Headers.Get("User-Agent") == "curious/1" {
			entries = append(entries, fmt.Sprint(entry.Level, " ", r.Method, " ", r.URI, " ", entry.Status, " ", entry.UserID))
			if entry.Msg != "handled request" || r.ClientIP != "127.0.0.1" || entry.Duration <= 0 || r.Headers.Get("Sec-Websocket-Protocol") != "REDACTED" {
				t.Errorf("got %s", line)
			}
		}
	}
	want := []string{
		"error PUT /away 502 alice", "info GET /check 403 ", "info GET /close 401 ", "info GET /old 401 ", "info GET /open?q=1 200 ",
		"info POST /acme/v2/auth/login 401 ", "info POST /post?q=1 401 ", "info POST /two 401 ",
	}
	if slices.Sort(entries); !slices.Equal(entries, want) {
		t.Errorf("the access log has %q, want %q", entries, want)
	}
	told := map[string]string{}
	s.eventually("the handshakes in the log", func() bool {
		clear(told)
		for line := range strings.Lines(s.log()) {
			var entry struct {
				Level, Logger      string
				Path, Method, Host string
				ClientIP           string `json:"client_ip"`
				UserAgent          string `json:"user_agent"`
				Status             int
				Duration           float64
			}
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Logger == "http.handlers.mnemogate" && entry.Duration > 0 {
				told[entry.Path] = fmt.Sprint(entry.Level, " ", entry.Method, " ", entry.Host, " ", entry.ClientIP, " ", entry.UserAgent, " ", entry.Status)
			}
		}
		return len(told) >= 4
	})
	if want := map[string]string{
		"/handshake": "info GET x 127.0.0.1 curious/1 101", "/extended": "info CONNECT example.com 127.0.0.1 curious/1 401",
		"/away": "error PUT example.com 127.0.0.1 curious/1 502", "/away/socket": "error GET example.com 127.0.0.1 curious/1 502",
	}; !maps.Equal(told, want) {
		t.Errorf("the log tells of %q, want %q", told, want)
	}
	for line := range strings.Lines(s.log() + log) {
		for _, field := range []string{`"error":null`, `"error_code":""`, `"reason":""`, `"ref":""`, `"actor":""`} {
			if strings.Contains(line, field) {
				t.Errorf("it has an empty field: %s", line)
			}
		}
	}
	if all := s.log() + string(log); strings.Contains(all, token) || strings.Contains(all, "mnemogate.bearer.") {
		t.Error("a token is in the log")
	}
}

// The code in docs/clients.md opens a WebSocket.
func aWebSocketAsThePageShowsIt(t *testing.T, s *site) {
	need(t, "node")
	shown := blocks(section(t, "docs/clients.md", "Streams and WebSockets"), "js")
	if len(shown) != 1 {
		t.Fatalf("the page shows %q", shown)
	}
	script := filepath.Join(t.TempDir(), "live.mjs")
	writeFile(t, script, shown[0]+`
const [url, token] = process.argv.slice(2);
const socket = live(url.replace('http', 'ws') + '/live', token);
const echo = await new Promise((resolve, reject) => {
  socket.onopen = () => socket.send('hello');
  socket.onmessage = ({ data }) => resolve(data);
  socket.onerror = ({ message }) => reject(new Error(message));
});
console.log(socket.protocol, echo);
socket.close();
`)
	out, err := exec.Command("node", "--experimental-websocket", "--no-warnings", script, s.URL, s.login("frank")).CombinedOutput()
	if got := string(out); err != nil || got != "chat hello\n" {
		t.Errorf("got %s, %v", got, err)
	}
}
