package integration

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// readExample returns a file of docs/examples/two-nodes with the addresses of nodes, and
// with times that are five times as short.
func readExample(t *testing.T, name string, nodes []*site, replace ...string) string {
	t.Helper()
	text := string(get(os.ReadFile("../../docs/examples/two-nodes/" + name))(t))
	return changed(t, text, append([]string{"10.0.0.11:8080", nodes[0].addr, "10.0.0.12:8080", nodes[1].addr}, replace...)...)
}

// rollingNodes starts two nodes that trust a balancer on this machine.
func rollingNodes(t *testing.T, servers *servers, program string) []*site {
	t.Helper()
	var accounts strings.Builder
	for i := range rollers {
		accounts.WriteString(account(fmt.Sprint("roller-", i), fmt.Sprintf("phone +3706000000%d\nsecond_factor", i)) + account(fmt.Sprint("user-", i), ""))
	}
	config := siteConfig{stores: servers.direct(), company: roomy + accounts.String(), handler: "health /health\nlogin_page", servers: "trusted_proxies static 127.0.0.1\ntrusted_proxies_strict"}
	backend, sms := newRawBackend(t), newWebhookSink(t)
	nodes := []*site{newNode(t, config, backend, sms), newNode(t, config, backend, sms)}
	for _, node := range nodes {
		node.program = program
		node.start()
	}
	return nodes
}

// The examples of nginx and HAProxy as balancers. (TestRollingUpgrade has that of Caddy.)
// While a node stops and starts again, no request fails.
func TestBalancersOfTheExamples(t *testing.T) {
	t.Parallel()
	for program, start := range map[string]func(t *testing.T, nodes []*site, dir, addr, secure, certificate, key string) *exec.Cmd{
		"nginx": func(t *testing.T, nodes []*site, dir, addr, secure, certificate, key string) *exec.Cmd {
			writeFile(t, dir+"/nginx.conf", readExample(t, "nginx.conf", nodes, "listen 443 ssl http2;", "listen "+addr+";\nlisten "+secure+" ssl http2;",
				"/etc/nginx/tls/site.crt", certificate, "/etc/nginx/tls/site.key", key, "http {\n", "http {\naccess_log off;\nclient_body_temp_path "+dir+"/body;\n"))
			return exec.Command("nginx", "-p", dir, "-c", dir+"/nginx.conf", "-e", "stderr", "-g", "daemon off; master_process off; pid "+dir+"/pid;")
		},
		"haproxy": func(t *testing.T, nodes []*site, dir, addr, secure, certificate, key string) *exec.Cmd {
			writeFile(t, dir+"/site.pem", string(get(os.ReadFile(certificate))(t))+string(get(os.ReadFile(key))(t)))
			writeFile(t, dir+"/haproxy.cfg", readExample(t, "haproxy.cfg", nodes, "bind :443", "bind "+addr+"\n\tbind "+secure, "/etc/haproxy/tls/site.pem", dir+"/site.pem", "inter 1s", "inter 200ms"))
			return exec.Command("haproxy", "-db", "-f", dir+"/haproxy.cfg")
		},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			need(t, program)
			servers := sharedServers(t)
			nodes := rollingNodes(t, servers, "")
			secure := fmt.Sprint("127.0.0.1:", storetest.FreePorts(t, 1)[0])
			certificate, key := servers.postgres.Certificate(t, program)
			s := nodes[0].front(t, func(dir, addr, _ string) *exec.Cmd {
				return start(t, nodes, dir, addr, secure, certificate, key)
			})
			s.backend = nodes[0].backend
			s.checkBalancer(t)
			long := s.dial() // a body that nobody should store
			defer long.Close()
			get(io.WriteString(long, posts+"Content-Length: 1000000000\r\n\r\n"))(t)
			go func() { _, _ = io.WriteString(long, strings.Repeat(" ", 1e6)) }() // it may not want all of it
			if refused := get(http.ReadResponse(bufio.NewReader(long), nil))(t); refused.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("a body of 1 GB: got %s", refused.Status)
			}
			s.ask("GET", longLink, "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n").wantStatus(http.StatusSeeOther)
			token := s.login("user-0")
			h2 := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}, Timeout: client.Timeout}
			defer h2.CloseIdleConnections()
			r := get(http.NewRequest("GET", "https://"+secure+"/orders", nil))(t)
			r.Header.Set("Authorization", "Bearer "+token)
			response := get(h2.Do(r))(t)
			body := string(get(io.ReadAll(response.Body))(t))
			_ = response.Body.Close()
			if response.ProtoMajor != 2 || !strings.Contains(strings.ToLower(body), "\r\nx-forwarded-proto: https\r\n") {
				t.Errorf("over HTTP/2: got %s, the backend %q", response.Proto, body)
			}
			load := newRollingLoad(t, s, nodes)
			defer load.client.CloseIdleConnections()
			load.begin()
			load.leave("at first")
			nodes[0].stop(syscall.SIGTERM)
			load.leave("without a node")
			nodes[0].startAgain()
			load.leave("with both")
			load.end()
		})
	}
}

// checkBalancer looks at what the backend gets through a balancer.
func (s *site) checkBalancer(t *testing.T) {
	t.Helper()
	token := s.login("user-0")
	conn := get((&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", s.addr))(t)
	defer conn.Close()
	get(io.WriteString(conn, "GET /orders HTTP/1.1\r\nHost: api.example.com\r\n"+bearer(token)+"Connection: close\r\n"+forwarded+"\r\n"))(t)
	body := strings.ToLower(string(get(io.ReadAll(conn))(t)))
	if strings.Contains(body, "mallory") || strings.Contains(body, "192.0.2.66") || !strings.Contains(body, "\r\nx-forwarded-for: 127.0.0.2") || !strings.Contains(body, "\r\nx-forwarded-host: api.example.com\r\n") {
		t.Errorf("the backend got %q", body)
	}
	for range 2 { // garbled bodies, after which both nodes could count as down
		conn := s.dial()
		get(io.WriteString(conn, posts+"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"))(t)
		_, _ = io.Copy(io.Discard, conn) // some balancers just close it
		_ = conn.Close()
	}
	s.get("/orders", token).wantStatus(http.StatusOK)
	socket, _ := s.open("/x", bearer(token)+"Origin: http://x\r\n"+opensSocket, http.StatusSwitchingProtocols)
	defer socket.Close()
	events, stream := s.open("/sse", bearer(token), http.StatusOK)
	defer events.Close() // a node that stops waits for it
	for line := ""; !strings.HasPrefix(line, "data:"); line = get(stream.ReadString('\n'))(t) {
	}
}

// posts begins a POST that reads its body.
const posts = "POST /acme/v2/auth/login HTTP/1.1\r\nHost: api.example.com\r\nX-Api-Key: " + testKey + "\r\nContent-Type: application/json\r\n"

// forwarded are headers with which a client claims to come from elsewhere.
const forwarded = "X-Forwarded-For: 192.0.2.66\r\nX-Forwarded-Proto: mallory\r\nX-Forwarded-Host: mallory\r\nX-Forwarded-Port: mallory\r\nX-Forwarded-Prefix: /mallory\r\n" +
	"Forwarded: for=192.0.2.66;host=mallory\r\nX-Real-IP: 192.0.2.66\r\n"

// opensSocket opens a WebSocket.
const opensSocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
