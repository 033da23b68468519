package flows_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/mnemogate/mnemogate/flows"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// TestMachine draws sequences of requests, administrators' actions and jumps of
// the clock, and compares each answer with the model's. -short does a tenth of
// it, and this goes on for long:
//
//	go test ./flows -run TestMachine -rapid.checks 20000 -rapid.steps 150 -timeout 2h
//
// A failure is shown as the shortest sequence that was found for it, and
// -rapid.failfile or -rapid.seed as printed runs it again.
func TestMachine(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "test.db")
		var stores [2]machineStore
		for i := range stores {
			db := store.OpenSQLite(file)
			if err := db.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			stores[i] = machineStore{db.Accounts(), db.Sessions(), relayed(t, db)}
		}
		checkMachine(t, stores, false, 100)
	})
	t.Run("postgres and redis", func(t *testing.T) {
		server := storetest.OwnPostgres(t)
		redis := storetest.StartRedis(t)
		dsn := server.DSN(server.NewSchema(t))
		var stores [2]machineStore
		for i := range stores {
			accounts, err := store.OpenPostgres(dsn, store.PostgresOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = accounts.Close() })
			sessions, err := store.OpenRedis(store.RedisOptions{URLs: []string{redis.URL()}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sessions.Close() })
			storetest.Eventually(t, 30*time.Second, "PostgreSQL that answers", func() bool { return accounts.Start(t.Context()) == nil })
			if err := sessions.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			stores[i] = machineStore{accounts.Accounts(), sessions.Sessions(), relayed(t, sessions)}
		}
		checkMachine(t, stores, true, 100)
	})
}

// A machineStore is one node's view of the stores.
type machineStore struct {
	accounts flows.Accounts
	sessions flows.Sessions
	feed     *relay
}

// A relay passes on what a store tells, to the memory of whichever machine runs.
// How long that is trusted, the machine says.
type relay struct{ to atomic.Pointer[store.Memory] }

