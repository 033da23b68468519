package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// openRedis returns a store that is closed with the test.
func openRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	r, err := OpenRedis(o)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func openServer(t testing.TB, s *storetest.Redis) *Redis {
	return openRedis(t, RedisOptions{URLs: []string{s.URL()}})
}

func redisNodes(t *testing.T) (one, two flows.Sessions) {
	s := storetest.StartRedis(t)
	return inTime{openServer(t, s).Sessions(), s.Client(t)}, inTime{openServer(t, s).Sessions(), s.Client(t)}
}

func redisClusterNodes(t *testing.T) (one, two flows.Sessions) {
	c := storetest.SharedCluster(t)
	node := func() flows.Sessions {
		r := openRedis(t, RedisOptions{URLs: c.URLs()})
		return inTime{r.Sessions(), r.cluster}
	}
	return node(), node()
}

func redisSentinelNodes(t *testing.T) (one, two flows.Sessions) {
	f := storetest.SharedFailover(t)
	node := func() flows.Sessions {
		r := openRedis(t, RedisOptions{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
		return inTime{r.Sessions(), r.single}
	}
	return node(), node()
}

// inTime is Redis at the time that the suite says it is: what Redis would have
// cleared away by then, a Sweep does. It takes t0 for when the test began.
type inTime struct {
	flows.Sessions
	redis redis.UniversalClient
}

func (s inTime) Sweep(ctx context.Context, now time.Time) error {
	if err := s.Sessions.Sweep(ctx, now); err != nil {
		return err
	}
	// The test has been running for a while, but for less than this.
	passed := now.Sub(t0) - 900*time.Millisecond
	if c, ok := s.redis.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
			return forgetOld(ctx, server, passed)
		})
	}
	return forgetOld(ctx, s.redis.(*redis.Client), passed)
}

func forgetOld(ctx context.Context, server *redis.Client, passed time.Duration) error {
	keys, err := server.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		left, err := server.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		if left < 0 {
			return fmt.Errorf("%q would stay for ever", key)
		}
		if left <= passed {
			if err := server.Del(ctx, key).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Opening

func TestRedisURLs(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, []byte("no certificate"), 0o600))
	type urls = []string
	for _, c := range []struct {
		options RedisOptions
		want    string // in the error; empty for none
	}{
		{RedisOptions{URLs: urls{"redis://localhost"}}, ""},
		{RedisOptions{URLs: urls{"rediss://user:s3cret%40%2F%3F@[::1]:6380/3?pool_size=5"}}, ""},
		{RedisOptions{URLs: urls{"unix:///run/redis.sock?db=2"}}, ""},
		{RedisOptions{URLs: urls{"redis://:s3cret@a:1", "redis://:s3cret@b:2"}}, ""},
		{RedisOptions{URLs: urls{"redis://a?sentinel_user=u&sentinel_password=s3cret"}, SentinelMaster: "m"}, ""},
		{RedisOptions{}, "URL is missing"},
		{RedisOptions{URLs: urls{"redis://a"}, WaitReplicas: -1}, "wait_replicas is negative"},
		{RedisOptions{URLs: urls{""}}, "Redis URL 1 begins with none"},
		{RedisOptions{URLs: urls{"http://user:s3cret@a"}}, "begins with none"},
		{RedisOptions{URLs: urls{"localhost:6379"}}, "can't be read"},
		{RedisOptions{URLs: urls{"redis://u:s3cret/@a"}}, "percent-encoded"},
		{RedisOptions{URLs: urls{"redis://u:12?s3cret@a"}}, "percent-encoded"},
		{RedisOptions{URLs: urls{"redis://u:12/s3cret@a"}}, "percent-encoded"},
		{RedisOptions{URLs: urls{"redis://u:12#s3cret@a"}}, "percent-encoded"},
		{RedisOptions{URLs: urls{"redis://u:s3cret%@a"}}, "percent-encoded"},
		{RedisOptions{URLs: urls{"redis://u:s3cret\n@a"}}, "percent-encoded"},
		{RedisOptions{URLs: urls{"redis://a", "redis://b?s3cret=1"}}, "Redis URL 2 has an option behind its ? that is none of ca, db"},
		{RedisOptions{URLs: urls{"redis://a/s3cret"}}, "database that is no number"},
		{RedisOptions{URLs: urls{"redis://a/-1"}}, "database that is no number"},
		{RedisOptions{URLs: urls{"unix://"}}, "no socket"},
		{RedisOptions{URLs: urls{"redis://a?db=1&db=2"}}, "db twice"},
		{RedisOptions{URLs: urls{"redis://a?pool_size=none"}}, "pool_size"},
		{RedisOptions{URLs: urls{"redis://a?ca=x"}}, "rediss://"},
		{RedisOptions{URLs: urls{"rediss://a?ca=/nowhere/ca.pem"}}, "/nowhere/ca.pem"},
		{RedisOptions{URLs: urls{"rediss://a?ca=" + ca}}, "has no certificates"},
		{RedisOptions{URLs: urls{"redis://:s3cret@a", "redis://:s3cret2@b"}}, "differ in their credentials"},
		{RedisOptions{URLs: urls{"redis://a", "rediss://b"}}, "differ in their scheme"},
		{RedisOptions{URLs: urls{"redis://a/1", "redis://b/1"}}, "no database but 0"},
		{RedisOptions{URLs: urls{"unix:///a", "unix:///b"}}, "not reached by unix"},
		{RedisOptions{URLs: urls{"unix:///a"}, SentinelMaster: "m"}, "not reached by unix"},
		{RedisOptions{URLs: urls{"redis://a?sentinel_password=s3cret"}}, "name of their master is missing"},
	} {
		r, err := OpenRedis(c.options)
		if err == nil {
			must(t, r.Close())
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %q", c.options.URLs, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error shows a password: %v", c.options.URLs, err)
		}
	}
}

