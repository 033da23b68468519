// Package app is what is configured: the companies, from a Caddyfile or JSON, the
// stores that they share, and what is seen of it all from outside, events and
// metrics. Start at App; company.go has what is a company's own, package policy
// what it may decide, and stores.go how stores outlive a configuration. It
// imports no guest: those are found by Caddy's names.
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

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/hashing"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(new(App)) }

const (
	// StartAgainAfter is how long a failed start is not tried again: each try
	// may take a store's whole timeout.
	StartAgainAfter = time.Second
	// startWait is how long a request waits for a start.
	startWait = 1800 * time.Millisecond
	// seedAgainAfter is when accounts are created that a store could not take.
	seedAgainAfter = 5 * time.Second
	// A config that was replaced keeps its stores while its requests go on: for
	// at least as long as the old server lets a connection take for its first
	// request (http.Server.Shutdown), and at most so long.
	keepAtLeast  = 5 * time.Second
	keepAtMost   = time.Minute
	defaultCache = 250_000

	// validated is why caddy validate ends a configuration without a mistake, whose apps
	// it does not start.
	validated = "validation complete"

	defaultAuditKeep = caddy.Duration(30 * 24 * time.Hour)
	minAuditKeep     = caddy.Duration(time.Hour)
)

// App is the auth service: its companies, their policies, and what they share.
// The handler `mnemogate` puts it in front of an application.
type App struct {
	// Where accounts are kept, and sessions if `sessions` is not set. Default:
	// `sqlite` with its default file.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=mnemogate.accounts inline_key=module"`

	// Where sessions, one-time codes and counters are kept. Default: where the
	// accounts are; needed with a store that can't keep sessions.
	SessionsRaw json.RawMessage `json:"sessions,omitempty" caddy:"namespace=mnemogate.sessions inline_key=module"`

	// How many authorized sessions this node remembers at most, so that it need
	// not ask the store for them with each request; about 150 bytes each, taken
	// as they come. Those used least are forgotten first. A smaller number holds
	// from the next restart. Default: 250000.
	Cache int `json:"cache,omitempty"`

	// How long what happened to an account is kept in its history: at least `1h`.
	// Of each account the newest hundred events are kept that strangers can cause,
	// and a hundred others. Default: `30d`.
	AuditKeep caddy.Duration `json:"audit_keep,omitempty"`

	// What companies inherit.
	policy.Policy

	// The companies by code, which is the first segment of their routes' paths:
	// 1 to 64 letters, digits, `_` and `-`. At least one.
	Companies map[string]*Company `json:"companies,omitempty"`

	// Where the Caddyfile that this was adapted from has each option, for errors
	// and warnings. Leave it out of JSON that you write yourself.
	Source guest.Source `json:"source,omitempty"`

	log       *slog.Logger
	warnings  background.Warnings
	ctx       context.Context // ends when the config is unloaded
	cancel    context.CancelFunc
	storeKeys []string // of the stores in use
	stores    []*pooledStore
	guests    []Guest // that keep the stores
	accounts  record.Accounts
	census    record.Census  // nil if the accounts are none
	outbox    record.Outbox  // likewise
	history   record.History // likewise
	sessions  record.Sessions
	watcher   *watcher
	servers   map[*caddyhttp.Server]bool   // that a handler stands in
	looked    bool                         // for what is weak about their routes
	noted     []Weakness                   // by them
	forwarded []record.ProfileField        // by them; all are provisioned before it starts
	opened    map[[sha256.Size]byte]string // the names of keys for the accounts API, by their hashes
	begun     bool                         // Start was called

	service  atomic.Pointer[flows.Service] // nil until it has started
	starting chan struct{}                 // holds one while someone starts it; guards the two below
	failed   error
	failedAt time.Time
	workers  sync.WaitGroup
	calls    atomic.Int64 // how many use the service now
	health   health
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate", New: func() caddy.Module { return new(App) }}
}

// hasher is one for all configs: what it bounds is the machine's. Its size is
// known only once Caddy has set GOMAXPROCS.
var hasher = sync.OnceValue(func() *password.Hasher {
	h := password.NewHasher(0)
	h.Waited = hashWaited
	h.Derive = hashing.New(h.Slots()).Derive
	return h
})

// Provision resolves secrets, loads the guest modules and works out what
// applies to each company. It reads the files that the configuration names,
// and touches neither database nor network.
func (a *App) Provision(ctx caddy.Context) error { return a.Source.At(a.provision(ctx)) }

