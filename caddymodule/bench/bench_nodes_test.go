package bench

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var benchNodes = flag.String("nodes", "1,10,50", "the numbers of nodes that BenchmarkNodes is made with")

// Many nodes on one Redis, and on a Cluster of three. A node is what an instance
// of Caddy has: the flows, their memory and a client of Redis; all are in this
// process.
//
//	go test ./caddymodule/bench -run '^$' -bench Nodes -benchtime 1x -timeout 0
//
// Logouts are sent at their times (open loop), each at another node; one is heard
// when the memory of the last node has forgotten the session, and the time counts
// from when the logout was due.
func BenchmarkNodes(b *testing.B) {
	heard := &figuresTable{head: []string{"", "logouts/s", "failed", "answer p50", "p99", "heard by all p50", "p99", "longest", "not heard",
		"CPU of Redis a logout", "of a node", "bytes out of Redis a logout and node", "messages"}}
	joined := &figuresTable{head: []string{"", "sessions", "requests/s", "reads of Redis a session and node", "request p50", "p99", "failed"}}
	defer joined.print()
	defer heard.print()
	for _, on := range []struct {
		name    string
		servers func(testing.TB) []*storetest.Redis
	}{
		{"Redis", func(b testing.TB) []*storetest.Redis { return []*storetest.Redis{storetest.StartRedis(b)} }},
		{"Cluster", func(b testing.TB) []*storetest.Redis { return storetest.NewCluster(b, 3) }},
	} {
		b.Run(on.name, func(b *testing.B) {
			servers := on.servers(b)
			for _, n := range countsOf(b, "nodes", *benchNodes) {
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					f := newFleet(b, servers, n)
					name := fmt.Sprintf("%s, %d", on.name, n)
					for _, rate := range []int{100, 300, 1000} {
						f.logouts(b, heard, name, rate)
					}
					f.join(b, joined, name+", one more joins")
					f.forget(b, joined, name+", all forget")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// A fleet is nodes on the same servers.
type fleet struct {
	servers  []*storetest.Redis
	urls     []string
	nodes    []*node
	begun    int
	tokens   *seed
	waiting  sync.Map     // *hearing by token hash
	messages atomic.Int64 // that nodes have heard
}

// A node is an instance of the app, as far as Redis sees it.
type node struct {
	*store.Memory
	service *flows.Service
	fleet   *fleet
	number  int
}

// Ended implements record.Feed.
func (n *node) Ended(hash record.TokenHash) {
	n.Memory.Ended(hash)
	n.fleet.messages.Add(1)
	if h, ok := n.fleet.waiting.Load(hash); ok {
		h.(*hearing).by(n.number)
	}
}

// Flush implements record.Feed: a node that may have missed something forgets all.
func (n *node) Flush() {
	n.Memory.Flush()
	n.fleet.waiting.Range(func(_, h any) bool {
		h.(*hearing).by(n.number)
		return true
	})
}

// A hearing is a logout that nodes are to hear of.
type hearing struct {
	due   time.Time
	nodes []atomic.Bool // that have heard
	heard atomic.Int32  // of them
	took  atomic.Int64  // until all have
}

func (h *hearing) by(node int) {
	if node < len(h.nodes) && h.nodes[node].CompareAndSwap(false, true) && int(h.heard.Add(1)) == len(h.nodes) {
		h.took.Store(int64(time.Since(h.due)))
	}
}

func newFleet(b testing.TB, servers []*storetest.Redis, nodes int) *fleet {
	b.Helper()
	f := &fleet{servers: servers, tokens: &seed{accounts: 10_000}}
	for _, s := range servers {
		f.urls = append(f.urls, s.URL())
	}
	for range nodes {
		f.nodes = append(f.nodes, f.node(b))
	}
	for _, n := range f.nodes {
		n.await(b)
	}
	return f
}

// noAccounts has the secret that names counters, and nothing else.
type noAccounts struct{ record.Accounts }

func (noAccounts) Secret(context.Context) ([]byte, error) { return make([]byte, 32), nil }

// node starts one more.
func (f *fleet) node(b testing.TB) *node {
	b.Helper()
	server, err := store.OpenRedis(store.RedisOptions{URLs: f.urls})
	if err != nil {
		b.Fatal(err)
	}
	n := &node{Memory: store.NewMemory(server.Sessions(), 100_000), fleet: f, number: len(f.nodes)}
	n.service = &flows.Service{Manager: &session.Manager{
		Accounts:  noAccounts{},
		Sessions:  n,
		Companies: map[string]*tenant.Company{"acme": {Code: "acme", NoAPIKey: true, Policy: tenant.DefaultPolicy()}},
		Log:       slog.New(slog.DiscardHandler),
		Now:       time.Now,
	}}
	ctx, cancel := context.WithCancel(context.Background())
	var hearing sync.WaitGroup
	hearing.Go(func() { server.Run(ctx, n) })
	b.Cleanup(func() {
		cancel()
		hearing.Wait()
		_ = server.Close()
	})
	return n
}

// await waits until it hears what ends.
func (n *node) await(b testing.TB) {
	b.Helper()
	storetest.Eventually(b, time.Minute, "node that hears", n.Trusted)
}

// begin begins so many sessions and returns the numbers of their tokens.
func (f *fleet) begin(b testing.TB, n int) (from, to int) {
	b.Helper()
	from, to = f.begun, f.begun+n
	f.begun = to
	f.tokens.sessions = to
	var group errgroup.Group
	group.SetLimit(16)
	for _, d := range f.tokens.draw()[from:] {
		group.Go(func() error {
			var err error
			for range 10 { // on a busy machine Redis may not answer in time
				if err = f.nodes[0].Create(b.Context(), time.Now(), d.session(time.Now())); err == nil || err == record.ErrConflict {
					return nil
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return from, to
}

// A cost is what the servers and this process have used.
type cost struct {
	redis, nodes time.Duration // of CPU
	bytes        float64       // that the servers have sent
	reads        float64       // of sessions
}

func (f *fleet) cost(b testing.TB) (c cost) {
	b.Helper()
	for _, s := range f.servers {
		c.redis += time.Duration(1e9 * (redisInfo(b, s, "cpu", "used_cpu_user") + redisInfo(b, s, "cpu", "used_cpu_sys")))
		c.bytes += redisInfo(b, s, "stats", "total_net_output_bytes")
		for line := range strings.Lines(s.Ask(b, "info", "commandstats")) {
			if rest, ok := strings.CutPrefix(line, "cmdstat_hgetall:calls="); ok {
				calls, _, _ := strings.Cut(rest, ",")
				n, _ := strconv.ParseFloat(calls, 64)
				c.reads += n
			}
		}
	}
	c.nodes = cpuTime(os.Getpid())
	return c
}

// openLoop calls f for each number at its time, and returns how long each took
// from when it was due, and how many failed.
func openLoop(from, to, rate int, f func(i int, due time.Time) error) (took *times, failed int) {
	took = &times{}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	for i := from; i < to; i++ {
		due := start.Add(time.Duration(i-from) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		all.Go(func() {
			err := f(i, due)
			d := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				return
			}
			took.add(d)
		})
	}
	all.Wait()
	return took, failed
}

func (f *fleet) hashOf(i int) record.TokenHash {
	return record.TokenHash(sha256.Sum256([]byte(f.tokens.token(i))))
}

func (n *node) logout(ctx context.Context, token string) error {
	_, err := n.service.Serve(ctx, &flows.Request{
		Company: "acme", Route: flows.RouteByPath("auth/logout"), Address: "192.0.2.1", Authorization: []string{"Bearer " + token},
		Body: func() ([]byte, error) { return []byte("{}"), nil },
	})
	return err
}

// logouts has so many a second.
func (f *fleet) logouts(b testing.TB, t *figuresTable, name string, rate int) {
	b.Helper()
	each := max(10, int(benchRound.Seconds()*float64(rate)))
	from, to := f.begin(b, *benchRounds*each)
	quiet, pause := f.cost(b), max(time.Second, *benchRound)/5
	time.Sleep(pause)
	before, messages, began := f.cost(b), f.messages.Load(), time.Now()
	var answers, heard []*times
	failed, unheard := 0, 0
	for ; from < to; from += each {
		answered, heardOf, n, missed := f.round(b, from, from+each, rate)
		answers, heard = append(answers, answered), append(heard, heardOf)
		failed += n
		unheard += missed
	}
	took, after := time.Since(began), f.cost(b)
	n, nodes := float64(*benchRounds*each), float64(len(f.nodes))
	more := func(quiet, before, after float64) float64 { // than nodes cost that hear of nothing
		return (after - before - (before-quiet)*took.Seconds()/pause.Seconds()) / n
	}
	p := func(rounds []*times, q float64) time.Duration {
		return medianOf(rounds, func(t *times) time.Duration { return t.quantile(q) })
	}
	t.add(name, rate, failed, p(answers, .5), p(answers, .99), p(heard, .5), p(heard, .99), p(heard, 1), unheard,
		fmt.Sprintf("%.0f µs", more(float64(quiet.redis), float64(before.redis), float64(after.redis))/1e3),
		fmt.Sprintf("%.1f µs", more(float64(quiet.nodes), float64(before.nodes), float64(after.nodes))/1e3/nodes),
		more(quiet.bytes, before.bytes, after.bytes)/nodes, float64(f.messages.Load()-messages)/n/nodes)
}

// round logs sessions out, and returns how long the answers took and until all
// nodes had heard, of how many the answer was an error, and of how many not all
// nodes have heard in a second.
func (f *fleet) round(b testing.TB, from, to, rate int) (answered, heard *times, failed, unheard int) {
	b.Helper()
	hearings := make([]*hearing, to-from)
	answered, failed = openLoop(from, to, rate, func(i int, due time.Time) error {
		h := &hearing{due: due, nodes: make([]atomic.Bool, len(f.nodes))}
		hearings[i-from] = h
		f.waiting.Store(f.hashOf(i), h)
		return f.nodes[i%len(f.nodes)].logout(b.Context(), f.tokens.token(i))
	})
	for deadline := time.Now().Add(time.Second); f.unheard(hearings) > failed && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	f.waiting.Clear()
	heard = &times{}
	for _, h := range hearings {
		if d := h.took.Load(); d != 0 {
			heard.add(time.Duration(d))
		}
	}
	return answered, heard, failed, f.unheard(hearings)
}

func (f *fleet) unheard(hearings []*hearing) (n int) {
	for _, h := range hearings {
		if h.took.Load() == 0 {
			n++
		}
	}
	return n
}

func (n *node) authorize(ctx context.Context, token string) error {
	_, err := n.service.Authorize(ctx, session.Demand{Company: "acme"}, []string{"Bearer " + token})
	return err
}

// join has a node with an empty memory asked for all sessions by 32 clients in
// the same order, while others are ended.
func (f *fleet) join(b testing.TB, t *figuresTable, name string) {
	b.Helper()
	from, to := f.begin(b, fewerSessions(b, 20_000))
	endFrom, endTo := f.begin(b, fewerSessions(b, 500))
	n := f.node(b)
	n.await(b)
	before := f.cost(b)
	var ending, clients sync.WaitGroup
	ending.Go(func() {
		openLoop(endFrom, endTo, 100, func(i int, _ time.Time) error {
			return f.nodes[i%len(f.nodes)].logout(b.Context(), f.tokens.token(i))
		})
	})
	began := time.Now()
	var mu sync.Mutex
	var took times
	failed := 0
	for range 32 {
		clients.Go(func() {
			for i := from; i < to; i++ {
				asked := time.Now()
				err := n.authorize(b.Context(), f.tokens.token(i))
				d := time.Since(asked)
				mu.Lock()
				took.add(d)
				if err != nil {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	elapsed := time.Since(began)
	reads := f.cost(b).reads - before.reads
	ending.Wait()
	t.add(name, to-from, float64(32*(to-from))/elapsed.Seconds(), reads/float64(to-from), took.quantile(.5), took.quantile(.99), failed)
}

// forget has all nodes forget what they remember at once, as when Redis was away,
// and asks any of them for any session.
func (f *fleet) forget(b testing.TB, t *figuresTable, name string) {
	b.Helper()
	const rate = 2000
	from, to := f.begin(b, fewerSessions(b, 500))
	before := f.cost(b)
	for _, n := range f.nodes {
		n.Flush()
	}
	requests := max(100, int(float64(rate)*(time.Duration(*benchRounds)**benchRound).Seconds()))
	took, failed := openLoop(0, requests, rate, func(i int, _ time.Time) error {
		return f.nodes[rand.IntN(len(f.nodes))].authorize(b.Context(), f.tokens.token(from+rand.IntN(to-from)))
	})
	reads := f.cost(b).reads - before.reads
	t.add(name, to-from, rate, reads/float64(to-from)/float64(len(f.nodes)), took.quantile(.5), took.quantile(.99), failed)
}
