package simulation

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/fake"
	"github.com/mnemogate/mnemogate/store/memory"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var (
	seeds    = flag.Int("seeds", 200, "how many worlds TestSimulation runs")
	from     = flag.Uint64("from", 1, "the first of these seeds")
	oneSeed  = flag.Uint64("seed", 0, "the only seed to run; its story is printed")
	onePlan  = flag.String("plan", "", "a file with the only plan to run; its story is printed")
	oneFault = flag.String("planted", "", "the fault that is planted in the world of -seed or -plan")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(20) // a small heap stays in the caches of the CPU
	m.Run()
}

// The limits of the companies. They are low, so that races reach them.
const (
	smsPerAccount      = 3
	mailsPerAccount    = 3
	lockAfter          = 4
	failuresPerAddress = 6
	sessionsPerAccount = 2 // of beta
	eventTimeout       = time.Second
	recoveryLink       = "https://app.example.com/recover#"
)

var backupCodes = []string{"ABCDEFGHJK", "BCDEFGHJKL"}

// hashes are those of the secrets that persons have at first.
var hashes = sync.OnceValue(func() map[string]string {
	hashes := map[string]string{}
	for _, secret := range append([]string{firstPassword}, backupCodes...) {
		set, err := newHasher().HashSet(context.Background(), pw.Turn{}, cheap, []string{secret})
		if err != nil {
			panic(err)
		}
		hashes[secret] = set[0]
	}
	return hashes
})

const firstPassword = "correct horse battery"

var cheap = pw.Argon2id{MemoryKiB: 64, Iterations: 1, Parallelism: 1}

// direct is a link that only checks use.
var direct = fake.Direct

// newWorld returns a world before anything happens. It must be called in a bubble of synctest.
func newWorld(p plan, traced bool) *world {
	fault := mutants[p.planted]
	w := &world{seed: p.seed, planted: fault, began: time.Now(), channel: &channel{}}
	w.traced, w.names, w.ended = traced, map[string]int{}, map[string]*[]*revocation{"acme": {}, "beta": {}}
	w.replica.awaited, w.replica.hasty = p.awaited, fault.hasty
	w.standby.awaited, w.standby.hasty = p.awaited, fault.hastyStandby
	w.sessions.Feed = planted[record.Feed](w.channel, fault.channel)
	w.outside = outside{w: w, failing: map[string]bool{}}
	w.companies = map[string]*tenant.Company{}
	for code := range w.ended {
		policy := tenant.DefaultPolicy()
		policy.Password.Argon2id = cheap
		policy.Recovery.Methods, policy.Recovery.Link = []tenant.Method{tenant.ByMail}, recoveryLink+"{token}"
		l := &policy.Limits
		l.LockAfter, l.FailuresPerAddress = lockAfter, tenant.Rate{N: failuresPerAddress, Per: time.Hour}
		l.SMSPerAccount, l.MailsPerAccount = tenant.Rate{N: smsPerAccount, Per: time.Hour}, tenant.Rate{N: mailsPerAccount, Per: time.Hour}
		if code == "beta" {
			l.SessionsPerAccount = sessionsPerAccount
			policy.Session.Idle = tenant.Duration(12 * time.Second) // a touch every 1.2 s
		}
		c := &tenant.Company{Code: code, NoAPIKey: true, Passkeys: keychain{}, SMS: &w.outside, Mail: &w.outside, Texts: texts(), Policy: policy}
		if code == "acme" {
			c.Events = tenant.Events{Receiver: &w.outside, Timeout: eventTimeout, Retry: 500 * time.Millisecond}
		}
		w.companies[code] = c
	}
	accounts := w.accounts.Through(direct)
	if _, err := accounts.Secrets(context.Background()); err != nil { // makes the first one, as the first node did once
		panic(err)
	}
	for i, name := range []string{"alice", "bob", "carol", "victor", "alba", "brad"} {
		company := "acme"
		if i >= 4 {
			company = "beta"
		}
		known := []string{"alice", "bob", "carol", "victor", "alice", "bob"}[i] // the login ids are the same in both companies
		person := &person{
			name: name, company: company, mnemocode: company + "-" + name, email: known + "@example.com", phone: fmt.Sprintf("+3706000000%d", i),
			coded: known == "bob", passwords: []word{{firstPassword, w.began}}, used: map[string][2]time.Time{},
		}
		a := record.Account{
			Company: company, Mnemocode: person.mnemocode, Email: person.email, Phone: person.phone, Status: record.StatusActive,
			SecondFactor: person.coded, PasswordHash: hashes()[firstPassword],
		}
		if person.coded {
			a.NewBackupCodes = []string{hashes()[backupCodes[0]], hashes()[backupCodes[1]]}
		}
		if name == "carol" || person.coded {
			a.NewPasskeys = []record.Passkey{{Credential: []byte(name), PublicKey: []byte{1}}}
		}
		var err error
		if person.id, err = accounts.Create(context.Background(), time.Now(), a); err != nil {
			panic(err)
		}
		w.persons = append(w.persons, person)
	}
	for i := range p.nodes() {
		w.nodes = append(w.nodes, &node{world: w, name: fmt.Sprint("node", i+1)})
	}
	return w
}