func TestRedisTellsOfAServerThatLosesThings(t *testing.T) {
	for _, test := range []struct {
		settings []string
		want     []string // what is said, and in this order
	}{
		{[]string{"--maxmemory-policy", "noeviction", "--appendonly", "yes"}, nil},
		{[]string{"--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"}, []string{"maxmemory-policy is allkeys-lru"}},
		{[]string{"--maxmemory-policy", "volatile-ttl", "--appendonly", "no"}, []string{"maxmemory-policy is volatile-ttl", "appendonly is off"}},
	} {
		var log bytes.Buffer
		s := storetest.StartRedis(t, test.settings...)
		r := openRedis(t, RedisOptions{URLs: []string{s.URL()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, r.Start(bg))
		faults := get[[]Fault](t)(r.Faults(bg))
		if len(faults) != len(test.want) {
			t.Fatalf("%q: got %q", test.settings, faults)
		}
		for i, f := range faults {
			if !strings.Contains(f.What, test.want[i]) || f.Advice == "" || !strings.Contains(log.String(), test.want[i]) {
				t.Errorf("%q: got %q and logged %q", test.settings, f, log.String())
			}
		}
	}
}

func TestRedisNeedNotBeThereAtStart(t *testing.T) {
	s := storetest.NewRedis(t, 0)
	r := openServer(t, s)
	if err := r.Start(bg); err == nil {
		t.Error("Start found a server")
	}
	must(t, s.Start())
	eventually(t, "an answer", func() bool {
		return r.Sessions().Create(bg, t0, session("a", 1, 1, flows.Authorized)) == nil
	})
	must(t, r.Start(bg))
	must(t, r.Start(bg))
}

func TestRedisRefusesCallsOnceClosed(t *testing.T) {
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	must(t, r.Close())
	must(t, r.Close())
	for method, err := range callAllSessions(bg, r.Sessions(), session("a", 1, 1, flows.CheckOTP)) {
		if method != "Sweep" {
			wantErr(t, method, err, errRedisClosed)
		}
	}
	wantErr(t, "Start", r.Start(bg), errRedisClosed)
}

func TestRedisOfAClusterIsNotTakenForOne(t *testing.T) {
	c := storetest.SharedCluster(t)
	err := openServer(t, c[0]).Start(bg)
	if err == nil || !strings.Contains(err.Error(), "one of a Cluster") {
		t.Errorf("got error %v", err)
	}
}

// docs/many-nodes.md says which rights a user needs.
func TestRedisUserNeedsFewRights(t *testing.T) {
	one := storetest.NewRedis(t, storetest.FreePorts(t, 1)[0])
	must(t, one.Start())
	for name, servers := range map[string][]*storetest.Redis{
		"one server": {one},
		"cluster":    storetest.SharedCluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			var urls []string
			for _, s := range servers {
				s.Ask(t, "acl", "setuser", "mg", "on", ">pw", "~{mg:*", "&mnemogate:*", "+@all", "-@admin", "-@dangerous", "+info")
				t.Cleanup(func() { s.Ask(t, "acl", "deluser", "mg") })
				urls = append(urls, "redis://mg:pw@"+s.Addr())
			}
			r := openRedis(t, RedisOptions{URLs: urls})
			must(t, r.Start(bg))
			f := listenTo(t, r)
			for method, err := range callAllSessions(bg, r.Sessions(), session("a", 1, 1, flows.CheckOTP)) {
				if err != nil && !flows.IsAnswer(err) {
					t.Errorf("%s: %v", method, err)
				}
			}
			must(t, r.Sessions().Create(bg, t0, session("b@2", 2, 1, flows.Authorized)))
			must(t, r.Sessions().Delete(bg, hash("b@2")))
			eventually(t, "an ending", func() bool { return f.hears(hash("b@2")) })
			_, err := r.Clock(bg)
			must(t, err)
		})
	}
}

// Scripts

func TestRedisScriptsAreSentAgain(t *testing.T) {
	s := storetest.StartRedis(t)
	sessions := openServer(t, s).Sessions()
	must(t, sessions.Create(bg, t0, session("a", 1, 1, flows.Authorized)))
	s.Ask(t, "script", "flush")
	must(t, sessions.Create(bg, t0, session("b", 1, 1, flows.Authorized)))
	must(t, sessions.Delete(bg, hash("a")))
}

