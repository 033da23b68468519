package flows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

// A harness is a Service on a SQLite store, with one company, one account and gateways
// that record their messages.
type harness struct {
	*flows.Service
	t       *testing.T
	company *tenant.Company
	sms     *outbox
	mail    *outbox
	clock   *clock
	account int64
	pages   bool   // whether the site has a login page
	held    string // the token that was issued last
}

const (
	code      = "acme"
	mnemocode = "alice-0001"
	phone     = "+37060012345"
	email     = "alice@example.com"
	password  = "correct horse battery"
	answer    = "Whiskers"
	linkURL   = "https://app.example.com/recover#"
	home      = "192.0.2.1" // the address of requests, unless a test gives another
)

// cheap makes hashing almost free. Its real cost is measured elsewhere.
var cheap = pw.Argon2id{MemoryKiB: 64, Iterations: 1, Parallelism: 1}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// After returns a channel that is ready at once, so that nothing waits.
func (c *clock) After(time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	over <- c.Now()
	return over
}

// settle waits for the work that goes on after answers.
func settle(s *flows.Service) {
	for s.Waiting() > 0 {
		runtime.Gosched()
	}
}

// An outbox is a gateway that records messages. It fails while broken is set.
type outbox struct {
	mu      sync.Mutex
	sent    []message.Message
	broken  error
	arrived *sync.Cond
}

func newOutbox() *outbox {
	o := &outbox{}
	o.arrived = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) Send(_ context.Context, m message.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, m)
	o.arrived.Broadcast()
	return o.broken
}

// await waits until n messages were sent, including those sent after an answer.
func (o *outbox) await(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.sent) < n {
		o.arrived.Wait()
	}
}

func (o *outbox) last(t *testing.T) message.Message {
	t.Helper()
	return o.lastOf(t, "")
}

// lastOf returns the last message of a type, or of any type if kind is empty. Tests
// need the type because a notice may be sent some time after its answer.
func (o *outbox) lastOf(t *testing.T, kind string) message.Message {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range slices.Backward(o.sent) {
		if kind == "" || m.Type == kind {
			return m
		}
	}
	t.Fatalf("nothing was sent of type %q", kind)
	return message.Message{}
}

func (o *outbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent)
}

// A provider vouches for the user that the code names. See newGrant.
type provider struct{}

func (provider) Exchange(_ context.Context, g tenant.OAuthGrant) (tenant.OAuthUser, error) {
	user, _, _ := strings.Cut(g.Code, " ")
	switch user {
	case "down":
		return tenant.OAuthUser{}, errDown
	case "bad":
		return tenant.OAuthUser{}, wire.ErrOAuthFailed
	}
	return tenant.OAuthUser{Subject: user, Email: user + "@example.com", EmailVerified: true}, nil
}

var grants atomic.Int64

// newGrant returns a code that was never sent.
func newGrant(user string) string { return fmt.Sprint(user, " ", grants.Add(1)) }

// emptyStore returns the file of a store without accounts. To copy it takes a fraction of
// the time that it takes to create one.
var emptyStore = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "mnemogate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db := sqlite.Open(filepath.Join(dir, "empty.db"))
	if err := errors.Join(db.Start(context.Background()), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "empty.db"))
})

func newHarness(t *testing.T) *harness {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.db")
	empty, err := emptyStore()
	if err == nil {
		err = os.WriteFile(file, empty, 0o600)
	}
	must(t, err)
	db := sqlite.Open(file)
	must(t, db.Start(t.Context()))
	t.Cleanup(func() { _ = db.Close() })
	b := &harness{
		t:     t,
		sms:   newOutbox(),
		mail:  newOutbox(),
		clock: &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)},
	}
	policy := tenant.DefaultPolicy()
	policy.Password.Argon2id = cheap
	policy.Recovery.Methods = []tenant.Method{tenant.ByPhone, tenant.ByMail, tenant.ByQuestion}
	policy.Recovery.Link = linkURL + "{token}"
	b.company = &tenant.Company{
		Code:     code,
		NoAPIKey: true,
		OAuth:    map[int]tenant.OAuth{1: {Provider: provider{}, RedirectURIs: []string{"https://app.example.com/cb"}}},
		Passkeys: keychain{},
		SMS:      b.sms,
		Mail:     b.mail,
		Texts:    message.DefaultTexts(),
		Policy:   policy,
	}
	b.Service = &flows.Service{Manager: session.New(&session.Config{
		Accounts:  db.Accounts(),
		Sessions:  db.Sessions(),
		Companies: map[string]*tenant.Company{code: b.company},
		Hasher:    pw.NewHasher(128), // no racer waits for its turn: a busy machine would refuse some of them
		Log:       slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now:       b.clock.Now,
		After:     b.clock.After,
		Observe:   witness,
	})}
	t.Cleanup(b.Close)
	b.seed(manage.Seed{
		Account: record.Account{
			Mnemocode:  mnemocode,
			Phone:      phone,
			Email:      email,
			Question:   "Name of your first cat?",
			Identities: []record.Identity{{Provider: 1, Subject: "alice"}},
		},
		Password: password,
		Answer:   answer,
	})
	a, err := b.Accounts.ByMnemocode(t.Context(), code, mnemocode)
	must(t, err)
	b.account = a.ID
	return b
}

