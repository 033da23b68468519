package bench

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var benchSoak = flag.Duration("soak", 0, "how long BenchmarkSoak takes; 0: as long as its rounds would")

const (
	soakRequests = 50 // protected requests a second, of each deployment
	soakJourneys = 1
	soakSamples  = 240
	soakGrowth   = 1.1 // of the last quarter over the second: more is not flat
)

// A mixed load at a moderate rate on both deployments side by side, with
// reloads, outages of the stores and, in the first quarter, crashes of Caddy:
//
//	go test ./caddymodule/bench -run '^$' -bench Soak -benchtime 1x -timeout 0 -soak 1h
//
// What should be flat is sampled 240 times, after a collection of garbage, and
// the median of the last quarter is compared with that of the second.
func BenchmarkSoak(b *testing.B) {
	sms := startSoakSMS(b)
	soaks := []*soak{soakEmbedded(b, sms), soakShared(b, sms)}
	for _, s := range soaks {
		s.prepare()
	}
	length := cmp.Or(*benchSoak, time.Duration(*benchRounds)**benchRound)
	samples := max(len(disturbances), min(soakSamples, int(length/time.Second)))
	stop := make(chan struct{})
	var running []chan struct{}
	for _, s := range soaks {
		running = append(running, every(soakRequests, stop, s.request), every(soakJourneys, stop, s.journey))
	}
	began := time.Now()
	for i := range samples {
		for _, s := range soaks {
			s.early = i < samples/4
		}
		disturbances[i%len(disturbances)](soaks[0], soaks[1], i, length/time.Duration(5*samples))
		time.Sleep(time.Until(began.Add(length * time.Duration(i+1) / time.Duration(samples))))
		for _, s := range soaks {
			s.sample()
		}
	}
	close(stop)
	for _, done := range running {
		<-done
	}
	t := &figuresTable{head: []string{"", "first", "second quarter", "last quarter", "last/second", ""}}
	for _, s := range soaks {
		s.report(t, time.Since(began))
	}
	t.print()
	b.ReportMetric(0, "ns/op")
}

// disturbances take turns. An outage lasts as long as is told.
var disturbances = []func(embedded, shared *soak, i int, outage time.Duration){
	func(embedded, _ *soak, i int, _ time.Duration) {
		embedded.reload(embedded.config, embedded.upstream, i)
	},
	func(_, shared *soak, i int, _ time.Duration) { shared.reload(shared.config, shared.upstream, i) },
	func(_, shared *soak, _ int, outage time.Duration) { // no answer from Redis
		shared.redis.Freeze()
		time.Sleep(outage)
		shared.redis.Thaw()
	},
	func(_, shared *soak, _ int, outage time.Duration) { // no PostgreSQL
		shared.postgres.Stop()
		time.Sleep(outage)
		shared.startPostgres(shared.b)
	},
	func(embedded, shared *soak, _ int, _ time.Duration) {
		embedded.crash()
		shared.crash()
	},
	func(_, shared *soak, _ int, outage time.Duration) { // no Redis
		shared.redis.Kill()
		time.Sleep(outage)
		if err := shared.redis.Start(); err != nil {
			shared.b.Fatal(err)
		}
		storetest.Eventually(shared.b, time.Minute, "Redis that has loaded its data", func() bool {
			client := redis.NewClient(&redis.Options{Network: "unix", Addr: shared.redis.Socket()})
			defer client.Close()
			return client.Ping(shared.b.Context()).Err() == nil
		})
	},
}

// A soak is a deployment, the load on it, and what was sampled.
type soak struct {
	*subject
	*soakLoad
	config   subjectConfig
	upstream string
	early    bool             // it is the first quarter
	before   time.Duration    // CPU of processes that crashed
	redis    *storetest.Redis // nil: embedded
	postgres *storetest.Postgres
	schema   string
	names    []string // of what is sampled
	sampled  map[string][]float64
}

func soakEmbedded(b testing.TB, sms *soakSMS) *soak {
	return (&soak{}).on(b, "embedded", "store sqlite DIR/mnemogate.db", sms)
}

// soakShared has servers of its own, which it stops.
func soakShared(b testing.TB, sms *soakSMS) *soak {
	s := &soak{redis: storetest.StartRedis(b, "--appendonly", "yes"), postgres: storetest.OwnPostgres(b)}
	s.postgres.Stop()
	s.startPostgres(b)
	s.schema = s.postgres.NewSchema(b)
	return s.on(b, "shared", fmt.Sprintf("store postgres %q\nsessions redis %s", s.postgres.DSN(s.schema), s.redis.URL()), sms)
}

