package bench

import (
	"encoding/base64"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The benchmarks of whole Caddy processes, beside each other in one run. Each
// runs once and takes its own time:
//
//	go test ./caddymodule/bench -run '^$' -bench Protected -benchtime 1x -timeout 0
//
// The sides take turns, round by round, and what is told of each is the median
// of its rounds. Tables for docs/performance.md follow each benchmark.
var (
	benchRounds   = flag.Int("rounds", 7, "how many rounds each side of a benchmark has")
	benchRound    = flag.Duration("round", 3*time.Second, "how long a round takes")
	benchSessions = flag.String("sessions", "100000,1000000", "the numbers of sessions that the benchmarks are made with; those with one number take the last")
)

func sessionCounts(b testing.TB) []int { return countsOf(b, "sessions", *benchSessions) }

// countsOf are the numbers that a flag lists.
func countsOf(b testing.TB, name, list string) []int {
	b.Helper()
	var counts []int
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			b.Fatalf("-%s %s: %q is no number of %[1]s", name, list, field)
		}
		counts = append(counts, n)
	}
	return counts
}

func mostSessions(b testing.TB) int {
	counts := sessionCounts(b)
	return counts[len(counts)-1]
}

// fewerSessions is at most so many.
func fewerSessions(b testing.TB, n int) int { return min(n, mostSessions(b)) }

func countName(n int) string {
	switch {
	case n >= 1e6 && n%1e6 == 0:
		return fmt.Sprint(n/1e6, "M")
	case n >= 1e3 && n%1e3 == 0:
		return fmt.Sprint(n/1e3, "k")
	}
	return fmt.Sprint(n)
}

// guarded is mnemogate with room for so many sessions in memory, whose limits
// are out of the benchmarks' way.
func guarded(stores string, cache int, db string) subjectConfig {
	return subjectConfig{guard: "mnemogate", db: db, global: fmt.Sprintf(`
	mnemogate {
		%s
		cache %d
		company acme {
			api_key %s
			captcha off
			limits {
				captcha_after 100
				lock_after 100
				disable_after 100
				failures_per_address 1000000/1m
				logins_per_address 1000000/1m
			}
		}
	}`, stores, max(1000, cache), testKey)}
}

// embedded has room for all sessions of a seed, whose buckets are not equal.
func embedded(s *seed) subjectConfig {
	return guarded("store sqlite DIR/mnemogate.db", s.sessions*5/4+10_000, s.file)
}

// Tokens

func always(token string) magazine {
	return func(int) func() (shot, bool) {
		return func() (shot, bool) { return shot{token: token}, true }
	}
}

// anyOf draws a session's token each time.
func anyOf(s *seed) magazine {
	return func(client int) func() (shot, bool) {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(client)))
		return func() (shot, bool) { return shot{token: s.token(random.IntN(s.sessions))}, true }
	}
}

// eachOf takes each session's token once, or so again and again.
func eachOf(s *seed, again bool) magazine {
	var taken atomic.Int64
	return func(int) func() (shot, bool) {
		return func() (shot, bool) {
			i := int(taken.Add(1)) - 1
			if i >= s.sessions && !again {
				return shot{}, false
			}
			return shot{token: s.token(i % s.sessions)}, true
		}
	}
}

// nobodys makes tokens up.
func nobodys(client int) func() (shot, bool) {
	var key [32]byte
	copy(key[:], fmt.Sprint(rand.Uint64(), client))
	source := rand.NewChaCha8(key)
	return func() (shot, bool) { return shot{token: drawToken(source)}, true }
}

// malformed is as long as a token is, and none by its form.
func malformed(int) func() (shot, bool) {
	token := "mgx_" + base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	return func() (shot, bool) { return shot{token: token}, true }
}