// node returns another node, on the same stores and with the same companies.
func (b *harness) node() *harness {
	other := *b
	other.Service = &flows.Service{Manager: session.New(&session.Config{
		Accounts: b.Accounts, Sessions: b.Sessions, Companies: b.Companies, Hasher: b.Hasher, Log: b.Log, Now: b.Now, After: b.After, Observe: b.Observe,
	})}
	b.t.Cleanup(other.Close)
	return &other
}

func (b *harness) seed(seed manage.Seed) {
	b.t.Helper()
	if seed.Status == "" {
		seed.Status = record.StatusActive
	}
	must(b.t, b.admin().Seed(b.t.Context(), seed))
}

// update changes the account in the store, without the flows.
func (b *harness) update(ending bool, change func(*record.Account)) {
	b.t.Helper()
	_, err := b.Accounts.Update(b.t.Context(), code, b.account, func(a *record.Account) (bool, error) {
		change(a)
		return ending, nil
	})
	must(b.t, err)
	must(b.t, b.RevokePending(b.t.Context(), late))
}

// status sets the account's status without revoking its sessions, as if the
// revocation were still on its way.
func (b *harness) status(s record.Status) {
	b.t.Helper()
	b.update(false, func(a *record.Account) { a.Status = s })
}

// addCompany adds a company with the policy, gateways and account of the first.
func (b *harness) addCompany(code string) *tenant.Company {
	b.t.Helper()
	company := *b.company
	company.Code = code
	b.Companies[code] = &company
	account, err := b.Accounts.ByID(b.t.Context(), b.company.Code, b.account)
	must(b.t, err)
	account.Company, account.Identities = code, nil
	if _, err := b.Accounts.Create(b.t.Context(), b.clock.Now(), account); err != nil {
		b.t.Fatal(err)
	}
	return &company
}

// withoutPassword removes the password, so that the account logs in with codes
// alone.
func (b *harness) withoutPassword() {
	b.t.Helper()
	b.update(true, func(a *record.Account) { a.PasswordHash = "" })
}

// backupCodes gives the account these backup codes.
func (b *harness) backupCodes(codes ...string) {
	b.t.Helper()
	hashes, err := b.Hasher.HashSet(b.t.Context(), pw.Turn{Company: code}, cheap, codes)
	must(b.t, err)
	must(b.t, b.Accounts.SetBackupCodes(b.t.Context(), b.load(), hashes))
}

func (b *harness) load() record.Account {
	b.t.Helper()
	a, err := b.Accounts.ByID(b.t.Context(), code, b.account)
	must(b.t, err)
	return a
}

// failureCount returns the account's failure count of a kind.
func (b *harness) failureCount(kind record.FailureKind) int {
	b.t.Helper()
	failures, err := b.Accounts.FailureCounts(b.t.Context(), record.FailureKey{Company: code, Account: b.account})
	must(b.t, err)
	return failures[kind].Count
}

// A captcha accepts responses that begin with "good". The response "down" makes it
// fail.
type captcha struct {
	asked   atomic.Int64
	address atomic.Value // the address of the last call
}

func (c *captcha) Verify(_ context.Context, response, address string) (bool, error) {
	c.asked.Add(1)
	c.address.Store(address)
	if response == "down" {
		return false, errDown
	}
	return strings.HasPrefix(response, "good"), nil
}

// race runs n calls at once and counts their error codes. The code of a success is
// "".
func race(n int, call func(i int) error) map[string]int {
	counts := map[string]int{}
	for _, err := range storetest.Together(n, call) {
		counts[codeOf(err)]++
	}
	return counts
}

// codeOf returns the error_code, or "" for a success.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return err.Error()
}

// addressOf returns the i-th of many addresses.
func addressOf(i int) string { return fmt.Sprintf("198.51.%d.%d", i/250, i%250+1) }

type object map[string]any

// with returns the body with more fields, or others.
func with(body, more object) object {
	body = maps.Clone(body)
	maps.Copy(body, more)
	return body
}

func (b *harness) serve(path, token string, body object) (flows.Reply, error) {
	return b.ask(flows.Request{}, path, token, body)
}

func (b *harness) serveAs(company, address, path, token string, body object) (flows.Reply, error) {
	return b.ask(flows.Request{Company: company, Client: session.Client{Address: address}}, path, token, body)
}