// Two deployments may have the same companies and accounts, and one Redis.
func TestRedisKeepsDeploymentsApart(t *testing.T) {
	s := storetest.StartRedis(t)
	a, b := openServer(t, s), openServer(t, s)
	a.SetDeployment("a")
	b.SetDeployment("b")
	feed := &recordedFeed{}
	ctx, cancel := context.WithCancel(bg)
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx, feed) })
	eventually(t, "trust", func() bool { return feed.trusted.Load() })

	sess := session("a", 1, 1, flows.Authorized)
	counter := flows.Counter{Key: "acme/k", Limit: 1, Window: time.Minute}
	must(t, a.Sessions().Create(bg, t0, sess, counter))
	wantGone(t, b.Sessions(), "a")
	must(t, b.Sessions().Create(bg, t0, sess, counter))
	must(t, a.Sessions().End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 2}))
	wantGone(t, a.Sessions(), "a")
	wantSession(t, b.Sessions(), sess)
	must(t, b.Sessions().Create(bg, t0, session("b", 1, 1, flows.Authorized)))
	must(t, b.Sessions().Delete(bg, hash("b")))
	eventually(t, "the deployment's own ending", func() bool { _, told := feed.ended.Load(hash("b")); return told })
	if feed.accounts.Load() > 0 {
		t.Error("another deployment's ending was heard")
	}
	cancel()
	running.Wait()
}

// Of links that are mailed at once, one is left.
func TestRedisRacingLinks(t *testing.T) {
	s := storetest.StartRedis(t)
	one, two := openServer(t, s).Sessions(), openServer(t, s).Sessions()
	errs := race(40, one, two, func(i int, n flows.Sessions) error {
		return n.Create(bg, t0, session(fmt.Sprint(i), 1, 1, flows.MailedLink))
	})
	wantWinners(t, errs, 40, is(nil))
	wantEqual(t, "links left", len(get[[]flows.Session](t)(one.List(bg, t0, "acme", 1))), 1)
}

// What a session leaves is cleared away: an index has what is there.
func TestRedisIndexHasOnlyWhatIsThere(t *testing.T) {
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	sessions := r.Sessions()
	must(t, sessions.Create(bg, t0, session("a", 1, 1, flows.CheckOTP)))
	must(t, sessions.Create(bg, t0, session("b", 1, 1, flows.CheckOTP)))
	must(t, sessions.Replace(bg, t0, hash("a"), flows.CheckOTP, session("c", 1, 1, flows.Authorized)))
	must(t, sessions.Delete(bg, hash("b")))
	index := r.accountKey(indexKind(flows.Authorized), "acme", 1)
	wantEqual(t, "index of the state before", s.Ask(t, "exists", r.accountKey(indexKind(flows.CheckOTP), "acme", 1)), "0")
	want := hash("c")
	wantEqual(t, "index", s.Ask(t, "zrange", index, 0, -1), fmt.Sprint([]string{string(want[:])}))

	// Long after c has expired, it goes when another comes.
	late := t0.Add(24 * time.Hour)
	next := session("d", 1, 1, flows.Authorized)
	next.Expires, next.Ends = late.Add(time.Hour), late.Add(time.Hour)
	must(t, sessions.Create(bg, late, next))
	wantEqual(t, "index", s.Ask(t, "zcard", index), "1")
	if left := s.Client(t).PTTL(bg, index).Val(); left > time.Hour+flows.Keep+time.Second {
		t.Errorf("the index is kept for %v", left)
	}
}

// A session of a usual size takes less than half a kilobyte, with all that is
// kept beside it.
func TestRedisBytesPerSession(t *testing.T) {
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	sessions := r.Sessions()
	used := func() int {
		var n int
		fmt.Sscan(infoField(s.Ask(t, "info", "memory"), "used_memory_dataset"), &n)
		return n
	}
	const n = 4096
	must(t, sessions.Create(bg, t0, session("warm", 1, 1, flows.Authorized)))
	before := used()
	for i := range n {
		sess := session(fmt.Sprintf("s@%d", i+2), int64(i+2), 1, flows.Authorized)
		sess.ID, sess.Mnemocode, sess.Accepted = fmt.Sprintf("%032x", i), fmt.Sprintf("profile-%08d", i), nil
		sess.UserAgent = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
		sess.Profile = ""
		must(t, sessions.Create(bg, t0, sess))
	}
	each := (used() - before) / n
	key := hash("s@7")
	t.Logf("%d bytes a session; MEMORY USAGE: session %s, index %s", each,
		s.Ask(t, "memory", "usage", r.sessionKey(key)), s.Ask(t, "memory", "usage", r.accountKey(indexKind(flows.Authorized), "acme", 7)))
	wantEqual(t, "encoding", s.Ask(t, "object", "encoding", r.sessionKey(key)), "listpack")
	if each > 512 {
		t.Errorf("%d bytes a session", each)
	}
}

// A server that has no memory left changes nothing by halves, and still ends
// sessions.
func TestRedisOutOfMemory(t *testing.T) {
	s := storetest.StartRedis(t)
	sessions := openServer(t, s).Sessions()
	a, link := session("a", 1, 1, flows.CheckOTP), session("link", 1, 1, flows.MailedLink)
	code := newCode("c")
	a.Code = &code
	must(t, sessions.Create(bg, t0, a))
	must(t, sessions.Create(bg, t0, link))
	s.Ask(t, "config", "set", "maxmemory", "1")
	_, err := sessions.OpenCode(bg, t0, a.Hash, a.State)
	for method, err := range map[string]error{
		"OpenCode":         err,
		"Create":           sessions.Create(bg, t0, session("b", 1, 1, flows.CheckOTP)),
		"Create of a link": sessions.Create(bg, t0, session("c", 1, 1, flows.MailedLink)),
		"Replace":          sessions.Replace(bg, t0, a.Hash, a.State, session("d", 1, 1, flows.Authorized)),
		"Charge":           sessions.Charge(bg, t0, flows.Counter{Key: "k", Limit: 1, Window: time.Minute}),
	} {
		if err == nil || flows.IsAnswer(err) {
			t.Errorf("%s: got %v, want an error that says nothing", method, err)
		}
	}
	wantSession(t, sessions, a)
	wantSession(t, sessions, link)
	wantGone(t, sessions, "b", "c", "d")
	must(t, sessions.Delete(bg, a.Hash))
	wantGone(t, sessions, "a")
}

