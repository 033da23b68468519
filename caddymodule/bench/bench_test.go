package bench

import (
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

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
	shared := newSharedStores(b, storetest.SharedPostgres(b))
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
