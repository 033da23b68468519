package bench

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// What many sessions cost at rest, at a start, and to end them all:
//
//	go test ./caddymodule/bench -run '^$' -bench Many -benchtime 1x -timeout 0 -sessions 1000,100000,1000000,10000000
//
// Ten million take some 5 GB of the disk twice, then as much memory of Redis.
func BenchmarkMany(b *testing.B) {
	head := []string{"bytes a session", "start", "logout", "an account's", "all of a company",
		"a sweep with a tenth just expired", "a sweep of a tenth", "p99 of writes meanwhile", "deleted a second behind an era", "p99 of writes meanwhile"}
	for _, deployment := range []struct {
		name string
		with func(*testing.B, *figuresTable, int)
	}{{"embedded", manyEmbedded}, {"shared", manyShared}} {
		t := &figuresTable{head: append([]string{deployment.name}, head...)}
		for _, n := range sessionCounts(b) {
			b.Run(deployment.name+"/"+countName(n), func(b *testing.B) {
				deployment.with(b, t, n)
				b.ReportMetric(0, "ns/op")
			})
		}
		t.print()
	}
}

// manyAccounts are so many that none has many of the sessions.
func manyAccounts(sessions int) int { return min(sessions, 200_000) }

func manyEmbedded(b *testing.B, t *figuresTable, n int) {
	seed := seeded(b, manyAccounts(n), n)
	s := newSubject(b, guarded("store sqlite DIR/mnemogate.db", 10_000, seed.file), startUpstream(b))
	start := s.restarts(seed)
	file := s.dir + "/mnemogate.db"
	bytes := sqliteSessionBytes(b, file)
	db := store.OpenSQLite(file)
	if err := db.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	logout, account := endSome(b, seed, db.Sessions())
	sweep := func() error { return db.Sessions().Sweep(b.Context(), time.Now()) }
	age(b, file, `expires = 0, ends = ?`, time.Now())
	expired, _ := whileWriting(b, db.Sessions(), sweep)
	age(b, file, `ends = ?`, time.Now().Add(-2*record.Keep))
	swept, duringIt := whileWriting(b, db.Sessions(), sweep)
	all := endCompany(b, db.Accounts(), db.Sessions())
	left := countSessions(b, file)
	ctx, cancel := context.WithTimeout(b.Context(), max(time.Second, time.Duration(*benchRounds)**benchRound))
	defer cancel()
	cleared, duringAll := whileWriting(b, db.Sessions(), func() error {
		if err := db.Sessions().Sweep(ctx, time.Now()); ctx.Err() == nil {
			return err
		}
		return nil // there are more than it takes to know how fast it goes
	})
	t.add(countName(n), float64(bytes)/float64(n), start, logout, account, all, expired, swept, duringIt,
		float64(left-countSessions(b, file))/cleared.Seconds(), duringAll)
}

// age changes a tenth of the sessions in a file.
func age(b testing.TB, file, set string, to time.Time) {
	b.Helper()
	raw, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(60000)")
	if err != nil {
		b.Fatal(err)
	}
	_, err = raw.ExecContext(b.Context(), `UPDATE sessions SET `+set+` WHERE hash < x'1999'`, to.UnixMicro())
	if err := errors.Join(err, raw.Close()); err != nil {
		b.Fatal(err)
	}
}

func countSessions(b testing.TB, file string) (n int) {
	b.Helper()
	raw, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err == nil {
		err = raw.QueryRowContext(b.Context(), `SELECT count(*) FROM sessions`).Scan(&n)
	}
	if err := errors.Join(err, raw.Close()); err != nil {
		b.Fatal(err)
	}
	return n
}

func manyShared(b *testing.B, t *figuresTable, n int) {
	seed := &seed{accounts: manyAccounts(n), sessions: n}
	shared := newSharedStores(b, storetest.SharedPostgres(b))
	before := redisInfo(b, shared.redis, "memory", "used_memory")
	copySessions(b, shared.redis.Client(b), shared.sessions.Sessions(), seed.draw())
	bytes := redisInfo(b, shared.redis, "memory", "used_memory") - before
	s := newSubject(b, guarded(shared.config, 10_000, ""), startUpstream(b))
	start := s.restarts(seed)
	logout, account := endSome(b, seed, shared.sessions.Sessions())
	all := endCompany(b, shared.accounts.Accounts(), shared.sessions.Sessions())
	t.add(countName(n), bytes/float64(n), start, logout, account, all) // Redis sweeps by itself
}

// restarts is the median time from the start of a process to its first answer
// out of the application.
func (s *subject) restarts(seed *seed) time.Duration {
	s.b.Helper()
	var took []time.Duration
	for i := range *benchRounds + 1 {
		first := s.firstAnswer(seed)
		if i == 0 { // makes what only the first start ever makes
			s.b.Logf("the first start took %v", first.Round(time.Millisecond))
			continue
		}
		took = append(took, first)
	}
	return median(took)
}

// sqliteSessionBytes is what the sessions take with their indexes.
func sqliteSessionBytes(b testing.TB, file string) (bytes int64) {
	b.Helper()
	raw, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	err = raw.QueryRowContext(b.Context(), `SELECT sum(pgsize) FROM dbstat WHERE aggregate = 1 AND name LIKE 'sessions%'`).Scan(&bytes)
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

// endSome ends single sessions, and all of single accounts.
func endSome(b testing.TB, seed *seed, sessions record.Sessions) (one, account time.Duration) {
	b.Helper()
	var ones, accounts []time.Duration
	drawn := seed.draw()
	for range min(100, len(drawn)/4) {
		d := drawn[rand.IntN(len(drawn))]
		began := time.Now()
		err := sessions.Delete(b.Context(), d.hash)
		ones = append(ones, time.Since(began))
		if err != nil && !errors.Is(err, record.ErrNotFound) {
			b.Fatal(err)
		}
		d = drawn[rand.IntN(len(drawn))]
		began = time.Now()
		err = sessions.End(b.Context(), began, record.Ending{Company: "acme", Account: int64(d.account), Epoch: 2})
		accounts = append(accounts, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
	}
	return median(ones), median(accounts)
}

// endCompany ends all sessions, again in each round.
func endCompany(b testing.TB, accounts record.Accounts, sessions record.Sessions) time.Duration {
	b.Helper()
	var took []time.Duration
	for range *benchRounds {
		began := time.Now()
		ending, err := accounts.NewEra(b.Context(), "acme")
		if err == nil {
			err = sessions.End(b.Context(), began, ending)
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return median(took)
}

// whileWriting calls f, beside writes whose 99th percentile it returns.
func whileWriting(b testing.TB, sessions record.Sessions, f func() error) (took, p99 time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	writes := make(chan *times)
	go func() {
		var all times
		for first := true; first || ctx.Err() == nil; first = false {
			began := time.Now()
			_ = sessions.Charge(context.WithoutCancel(ctx), began, record.Counter{Key: "acme/bench", Limit: 1 << 30, Window: time.Hour})
			all.add(time.Since(began))
			time.Sleep(time.Millisecond)
		}
		writes <- &all
	}()
	began := time.Now()
	err := f()
	took = time.Since(began)
	cancel()
	all := <-writes
	if err != nil {
		b.Fatal(err)
	}
	return took, all.quantile(.99)
}
