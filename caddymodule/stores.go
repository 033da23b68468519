package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store"
)

func init() { caddy.RegisterModule(SQLite{}) }

// A StoreGuest is what a module of the namespaces mnemogate.accounts and
// mnemogate.sessions must be. It is only the configuration of a store: the app
// keeps the store itself, which outlives the config.
type StoreGuest interface {
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

// An AccountsStore keeps accounts.
type AccountsStore interface {
	Store
	Accounts() flows.Accounts
}

// A SessionsStore keeps sessions, one-time codes and counters.
type SessionsStore interface {
	Store
	Sessions() flows.Sessions
}

// A FeedingStore is a SessionsStore that hears of what ends on other nodes.
// Only the sessions of such a one are remembered.
type FeedingStore interface {
	SessionsStore
	// Run tells feed what it hears, until ctx ends. It copes with a store that
	// can't be reached.
	Run(ctx context.Context, feed flows.Feed)
}

// stores holds those in use, by key, so that a reload keeps them.
var stores = caddy.NewUsagePool()

// A pooledStore is a store with what the configs that share it have in common:
// what is remembered of its sessions. It closes when no config uses it any more.
type pooledStore struct {
	Store
	module string        // its name, for errors
	memory *flows.Memory // nil if it is no FeedingStore
	feed   sync.Once
	ctx    context.Context // ends with the store
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newPooledStore(module string, s Store) *pooledStore {
	p := &pooledStore{Store: s, module: module}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if feeding, ok := s.(FeedingStore); ok {
		p.memory = flows.NewMemory(timedSessions{feeding.Sessions()}, defaultCache)
	}
	return p
}

// Start starts the store and, once, what feeds its memory.
func (p *pooledStore) Start(ctx context.Context) error {
	err := p.Store.Start(ctx)
	if p.memory != nil && (err == nil || errors.Is(err, ErrUnreachable)) {
		p.feed.Do(func() {
			p.done.Go(p.hear)
		})
	}
	return err
}

// hear feeds the memory until the store closes. After a panic nothing that is
// remembered is believed until it is heard anew.
func (p *pooledStore) hear() {
	for p.ctx.Err() == nil {
		err := flows.Contain(func() error { p.Store.(FeedingStore).Run(p.ctx, p.memory); return nil })
		defect, ok := errors.AsType[*flows.Panic](err)
		if !ok {
			return
		}
		p.memory.Trust(time.Time{})
		p.memory.Flush()
		caddy.Log().Named("mnemogate").Error("a defect of this program, please report it",
			zap.String("doing", "hearing what ends on other nodes"), zap.String("panic", defect.What), zap.String("stack", defect.Stack))
		select {
		case <-p.ctx.Done():
		case <-time.After(startAgainAfter):
		}
	}
}

// Destruct implements caddy.Destructor.
func (p *pooledStore) Destruct() error {
	p.cancel()
	p.done.Wait()
	if p.memory != nil {
		p.memory.Wait()
	}
	return p.Close()
}

// sessions returns the store's, with their memory. It keeps up to cache of them.
func (p *pooledStore) sessions(cache int) (flows.Sessions, bool) {
	if p.memory != nil {
		p.memory.SetLimit(cache)
		return p.memory, true
	}
	keeps, ok := p.Store.(SessionsStore)
	if !ok {
		return nil, false
	}
	return timedSessions{keeps.Sessions()}, true
}

// loadStores takes the stores out of the pool, or puts them there.
func (a *App) loadStores(ctx caddy.Context) error {
	module, err := a.loadAccountsModule(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	main, err := a.use(module)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	accounts, ok := main.Store.(AccountsStore)
	if !ok {
		return fmt.Errorf("store %s: it keeps no accounts; use another module", main.module)
	}
	a.accounts = timedAccounts{accounts.Accounts()}
	if a.SessionsRaw != nil {
		if module, err = ctx.LoadModule(a, "SessionsRaw"); err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
		if main, err = a.use(module); err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
	}
	if a.sessions, ok = main.sessions(a.Cache); !ok {
		return fmt.Errorf("sessions: %s keeps none; say where they are kept, as in sessions redis <url>", main.module)
	}
	return nil
}

func (a *App) loadAccountsModule(ctx caddy.Context) (any, error) {
	if a.StoreRaw == nil {
		return ctx.LoadModuleByID(string(SQLite{}.CaddyModule().ID), nil)
	}
	return ctx.LoadModule(a, "StoreRaw")
}

// use returns the store of a guest module, and notes that it has to be given
// back.
func (a *App) use(module any) (*pooledStore, error) {
	name := module.(caddy.Module).CaddyModule().ID.Name()
	guest, ok := module.(StoreGuest)
	if !ok {
		return nil, fmt.Errorf("the module %s is no store; use another", name)
	}
	key := guest.Key()
	value, _, err := stores.LoadOrNew(key, func() (caddy.Destructor, error) {
		made, err := guest.Store()
		return newPooledStore(name, made), err
	})
	if err != nil {
		return nil, err
	}
	a.storeKeys = append(a.storeKeys, key)
	used := value.(*pooledStore)
	a.stores = append(a.stores, used)
	return used, nil
}

// giveBack releases the stores. The last config to do so closes them.
func (a *App) giveBack() error {
	var errs []error
	for _, key := range a.storeKeys {
		_, err := stores.Delete(key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// SQLite keeps accounts, and sessions where `sessions` names no other store, in
// one file: for a single machine, with nothing to install. Several processes
// may use the file at once. What was acknowledged survives a crash and power
// loss.
type SQLite struct {
	// The file. It and its directory are created if they are missing, for this
	// user alone. Two more files are kept beside it. May contain placeholders
	// like {env.NAME}. Default: `mnemogate/mnemogate.db` in Caddy's data
	// directory.
	File string `json:"file,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (SQLite) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.sqlite", New: func() caddy.Module { return new(SQLite) }}
}

// UnmarshalCaddyfile takes the file. Syntax:
//
//	sqlite [<file>]
func (s *SQLite) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		s.File = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	return guestOptions(d, nil)
}

// Provision finds the file's place. It does not touch it.
func (s *SQLite) Provision(caddy.Context) (err error) {
	if s.File == "" {
		s.File = filepath.Join(caddy.AppDataDir(), "mnemogate", "mnemogate.db")
	} else if s.File, err = resolveGiven("store sqlite", s.File); err != nil {
		return err
	}
	s.File, err = filepath.Abs(s.File)
	return err
}

// Key implements StoreGuest.
func (s *SQLite) Key() string { return "sqlite:" + s.File }

// Store implements StoreGuest.
func (s *SQLite) Store() (Store, error) { return store.OpenSQLite(s.File), nil }

// Interface guards
var (
	_ StoreGuest            = (*SQLite)(nil)
	_ caddy.Provisioner     = (*SQLite)(nil)
	_ caddyfile.Unmarshaler = (*SQLite)(nil)
	_ AccountsStore         = (*store.SQLite)(nil)
	_ FeedingStore          = (*store.SQLite)(nil)
)