// logins send the login ids user1, user2 and so on in turn.
func logins(accounts int, password string) magazine {
	var turn atomic.Int64
	return func(int) func() (shot, bool) {
		return func() (shot, bool) {
			body := `{"login_id":"user` + strconv.Itoa(int(turn.Add(1))%accounts+1) + `"`
			if password != "" {
				body += `,"password":"` + password + `"`
			}
			return shot{body: body + "}"}, true
		}
	}
}

// Beside each other

// A side is one of those that take turns.
type side struct {
	name string
	*subject
	load *load
}

func (s *subject) side(name string, clients int, http2 bool, want int, shots magazine) *side {
	l := newLoad(template{addr: s.addr, method: "GET", path: "/items/1", http2: http2, want: want}, clients, shots)
	s.b.Cleanup(l.close)
	return &side{name, s, l}
}

// warm has a subject remember all sessions of a seed. On a machine that is too
// busy for the store to be heard of, some are not remembered at first.
func (s *subject) warm(seed *seed) {
	s.b.Helper()
	began := time.Now()
	for range 5 {
		l := newLoad(template{addr: s.warmUp, method: "GET", path: "/", want: http.StatusNoContent}, 64, eachOf(seed, false))
		l.run(time.Hour).must(s.b)
		l.close()
		if int(s.metric("mnemogate_memory_sessions")) == seed.sessions {
			s.b.Logf("%d sessions remembered in %v", seed.sessions, time.Since(began).Round(time.Millisecond))
			return
		}
	}
	s.b.Fatalf("%v sessions are remembered of %d", s.metric("mnemogate_memory_sessions"), seed.sessions)
}

// closed checks that a subject lets nothing through without a token.
func (s *subject) closed() {
	s.b.Helper()
	side := s.side("closed", 1, false, http.StatusUnauthorized, always(""))
	defer side.load.close()
	side.load.run(time.Millisecond).must(s.b)
}

// Figures are what a round tells of a side.
type figures struct {
	requests int
	busy     int           // in addition: answered service.unavailable
	rate     float64       // requests a second
	cpu      time.Duration // a request
	gc       time.Duration // of the whole round, in a median a request of all rounds
	objects  float64       // allocated a request
	p50, p99 time.Duration
}

// round runs the side's load once, the first tenth of it unmeasured.
func (s *side) round() figures {
	s.b.Helper()
	s.load.run(*benchRound / 10).must(s.b)
	before := s.usage(0)
	t := s.load.run(*benchRound)
	after := s.usage(0)
	t.must(s.b)
	n := time.Duration(t.requests)
	return figures{
		requests: t.requests, busy: t.busy(), rate: t.rate(), cpu: (after.CPU - before.CPU) / n, gc: after.GC - before.GC,
		objects: float64(after.Objects-before.Objects) / float64(n),
		p50:     t.quantile(.5), p99: t.quantile(.99),
	}
}

// sideBySide returns the medians of each side.
func sideBySide(sides ...*side) []figures {
	all := make([][]figures, len(sides))
	for range *benchRounds {
		for i, s := range sides {
			all[i] = append(all[i], s.round())
		}
	}
	var medians []figures
	for _, rounds := range all {
		m := figures{
			rate:    medianOf(rounds, func(f figures) float64 { return f.rate }),
			cpu:     medianOf(rounds, func(f figures) time.Duration { return f.cpu }),
			objects: medianOf(rounds, func(f figures) float64 { return f.objects }),
			p50:     medianOf(rounds, func(f figures) time.Duration { return f.p50 }),
			p99:     medianOf(rounds, func(f figures) time.Duration { return f.p99 }),
		}
		for _, f := range rounds { // a large heap is not collected in each round
			m.requests += f.requests
			m.busy += f.busy
			m.gc += f.gc
		}
		m.gc /= time.Duration(m.requests)
		medians = append(medians, m)
	}
	return medians
}

