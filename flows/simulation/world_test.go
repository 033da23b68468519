// Package simulation runs whole deployments in one process, each from a seed. It has only
// tests:
//
//	go test ./flows/simulation -run 'Simulation$' -seeds 10000     # many deployments
//	go test ./flows/simulation -run 'Simulation$' -seed 42 -v      # one, with what happened in it
//
// Read this file first. In it, a world is a deployment: nodes with the code that they have in
// production, a PostgreSQL and a Redis (see record and fake), and what is between them.
// plan_test.go makes a script from a seed: what clients, operators and failing machines do,
// and when. actors_test.go acts it out. history_test.go remembers what was answered, and says
// what must never happen. mutants_test.go plants faults, each of which must be found.
//
// Everything runs under the clock of testing/synctest. No two things happen at the same time,
// because each call to a store takes a time of its own. The seed, the caller and the moment
// decide it. So a seed always tells the same story. Tokens and keys are random all the
// same: they change nothing, and the story numbers them.
package simulation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/fake"
	"github.com/mnemogate/mnemogate/store/memory"
	"github.com/mnemogate/mnemogate/store/redis"
)

// A world is a deployment.
type world struct {
	seed     uint64
	planted  mutant
	memories *memories // for its processes
	began    time.Time

	accounts  fake.Accounts        // PostgreSQL
	sessions  fake.Sessions        // Redis
	channel   *channel             // Redis, too
	scripts   *miniredis.Miniredis // in place of both, if the scripts run; nil otherwise
	replica   replica              // of Redis
	standby   replica              // of PostgreSQL
	nodes     []*node
	processes []*process     // all that ever ran
	connected []net.Conn     // to Redis, the server's ends
	stopped   sync.WaitGroup // all that the processes do
	outside   outside        // gateways and the receiver of events

	companies map[string]*tenant.Company
	persons   []*person

	history
}

// draw returns random numbers for something that somebody does now.
func (w *world) draw(who string, what ...string) *rand.Rand {
	hash := uint64(14695981039346656037) // FNV-1a
	add := func(text string) {
		for i := range len(text) {
			hash = (hash ^ uint64(text[i])) * 1099511628211
		}
		hash *= 1099511628211
	}
	add(who)
	for _, text := range what {
		add(text)
	}
	return rand.New(rand.NewPCG(w.seed, hash^uint64(time.Since(w.began))))
}

// between draws a time. Its nanoseconds keep things apart that would happen at once.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// A caller is who makes a call: an actor or, in the background, a node.
type caller struct {
	name    string
	process *process // that works for the caller
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// A node is a machine. Its process can crash, and another one starts later.
type node struct {
	*world
	name            string
	redis, postgres network
	awake           atomic.Int64 // since began; until then nothing on the node goes on
	skew            atomic.Int64 // of its clock
	running         atomic.Pointer[process]
}

// A process is the program on a node.
type process struct {
	*node
	service *flows.Service
	memory  *memory.Memory
	feed    *redis.Store
	started time.Time
	dead    atomic.Bool // it has crashed: none of its calls succeeds
	stop    context.CancelFunc
	dialled atomic.Int64
}

func (n *node) now() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) }

// start starts a process on the node.
func (n *node) start() {
	p := &process{node: n, started: time.Now()}
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), callerKey{}, caller{n.name, p}))
	p.stop = stop
	var err error
	p.feed, err = redis.Open(redis.Options{URLs: []string{"redis://redis"}, Dial: p.dial})
	if err != nil {
		panic(err)
	}
	accounts := n.accounts.Through(p.link(&n.postgres))
	if n.planted.accounts != nil {
		accounts = n.planted.accounts(n.world, accounts)
	}
	sessions := p.feed.Sessions()
	if n.scripts == nil {
		sessions = n.sessions.Through(p.link(&n.redis))
	}
	if n.planted.sessions != nil {
		sessions = n.planted.sessions(n.world, sessions)
	}
	p.memory = n.memories.take()
	p.memory.Sessions = sessions
	sessions = p.memory
	if n.planted.memory != nil {
		sessions = n.planted.memory(p.memory)
	}
	manager := session.New(&session.Config{
		Accounts: accounts, Sessions: sessions, Companies: n.companies,
		Hasher: newHasher(), Log: slog.New(slog.DiscardHandler), Now: n.now, After: p.after,
	})
	p.service = &flows.Service{Manager: manager}
	p.stopped.Go(func() {
		p.feed.Run(ctx, planted[record.Feed](p.memory, n.planted.feed))
		_ = p.feed.Close()
	})
	p.stopped.Go(func() {
		p.service.Run(ctx)
		p.service.Close()
	})
	n.running.Store(p)
	n.world.mu.Lock()
	n.processes = append(n.processes, p)
	n.world.mu.Unlock()
	n.tell("%s starts", n.name)
}