// Clusters

// While the slot of a bucket moves from one node to another, its sessions stay
// within reach.
func TestRedisFollowsAMovingSlot(t *testing.T) {
	t.Parallel()
	c := storetest.NewCluster(t, 2)
	r := openRedis(t, RedisOptions{URLs: c.URLs()})
	sessions := r.Sessions()
	a := session("a", 1, 1, flows.CheckOTP)
	must(t, sessions.Create(bg, t0, a))
	key := r.sessionKey(a.Hash)
	var slot int
	fmt.Sscan(c[0].Ask(t, "cluster", "keyslot", key), &slot)
	from, to := c[0], c[1]
	if slot >= 16384/2 {
		from, to = to, from
	}
	fromID, toID := from.Ask(t, "cluster", "myid"), to.Ask(t, "cluster", "myid")
	to.Ask(t, "cluster", "setslot", slot, "importing", fromID)
	from.Ask(t, "cluster", "setslot", slot, "migrating", toID)
	for _, k := range from.Client(t).ClusterGetKeysInSlot(bg, slot, 100).Val() {
		from.Ask(t, "migrate", "127.0.0.1", to.Port, k, 0, 1000)
	}
	wantSession(t, sessions, a)
	number := get[int64](t)(sessions.OpenCode(bg, t0, a.Hash, flows.CheckOTP))
	for _, s := range []*storetest.Redis{to, from} {
		s.Ask(t, "cluster", "setslot", slot, "node", toID)
	}
	must(t, sessions.SetCode(bg, a.Hash, number, newCode("c")))
	must(t, sessions.Replace(bg, t0, a.Hash, a.State, session("b", 1, 1, flows.Authorized)))
}

// When a master of a Cluster is gone and its replica has taken over, all is as
// before.
func TestRedisClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := storetest.NewCluster(t, 3)
	replica := storetest.NewClusterNode(t)
	must(t, replica.Start())
	replica.Ask(t, "cluster", "meet", "127.0.0.1", c[0].Port)
	lost := c[1]
	lostID := lost.Ask(t, "cluster", "myid")
	eventually(t, "a node that is known", func() bool { return strings.Contains(replica.Ask(t, "cluster", "nodes"), lostID) })
	replica.Ask(t, "cluster", "replicate", lostID)
	eventually(t, "a replica that follows", func() bool {
		return infoField(replica.Ask(t, "info", "replication"), "master_link_status") == "up"
	})
	r := openRedis(t, RedisOptions{URLs: c.URLs()})
	heard := listenTo(t, r)
	lost.Kill()
	storetest.Eventually(t, 15*time.Second, "new master", func() bool {
		return infoField(c[0].Ask(t, "cluster", "info"), "cluster_state") == "ok" &&
			infoField(replica.Ask(t, "info", "replication"), "role") == "master"
	})
	began := time.Now()
	for account := int64(1); account <= 30; account++ { // of all nodes
		s := session(fmt.Sprintf("a@%d", account), account, 1, flows.Authorized)
		eventually(t, "an answer", func() bool { return r.Sessions().Create(bg, t0, s) == nil })
	}
	eventually(t, "trust", heard.trusted)
	t.Logf("as before %v after the replica was made master", time.Since(began))
	for account := int64(1); account <= 30; account++ {
		h := hash(fmt.Sprintf("a@%d", account))
		must(t, r.Sessions().Delete(bg, h))
		eventually(t, "an ending", func() bool { return heard.hears(h) })
	}
}

// TLS

func TestRedisTLS(t *testing.T) {
	port := storetest.FreePorts(t, 1)[0]
	s := storetest.NewRedis(t, 0, "--requirepass", "s3cret/?@", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "server.crt")
	ca, _ := s.Certificate(t, "server")
	must(t, s.Start())
	plain := storetest.StartRedis(t, "--port", strconv.Itoa(storetest.FreePorts(t, 1)[0]))
	plainPort := plain.Ask(t, "config", "get", "port")
	plainPort = strings.Trim(plainPort[strings.Index(plainPort, ":")+1:], "]")
	for url, want := range map[string]string{
		fmt.Sprintf("rediss://:s3cret%%2F%%3F%%40@127.0.0.1:%d?ca=%s", port, ca): "",
		fmt.Sprintf("rediss://:s3cret%%2F%%3F%%40@127.0.0.1:%d", port):           "certificate",
		fmt.Sprintf("rediss://:s3cret@127.0.0.1:%d?ca=%s", port, ca):             "WRONGPASS",
		fmt.Sprintf("rediss://127.0.0.1:%d?ca=%s", port, ca):                     "NOAUTH",
		fmt.Sprintf("redis://:s3cret%%2F%%3F%%40@127.0.0.1:%d", port):            "EOF",
		"rediss://:s3cret%2F%3F%40@127.0.0.1:" + plainPort:                       "deadline exceeded", // it waits for a line's end
	} {
		r := openRedis(t, RedisOptions{URLs: []string{url}})
		err := r.Start(bg)
		for began := time.Now(); errors.Is(err, context.DeadlineExceeded) && want != "deadline exceeded" && time.Since(began) < 20*time.Second; {
			err = r.Start(bg) // the machine may be busy
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

// Feed

// A tape records what a feed is told.
type tape struct {
	mu       sync.Mutex
	ended    map[flows.TokenHash]time.Time
	accounts []flows.Ending
	flushes  int
	until    time.Time
	flushed  bool // since it was last trusted
	unsound  atomic.Bool
}

func (f *tape) Ended(h flows.TokenHash) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = map[flows.TokenHash]time.Time{}
	}
	f.ended[h] = time.Now()
}

func (f *tape) EndedAll(e flows.Ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accounts = append(f.accounts, e)
}

func (f *tape) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushes++
	f.flushed = true
}

