// Package app holds the configuration of mnemogate: the companies, read from a
// Caddyfile or JSON, and the stores that they share. It also emits the events and
// metrics. Start at App. See company.go for the settings of a company, package
// policy for the policies, and stores.go for stores that outlive a configuration.
// This package imports no plugin; Caddy finds plugins by name.
package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"golang.org/x/sync/singleflight"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/hashing"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/assertion"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/memory"
)

func init() { caddy.RegisterModule(new(App)) }

const (
	// StartAgainAfter is how long to wait before a failed start is tried again. Each
	// try may take a store's whole timeout.
	StartAgainAfter = time.Second
	// startWait is how long a request waits for a start.
	startWait = 1800 * time.Millisecond
	// seedAgainAfter is how long to wait before configured accounts are created
	// again that the store could not take.
	seedAgainAfter = 5 * time.Second
	// A config that was replaced keeps its stores while its requests are served: for
	// keepAtLeast, which is how long the old server waits for the first request of a new
	// connection (http.Server.Shutdown), and then for keepAtMost at most.
	keepAtLeast  = 5 * time.Second
	keepAtMost   = time.Minute
	defaultCache = 250_000

	// validated is the cause with which caddy validate cancels the context of a
	// valid configuration. It never starts the apps of such a configuration, and
	// tells them in no other way that it is valid. If Caddy changes the text, caddy
	// validate no longer warns of an app that no site uses.
	validated = "validation complete"

	defaultAuditKeep = caddy.Duration(30 * 24 * time.Hour)
	minAuditKeep     = caddy.Duration(time.Hour)
)

// App is the authentication service: the companies, their policies, and what they
// share. The handler `mnemogate` puts it in front of an application.
type App struct {
	// Where accounts are stored. Sessions are stored there, too, unless `sessions`
	// is set. Default: `sqlite` with its default file.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=mnemogate.accounts inline_key=module"`

	// Where sessions, one-time codes and counters are stored. Required if the
	// accounts store can't keep sessions. Default: the accounts store.
	SessionsRaw json.RawMessage `json:"sessions,omitempty" caddy:"namespace=mnemogate.sessions inline_key=module"`

	// The most authorized sessions that this node remembers, so that it need not
	// read them from the store for each request. A session takes about 160 bytes,
	// allocated when it is first used. The least recently used sessions are
	// forgotten first. 1000 to 100000000; a smaller number than before takes effect at the
	// next restart. Default: 250000.
	Cache int `json:"cache,omitempty"`

	// How long events stay in the history of an account; at least `1h`. Each account
	// keeps its newest hundred events of the kinds that strangers can cause, the newest
	// twenty of each kind that a user's session can repeat, and the newest hundred of the
	// others. Default: `30d`.
	AuditKeep caddy.Duration `json:"audit_keep,omitempty"`

	// The policies that companies inherit.
	policy.Policy

	// The companies by code. The code is the first segment of the paths of the
	// company's routes: 1 to 64 letters, digits, `_` and `-`. At least one company
	// is required.
	Companies map[string]*Company `json:"companies,omitempty"`

	// The line of each option in the Caddyfile that this JSON was adapted from, for
	// errors and warnings. Leave it out of JSON that you write yourself.
	Source guest.Source `json:"source,omitempty"`

	log         *slog.Logger
	warnings    background.Warnings
	ctx         context.Context // ends when the config is unloaded
	cancel      context.CancelFunc
	storage     func() certmagic.Storage
	stores      []*PooledStore // in use; the first keeps the accounts
	guests      []Guest        // the store modules
	accounts    record.Accounts
	sessions    record.Sessions
	watcher     *watcher
	startCalled bool // Start was called
	sites

	service  atomic.Pointer[flows.Service] // nil until it has started
	starting singleflight.Group            // has one start; guards failed and failedAt
	failed   error
	failedAt time.Time
	workers  sync.WaitGroup
	calls    atomic.Int64              // how many callers use the service now
	checked  atomic.Pointer[time.Time] // when the last check of the accounts store began; nil if it failed
	health   health
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate", New: func() caddy.Module { return new(App) }}
}

