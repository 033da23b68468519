package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

const acme = "company acme {\napi_key key-of-acme\ncaptcha off\n"

// Each process that hashes passwords would otherwise take the memory and the time of a
// Caddy that starts.
func TestAHashingProcessInitializesLittle(t *testing.T) {
	child := &exec.Cmd{Path: os.Args[0], Args: []string{"mnemogate-hashing"}, Env: []string{"GODEBUG=inittrace=1"}}
	trace, err := child.CombinedOutput()
	if err != nil || !bytes.Contains(trace, []byte("init encoding/gob")) || bytes.Contains(trace, []byte("github.com/nyaruka/phonenumbers")) {
		t.Errorf("%v: %s", err, trace)
	}
}

// newApp is an app whose only company is acme, with more in its block.
func newApp(t *testing.T, file, more string) *App {
	t.Helper()
	app, err := provisioned(t, "store sqlite "+file+"\n"+acme+more+"\n}")
	must(t, err)
	return app
}

// A lockedLog is what an app has logged, also in the background.
type lockedLog struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// logged makes the app write its log to what is returned.
func logged(app *App) *lockedLog {
	out := new(lockedLog)
	app.log = slog.New(slog.NewTextHandler(out, nil))
	return out
}

func byMnemocode(t *testing.T, s *flows.Service, mnemocode string) record.Account {
	t.Helper()
	a, err := s.Accounts.ByMnemocode(t.Context(), "acme", mnemocode)
	if err != nil {
		t.Fatalf("%s: %v", mnemocode, err)
	}
	return a
}

// serviceOf returns the service of an app. A busy machine may need longer to start it
// than a request waits.
func serviceOf(t *testing.T, app *App) (*flows.Service, error) {
	for {
		service, err := app.Service(t.Context())
		if !errors.Is(err, errStarting) {
			return service, err
		}
	}
}

func TestServiceStartsOnceForAllWhoAsk(t *testing.T) {
	app := newApp(t, t.TempDir()+"/a.db", in("account alice", "email alice@example.com"))
	services := make([]*flows.Service, 16)
	var all sync.WaitGroup
	for i := range services {
		all.Go(func() { services[i], _ = serviceOf(t, app) })
	}
	must(t, app.Start())
	all.Wait()
	for _, s := range services {
		if s == nil || s != services[0] {
			t.Fatal("there is more than one service, or none")
		}
	}
	byMnemocode(t, services[0], "alice")
}

func TestFailedStartIsTriedAgain(t *testing.T) {
	file := t.TempDir() + "/a.db"
	app := newApp(t, file, "")
	must(t, os.Mkdir(file, 0o700))
	if err := app.Start(); err == nil {
		t.Fatal("a directory serves as a database")
	}
	must(t, os.Remove(file))
	if _, err := app.Service(t.Context()); err == nil {
		t.Fatal("it is tried again at once")
	}
	app.failedAt = app.failedAt.Add(-StartAgainAfter)
	if _, err := serviceOf(t, app); err != nil {
		t.Fatal(err)
	}
}

// A clockStore has a server with a clock.
type clockStore struct{ *sqlite.Store }

func (clockStore) Clock(context.Context) (time.Time, error) { return time.Unix(7, 0), nil }

func TestServiceAsksTheServerOfTheAccountsForTheTime(t *testing.T) {
	app := newApp(t, t.TempDir()+"/a.db", "")
	app.stores[0].Store = clockStore{app.stores[0].Store.(*sqlite.Store)}
	service, err := serviceOf(t, app)
	must(t, err)
	if service.Clock == nil {
		t.Fatal("it does not")
	}
	if now, err := service.Clock(t.Context()); err != nil || now != time.Unix(7, 0) {
		t.Errorf("got %v, %v", now, err)
	}
}

// A checkedStore counts the checks. The second finds damage.
type checkedStore struct {
	*sqlite.Store
	checks *int
}

func (s checkedStore) Check(context.Context) error {
	if *s.checks++; *s.checks == 2 {
		return record.ErrDamaged
	}
	return nil
}

