package bench

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var soakFlag = flag.Duration("soak", 0, "how long Soak takes; 0: as long as its rounds would")

const (
	soakUsers   = 100 // of each deployment, half of them with a password and half with a phone
	soakRate    = 50  // steps per second, by all users of a deployment
	soakSamples = 240
)

// BenchmarkSoak runs both deployments at the same time for long, with a moderate
// load, reloads, outages of the stores and, in the first quarter, crashes of Caddy:
//
//	-bench Soak -soak 1h
//
// It compares the median of the last quarter of the samples with that of the second
// quarter.
func BenchmarkSoak(b *testing.B) {
	codes := new(sync.Map) // the last code by phone
	gateway := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message struct{ To, Code string }
		if json.NewDecoder(r.Body).Decode(&message) == nil {
			codes.Store(message.To, message.Code)
		}
	}))
	b.Cleanup(gateway.Close)
	postgres, redis := storetest.OwnPostgres(b, "autovacuum=on", "autovacuum_naptime=10s"), storetest.StartRedis(b, "--appendonly", "yes")
	small, large := newSoak(b, "embedded", embedded(b), gateway.URL, codes), newSoak(b, "shared", shared(b, postgres, redis), gateway.URL, codes)
	soaks := []*soak{small, large}

	length := cmp.Or(*soakFlag, time.Duration(*rounds)**round)
	samples := max(6, min(soakSamples, int(length/time.Second)))
	outage := length / time.Duration(5*samples)
	stop, running := make(chan struct{}), new(sync.WaitGroup)
	for _, s := range soaks {
		for i := range soakUsers {
			running.Go(func() { s.use(i, stop) })
		}
	}
	began := time.Now()
	for i := range samples {
		switch i % 6 {
		case 0:
			for _, s := range soaks {
				if i < samples/4 { // later a process must run long enough to show what it accumulates
					s.kill()
					s.start()
				}
			}
		case 1:
			small.reload()
		case 2:
			large.reload()
		case 3:
			redis.Freeze()
			time.Sleep(outage)
			redis.Thaw()
		case 4:
			redis.Kill()
			time.Sleep(outage)
			must(b, redis.Start())
		case 5:
			postgres.Stop()
			time.Sleep(outage)
			must(b, postgres.Start())
		}
		time.Sleep(time.Until(began.Add(length * time.Duration(i+1) / time.Duration(samples))))
		for _, s := range soaks {
			s.sample()
		}
	}
	close(stop)
	running.Wait()
	for _, s := range soaks {
		b.Run(s.name, s.report)
	}
}

// A soak is a deployment with its users and samples.
type soak struct {
	*caddy
	name                string
	stores              *stores
	codes               *sync.Map
	client              *http.Client
	names               []string // of the samples
	samples             map[string][]float64
	wanted, unavailable atomic.Int64 // answers
}

func newSoak(b testing.TB, name string, stores *stores, gateway string, codes *sync.Map) *soak {
	b.Helper()
	for i := range soakUsers {
		a := accountOf(fmt.Sprint("user", i), i)
		if a.Phone = ""; i%2 == 1 { // a login by SMS, with a different phone on each deployment
			a.Phone, a.PasswordHash = phoneOf(name, i), ""
		}
		_, err := stores.accounts.Create(b.Context(), time.Now(), a)
		must(b, err)
	}
	stores.close()
	more := "sms webhook " + gateway + " {\nsecret whsec_dGhlIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw==\n}\nsession {\nidle 10m\n}"
	return &soak{
		caddy: startCaddy(b, startBackend(b), stores.mnemogate(0, more), map[string]string{"site": "mnemogate"}),
		name:  name, stores: stores, codes: codes, samples: map[string][]float64{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: soakUsers}, Timeout: 10 * time.Second},
	}
}

func phoneOf(deployment string, i int) string {
	return fmt.Sprintf("+37060%02d%04d", len(deployment), i)
}

