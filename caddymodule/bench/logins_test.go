package bench

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkLogins measures checkcredentials, compared with argon2id alone, and
// login, which computes no hash.
func BenchmarkLogins(b *testing.B) {
	for _, deployment := range deployments {
		b.Run(deployment.name, func(b *testing.B) {
			s := deployment.open(b)
			seed := s.fill(b, min(10_000, numbers(b, *sessionsFlag)[0]), 0)
			s.close()
			c := startCaddy(b, startBackend(b), s.mnemogate(0, ""), map[string]string{"mnemogate": "mnemogate"})
			b.Run("checkcredentials", func(b *testing.B) {
				var alone []float64
				ours := c.logins(b, "checkcredentials", 16, seed, `,"password":"`+testPassword+`"`, func() { alone = append(alone, hashesPerSecond()) })
				b.ReportMetric(ours/quantile(alone, .5), "of-argon2id")
			})
			b.Run("login", func(b *testing.B) { c.logins(b, "login", 64, seed, "", func() {}) })
		})
	}
}

// logins reports the successful logins per second, in rounds that alternate with
// between.
func (c *caddy) logins(b *testing.B, route string, clients int, seed *seed, password string, between func()) (rate float64) {
	var turn atomic.Int64
	l := newLoad(b, "http1", clients, http.StatusOK, func() *http.Request {
		return authRequest(c.http["mnemogate"], route, "", fmt.Sprintf(`{"login_id":"user%d"%s}`, int(turn.Add(1))%seed.accounts+1, password))
	})
	l.run(*round / 10) // not measured
	var all []result
	for range *rounds {
		between()
		all = append(all, l.run(*round))
	}
	rate = median(all, result.rate)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate, "logins/s")
	b.ReportMetric(milliseconds(median(all, result.p99)), "p99-ms")
	return rate
}

// authRequest returns a request to an auth route, with a session if token is not
// empty.
func authRequest(site, route, token, body string) *http.Request {
	r := newRequest("POST", site+"/acme/v2/auth/"+route, "X-Api-Key", testKey, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// hashesPerSecond computes hashes for a round, as many at a time as logins may.
func hashesPerSecond() float64 {
	var all sync.WaitGroup
	var done atomic.Int64
	began := time.Now()
	for range max(1, runtime.GOMAXPROCS(0)-1) {
		all.Go(func() {
			for time.Since(began) < *round {
				derive(testPassword, []byte("a salt, 16 bytes"))
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}
