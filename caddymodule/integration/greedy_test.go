package integration

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var flood = flag.Duration("flood", 2*time.Second, "how long TestGreedyClientsHurtNobody sends random tokens")

// served counts the requests of clients that behave, while others don't.
type served struct {
	loading
	passed atomic.Int64
	logins atomic.Int64
}

func serveOthers(s *site, token string) *served {
	c := &served{loading: loading{site: s}}
	c.startWorkers()
	loop := func(do func()) {
		c.workers.Go(func() {
			for ; !c.over(); pace() {
				do()
			}
		})
	}
	ask := func(r *http.Request) (answer, bool) {
		a, err := exchanged(s.t, client, r)
		if err != nil {
			s.t.Errorf("%s: %v", r.URL.Path, err)
			return a, false
		}
		return a, c.good(a, r.URL.Path)
	}
	for range 2 {
		loop(func() {
			if _, ok := ask(s.getRequest("/acme/orders", token)); ok {
				c.passed.Add(1)
			}
		})
	}
	loop(func() {
		a, ok := ask(s.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": "bob", "password": testPassword}))
		if !ok {
			return
		}
		if _, ok = ask(s.postRequest("acme", testKey, "auth/logout", a.str("session_token"), nil)); ok {
			c.logins.Add(1)
		}
	})
	return c
}

// more waits until at least this many more requests and logins were served.
func (c *served) more(passed, logins int64) {
	passed, logins = c.passed.Load()+passed, c.logins.Load()+logins
	storetest.Eventually(c.t, time.Minute, "further requests and logins", func() bool {
		return c.passed.Load() >= passed && c.logins.Load() >= logins || c.t.Failed()
	})
}

// connections opens n connections to a site's nodes, and begins on each at once.
func (s *site) connections(n int, begin func(i int, conn net.Conn) error) []net.Conn {
	s.t.Helper()
	nodes := s.all()
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = get(net.Dial("tcp", nodes[i%len(nodes)].addr))(s.t)
		must(s.t, begin(i, conns[i]))
	}
	return conns
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// A client that is slow or sends as much as it can affects only itself: other
// clients are served meanwhile, and memory does not grow. For the figures:
//
//	go test ./caddymodule/integration -run GreedyClients -v -flood 10s
func TestGreedyClientsHurtNobody(t *testing.T) { onEachDeployment(t, greedyClientsHurtNobody) }

const remembered = 20 // sessions, each of another account

func greedyClientsHurtNobody(t *testing.T, start starter) {
	config := siteConfig{env: []string{"GOGC=100"}, global: "cache 1000", company: roomy + account("alice", "") + account("bob", "")}
	for i := range remembered {
		config.company += account(fmt.Sprint("user-", i), "")
	}
	s := start(t, config)
	token := s.login("alice")
	s.remember(token)
	others := serveOthers(s, token)
	defer others.stopWorkers()
	others.more(20, 5)

	if s.nodes == nil { // each of several nodes would serve them like a single one
		slowClients(t, s, token, others)
	}
	for last := false; !randomTokens(t, s, others, last); last = true {
	}
}

// slowClients holds connections open, in several ways.
func slowClients(t *testing.T, s *site, token string, others *served) {
	idle := fewer(5000)
	raiseLimit(t, uint64(3*idle))
	authorization := "Authorization: Bearer " + token + "\r\n"
	const login = "POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + testKey + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	for _, greed := range []struct {
		name  string
		conns int
		each  int64 // the most bytes that a connection may use
		begin func(i int, conn net.Conn) error
		drip  byte // sent again and again
	}{
		{"slow headers", 300, 64 << 10, func(_ int, conn net.Conn) error {
			_, err := io.WriteString(conn, "GET /orders HTTP/1.1\r\nHost: x\r\nX-Long: ")
			return err
		}, 'x'},
		{"slow bodies", 300, 64 << 10, func(i int, conn net.Conn) error {
			raw := login
			if i%3 == 1 {
				raw = "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n" + authorization + "\r\n{"
			} else if i%3 == 2 {
				raw = "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
			}
			_, err := io.WriteString(conn, raw)
			return err
		}, ' '},
		{"slow readers", 60, 256 << 10, func(_ int, conn net.Conn) error {
			if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
				return err
			}
			_, err := io.WriteString(conn, "GET /download HTTP/1.1\r\nHost: x\r\n"+authorization+"\r\n")
			return err
		}, 0},
		{"idle", idle, 64 << 10, func(i int, conn net.Conn) error {
			if i%2 == 0 {
				return nil // these send nothing
			}
			if _, err := io.WriteString(conn, "GET /orders HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return err
			}
			_, err := conn.Read(make([]byte, 4096))
			return err
		}, 0},
	} {
		func() {
			before := residentOf(s)
			conns := s.connections(greed.conns, greed.begin)
			defer closeAll(conns)
			quit := make(chan struct{})
			var drips sync.WaitGroup
			if greed.drip != 0 {
				drips.Go(func() {
					for {
						for _, conn := range conns {
							_, _ = conn.Write([]byte{greed.drip}) // the server closes refused ones
						}
						select {
						case <-quit:
							return
						case <-time.After(100 * time.Millisecond):
						}
					}
				})
			}
			others.more(100, 10)
			after := residentOf(s)
			close(quit)
			drips.Wait()
			t.Logf("%d connections, %s: %.0f MiB resident before, %.0f MiB with them", greed.conns, greed.name, mebibytes(before), mebibytes(after))
			if after > before+(int64(greed.conns)*greed.each+64<<20)*raceFactor {
				t.Errorf("%s: that is too much", greed.name)
			}
		}()
	}
}

