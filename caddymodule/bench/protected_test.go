package bench

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// A side is one of the subjects of a comparison.
type side struct {
	name string
	*caddy
	*load
}

// figures are the results of a round: requests per second, and the CPU time and the
// 99th percentile of a request.
type figures [3]float64

func (s side) round() figures {
	s.b.Helper()
	s.run(*round / 10) // not measured
	before := s.metric("process_cpu_seconds_total")
	r := s.run(*round)
	cpu := s.metric("process_cpu_seconds_total") - before
	return figures{r.rate(), cpu / float64(len(r.took)), r.p99().Seconds()}
}

// compare lets the sides take turns, and reports the others relative to the first.
func compare(b *testing.B, sides ...side) {
	b.Helper()
	all := make([][]figures, len(sides))
	for range *rounds {
		for i, s := range sides {
			all[i] = append(all[i], s.round())
		}
	}
	b.ReportMetric(0, "ns/op") // has no meaning here
	for j, what := range [...]string{"requests", "cpu", "p99"} {
		of := func(f figures) float64 { return f[j] }
		first := median(all[0], of)
		for i, s := range sides[1:] {
			b.ReportMetric(median(all[i+1], of)/first, s.name+"-"+what)
		}
		if what == "requests" {
			b.ReportMetric(first, sides[0].name+"-req/s")
		}
	}
}

// protected returns a side that sends protected requests to a site. Each request has
// one of the sessions in a header, with before in front of the token.
func (c *caddy) protected(b testing.TB, name, site, version string, clients int, header, before string, seed *seed) side {
	url := c.url(site, version) + "/items/1"
	return side{name, c, newLoad(b, version, clients, http.StatusOK, func() *http.Request {
		return newRequest("GET", url, header, before+seed.any(), nil)
	})}
}

func (c *caddy) url(site, version string) string {
	if version == "http3" {
		return c.https[site]
	}
	return c.http[site]
}

// bearer is protected with Authorization: Bearer.
func (c *caddy) bearer(b testing.TB, name, version string, clients int, seed *seed) side {
	return c.protected(b, name, name, version, clients, "Authorization", "Bearer ", seed)
}

// guarded starts a Caddy with mnemogate that remembers all sessions of a seed in an
// embedded store. It has an additional site, warm, that answers by itself. Its guard may
// be in sites.
func guarded(b testing.TB, backend string, accounts, sessions int, global string, sites map[string]string) (*caddy, *seed) {
	b.Helper()
	s := embedded(b)
	seed := s.fill(b, accounts, sessions)
	s.close()
	sites["warm"] = cmp.Or(sites["warm"], "mnemogate") + "\nrespond 204"
	c := startCaddy(b, backend, s.mnemogate(sessions, "")+global, sites)
	c.warm(seed)
	return c, seed
}

// warm makes Caddy remember all sessions. It retries, because Caddy remembers none
// while the machine is too busy to keep the subscription alive.
func (c *caddy) warm(seed *seed) {
	c.Helper()
	for range 5 {
		c.visit("warm", "http1", http.StatusNoContent, seed)
		if int(c.metric("mnemogate_memory_sessions")) == len(seed.tokens) {
			return
		}
	}
	c.Fatalf("%v sessions are remembered, want %d", c.metric("mnemogate_memory_sessions"), len(seed.tokens))
}

// visit sends a request of each session to a site.
func (c *caddy) visit(site, version string, status int, seed *seed) {
	c.Helper()
	url := c.url(site, version)
	var taken atomic.Int64
	newLoad(c, version, 64, status, func() *http.Request {
		i := int(taken.Add(1)) - 1
		if i >= len(seed.tokens) {
			return nil
		}
		return newRequest("GET", url, "Authorization", "Bearer "+seed.tokens[i], nil)
	}).run(time.Hour)
}