func ratio[T ~int64 | ~float64](a, b T) float64 { return float64(a) / float64(b) }

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// comparison is the table of sides that are compared with bare Caddy.
func comparison() *figuresTable {
	return &figuresTable{head: []string{"", "requests/s", "of bare", "CPU a request", "of bare", "p50", "of bare", "p99", "of bare",
		"allocations a request", "CPU of GC a request"}}
}

// compare runs the sides, and reports each but the first relative to it.
func compare(b *testing.B, t *figuresTable, sides ...*side) []figures {
	b.Helper()
	for _, s := range sides {
		defer s.load.close()
	}
	got := sideBySide(sides...)
	bare := got[0]
	for i, s := range sides {
		f := got[i]
		b.ReportMetric(f.rate, s.name+"-req/s")
		if f.busy > 0 {
			b.ReportMetric(ratio(float64(f.busy), float64(f.busy+f.requests)), s.name+"-503-share")
		}
		if i > 0 {
			b.ReportMetric(ratio(f.rate, bare.rate), s.name+"-ratio")
			b.ReportMetric(ratio(f.cpu, bare.cpu), s.name+"-cpu-ratio")
			b.ReportMetric(ratio(f.p99, bare.p99), s.name+"-p99-ratio")
			b.ReportMetric(f.objects-bare.objects, s.name+"-more-allocs")
		}
		t.add(strings.TrimPrefix(b.Name(), "Benchmark")+" "+s.name, f.rate, ratio(f.rate, bare.rate),
			fmt.Sprintf("%.1f µs", micros(f.cpu)), ratio(f.cpu, bare.cpu), f.p50, ratio(f.p50, bare.p50), f.p99, ratio(f.p99, bare.p99),
			f.objects, fmt.Sprintf("%.2f µs", micros(f.gc)))
	}
	b.ReportMetric(0, "ns/op")
	return got
}

// asked reports the share of the requests that f makes for whose sessions the
// store was asked. It is 0 of remembered ones; but on a machine so busy that
// the store could not be heard in time, nothing is remembered for a while.
func (s *subject) asked(b *testing.B, f func()) {
	b.Helper()
	hits, misses := s.metric("mnemogate_memory_hits_total"), s.metric("mnemogate_memory_misses_total")
	f()
	hits, misses = s.metric("mnemogate_memory_hits_total")-hits, s.metric("mnemogate_memory_misses_total")-misses
	b.ReportMetric(misses/(hits+misses), "asked-store")
}

// quietly runs f and fails the benchmark if a request is logged each time.
func (s *subject) quietly(f func()) {
	s.b.Helper()
	before := s.log.Len()
	f()
	if grown := s.log.Len() - before; grown > 100<<10 {
		s.b.Errorf("the log has grown by %d bytes", grown)
	}
}

// The protected path with sessions that are remembered, against reverse_proxy
// alone with the same requests:
//
//	-bench 'Protected/1M/http1/32conns/random'
func BenchmarkProtected(b *testing.B) {
	upstream, t := startUpstream(b), comparison()
	defer t.print()
	for _, n := range sessionCounts(b) {
		b.Run(countName(n), func(b *testing.B) { protectedWith(b, t, upstream, n) })
	}
}

func protectedWith(b *testing.B, t *figuresTable, upstream string, sessions int) {
	seed := seeded(b, sessions, sessions)
	bare := startSubject(b, subjectConfig{}, upstream)
	ours := startSubject(b, embedded(seed), upstream)
	ours.closed()
	ours.warm(seed)
	for _, http2 := range []bool{false, true} {
		for _, conns := range []int{32, 256} {
			for _, tokens := range []struct {
				name  string
				shots magazine
			}{{"one", always(seed.token(0))}, {"random", anyOf(seed)}} {
				protocol := map[bool]string{false: "http1", true: "http2"}[http2]
				b.Run(fmt.Sprintf("%s/%dconns/%s", protocol, conns, tokens.name), func(b *testing.B) {
					ours.asked(b, func() {
						compare(b, t,
							bare.side("bare", conns, http2, http.StatusOK, tokens.shots),
							ours.side("mnemogate", conns, http2, http.StatusOK, tokens.shots))
					})
				})
			}
		}
	}
}

