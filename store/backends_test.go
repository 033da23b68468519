package store

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/fake"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// startSQLite starts a store in a file and closes it when the test ends. The test
// fails if a statement that was run reads a whole table.
func startSQLite(t testing.TB, file string) *sqlite.Store {
	t.Helper()
	s := sqlite.Open(file)
	must(t, s.Start(bg))
	t.Cleanup(func() {
		statements, err := s.Statements(bg)
		must(t, err)
		recordtest.WantNoScans(t, file, statements)
		must(t, s.Close())
	})
	return s
}

func tempFile(t testing.TB) string { return filepath.Join(t.TempDir(), "test.db") }

func sqliteAccountNodes(t *testing.T) (one, two record.Accounts) {
	file := tempFile(t)
	return startSQLite(t, file).Accounts(), startSQLite(t, file).Accounts()
}

func sqliteSessionNodes(t *testing.T) (one, two record.Sessions) {
	file := tempFile(t)
	return startSQLite(t, file).Sessions(), startSQLite(t, file).Sessions()
}

// patientRedis opens a store that waits longer, because a busy machine, or Lua with the race
// detector, can stop a race for longer than an attempt may take.
func patientRedis(t testing.TB, o redis.Options) *redis.Store {
	t.Helper()
	r, err := redis.OpenWithin(redis.Limits{Attempt: 30 * time.Second, Call: time.Minute, Replicas: 10 * time.Second}, o)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func redisNodes(t *testing.T) (one, two record.Sessions) {
	s := storetest.SharedRedis(t)
	node := func() record.Sessions {
		return inTime{patientRedis(t, redis.Options{URLs: []string{s.URL()}}).Sessions(), []*goredis.Client{s.Client(t)}}
	}
	return node(), node()
}

func redisClusterNodes(t *testing.T) (one, two record.Sessions) {
	c := storetest.SharedCluster(t)
	var servers []*goredis.Client
	for _, s := range c {
		servers = append(servers, s.Client(t))
	}
	node := func() record.Sessions {
		return inTime{patientRedis(t, redis.Options{URLs: c.URLs()}).Sessions(), servers}
	}
	return node(), node()
}

func redisSentinelNodes(t *testing.T) (one, two record.Sessions) {
	f := storetest.SharedFailover(t)
	node := func() record.Sessions {
		r := patientRedis(t, redis.Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
		return inTime{r.Sessions(), []*goredis.Client{f.Master.Client(t)}}
	}
	return node(), node()
}

// inTime is Redis with the clock of the tests: Sweep also deletes the keys that Redis
// would have deleted by then. It takes t0 as the start of the test.
type inTime struct {
	record.Sessions
	servers []*goredis.Client
}

func (s inTime) Sweep(ctx context.Context, now time.Time) error {
	if err := s.Sessions.Sweep(ctx, now); err != nil {
		return err
	}
	// The test has really been running for less than 50 s.
	passed := now.Sub(t0) - 50*time.Second
	for _, server := range s.servers {
		if err := forgetOld(ctx, server, passed); err != nil {
			return err
		}
	}
	return nil
}

func forgetOld(ctx context.Context, server *goredis.Client, passed time.Duration) error {
	keys, err := server.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		left, err := server.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		if left < 0 {
			return fmt.Errorf("%q would stay for ever", key)
		}
		if left <= passed {
			if err := server.Del(ctx, key).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pgStatements collects the statements that the tests run.
var pgStatements recordtest.StatementLog

func startPostgres(t testing.TB, dsn string, options postgres.Options) *postgres.Store {
	t.Helper()
	options.Tracer = &pgStatements
	p, err := postgres.Open(dsn, options)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	storetest.Started(t, p.Start)
	return p
}

func postgresAccountNodes(t *testing.T) (one, two record.Accounts) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	t.Cleanup(func() { pgStatements.WantIndexes(t, dsn) })
	return startPostgres(t, dsn, postgres.Options{}).Accounts(), startPostgres(t, dsn, postgres.Options{}).Accounts()
}

// miniredisNodes run the scripts in a Redis that is written in Go.
func miniredisNodes(t *testing.T) (one, two record.Sessions) {
	storetest.NeedMiniredis(t)
	m := miniredis.NewMiniRedis()
	t.Cleanup(m.Close)
	server := goredis.NewClient(&goredis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	t.Cleanup(func() { must(t, server.Close()) })
	node := func() record.Sessions {
		return inTime{patientRedis(t, redis.Options{URLs: []string{"redis://miniredis"}, Dial: storetest.DialMiniredis(m.Dial)}).Sessions(), []*goredis.Client{server}}
	}
	return node(), node()
}

func fakeAccountNodes(*testing.T) (one, two record.Accounts) {
	var s fake.Accounts
	return s.Through(fake.Direct), s.Through(fake.Direct)
}

func fakeSessionNodes(*testing.T) (one, two record.Sessions) {
	var s fake.Sessions
	return s.Through(fake.Direct), s.Through(fake.Direct)
}
