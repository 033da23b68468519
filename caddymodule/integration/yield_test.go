package integration

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
)

// While any number of calls to the accounts API wait for PostgreSQL, users log in.
func TestAFloodOfTheAccountsAPIHoldsUpNoLogin(t *testing.T) {
	t.Parallel()
	shared := sharedServers(t)
	start := func(_ *testing.T, c siteConfig) *site { return shared.start(c, shared.direct()) }
	s := accountsSite(t, start, allKeys, siteConfig{company: account("alice", "") + account("bob", "")})
	s.login("alice")
	locker := get(pgx.Connect(t.Context(), shared.postgres.DSN(shared.schema)))(t)
	defer locker.Close(t.Context())
	get(locker.Exec(t.Context(), "BEGIN"))(t)
	get(locker.Exec(t.Context(), "SELECT FROM accounts WHERE mnemocode = 'bob' FOR UPDATE"))(t)
	var flood sync.WaitGroup
	for range 40 {
		flood.Go(func() { s.api(keyOfAll, "PATCH", "acme/accounts/bob", fields{"role": "editor"}) })
	}
	s.eventually("calls that wait for the lock", func() bool {
		var waiting int
		err := locker.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting)
		return err == nil && waiting >= 4
	})
	for range 5 {
		s.credentials("alice", testPassword).wantState(record.Authorized)
	}
	get(locker.Exec(t.Context(), "ROLLBACK"))(t)
	flood.Wait()
	s.api(keyOfAll, "PATCH", "acme/accounts/bob", fields{"role": "editor"}).wantStatus(200)
}
