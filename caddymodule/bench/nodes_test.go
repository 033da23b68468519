package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/memory"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var nodesFlag = flag.String("nodes", "1,10,50", "numbers of nodes, for Nodes")

// BenchmarkNodes measures how fast a logout reaches all nodes, on one Redis and on a
// Cluster of three masters. Logouts are sent at fixed times (open loop), each to
// another node. The time of a logout runs from when it was due until the last node
// has forgotten the session.
func BenchmarkNodes(b *testing.B) {
	b.Run("Redis", func(b *testing.B) { onServers(b, storetest.StartRedis(b)) })
	b.Run("Cluster", func(b *testing.B) { onServers(b, storetest.NewCluster(b, 3)...) })
}

func onServers(b *testing.B, servers ...*storetest.Redis) {
	for _, n := range numbers(b, *nodesFlag) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFleet(b, servers, n)
			for _, rate := range []int{100, 300, 1000} {
				b.Run(fmt.Sprint(rate), func(b *testing.B) { f.measure(b, rate) })
			}
		})
	}
}

// A fleet is a number of nodes on the same servers.
type fleet struct {
	servers []*storetest.Redis
	nodes   []*node
	logouts sync.Map // *logout by record.TokenHash
}

// A node is what an instance of Caddy has: the flows, their memory and a client of
// Redis. All nodes run in this process.
type node struct {
	*memory.Memory
	service *flows.Service
	fleet   *fleet
	number  int
}

// Ended implements record.Feed.
func (n *node) Ended(hash record.TokenHash) {
	n.Memory.Ended(hash)
	if l, ok := n.fleet.logouts.Load(hash); ok {
		l.(*logout).heardBy(n.number)
	}
}

// Flush implements record.Feed. The node may have missed something, so it forgets
// all.
func (n *node) Flush() {
	n.Memory.Flush()
	n.fleet.logouts.Range(func(_, l any) bool {
		l.(*logout).heardBy(n.number)
		return true
	})
}

// A logout counts the nodes that have received it.
type logout struct {
	token string
	due   time.Time
	mu    sync.Mutex
	heard map[int]bool  // by node
	took  time.Duration // until the last node received it
}

func (l *logout) heardBy(node int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heard[node] {
		l.heard[node] = true
		l.took = time.Since(l.due)
	}
}

func newFleet(b testing.TB, servers []*storetest.Redis, nodes int) *fleet {
	b.Helper()
	f := &fleet{servers: servers}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	for i := range nodes {
		server, err := redis.Open(redis.Options{URLs: urls})
		must(b, err)
		n := &node{Memory: memory.New(server.Sessions(), 100_000), fleet: f, number: i}
		n.service = &flows.Service{Manager: session.New(&session.Config{
			Accounts:  noAccounts{},
			Sessions:  n,
			Companies: map[string]*tenant.Company{"acme": {Code: "acme", NoAPIKey: true, Policy: tenant.DefaultPolicy()}},
			Log:       slog.New(slog.DiscardHandler),
			Now:       time.Now,
		})}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { server.Run(ctx, n) })
		b.Cleanup(func() {
			cancel()
			running.Wait()
			_ = server.Close()
		})
		f.nodes = append(f.nodes, n)
	}
	for _, n := range f.nodes {
		storetest.Eventually(b, time.Minute, "node that hears", n.HasLease)
	}
	return f
}

// noAccounts is an account store that has only a secret.
type noAccounts struct{ record.Accounts }

func (noAccounts) Secret(context.Context) ([]byte, error) { return make([]byte, 32), nil }

// A cost is what the servers and this process have used, in µs and bytes.
type cost struct{ redis, nodes, sent float64 }

func (f *fleet) cost(b testing.TB) (c cost) {
	b.Helper()
	for _, s := range f.servers {
		c.redis += 1e6 * (redisInfo(b, s, "cpu", "used_cpu_user") + redisInfo(b, s, "cpu", "used_cpu_sys"))
		c.sent += redisInfo(b, s, "stats", "total_net_output_bytes")
	}
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	c.nodes = float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3
	return c
}

// measure sends rate logouts per second.
func (f *fleet) measure(b *testing.B, rate int) {
	n := max(10, int(float64(*rounds)*round.Seconds()*float64(rate)))
	all := make([]*logout, n)
	fillWith(b, n, func(i int) error {
		token, session := newSession(int64(i+1), i+1)
		all[i] = &logout{token: token, heard: map[int]bool{}}
		f.logouts.Store(session.Hash, all[i])
		return f.nodes[0].Create(b.Context(), time.Now(), session)
	})
	defer f.logouts.Clear()
	// The cost of idle nodes is subtracted.
	quiet, pause := f.cost(b), time.Second/5
	time.Sleep(pause)
	before, began := f.cost(b), time.Now()
	var answered sync.WaitGroup
	for i, l := range all {
		l.due = began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(l.due))
		answered.Go(func() {
			_, err := f.nodes[i%len(f.nodes)].service.Serve(b.Context(), &flows.Request{
				Company: "acme", Route: flows.RouteByPath("auth/logout"), Client: session.Client{Address: "192.0.2.1"}, Authorization: []string{"Bearer " + l.token},
				Body: func() ([]byte, error) { return []byte("{}"), nil },
			})
			if err != nil {
				b.Log(err)
			}
		})
	}
	answered.Wait()
	took := f.heard(all)
	idle, after := time.Since(began).Seconds()/pause.Seconds(), f.cost(b)
	more := func(quiet, before, after float64) float64 { return (after - before - (before-quiet)*idle) / float64(n) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n-len(took)), "unheard")
	b.ReportMetric(milliseconds(quantile(took, .5)), "p50-ms")
	b.ReportMetric(milliseconds(quantile(took, .99)), "p99-ms")
	b.ReportMetric(more(quiet.redis, before.redis, after.redis), "Redis-µs/logout")
	b.ReportMetric(more(quiet.nodes, before.nodes, after.nodes)/float64(len(f.nodes)), "node-µs/logout")
	b.ReportMetric(more(quiet.sent, before.sent, after.sent)/float64(len(f.nodes)), "B/node/logout")
}

// heard waits up to a second until all nodes have received all logouts. It returns
// the times of the logouts that all nodes have received.
func (f *fleet) heard(all []*logout) (took []time.Duration) {
	for deadline := time.Now().Add(time.Second); len(took) < len(all) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		took = nil
		for _, l := range all {
			l.mu.Lock()
			if len(l.heard) == len(f.nodes) {
				took = append(took, l.took)
			}
			l.mu.Unlock()
		}
	}
	return took
}