func (f *tape) Trust(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Before(until) {
		if !now.Before(f.until) && !f.flushed {
			f.unsound.Store(true)
		}
		f.flushed = false
	}
	f.until = until
}

func (f *tape) trusted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until)
}

func (f *tape) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flushes
}

func (f *tape) hears(h flows.TokenHash) bool { return !f.heardAt(h).IsZero() }

func (f *tape) heardAt(h flows.TokenHash) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended[h]
}

func (f *tape) hearsAccount(e flows.Ending) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, heard := range f.accounts {
		if heard == e {
			return true
		}
	}
	return false
}

// listenTo runs a feed until the test ends, and waits until it is trusted.
func listenTo(t *testing.T, r *Redis) *tape {
	t.Helper()
	f := &tape{}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, f)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if f.trusted() {
			t.Error("a feed that has ended is trusted")
		}
		if f.unsound.Load() {
			t.Error("the feed was trusted again without having been flushed")
		}
	})
	eventually(t, "trust", f.trusted)
	return f
}

func TestRedisTellsWhatEnds(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *Redis{
		"one server": func() func(t *testing.T) *Redis {
			var s *storetest.Redis
			return func(t *testing.T) *Redis {
				if s == nil {
					s = storetest.StartRedis(t)
				}
				return openServer(t, s)
			}
		}(),
		"cluster": func(t *testing.T) *Redis { return openRedis(t, RedisOptions{URLs: storetest.SharedCluster(t).URLs()}) },
		"sentinel": func(t *testing.T) *Redis {
			f := storetest.SharedFailover(t)
			return openRedis(t, RedisOptions{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := listenTo(t, open(t))
			other := open(t).Sessions()
			for run := range int64(3) { // on a machine that is held up there may be need
				if tellsWhatEnds(t, f, other, 100*run) {
					return
				}
				eventually(t, "trust", f.trusted)
			}
			t.Error("the feed was flushed, or is not trusted, without need")
		})
	}
}

// tellsWhatEnds ends sessions in every way, on accounts of many buckets, and
// reports whether the feed was trusted all the time.
func tellsWhatEnds(t *testing.T, f *tape, other flows.Sessions, first int64) bool {
	t.Helper()
	flushes := f.count()
	var slowest time.Duration
	hears := func(what string, hash flows.TokenHash, since time.Time) {
		t.Helper()
		eventually(t, what, func() bool { return f.hears(hash) })
		slowest = max(slowest, f.heardAt(hash).Sub(since))
	}
	for account := first; account < first+30; account++ {
		name := func(s string) string { return fmt.Sprintf("%s@%d", s, account+1) }
		for _, s := range []string{"a", "b", "c"} {
			must(t, other.Create(bg, t0, session(name(s), account+1, 1, flows.Authorized)))
		}
		now := time.Now()
		must(t, other.Delete(bg, hash(name("a"))))
		hears("a deleted session", hash(name("a")), now)
		now = time.Now()
		must(t, other.Replace(bg, t0, hash(name("b")), flows.Authorized, session(name("d"), account+1, 1, flows.Authorized)))
		hears("a replaced session", hash(name("b")), now)
		expired := session(name("e"), account+1, 1, flows.Authorized)
		must(t, other.Create(bg, t0, expired))
		now = time.Now()
		must(t, other.Expire(bg, expired.Expires, expired.Hash))
		hears("a session that was seen expired", expired.Hash, now)
		must(t, other.Create(bg, t0, session(name("l"), account+1, 1, flows.MailedLink)))
		now = time.Now()
		must(t, other.Create(bg, t0, session(name("m"), account+1, 1, flows.MailedLink)))
		hears("a link that another follows", hash(name("l")), now)
		e := flows.Ending{Company: "acme", Account: account + 1, Epoch: 2}
		must(t, other.End(bg, t0, e))
		eventually(t, "an account's ending", func() bool { return f.hearsAccount(e) })
	}
	e := flows.Ending{Company: "other", Epoch: first + 1}
	must(t, other.End(bg, t0, e))
	eventually(t, "a company's ending", func() bool { return f.hearsAccount(e) })
	t.Logf("heard after %v at most", slowest)
	for _, kept := range []string{"c", "d"} {
		if f.hears(hash(fmt.Sprintf("%s@%d", kept, first+1))) {
			t.Error("a session was told to have ended that was not")
		}
	}
	return f.count() == flushes && f.trusted()
}

func TestRedisMessages(t *testing.T) {
	for _, e := range []flows.Ending{{Company: "acme", Account: 7, Epoch: 3}, {Company: odd, Account: -1, Epoch: flows.AllEpochs}, {Company: odd, Epoch: 2}} {
		f := &tape{}
		tell(f, encodeEnding(e))
		if !f.hearsAccount(e) || f.flushes != 0 {
			t.Errorf("%v was not heard", e)
		}
	}
	for _, message := range []string{"", "x", "d", "dshort", "a", "a1", "a1 2", "ax 2 acme", "c", "c1 0", "z later versions' own"} {
		f := &tape{}
		tell(f, message)
		if f.flushes != 1 || len(f.ended)+len(f.accounts) != 0 {
			t.Errorf("%q did not flush", message)
		}
	}
}

// Faults

// redisFaults are what can happen to a server or the way to it, and be healed.
var redisFaults = []struct {
	name  string
	fault func(*storetest.Redis, *storetest.Proxy)
	heal  func(*storetest.Redis, *storetest.Proxy)
	// The server does nothing that is asked for meanwhile.
	down bool
}{
	{"refused", func(_ *storetest.Redis, p *storetest.Proxy) { p.Refuse() }, healProxy, true},
	{"black hole", func(_ *storetest.Redis, p *storetest.Proxy) { p.Blackhole() }, healProxy, true},
	{"forgotten by a firewall", func(_ *storetest.Redis, p *storetest.Proxy) { p.Forget() }, healProxy, false},
	{"slow", func(_ *storetest.Redis, p *storetest.Proxy) { p.Delay(400 * time.Millisecond) }, healProxy, true},
	{"frozen", func(s *storetest.Redis, _ *storetest.Proxy) { s.Freeze() }, func(s *storetest.Redis, _ *storetest.Proxy) { s.Thaw() }, true},
	{"killed", func(s *storetest.Redis, _ *storetest.Proxy) { s.Kill() }, func(s *storetest.Redis, _ *storetest.Proxy) { s.Start() }, true},
}

func healProxy(_ *storetest.Redis, p *storetest.Proxy) { p.Heal() }

// behindProxy starts a server with a proxy before it, and a store.
func redisBehindProxy(t *testing.T) (*storetest.Redis, *storetest.Proxy, *Redis) {
	s := storetest.StartRedis(t)
	p := storetest.NewProxy(t, "unix", s.Socket())
	return s, p, openRedis(t, RedisOptions{URLs: []string{"redis://" + p.Addr()}})
}

// Whatever happens, all of many callers are answered within a second, none of
// them wrongly, and soon after all is as before.
func TestRedisFaultsAreAnsweredInTime(t *testing.T) {
	t.Parallel()
	for _, c := range redisFaults {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p, r := redisBehindProxy(t)
			sessions := r.Sessions()
			kept := session("kept", 1, 1, flows.Authorized)
			must(t, sessions.Create(bg, t0, kept))
			callers(100, 100, sessions, sessions, func(_ int, n flows.Sessions) error { // many connections
				_, err := n.Get(bg, kept.Hash)
				return err
			})
			c.fault(s, p)
			for range 2 {
				stalled := storetest.WatchStalls()
				slowest, failed := answers(t, sessions, kept)
				stall := stalled()
				t.Logf("200 callers: %d failed, the slowest after %v", failed, slowest)
				if slowest > time.Second+200*time.Millisecond+stall { // what two busy CPUs add
					t.Errorf("an answer took %v, of which the machine is to blame for %v", slowest, stall)
				}
				if c.down && failed < 200 {
					t.Errorf("%d of 200 callers were answered by a server that does not answer", 200-failed)
				}
			}
			c.heal(s, p)
			healed, watch := time.Now(), storetest.StartWatch()
			eventually(t, "an answer", func() bool {
				return sessions.Create(bg, t0, session(fmt.Sprint(time.Now().UnixNano()), 1, 1, flows.Authorized)) == nil
			})
			for ok := 0; ok < 50; ok++ {
				if _, err := sessions.Get(bg, hash("nobody")); !errors.Is(err, flows.ErrNotFound) {
					ok = 0
				}
				if watch.Took() > 5*time.Second {
					t.Fatal("not as before within 5 s")
				}
			}
			t.Logf("as before after %v", time.Since(healed))
		})
	}
}

