package flows_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/memory"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// TestMachine generates sequences of requests, actions of administrators and jumps
// of the clock, and compares each answer with the model's. With -short it runs a
// tenth as many. For a long run:
//
//	go test ./flows -run TestMachine -rapid.checks 20000 -rapid.steps 150 -timeout 2h
//
// A failure is printed as the shortest sequence that rapid found for it. To repeat
// it, pass the -rapid.failfile or -rapid.seed that is printed.
func TestMachine(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "test.db")
		var stores [2]machineStore
		for i := range stores {
			db := sqlite.Open(file)
			must(t, db.Start(t.Context()))
			t.Cleanup(func() { _ = db.Close() })
			stores[i] = machineStore{db.Accounts(), db.Sessions(), relayed(t, db)}
		}
		checkMachine(t, stores, false, 100)
	})
	t.Run("postgres and redis", func(t *testing.T) {
		server := storetest.OwnPostgres(t)
		redisServer := storetest.StartRedis(t)
		dsn := server.DSN(server.NewSchema(t))
		var stores [2]machineStore
		for i := range stores {
			accounts, err := postgres.Open(dsn, postgres.Options{})
			must(t, err)
			t.Cleanup(func() { _ = accounts.Close() })
			sessions, err := redis.OpenWithin(redis.Limits{Attempt: 30 * time.Second, Call: time.Minute, Replicas: 10 * time.Second}, redis.Options{URLs: []string{redisServer.URL()}})
			must(t, err)
			t.Cleanup(func() { _ = sessions.Close() })
			storetest.Started(t, accounts.Start)
			storetest.Started(t, sessions.Start)
			stores[i] = machineStore{accounts.Accounts(), sessions.Sessions(), relayed(t, sessions)}
		}
		checkMachine(t, stores, true, 50)
	})
}

// A machineStore is one node's view of the stores.
type machineStore struct {
	accounts record.Accounts
	sessions record.Sessions
	feed     *relay
}

// A relay forwards a store's revocations to the memory of the machine that is
// running. It ignores the store's leases: the machine sets its own.
type relay struct{ to atomic.Pointer[memory.Memory] }

// relayed subscribes to a store until the test ends.
func relayed(t *testing.T, s interface {
	Run(context.Context, record.Feed)
}) *relay {
	r := &relay{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx, r) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func (r *relay) tell(what func(*memory.Memory)) {
	if m := r.to.Load(); m != nil {
		what(m)
	}
}

func (r *relay) Ended(hash record.TokenHash)  { r.tell(func(m *memory.Memory) { m.Ended(hash) }) }
func (r *relay) EndedAll(e record.Revocation) { r.tell(func(m *memory.Memory) { m.EndedAll(e) }) }
func (r *relay) Flush()                       { r.tell(func(m *memory.Memory) { m.Flush() }) }
func (r *relay) SetLease(time.Time)           {}

// checkMachine runs checks sequences, unless the command line gives a number. On
// a busy machine a server may not answer in time. The model can't know what the
// server did then, so the sequence ends.
func checkMachine(t *testing.T, stores [2]machineStore, servers bool, checks int) {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]int{"rapid.checks": checks, "rapid.steps": 100} {
		if !given[name] {
			must(t, flag.Set(name, fmt.Sprint(value)))
		}
	}
	outcomes := map[string]int{}
	all, cut := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt, stores)
		m.servers, m.outcomes = servers, outcomes
		defer m.close()
		actions := map[string]func(*rapid.T){
			"begin":          m.begin,
			"go on":          func(t *rapid.T) { m.goOn(t, false) },
			"go on at once":  func(t *rapid.T) { m.goOn(t, true) },
			"stray request":  m.stray,
			"protected path": m.protected,
			"log out":        m.logOut,
			"step up":        m.raise,
			"look":           m.look,
			"devices":        m.rememberOften,
			"clock":          m.jump,
			"rarer": func(t *rapid.T) {
				pick(t, "what", m.administer, m.administer, m.sweep, m.newVersion)(t)
			},
		}
		for name, action := range actions {
			actions[name] = func(t *rapid.T) {
				if !m.cut {
					action(t)
				}
			}
		}
		rt.Repeat(actions)
		all++
		if m.cut {
			cut++
		}
	})
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Log(outcomes[outcome], " ", outcome)
	}
	if cut > 0 {
		t.Logf("%d of %d sequences were cut short: a server did not answer in time", cut, all)
	}
	if cut == all {
		t.Error("no sequence came to its end")
	}
}