// A check reads the whole store, and a script may export a thousand companies.
func TestAStoreIsCheckedOnceInAWhile(t *testing.T) {
	app, checks := newApp(t, t.TempDir()+"/a.db", ""), 0
	app.stores[0].Store = checkedStore{app.stores[0].Store.(*sqlite.Store), &checks}
	recently := time.Now().Add(-time.Minute)
	for i, c := range []struct {
		since  time.Time
		checks int
		want   error
	}{{recently, 1, nil}, {recently, 1, nil}, {time.Now().Add(time.Minute), 2, record.ErrDamaged}, {recently, 3, nil}, {recently, 3, nil}} {
		if _, err := app.CheckStore(t.Context(), c.since); !errors.Is(err, c.want) || checks != c.checks {
			t.Errorf("%d: after %d checks, got %v", i, checks, err)
		}
	}
}

func TestNothingStartsWhenTheConfigHasEnded(t *testing.T) {
	app := newApp(t, t.TempDir()+"/a.db", "")
	app.cancel()
	if _, err := app.Service(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Its accounts are created by the next config.
func TestAConfigThatHasEndedReportsNoAccount(t *testing.T) {
	app := newApp(t, t.TempDir()+"/a.db", "")
	out := logged(app)
	service, err := serviceOf(t, app)
	must(t, err)
	app.Companies["acme"].seeds = []manage.Seed{{Account: record.Account{Mnemocode: "alice", LoginName: "alice"}}}
	ended, end := context.WithCancel(t.Context())
	end()
	if app.createAccounts(ended, service) || strings.Contains(out.String(), "not created") {
		t.Errorf("the log has %q", out)
	}
}

func TestACompanyWithoutRecoveryIsToldWhatItNeeds(t *testing.T) {
	for more, want := range map[string]string{
		"":                            "configure sms, or mail and recovery link",
		in("recovery", "methods off"): "name PHONE or MAIL in methods of recovery",
	} {
		app := newApp(t, t.TempDir()+"/a.db", more)
		if !slices.ContainsFunc(app.Companies["acme"].weaknesses(&app.Policy), func(w Weakness) bool { return w.Directive == "recovery" && w.Advice == want }) {
			t.Errorf("%q: nothing says %q", more, want)
		}
	}
}

// A thousand companies may inherit an option, or a default. What is about one of them alone is
// told of it, and so is what is about a few.
func TestTheWeaknessOfAnInheritedOptionIsToldOnce(t *testing.T) {
	for n, want := range map[int][]string{
		2: {"a1", "a2", "zeta"},
		6: {"a1 and 5 more)", "zeta"},
	} {
		companies := in("company zeta", "api_key k\ncaptcha off\npassword {\nmin_length 8\n}")
		for i := range n {
			companies += in(fmt.Sprint("company a", i+1), fmt.Sprint("api_key k", i))
		}
		app, err := provisioned(t, "store sqlite "+t.TempDir()+"/a.db\ncaptcha off\n"+companies)
		must(t, err)
		told := map[string][]string{}
		for _, w := range app.Weaknesses() {
			_, more, _ := strings.Cut(w.Message, " (of ")
			told[w.Directive] = append(told[w.Directive], w.Company+more)
		}
		for _, directive := range []string{"captcha", "password min_length"} {
			if got := told[directive]; !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", directive, got, want)
			}
		}
	}
}

// A brokenStore is a module that returns a store beside its error, as a typed nil is one.
type brokenStore struct{}

func (brokenStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.broken"}
}
func (brokenStore) Key() string { return "broken" }
func (brokenStore) Store() (guest.Store, error) {
	var none *sqlite.Store
	return none, io.ErrUnexpectedEOF
}

func TestAStoreThatCannotBeMadeIsAnError(t *testing.T) {
	if _, err := newApp(t, t.TempDir()+"/a.db", "").use("store", brokenStore{}, ""); err != io.ErrUnexpectedEOF {
		t.Errorf("got %v", err)
	}
}

// A namedStore has the key of all others.
type namedStore string

func (n namedStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts." + caddy.ModuleID(n)}
}
func (namedStore) Key() string                   { return "postgres://db" }
func (n namedStore) Store() (guest.Store, error) { return &feedingStore{}, nil }

// Two modules may use the same text as a key, such as the address of their server.
func TestModulesShareNoStore(t *testing.T) {
	app := newApp(t, t.TempDir()+"/a.db", "")
	var used []*PooledStore
	for _, module := range []namedStore{"a", "b", "a"} {
		store, err := app.use("store", module, "")
		must(t, err)
		used = append(used, store)
	}
	if used[0] == used[1] || used[0] != used[2] {
		t.Errorf("used %p, %p and %p", used[0], used[1], used[2])
	}
}

// A feedingStore feeds with a lease of an hour, until its run ends.
type feedingStore struct{ run chan struct{} }

func (*feedingStore) Start(context.Context) error { return nil }
func (*feedingStore) Close() error                { return nil }
func (*feedingStore) Sessions() record.Sessions   { return nil }
func (s *feedingStore) Run(_ context.Context, feed record.Feed) {
	feed.SetLease(time.Now().Round(0).Add(time.Hour)) // of the wall clock
	s.run <- struct{}{}
	<-s.run
}

// A store of others can't make a node rely on its memory for long: not with a lease that is
// too long, and not when it has stopped receiving.
func TestAMemoryIsNotReliedOnForLong(t *testing.T) {
	store := &feedingStore{run: make(chan struct{})}
	p := newPooledStore("key", "feeding", store, 100)
	must(t, p.Start(t.Context(), nil))
	<-store.run
	storetest.Eventually(t, 5*time.Second, "end of the lease", func() bool { return !p.memory.HasLease() })
	p.memory.SetLease(time.Now().Add(time.Hour))
	store.run <- struct{}{}
	p.done.Wait()
	if p.memory.HasLease() {
		t.Error("nothing is received, and the memory is relied on")
	}
	must(t, p.Destruct())
}

// A hastyReceiver has these settings.
type hastyReceiver struct {
	Timeout caddy.Duration `json:"timeout"`
	Retry   caddy.Duration `json:"retry"`
	Types   []string       `json:"types"`
}

func init() { caddy.RegisterModule(new(hastyReceiver)) }

func (*hastyReceiver) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.events.hasty", New: func() caddy.Module { return new(hastyReceiver) }}
}
func (*hastyReceiver) Deliver(context.Context, record.OutboxEvent) error { return nil }
func (h *hastyReceiver) Settings() tenant.Events {
	return tenant.Events{Timeout: time.Duration(h.Timeout), Retry: time.Duration(h.Retry), Types: h.Types}
}