func residentOf(s *site) (bytes int64) {
	for _, node := range s.all() {
		bytes += node.memory("VmRSS")
	}
	return bytes
}

// randomTokens sends requests with random tokens as fast as this process can. It returns false,
// unless this is the last try, if the machine has stalled and a store was late.
func randomTokens(t *testing.T, s *site, others *served, last bool) bool {
	stalled := storetest.WatchStalls()
	var tokens []string
	for i := range remembered {
		tokens = append(tokens, s.login(fmt.Sprint("user-", i)))
	}
	// missed returns for how many of the tokens a node reads the store.
	missed := func(node *site) int {
		s.eventually("trust in what is remembered", func() bool { return node.scrape()["mnemogate_memory_trusted"] == 1 })
		before := node.scrape()["mnemogate_memory_misses_total"]
		for _, token := range tokens {
			node.get("/", token).wantStatus(http.StatusOK)
		}
		return int(node.scrape()["mnemogate_memory_misses_total"] - before)
	}
	for _, node := range s.all() {
		s.eventually("memory", func() bool { return missed(node) == 0 })
	}
	before := residentOf(s)
	var logged []int
	for _, node := range s.all() {
		logged = append(logged, len(node.log()))
	}
	began := time.Now()
	var refused atomic.Int64
	var work sync.WaitGroup
	for _, conn := range s.connections(8, func(int, net.Conn) error { return nil }) {
		work.Go(func() {
			defer conn.Close()
			for time.Since(began) < *flood && !t.Failed() {
				n, err := pipelined(conn, 100)
				if err != nil {
					t.Error(err)
				}
				refused.Add(int64(n))
			}
		})
	}
	others.more(20, 2)
	work.Wait()
	t.Logf("%.0f requests a second were refused", float64(refused.Load())/time.Since(began).Seconds())
	after := residentOf(s)
	t.Logf("%.0f MiB resident before, %.0f MiB after", mebibytes(before), mebibytes(after))
	if after > before+64<<20*raceFactor {
		t.Error("memory has grown")
	}
	late := false
	for i, node := range s.all() {
		log := node.log()[logged[i]:]
		if strings.Contains(log, "/random") || strings.Contains(log, "token.invalid") || strings.Contains(log, "header.invalid") {
			t.Errorf("refused requests are logged: %.2000s", log)
		}
		late = late || strings.Contains(log, "did not answer") || strings.Contains(log, "no revocations are received")
	}
	if stall := stalled(); late && stall > 500*time.Millisecond && !last {
		t.Logf("once more, since the machine has stalled for %v: %s", stall, s.refusals())
		return false
	} else if late {
		t.Errorf("a store was late, on a machine that stalls for %v: %s", stall, s.refusals())
	}
	// The nodes must still remember the sessions.
	for _, node := range s.all() {
		if n := missed(node); n > 0 {
			t.Errorf("of %d remembered sessions, the store was asked for %d", len(tokens), n)
		}
	}
	return true
}

// pipelined sends n requests at once, half of them with tokens that look valid. It
// returns how many were refused as expected.
func pipelined(conn net.Conn, n int) (refused int, err error) {
	var requests bytes.Buffer
	random := make([]byte, 32)
	for i := range n {
		rand.Read(random)
		token := base64.RawURLEncoding.EncodeToString(random)
		if i%2 == 0 {
			token = "mgs_" + token
		} else if i%4 == 1 {
			token += "\t{"
		}
		fmt.Fprintf(&requests, "GET /random HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token)
	}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(requests.Bytes())
		sent <- err
	}()
	reader := bufio.NewReader(conn)
	for range n {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return refused, err
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return refused, err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusBadRequest {
			return refused, fmt.Errorf("a random token got %s", response.Status)
		}
		refused++
	}
	return refused, <-sent
}
