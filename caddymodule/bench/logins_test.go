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
// login, which computes no hash: of a company without devices, and of one with devices by
// clients that are unknown and known.
func BenchmarkLogins(b *testing.B) {
	for _, deployment := range deployments {
		b.Run(deployment.name, func(b *testing.B) {
			s := deployment.open(b)
			seed := s.fill(b, min(10_000, numbers(b, *sessionsFlag)[0]), 0)
			devices := s.remember(b, seed)
			s.close()
			start := func(more string) string {
				return startCaddy(b, startBackend(b), s.mnemogate(0, more), map[string]string{"mnemogate": "mnemogate"}).http["mnemogate"]
			}
			without, with := start(""), start("devices 90d")
			device := func(i int) string { return fmt.Sprintf(`,"device_token":%q`, devices[i]) }
			unknown := func(int) string { return "" }
			ways := []loginWay{{"", without, unknown}, {"unknown-", with, unknown}, {"known-", with, device}}
			b.Run("checkcredentials", func(b *testing.B) {
				var alone []float64
				ours := logins(b, "checkcredentials", 16, seed, `,"password":"`+testPassword+`"`, ways, func() { alone = append(alone, hashesPerSecond()) })
				b.ReportMetric(ours/quantile(alone, .5), "of-argon2id")
			})
			b.Run("login", func(b *testing.B) { logins(b, "login", 64, seed, "", ways, func() {}) })
		})
	}
}

// A loginWay is a site and what else clients send to it for an account.
type loginWay struct {
	name, site string
	more       func(account int) string
}

// logins reports the successful logins per second of each way, in rounds that alternate
// with the other ways and between. It returns the first way's.
func logins(b *testing.B, route string, clients int, seed *seed, password string, ways []loginWay, between func()) float64 {
	var turn atomic.Int64
	loads, all := make([]*load, len(ways)), make([][]result, len(ways))
	for i, way := range ways {
		loads[i] = newLoad(b, "http1", clients, http.StatusOK, func() *http.Request {
			account := int(turn.Add(1)) % seed.accounts
			return authRequest(way.site, route, "", fmt.Sprintf(`{"login_id":"user%d"%s%s}`, account+1, password, way.more(account)))
		})
		loads[i].run(*round / 10) // not measured
	}
	for range *rounds {
		between()
		for i, l := range loads {
			all[i] = append(all[i], l.run(*round))
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, way := range ways {
		b.ReportMetric(median(all[i], result.rate), way.name+"logins/s")
		b.ReportMetric(milliseconds(median(all[i], result.p99)), way.name+"p99-ms")
	}
	return median(all[0], result.rate)
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