// hasher is shared by all configs, because it limits the load on the machine. Its
// size is known only after Caddy has set GOMAXPROCS.
var hasher = sync.OnceValue(func() *password.Hasher {
	h := password.NewHasher(0)
	h.Waited = hashWaited
	h.Derive = hashing.New(h.Slots(), func(err error) {
		step := "let it start itself"
		if causes.Of(err) == causes.NoFiles {
			step = causes.Steps{}.Step(err)
		}
		guest.StoreLog("mnemogate").Warn("passwords are hashed in this process, where logins slow other requests down,"+
			" since no other can be started; "+step, "error", err)
	}).Derive
	return h
})

// Provision resolves secrets, loads the plugins and works out the settings of each
// company. It reads the files that the configuration names. It does not use the
// databases or the network.
func (a *App) Provision(ctx caddy.Context) error { return a.Source.At(a.provision(ctx)) }

func (a *App) provision(ctx caddy.Context) error {
	a.log = logs.Slog(ctx)
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.Cache = cmp.Or(a.Cache, defaultCache)
	a.AuditKeep = cmp.Or(a.AuditKeep, defaultAuditKeep)
	if err := a.Policy.Load(ctx); err != nil {
		return err
	}
	for code, c := range a.Sorted() {
		if c == nil {
			return fmt.Errorf("company %s: it is null; leave it out, or configure it", code)
		}
		if err := c.provision(ctx, code, &a.Policy); err != nil {
			return fmt.Errorf("company %s: %w", code, err)
		}
	}
	a.watcher = newWatcher(ctx)
	a.storage = ctx.Storage
	a.sites = sites{servers: map[*caddyhttp.Server]bool{}, keyNames: map[[sha256.Size]byte]string{}}
	if err := a.registerMetrics(ctx); err != nil {
		return err
	}
	return a.loadStores(ctx)
}

// Sorted yields the companies in the order of their codes, so that the same
// configuration always reports the same mistake first.
func (a *App) Sorted() iter.Seq2[string, *Company] {
	return func(yield func(string, *Company) bool) {
		for _, code := range slices.Sorted(maps.Keys(a.Companies)) {
			if !yield(code, a.Companies[code]) {
				return
			}
		}
	}
}

// Validate refuses settings that can't work or that a standard forbids. It warns of
// weak ones.
func (a *App) Validate() error {
	if err := a.check(); err != nil {
		return a.Source.At(err)
	}
	a.warn(a.Weaknesses())
	return nil
}

func (a *App) check() error {
	if len(a.Companies) == 0 {
		return errors.New("company is missing; add at least one")
	}
	if a.Cache < 1000 || a.Cache > 100_000_000 {
		return errors.New("cache: choose 1000 to 100000000 sessions")
	}
	if a.AuditKeep < minAuditKeep {
		return errors.New("audit_keep: choose at least 1h")
	}
	if err := a.Policy.Check(); err != nil {
		return err
	}
	for code, c := range a.Sorted() {
		if err := c.check(&a.Policy); err != nil {
			return fmt.Errorf("company %s: %w", code, err)
		}
	}
	return nil
}

func (a *App) warn(found []Weakness) {
	for _, w := range found {
		args := []any{"directive", w.Directive, "advice", w.Advice}
		if w.At != "" {
			args = append(args, "at", w.At)
		}
		if w.Company != "" {
			args = append(args, "company", w.Company)
		}
		a.log.Warn(w.Directive+": "+w.Message, args...)
	}
}

// Start makes the service ready. If a store can't be reached, the config still loads, and
// Start tries again in the background. It does not wait for a request, because a crash may
// have left sessions to revoke. But if a config runs whose stores are others, and answer, the
// new one fails to load: its store's address or password may be wrong.
func (a *App) Start() error {
	a.startCalled = true
	exitDespiteLogs()
	a.Note(a.unused())
	_, err := a.started(a.ctx)
	if errors.Is(err, record.ErrUnreachable) {
		if old := Running(); old != nil && !a.SharesStores(old) && old.answers() {
			return fmt.Errorf("the config that runs stays, because a store of the new one can't be used: %w", err)
		}
		a.log.Error("a store can't be reached; until it can, requests are answered service.unavailable", "error", err)
		a.workers.Go(func() {
			if retry(a.ctx, StartAgainAfter, func() bool { _, err := a.started(a.ctx); return err == nil }) {
				a.log.Info("all stores can be reached now")
			}
		})
		return nil
	}
	return err
}

// Stop does nothing. Caddy stops the apps in random order, so the handler may still
// have requests. Caddy calls Cleanup after all apps have stopped.
func (a *App) Stop() error { return nil }

