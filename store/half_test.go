package store

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// However many calls of the accounts API wait, they leave half of the connections to
// users.
func TestYieldingCallsLeaveHalfOfThePostgresConnections(t *testing.T) {
	server := storetest.SharedPostgres(t)
	dsn := server.DSN(server.NewSchema(t))
	p, other := startPostgres(t, dsn, PostgresOptions{MaxConns: 4}), startPostgres(t, dsn, PostgresOptions{})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	locker, err := other.pool.Acquire(bg)
	must(t, err)
	defer locker.Release()
	tx, err := locker.Begin(bg)
	must(t, err)
	_, err = tx.Exec(bg, "SELECT FROM accounts FOR UPDATE")
	must(t, err)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { _ = p.Accounts().Delete(record.Yielding(bg), "acme", a.ID) })
	}
	storetest.Eventually(t, 10*time.Second, "calls that wait for the lock", func() bool { return len(p.half) == 2 })
	time.Sleep(100 * time.Millisecond)
	wantEqual(t, "connections in use", p.pool.Stat().AcquiredConns(), 2)
	get[record.Account](t)(p.Accounts().ByID(bg, "acme", a.ID))
	must(t, tx.Rollback(bg))
	calls.Wait()
	wantErr(t, "ByID", second(p.Accounts().ByID(bg, "acme", a.ID)), record.ErrNotFound)
}

func TestYieldingCallsLeaveHalfOfTheSQLiteReaders(t *testing.T) {
	s := startSQLite(t, tempFile(t))
	var running atomic.Int32
	release := make(chan struct{})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			_ = s.reading(record.Yielding(bg), func(context.Context, queries) error {
				running.Add(1)
				<-release
				return nil
			})
		})
	}
	storetest.Eventually(t, 10*time.Second, "calls that read", func() bool { return running.Load() == sqliteReadConns/2 })
	time.Sleep(100 * time.Millisecond)
	wantEqual(t, "calls that read", running.Load(), int32(sqliteReadConns/2))
	must(t, s.reading(bg, func(context.Context, queries) error { return nil }))
	close(release)
	calls.Wait()
	wantEqual(t, "calls that read", running.Load(), int32(20))
}
