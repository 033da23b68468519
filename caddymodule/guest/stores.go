package guest

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A ClockStore is a Store whose server has its own clock.
type ClockStore interface {
	// Clock returns the server's time.
	Clock(context.Context) (time.Time, error)
}

// A FaultyStore is a Store whose server may be configured so that it loses data or is open
// to others.
type FaultyStore interface {
	// Faults returns these settings. An error means that the server did not answer.
	Faults(context.Context) ([]record.Fault, error)
}

// A PlacedStore is a Store that says where its data are.
type PlacedStore interface {
	// Place returns the file, or the host and the database, and which keys there are the
	// deployment's, without secrets. It also reports whether Start found nothing there and
	// began anew.
	Place() (place string, created bool)
}

// A CheckedStore is a Store that can tell whether its data are whole.
type CheckedStore interface {
	// Check writes as much as many requests do, and reads all data. Its error wraps
	// record.ErrDamaged if data are damaged or missing. It may take minutes.
	Check(context.Context) error
}

// A BackupStore is a Store that can be copied while it is in use.
type BackupStore interface {
	// Backup writes a snapshot of the store to the writer that begin returns. It
	// calls begin with the size in bytes. If it returns an error, discard what was
	// written.
	Backup(ctx context.Context, begin func(size int64) io.Writer) error
}

// A StoreModule is a module in the namespaces mnemogate.accounts and
// mnemogate.sessions. It is only the configuration of a store. The app holds the
// store itself, which outlives the config.
type StoreModule interface {
	// Key identifies the store among those of the module. It is called after the module is
	// provisioned, also by caddy validate. Configs with the same key share one store, so a
	// reload keeps the store open. The key includes every setting that makes a difference,
	// with secrets only as hashes.
	Key() string
	// Store creates the store that Key identifies. It must not use the disk or the
	// network, since caddy validate calls it, too.
	Store() (Store, error)
}

// A Store keeps accounts (an AccountsStore), sessions (a SessionsStore) or both.
type Store interface {
	// Start makes the store ready for use. The context limits only this call, and has no
	// deadline, so Start gives up by itself after some seconds. Each config that shares the
	// store calls Start, and calls it again after an error, also concurrently and during
	// calls of other methods. On a store that is ready it does nothing. After Close it fails.
	// If its error wraps record.ErrUnreachable, the config is accepted, unless one runs whose
	// other stores answer, and requests get service.unavailable until Start succeeds. Any
	// other error makes the config invalid.
	Start(context.Context) error
	// Close waits a few seconds at most for calls in flight, and then releases
	// everything that the store holds. Calls from requests of an old config may
	// still arrive later and must return an error.
	Close() error
}

// StoreLog returns a logger with this name for a store. A store outlives the config
// that created it, so each record goes to the default log of the running config.
func StoreLog(name string) *slog.Logger {
	gate := logs.NewGate()
	return slog.New(runningLog(func() slog.Handler {
		return zapslog.NewHandler(gate.Bound(caddy.Log().Core()), zapslog.WithName(name))
	}))
}

// A runningLog returns the handler for the next record.
type runningLog func() slog.Handler

// Enabled implements slog.Handler.
func (l runningLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l().Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l runningLog) Handle(ctx context.Context, r slog.Record) error { return l().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (l runningLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return runningLog(func() slog.Handler { return l().WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (l runningLog) WithGroup(name string) slog.Handler {
	return runningLog(func() slog.Handler { return l().WithGroup(name) })
}

// An AccountsStore keeps accounts.
type AccountsStore interface {
	Store
	// Accounts returns the accounts. It may be called before Start, and more than once.
	// Until Start has succeeded, the methods of the accounts may fail.
	Accounts() record.Accounts
}

// A SessionsStore keeps sessions, one-time codes and counters.
type SessionsStore interface {
	Store
	// Sessions is Accounts for the sessions.
	Sessions() record.Sessions
}

// A FeedingStore is a SessionsStore that receives revocations from other nodes. A
// node keeps sessions in memory only if their store is a FeedingStore.
type FeedingStore interface {
	SessionsStore
	// Run passes what it receives to feed. It must handle a store that can't be reached, and
	// return only when ctx has ended: it is not called again.
	Run(ctx context.Context, feed record.Feed)
}

// An ObservedStore is a Store whose calls are measured and traced. The Store itself, and not
// its Accounts or Sessions, becomes one by embedding a record.Observed.
type ObservedStore interface {
	// Observe sets the function that the store calls when a call has ended. It is called
	// once, before any other use of the store.
	Observe(record.Observer)
}

// A SharedStore is a SessionsStore that several deployments can use at once. Each of
// them has its own accounts store.
type SharedStore interface {
	SessionsStore
	// SetDeployment sets the name of the deployment. Other deployments cannot find
	// its sessions. It is called once, before Start and before any other use of the
	// store.
	SetDeployment(name string)
}