// A machine is a service with a model to compare it with. The service has two nodes,
// or one node that remembers sessions.
type machine struct {
	model
	nodes  []*flows.Service
	clock  *clock
	outbox *outbox
	broken atomic.Bool // gateways and providers fail
	drawn  int         // the number of the next value that must be unique
	swept  time.Time   // the latest time that the stores were swept for

	servers  bool           // the stores are servers
	cut      bool           // a server did not answer in time
	unsent   atomic.Bool    // a message was not sent behind the answer
	outcomes map[string]int // how often each outcome occurred, in all sequences
}

// machineCompanies numbers the companies. Each sequence has new ones.
var machineCompanies atomic.Int64

const modelRedirect = "https://app.example.com/cb"

func newMachine(t *rapid.T, stores [2]machineStore) *machine {
	m := &machine{clock: &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}, outbox: newOutbox()}
	m.now, m.captchas, m.grants = m.clock.now, map[string]time.Time{}, map[string]time.Time{}
	companies := map[string]*tenant.Company{}
	for range 2 {
		c := m.drawCompany(t)
		t.Logf("> company %+v", c.Policy)
		m.companies = append(m.companies, c)
		companies[c.Code] = c.Company
	}
	remembers := rapid.Bool().Draw(t, "one node that remembers")
	for _, s := range stores {
		node := &flows.Service{Manager: session.New(&session.Config{
			Accounts: s.accounts, Sessions: s.sessions, Companies: companies, Hasher: pw.NewHasher(2),
			Log: slog.New(slog.NewTextHandler(m, nil)), Now: m.clock.Now, After: m.clock.After,
		})}
		m.nodes = append(m.nodes, node)
		if remembers {
			memory := memory.New(s.sessions, 1000)
			memory.SetLease(time.Now().Add(24 * time.Hour))
			node.Sessions = memory
			s.feed.to.Store(memory)
			break
		}
	}
	for _, c := range m.companies {
		for range rapid.IntRange(1, 3).Draw(t, "accounts") {
			m.create(t, c)
		}
	}
	return m
}

// Write reads the log of the nodes, which alone says that a message was not sent behind
// the answer.
func (m *machine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("a message was not sent")) && !bytes.Contains(line, []byte("a budget is used up")) {
		m.unsent.Store(true)
	}
	return len(line), nil
}

func (m *machine) close() {
	for _, node := range m.nodes {
		node.Close()
	}
}

