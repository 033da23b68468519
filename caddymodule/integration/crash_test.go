package integration

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var kills = flag.Int("kills", 4, "how often TestCrashesLoseNothing kills a process of each deployment; 200 for a thorough run")

// Processes are killed at random moments. Afterwards, what was acknowledged is still
// done, and what was not acknowledged is either done or not.
//
//	go test ./caddymodule/integration -run CrashesLoseNothing -v -kills 200 -timeout 2h
func TestCrashesLoseNothing(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name    string
		start   func(*testing.T, siteConfig) *site
		victims []string // one after another
	}{
		{"embedded", startSite, []string{"node"}},
		{"shared", startDurable, []string{"node", "redis", "postgres", "all"}},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := d.start(t, siteConfig{company: roomy + disclaimers + "session {\nidle 2m\n}\n"})
			c := newCrash(s)
			killed := map[string]int{}
			for round := range *kills {
				victim := d.victims[round%len(d.victims)]
				c.round = round
				c.loadUntilKilled(victim)
				killed[victim]++
				c.check(false)
				if t.Failed() {
					t.Fatalf("after kill %d, of %s", round+1, victim)
				}
				if round%10 == 9 {
					t.Logf("%d kills", round+1)
				}
			}
			c.check(true)
			t.Logf("killed: %v; acknowledged: %v; under way when killed: %v, of which were done: %v", killed, c.acknowledged, c.broken, c.done)
			for _, operation := range crashOperations {
				if *kills >= 50 && c.acknowledged[operation.name] == 0 {
					t.Errorf("%s was never acknowledged", operation.name)
				}
			}
		})
	}
}

// durableServers returns servers that may be killed and keep what they acknowledged.
func durableServers(t *testing.T) *servers {
	t.Helper()
	storetest.NeedLinux(t, "elsewhere the processes of PostgreSQL can't be killed at once")
	return &servers{
		t: t, postgres: storetest.OwnPostgres(t), schema: "public",
		redis: storetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always"),
	}
}

// startDurable starts two nodes on such servers.
func startDurable(t *testing.T, c siteConfig) *site {
	t.Helper()
	shared := durableServers(t)
	s := shared.start(c, shared.direct(), shared.direct())
	s.shared = shared
	return s
}

// A crash holds what clients know about a site that is killed again and again.
type crash struct {
	s       *site
	nodes   []*site
	workers []*crashWorker
	stop    atomic.Bool
	round   int

	mu                         sync.Mutex
	acknowledged, broken, done map[string]int // by operation
}

const crashWorkers = 8

func newCrash(s *site) *crash {
	c := &crash{s: s, nodes: s.all(), acknowledged: map[string]int{}, broken: map[string]int{}, done: map[string]int{}}
	for i := range crashWorkers {
		c.workers = append(c.workers, &crashWorker{crash: c, number: i})
	}
	return c
}

func (c *crash) count(in map[string]int, operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in[operation]++
}

// loadUntilKilled makes all workers work, kills the victim at a random moment, and
// starts it again. Workers that get answers continue for a while.
func (c *crash) loadUntilKilled(victim string) {
	c.stop.Store(false)
	var load sync.WaitGroup
	for _, w := range c.workers {
		load.Go(w.work)
	}
	time.Sleep(time.Duration(rand.IntN(800)) * time.Millisecond)
	restart := c.kill(victim)
	if victim != "all" {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	c.stop.Store(true)
	restart()
	load.Wait()
}

// kill kills processes and returns a function that starts them again.
func (c *crash) kill(victim string) (restart func()) {
	shared := c.s.shared
	startRedis := func() { must(c.s.t, shared.redis.Start()) }
	startPostgres := func() { must(c.s.t, shared.postgres.Start()) }
	switch victim {
	case "redis":
		shared.redis.Kill()
		return startRedis
	case "postgres":
		shared.postgres.Kill()
		return startPostgres
	case "all":
		for _, node := range c.nodes {
			node.stop(syscall.SIGKILL)
		}
		shared.redis.Kill()
		shared.postgres.Kill()
		return func() {
			for _, node := range c.nodes { // stop them before their servers
				node.clearLog()
				node.start()
			}
			startRedis()
			startPostgres()
		}
	default:
		node := c.nodes[rand.IntN(len(c.nodes))]
		node.stop(syscall.SIGKILL)
		return node.startAgain
	}
}

// check checks everything that this round changed or, if all is true, everything.
func (c *crash) check(all bool) {
	c.nothingPending()
	if c.s.shared != nil {
		time.Sleep(heardWithin) // each node must have received the pending revocations by then
	}
	var checks sync.WaitGroup
	for _, w := range c.workers {
		checks.Go(func() {
			for _, p := range w.people {
				if p.gone == 0 || all || p.doubt != "" {
					w.checkPerson(p)
				}
				w.checkDead(p, all)
				p.doubt = ""
			}
		})
	}
	checks.Wait()
	for range c.nodes {
		a := c.steady(func() (answer, bool) { // a busy machine may be too slow at first
			a, ok := c.operate("GET", "doctor", nil)
			return a, ok && !failsNow(a.Body)
		})
		if !a.fails(nil) || failsNow(a.Body) {
			c.s.t.Errorf("doctor: %d %s", a.Status, a.Body)
		}
	}
	c.nothingPending()
	if c.s.shared == nil {
		c.s.checkFile(c.s.dir)
	}
}

// failsNow reports whether a check of doctor failed that does not tell of the last minutes,
// in which the servers were down.
func failsNow(doctor []byte) bool {
	var answer struct {
		Findings []struct{ Result, Message string }
	}
	err := json.Unmarshal(doctor, &answer)
	for _, f := range answer.Findings {
		if f.Result == "failed" && !strings.HasPrefix(f.Message, "in the last ") {
			return true
		}
	}
	return err != nil
}