// Cleanup stops the background work and then releases the stores. A store closes
// when the last config that uses it has released it.
func (a *App) Cleanup() error {
	if cause := context.Cause(a.ctx); cause != nil && cause.Error() == validated {
		a.warn(a.unused())
	}
	a.cancel()
	_, _ = a.started(context.Background()) // waits for a start in progress; later ones fail
	a.workers.Wait()
	service := a.service.Load()
	if service == nil {
		return a.releaseStores()
	}
	a.watcher.wait()
	if caddy.Exiting() {
		service.Close()
		replaced.Wait()
		return a.releaseStores()
	}
	// Caddy does not wait for requests in progress, and a reload must not wait for
	// gateways.
	replaced.Go(func() {
		a.drain()
		service.Close()
		if err := a.releaseStores(); err != nil {
			a.log.Error("a store was not closed", "error", err)
		}
	})
	return nil
}

// replaced waits for the configs that a reload has replaced, and their messages on the way.
var replaced sync.WaitGroup

// IsReplaced reports whether a reload has replaced the config, or Caddy stops. Running then
// returns a later app, or nil.
func (a *App) IsReplaced() bool { return a.ctx.Err() != nil }

// BeginCall begins a use of the service, which may outlast the config. The caller must
// call EndCall afterwards.
func (a *App) BeginCall() { a.calls.Add(1) }

// EndCall ends a use of the service.
func (a *App) EndCall() { a.calls.Add(-1) }

// Later runs f in the background, as a use of the service.
func (a *App) Later(f func()) {
	a.BeginCall()
	go func() {
		defer a.EndCall()
		_ = panics.ContainLogged(a.log, "keeping an answer", func() error {
			f()
			return nil
		})
	}()
}

