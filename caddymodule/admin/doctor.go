package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
)

const (
	// doctorTimeout is the time limit of all checks together.
	doctorTimeout = 5 * time.Second
	// slowStore is the duration of a round trip that is worth a warning. A request
	// to the backend needs a round trip if its session is not in this node's memory.
	slowStore = 100 * time.Millisecond
	// freshBackup is the age up to which a backup stands for a check of a large store.
	freshBackup = 24 * time.Hour
	// maxProbes limits the simultaneous connections to gateways.
	maxProbes = 100
)

// checks lists what the doctor looks at. To add a check, add a line.
var checks = []struct {
	name  string // for the report of a panic
	needs need
	look  func(*doctor, context.Context)
}{
	{"sessions store", sessionsStore, (*doctor).sessions},
	{"damage", accountsStore, (*doctor).damage},
	{"inventory", accountsStore, (*doctor).inventory},
	{"company", accountsStore, func(d *doctor, ctx context.Context) { d.weak(d.app.Orphans(ctx)) }},
	{"second_factor", accountsStore, (*doctor).stranded},
	{"clock", service, (*doctor).clocks},
	{"settings of the stores", service, (*doctor).faults},
	{"events", service, (*doctor).backlogs},
	{"symptoms", nothing, (*doctor).symptoms},
	{"gateways", nothing, (*doctor).gateways},
	{"settings", nothing, func(d *doctor, _ context.Context) { d.weak(d.app.Weaknesses(), nil) }},
	{"logs", nothing, (*doctor).logs},
}

// A need is what must work before a check: otherwise it would report the same failure again.
type need int

const (
	nothing       need = iota
	service            // the service has started
	accountsStore      // its accounts store answers
	sessionsStore      // likewise, if that keeps the sessions, too
)

// examine answers with the findings on the running configuration. It asks the stores
// and connects to the gateways, but sends no message.
func examine(c *accounts.Call) error {
	d := &doctor{app: c.App}
	var err error
	if d.service, err = c.App.Service(c.Context()); err != nil {
		d.found(storeFailed("stores", err))
	}
	d.run(c.Context())
	return c.Reply(http.StatusOK, map[string]any{"time": time.Now().UTC(), "findings": d.findings}, nil)
}

type doctor struct {
	app     *app.App
	service *flows.Service // nil while a store can't be reached
	running sync.WaitGroup

	mu       sync.Mutex
	findings []api.Finding
}

// run runs all checks at once and sorts their findings.
func (d *doctor) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	alone := len(d.app.Stores()) == 1
	start := func(now func(need) bool) {
		for _, c := range checks {
			if now(c.needs) {
				d.start(c.name, func() { c.look(d, ctx) })
			}
		}
	}
	waits := func(n need) bool { return n == accountsStore || n == sessionsStore && alone }
	start(func(n need) bool { return n == nothing || d.service != nil && !waits(n) })
	if d.service != nil {
		d.start("accounts store", func() {
			if d.accounts(ctx) {
				start(waits)
			}
		})
	}
	d.running.Wait()
	slices.SortStableFunc(d.findings, func(a, b api.Finding) int {
		order := func(f api.Finding) string { return f.Company + "\x00" + f.Check + "\x00" + f.Message }
		return strings.Compare(order(a), order(b))
	})
}

// start runs a part of the checks beside the others.
func (d *doctor) start(name string, look func()) {
	d.running.Go(func() {
		err := panics.ContainLogged(d.app.Log(), "checking "+name, func() error { look(); return nil })
		if err != nil {
			d.found(api.Finding{Check: name, Result: api.Failed, Message: "internal error: " + err.Error(), Advice: "report it, with the log"})
		}
	})
}

func (d *doctor) found(f api.Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.Message = causes.Printable(f.Message)
	d.findings = append(d.findings, f)
}

// timed reports the result of a round trip to a store, and returns whether it
// succeeded.
func (d *doctor) timed(check string, trip func() error) bool {
	began := time.Now()
	err := trip()
	took := time.Since(began)
	f := api.Finding{Check: check, Result: api.OK, Took: took.Round(10 * time.Microsecond).String(), Message: "it reads and writes"}
	switch {
	case err != nil:
		f = storeFailed(check, err)
	case took > slowStore:
		f.Result, f.Message = api.Warning, "a read and a write take more than "+slowStore.String()
		f.Advice = "look at the load of its server or disk, and at the way there: every login waits several times as long"
	}
	d.found(f)
	return err == nil
}

func storeFailed(check string, err error) api.Finding {
	what, step := causes.Split(err)
	return api.Finding{Check: check, Result: api.Failed, Message: what, Advice: cmp.Or(step, unexplained)}
}

// unexplained is what to do about an error that does not say it.
const unexplained = "look at the log of its server, and check that it runs and can be reached from here"

