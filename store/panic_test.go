package store

import (
	"context"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A function that panics during a change stores nothing. It releases the connection
// and all locks.
func TestPanicInAChangeLeavesNothingLocked(t *testing.T) {
	for name, open := range map[string]func(*testing.T) record.Accounts{
		"SQLite": func(t *testing.T) record.Accounts { return startSQLite(t, tempFile(t)).Accounts() },
		"PostgreSQL": func(t *testing.T) record.Accounts {
			server := storetest.SharedPostgres(t)
			p, err := OpenPostgres(server.DSN(server.NewSchema(t)), PostgresOptions{MaxConns: 2})
			must(t, err)
			t.Cleanup(func() { _ = p.Close() })
			must(t, p.Start(bg))
			return p.Accounts()
		},
	} {
		t.Run(name, func(t *testing.T) {
			accounts := open(t)
			a := create(t, accounts, someone("acme", "m1"))
			subject := record.FailureKey{Company: "acme", Account: a.ID}
			ctx, cancel := context.WithTimeout(bg, 30*time.Second)
			defer cancel()
			for range 10 { // more than there are connections
				if err := panics.Contain(func() error {
					return accounts.UpdateFailures(ctx, t0, subject, record.WrongCodes, func(*record.FailureCount) error { panic("hunter2") })
				}); err == nil || record.IsAnswer(err) {
					t.Fatalf("got %v, want an error that is no answer", err)
				}
				if err := panics.Contain(func() error {
					_, err := accounts.Update(ctx, "acme", a.ID, func(a *record.Account) (bool, error) {
						a.Role = "changed"
						panic("hunter2")
					})
					return err
				}); err == nil || record.IsAnswer(err) {
					t.Fatalf("got %v, want an error that is no answer", err)
				}
			}
			wantEqual(t, "account", get[record.Account](t)(accounts.ByID(ctx, "acme", a.ID)), a)
			wantEqual(t, "endings", len(endings(t, accounts)), 0)
			must(t, accounts.UpdateFailures(ctx, t0, subject, record.WrongCodes, add(1)))
			_, err := accounts.Update(ctx, "acme", a.ID, func(a *record.Account) (bool, error) { a.Role = "changed"; return false, nil })
			must(t, err)
		})
	}
}