// Remembered sessions of which each has had no request for minutes, so that its
// next one prolongs it in the store.
func BenchmarkProlonged(b *testing.B) {
	upstream, t := startUpstream(b), comparison()
	defer t.print()
	for _, n := range sessionCounts(b) {
		b.Run(countName(n), func(b *testing.B) {
			seed := seeded(b, n, n)
			config := embedded(seed)
			policy := func(idle string) subjectConfig {
				c := config
				c.global = strings.Replace(c.global, "cache", "session {\nidle "+idle+"\n}\ncache", 1)
				return c
			}
			bare := startSubject(b, subjectConfig{}, upstream)
			ours := newSubject(b, policy("10m"), upstream)
			expireIn(b, ours.dir+"/mnemogate.db", 10*time.Minute)
			ours.start()
			ours.awaitLog("serving initial configuration")
			ours.warm(seed)                         // prolongs nothing
			ours.reload(policy("30m"), upstream, 0) // from now on each is worth it
			requests := func() float64 {
				return ours.metric("mnemogate_memory_hits_total") + ours.metric("mnemogate_memory_misses_total")
			}
			before := requests()
			compare(b, t,
				bare.side("bare", 32, false, http.StatusOK, eachOf(seed, true)),
				ours.side("mnemogate", 32, false, http.StatusOK, eachOf(seed, true)))
			touched := ours.metric(`mnemogate_store_seconds_count{method="touch",result="ok",store="sessions"}`)
			b.ReportMetric(touched/(requests()-before), "prolonged-share")
		})
	}
}

// What remembered sessions cost: memory, and the collector's time with few and
// with many of them.
func BenchmarkMemory(b *testing.B) {
	t := &figuresTable{head: []string{"sessions", "heap before", "heap with them", "bytes a session", "CPU of a collection", "time of a collection",
		"requests/s", "CPU of GC a request"}}
	defer t.print()
	b.Run(countName(mostSessions(b)), func(b *testing.B) { memoryWith(b, t) })
}

func memoryWith(b *testing.B, t *figuresTable) {
	upstream := startUpstream(b)
	few := seeded(b, fewerSessions(b, 1000), fewerSessions(b, 1000))
	many := seeded(b, mostSessions(b), mostSessions(b))
	const collections = 20
	var sides []*side
	var before, after, idle []usage
	for _, seed := range []*seed{few, many} {
		s := startSubject(b, embedded(seed), upstream)
		warmer := s.side("", 64, false, http.StatusOK, always(seed.token(0)))
		warmer.load.run(*benchRound).must(b) // what connections and pools cost is not the sessions'
		warmer.load.close()
		before = append(before, s.usage(3))
		s.warm(seed)
		s.admin.CloseIdleConnections()
		after = append(after, s.usage(3))
		idle = append(idle, s.usage(collections))
		sides = append(sides, s.side(countName(seed.sessions), 32, false, http.StatusOK, anyOf(seed)))
	}
	got := sideBySide(sides...)
	perCollection := func(i int) time.Duration { return (idle[i].GC - after[i].GC) / time.Duration(idle[i].GCs-after[i].GCs) }
	for i, seed := range []*seed{few, many} {
		bytes := float64(int64(after[i].Heap)-int64(before[i].Heap)) / float64(seed.sessions)
		t.add(seed.sessions, fmt.Sprintf("%.1f MB", float64(before[i].Heap)/1e6), fmt.Sprintf("%.1f MB", float64(after[i].Heap)/1e6), bytes,
			perCollection(i), idle[i].Collecting/collections, got[i].rate, fmt.Sprintf("%.2f µs", micros(got[i].gc)))
		if i == 1 {
			b.ReportMetric(bytes, "B/session")
		}
	}
	b.ReportMetric(ratio(perCollection(1), perCollection(0)), "collection-cpu-ratio")
	b.ReportMetric(ratio(idle[1].Collecting, idle[0].Collecting), "collection-time-ratio")
	b.ReportMetric(ratio(got[1].gc, got[0].gc), "gc-a-request-ratio")
	b.ReportMetric(0, "ns/op")
}

