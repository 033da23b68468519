package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/manage"
)

// backedUp is the time of the last backup, in seconds since 1970, or 0 if there was
// none.
var backedUp atomic.Int64

// Backup writes a copy of the accounts store, as documented at guest.BackupStore. If
// the store can't be backed up, it returns a *manage.Error.
func (a *App) Backup(ctx context.Context, begin func(size int64) io.Writer) error {
	kept := a.stores[0] // the accounts store
	store, ok := kept.Store.(guest.BackupStore)
	if !ok {
		why := fmt.Sprintf("the store %s can't be backed up from here: use its own means", kept.Module)
		if kept.Module == "postgres" {
			why = "the accounts are in PostgreSQL: back that up by its own means, as with pg_dump; Redis needs none"
		}
		return &manage.Error{Status: http.StatusBadRequest, Message: why}
	}
	at := time.Now()
	if err := store.Backup(ctx, begin); err != nil {
		return noteDamage(err)
	}
	backedUp.Store(at.Unix())
	return nil
}

// BackedUp returns when this process last made a backup, which finds any damage. If there was
// none, it returns 1970.
func BackedUp() time.Time { return time.Unix(backedUp.Load(), 0) }

// CheckStore checks the accounts store, as documented at guest.CheckedStore, unless a check
// that began after since has found it sound. It reports whether the store can be checked.
func (a *App) CheckStore(ctx context.Context, since time.Time) (checked bool, err error) {
	store, ok := a.stores[0].Store.(guest.CheckedStore)
	if !ok {
		return false, nil
	}
	at := time.Now()
	if last := a.checked.Load(); last != nil && last.After(since) {
		return true, nil
	}
	if err := store.Check(ctx); err != nil {
		a.checked.Store(nil)
		return true, noteDamage(err)
	}
	a.checked.Store(&at)
	return true, nil
}