// planted returns what a fault makes of v.
func planted[T any](v T, fault func(T) T) T {
	if fault == nil {
		return v
	}
	return fault(v)
}

// after stands for time.After where the code draws the time by chance.
func (p *process) after(time.Duration) <-chan time.Time {
	return time.After(between(p.draw(p.name, "after"), 100*time.Millisecond, 2*time.Second))
}

// Memories are taken again by later worlds, because it takes longer to make one than to
// run a node. They are made outside of bubbles, in which nothing of a former one can be used.
type memories struct {
	mu   sync.Mutex
	free []*memory.Memory
}

func (m *memories) take() *memory.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := len(m.free) - 1
	taken := m.free[last]
	m.free = m.free[:last]
	return taken
}

func (m *memories) give(back *memory.Memory) {
	back.Wait()
	back.Flush()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, back)
}

// remembered is how many sessions a node remembers.
const remembered = record.Buckets

// crash ends the process. None of its calls goes on, and nobody gets an answer.
func (n *node) crash() {
	if p := n.running.Swap(nil); p != nil {
		n.tell("%s crashes", n.name)
		p.dead.Store(true)
	}
}

// newHasher returns a Hasher whose hashes cost nothing.
func newHasher() *password.Hasher {
	h := password.NewHasher(4)
	h.Derive = func(_, secret string) ([]byte, error) {
		sum := sha256.Sum256([]byte(secret))
		return sum[:], nil
	}
	return h
}

// wait waits within a process. It returns later if the node stalls.
func (p *process) wait(d time.Duration) error {
	for !p.dead.Load() {
		time.Sleep(d)
		since := time.Since(p.began)
		stalls := time.Duration(p.awake.Load()) - since
		if stalls <= 0 && !p.dead.Load() {
			return nil
		}
		d = max(0, stalls) + since%time.Millisecond // not all at once
	}
	return errDead
}

var (
	errDead        = errors.New("the process is dead")
	errUnreachable = errors.New("the server can't be reached")
	errLost        = errors.New("the answer was lost")
	errReplica     = errors.New("too few replicas have the change")
)

// A network is the way from a node to a server.
type network struct {
	mu     sync.Mutex
	cut    bool          // connections break
	silent bool          // nothing arrives
	slow   time.Duration // how much longer everything takes, at most
	lossy  bool          // one answer in three is lost
	calmed time.Time     // since when it has worked as it should
}

