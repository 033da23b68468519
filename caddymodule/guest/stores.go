package guest

import (
	"context"
	"io"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store"
)

// A ClockStore is a Store whose server has a clock of its own.
type ClockStore interface {
	// Clock returns the server's time.
	Clock(context.Context) (time.Time, error)
}

// A FaultyStore is a Store whose server may be set up to lose things.
type FaultyStore interface {
	Faults(context.Context) ([]store.Fault, error)
}

// A PrefixStore is a Store whose keys are beside those of others.
type PrefixStore interface {
	// KeyPrefix is what all its keys begin with.
	KeyPrefix() string
}

// A BackupStore is a Store that can be copied while it is in use.
type BackupStore interface {
	// Backup writes what the store has at this moment, to the writer that begin
	// returns for this many bytes. After an error what was written is of no use.
	Backup(ctx context.Context, begin func(size int64) io.Writer) error
}

// A StoreModule is what a module of the namespaces mnemogate.accounts and
// mnemogate.sessions must be. It is only the configuration of a store: the app
// keeps the store itself, which outlives the config.
type StoreModule interface {
	// Key names the store, and is asked for once the module is provisioned.
	// Configs whose modules have the same key share one store, so a reload
	// keeps it. It begins with the module's name, holds whatever makes a
	// difference, and secrets only hashed.
	Key() string
	// Store makes the store that Key names. It touches neither disk nor
	// network: caddy validate calls it, too.
	Store() (Store, error)
}

// A Store keeps accounts (then it is an AccountsStore), sessions (a
// SessionsStore) or both.
type Store interface {
	// Start makes the store ready for use. The context bounds only the call.
	// It is called by each config that shares the store, and again after it
	// has failed; on one that is ready it does nothing. An error that wraps
	// ErrUnreachable may pass, any other refuses the config.
	Start(context.Context) error
	// Close lets the calls in flight finish, for a few seconds at most, and
	// then gives up all that the store holds. Requests of an old config may
	// still come after it: they get an error.
	Close() error
}

// ErrUnreachable, wrapped by the error of a Store's Start, says that a server
// did not answer, or a disk takes no writes. The config is taken, and requests are answered
// service.unavailable until it does.
var ErrUnreachable = store.ErrUnreachable

// StoreAdvice says what to do about an error of a Store.
func StoreAdvice(err error) string { return store.Advice(err) }

// An AccountsStore keeps accounts.
type AccountsStore interface {
	Store
	Accounts() record.Accounts
}

// A SessionsStore keeps sessions, one-time codes and counters.
type SessionsStore interface {
	Store
	Sessions() record.Sessions
}

// A FeedingStore is a SessionsStore that hears of what ends on other nodes.
// Only the sessions of such a one are remembered.
type FeedingStore interface {
	SessionsStore
	// Run tells feed what it hears, until ctx ends. It copes with a store that
	// can't be reached.
	Run(ctx context.Context, feed record.Feed)
}

// A SharedStore is a SessionsStore that several deployments may use at once. Each
// has an accounts store of its own.
type SharedStore interface {
	SessionsStore
	// SetDeployment names the deployment, whose sessions no other finds. It is
	// called once, before Start; until then the store is not used.
	SetDeployment(name string)
}