// Without a timeout, no event would be delivered. Without a pause, a receiver that is down
// would be asked again at once. With a type that does not exist, it would wait for ever.
func TestReceiversHaveBounds(t *testing.T) {
	for settings, want := range map[string]string{
		`"retry":"5s"`:                    "events: timeout: it must be above 0, and at most 1m",
		`"retry":"5s","timeout":"61s"`:    "events: timeout: it must be above 0, and at most 1m",
		`"timeout":"5s"`:                  "events: retry: choose 100ms to 10m",
		`"timeout":"5s","retry":"11m"`:    "events: retry: choose 100ms to 10m",
		`"timeout":"1m","retry":"10m"`:    "",
		`"timeout":"1ms","retry":"100ms"`: "",

		`"timeout":"5s","retry":"5s","types":["account.renamed"]`:                   `events: types: there is no event "account.renamed"; choose from account.created, account.changed`,
		`"timeout":"5s","retry":"5s","types":["account.created","account.created"]`: "events: types: account.created already specified",
		`"timeout":"5s","retry":"5s","types":["account.created"]`:                   "",
	} {
		_, err := fromJSON(t, `{"store":{"module":"sqlite","file":"`+t.TempDir()+`/a.db"},"events":{"module":"hasty",`+settings+`},"companies":{"acme":{"api_key_off":true,"captcha":{"module":"off"}}}}`)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", settings, err)
		}
	}
}

// A receiver tells which events it got.
type receiver chan record.OutboxEvent

func (r receiver) Deliver(_ context.Context, e record.OutboxEvent) error {
	r <- e
	return nil
}

// The events of a config that fails to load are those of the one that runs, and so is their
// receiver.
func TestAConfigThatDoesNotRunDeliversNothing(t *testing.T) {
	app, delivered := newApp(t, t.TempDir()+"/a.db", in("account alice", "login alice")), make(receiver, 1)
	app.Companies["acme"].effective.Events = tenant.Events{Receiver: delivered, Timeout: time.Second, Retry: time.Second}
	must(t, app.Start())
	select {
	case e := <-delivered:
		t.Errorf("it has delivered %s", e.Type)
	case <-time.After(time.Second):
	}
}