// BenchmarkProtected compares the protected path with reverse_proxy alone, which
// gets the same requests. All sessions are remembered, and each request uses any of
// them.
//
//	-bench Protected/1000000/http1/32
func BenchmarkProtected(b *testing.B) {
	backend := startBackend(b)
	for _, n := range numbers(b, *sessionsFlag) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bare := startCaddy(b, backend, "", map[string]string{"bare": ""})
			ours, seed := guarded(b, backend, min(n, 10_000), n, "", map[string]string{"mnemogate": "mnemogate"})
			for _, version := range []string{"http1", "http2"} {
				for _, clients := range []int{32, 256} {
					b.Run(fmt.Sprint(version, "/", clients), func(b *testing.B) {
						compare(b, bare.bearer(b, "bare", version, clients, seed), ours.bearer(b, "mnemogate", version, clients, seed))
					})
				}
			}
		})
	}
}

// added returns the lines of a Caddyfile that add what mnemogate adds to a request with
// that header, as constants.
func (c *caddy) added(header, value string) (lines string) {
	c.Helper()
	r, err := http.DefaultClient.Do(newRequest("GET", c.http["mnemogate"]+"/headers", header, value, nil))
	must(c, err)
	defer r.Body.Close()
	var headers http.Header
	must(c, json.NewDecoder(r.Body).Decode(&headers))
	for name, values := range headers {
		if strings.HasPrefix(name, "X-") && !strings.HasPrefix(name, "X-Forwarded-") {
			lines += "request_header " + name + " " + values[0] + "\n"
		}
	}
	return lines
}

// BenchmarkWays compares the ways to send a session, to forward its data and to log
// it, over each version of HTTP. The side headers is Caddy that adds the same headers
// without a guard, because the application pays for each header, too.
//
//	-bench Ways/cookie/http3
func BenchmarkWays(b *testing.B) {
	backend := startBackend(b)
	for _, way := range []struct{ name, header, before, guard, site, global string }{
		{name: "bearer", header: "Authorization", before: "Bearer ", guard: "mnemogate"},
		{name: "cookie", header: "Cookie", before: "session=", guard: "mnemogate {\ncookie session\n}"},
		{name: "forward", header: "Authorization", before: "Bearer ", guard: "mnemogate {\nforward role email phone\n}"},
		{name: "everything", header: "Authorization", before: "Bearer ", guard: "mnemogate {\nforward role email phone session auth_time auth_methods\nrole admin /items/*\n}"},
		{name: "signing", header: "Authorization", before: "Bearer ", guard: "mnemogate {\nforward role email phone session auth_time auth_methods\nrole admin /items/*\nassertion profile-api\n}"},              // mostly first requests of a session
		{name: "signed", header: "Authorization", before: "Bearer ", guard: "mnemogate {\nforward role email phone session auth_time auth_methods\nrole admin /items/*\nassertion profile-api {\nttl 10m\n}\n}"}, // none are
		{name: "audit", header: "Authorization", before: "Bearer ", guard: "mnemogate", global: "\nlog audit {\ninclude mnemogate.audit\noutput file " + b.TempDir() + "/audit.log\n}"},
		{name: "access", header: "Authorization", before: "Bearer ", guard: "mnemogate", site: "\nlog {\noutput discard\n}"},
	} {
		b.Run(way.name, func(b *testing.B) {
			n := numbers(b, *sessionsFlag)[0]
			ours, seed := guarded(b, backend, min(n, 10_000), n, way.global, map[string]string{"mnemogate": way.guard + way.site, "warm": way.guard})
			bare := startCaddy(b, backend, "", map[string]string{"bare": way.site, "headers": ours.added(way.header, way.before+seed.any()) + way.site})
			for _, version := range []string{"http1", "http2", "http3"} {
				b.Run(version, func(b *testing.B) {
					if way.name == "signed" { // the assertion has the site's address
						ours.visit("mnemogate", version, http.StatusOK, seed)
					}
					compare(b, bare.protected(b, "bare", "bare", version, 32, way.header, way.before, seed),
						bare.protected(b, "headers", "headers", version, 32, way.header, way.before, seed),
						ours.protected(b, "mnemogate", "mnemogate", version, 32, way.header, way.before, seed))
				})
			}
		})
	}
}