// ask sends a request that may have more than serveAs gives it.
func (b *harness) ask(r flows.Request, path, token string, body object) (flows.Reply, error) {
	var raw []byte // empty without a body
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return flows.Reply{}, err
		}
	}
	r.Company, r.Address, r.Route = cmp.Or(r.Company, code), cmp.Or(r.Address, home), flows.RouteByPath(path)
	r.Body = func() ([]byte, error) { return raw, nil }
	if token != "" {
		r.Authorization = []string{"Bearer " + token}
	}
	return b.Serve(b.t.Context(), &r)
}

// wrong is serve for a request that must fail.
func (b *harness) wrong(want *wire.Error, path, token string, body object) {
	b.t.Helper()
	if _, err := b.serve(path, token, body); !errors.Is(err, want) {
		b.t.Fatalf("%s: got %v, want %v (%d)", path, err, want, want.Status)
	}
}

func wantError(t *testing.T, err error, want *wire.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v (%d)", err, want, want.Status)
	}
}

// must is serve for a request that must succeed.
func (b *harness) must(path, token string, body object) flows.Reply {
	b.t.Helper()
	reply, err := b.serve(path, token, body)
	if err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
	b.held = cmp.Or(reply.SessionToken, b.held)
	return reply
}

// walk makes requests to routes with good bodies, each with the token of the one before. It
// returns the last reply.
func (b *harness) walk(paths ...string) (reply flows.Reply) {
	b.t.Helper()
	for _, path := range paths {
		reply = b.must(path, reply.SessionToken, b.goodBody(path))
	}
	return reply
}

// sessionIn brings the account into a state through the routes that lead there, and
// returns the token.
func (b *harness) sessionIn(state record.State) string {
	b.t.Helper()
	switch state {
	case record.CheckPassword:
		return b.walk("auth/login").SessionToken
	case record.CheckOTP:
		b.update(true, func(a *record.Account) { a.SecondFactor = true })
		return b.walk("auth/login", "auth/checkpassword").SessionToken
	case record.SetPassword:
		b.update(true, func(a *record.Account) { a.MustSetPassword = true })
		return b.walk("auth/login", "auth/checkpassword").SessionToken
	case record.Authorized:
		return b.walk("auth/login", "auth/checkpassword").SessionToken
	case record.AcceptDisclaimers:
		b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
		token := b.walk("auth/oauth").SessionToken
		b.company.Disclaimers = nil
		return token
	case record.RecoveryOTP:
		return b.walk("auth/recovery/recover").SessionToken
	case record.RecoveryQuestion:
		return b.must("auth/recovery/recover", "", recovery(object{"method": "QUESTION"})).SessionToken
	case record.RecoveryPassword:
		return b.must("auth/recovery/checkquestion", b.sessionIn(record.RecoveryQuestion), object{"control_answer": answer}).SessionToken
	}
	b.t.Fatalf("no way to %q", state)
	return ""
}

// goodBody returns a body with which the route succeeds, as far as the body decides.
func (b *harness) goodBody(path string) object {
	b.t.Helper()
	switch path {
	case "auth/login":
		return object{"login_id": email}
	case "auth/checkpassword":
		return object{"password": password}
	case "auth/checkotp", "auth/recovery/checkotp":
		if b.sms.count() == 0 {
			return object{"otp": "000000"}
		}
		return object{"otp": b.sms.last(b.t).Code}
	case "auth/setpassword":
		return object{"new_password": "another fine secret"}
	case "auth/checkcredentials":
		return object{"login_id": email, "password": password}
	case "auth/oauth":
		return object{"provider_id": 1, "code": newGrant("alice"), "redirect_uri": "https://app.example.com/cb"}
	case "passkey/login":
		return b.device(newGrant("good"), 0).answer(code)
	case "auth/recovery/recover":
		return object{"login_id": email, "captcha_response": "x"}
	case "auth/recovery/checkquestion":
		return object{"control_answer": answer}
	case "stepup/check":
		begun, err := b.serve("stepup", b.held, object{"factor": "sms"})
		if err != nil { // the session is in another state
			return object{"stepup_token": "mgu_x", "otp": "000000"}
		}
		return object{"stepup_token": begun.StepUpToken, "otp": b.sms.lastOf(b.t, message.OTPStepUp).Code}
	case "auth/recovery/checklink":
		b.must("auth/recovery/recover", "", object{"login_id": email, "captcha_response": "x", "method": "MAIL"})
		return object{"token": strings.TrimPrefix(b.mail.lastOf(b.t, message.RecoveryLink).Link, linkURL)}
	}
	for _, f := range flows.RouteByPath(path).Fields() {
		if f.Required {
			b.t.Fatalf("goodBody has no %s for %s", f.Name, path)
		}
	}
	return object{}
}

// refusal returns the details that an error adds to its code, or the zero value.
func refusal(err error) wire.Refusal {
	if r, ok := errors.AsType[*wire.Refusal](err); ok {
		return *r
	}
	return wire.Refusal{}
}