// answers lets 200 callers call, and returns how long the slowest took.
func answers(t *testing.T, sessions flows.Sessions, kept flows.Session) (slowest time.Duration, failed int) {
	var longest atomic.Int64
	errs := callers(200, 200, sessions, sessions, func(i int, n flows.Sessions) error {
		began := time.Now()
		defer func() {
			took := int64(time.Since(began))
			for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
			}
		}()
		switch i % 4 {
		case 0:
			return n.Charge(bg, t0, flows.Counter{Key: fmt.Sprintf("acme/%d", i), Limit: 1000, Window: time.Minute})
		case 1:
			return n.Touch(bg, t0, kept.Hash, t0.Add(time.Hour))
		case 2:
			_, err := n.SpendCode(bg, t0, kept.Company, kept.Hash, kept.State)
			return err
		}
		_, err := n.Get(bg, kept.Hash)
		return err
	})
	for i, err := range errs {
		if err != nil {
			failed++
		}
		if flows.IsAnswer(err) {
			t.Errorf("caller %d was told %v", i, err)
		}
	}
	return time.Duration(longest.Load()), failed
}

func TestRedisIsTrustedOnlyWhileItIsHeard(t *testing.T) {
	t.Parallel()
	for _, c := range redisFaults {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p, r := redisBehindProxy(t)
			f := listenTo(t, r)
			flushes := f.count()
			c.fault(s, p)
			began, watch := time.Now(), storetest.StartWatch()
			for f.trusted() {
				time.Sleep(time.Millisecond)
				if watch.Took() > 2*time.Second {
					t.Fatal("still trusted after 2 s")
				}
			}
			t.Logf("not trusted after %v", time.Since(began))
			time.Sleep(time.Second)
			if c.down && f.trusted() {
				t.Error("trusted in vain")
			}
			c.heal(s, p)
			healed := time.Now()
			eventually(t, "trust", f.trusted)
			t.Logf("trusted again after %v", time.Since(healed))
			if f.count() == flushes {
				t.Error("not flushed")
			}
			must(t, openServer(t, s).Sessions().Create(bg, t0, session("a", 1, 1, flows.Authorized)))
			must(t, openServer(t, s).Sessions().Delete(bg, hash("a")))
			eventually(t, "an ending", func() bool { return f.hears(hash("a")) })
		})
	}
}