func (a *App) provision(ctx caddy.Context) error {
	a.log = ctx.Slogger()
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.starting = make(chan struct{}, 1)
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
	a.servers = map[*caddyhttp.Server]bool{}
	a.opened = map[[sha256.Size]byte]string{}
	if err := a.registerMetrics(ctx); err != nil {
		return err
	}
	return a.loadStores(ctx)
}

// Sorted yields the companies by code, so that of several mistakes the same one
// is named each time.
func (a *App) Sorted() iter.Seq2[string, *Company] {
	return func(yield func(string, *Company) bool) {
		for _, code := range slices.Sorted(maps.Keys(a.Companies)) {
			if !yield(code, a.Companies[code]) {
				return
			}
		}
	}
}

// Validate refuses what can't work and what a standard forbids, and warns of
// what is weak.
func (a *App) Validate() error {
	if err := a.check(); err != nil {
		return a.Source.At(err)
	}
	a.warn(a.Weaknesses())
	return nil
}

func (a *App) check() error {
	if err := a.checkCompanies(); err != nil {
		return err
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
		a.log.Warn(w.Directive+": "+w.Message, "company", w.Company, "at", w.At, "advice", w.Advice)
	}
}

func (a *App) checkCompanies() error {
	if len(a.Companies) == 0 {
		return errors.New("company is missing; add at least one")
	}
	return nil
}

// Start makes the service ready. A store whose server does not answer is no
// reason to refuse the config: it is asked again, also where no request comes,
// since a crash may have left sessions to be ended.
func (a *App) Start() error {
	a.begun = true
	a.Note(a.unused())
	_, err := a.started(a.ctx)
	if errors.Is(err, guest.ErrUnreachable) {
		a.log.Error("a store can't be reached; until it can, requests are answered service.unavailable", "error", err)
		a.workers.Go(a.startLater)
		return nil
	}
	return err
}

func (a *App) startLater() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(StartAgainAfter):
		}
		if _, err := a.started(a.ctx); err == nil {
			return
		}
	}
}

// StandIn notes that a handler stands in the server.
func (a *App) StandIn(server *caddyhttp.Server) {
	if !a.servers[server] {
		a.servers[server] = true
		a.closeFirst(server)
	}
}

// LookOnce notes what is found to be weak about the routes, however many handlers
// stand in them.
func (a *App) LookOnce(look func() ([]Weakness, error)) error {
	if a.looked {
		return nil
	}
	a.looked = true
	found, err := look()
	a.Note(found)
	return err
}

// Note adds what a handler found to be weak, and warns of it, once for all that
// stand in several servers.
func (a *App) Note(found []Weakness) {
	for _, w := range found {
		if !slices.Contains(a.noted, w) {
			a.noted = append(a.noted, w)
			a.warn([]Weakness{w})
		}
	}
}

// unused tells that no site has a handler of ours, once all are provisioned.
func (a *App) unused() []Weakness {
	if len(a.servers) > 0 || len(a.opened) > 0 {
		return nil
	}
	return []Weakness{{Directive: "mnemogate", At: a.Source.Line(""), Weakness: guest.Weakness{
		Message: "no site has the directive mnemogate: nobody can log in, and nothing is guarded",
		Advice:  "write it into the site, before its reverse_proxy",
	}}}
}

// Forward notes that a handler tells the application this of each account.
// Sessions that begin under this config then carry it.
func (a *App) Forward(field record.ProfileField) {
	if !slices.Contains(a.forwarded, field) {
		a.forwarded = append(a.forwarded, field)
	}
}

// Stop does nothing: the apps stop in random order, so the handler may still
// have requests. Cleanup comes when they all have.
func (a *App) Stop() error { return nil }

// Cleanup ends what works in the background and then gives the stores back,
// which only the last config that uses them closes.
func (a *App) Cleanup() error {
	if a.cancel == nil {
		return nil // Provision was not called, or Cleanup was
	}
	if cause := context.Cause(a.ctx); cause != nil && cause.Error() == validated {
		a.warn(a.unused())
	}
	a.cancel()
	a.cancel = nil
	a.starting <- struct{}{} // a start under way ends first, and none begins any more
	a.workers.Wait()
	service := a.service.Load()
	if service == nil {
		return a.giveBack()
	}
	if caddy.Exiting() {
		service.Close()
		return a.giveBack()
	}
	// Caddy does not wait for requests under way, and a reload does not wait for
	// gateways.
	go func() {
		a.drain()
		service.Close()
		if err := a.giveBack(); err != nil {
			a.log.Error("a store was not closed", "error", err)
		}
	}()
	return nil
}