// accounts counts a failure for a login id that no account can have, and removes it.
func (d *doctor) accounts(ctx context.Context) bool {
	return d.timed("accounts store", func() error {
		key := record.FailureKey{Company: "/doctor", LoginID: "doctor"}
		for _, count := range []int{1, 0} {
			err := d.service.Accounts.UpdateFailures(ctx, time.Now(), key, record.WrongPasswords, func(t *record.FailureCount) error {
				*t = record.FailureCount{Count: count}
				return nil
			})
			if err != nil {
				return err
			}
		}
		_, err := d.service.Accounts.FailureCounts(ctx, key)
		return err
	})
}

// damage reports whether the accounts store is damaged.
func (d *doctor) damage(ctx context.Context) {
	switch checked, err := d.app.CheckStore(ctx, time.Now()); {
	case err != nil && (ctx.Err() == nil || errors.Is(err, record.ErrDamaged)):
		d.found(storeFailed("accounts store", err))
	case ctx.Err() != nil && time.Since(app.BackedUp()) < freshBackup:
		d.found(api.Finding{Check: "accounts store", Result: api.OK, Message: "it was not damaged at the backup of " + app.BackedUp().UTC().Format(time.RFC3339)})
	case ctx.Err() != nil:
		d.found(api.Finding{Check: "accounts store", Result: api.Warning, Message: "it is too large to be checked for damage in " + doctorTimeout.String(),
			Advice: "make a backup, which checks all of it"})
	case checked:
		d.found(api.Finding{Check: "accounts store", Result: api.OK, Message: "it is not damaged"})
	}
}

// inventory reports where the data are, and what there is.
func (d *doctor) inventory(ctx context.Context) {
	text, empty, err := d.app.Inventory(ctx)
	d.found(api.Finding{Check: "stores", Result: api.OK, Message: text})
	d.weak(empty, err)
}

// revocations reports whether this node receives what other nodes revoke.
func (d *doctor) revocations(ctx context.Context) {
	if err := d.app.Deaf(ctx); err != nil {
		f := storeFailed("revocations", err)
		f.Message = "this node receives none, so it asks the store for each request: " + f.Message
		d.found(f)
	}
}

// symptoms reports what users have suffered from in the last minutes, and suffer from now.
func (d *doctor) symptoms(context.Context) {
	for _, s := range append(app.Symptoms(), d.app.UsedUp()...) {
		f := api.Finding{Check: s.Directive, Company: s.Company, Result: api.Warning, Message: s.Message, Advice: s.Advice}
		if s.Failed {
			f.Result = api.Failed
		}
		d.found(f)
	}
}

// sessions increments a counter, and looks for a session that does not exist together with
// that counter: a Redis with several shards behind one address does the first alone.
func (d *doctor) sessions(ctx context.Context) {
	answers := d.timed("sessions store", func() error {
		counter := record.Counter{Key: "/doctor", Limit: 1 << 30, Window: time.Second}
		if err := d.service.Sessions.Charge(ctx, time.Now(), counter); err != nil {
			return err
		}
		_, err := d.service.Sessions.SpendCode(ctx, time.Now(), "/doctor", record.HashToken(rand.Text()), record.CheckOTP, counter)
		if errors.Is(err, record.ErrNotFound) {
			return nil
		}
		return err
	})
	if answers {
		d.revocations(ctx)
	}
}

// clocks compares this machine's clock with those of the stores' servers.
func (d *doctor) clocks(ctx context.Context) {
	for _, s := range d.app.Stores() {
		server, ok := s.Store.(guest.ClockStore)
		if !ok {
			continue // it is on this machine, or does not tell its time
		}
		f := api.Finding{Check: "clock", Result: api.OK}
		began := time.Now()
		there, err := server.Clock(ctx)
		if err != nil {
			continue // the check of this store reports the error
		}
		skew := there.Sub(began.Add(time.Since(began) / 2))
		f.Message = fmt.Sprintf("%s: its server's clock differs by %s", s.Module, skew.Abs().Round(time.Millisecond))
		if skew.Abs() > api.MaxSkew {
			f.Result, f.Advice = api.Failed, "let both machines take their time from NTP: sessions and codes expire too early or too late"
		}
		d.found(f)
	}
}

// faults reports servers whose settings can lose data.
func (d *doctor) faults(ctx context.Context) {
	for _, s := range d.app.Stores() {
		server, ok := s.Store.(guest.FaultyStore)
		if !ok {
			continue
		}
		faults, _ := server.Faults(ctx) // the check of this store reports an error
		for _, f := range faults {
			result := api.Warning
			if f.Advice == "" {
				result = api.OK
			}
			d.found(api.Finding{Check: "settings of the stores", Result: result, Message: f.What, Advice: f.Advice})
		}
	}
}

// A gateway is an endpoint that companies send to.
type gateway struct{ directive, endpoint string }

// A use of a gateway is that of one or more companies, with a check of what they need.
type use struct {
	companies []string
	needs     string
	check     func(context.Context) error
}