// Sessions that are not remembered: known ones on Redis, against a handler that
// asks Redis for each request, and tokens that are refused.
func BenchmarkUnknown(b *testing.B) {
	upstream, t := startUpstream(b), comparison()
	defer t.print()
	const clients = 32
	seed := seeded(b, fewerSessions(b, 1000), fewerSessions(b, 100_000))
	bare := startSubject(b, subjectConfig{}, upstream)
	shared := newSharedStores(b)
	seed.fill(b, shared.accounts, shared.sessions, shared.redis.Client(b))
	onRedis := startSubject(b, guarded(shared.config, 1000, ""), upstream)
	onSQLite := startSubject(b, embedded(seed), upstream)
	onSQLite.warm(seed)
	roundTrips := func(b *testing.B, s *side) {
		defer s.load.close()
		before := shared.commands(b)
		t := s.load.run(*benchRound)
		t.must(b)
		b.ReportMetric(float64(shared.commands(b)-before)/float64(t.requests), s.name+"-redis-commands")
	}
	b.Run("known/redis", func(b *testing.B) {
		trial := startSubject(b, subjectConfig{guard: "mnemogate_redis_get unix:" + shared.redis.Socket()}, upstream)
		trial.closed()
		onRedis.asked(b, func() {
			got := compare(b, t,
				bare.side("bare", clients, false, http.StatusOK, anyOf(seed)),
				trial.side("redis-get", clients, false, http.StatusOK, anyOf(seed)),
				onRedis.side("mnemogate", clients, false, http.StatusOK, anyOf(seed)))
			b.ReportMetric(ratio(got[2].rate, got[1].rate), "mnemogate-of-redis-get")
		})
		roundTrips(b, trial.side("redis-get", clients, false, http.StatusOK, anyOf(seed)))
		roundTrips(b, onRedis.side("mnemogate", clients, false, http.StatusOK, anyOf(seed)))
	})
	b.Run("known/embedded", func(b *testing.B) {
		small := startSubject(b, guarded("store sqlite DIR/mnemogate.db", 1000, seed.file), upstream)
		small.asked(b, func() {
			compare(b, t,
				bare.side("bare", clients, false, http.StatusOK, anyOf(seed)),
				small.side("mnemogate", clients, false, http.StatusOK, anyOf(seed)))
		})
	})
	refused := func(name string, s *subject, shots magazine) {
		b.Run(name, func(b *testing.B) {
			s.quietly(func() {
				compare(b, t,
					bare.side("bare", clients, false, http.StatusOK, shots),
					s.side("mnemogate", clients, false, http.StatusUnauthorized, shots))
			})
		})
	}
	refused("nobodys/redis", onRedis, nobodys)
	refused("nobodys/embedded", onSQLite, nobodys)
	refused("malformed", onSQLite, malformed)
	if got := int(onSQLite.metric("mnemogate_memory_sessions")); got != seed.sessions {
		b.Errorf("of %d sessions %d are still remembered", seed.sessions, got)
	}
}

// sharedStores are PostgreSQL and Redis, of a benchmark alone, opened beside the
// subject.
type sharedStores struct {
	redis    *storetest.Redis
	accounts *store.Postgres
	sessions *store.Redis
	config   string
}