func (s *soak) on(b testing.TB, name, stores string, sms *soakSMS) *soak {
	s.config = guarded(stores, 10_000, "")
	s.config.global = strings.Replace(s.config.global, "limits {", `sms webhook `+sms.url+` {
				secret `+smsSecret+`
			}
			session {
				idle 10m
			}
			limits {
				sms_per_account 1000000/10m
				sms_per_phone 1000000/24h
				sms_per_address 1000000/1h
				wrong_codes 100/24h`, 1)
	s.upstream, s.sampled = startUpstream(b), map[string][]float64{}
	s.subject = startSubject(b, s.config, s.upstream)
	s.soakLoad = newSoakLoad(name, s.subject, sms)
	return s
}

// startPostgres starts a server that clears away as one does which is no test's.
func (s *soak) startPostgres(b testing.TB) {
	if err := s.postgres.Start("autovacuum=on", "autovacuum_naptime=10s"); err != nil {
		b.Fatal(err)
	}
}

// crash ends Caddy at once and starts it again, unless what it gathers is looked
// at by now.
func (s *soak) crash() {
	if !s.early {
		return
	}
	s.before += cpuTime(s.cmd.Process.Pid)
	s.kill()
	s.log.reset()
	s.start()
	s.awaitLog("serving initial configuration")
}

// sample looks at all that should be flat.
func (s *soak) sample() {
	s.log.reset()
	note := func(name string, value float64) {
		if _, known := s.sampled[name]; !known {
			s.names = append(s.names, name)
		}
		s.sampled[name] = append(s.sampled[name], value)
	}
	u, pid := s.usage(2), s.cmd.Process.Pid // what has a finalizer goes with the second collection
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	note("resident, MB", float64(memoryOf(pid, "VmRSS"))/1e6)
	note("heap, MB", float64(u.Heap)/1e6)
	note("goroutines", float64(u.Goroutines))
	note("file descriptors", float64(len(files)))
	note("sessions", float64(s.live()))
	if s.redis == nil {
		file := s.dir + "/mnemogate.db"
		note("SQLite, histories apart, MB", sqliteBytes(s.b, file)/1e6)
		log, _ := os.Stat(file + "-wal")
		note("its log, MB", float64(log.Size())/1e6)
		return
	}
	note("Redis, MB", redisInfo(s.b, s.redis, "memory", "used_memory")/1e6)
	note("its keys", s.redisKeys())
	note("PostgreSQL, histories apart, MB", s.postgresBytes()/1e6)
}

// sqliteBytes is what a file's tables and indexes take. Histories grow until
// each has all that is kept of one.
func sqliteBytes(b testing.TB, file string) (bytes float64) {
	b.Helper()
	raw, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	err = raw.QueryRowContext(b.Context(), `SELECT sum(pgsize) FROM dbstat WHERE name NOT LIKE '%history%'`).Scan(&bytes)
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

// redisInfo is a number that INFO tells.
func redisInfo(b testing.TB, server *storetest.Redis, section, field string) float64 {
	b.Helper()
	for line := range strings.Lines(server.Ask(b, "info", section)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("Redis does not tell %s", field)
	return 0
}

func (s *soak) redisKeys() float64 {
	n, err := strconv.ParseFloat(s.redis.Ask(s.b, "dbsize"), 64)
	if err != nil {
		s.b.Fatal(err)
	}
	return n
}

func (s *soak) postgresBytes() (bytes float64) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.postgres.DSN(s.schema))
	if err != nil {
		s.b.Fatal(err)
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT sum(pg_total_relation_size(c.oid))::float8 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname = $1 AND relkind = 'r' AND relname <> 'history'`, s.schema).Scan(&bytes)
	if err != nil {
		s.b.Fatal(err)
	}
	return bytes
}

// report adds what was sampled to a table, and what the load saw.
func (s *soak) report(t *figuresTable, took time.Duration) {
	for _, name := range s.names {
		all := s.sampled[name]
		second, last := median(all[len(all)/4:len(all)/2+1]), median(all[len(all)*3/4:])
		verdict := "flat"
		if last > second*soakGrowth {
			verdict = "GROWS"
		}
		t.add(s.name+", "+name, all[0], second, last, ratio(last, second), verdict)
	}
	cpu := s.before + cpuTime(s.cmd.Process.Pid)
	fmt.Printf("\n%s: %.0f %% of a CPU; %s\n", s.name, 100*cpu.Seconds()/took.Seconds(), s.told())
}