// drawCompany generates a company's policy. Limits are low, so that sequences reach
// them.
func (m *machine) drawCompany(t *rapid.T) *modelCompany {
	c := &tenant.Company{
		Code: fmt.Sprint("company-", machineCompanies.Add(1)), NoAPIKey: true, Texts: message.DefaultTexts(),
		SMS: machineSender{m}, Mail: machineSender{m}, Policy: tenant.DefaultPolicy(),
		OAuth: map[int]tenant.OAuth{1: {
			Provider: machineProvider{m}, RedirectURIs: []string{modelRedirect},
			LinkVerifiedEmail: rapid.Bool().Draw(t, "link_verified_email"),
		}},
	}
	c.Password.Argon2id = cheap
	c.Notices = []string{"password_changed", "identity_bound"} // notices_test.go tests the others
	c.Password.Required = new(rapid.Bool().Draw(t, "password required"))
	c.SecondFactor = rapid.SampledFrom([]tenant.SecondFactor{
		tenant.SecondFactorPerAccount, tenant.SecondFactorRequired, tenant.SecondFactorOff}).Draw(t, "second_factor")
	c.Hardened = oneIn(t, 4, "hardened")
	if !c.Hardened && rapid.Bool().Draw(t, "devices") {
		c.Devices.For = tenant.Duration(pick(t, "devices for", 2*time.Hour, 90*24*time.Hour))
		c.Devices.SkipSecondFactor = rapid.Bool().Draw(t, "skip_second_factor")
	}
	if rapid.Bool().Draw(t, "captcha") {
		c.Captcha = machineCaptcha{m}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "disclaimers") {
		c.Disclaimers = append(c.Disclaimers, wire.Disclaimer{Code: []string{"terms", "privacy"}[i], Version: "1"})
	}
	c.Recovery.Methods = rapid.SampledFrom([][]tenant.Method{
		{tenant.ByPhone, tenant.ByMail, tenant.ByQuestion}, {tenant.ByQuestion, tenant.ByMail}, {tenant.ByMail, tenant.ByPhone}, {tenant.ByPhone},
	}).Draw(t, "recovery methods")
	c.Recovery.Link = linkURL + "{token}"
	if rapid.Bool().Draw(t, "short sessions") {
		c.Session.Idle, c.Session.Lifetime = tenant.Duration(5*time.Minute), tenant.Duration(20*time.Minute)
	}
	if rapid.Bool().Draw(t, "low limits") {
		c.OTP.Renewals = new(2)
		l := &c.Limits
		l.CaptchaAfter, l.LockAfter, l.DisableAfter = new(1), 2, 4
		l.WrongCodes.N, l.WrongAnswers.N = 2, 2
		l.FailuresPerAddress.N, l.LoginsPerAddress.N = pick(t, "failures_per_address", 3, 8), 4
		l.SMSPerAccount.N, l.SMSPerPhone.N, l.SMSPerAddress.N, l.MailsPerAccount.N = 3, 5, 6, 2
		l.SMSPerCompany = tenant.Rate{N: 12, Per: time.Hour}
		l.SMSPerCountry = tenant.Rate{N: 7, Per: 30 * time.Minute}
		l.SessionsPerAccount = 2
	}
	if oneIn(t, 4, "sms_countries") {
		c.Limits.SMSCountries = []string{"+371", "+372", machinePhones[1]}
	}
	if oneIn(t, 4, "otp fixed") {
		c.OTP.Fixed = []tenant.FixedCode{{Code: "123456", Phones: []string{machinePhones[0]}}}
	}
	return &modelCompany{Company: c, unknown: map[string]*modelAttempts{}, budgets: map[string]*modelCount{}, grants: map[string]time.Time{}}
}

// There are few values for each field, so that requests collide.
var (
	machineAddresses = []string{"192.0.2.1", "2001:db8::1"}
	machinePhones    = []string{"+37060000001", "+37060000002"}
	machineEmails    = []string{"ann@example.com", "bob@example.com"}
	machineNames     = []string{"ann", "bob"}
	machinePasswords = []string{"correct horse battery", "staple gun tuesday", modelShort}
	machineAnswers   = []string{"whiskers", "tom cat"}
)

func oneIn(t *rapid.T, n int, what string) bool {
	return rapid.IntRange(0, n-1).Draw(t, what) == n-1
}

func pick[T any](t *rapid.T, what string, from ...T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, what)]
}

// Gateways that fail while the machine's broken is set

type machineSender struct{ m *machine }

func (s machineSender) Send(ctx context.Context, message message.Message) error {
	_ = s.m.outbox.Send(ctx, message)
	return s.m.fault()
}

type machineCaptcha struct{ m *machine }

func (c machineCaptcha) Verify(_ context.Context, response, _ string) (bool, error) {
	return strings.HasPrefix(response, "good"), c.m.fault()
}

type machineProvider struct{ m *machine }

