package app

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// backedUp is when the last backup was taken, in seconds since 1970; 0 for never.
var backedUp atomic.Int64

// A NoBackupError says that a store can't be copied by this program.
type NoBackupError struct{ Module string }

func (e *NoBackupError) Error() string {
	if e.Module == "postgres" {
		return "the accounts are in PostgreSQL: back that up by its own means, as with pg_dump; Redis needs none"
	}
	return fmt.Sprintf("the store %s can't be backed up from here: use its own means", e.Module)
}

// Backup writes a copy of the accounts store, as guest.BackupStore says. It fails
// with a NoBackupError where that can't be.
func (a *App) Backup(ctx context.Context, begin func(size int64) io.Writer) error {
	kept := a.stores[0] // the accounts'
	store, ok := kept.Store.(guest.BackupStore)
	if !ok {
		return &NoBackupError{kept.module}
	}
	at := time.Now()
	if err := store.Backup(ctx, begin); err != nil {
		return err
	}
	backedUp.Store(at.Unix())
	return nil
}