// BenchmarkIssued compares issued tokens with sessions, as many of each. Nearly every request
// of the side token is the first of its token's minute, which notes the use in the store. The
// side busy uses a hundred of the tokens.
func BenchmarkIssued(b *testing.B) {
	const clients = 32
	backend, n := startBackend(b), numbers(b, *sessionsFlag)[0]
	s := embedded(b)
	sessions := s.fill(b, min(n, 10_000), n)
	issued := s.issue(b, sessions, n)
	s.close()
	c := startCaddy(b, backend, s.mnemogate(2*n, "issued_tokens {\n}"), map[string]string{"mnemogate": "mnemogate", "warm": "mnemogate\nrespond 204"})
	c.warm(&seed{tokens: slices.Concat(sessions.tokens, issued.tokens)})
	using := func(name string, tokens []string) side {
		return c.protected(b, name, "mnemogate", "http1", clients, "Authorization", "Bearer ", &seed{tokens: tokens})
	}
	compare(b, using("session", sessions.tokens), using("token", issued.tokens), using("busy", issued.tokens[:min(n, 100)]))
}

// BenchmarkBeside compares what an operator of Caddy can choose from: no guard,
// Caddy's own guards, and mnemogate.
func BenchmarkBeside(b *testing.B) {
	const clients = 32
	hash, err := bcrypt.GenerateFromPassword([]byte(testPassword), bcrypt.DefaultCost)
	must(b, err)
	backend, n := startBackend(b), numbers(b, *sessionsFlag)[0]
	others := startCaddy(b, backend, "", map[string]string{
		"bare":         "",
		"basic_auth":   "basic_auth {\nuser " + string(hash) + "\n}",
		"forward_auth": "forward_auth " + startBackend(b) + " {\nuri /auth\ncopy_headers X-Profile-Mnemocode\n}",
	})
	ours, seed := guarded(b, backend, min(n, 10_000), n, "", map[string]string{
		"mnemogate": "mnemogate",
		"forward":   "mnemogate {\nforward role email phone\n}",
		"cookie":    "mnemogate {\ncookie session\n}",
	})
	basic := newLoad(b, "http1", clients, http.StatusOK, func() *http.Request {
		return newRequest("GET", others.http["basic_auth"]+"/items/1", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+testPassword)), nil)
	})
	compare(b,
		others.bearer(b, "bare", "http1", clients, seed),
		side{"basic_auth", others, basic},
		others.bearer(b, "forward_auth", "http1", clients, seed),
		ours.bearer(b, "mnemogate", "http1", clients, seed),
		ours.bearer(b, "forward", "http1", clients, seed),
		ours.protected(b, "cookie", "cookie", "http1", clients, "Cookie", "session=", seed))
}

// BenchmarkCheck compares check with Caddy's own answer to the same requests. The side
// constants answers with as many headers, because the client pays for each header, too.
func BenchmarkCheck(b *testing.B) {
	const clients = 32
	backend, n := startBackend(b), numbers(b, *sessionsFlag)[0]
	c, seed := guarded(b, backend, min(n, 10_000), n, "\nservers {\nprotocols h1 h2c\ntrusted_proxies static 127.0.0.1\n}", map[string]string{
		"respond":   "respond 204",
		"constants": "header {\nX-Profile-Mnemocode user-1234\nX-Profile-Company acme\nCache-Control no-store\n}\nrespond 204",
		"check":     "mnemogate {\ncheck /check\n}",
		"forward":   "mnemogate {\ncheck /check\nforward role email phone\n}",
	})
	asking := func(name string) side {
		return side{name, c, newLoad(b, "http1", clients, http.StatusNoContent, func() *http.Request {
			r := newRequest("GET", c.http[name]+"/check", "Authorization", "Bearer "+seed.any(), nil)
			r.Header["X-Forwarded-Method"] = []string{"GET"}
			r.Header["X-Forwarded-Host"] = []string{"api.example.com"}
			r.Header["X-Forwarded-Uri"] = []string{"/items/1"}
			return r
		})}
	}
	compare(b, asking("respond"), asking("constants"), asking("check"), asking("forward"))
}
