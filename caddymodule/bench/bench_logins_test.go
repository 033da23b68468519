package bench

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// sharedStores are PostgreSQL and Redis, of a benchmark alone, opened beside the
// subject.
type sharedStores struct {
	redis    *storetest.Redis
	accounts *store.Postgres
	sessions *store.Redis
	config   string
}

func newSharedStores(b testing.TB, postgres *storetest.Postgres) *sharedStores {
	b.Helper()
	dsn := postgres.DSN(postgres.NewSchema(b))
	s := &sharedStores{redis: storetest.StartRedis(b)}
	s.config = fmt.Sprintf("store postgres %q\nsessions redis %s", dsn, s.redis.URL())
	var err error
	if s.accounts, err = store.OpenPostgres(dsn, store.PostgresOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.accounts.Close() })
	if s.sessions, err = store.OpenRedis(store.RedisOptions{URLs: []string{s.redis.URL()}}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.sessions.Close() })
	startShared(b, s.accounts, s.sessions)
	return s
}

// loginSeed has the accounts that the logins take turns with.
func loginSeed(b testing.TB) *seed {
	return seeded(b, fewerSessions(b, 10_000), fewerSessions(b, 1000))
}

// commands is how many Redis has been sent.
func (s *sharedStores) commands(b testing.TB) int {
	b.Helper()
	for line := range strings.Lines(s.redis.Ask(b, "info", "stats")) {
		if value, ok := strings.CutPrefix(line, "total_commands_processed:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("Redis does not count")
	return 0
}

// login is a load of calls to an auth route.
func (s *subject) login(route string, clients, want int, shots magazine) *load {
	l := newLoad(template{addr: s.addr, method: "POST", path: "/acme/v2/auth/" + route, key: testKey, want: want}, clients, shots)
	s.b.Cleanup(l.close)
	return l
}

// A login storm beside the protected path, which has 1,000 requests a second,
// each at its time.
func BenchmarkStorm(b *testing.B) {
	const rate, conns = 1000, 32
	upstream := startUpstream(b)
	seed := loginSeed(b)
	t := &figuresTable{head: []string{"", "protected p50", "idle", "p99", "idle", "longest", "idle", "failed", "p99 of late clients", "idle",
		"logins/s", "503", "login p50", "login p99", "peak memory before", "after"}}
	defer t.print()
	for _, storm := range []struct {
		name     string
		clients  int
		password string
		status   int
	}{
		{"16clients/right", 16, testPassword, http.StatusOK},
		{"100clients/right", 100, testPassword, http.StatusOK},
		{"16clients/wrong", 16, "wrong " + testPassword, http.StatusUnauthorized},
		{"100clients/wrong", 100, "wrong " + testPassword, http.StatusUnauthorized},
	} {
		b.Run(storm.name, func(b *testing.B) {
			s := startSubject(b, embedded(seed), upstream)
			s.warm(seed)
			hammer := s.login("checkcredentials", storm.clients, storm.status, logins(seed.accounts, storm.password))
			protected := s.side("", conns, false, http.StatusOK, anyOf(seed)).load
			protected.runAt(rate, *benchRound/10).must(b)
			quietMemory := peakMemory(s.cmd.Process.Pid)
			var quiet, stormy []*tally
			var passwords tally
			for range *benchRounds {
				quiet = append(quiet, protected.runAt(rate, *benchRound))
				done := make(chan *tally)
				go func() { done <- hammer.run(*benchRound * 5 / 4) }()
				time.Sleep(*benchRound / 8) // the storm comes first
				stormy = append(stormy, protected.runAt(rate, *benchRound))
				of := <-done
				passwords.merge(of)
				passwords.elapsed += of.elapsed
			}
			failed := 0
			for i := range quiet {
				failed += stormy[i].failed()
				quiet[i].must(b)
			}
			passwords.must(b)
			share := busyShare(&passwords)
			late := func(rounds []*tally) time.Duration {
				return medianOf(rounds, func(t *tally) time.Duration { return t.late.quantile(.99) })
			}
			memory := peakMemory(s.cmd.Process.Pid)
			b.ReportMetric(p(quiet, .5).Seconds()*1e3, "idle-p50-ms")
			b.ReportMetric(p(quiet, .99).Seconds()*1e3, "idle-p99-ms")
			b.ReportMetric(p(stormy, .5).Seconds()*1e3, "p50-ms")
			b.ReportMetric(p(stormy, .99).Seconds()*1e3, "p99-ms")
			b.ReportMetric(float64(failed), "failed")
			b.ReportMetric(passwords.rate(), "logins/s")
			b.ReportMetric(share, "503-share")
			b.ReportMetric(float64(memory)/1e6, "peak-MB")
			b.ReportMetric(0, "ns/op")
			t.add(storm.name, p(stormy, .5), p(quiet, .5), p(stormy, .99), p(quiet, .99), p(stormy, 1), p(quiet, 1), failed,
				late(stormy), late(quiet), passwords.rate(), share, passwords.quantile(.5), passwords.quantile(.99),
				fmt.Sprintf("%.0f MB", float64(quietMemory)/1e6), fmt.Sprintf("%.0f MB", float64(memory)/1e6))
		})
	}
}

// Logins a second: checkcredentials, against what argon2id alone does in a
// process of its own, and login, which computes no hash.
func BenchmarkLogins(b *testing.B) {
	upstream := startUpstream(b)
	seed := loginSeed(b)
	t := &figuresTable{head: []string{"", "logins/s", "argon2id alone", "of it", "p50", "p99"}}
	defer t.print()
	const durable = "shared, durable" // PostgreSQL as it is by default, with fsync
	for _, deployment := range []string{"embedded", "shared", durable} {
		b.Run(deployment, func(b *testing.B) {
			config := embedded(seed)
			if deployment != "embedded" {
				postgres := storetest.SharedPostgres(b)
				if deployment == durable {
					postgres = storetest.OwnPostgres(b, "fsync=on")
				}
				shared := newSharedStores(b, postgres)
				seed.fill(b, shared.accounts, shared.sessions, shared.redis.Client(b))
				config = guarded(shared.config, 1000, "")
			}
			s := startSubject(b, config, upstream)
			b.Run("checkcredentials", func(b *testing.B) {
				argon2 := startHelper(b, "argon2")
				l := s.login("checkcredentials", 16, http.StatusOK, logins(seed.accounts, testPassword))
				l.run(*benchRound / 10).must(b)
				var ours []*tally
				var alone []float64
				for range *benchRounds {
					of, err := strconv.ParseFloat(argon2.ask(benchRound.String()), 64)
					if err != nil {
						b.Fatal(err)
					}
					alone = append(alone, of)
					ours = append(ours, l.run(*benchRound))
					ours[len(ours)-1].must(b)
				}
				rate := medianOf(ours, (*tally).rate)
				b.ReportMetric(rate, "logins/s")
				b.ReportMetric(medianOf(ours, busyShare), "503-share")
				b.ReportMetric(median(alone), "argon2id/s")
				b.ReportMetric(rate/median(alone), "ratio")
				b.ReportMetric(0, "ns/op")
				t.add("checkcredentials, "+deployment, rate, median(alone), rate/median(alone), p(ours, .5), p(ours, .99))
			})
			b.Run("login", func(b *testing.B) {
				l := s.login("login", 64, http.StatusOK, logins(seed.accounts, ""))
				var rounds []*tally
				for range *benchRounds {
					l.run(*benchRound / 10).must(b)
					rounds = append(rounds, l.run(*benchRound))
					rounds[len(rounds)-1].must(b)
				}
				rate := medianOf(rounds, (*tally).rate)
				b.ReportMetric(rate, "logins/s")
				b.ReportMetric(medianOf(rounds, busyShare), "503-share")
				b.ReportMetric(0, "ns/op")
				t.add("login, "+deployment, rate, "", "", p(rounds, .5), p(rounds, .99))
			})
		})
	}
}