// drain waits for keepAtLeast, and then until the service is no longer in use, for keepAtMost
// at most. It ends at once if Caddy exits.
func (a *App) drain() {
	for began := time.Now(); !caddy.Exiting(); {
		if used := time.Since(began); used > keepAtLeast && (a.calls.Load() == 0 || used > keepAtLeast+keepAtMost) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Service returns the started service. Requests may arrive before Start, so the
// first call starts it. If that fails, later calls try again. If the start takes
// longer than startWait, Service returns an error and the start continues.
func (a *App) Service(ctx context.Context) (*flows.Service, error) {
	if service := a.service.Load(); service != nil {
		return service, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, errStarting)
	defer cancel()
	return a.started(ctx)
}

var errStarting = fmt.Errorf("%w: the start takes long and continues", record.ErrUnreachable)

// started waits for the service to start. All callers share one start. After a
// failure it does not try again at once.
func (a *App) started(ctx context.Context) (*flows.Service, error) {
	start := a.starting.DoChan("", func() (any, error) {
		if service := a.service.Load(); service != nil || a.failed != nil && time.Since(a.failedAt) < StartAgainAfter {
			return service, a.failed
		}
		// Don't use the caller's context: other callers wait for this start, too.
		a.failed = panics.ContainLogged(a.log, "starting", func() error { return a.start(a.ctx) })
		a.failedAt = time.Now()
		return a.service.Load(), a.failed
	})
	select {
	case result := <-start:
		return result.Val.(*flows.Service), result.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start starts the stores and then the service.
func (a *App) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, s := range a.stores {
		if err := s.Start(ctx, a.accounts); err != nil {
			return err
		}
	}
	service := &flows.Service{KeyUsed: countKey, Manager: session.New(&session.Config{
		Accounts:  a.accounts,
		Forwarded: a.forwarded,
		History:   a.accounts,
		AuditKeep: time.Duration(a.AuditKeep),
		Sessions:  a.sessions,
		Companies: map[string]*tenant.Company{},
		Hasher:    hasher(),
		Log:       a.log,
		Now:       time.Now,
		Observe:   a.watcher.observe,
		Sent:      countSent,
		Dropped:   countDropped,
		Running:   runningCompany,
		Node:      &a.stores[0].node,
	})}
	if server, ok := a.stores[0].Store.(guest.ClockStore); ok {
		service.Clock = server.Clock
	}
	for code, c := range a.Companies {
		service.Companies[code] = counted(c.effective)
	}
	if !a.createAccounts(ctx, service) {
		a.workers.Go(func() {
			if retry(ctx, seedAgainAfter, func() bool { return a.createAccounts(ctx, service) }) {
				a.log.Info("the configured accounts exist")
			}
		})
	}
	a.workers.Go(func() { a.takeStock(ctx) })
	a.workers.Go(func() { a.run(ctx, service) })
	a.service.Store(service)
	return nil
}

// runningCompany returns a company of the config that runs, or nil.
func runningCompany(code string) *tenant.Company {
	if a := Running(); a != nil {
		if service := a.service.Load(); service != nil {
			return service.Companies[code]
		}
	}
	return nil
}

// run does the work of a config that runs, until ctx ends. A config that fails to load
// must not deliver the events of the one that runs, nor change its memory, and until it
// runs, other modules may subscribe to events.
func (a *App) run(ctx context.Context, service *flows.Service) {
	if !retry(ctx, 10*time.Millisecond, func() bool { return Running() == a }) {
		close(a.watcher.done)
		return
	}
	if memory, ok := a.sessions.(*memory.Memory); ok {
		memory.SetLimit(a.Cache)
	}
	go func() { // Cleanup waits for it, but not for a handler that does not return
		defer close(a.watcher.done)
		a.watcher.run(ctx)
	}()
	service.Run(ctx)
}

// createAccounts creates the configured accounts that don't exist, and forgets their
// passwords. If it can't create an account, it logs the error and goes on, so that
// other users can log in. If the store does not answer, it returns false at once,
// because each try may take the store's whole timeout.
func (a *App) createAccounts(ctx context.Context, service *flows.Service) bool {
	for code, c := range a.Sorted() {
		for len(c.seeds) > 0 {
			err := panics.Contain(func() error {
				return (&manage.Admin{Manager: service.Manager, Company: service.Companies[code]}).Seed(ctx, c.seeds[0])
			})
			if err != nil && ctx.Err() != nil {
				return false // the next config creates it
			}
			_, wrong := errors.AsType[*manage.FieldError](err)
			again := unanswered(err) && !wrong
			if err != nil {
				advice := "mend it, then run caddy reload --force"
				if again {
					advice = "wait: it is tried again"
				}
				a.log.Error("a configured account was not created", "company", code, "mnemocode", c.seeds[0].Mnemocode, "error", err, "advice", advice)
			}
			if again {
				return false
			}
			c.seeds = c.seeds[1:]
		}
	}
	return true
}

// retry calls try after each pause until it returns true. It returns false if ctx ends
// first.
func retry(ctx context.Context, pause time.Duration, try func() (done bool)) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		if try() {
			return true
		}
	}
}

// SigningKeys returns the companies' keys that sign assertions. All configs that use the
// store share them.
func (a *App) SigningKeys() *assertion.Keyring { return a.stores[0].keys }

// Log returns the app's logger.
func (a *App) Log() *slog.Logger { return a.log }

// Warn logs a warning that many requests may cause at once, at most some lines a second.
func (a *App) Warn(message string, args ...any) { a.warnings.Warn(a.log, message, args...) }

// WarnOfStrangers is Warn for what anyone can cause.
func (a *App) WarnOfStrangers(log *slog.Logger, message string, args ...any) {
	a.warnings.WarnOfStrangers(log, message, args...)
}

// WarnUnanswered logs that a store does not answer. It limits how often it does so.
func (a *App) WarnUnanswered(ctx context.Context, log *slog.Logger, err error) {
	a.warnings.Unanswered(ctx, log, err)
}

// Configured returns the app of the config that ctx loads, for a handler. An error names
// the handler's directive and its position, except one of the app, which names its own.
func Configured(ctx caddy.Context, directive string, source guest.Source) (*App, error) {
	app, err := ctx.AppIfConfigured("mnemogate")
	switch {
	case errors.Is(err, caddy.ErrNotConfigured):
		return nil, source.At(fmt.Errorf("%s: configure the companies in the global option mnemogate: %w", directive, err))
	case err != nil:
		return nil, err
	}
	return app.(*App), nil
}

// Running returns the app of the running config, or nil. A config that failed to
// load does not run.
func Running() *App {
	app, err := caddy.ActiveContext().AppIfConfigured("mnemogate")
	if err != nil {
		return nil
	}
	return app.(*App)
}

// Interface guards
var (
	_ caddy.App             = (*App)(nil)
	_ caddy.Provisioner     = (*App)(nil)
	_ caddy.Validator       = (*App)(nil)
	_ caddy.CleanerUpper    = (*App)(nil)
	_ caddyfile.Unmarshaler = (*App)(nil)
)