// Enter begins a use of the service, which may outlast the config. Each one
// needs a leave.
func (a *App) Enter() { a.calls.Add(1) }

// Leave ends what enter began.
func (a *App) Leave() { a.calls.Add(-1) }

// drain waits until nobody uses the service any more.
func (a *App) drain() {
	time.Sleep(keepAtLeast)
	for end := time.Now().Add(keepAtMost); a.calls.Load() > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
}

// Service returns the service, ready for use. The first call starts it, since
// requests may come before Start. If that fails, later calls try again. A start
// that takes long goes on when the caller is told that there is no service yet.
func (a *App) Service(ctx context.Context) (*flows.Service, error) {
	if service := a.service.Load(); service != nil {
		return service, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, errStarting)
	defer cancel()
	return a.started(ctx)
}

var errStarting = fmt.Errorf("%w: the start takes long and goes on", guest.ErrUnreachable)

// started waits for the start, which is one for all callers.
func (a *App) started(ctx context.Context) (*flows.Service, error) {
	select {
	case a.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
	service, err := a.service.Load(), a.failed
	if service != nil || err != nil && time.Since(a.failedAt) < StartAgainAfter {
		<-a.starting
		return service, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-a.starting }()
		// Not with the caller's context: the others wait for this start, too.
		err = panics.ContainLogged(a.log, "starting", func() (err error) {
			service, err = a.start(a.ctx)
			return err
		})
		if err != nil {
			a.failed, a.failedAt = err, time.Now()
			return
		}
		a.failed = nil
		a.service.Store(service)
	}()
	select {
	case <-done:
		return service, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (a *App) start(ctx context.Context) (*flows.Service, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, s := range a.stores {
		if err := s.Start(ctx, a.accounts); err != nil {
			return nil, err
		}
	}
	service := &flows.Service{KeyUsed: countKey, Manager: &session.Manager{
		Accounts:  a.accounts,
		Forwarded: a.forwarded,
		Outbox:    a.outbox,
		History:   a.history,
		AuditKeep: time.Duration(a.AuditKeep),
		Sessions:  a.sessions,
		Companies: map[string]*tenant.Company{},
		Hasher:    hasher(),
		Log:       a.log,
		Now:       time.Now,
		Observe:   a.watcher.observe,
		Dropped:   countDropped,
	}}
	for code, c := range a.Companies {
		service.Companies[code] = counted(c.effective)
	}
	if !a.createAccounts(ctx, service) {
		a.workers.Go(func() { a.createAccountsLater(ctx, service) })
	}
	a.workers.Go(func() { a.warnOfOrphans(ctx) })
	a.workers.Go(func() { service.Run(ctx) })
	a.workers.Go(func() { a.watcher.run(ctx, a) })
	return service, nil
}

// createAccounts creates the configured accounts that are absent, and forgets
// their passwords. One that can't be is no reason to lock all the others out. It
// returns false where the store did not answer: each try may take its timeout.
func (a *App) createAccounts(ctx context.Context, service *flows.Service) bool {
	for code, c := range a.Sorted() {
		for len(c.seeds) > 0 {
			err := panics.Contain(func() error {
				return (&manage.Admin{Manager: service.Manager, Company: service.Companies[code]}).Seed(ctx, c.seeds[0])
			})
			if err != nil {
				a.log.Error("a configured account was not created", "company", code, "account", c.seeds[0].Mnemocode, "error", err)
			}
			if _, wrong := errors.AsType[*manage.FieldError](err); unanswered(err) && !wrong {
				return false
			}
			c.seeds = c.seeds[1:]
		}
	}
	return true
}

func (a *App) createAccountsLater(ctx context.Context, service *flows.Service) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(seedAgainAfter):
		}
		if a.createAccounts(ctx, service) {
			a.log.Info("the configured accounts are there")
			return
		}
	}
}

// Log is the app's, for whoever speaks in its name.
func (a *App) Log() *slog.Logger { return a.log }

// WarnUnanswered writes to log, now and then, that a store does not answer.
func (a *App) WarnUnanswered(log *slog.Logger, err error) { a.warnings.Unanswered(log, err) }

// Interface guards
var (
	_ caddy.App             = (*App)(nil)
	_ caddy.Provisioner     = (*App)(nil)
	_ caddy.Validator       = (*App)(nil)
	_ caddy.CleanerUpper    = (*App)(nil)
	_ caddyfile.Unmarshaler = (*App)(nil)
)
