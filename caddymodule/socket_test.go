package caddymodule

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// handshake are the headers of one, with these protocols.
func handshake(protocols ...string) string {
	headers := "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for _, line := range protocols {
		headers += "Sec-WebSocket-Protocol: " + line + "\r\n"
	}
	return headers
}

// Contract, 12, websocket_token: what the application gets, byte for byte, and who
// does not pass.
func TestAWebSocketMayBringItsTokenAsAProtocol(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		t.Parallel()
		s := start(t, siteConfig{company: people, more: umbra, site: `
			log
			mnemogate {
				websocket_token
				cookie
				public /open
				cors https://app.example.com
			}
			reverse_proxy BACKEND`})
		one := s
		if s.nodes != nil {
			one = s.nodes[0]
		}
		token, cookie := s.login("alice@example.com"), s.moved("frank")
		ours := "mnemogate.bearer." + token
		last := func() string { return one.backend.requests()[len(one.backend.requests())-1] }
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
				one.open("/", c.headers, 101)
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
			before := len(one.backend.requests())
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
				one.ask("GET", "/", headers).want(want)
			}
			one.ask("POST", "/", handshake("chat, "+ours)).want(wire.ErrHeaderMissing)
			one.ask("GET", "/umbra/x", handshake("chat, "+ours)).want(wire.ErrTokenInvalid)
			if got := len(one.backend.requests()); got != before {
				s.t.Errorf("the application got %d requests", got-before)
			}
		})
		s.run("where nobody must", func(t *testing.T) {
			for headers, want := range map[string][]string{
				handshake("chat, " + ours):                  append(protocol("chat"), alice),
				handshake("chat, mnemogate.bearer.unknown"): protocol("chat"),
				handshake(ours):                             {alice},
			} {
				one.open("/open", headers, 101)
				slices.Sort(want)
				if got := told(); !slices.Equal(got, want) {
					t.Errorf("%q: the application got %q, want %q", headers, got, want)
				}
			}
		})
		s.run("the log", func(t *testing.T) {
			one.tells("a request with a token among its protocols")
			if log := one.log(); strings.Contains(log, token) || strings.Contains(log, "mnemogate.bearer.") {
				t.Error("it has the token")
			}
		})
	})
}

// chat is an application with a WebSocket. It takes the first protocol that it is
// offered, and tells what it was.
func chat(offered chan<- []string) *httptest.Server {
	return httptest.NewServer(websocket.Server{
		Handshake: func(config *websocket.Config, r *http.Request) error {
			offered <- slices.Clone(config.Protocol)
			config.Protocol = config.Protocol[:1]
			return nil
		},
		Handler: func(conn *websocket.Conn) { _, _ = io.Copy(conn, conn) },
	})
}

