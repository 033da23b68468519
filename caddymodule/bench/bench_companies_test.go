package bench

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What many companies cost: to check a configuration, to start and to reload with
// it, and to find one of them, which a request does that is then refused.
func BenchmarkCompanies(b *testing.B) {
	t := &figuresTable{head: []string{"companies", "validate", "start", "reload", "requests/s"}}
	defer t.print()
	upstream := startUpstream(b)
	for _, n := range []int{1, 1000} {
		b.Run(countName(n), func(b *testing.B) { companiesWith(b, t, upstream, n) })
	}
}

func companiesWith(b *testing.B, t *figuresTable, upstream string, companies int) {
	key := func(i int) string { return fmt.Sprintf("key-of-company-%d", i) }
	var global strings.Builder
	global.WriteString("mnemogate {\nstore sqlite DIR/mnemogate.db\ncaptcha off\n")
	for i := range companies {
		fmt.Fprintf(&global, "company c%d {\napi_key %s\nsession {\nidle 30m\n}\ndisclaimer terms 1 {\ntitle \"Terms of c%[1]d\"\n}\n}\n", i, key(i))
	}
	global.WriteString("}")
	config := subjectConfig{guard: "mnemogate", global: global.String()}
	s := newSubject(b, config, upstream)

	var validated, started, reloaded []time.Duration
	for range *benchRounds {
		began := time.Now()
		if out, err := child("MNEMOGATE_TEST_CADDY=1", "validate", "--config", s.dir+"/Caddyfile").CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		validated = append(validated, time.Since(began))
		began = time.Now()
		s.start()
		s.awaitLog("serving initial configuration")
		started = append(started, time.Since(began))
		s.log.reset()
		for n := range 3 {
			reloaded = append(reloaded, s.reload(config, upstream, n))
		}
		s.kill()
	}
	s.start()
	l := newLoad(template{addr: s.addr, method: "GET", path: fmt.Sprintf("/c%d/v2/session", companies-1), key: key(companies - 1), want: http.StatusUnauthorized}, 32, always(""))
	defer l.close()
	s.awaitLog("serving initial configuration")
	found := l.run(*benchRound)
	found.must(b)

	t.add(companies, median(validated), median(started), median(reloaded), found.rate())
	b.ReportMetric(median(validated).Seconds()*1e3, "validate-ms")
	b.ReportMetric(median(started).Seconds()*1e3, "start-ms")
	b.ReportMetric(median(reloaded).Seconds()*1e3, "reload-ms")
	b.ReportMetric(found.rate(), "req/s")
	b.ReportMetric(0, "ns/op")
}