// set changes the network.
func (n *network) set(change func(*network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
	if n.cut || n.silent || n.slow > 0 || n.lossy {
		n.calmed = time.Time{}
	} else if n.calmed.IsZero() {
		n.calmed = time.Now()
	}
}

func (n *network) get() (cut, silent bool, slow time.Duration, lossy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut, n.silent, n.slow, n.lossy
}

// calmSince returns whether the network has worked since then.
func (n *network) calmSince(t time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.calmed.IsZero() && !n.calmed.After(t)
}

// takes draws how long a message takes.
func (p *process) takes(r *rand.Rand, slow time.Duration) time.Duration {
	return between(r, 100*time.Microsecond, 4*time.Millisecond) + time.Duration(r.Float64()*float64(slow))
}

// callLimit is how long a call to a store takes at most.
const callLimit = 900 * time.Millisecond

// link returns the process's way to a store.
func (p *process) link(way *network) fake.Link {
	return func(ctx context.Context, what string, call func() error) error {
		if err := ctx.Err(); err != nil || what == "accounts.secrets" { // a mutex is held meanwhile, for which the bubble can't wait
			return cmp.Or(err, call())
		}
		limited, done := record.StoreContext(context.WithoutCancel(ctx), callLimit)
		defer done()
		end, _ := limited.Deadline()
		who := callerOf(ctx).name
		r := p.draw(who, p.name, what)
		cut, silent, slow, lossy := way.get()
		there, back, lost := p.takes(r, slow), p.takes(r, slow), lossy && r.IntN(3) == 0
		late := func(err error) error { return errors.Join(p.wait(time.Until(end)), err) }
		if silent || time.Until(end) < there {
			return late(errUnreachable)
		}
		if err := p.wait(there); err != nil {
			return err
		}
		if cut {
			return errUnreachable
		}
		if way == &p.postgres && !p.standby.has(what) { // PostgreSQL shows nobody the change, and does not answer
			return late(errReplica)
		}
		err := call()
		if err == nil && way == &p.redis && !p.replica.has(what) {
			err = errReplica
		}
		p.tellCall(who, p.name, what, err)
		if cut, silent, _, _ = way.get(); silent || lost || time.Until(end) < back {
			return late(errLost)
		}
		if err := p.wait(back); err != nil {
			return err
		}
		if cut {
			return errLost
		}
		return err
	}
}

// dial opens a connection to Redis, for the feed of revocations.
func (p *process) dial(context.Context, string, string) (net.Conn, error) {
	if err := p.wait(p.takes(p.draw(p.name, "dials"), 0)); err != nil {
		return nil, err
	}
	if cut, silent, _, _ := p.redis.get(); cut || silent {
		return nil, errUnreachable
	}
	client, near := net.Pipe()
	p.node.world.mu.Lock()
	p.connected = append(p.connected, near)
	p.node.world.mu.Unlock()
	var far io.ReadWriteCloser
	if p.scripts == nil {
		far = p.channel.connect()
	} else if far = dialScripts(p.scripts); far == nil {
		return nil, errUnreachable
	}
	number := fmt.Sprint(p.dialled.Add(1))
	go p.forward(near, far, "to Redis", number)
	go p.forward(far, near, "from Redis", number)
	return client, nil
}

// forward passes on what comes from one end of a connection, some time later.
func (p *process) forward(from, to io.ReadWriteCloser, what, number string) {
	defer from.Close()
	defer to.Close()
	for data := make([]byte, 1024); ; {
		n, err := from.Read(data)
		if err != nil {
			return
		}
		for r := p.draw(p.name, what, number); ; {
			cut, silent, slow, lossy := p.redis.get()
			if silent {
				slow += 50 * time.Millisecond
			}
			if p.wait(p.takes(r, slow)) != nil || cut || lossy && p.scripts != nil && what == "from Redis" && r.IntN(3) == 0 {
				return
			}
			if !silent { // otherwise the bytes come later, as with TCP
				break
			}
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}

// A replica is that of a store. While it lags, a failover loses what the master does.
type replica struct {
	mu      sync.Mutex
	awaited bool // wait_replicas or synchronous_standby_names is set
	hasty   bool // and does not wait: a planted fault
	lag     bool
	since   time.Time
	lost    [][2]time.Time // when the master did what failovers have lost
}

var reads = []string{
	"sessions.get", "sessions.list", "sessions.touch", "sessions.refund", "sessions.revoked",
	"accounts.by_login_id", "accounts.by_id", "accounts.by_mnemocode", "accounts.passkey", "accounts.passkeys", "accounts.backup_codes",
	"accounts.failure_counts", "accounts.pending_revocations", "accounts.due", "accounts.backlog",
}

// has reports whether a call may be acknowledged.
func (r *replica) has(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lag || !r.awaited || r.hasty || slices.Contains(reads, what)
}

// failOver promotes a replica that has nothing of what was done in the time before.
func (w *world) failOver(server, lag string) {
	r, snapshot := &w.replica, w.sessions.Snapshot
	switch {
	case server == "postgres":
		r, snapshot = &w.standby, w.accounts.Snapshot
	case w.scripts != nil:
		snapshot = w.snapshotScripts
	}
	r.mu.Lock()
	if r.lag {
		r.mu.Unlock()
		return
	}
	r.lag, r.since = true, time.Now()
	r.mu.Unlock()
	w.tell("the replica of %s gets nothing more", server)
	restore := snapshot()
	w.lasts(server, lag)
	restore()
	w.mu.Lock()
	if server == "redis" {
		w.failovers = append(w.failovers, time.Now())
		for _, c := range w.connected {
			c.Close()
		}
		w.connected = nil
	}
	w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag = false
	if !r.awaited {
		r.lost = append(r.lost, [2]time.Time{r.since, time.Now()})
	}
	w.tell("the replica of %s is the master", server)
}

// snapshotScripts returns a function that brings Redis back to the present state.
func (w *world) snapshotScripts() (restore func()) {
	w.scripts.DB(1).FlushDB()
	for _, key := range w.scripts.Keys() {
		if err := w.scripts.Copy(0, key, 1, key); err != nil {
			panic(err)
		}
	}
	return func() { w.scripts.SwapDB(0, 1) }
}

// mayHaveLost reports whether a failover may have lost what was done in this time.
func (r *replica) mayHaveLost(from, to time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.lost, func(l [2]time.Time) bool { return !from.After(l[1]) && !to.Before(l[0]) }) ||
		r.lag && !r.awaited && !to.Before(r.since)
}

// forgetful reports whether the store has lost something, or is about to.
func (r *replica) forgetful() bool { return r.mayHaveLost(time.Time{}, time.Now()) }