var texts = sync.OnceValue(message.DefaultTexts)

const mended = "everything is mended"

// run acts a plan out, mends everything, and checks the end.
func (w *world) run(p plan) {
	for _, n := range w.nodes {
		n.redis.set(func(*network) {})
		n.postgres.set(func(*network) {})
		time.Sleep(between(w.draw(n.name, "starts"), time.Millisecond, 50*time.Millisecond))
		n.start()
	}
	var acting sync.WaitGroup
	for _, a := range p.actions {
		acting.Go(func() {
			time.Sleep(a.at)
			roomy()
			w.tell("> %s", a)
			verbs[a.verb](w, a.who, a.args)
		})
	}
	acting.Go(func() { time.Sleep(p.duration) })
	var acted atomic.Bool
	var browsing sync.WaitGroup
	for _, person := range w.persons {
		browsing.Go(func() {
			for !acted.Load() {
				w.browse(person)
			}
		})
	}
	acting.Wait()
	acted.Store(true)
	browsing.Wait()
	w.tell(mended)
	// See "What happens when" in docs/many-nodes.md. If the answer to a claim of events was lost,
	// no node has them until the claim ends.
	soon := max(5*time.Second, background.ClaimFor(eventTimeout)+2*time.Second)
	for _, n := range w.nodes {
		if n.running.Load() == nil {
			n.start()
		}
		soon = max(soon, 5*time.Second+time.Duration(n.skew.Swap(0))) // retries were put off by this clock
	}
	end := time.Now().Add(soon)
	for time.Sleep(2 * time.Second); time.Now().Before(end) && !w.isNormal(); {
		time.Sleep(100 * time.Millisecond)
	}
	w.checkEnd()
	for _, n := range w.nodes {
		n.crash()
	}
	time.Sleep(100 * time.Millisecond)
	for _, p := range w.processes { // now nothing waits that holds a mutex
		p.stop()
	}
	w.stopped.Wait()
	for _, p := range w.processes {
		w.memories.give(p.memory)
	}
	if w.scripts != nil {
		w.scripts.Close()
	}
	time.Sleep(2 * time.Second) // then the client library has noticed
}

// isNormal reports whether nothing is left to do in the background.
func (w *world) isNormal() bool {
	store := w.accounts.Through(direct)
	pending, _ := store.PendingRevocations(context.Background(), record.Revocation{}, 1)
	waiting, _ := store.Backlogs(context.Background())
	return len(pending)+len(waiting) == 0 && !slices.ContainsFunc(w.nodes, func(n *node) bool {
		p := n.running.Load()
		return !p.memory.HasLease() || p.service.Waiting() > 0
	})
}

var idleMemories = sync.Pool{New: func() any { return &memories{} }}

