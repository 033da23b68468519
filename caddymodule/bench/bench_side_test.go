package bench

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

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
