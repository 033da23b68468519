package integration

import (
	"flag"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
)

var begunLogins = flag.Int("begun", 3000, "how many logins TestAFloodOfLoginsKeepsNoSessionFromEnding begins")

// However many logins strangers have begun for an account, a new password revokes
// its sessions at once, on every node, and the stores have not grown. With two
// million, which takes some minutes:
//
//	go test ./caddymodule/integration -run FloodOfLogins -v -begun 2000000 -timeout 60m
func TestAFloodOfLoginsKeepsNoSessionFromEnding(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		floodLogins(t, startSite, func(s *site) (bytes int64) {
			for _, file := range []string{"", "-wal"} {
				if info, err := os.Stat(s.dir + "/mnemogate.db" + file); err == nil {
					bytes += info.Size()
				}
			}
			return bytes
		})
	})
	t.Run("two nodes", func(t *testing.T) {
		servers := sharedServers(t)
		start := func(t *testing.T, c siteConfig) *site { return servers.start(c, servers.direct(), servers.direct()) }
		dataset := regexp.MustCompile(`used_memory_dataset:(\d+)`)
		floodLogins(t, start, func(*site) int64 {
			bytes, _ := strconv.ParseInt(dataset.FindStringSubmatch(servers.redis.Ask(t, "info", "memory"))[1], 10, 64)
			return bytes
		})
	})
}

func floodLogins(t *testing.T, start starter, size func(*site) int64) {
	s := start(t, siteConfig{company: roomy + account("alice", "email alice@example.com")})
	session := s.login("alice")
	s.get("/x", session).wantStatus(http.StatusOK)
	begun := s.post("auth/login", "", fields{"login_id": "alice"}).token()
	before := size(s)

	c := &http.Client{Timeout: client.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer c.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(*begunLogins))
	began := time.Now()
	var strangers sync.WaitGroup
	for range 16 {
		strangers.Go(func() {
			for left.Add(-1) >= 0 {
				a, err := exchanged(t, c, s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": "alice"}))
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("%v, %d %s", err, a.Status, a.Body)
					return
				}
			}
		})
	}
	strangers.Wait()
	took := time.Since(began)
	grown := size(s) - before
	t.Logf("%d logins, %.0f a second; the store has grown by %d kB", *begunLogins, float64(*begunLogins)/took.Seconds(), grown/1000)
	if grown > 1_000_000 {
		t.Errorf("the store has grown by %d bytes", grown)
	}

	changed := time.Now()
	s.all()[0].admin("PATCH", "accounts/alice", fields{"password": "another fine secret"}).wantStatus(http.StatusOK)
	answered := time.Now()
	for _, node := range s.all() {
		for node.get("/x", session).Status == http.StatusOK {
			if time.Since(answered) > 5*time.Second {
				t.Fatal("the old token is still good")
			}
		}
		node.get("/x", session).want(wire.ErrTokenInvalid)
	}
	t.Logf("the change took %v; %v after it the old token was good nowhere", answered.Sub(changed), time.Since(answered))
	s.post("auth/checkpassword", begun, fields{"password": "another fine secret"}).want(wire.ErrTokenInvalid)
}