// simulate runs a plan in a world of its own.
func simulate(t *testing.T, p plan, traced, scripts bool) (failures []string, story string) {
	idle := idleMemories.Get().(*memories)
	defer idleMemories.Put(idle)
	for len(idle.free) < p.nodes()+p.crashes() {
		idle.free = append(idle.free, memory.New(nil, remembered))
	}
	if scripts { // empties the library's pool of timers, which belong to a bubble
		runtime.GC()
		runtime.GC()
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(p, traced)
		w.memories = idle
		if scripts {
			w.scripts = miniredis.NewMiniRedis()
			w.scripts.ClockTTL(true)
			w.replica.awaited = false // it has no WAIT
		}
		w.run(p)
		failures, story = w.failures, w.story()
	})
	return failures, story
}

// In no world is a promise broken. A failure is printed as its story; -seed repeats it.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *oneSeed != 0 || *onePlan != "" {
		p := newPlan(*oneSeed)
		if *onePlan != "" {
			p = readPlan(t, *onePlan)
		}
		p.planted = cmp.Or(p.planted, *oneFault)
		failures, story := simulate(t, p, true, false)
		t.Logf("%s\n%s", p, story)
		for _, f := range failures {
			t.Error(f)
		}
		return
	}
	cpus := runtime.GOMAXPROCS(0)
	for i := range cpus {
		t.Run(fmt.Sprint("cpu ", i+1), func(t *testing.T) {
			t.Parallel()
			share := uint64((*seeds + cpus - 1) / cpus)
			findNone(t, *from+uint64(i)*share, share, false)
		})
	}
}

// The same with the scripts of store/redis, in a Redis that is written in Go. Such a story does
// not repeat exactly, because the client library chooses by chance.
func TestSimulationOfScripts(t *testing.T) {
	storetest.NeedMiniredis(t)
	findNone(t, *from, uint64(max(1, *seeds/10)), true)
}

// findNone runs the plans of n seeds, in which no promise must be broken.
func findNone(t *testing.T, first, n uint64, scripts bool) {
	for seed := first; seed < first+n; seed++ {
		p := newPlan(seed)
		failures, story := simulate(t, p, scripts, scripts)
		if len(failures) == 0 {
			continue
		}
		if !t.Failed() && !scripts {
			p = p.shortest(func(p plan) bool { failures, _ := simulate(t, p, false, false); return len(failures) > 0 })
			_, story = simulate(t, p, true, false)
		}
		if !t.Failed() {
			t.Logf("%s\n%s", p, story)
		}
		t.Errorf("seed %d: %s", seed, strings.Join(failures, "; "))
	}
}

func readPlan(t *testing.T, file string) plan {
	t.Helper()
	text, err := os.ReadFile(file)
	var p plan
	if err == nil {
		p, err = parse(string(text))
	}
	if err != nil {
		t.Fatal(file, ": ", err)
	}
	return p
}

// The stories in testdata are as they were. With -update, they are written again: a change of
// what flows ask stores for changes them.
func TestStories(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) < 4 {
		t.Error("there are only", files)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, before, _ := strings.Cut(string(text), "\n\n")
		failures, story := simulate(t, readPlan(t, file), true, false)
		story, _, _ = strings.Cut(story, mended)
		story = story[:strings.LastIndex(story, "\n")+1]
		for _, f := range failures {
			story += "BROKEN: " + f + "\n"
		}
		if *storetest.Update {
			if err := os.WriteFile(file, []byte(script+"\n\n"+story), 0o644); err != nil {
				t.Error(err)
			}
		} else if story != before {
			t.Errorf("%s is another story: run go test ./flows/simulation -run Stories -update, and read what has changed\n%s", file, story)
		}
	}
}

// A seed always tells the same story.
func TestASeedRepeats(t *testing.T) {
	for seed := range uint64(5) {
		_, first := simulate(t, newPlan(seed), true, false)
		if _, again := simulate(t, newPlan(seed), true, false); again != first {
			before, after := strings.Split(first, "\n"), strings.Split(again, "\n")
			for i := range min(len(before), len(after)) {
				if before[i] != after[i] {
					t.Fatalf("seed %d: line %d is %q, then %q", seed, i, before[i], after[i])
				}
			}
			t.Fatalf("seed %d: %d lines, then %d", seed, len(before), len(after))
		}
	}
}
