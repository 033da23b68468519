package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/assertion"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/memory"
)

// stores holds the stores in use by key, so that a reload keeps them.
var stores = caddy.NewUsagePool()

var storeLog = guest.StoreLog("mnemogate")

// A PooledStore is a store with its memory of sessions. All configs that use the
// store share it. It closes when the last of them has released it.
type PooledStore struct {
	guest.Store
	Module string // its name

	key    string         // in stores
	memory *memory.Memory // nil unless the store is a guest.FeedingStore
	naming sync.Mutex     // guards named
	named  bool           // the deployment is set, if the store is a guest.SharedStore
	feed   sync.Once
	keys   *assertion.Keyring // nil unless the store keeps accounts
	node   session.Node       // if the store keeps the accounts
	ctx    context.Context    // ends when the store closes
	cancel context.CancelFunc
	done   sync.WaitGroup

	warnings background.Warnings
}

func newPooledStore(key, module string, s guest.Store, cache int) *PooledStore {
	p := &PooledStore{Store: s, key: key, Module: module}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if observed, ok := s.(guest.ObservedStore); ok {
		observed.Observe(observeCall)
	}
	if feeding, ok := s.(guest.FeedingStore); ok {
		p.memory = memory.New(feeding.Sessions(), cache)
		p.memory.Untouched = p.warner("a session could not be extended, and continues until it expires")
	}
	if keeps, ok := s.(guest.AccountsStore); ok {
		p.keys = &assertion.Keyring{
			Accounts: keeps.Accounts(), Now: time.Now,
			Failed: p.warner("the keys that sign assertions can't be read or rotated, and the known ones remain in use"),
		}
	}
	return p
}

// Start starts the store and, once, the feed of its memory. The accounts store must
// have been started before, because it holds the deployment's name.
func (p *PooledStore) Start(ctx context.Context, accounts record.Accounts) error {
	if err := p.nameDeployment(ctx, accounts); err != nil {
		return err
	}
	err := p.Store.Start(ctx)
	if p.memory != nil && (err == nil || errors.Is(err, record.ErrUnreachable)) {
		p.feed.Do(func() {
			p.done.Go(p.receive)
		})
	}
	return err
}

// nameDeployment gives a guest.SharedStore the name of the deployment, which only
// the accounts store holds.
func (p *PooledStore) nameDeployment(ctx context.Context, accounts record.Accounts) error {
	shared, ok := p.Store.(guest.SharedStore)
	p.naming.Lock()
	defer p.naming.Unlock()
	if !ok || p.named {
		return nil
	}
	name, err := store.Deployment(ctx, accounts)
	if err != nil {
		return fmt.Errorf("%w: asking which deployment this is: %w", record.ErrUnreachable, err)
	}
	shared.SetDeployment(name)
	p.named = true
	return nil
}

// receive feeds the memory until the store closes. After a panic it empties the memory, and
// then subscribes again.
func (p *PooledStore) receive() {
	subscribe := func() bool {
		err := panics.Contain(func() error {
			p.Store.(guest.FeedingStore).Run(p.ctx, leasedFeed{p.memory})
			return nil
		})
		p.memory.SetLease(time.Time{}) // nobody receives any more
		panicked, ok := errors.AsType[*panics.Error](err)
		if ok {
			p.memory.Flush()
			panicked.Log(storeLog, "doing", "receiving revocations") // last, as a log may stall
		}
		return !ok
	}
	if !subscribe() {
		retry(p.ctx, StartAgainAfter, subscribe)
	}
}

// A leasedFeed is a memory that relies on a store's Run for record.FeedLease at most.
type leasedFeed struct{ *memory.Memory }

// SetLease implements record.Feed.
func (f leasedFeed) SetLease(until time.Time) {
	f.Memory.SetLease(time.Now().Add(min(time.Until(until), record.FeedLease)))
}

// warner returns a function that logs an error with this message.
func (p *PooledStore) warner(message string) func(error) {
	return func(err error) { p.warnings.Warn(storeLog, message, "error", err) }
}

// Destruct implements caddy.Destructor.
func (p *PooledStore) Destruct() error {
	p.cancel()
	p.done.Wait()
	if p.memory != nil {
		p.memory.Wait()
	}
	return p.Close()
}

// sessions returns the session store, wrapped in its memory if it has one.
func (p *PooledStore) sessions() (record.Sessions, bool) {
	if p.memory != nil {
		return p.memory, true
	}
	keeps, ok := p.Store.(guest.SessionsStore)
	if !ok {
		return nil, false
	}
	return keeps.Sessions(), true
}

// loadStores takes the stores from the pool, or adds them to it.
func (a *App) loadStores(ctx caddy.Context) error {
	module, err := a.loadAccountsModule(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	main, err := a.use("store", module, "")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	accounts, ok := main.Store.(guest.AccountsStore)
	if !ok {
		return fmt.Errorf("store %s: it keeps no accounts; use another module", main.Module)
	}
	a.accounts = accounts.Accounts()
	if a.SessionsRaw != nil {
		if module, err = ctx.LoadModule(a, "SessionsRaw"); err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
		if main, err = a.use("sessions", module, " of "+main.key); err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
	}
	if a.sessions, ok = main.sessions(); !ok {
		return fmt.Errorf("sessions: %s keeps none; say where they are kept, as in sessions redis <url>", main.Module)
	}
	return nil
}

func (a *App) loadAccountsModule(ctx caddy.Context) (any, error) {
	if a.StoreRaw == nil {
		return ctx.LoadModuleByID("mnemogate.accounts.sqlite", nil)
	}
	return ctx.LoadModule(a, "StoreRaw")
}

// use returns the store of a module and records that it must be released. A module
// with the same key but another value of more gets a store of its own.
func (a *App) use(directive string, module any, more string) (*PooledStore, error) {
	name := module.(caddy.Module).CaddyModule().ID.Name()
	g, ok := module.(guest.StoreModule)
	if !ok {
		return nil, fmt.Errorf("the module %s is not a store; use another", name)
	}
	key := name + " " + g.Key() + more
	value, _, err := stores.LoadOrNew(key, func() (caddy.Destructor, error) {
		made, err := g.Store()
		if err != nil {
			return nil, err
		}
		return newPooledStore(key, name, made, a.Cache), nil
	})
	if err != nil {
		return nil, err
	}
	a.guests = append(a.guests, Guest{directive, module})
	used := value.(*PooledStore)
	a.stores = append(a.stores, used)
	return used, nil
}

// Stores returns the stores in use.
func (a *App) Stores() []*PooledStore { return a.stores }

// SharesStores reports whether two configs have the same stores.
func (a *App) SharesStores(other *App) bool { return slices.Equal(a.stores, other.stores) }

// releaseStores releases the stores. The last config to do so closes them.
func (a *App) releaseStores() error {
	var errs []error
	for _, s := range a.stores {
		_, err := stores.Delete(s.key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