// A subscription that is lost is noticed at once: what ends until there is
// another can't be heard.
func TestRedisSubscriptionIsLost(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	f := listenTo(t, openServer(t, s))
	for range 5 {
		flushes := f.count()
		s.Ask(t, "client", "kill", "type", "pubsub")
		eventually(t, "a flush", func() bool { return f.count() > flushes })
		eventually(t, "trust", f.trusted)
	}
}

// What is remembered of data that are gone is gone too.
func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	f := listenTo(t, openServer(t, s))
	for range 3 {
		flushes := f.count()
		time.Sleep(2 * redisBeat)
		wantEqual(t, "flushes", f.count(), flushes)
		s.Ask(t, "flushall")
		watch := storetest.StartWatch()
		eventually(t, "a flush", func() bool { return f.count() > flushes })
		if took := watch.Took(); took > time.Second {
			t.Errorf("flushed after %v", took)
		}
	}
}

// The loss of one node of a Cluster is noticed, and its return.
func TestRedisClusterNodeIsFrozen(t *testing.T) {
	t.Parallel()
	c := storetest.SharedCluster(t)
	f := listenTo(t, openRedis(t, RedisOptions{URLs: c.URLs()}))
	for _, s := range c {
		flushes := f.count()
		s.Freeze()
		watch := storetest.StartWatch()
		for f.trusted() && watch.Took() < 3*time.Second {
			time.Sleep(time.Millisecond)
		}
		took := watch.Took()
		time.Sleep(300 * time.Millisecond)
		s.Thaw()
		if took > 2*time.Second {
			t.Errorf("trusted for %v", took)
		}
		eventually(t, "trust", f.trusted)
		if f.count() == flushes {
			t.Error("not flushed")
		}
	}
}

// A connection that is cut between a change and its answer leaves the caller in
// doubt, never with a success or a refusal; and nothing is changed twice.
func TestRedisLostAnswersAreErrors(t *testing.T) {
	s, p, r := redisBehindProxy(t)
	direct := openServer(t, s).Sessions()
	a := session("a", 1, 1, flows.CheckOTP)
	code := newCode("c")
	a.Code = &code
	must(t, direct.Create(bg, t0, a))
	for range 2 { // so that each script is there
		callAllSessions(bg, direct, session("other@9", 9, 1, flows.CheckOTP))
	}
	s.Ask(t, "flushall")
	must(t, direct.Create(bg, t0, a))
	counter := flows.Counter{Key: "acme/k", Limit: 2, Window: time.Minute}

	p.CutAnswerTo("evalsha")
	sessions := r.Sessions()
	_, opened := sessions.OpenCode(bg, t0, hash("a"), flows.CheckOTP)
	for method, err := range map[string]error{
		"OpenCode": opened,
		"Charge":   sessions.Charge(bg, t0, counter),
		"Create":   sessions.Create(bg, t0, session("b", 1, 1, flows.Authorized)),
		"Touch":    sessions.Touch(bg, t0, hash("a"), t0.Add(20*time.Minute)),
		"End":      sessions.End(bg, t0, flows.Ending{Company: "acme", Account: 3, Epoch: 1}),
	} {
		if err == nil || flows.IsAnswer(err) {
			t.Errorf("%s: got %v, want an error that says nothing", method, err)
		}
	}
	p.Heal()
	must(t, direct.Charge(bg, t0, counter)) // of two, one was charged
	wantFull(t, "Charge", direct.Charge(bg, t0, counter), counter.Key, t0.Add(time.Minute))
	wantEqual(t, "the next number", get[int64](t)(direct.OpenCode(bg, t0, hash("a"), flows.CheckOTP)), 2)
	wantErr(t, "Create", direct.Create(bg, t0, session("b", 1, 1, flows.Authorized)), flows.ErrConflict)
}

// Replicas

