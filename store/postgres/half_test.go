package postgres

import (
	"sync"
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
	p, other := startStore(t, dsn, Options{MaxConns: 4}), startStore(t, dsn, Options{})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	locker, err := other.pool.Acquire(bg)
	must(t, err)
	defer locker.Release()
	tx, err := locker.Begin(bg)
	must(t, err)
	must(t, second(tx.Exec(bg, "SELECT FROM accounts FOR UPDATE")))
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { _ = p.Accounts().Delete(record.Yielding(bg), "acme", a.ID, nil) })
	}
	storetest.Eventually(t, 10*time.Second, "calls that wait for the lock", func() bool { return len(p.half) == 2 && p.pool.Stat().AcquiredConns() == 2 })
	time.Sleep(100 * time.Millisecond)
	wantEqual(t, "connections in use", p.pool.Stat().AcquiredConns(), 2)
	get[record.Account](t)(p.Accounts().ByID(bg, "acme", a.ID))
	must(t, tx.Rollback(bg))
	calls.Wait()
	wantErr(t, "ByID", second(p.Accounts().ByID(bg, "acme", a.ID)), record.ErrNotFound)
}