// A real WebSocket, whose application chooses among the protocols that are left, is
// cut when its session ends. If the application is away, the log has no token either.
func TestARealWebSocketWithATokenAmongItsProtocols(t *testing.T) {
	t.Parallel()
	chosen := make(chan []string, 10)
	application := chat(chosen)
	defer application.Close()
	s := startSite(t, siteConfig{global: "session {\nstream_recheck 200ms\n}\n", company: people, site: `
		log
		mnemogate {
			websocket_token
		}
		reverse_proxy ` + application.Listener.Addr().String()})
	token := s.login("frank")
	dial := func(protocols ...string) (*websocket.Conn, error) {
		config, err := websocket.NewConfig("ws://"+s.addr+"/live", "https://app.example.com")
		if err != nil {
			t.Fatal(err)
		}
		config.Protocol = protocols
		return config.DialContext(t.Context())
	}
	conn, err := dial("mnemogate.bearer."+token, "chat", "v2")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := <-chosen; !slices.Equal(got, []string{"chat", "v2"}) || !slices.Equal(conn.Config().Protocol, []string{"chat"}) {
		t.Errorf("the application was offered %q, and chose %q", got, conn.Config().Protocol)
	}
	echo := make([]byte, 5)
	if _, err := fmt.Fprint(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(echo); err != nil || string(echo[:n]) != "hello" {
		t.Errorf("got %q, %v", echo[:n], err)
	}
	if conn, err := dial("mnemogate.bearer." + token); err == nil {
		conn.Close()
		t.Error("alone, it passes")
	}
	s.post("auth/logout", token, nil).wantState(record.None)
	if n, err := conn.Read(echo); err == nil {
		t.Errorf("behind the logout comes %q", echo[:n])
	}
	s.tells("a request with a token among its protocols")

	application.Close()
	again := s.login("frank")
	a := s.ask("GET", "/live", handshake("chat, mnemogate.bearer."+again)+"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
	if a.is(http.StatusBadGateway); len(a.Body) != 0 {
		t.Errorf("got %s", a.Body)
	}
	s.tells("connection refused")
	if log := s.log(); strings.Contains(log, token) || strings.Contains(log, again) {
		t.Error("the log has a token")
	}
}

// So does one over HTTP/2 (RFC 8441).
func TestAWebSocketOverHTTP2WithATokenAmongItsProtocols(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: "websocket_token", env: []string{"GODEBUG=http2xconnect=1"}})
	ours := "mnemogate.bearer." + s.login("alice@example.com")
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
	requests := s.backend.requests()
	if got := linesNamed(requests[len(requests)-1], "X-Profile-Mnemocode", "Sec-WebSocket-Protocol"); len(requests) != 1 || !slices.Equal(got, []string{"Sec-WebSocket-Protocol: chat", "X-Profile-Mnemocode: alice"}) {
		t.Errorf("the application got %q", requests)
	}
}

// The lines of docs/clients.md open a WebSocket and a stream.
func TestStreamsAsThePageShowsThem(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		storetest.SkipOrFail(t, "no node")
	}
	shown := blocks(pages(t)["docs/clients.md"], "js")
	if len(shown) != 3 {
		t.Fatalf("the page shows %q", shown)
	}
	application := chat(make(chan []string, 10))
	defer application.Close()
	s := startSite(t, siteConfig{company: people, site: `
		mnemogate {
			websocket_token
		}
		reverse_proxy /live ` + application.Listener.Addr().String() + `
		reverse_proxy BACKEND`})
	script := filepath.Join(t.TempDir(), "streams.mjs")
	if err := os.WriteFile(script, []byte(shown[2]+`
const [url, token] = process.argv.slice(2);
const socket = live(url.replace('http', 'ws') + '/live', token);
const echo = await new Promise((resolve, reject) => {
  socket.onopen = () => socket.send('hello');
  socket.onmessage = ({ data }) => resolve(data);
  socket.onerror = ({ message }) => reject(new Error(message));
});
console.log(socket.protocol, echo);
socket.close();
for await (const data of events(url + '/sse', token)) {
  console.log(data);
  break;
}
for await (const data of events(url + '/sse', 'none')) console.log(data);
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", "--experimental-websocket", "--no-warnings", script, s.URL, s.login("frank")).CombinedOutput()
	if got := string(out); err == nil || !strings.HasPrefix(got, "chat hello\ntick\n") || !strings.Contains(got, "Error: auth.token.invalid") {
		t.Errorf("got %s, %v", got, err)
	}
}

// Without the option, nothing is looked at or taken out.
func TestWithoutTheOptionAProtocolIsAProtocol(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people})
	token := s.login("frank")
	s.ask("GET", "/", handshake("chat, mnemogate.bearer."+token)).want(wire.ErrHeaderMissing)
	s.open("/", bearer(token)+handshake("chat, mnemogate.bearer.x"), 101)
	if got := linesNamed(s.backend.requests()[0], "Sec-WebSocket-Protocol"); !slices.Equal(got, []string{"Sec-WebSocket-Protocol: chat, mnemogate.bearer.x"}) {
		t.Errorf("the application got %q", got)
	}
}
