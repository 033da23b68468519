package integration

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var drill = flag.Duration("drill", time.Second, "how long users log in before TestTheFirstPlaceDies kills the first place, and how long it takes each time; 10s for figures")

// The first of two places dies. An operator does what docs/many-nodes.md says, and users of
// the second place go on. Nothing that was acknowledged is lost.
func TestTheFirstPlaceDies(t *testing.T) {
	t.Parallel()
	need(t, "redis-cli")
	const trip = 30 * time.Millisecond // to the other place and back
	primary := storetest.OwnPostgres(t, "wal_level=replica", "max_wal_senders=3")
	master := storetest.StartRedis(t)
	var far []*storetest.Proxy // what goes from the second place to the first
	toFirst := func(socket string) *storetest.Proxy {
		p := storetest.NewProxy(t, "unix", socket)
		p.Delay(trip / 2)
		far = append(far, p)
		return p
	}
	host, port, err := net.SplitHostPort(toFirst(primary.Socket()).Addr())
	must(t, err)
	standby := primary.Replica(t, fmt.Sprintf("primary_conninfo=host=%s port=%s user=postgres application_name=second", host, port))
	for _, server := range []*storetest.Postgres{primary, standby} { // the same configuration
		server.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'second'", "SELECT pg_reload_conf()")
	}
	host, port, err = net.SplitHostPort(toFirst(master.Socket()).Addr())
	must(t, err)
	replica := storetest.StartRedis(t, "--replicaof", host+" "+port)

	s := &servers{t: t, postgres: primary, redis: master, schema: "public"}
	const waits = " {\nwait_replicas 1\n}"
	way := &way{postgres: toFirst(primary.Socket()), redis: toFirst(master.Socket())}
	both := s.start(siteConfig{company: roomy + account("alice", "")}, s.direct()+waits, s.through(way)+waits)
	first, second := both.nodes[0], both.nodes[1]
	inSecond := &servers{t: t, postgres: standby, redis: replica, schema: "public"}
	must(t, os.WriteFile(second.dir+"/second.Caddyfile", []byte(strings.Replace(second.config, s.through(way)+waits, inSecond.direct(), 1)), 0o600))

	logsIn := func(node *site) (token string, ok bool) {
		a, err := node.try(client, node.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}))
		if err != nil || a.Status != http.StatusOK {
			return "", false
		}
		return a.str("session_token"), true
	}
	kept := []string{second.signedIn("alice", testPassword)}
	for name, node := range map[string]*site{"first": first, "second": second} {
		if *drill > time.Second {
			t.Logf("in the %s place: a login takes %v, a request %v (medians)", name,
				medianWithin(*drill, func() { logsIn(node) }), medianWithin(*drill, func() { node.get("/", kept[0]).wantStatus(200) }))
		}
	}

	// Users log in, and some log out, until the place is gone.
	logsOut := func(node *site, token string) (ok bool) {
		a, err := node.try(client, node.postRequest("acme", testKey, "auth/logout", token, nil))
		return err == nil && a.Status == http.StatusOK
	}
	var users sync.WaitGroup
	var mu sync.Mutex
	var ended []string
	note := func(list *[]string, token string) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, token)
	}
	for i := range 8 {
		users.Go(func() {
			node := both.nodes[i%2]
			for {
				token, ok := logsIn(node)
				if !ok || !logsOut(node, token) {
					return
				}
				note(&ended, token)
				if token, ok = logsIn(node); !ok {
					return
				}
				note(&kept, token)
			}
		})
	}
	time.Sleep(*drill)
	first.stop(syscall.SIGKILL)
	primary.Kill()
	master.Kill()
	for _, p := range far {
		p.Blackhole()
	}
	users.Wait()

	for tool, command := range map[string]string{"psql": standby.Psql(), "redis-cli": "redis-cli -s " + replica.Socket()} {
		must(t, os.WriteFile(second.dir+"/"+tool, []byte("#!/bin/sh\nPATH="+os.Getenv("PATH")+" exec "+command+` "$@"`), 0o700))
	}
	began := time.Now()
	for command := range strings.Lines(blocks(section(t, "docs/many-nodes.md", "Two places"), "sh")[0]) {
		command = strings.ReplaceAll(command, "/etc/caddy/", second.dir+"/")
		one := time.Now()
		out, err := second.shell(command).CombinedOutput()
		t.Logf("%v: %s%s", time.Since(one), command, out)
		must(t, err)
	}
	storetest.Eventually(t, time.Minute, "login in the second place", func() bool {
		_, ok := logsIn(second)
		return ok
	})
	t.Logf("a login succeeded %v after the first command", time.Since(began))
	for _, token := range kept {
		second.get("/", token).wantStatus(200)
	}
	for _, token := range ended {
		second.get("/", token).want(wire.ErrTokenInvalid)
	}
	t.Logf("of %d sessions that were to go on and %d that had ended, all did", len(kept), len(ended))
}

// medianWithin calls until a time is over, and returns the median of what the calls took.
func medianWithin(limit time.Duration, call func()) time.Duration {
	var took []time.Duration
	for began := time.Now(); time.Since(began) < limit; {
		one := time.Now()
		call()
		took = append(took, time.Since(one))
	}
	return median(took)
}