// relayed listens to a store until the test ends.
func relayed(t *testing.T, s interface {
	Run(context.Context, flows.Feed)
}) *relay {
	r := &relay{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx, r) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func (r *relay) tell(what func(*store.Memory)) {
	if m := r.to.Load(); m != nil {
		what(m)
	}
}

func (r *relay) Ended(hash flows.TokenHash) { r.tell(func(m *store.Memory) { m.Ended(hash) }) }
func (r *relay) EndedAll(e flows.Ending)    { r.tell(func(m *store.Memory) { m.EndedAll(e) }) }
func (r *relay) Flush()                     { r.tell(func(m *store.Memory) { m.Flush() }) }
func (r *relay) Trust(time.Time)            {}

// checkMachine runs so many sequences, unless the command line says how many.
// Servers may fail to answer in time where the machine is busy: what they did is
// then not known, and the sequence ends.
func checkMachine(t *testing.T, stores [2]machineStore, servers bool, checks int) {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]int{"rapid.checks": checks, "rapid.steps": 100} {
		if !given[name] {
			if err := flag.Set(name, fmt.Sprint(value)); err != nil {
				t.Fatal(err)
			}
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
			"look":           m.look,
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

// A machine is a service of two nodes, or of one that remembers sessions, beside
// the model of it.
type machine struct {
	model
	nodes  []*flows.Service
	clock  *clock
	outbox *outbox
	broken atomic.Bool // the gateways and providers
	drawn  int         // numbers what must be new
	swept  time.Time   // the latest time at which the stores were swept

	servers  bool           // the stores are servers
	cut      bool           // one did not answer in time
	outcomes map[string]int // of all sequences, counted
}

// machineCompanies numbers the companies, which are new for each sequence.
var machineCompanies atomic.Int64

const modelRedirect = "https://app.example.com/cb"

func newMachine(t *rapid.T, stores [2]machineStore) *machine {
	m := &machine{clock: &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}, outbox: newOutbox()}
	m.now, m.captchas = m.clock.now, map[string]time.Time{}
	companies := map[string]*flows.Company{}
	for range 2 {
		c := m.drawCompany(t)
		t.Logf("> company %+v", c.Policy)
		m.companies = append(m.companies, c)
		companies[c.Code] = c.Company
	}
	remembers := rapid.Bool().Draw(t, "one node that remembers")
	for _, s := range stores {
		node := &flows.Service{
			Accounts: s.accounts, Sessions: s.sessions, Companies: companies, Hasher: pw.NewHasher(2),
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: m.clock.Now, After: m.clock.After,
		}
		m.nodes = append(m.nodes, node)
		if remembers {
			memory := store.NewMemory(s.sessions, 1000)
			memory.Trust(time.Now().Add(24 * time.Hour))
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

func (m *machine) close() {
	for _, node := range m.nodes {
		node.Close()
	}
}

// drawCompany draws what a company may decide. Limits are low, so that they are
// reached.
func (m *machine) drawCompany(t *rapid.T) *modelCompany {
	c := &flows.Company{
		Code: fmt.Sprint("company-", machineCompanies.Add(1)), NoAPIKey: true, Texts: flows.DefaultTexts(),
		SMS: machineSender{m}, Mail: machineSender{m}, Policy: flows.DefaultPolicy(),
		OAuth: map[int]flows.OAuth{1: {
			Provider: machineProvider{m}, RedirectURIs: []string{modelRedirect},
			LinkVerifiedEmail: rapid.Bool().Draw(t, "link_verified_email"),
		}},
	}
	c.Password.Argon2id = cheap
	c.Password.Required = rapid.Bool().Draw(t, "password required")
	c.SecondFactor = rapid.SampledFrom([]flows.SecondFactor{
		flows.SecondFactorPerAccount, flows.SecondFactorRequired, flows.SecondFactorOff}).Draw(t, "second_factor")
	c.Hardened = oneIn(t, 4, "hardened")
	if rapid.Bool().Draw(t, "captcha") {
		c.Captcha = machineCaptcha{m}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "disclaimers") {
		c.Disclaimers = append(c.Disclaimers, flows.Disclaimer{Code: []string{"terms", "privacy"}[i], Version: "1"})
	}
	c.Methods = rapid.SampledFrom([][]flows.Method{
		{flows.ByPhone, flows.ByMail, flows.ByQuestion}, {flows.ByQuestion, flows.ByMail}, {flows.ByMail, flows.ByPhone}, {flows.ByPhone},
	}).Draw(t, "recovery methods")
	c.Link = linkURL + "{token}"
	if rapid.Bool().Draw(t, "short sessions") {
		c.Idle, c.Lifetime = 5*time.Minute, 20*time.Minute
	}
	if rapid.Bool().Draw(t, "low limits") {
		c.OTPRenewals = 2
		l := &c.Limits
		l.CaptchaAfter, l.LockAfter, l.DisableAfter = 1, 2, 4
		l.WrongCodes.N, l.WrongAnswers.N = 2, 2
		l.FailuresPerAddress.N, l.LoginsPerAddress.N = 8, 4
		l.SMSPerAccount.N, l.SMSPerPhone.N, l.SMSPerAddress.N, l.MailsPerAccount.N = 3, 5, 6, 2
		l.SMSPerCompany = flows.Rate{N: 12, Per: time.Hour}
		l.SMSPerCountry = flows.Rate{N: 7, Per: 30 * time.Minute}
		l.SessionsPerAccount = 2
	}
	if oneIn(t, 4, "sms_countries") {
		c.Limits.SMSCountries = []string{"+371", "+372", machinePhones[1]}
	}
	if oneIn(t, 4, "otp fixed") {
		c.OTPFixed = map[string]string{machinePhones[0]: "123456"}
	}
	return &modelCompany{Company: c, unknown: map[string]*modelAttempts{}, budgets: map[string]*modelCount{}, grants: map[string]time.Time{}}
}

// The little that requests are made of, so that they meet.
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

// Gateways, which fail while the machine's broken is set

type machineSender struct{ m *machine }

func (s machineSender) Send(ctx context.Context, message flows.Message) error {
	_ = s.m.outbox.Send(ctx, message)
	return s.m.fault()
}

type machineCaptcha struct{ m *machine }

func (c machineCaptcha) Verify(_ context.Context, response, _ string) (bool, error) {
	return strings.HasPrefix(response, "good"), c.m.fault()
}

type machineProvider struct{ m *machine }

func (p machineProvider) Exchange(ctx context.Context, g flows.OAuthGrant) (flows.OAuthUser, error) {
	if err := p.m.fault(); err != nil {
		return flows.OAuthUser{}, err
	}
	return provider{}.Exchange(ctx, g)
}

func (m *machine) fault() error {
	if m.broken.Load() {
		return errBroken
	}
	return nil
}

// Requests

// begin is a request that needs no session.
func (m *machine) begin(t *rapid.T) {
	paths := []string{"auth/login", "auth/login", "auth/checkcredentials", "auth/recovery/recover", "auth/recovery/recover", "auth/oauth"}
	if slices.ContainsFunc(m.sessions, func(s *modelSession) bool { return s.state == flows.MailedLink && !s.ended }) {
		paths = append(paths, "auth/recovery/checklink", "auth/recovery/checklink")
	}
	path := pick(t, "path", paths...)
	m.request(t, &modelCall{company: pick(t, "company", m.companies...), path: path})
}

// goOn is the request that comes next in a session, or at once: the one of the
// session that began last.
func (m *machine) goOn(t *rapid.T, last bool) {
	var open []*modelSession
	for _, s := range m.sessions {
		if !s.ended && !s.expired && s.state != flows.Authorized && s.state != flows.MailedLink {
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		t.Skip("no session")
	}
	s := open[len(open)-1]
	if !last {
		s = pick(t, "session", open...)
	}
	var paths []string
	for _, r := range flows.Routes {
		if slices.Contains(modelRoutes[r.Path].from, s.state) && r.Path != "auth/logout" {
			paths = append(paths, r.Path)
		}
	}
	m.request(t, &modelCall{company: s.company, path: pick(t, "path", paths...), token: s.token})
}

// stray is any route with any token: of another state, company, or past.
func (m *machine) stray(t *rapid.T) {
	var paths []string
	for _, r := range flows.Routes {
		paths = append(paths, r.Path)
	}
	c := &modelCall{company: pick(t, "company", m.companies...), path: pick(t, "path", paths...)}
	m.anyToken(t, c)
	m.request(t, c)
}

// anyToken gives the request a token that was issued once, or another header.
func (m *machine) anyToken(t *rapid.T, c *modelCall) {
	switch n := len(m.sessions); {
	case n == 0 || oneIn(t, 10, "a token of nobody's"):
		c.header = pick(t, "header", "", "none", "malformed")
		c.token = pick(t, "token", "mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "mgs_short", "x")
	default:
		c.token = m.sessions[n-1-rapid.IntRange(0, n-1).Draw(t, "token, from the newest")].token
	}
}

// request makes the body, sends the request and compares the answer.
func (m *machine) request(t *rapid.T, c *modelCall) {
	t.Helper()
	c.address = pick(t, "address", machineAddresses...)
	c.broken = oneIn(t, 25, "gateways are down")
	m.drawBody(t, c)
	if need := modelRoutes[c.path].need; len(need) > 0 && oneIn(t, 40, "a field is missing") {
		delete(c.body, pick(t, "field", need...))
	}
	if modelRoutes[c.path].from == nil {
		c.header = ""
	}
	m.serve(t, c)
	want := m.answer(c)
	m.compare(t, c, want)
}

// session is that of the call's token, nil if there is none.
func (m *machine) sessionOf(token string) *modelSession {
	if i := slices.IndexFunc(m.sessions, func(s *modelSession) bool { return s.token == token }); i >= 0 {
		return m.sessions[i]
	}
	return nil
}

// drawBody draws a body that is right most of the time.
func (m *machine) drawBody(t *rapid.T, c *modelCall) {
	var a *modelAccount
	s := m.sessionOf(c.token)
	if s != nil {
		a = s.account
	}
	c.body = object{}
	loginID := func() {
		var sent string
		c.loginID, sent = drawLoginID(t, c.company)
		c.body["login_id"] = sent
		a = c.company.byLoginID(c.loginID)
	}
	secret := func(field, right string, others ...string) {
		if right == "" || oneIn(t, 3, "wrong "+field) {
			right = pick(t, field, others...)
		}
		c.body[field] = right
	}
	captcha := func() {
		// Sequences share their stores, and companies share what was used.
		good := func(n int) string { return fmt.Sprint("good ", m.companies[0].Code, " ", n) }
		switch pick(t, "captcha_response", "new", "new", "new", "used", "spaced", "bad", "") {
		case "new":
			m.drawn++
			c.body["captcha_response"] = good(m.drawn)
		case "used":
			c.body["captcha_response"] = good(1)
		case "spaced":
			c.body["captcha_response"] = good(m.drawn) + " "
		case "bad":
			c.body["captcha_response"] = "bad"
		}
	}
	accept := func() {
		if accepted := pick(t, "accept_disclaimers", []string{"terms", "privacy"}, []string{"terms", "privacy", "other"}, []string{"terms"}, nil); accepted != nil {
			c.body["accept_disclaimers"] = accepted
		}
	}
	of := func(what func(*modelAccount) string) string {
		if a == nil {
			return ""
		}
		return what(a)
	}
	switch c.path {
	case "auth/login":
		loginID()
	case "auth/checkcredentials", "auth/checkpassword":
		if c.path == "auth/checkcredentials" {
			loginID()
		}
		secret("password", of(func(a *modelAccount) string { return a.password }), append([]string{"wrong"}, machinePasswords...)...)
		captcha()
		accept()
	case "auth/checkotp", "auth/recovery/checkotp":
		right := ""
		if s != nil && s.code != nil {
			right = s.code.digits
		}
		if s != nil && s.byApp {
			right = flows.TOTPCode(a.app, m.now.Add(pick(t, "the app's clock", 0, 0, 30*time.Second, -30*time.Second, 60*time.Second)))
		}
		if oneIn(t, 4, "a backup code") {
			secret("backup_code", of(func(a *modelAccount) string { return strings.Join(a.backup[:min(1, len(a.backup))], "") }), "AAAAA-AAAAA")
		} else {
			secret("otp", right, "no code")
		}
		if oneIn(t, 20, "both codes") {
			c.body["otp"], c.body["backup_code"] = "no code", "AAAAA-AAAAA"
		}
		accept()
	case "auth/setpassword":
		c.body["new_password"] = pick(t, "new_password", slices.Concat(machinePasswords, c.company.weak())...)
		accept()
	case "auth/oauth":
		c.body["provider_id"] = pick(t, "provider_id", 1, 1, 1, 1, 1, 1, 1, 2)
		m.drawn++
		c.body["code"] = fmt.Sprint(pick(t, "user", "ann", "bob", "ann", "bob", "carol", "bad"), " ", pick(t, "code", m.drawn, m.drawn, m.drawn, 1))
		c.body["redirect_uri"] = pick(t, "redirect_uri", append(slices.Repeat([]string{modelRedirect}, 7), modelRedirect+"/")...)
	case "auth/acceptdisclaimers":
		accept()
	case "auth/recovery/recover":
		loginID()
		captcha()
		if method := pick(t, "method", "", "PHONE", "MAIL", "QUESTION", "QUESTION", "MAIL", "PHONE", "PIGEON"); method != "" {
			c.body["method"] = method
		}
	case "auth/recovery/checkquestion":
		secret("control_answer", of(func(a *modelAccount) string { return strings.ToUpper(a.answer) }), machineAnswers...)
	case "auth/recovery/checklink":
		var links []string
		for _, s := range m.sessions {
			if s.state == flows.MailedLink {
				links = append(links, s.token)
			}
		}
		slices.Reverse(links)
		c.body["token"] = pick(t, "link", append(links, "mgl_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "mgs_x")...)
	}
}

// drawLoginID draws a login id, and a spelling of it.
func drawLoginID(t *rapid.T, c *modelCompany) (normalised, sent string) {
	ids := slices.Concat(machineEmails, machinePhones, machineNames, []string{"nobody"})
	if !oneIn(t, 6, "any login id") {
		known := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return c.byLoginID(id) == nil })
		if len(known) > 0 {
			ids = known
		}
	}
	id := pick(t, "login_id", ids...)
	switch {
	case !oneIn(t, 4, "spelled in another way"):
		return id, id
	case id[0] == '+':
		return id, "00" + id[1:4] + " (" + id[4:7] + ") " + id[7:]
	default:
		return id, " " + strings.ToUpper(id)
	}
}

// serve sends a request to a node.
func (m *machine) serve(t *rapid.T, c *modelCall) {
	body, err := json.Marshal(c.body)
	if err != nil {
		t.Fatal(err)
	}
	request := &flows.Request{
		Company: c.company.Code, Route: flows.RouteByPath(c.path), Address: c.address,
		Authorization: authorization(c), Body: func() ([]byte, error) { return body, nil },
	}
	node := pick(t, "node", m.nodes...)
	var reply flows.Reply
	m.watch(t, c, func() (err error) {
		reply, err = node.Serve(t.Context(), request)
		return err
	})
	if err == nil {
		c.got.State, c.got.token, c.got.Mnemocode = reply.SessionState, cmp.Or(reply.SessionToken, c.got.token), reply.ProfileMnemocode
		c.got.Captcha = c.got.Captcha || reply.CaptchaRequired
		c.got.Phone, c.got.Email, c.got.Question, c.got.Method = reply.UserPhone, reply.UserEmail, reply.ControlQuestion, reply.Verification
		c.got.Quality = reply.PasswordQuality != nil
		c.got.ExpiresIn = reply.ExpiresIn
		if reply.DisclaimersRequired != nil {
			c.got.Disclaimers = codesOf(reply.DisclaimersRequired)
		}
	}
}

func authorization(c *modelCall) []string {
	switch {
	case c.header == "malformed":
		return []string{"Basic " + c.token}
	case c.header == "none" || c.token == "":
		return nil
	}
	return []string{"Bearer " + c.token}
}

func codesOf(disclaimers []flows.Disclaimer) []string {
	codes := []string{}
	for _, d := range disclaimers {
		codes = append(codes, d.Code)
	}
	return codes
}

// watch runs a call and notes its error and what the gateways were given, also
// behind the answer.
func (m *machine) watch(t *rapid.T, c *modelCall, call func() error) {
	before := m.outbox.count()
	m.broken.Store(c.broken)
	err := call()
	for _, node := range m.nodes {
		settle(node)
	}
	m.broken.Store(false)
	if err != nil {
		r := refusal(err)
		c.got.Code, c.got.Captcha, c.got.lock = codeOf(err), r.Captcha, modelLock{r.Reason, r.RetryAfter}
		if r.Disclaimers != nil {
			c.got.Disclaimers = codesOf(r.Disclaimers)
		}
	}
	m.outbox.mu.Lock()
	defer m.outbox.mu.Unlock()
	for _, message := range m.outbox.sent[before:] {
		c.got.Sent = append(c.got.Sent, message.Type+" "+message.To)
		c.got.digits = cmp.Or(message.Code, c.got.digits)
		c.got.token = cmp.Or(strings.TrimPrefix(message.Link, linkURL), c.got.token)
	}
}

// String is a line of the transcript that a failure shows.
func (c *modelCall) String() string {
	company, token := "", c.header
	if c.company != nil {
		company = c.company.Code
	}
	if c.header == "" && len(c.token) > 10 {
		token = c.token[:10]
	}
	s := fmt.Sprint("> ", company, " ", c.path, " ", token, " ", c.body, " from ", c.address)
	if c.broken {
		s += ", gateways down"
	}
	s += fmt.Sprint("\n< ", cmp.Or(c.got.Code, "success"), " ", c.got.State, " ", c.got.Sent)
	if len(c.got.token) > 10 {
		s += " " + c.got.token[:10]
	}
	return s
}

var decoyPhone = regexp.MustCompile(`^\+\d\d\*+\d\d$`)

func (m *machine) compare(t *rapid.T, c *modelCall, want modelAnswer) {
	t.Helper()
	if c.company != nil && c.company.Hardened && c.got.State == flows.RecoveryOTP && decoyPhone.MatchString(c.got.Phone) {
		c.got.Phone = "" // a decoy's can't be foretold
	}
	t.Log(c)
	if m.servers && c.got.Code == "service.unavailable" && want.Code != c.got.Code {
		m.cut = true
		return
	}
	m.outcomes[fmt.Sprint(c.path, ": ", cmp.Or(c.got.Code, "success"), " ", c.got.State)]++
	if diff := gocmp.Diff(want, c.got, cmpopts.IgnoreUnexported(modelAnswer{})); diff != "" {
		t.Fatalf("%s %v (-model +service):\n%s", c.path, c.body, diff)
	}
	if want.Code == "auth.restricted" && !slices.Contains(want.locks, c.got.lock) {
		t.Fatalf("%s %v: %v, the model has %v", c.path, c.body, c.got.lock, want.locks)
	}
}

// protected is a request for the application behind.
func (m *machine) protected(t *rapid.T) {
	c := &modelCall{}
	if len(m.sessions) == 0 {
		t.Skip("no session")
	}
	var authorized []*modelSession
	for _, s := range m.sessions {
		if s.state == flows.Authorized && !s.ended && !s.expired {
			authorized = append(authorized, s)
		}
	}
	if n := len(authorized); n > 0 && !oneIn(t, 4, "any token") {
		c.token = authorized[n-1-rapid.IntRange(0, n-1).Draw(t, "session, from the newest")].token
	} else {
		m.anyToken(t, c)
	}
	if rapid.Bool().Draw(t, "a company's path") {
		c.company = pick(t, "company", m.companies...)
	}
	m.pass(t, c)
}

// logOut ends the session that began last, seen by the protected path before
// and after.
func (m *machine) logOut(t *rapid.T) {
	for _, s := range slices.Backward(m.sessions) {
		if s.state == flows.Authorized && !s.ended && !s.expired {
			m.pass(t, &modelCall{token: s.token})
			m.request(t, &modelCall{company: s.company, path: "auth/logout", token: s.token})
			m.pass(t, &modelCall{token: s.token})
			return
		}
	}
	t.Skip("nobody is logged in")
}

// pass asks for the application behind.
func (m *machine) pass(t *rapid.T, c *modelCall) {
	t.Helper()
	if m.cut {
		return
	}
	company := ""
	if c.company != nil {
		company = c.company.Code
	}
	node := pick(t, "node", m.nodes...)
	m.watch(t, c, func() error {
		session, err := node.Authorize(t.Context(), flows.Demand{Company: company}, authorization(c))
		if memory, ok := node.Sessions.(*store.Memory); ok {
			memory.Wait() // for the store to be told, before the clock moves
		}
		if err == nil {
			c.got.Mnemocode = session.Mnemocode
		}
		return err
	})
	m.compare(t, c, m.model.protected(c))
}

// What happens beside requests

// jump sets the clock: forward, or to the very moment when something ends, or
// a bit before it, or back.
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
		if kept := m.swept.Add(-flows.Keep); to.Before(kept) { // what ended before that, a store may have forgotten
			to = kept
		}
	}
	if m.servers { // Redis sweeps by itself
		m.sweptAt(to)
	}
	m.clock.advance(to.Sub(m.now))
	m.now = to
	t.Log("> clock ", to.Format(time.RFC3339Nano))
}

// sweptAt: the stores may have forgotten what expired an hour before.
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

// sweep is what Service.Run does each minute.
func (m *machine) sweep(t *rapid.T) {
	node := pick(t, "node", m.nodes...)
	m.noError(t, node.Accounts.Sweep(t.Context(), m.now))
	m.noError(t, node.Sessions.Sweep(t.Context(), m.now))
	m.sweptAt(m.now)
	for _, c := range m.companies { // unknown login ids are forgotten after a day
		for _, t := range c.unknown {
			for _, n := range []*modelCount{&t.passwords, &t.codes} {
				if n.changed.Before(m.now.Add(-24 * time.Hour)) {
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

func (m *machine) admin(t *rapid.T, c *modelCompany) *flows.Admin {
	return &flows.Admin{Service: pick(t, "node", m.nodes...), Company: c.Company}
}

// create adds an account with drawn login ids; those of another are refused.
func (m *machine) create(t *rapid.T, c *modelCompany) {
	m.drawn++
	a := &modelAccount{
		key:          fmt.Sprint(m.drawn),
		mnemocode:    pick(t, "mnemocode", "ann-1", "bob-2", "eve-3"), // also one that was deleted
		phone:        pick(t, "phone", append([]string{""}, machinePhones...)...),
		email:        pick(t, "email", append([]string{""}, machineEmails...)...),
		loginName:    pick(t, "login name", append([]string{""}, machineNames...)...),
		status:       flows.StatusActive,
		secondFactor: rapid.Bool().Draw(t, "second_factor"),
		mustSet:      oneIn(t, 4, "must_set_password"),
		password:     pick(t, "password", append(machinePasswords, "")...),
		subject:      pick(t, "identity", "", "ann", "bob"),
		accepted:     map[string]string{},
	}
	if rapid.Bool().Draw(t, "question") {
		a.question, a.answer = "Your cat?", pick(t, "answer", machineAnswers...)
	}
	taken := ""
	switch {
	case c.find(func(b *modelAccount) bool { return b.mnemocode == a.mnemocode }) != nil:
		taken = "profile_mnemocode"
	case c.byLoginID(a.phone) != nil, c.byLoginID(a.email) != nil, c.byLoginID(a.loginName) != nil:
		taken = "a login id"
	case a.subject != "" && c.find(func(b *modelAccount) bool { return b.subject == a.subject }) != nil:
		taken = "oauth_identities"
	}
	_, err := m.admin(t, c).Create(t.Context(), flows.Change{
		Password: a.password, Answer: a.answer,
		Apply: func(x *flows.Account) error {
			x.Mnemocode, x.Phone, x.Email, x.LoginName = a.mnemocode, a.phone, a.email, a.loginName
			x.SecondFactor, x.MustSetPassword, x.Question = a.secondFactor, a.mustSet, a.question
			if a.subject != "" {
				x.Identities = []flows.Identity{{Provider: 1, Subject: a.subject}}
			}
			return nil
		},
	})
	t.Logf("> create %s %+v: %v", c.Code, *a, err)
	m.wantTakenIf(t, err, taken != "")
	if taken == "" {
		c.accounts = append(c.accounts, a)
	}
}

func (m *machine) wantTakenIf(t *rapid.T, err error, taken bool) {
	t.Helper()
	if m.didNotAnswer(err) {
		return
	}
	if _, is := errors.AsType[*flows.TakenError](err); is != taken || err != nil && !is {
		t.Fatalf("got %v, want it taken: %v", err, taken)
	}
}

// administer is one action of an administrator.
func (m *machine) administer(t *rapid.T) {
	c := pick(t, "company", m.companies...)
	action := pick(t, "action", "change", "change", "change", "app", "no app", "backup codes", "create", "unlock", "end sessions", "end the company's", "delete")
	if action == "create" || len(c.accounts) == 0 {
		m.create(t, c)
		return
	}
	a := pick(t, "account", c.accounts...)
	ad := m.admin(t, c)
	t.Log("> ", action, " ", c.Code, " ", a.mnemocode)
	var err error
	switch action {
	case "change":
		m.change(t, c, a, ad)
	case "unlock":
		_, err = ad.Unlock(t.Context(), a.mnemocode)
		a.modelAttempts = modelAttempts{}
		c.forgive(a, true)
	case "end sessions":
		err = ad.EndSessions(t.Context(), a.mnemocode)
		m.endAll(a)
	case "end the company's":
		err = ad.EndAllSessions(t.Context())
		m.endThose(func(s *modelSession) bool { return s.company == c })
	case "backup codes":
		a.backup, err = ad.NewBackupCodes(t.Context(), a.mnemocode)
	case "app":
		err = m.app(t, ad, a)
	case "no app":
		_, err = ad.RemoveTOTP(t.Context(), a.mnemocode)
		if a.app != nil {
			m.endAll(a)
		}
		a.app = nil
	case "delete":
		err = ad.Delete(t.Context(), a.mnemocode)
		m.endAll(a)
		c.accounts = slices.DeleteFunc(c.accounts, func(b *modelAccount) bool { return a == b })
	}
	m.noError(t, err)
}

// app gives the account an authenticator app, with the code of whose confirmation
// nobody can log in.
func (m *machine) app(t *rapid.T, ad *flows.Admin, a *modelAccount) error {
	made, err := ad.NewTOTP(t.Context(), a.mnemocode)
	if err != nil {
		return err
	}
	secret, err := flows.ParseTOTPSecret(made.Secret)
	if err != nil {
		return err
	}
	if _, err = ad.ConfirmTOTP(t.Context(), a.mnemocode, flows.TOTPCode(secret, m.now)); err != nil {
		return err
	}
	m.endAll(a)
	a.app, a.used = secret, map[int64]bool{m.now.Unix() / 30: true}
	return nil
}

// didNotAnswer cuts the sequence if err says that a server did not answer.
func (m *machine) didNotAnswer(err error) bool {
	m.cut = m.cut || m.servers && (errors.Is(err, flows.ErrUnavailable) || errors.Is(err, flows.ErrOwed))
	return m.cut
}

func (m *machine) noError(t *rapid.T, err error) {
	t.Helper()
	if !m.didNotAnswer(err) && err != nil {
		t.Fatal(err)
	}
}

// change changes one field. A status, password, phone, email or second factor
// that is another than before ends all that the account has.
func (m *machine) change(t *rapid.T, c *modelCompany, a *modelAccount, ad *flows.Admin) {
	before, ch := *a, flows.Change{}
	defer func() { t.Logf("< %+v", *a) }()
	field := pick(t, "field", "status", "primary_phone", "primary_email", "login_name", "second_factor",
		"must_set_password", "password", "no password", "control_question")
	switch field {
	case "status":
		a.status = pick(t, field, flows.StatusActive, flows.StatusActive, flows.StatusRestricted, flows.StatusClosed, flows.StatusDenied)
	case "primary_phone":
		a.phone = pick(t, field, append([]string{""}, machinePhones...)...)
	case "primary_email":
		a.email = pick(t, field, append([]string{""}, machineEmails...)...)
	case "login_name":
		a.loginName = pick(t, field, append([]string{""}, machineNames...)...)
	case "second_factor":
		a.secondFactor = rapid.Bool().Draw(t, field)
	case "must_set_password":
		a.mustSet = rapid.Bool().Draw(t, field)
	case "password":
		a.password = pick(t, field, machinePasswords...)
		ch.Password = a.password
	case "no password":
		a.password = ""
	case "control_question":
		a.question, a.answer = "Your cat?", pick(t, field, machineAnswers...)
		ch.Answer = a.answer
	}
	other := func(id string) bool {
		b := c.find(func(b *modelAccount) bool {
			return b != a && id != "" && (b.phone == id || b.email == id || b.loginName == id)
		})
		return b != nil
	}
	taken := other(a.phone) || other(a.email) || other(a.loginName)
	ch.Apply = func(x *flows.Account) error {
		x.Status, x.Phone, x.Email, x.LoginName = a.status, a.phone, a.email, a.loginName
		x.SecondFactor, x.MustSetPassword, x.Question = a.secondFactor, a.mustSet, a.question
		if a.password == "" {
			x.PasswordHash = ""
		}
		return nil
	}
	call := &modelCall{path: "change of " + field}
	m.watch(t, call, func() error {
		_, _, err := ad.Change(t.Context(), a.mnemocode, ch)
		m.wantTakenIf(t, err, taken)
		return nil
	})
	var want modelAnswer
	switch {
	case taken:
		*a = before
	case field == "password":
		want.Sent = c.notice(flows.NoticePasswordChanged, &before)
		a.passwords = modelCount{}
		c.forgive(a, false)
		m.endAll(a)
	case a.status != before.status, a.phone != before.phone, a.email != before.email,
		a.secondFactor != before.secondFactor, a.password != before.password:
		m.endAll(a)
	}
	m.compare(t, call, want)
}

// look compares what is stored of an account with the model.
func (m *machine) look(t *rapid.T) {
	c := pick(t, "company", m.companies...)
	if len(c.accounts) == 0 {
		t.Skip("no account")
	}
	a := pick(t, "account", c.accounts...)
	ad := m.admin(t, c)
	stored, err := ad.ByMnemocode(t.Context(), a.mnemocode)
	m.noError(t, err)
	accepted := map[string]string{}
	for _, x := range stored.Accepted {
		accepted[x.Code] = x.Version
	}
	tallies, err := ad.Accounts.Tallies(t.Context(), flows.Subject{Company: c.Code, Account: stored.ID})
	m.noError(t, err)
	live, err := ad.LiveSessions(t.Context(), a.mnemocode)
	m.noError(t, err)
	sessions := map[flows.TokenHash]bool{}
	for _, s := range live {
		sessions[s.Hash] = true
	}
	wanted := map[flows.TokenHash]bool{}
	for _, s := range m.sessions {
		hash := flows.TokenHash(sha256.Sum256([]byte(s.token)))
		if s.account != a || s.ended || s.expired || s.state == flows.MailedLink || s.state == flows.CheckPassword || !m.now.Before(s.expires) {
			continue
		}
		if (s.crowded || s.passed || s.forgotten || !m.now.Before(s.early)) && !sessions[hash] {
			continue
		}
		wanted[hash] = true
	}
	if m.cut {
		return
	}
	type facts struct {
		Accepted                  map[string]string
		Backup                    int
		MustSet                   bool
		Passwords, Codes, Answers int
		Sessions                  map[flows.TokenHash]bool
	}
	want := facts{a.accepted, len(a.backup), a.mustSet, a.passwords.n, a.codes.n, a.answers.n, wanted}
	got := facts{accepted, stored.BackupCodes, stored.MustSetPassword, tallies[flows.WrongPasswords].Count,
		tallies[flows.WrongCodes].Count, tallies[flows.WrongAnswers].Count, sessions}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-model +store):\n%s", a.mnemocode, diff)
	}
}
