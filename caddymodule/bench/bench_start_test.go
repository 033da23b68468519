package bench

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

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