// A secret comes from a file as it is, and no client could send this one.
func TestConfiguredSecretsCanBeSent(t *testing.T) {
	guesttest.Environment(t)
	file := t.TempDir() + "/secret"
	must(t, os.WriteFile(file, []byte("a\x00b"), 0o600))
	for option, want := range map[string]string{
		"password {file." + file + "}":      "company acme: account alice: password: it has a line break, a byte order mark or another control character",
		"question Cat? {file." + file + "}": "company acme: account alice: question: it has a line break, a byte order mark or another control character",
	} {
		_, err := provisioned(t, acme+in("account alice", "phone +37060012345\n"+option)+"}")
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\x00") {
			t.Errorf("%s: got %v", option, err)
		}
	}
}

func TestConfiguredAccounts(t *testing.T) {
	guesttest.Environment(t)
	file := t.TempDir() + "/a.db"
	first := newApp(t, file, in("account alice", `
		phone "00 370 (600) 12345"
		email " Alice@example.com"
		login "alice "
		locale lt-lt
		password {env.MNEMOGATE_TEST_SECRET}
		question "Who?" I
		second_factor
		must_set_password
		identity 2 42`))
	service, err := serviceOf(t, first)
	must(t, err)
	a := byMnemocode(t, service, "alice")
	if a.Phone != "+37060012345" || a.Email != "Alice@example.com" || a.LoginName != "alice" || a.Locale != "lt-LT" || a.Question != "Who?" ||
		!a.SecondFactor || !a.MustSetPassword || a.Status != record.StatusActive ||
		len(a.Identities) != 1 || a.Identities[0] != (record.Identity{Provider: 2, Subject: "42"}) {
		t.Errorf("got %+v", a)
	}
	if ok, _, err := hasher().Verify(t.Context(), password.Turn{Company: "acme"}, password.DefaultArgon2id, a.PasswordHash, guesttest.Secret); !ok || err != nil {
		t.Errorf("the password is not what the placeholder stands for: %v", err)
	}

	second := newApp(t, file, in("account alice", "email changed@example.com")+
		in("account bob", "login ALICE")+in("account carol", "login carol"))
	log := logged(second)
	must(t, second.Start())
	if got := byMnemocode(t, service, "alice"); got.Email != a.Email || got.Updated != a.Updated {
		t.Errorf("a configured account was changed: %+v", got)
	}
	byMnemocode(t, service, "carol")
	if _, err := service.Accounts.ByMnemocode(t.Context(), "acme", "bob"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("bob: %v", err)
	}
	if !strings.Contains(log.String(), "mnemocode=bob") || strings.Contains(log.String(), "mnemocode=alice") {
		t.Errorf("the log says\n%s", log)
	}
}

func TestAPIKeysAreKeptAsHashes(t *testing.T) {
	guesttest.Environment(t)
	want, other := sha256.Sum256([]byte("key-of-acme")), sha256.Sum256([]byte("other"))
	app, err := provisioned(t, "company acme {\ncaptcha off\napi_key {env.MNEMOGATE_TEST_KEY} sha256:"+fmt.Sprintf("%X", other)+"\n}")
	must(t, err)
	c := app.Companies["acme"]
	if len(c.effective.APIKeys) != 2 || c.effective.APIKeys[0] != want || c.effective.APIKeys[1] != other {
		t.Errorf("got %x", c.effective.APIKeys)
	}
	if c.APIKeys != nil {
		t.Error("the key itself is kept")
	}
}

// Weaknesses knows each API key that the examples show.
func TestTheKeysOfTheExamplesAreKnown(t *testing.T) {
	files, _ := filepath.Glob("../../docs/examples/*/Caddyfile")
	shown := 0
	for _, file := range append(files, "../../Caddyfile.example") {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`api_key (?:\{\$\w+:)?([\w-]+)`).FindAllSubmatch(raw, -1) {
			shown++
			if !published(sha256.Sum256(found[1])) {
				t.Errorf("%s: %s is not one of exampleKeys", file, found[1])
			}
		}
	}
	if shown < len(exampleKeys) {
		t.Errorf("the examples show only %d", shown)
	}
}