func newSharedStores(b testing.TB) *sharedStores {
	b.Helper()
	postgres := storetest.SharedPostgres(b)
	dsn := postgres.DSN(postgres.NewSchema(b))
	s := &sharedStores{redis: storetest.StartRedis(b)}
	s.config = fmt.Sprintf("store postgres %q\nsessions redis %s", dsn, s.redis.URL())
	var err error
	if s.accounts, err = store.OpenPostgres(dsn, store.PostgresOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.accounts.Close() })
	if s.sessions, err = store.OpenRedis(store.RedisOptions{URLs: []string{s.redis.URL()}}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.sessions.Close() })
	startShared(b, s.accounts, s.sessions)
	return s
}

// loginSeed has the accounts that the logins take turns with.
func loginSeed(b testing.TB) *seed {
	return seeded(b, fewerSessions(b, 10_000), fewerSessions(b, 1000))
}

// commands is how many Redis has been sent.
func (s *sharedStores) commands(b testing.TB) int {
	b.Helper()
	for line := range strings.Lines(s.redis.Ask(b, "info", "stats")) {
		if value, ok := strings.CutPrefix(line, "total_commands_processed:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("Redis does not count")
	return 0
}

// login is a load of calls to an auth route.
func (s *subject) login(route string, clients, want int, shots magazine) *load {
	l := newLoad(template{addr: s.addr, method: "POST", path: "/acme/v2/auth/" + route, key: testKey, want: want}, clients, shots)
	s.b.Cleanup(l.close)
	return l
}

// A login storm beside the protected path, which has 1,000 requests a second,
// each at its time.
func BenchmarkStorm(b *testing.B) {
	const rate, conns = 1000, 32
	upstream := startUpstream(b)
	seed := loginSeed(b)
	t := &figuresTable{head: []string{"", "protected p50", "idle", "p99", "idle", "longest", "idle", "failed", "p99 of late clients", "idle",
		"logins/s", "503", "login p50", "login p99", "peak memory before", "after"}}
	defer t.print()
	for _, storm := range []struct {
		name     string
		clients  int
		password string
		status   int
	}{
		{"16clients/right", 16, testPassword, http.StatusOK},
		{"100clients/right", 100, testPassword, http.StatusOK},
		{"16clients/wrong", 16, "wrong " + testPassword, http.StatusUnauthorized},
		{"100clients/wrong", 100, "wrong " + testPassword, http.StatusUnauthorized},
	} {
		b.Run(storm.name, func(b *testing.B) {
			s := startSubject(b, embedded(seed), upstream)
			s.warm(seed)
			hammer := s.login("checkcredentials", storm.clients, storm.status, logins(seed.accounts, storm.password))
			protected := s.side("", conns, false, http.StatusOK, anyOf(seed)).load
			protected.runAt(rate, *benchRound/10).must(b)
			quietMemory := peakMemory(s.cmd.Process.Pid)
			var quiet, stormy []*tally
			var passwords tally
			for range *benchRounds {
				quiet = append(quiet, protected.runAt(rate, *benchRound))
				done := make(chan *tally)
				go func() { done <- hammer.run(*benchRound * 5 / 4) }()
				time.Sleep(*benchRound / 8) // the storm comes first
				stormy = append(stormy, protected.runAt(rate, *benchRound))
				of := <-done
				passwords.merge(of)
				passwords.elapsed += of.elapsed
			}
			failed := 0
			for i := range quiet {
				failed += stormy[i].failed()
				quiet[i].must(b)
			}
			passwords.must(b)
			share := busyShare(&passwords)
			late := func(rounds []*tally) time.Duration {
				return medianOf(rounds, func(t *tally) time.Duration { return t.late.quantile(.99) })
			}
			memory := peakMemory(s.cmd.Process.Pid)
			b.ReportMetric(p(quiet, .5).Seconds()*1e3, "idle-p50-ms")
			b.ReportMetric(p(quiet, .99).Seconds()*1e3, "idle-p99-ms")
			b.ReportMetric(p(stormy, .5).Seconds()*1e3, "p50-ms")
			b.ReportMetric(p(stormy, .99).Seconds()*1e3, "p99-ms")
			b.ReportMetric(float64(failed), "failed")
			b.ReportMetric(passwords.rate(), "logins/s")
			b.ReportMetric(share, "503-share")
			b.ReportMetric(float64(memory)/1e6, "peak-MB")
			b.ReportMetric(0, "ns/op")
			t.add(storm.name, p(stormy, .5), p(quiet, .5), p(stormy, .99), p(quiet, .99), p(stormy, 1), p(quiet, 1), failed,
				late(stormy), late(quiet), passwords.rate(), share, passwords.quantile(.5), passwords.quantile(.99),
				fmt.Sprintf("%.0f MB", float64(quietMemory)/1e6), fmt.Sprintf("%.0f MB", float64(memory)/1e6))
		})
	}
}

// Logins a second: checkcredentials, against what argon2id alone does in a
// process of its own, and login, which computes no hash.
func BenchmarkLogins(b *testing.B) {
	upstream := startUpstream(b)
	seed := loginSeed(b)
	t := &figuresTable{head: []string{"", "logins/s", "argon2id alone", "of it", "p50", "p99"}}
	defer t.print()
	for _, deployment := range []string{"embedded", "shared"} {
		b.Run(deployment, func(b *testing.B) {
			config := embedded(seed)
			if deployment == "shared" {
				shared := newSharedStores(b)
				seed.fill(b, shared.accounts, shared.sessions, shared.redis.Client(b))
				config = guarded(shared.config, 1000, "")
			}
			s := startSubject(b, config, upstream)
			b.Run("checkcredentials", func(b *testing.B) {
				argon2 := startHelper(b, "argon2")
				l := s.login("checkcredentials", 16, http.StatusOK, logins(seed.accounts, testPassword))
				l.run(*benchRound / 10).must(b)
				var ours []*tally
				var alone []float64
				for range *benchRounds {
					of, err := strconv.ParseFloat(argon2.ask(benchRound.String()), 64)
					if err != nil {
						b.Fatal(err)
					}
					alone = append(alone, of)
					ours = append(ours, l.run(*benchRound))
					ours[len(ours)-1].must(b)
				}
				rate := medianOf(ours, (*tally).rate)
				b.ReportMetric(rate, "logins/s")
				b.ReportMetric(medianOf(ours, busyShare), "503-share")
				b.ReportMetric(median(alone), "argon2id/s")
				b.ReportMetric(rate/median(alone), "ratio")
				b.ReportMetric(0, "ns/op")
				t.add("checkcredentials, "+deployment, rate, median(alone), rate/median(alone), p(ours, .5), p(ours, .99))
			})
			b.Run("login", func(b *testing.B) {
				l := s.login("login", 64, http.StatusOK, logins(seed.accounts, ""))
				var rounds []*tally
				for range *benchRounds {
					l.run(*benchRound / 10).must(b)
					rounds = append(rounds, l.run(*benchRound))
					rounds[len(rounds)-1].must(b)
				}
				rate := medianOf(rounds, (*tally).rate)
				b.ReportMetric(rate, "logins/s")
				b.ReportMetric(medianOf(rounds, busyShare), "503-share")
				b.ReportMetric(0, "ns/op")
				t.add("login, "+deployment, rate, "", "", p(rounds, .5), p(rounds, .99))
			})
		})
	}
}

func busyShare(t *tally) float64 { return ratio(float64(t.busy()), float64(t.busy()+t.requests)) }

// p is the median of a quantile.
func p(rounds []*tally, q float64) time.Duration {
	return medianOf(rounds, func(t *tally) time.Duration { return t.quantile(q) })
}

func medianOf[R any, T ~int64 | ~float64](rounds []R, of func(R) T) T {
	var values []T
	for _, r := range rounds {
		values = append(values, of(r))
	}
	return median(values)
}

// From the start of a process to its first answer out of the application, with
// as many accounts as sessions in the store.
func BenchmarkStart(b *testing.B) {
	t := &figuresTable{head: []string{"accounts and sessions", "bare", "mnemogate", "longest"}}
	defer t.print()
	b.Run(countName(mostSessions(b)), func(b *testing.B) { startWith(b, t) })
}

func startWith(b *testing.B, t *figuresTable) {
	upstream := startUpstream(b)
	seed := seeded(b, mostSessions(b), mostSessions(b))
	bare := newSubject(b, subjectConfig{}, upstream)
	ours := newSubject(b, embedded(seed), upstream)
	ours.firstAnswer(seed) // makes what only the first start ever makes
	var alone, guarded []time.Duration
	for range *benchRounds {
		alone = append(alone, bare.firstAnswer(seed))
		guarded = append(guarded, ours.firstAnswer(seed))
	}
	t.add(seed.sessions, median(alone), median(guarded), slices.Max(guarded))
	b.ReportMetric(median(alone).Seconds()*1e3, "bare-ms")
	b.ReportMetric(median(guarded).Seconds()*1e3, "mnemogate-ms")
	b.ReportMetric(0, "ns/op")
}

// firstAnswer starts the process, and returns how long it takes until the first
// answer out of the application, and ends it.
func (s *subject) firstAnswer(seed *seed) time.Duration {
	s.b.Helper()
	began := time.Now()
	s.start()
	defer s.kill()
	side := s.side("", 1, false, http.StatusOK, anyOf(seed))
	defer side.load.close()
	client := side.load.clients[0]
	for {
		shot, _ := client.next()
		status, err := client.shoot(shot)
		switch {
		case status == http.StatusOK:
			return time.Since(began)
		case err != nil || time.Since(began) > time.Minute:
			s.b.Fatalf("got %d, %v:\n%s", status, err, s.log.String())
		}
	}
}

// reload loads a configuration that differs from the one before, and returns
// how long that took.
func (s *subject) reload(c subjectConfig, upstream string, n int) time.Duration {
	s.b.Helper()
	c.more = fmt.Sprintf("respond /reload-%d 204", n)
	config := c.caddyfile(s.dir, upstream)
	began := time.Now()
	s.ask("POST", "/load", "text/caddyfile", config)
	return time.Since(began)
}

// A reload with all sessions remembered, which it keeps.
func BenchmarkReload(b *testing.B) {
	t := &figuresTable{head: []string{"sessions remembered", "bare", "mnemogate", "more"}}
	defer t.print()
	b.Run(countName(mostSessions(b)), func(b *testing.B) { reloadWith(b, t) })
}

func reloadWith(b *testing.B, t *figuresTable) {
	upstream := startUpstream(b)
	seed := seeded(b, mostSessions(b), mostSessions(b))
	configs := []subjectConfig{{}, embedded(seed)}
	bare, ours := startSubject(b, configs[0], upstream), startSubject(b, configs[1], upstream)
	ours.warm(seed)
	var alone, guarded []time.Duration
	for n := range *benchRounds {
		alone = append(alone, bare.reload(configs[0], upstream, n))
		guarded = append(guarded, ours.reload(configs[1], upstream, n))
	}
	if got := int(ours.metric("mnemogate_memory_sessions")); got != seed.sessions {
		b.Errorf("%d sessions are remembered after the reloads, want %d", got, seed.sessions)
	}
	ours.asked(b, func() {
		ours.side("", 32, false, http.StatusOK, anyOf(seed)).load.run(*benchRound).must(b)
	})
	t.add(seed.sessions, median(alone), median(guarded), median(guarded)-median(alone))
	b.ReportMetric(median(alone).Seconds()*1e3, "bare-ms")
	b.ReportMetric(median(guarded).Seconds()*1e3, "mnemogate-ms")
	b.ReportMetric((median(guarded)-median(alone)).Seconds()*1e3, "more-ms")
	b.ReportMetric(0, "ns/op")
}