// gatewaysOf returns the gateways and how companies use each of them.
func gatewaysOf(a *app.App) map[gateway]use {
	all := map[gateway]use{}
	for code, c := range a.Sorted() {
		for _, g := range c.Guests() {
			remote, ok := g.Module.(guest.Remote)
			if !ok {
				continue
			}
			at := gateway{g.Directive, remote.Endpoint()}
			of := use{needs: "be reached", check: func(ctx context.Context) error { return connect(ctx, at.endpoint) }}
			if m, ok := g.Module.(guest.Checked); ok {
				var what string
				if what, of.check = m.Check(); what != at.endpoint {
					at.endpoint, of.needs = what, "be used"
				}
			}
			of.companies = append(all[at].companies, code)
			all[at] = of
		}
	}
	return all
}

// gateways probes each gateway, first those that most companies use. Those that get no turn in
// half of the time are not asked, since they could not answer in the rest.
func (d *doctor) gateways(ctx context.Context) {
	turns, over := make(chan struct{}, maxProbes), time.After(doctorTimeout/2)
	all := gatewaysOf(d.app)
	left := len(all)
	for _, g := range slices.SortedFunc(maps.Keys(all), func(a, b gateway) int { return len(all[b].companies) - len(all[a].companies) }) {
		select {
		case <-over:
			d.found(api.Finding{Check: "gateways", Result: api.Warning, Message: fmt.Sprintf("%d were not asked, since others answer too slowly", left),
				Advice: "look at those that fail first"})
			return
		case turns <- struct{}{}:
		}
		left--
		d.start("gateways", func() {
			defer func() { <-turns }()
			d.probe(ctx, g, all[g])
		})
	}
}

func connect(ctx context.Context, endpoint string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return guest.Cause(err)
	}
	return conn.Close()
}

// probe reports whether a gateway gives what is needed, once for all companies that use
// it.
func (d *doctor) probe(ctx context.Context, g gateway, of use) {
	began := time.Now()
	err := of.check(ctx)
	endpoint := g.endpoint
	f := api.Finding{Check: g.directive, Result: api.OK}
	if len(of.companies) == 1 {
		f.Company = of.companies[0]
	} else {
		endpoint += fmt.Sprintf(" (of %s and %d more)", of.companies[0], len(of.companies)-1)
	}
	f.Message = endpoint + " can " + of.needs
	if err != nil {
		f.Result = api.Failed
		what, step := causes.Split(err)
		f.Message = endpoint + " can't " + of.needs + ": " + what
		f.Advice = cmp.Or(step, unexplained)
	} else {
		f.Took = time.Since(began).Round(10 * time.Microsecond).String()
	}
	d.found(f)
}

// logs reports a log whose output has stalled.
func (d *doctor) logs(context.Context) {
	if logs.Stuck() {
		d.found(api.Finding{Check: "logs", Result: api.Failed, Message: "the output of a log does not take its lines, which are lost",
			Advice: "make room on its disk, or restart what reads it"})
	}
}

// lateEvent is the age at which an undelivered event is worth a warning.
const lateEvent = time.Minute

// backlogs reports the events that wait for each company's receiver. The numbers may
// be some seconds old.
func (d *doctor) backlogs(context.Context) {
	for _, b := range d.service.Backlogs() {
		age := time.Since(b.Oldest)
		f := api.Finding{Check: "events", Company: b.Company, Result: api.OK}
		f.Message = fmt.Sprintf("waiting events: %d, the oldest for %s", b.Events, age.Round(time.Second))
		if age > lateEvent {
			f.Result = api.Warning
			f.Advice = "check that the receiver runs and answers 2xx; the log has the reason for each failed try, and an event is dropped after three days; after 410, also run caddy reload --force on each node"
		}
		d.found(f)
	}
}

// stranded warns of users who can't log in. The store has just answered, so an error says
// only that this count, which looks at each account, takes too long.
func (d *doctor) stranded(ctx context.Context) {
	found, err := d.app.Stranded(ctx)
	d.weak(found, nil)
	if errors.Is(err, record.ErrDamaged) {
		d.found(storeFailed("second_factor", err))
	} else if err != nil {
		d.found(api.Finding{Check: "second_factor", Result: api.Warning, Message: "accounts without a second factor could not be counted: " + err.Error(),
			Advice: "ignore this if there are millions of accounts, since the count then takes too long; otherwise look at the load of the store's server"})
	}
}

// weak reports weaknesses, or the error that prevented a check for them.
func (d *doctor) weak(found []app.Weakness, err error) {
	for _, w := range found {
		if w.At != "" {
			w.Message += ", at " + w.At
		}
		d.found(api.Finding{Check: w.Directive, Company: w.Company, Result: api.Warning, Message: w.Message, Advice: w.Advice})
	}
	if err != nil {
		d.found(storeFailed("accounts", err))
	}
}