// use performs the steps of one user until stop is closed.
func (s *soak) use(i int, stop chan struct{}) {
	token, name, site := "", fmt.Sprint("user", i), s.http["site"]
	auth := func(route, token, body string, want int) (string, bool) {
		return s.send(authRequest(site, route, token, body), want)
	}
	request := func(want int) {
		s.send(newRequest("GET", site+"/items/1", "Authorization", "Bearer "+token, nil), want)
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(2 * rand.Float64() * soakUsers / soakRate * float64(time.Second))):
		}
		switch n := rand.IntN(100); {
		case token == "" && i%2 == 0:
			token, _ = auth("checkcredentials", "", fmt.Sprintf(`{"login_id":%q,"password":%q}`, name, testPassword), http.StatusOK)
		case token == "":
			if step, ok := auth("login", "", fmt.Sprintf(`{"login_id":%q}`, phoneOf(s.name, i)), http.StatusOK); ok {
				code, _ := s.codes.Load(phoneOf(s.name, i))
				token, _ = auth("checkotp", step, fmt.Sprintf(`{"otp":%q}`, code), http.StatusOK)
			}
		case n == 0 && i%2 == 0:
			auth("checkcredentials", "", fmt.Sprintf(`{"login_id":%q,"password":"wrong"}`, name), http.StatusUnauthorized)
		case n == 1:
			if _, ok := auth("logout", token, "{}", http.StatusOK); ok {
				request(http.StatusUnauthorized)
			}
			token = ""
		case n == 2: // an operator revokes it
			if _, ok := s.send(newRequest("DELETE", s.admin+"/mnemogate/acme/accounts/"+name+"/sessions", "Accept", "*/*", nil), http.StatusNoContent); ok {
				request(http.StatusUnauthorized)
			}
			token = ""
		default:
			request(http.StatusOK)
		}
	}
}

// send counts the answer. It fails the benchmark if the answer is neither the wanted
// one nor explained by an outage.
func (s *soak) send(r *http.Request, want int) (token string, ok bool) {
	var reply struct {
		Token string `json:"session_token"`
		Code  string `json:"error_code"`
	}
	response, err := s.client.Do(r)
	if err != nil {
		s.unavailable.Add(1)
		return "", false
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&reply) // the body may be empty or the application's
	switch response.StatusCode {
	case want:
		s.wanted.Add(1)
	case http.StatusServiceUnavailable:
		s.unavailable.Add(1)
	default:
		s.Errorf("%s: %s %s: got %d %s, want %d", s.name, r.Method, r.URL, response.StatusCode, reply.Code, want)
	}
	return reply.Token, response.StatusCode == want
}

// sample measures everything that should not grow.
func (s *soak) sample() {
	s.Helper()
	note := func(name string, value float64) {
		if s.samples[name] == nil {
			s.names = append(s.names, name)
		}
		s.samples[name] = append(s.samples[name], value)
	}
	s.ask("GET", "/debug/pprof/heap?gc=1", nil)
	note("resident-MB", s.metric("process_resident_memory_bytes")/1e6)
	note("heap-MB", s.metric("go_memstats_heap_alloc_bytes")/1e6)
	note("goroutines", s.metric("go_goroutines"))
	note("files", s.metric("process_open_fds"))
	if s.stores.redis == nil { // without histories, which grow until each is full
		note("SQLite-MB", s.query("sqlite", "file:"+s.stores.file+"?mode=ro", `SELECT sum(pgsize) FROM dbstat WHERE name NOT LIKE '%history%'`)/1e6)
		return
	}
	note("PostgreSQL-MB", s.query("pgx", s.stores.dsn, `SELECT sum(pg_total_relation_size(oid))::float8 FROM pg_class
		WHERE relnamespace = current_schema::regnamespace AND relkind = 'r' AND relname <> 'history'`)/1e6)
	note("Redis-MB", redisInfo(s, s.stores.redis, "memory", "used_memory")/1e6)
}

func (s *soak) query(driver, dsn, query string) (n float64) {
	s.Helper()
	db, err := sql.Open(driver, dsn)
	must(s, err)
	defer db.Close()
	must(s, db.QueryRow(query).Scan(&n))
	return n
}

func (s *soak) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(s.wanted.Load()), "answers")
	b.ReportMetric(float64(s.unavailable.Load()), "unavailable")
	for _, name := range s.names {
		all := s.samples[name]
		second, last := quantile(all[len(all)/4:len(all)/2], .5), quantile(all[len(all)*3/4:], .5)
		b.ReportMetric(last, name)
		b.ReportMetric(last/second, name+"-growth")
	}
}