func TestRedisWaitsForReplicas(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	without := openServer(t, s).Sessions()
	with := openRedis(t, RedisOptions{URLs: []string{s.URL()}, WaitReplicas: 1}).Sessions()
	code := newCode("c")
	for _, name := range []string{"spent", "opened", "replaced", "deleted", "touched", "deleted by ID"} {
		a := session(name, 1, 1, flows.CheckOTP)
		a.Code = &code
		must(t, without.Create(bg, t0, a))
	}
	counter := flows.Counter{Key: "acme/k", Limit: 1, Window: time.Minute}
	spent, spendErr := with.SpendCode(bg, t0, "acme", hash("spent"), flows.CheckOTP)
	if spent.Code != nil {
		t.Error("a code was given out that may come back")
	}
	_, openErr := with.OpenCode(bg, t0, hash("opened"), flows.CheckOTP)
	for method, err := range map[string]error{
		"SpendCode": spendErr,
		"OpenCode":  openErr,
		"SetCode":   with.SetCode(bg, hash("opened"), 1, code),
		"Create":    with.Create(bg, t0, session("created", 1, 1, flows.Authorized)),
		"Replace":   with.Replace(bg, t0, hash("replaced"), flows.CheckOTP, session("next", 1, 1, flows.Authorized)),
		"Delete":    with.Delete(bg, hash("deleted")),
		"Charge":    with.Charge(bg, t0, counter),
		"End":       with.End(bg, t0, flows.Ending{Company: "acme", Account: 2, Epoch: 1}),
		"End all":   with.End(bg, t0, flows.Ending{Company: "other", Epoch: 1}),
		"DeleteID":  second(with.DeleteID(bg, t0, "acme", 1, "id of deleted by ID")),
	} {
		if err == nil || flows.IsAnswer(err) {
			t.Errorf("%s: got %v, want an error that says nothing", method, err)
		}
	}
	// What changes nothing waits for nobody.
	wantErr(t, "Delete", with.Delete(bg, hash("nobody")), flows.ErrNotFound)
	wantFull(t, "Charge", with.Charge(bg, t0, counter), counter.Key, t0.Add(time.Minute))
	must(t, with.Touch(bg, t0, hash("touched"), t0.Add(time.Hour)))
	wantGone(t, with, "deleted")
}

// What was spent or ended does not come back when the master dies at once
// afterwards, and the feed hears the new one.
func TestRedisFailoverKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	r := openRedis(t, RedisOptions{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
	sessions := r.Sessions()
	heard := listenTo(t, r)
	counter := flows.Counter{Key: "acme/k", Limit: 1, Window: time.Hour}
	spent := session("spent", 1, 2, flows.CheckOTP)
	code := newCode("c")
	spent.Code = &code
	must(t, sessions.Create(bg, t0, spent))
	must(t, sessions.Create(bg, t0, session("deleted", 1, 2, flows.Authorized)))
	must(t, sessions.Create(bg, t0, session("replaced", 1, 2, flows.CheckOTP)))
	must(t, sessions.Create(bg, t0, session("ended", 1, 1, flows.Authorized)))

	get[flows.Session](t)(sessions.SpendCode(bg, t0, spent.Company, spent.Hash, spent.State))
	must(t, sessions.Delete(bg, hash("deleted")))
	must(t, sessions.Replace(bg, t0, hash("replaced"), flows.CheckOTP, session("next", 1, 2, flows.Authorized)))
	must(t, sessions.Charge(bg, t0, counter))
	must(t, sessions.End(bg, t0, flows.Ending{Company: "acme", Account: 1, Epoch: 2}))
	f.Master.Kill()
	killed, watch := time.Now(), storetest.StartWatch()

	spent.Code = nil
	for {
		_, err := sessions.Get(bg, hash("deleted"))
		if errors.Is(err, flows.ErrNotFound) {
			break
		}
		if err == nil {
			t.Fatal("a deleted session is back")
		}
		if watch.Took() > 15*time.Second {
			t.Fatal("no failover within 15 s")
		}
	}
	t.Logf("answered again after %v", time.Since(killed))
	wantSession(t, sessions, spent)
	wantGone(t, sessions, "deleted", "replaced", "ended")
	wantFull(t, "a look", sessions.Charge(bg, t0, flows.Look(counter)...), counter.Key, t0.Add(time.Hour))
	if heard.trusted() {
		t.Error("a master without replicas is trusted where one is waited for")
	}

	// The old master comes back as a replica, and all is as before.
	must(t, f.Master.Start())
	back := time.Now()
	storetest.Eventually(t, 20*time.Second, "trust", heard.trusted)
	t.Logf("trusted again %v after the replica's return", time.Since(back))
	eventually(t, "an ending", func() bool {
		// As often as it takes: the replica has but begun to follow.
		_ = sessions.Create(bg, t0, session("again", 1, 2, flows.Authorized))
		_ = sessions.Delete(bg, hash("again"))
		return heard.hears(hash("again"))
	})
}

// A planned failover leaves a subscription at the old master, which is deaf.
func TestRedisPlannedFailover(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	r := openRedis(t, RedisOptions{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName})
	heard := listenTo(t, r)
	flushes := heard.count()
	f.Sentinel.Ask(t, "sentinel", "failover", storetest.MasterName)
	began := time.Now()
	storetest.Eventually(t, 20*time.Second, "flush", func() bool { return heard.count() > flushes })
	storetest.Eventually(t, 20*time.Second, "trust", heard.trusted)
	t.Logf("heard again after %v", time.Since(began))
	s := session("a", 1, 1, flows.Authorized)
	eventually(t, "an answer", func() bool { return r.Sessions().Create(bg, t0, s) == nil })
	must(t, r.Sessions().Delete(bg, s.Hash))
	eventually(t, "an ending", func() bool { return heard.hears(s.Hash) })
}