func (p machineProvider) Exchange(ctx context.Context, g tenant.OAuthGrant) (tenant.OAuthUser, error) {
	if err := p.m.fault(); err != nil {
		return tenant.OAuthUser{}, err
	}
	return provider{}.Exchange(ctx, g)
}

func (m *machine) fault() error {
	if m.broken.Load() {
		return errDown
	}
	return nil
}

// Events other than requests

// jump sets the clock forward, to the moment when something ends or just before it,
// or back.
func (m *machine) jump(t *rapid.T) {
	to := m.now
	switch pick(t, "clock", "forward", "forward", "to an end", "back") {
	case "forward":
		to = m.now.Add(pick(t, "by", time.Second, 30*time.Second, 30*time.Second, time.Minute, time.Minute, time.Minute,
			5*time.Minute, 5*time.Minute, 15*time.Minute, time.Hour, 2*time.Hour, 24*time.Hour, 72*time.Hour))
	case "to an end":
		var ends []time.Time
		for _, s := range m.sessions {
			ends = append(ends, s.expires)
			if s.code != nil {
				ends = append(ends, s.code.expires)
			}
		}
		for _, c := range m.companies {
			for _, a := range c.accounts {
				ends = append(ends, a.passwords.until, a.codes.until, a.answers.until)
			}
		}
		ends = slices.DeleteFunc(ends, func(e time.Time) bool { return !e.After(m.now.Add(time.Second)) })
		if len(ends) == 0 {
			t.Skip("nothing ends")
		}
		slices.SortFunc(ends, time.Time.Compare)
		to = pick(t, "end", ends...).Add(-pick(t, "before it", 0, time.Microsecond))
	case "back":
		to = m.now.Add(-pick(t, "by", time.Second, time.Minute, 10*time.Minute, 2*time.Hour, 25*time.Hour))
		if kept := m.swept.Add(-record.KeepExpired); to.Before(kept) { // a store may have forgotten what ended before that
			to = kept
		}
	}
	if m.servers { // Redis sweeps by itself
		m.sweptAt(to)
	}
	m.clock.advance(to.Sub(m.now))
	m.now = to
	// The stores may forget after an hour that a step-up was used. It has expired then, unless
	// the clock goes back.
	m.stepUps = slices.DeleteFunc(m.stepUps, func(u *modelStepUp) bool { return !u.used.IsZero() && to.Sub(u.used) >= time.Hour })
	t.Log("> clock ", to.Format(time.RFC3339Nano))
}

// sweptAt notes that the stores may have forgotten what expired an hour before now.
func (m *machine) sweptAt(now time.Time) {
	if now.After(m.swept) {
		m.swept = now
	}
	for _, s := range m.sessions {
		if !now.Before(s.expires.Add(time.Hour)) {
			s.forgotten = true
		}
	}
}

// sweep does what Service.Run does each minute.
func (m *machine) sweep(t *rapid.T) {
	node := pick(t, "node", m.nodes...)
	m.noError(t, node.Accounts.Sweep(t.Context(), m.now))
	m.noError(t, node.Sessions.Sweep(t.Context(), m.now))
	m.sweptAt(m.now)
	for _, d := range m.devices {
		d.ended = d.ended || d.expires.Before(m.now)
	}
	for _, c := range m.companies { // unknown login ids are forgotten after a day
		for _, t := range c.unknown {
			for _, n := range []*modelCount{&t.passwords, &t.codes} {
				if !n.changed.After(m.now.Add(-24 * time.Hour)) {
					*n = modelCount{}
				}
			}
		}
	}
}

// newVersion gives a disclaimer another version, as a new configuration would.
func (m *machine) newVersion(t *rapid.T) {
	c := pick(t, "company", m.companies...)
	if len(c.Disclaimers) == 0 {
		t.Skip("no disclaimers")
	}
	m.drawn++
	pick(t, "disclaimer", &c.Disclaimers[0], &c.Disclaimers[len(c.Disclaimers)-1]).Version = fmt.Sprint("new ", m.drawn)
}
