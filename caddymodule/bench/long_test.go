package bench

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var longFlag = flag.Duration("long", 0, "how long each load of Long takes; 0: one round")

// BenchmarkLong shows whether anything changes under full load: it reports each minute
// of logins, of introspection and of protected requests.
//
//	-bench Long -long 30m -sessions 1000000
func BenchmarkLong(b *testing.B) {
	const introspectKey = "a-key-that-only-introspects"
	n := numbers(b, *sessionsFlag)[0]
	var turn atomic.Int64
	for _, load := range []struct {
		name    string
		clients int
		request func(*testing.B, *caddy, *seed) func() *http.Request
	}{
		{"checkcredentials", 16, func(_ *testing.B, c *caddy, s *seed) func() *http.Request {
			return func() *http.Request {
				account := int(turn.Add(1))%s.accounts + 1
				return authRequest(c.http["mnemogate"], "checkcredentials", "", fmt.Sprintf(`{"login_id":"user%d","password":%q}`, account, testPassword))
			}
		}},
		{"introspect", 32, func(_ *testing.B, c *caddy, s *seed) func() *http.Request {
			return func() *http.Request {
				r := newRequest("POST", c.http["accounts"]+"/acme/introspect", "Authorization", "Bearer "+introspectKey, strings.NewReader("token="+s.any()))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				return r
			}
		}},
		{"protected", 32, func(b *testing.B, c *caddy, s *seed) func() *http.Request {
			return c.bearer(b, "mnemogate", "http1", 32, s).request
		}},
	} {
		b.Run(load.name, func(b *testing.B) {
			// Each load has sessions of its own, which would expire during the others.
			c, seed := guarded(b, startBackend(b), min(n, 10_000), n, "", map[string]string{
				"mnemogate": "mnemogate",
				"accounts":  "mnemogate_accounts {\nkey bench " + introspectKey + " {\nmay introspect\n}\n}",
			})
			l := newLoad(b, "http1", load.clients, http.StatusOK, load.request(b, c, seed))
			for left := cmp.Or(*longFlag, *round); left > 0; left -= time.Minute {
				r := l.run(min(left, time.Minute))
				b.Logf("%.0f a second, p50 %v, p99 %v, %.0f MB", r.rate(), quantile(r.took, .5), r.p99(), c.metric("process_resident_memory_bytes")/1e6)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
