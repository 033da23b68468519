package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const seedAgainAfter = 5 * time.Second // promised by package app

// A bombSite is a site that uses these modules.
type bombSite struct{ *site }

func startBombs(t *testing.T) bombSite {
	t.Helper()
	file := filepath.Join(shortTempDir(t), "armed")
	return bombSite{startCaddyfile(t, `{
	admin unix/DIR/admin.sock
	persist_config off
	auto_https off
	log {
		output stderr
		level DEBUG
	}
	events {
		on * bomb
	}
	mnemogate {
		store bomb DIR/mnemogate.db
		sms bomb
		mail bomb
		captcha bomb
		recovery {
			methods PHONE MAIL QUESTION
			link https://app.example.com/recover#{token}
		}
		company acme {
			api_key `+testKey+`
			`+strings.Replace(roomy, "captcha off", "", 1)+`
			oauth 1 bomb
			`+account("alice", "email alice@example.com\nidentity 1 alice")+account("dave", "must_set_password")+account("gina", "must_set_password\nemail gina@example.com")+
		account("erin", `question "Cat?" "Tom"`)+`
			account carol {
				phone +37060000003
			}
			#more
		}
	}
}
http:// {
	bind fd/3
	route {
		bomb
		mnemogate
		bomb
		reverse_proxy BACKEND
	}
}
`, []string{bombsVar + "=" + file})}
}

func (s bombSite) arm(points ...string) {
	s.t.Helper()
	_, file, _ := strings.Cut(s.env[0], "=")
	writeFile(s.t, file+".new", strings.Join(points, "\n"))
	if err := os.Rename(file+".new", file); err != nil { // so that no reader sees an empty file
		s.t.Fatal(err)
	}
}

// told returns the warnings and errors in the log that report a panic.
func (s bombSite) told() (lines []string) {
	for line := range strings.Lines(s.log()) {
		if strings.Contains(line, "panic") && (strings.Contains(line, `"level":"error"`) || strings.Contains(line, `"level":"warn"`)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// toldOf waits until the log reports a panic in work after an answer.
func (s bombSite) toldOf(doing string) {
	s.t.Helper()
	storetest.Eventually(s.t, 20*time.Second, "word of a panic while "+doing, func() bool {
		return slices.ContainsFunc(s.told(), func(line string) bool {
			return strings.Contains(line, `"level":"error"`) && strings.Contains(line, doing)
		})
	})
}

func (s bombSite) metric(name string) int64 {
	s.t.Helper()
	return s.number(regexp.MustCompile(`(?m)^`+name+` (\d+)$`), s.fromAdmin("/metrics"))
}

// A panic ends only its request, wherever it occurs, and nothing in the background. The
// answer is an error of the contract. The log has one line about it, without the panic's
// value. No slot, lock or goroutine leaks.
func TestPanicsEndOnlyTheirRequest(t *testing.T) {
	t.Parallel()
	s := startBombs(t)
	none := func() string { return "" }
	login := func(loginID string) func(string) answer {
		return func(string) answer { return s.post("auth/login", "", fields{"login_id": loginID}) }
	}
	credentials := func(string) answer { return s.credentials("alice", testPassword) }
	checkpassword := func(token string) answer {
		return s.post("auth/checkpassword", token, fields{"password": testPassword})
	}
	recover := func(string) answer {
		return s.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "any", "method": "MAIL"})
	}
	asked := func() string {
		return s.post("auth/recovery/recover", "", fields{"login_id": "erin", "captcha_response": "any", "method": "QUESTION"}).token()
	}
	checkquestion := func(token string) answer {
		return s.post("auth/recovery/checkquestion", token, fields{"control_answer": "Tom"})
	}
	oauth := func(string) answer {
		return s.post("auth/oauth", "", fields{"provider_id": 1, "code": rand.Text(), "redirect_uri": "https://app.example.com/cb"})
	}
	pending := func() string { return login("alice")("").token() }
	authorized := func() string { return s.login("alice") }
	logout := func(token string) answer { return s.post("auth/logout", token, nil) }
	setpassword := func(token string) answer {
		return s.post("auth/setpassword", token, fields{"new_password": "a much better secret"})
	}
	get := func(token string) answer { return s.get("/x", token) }
	cases := []struct {
		point string
		token func() string // created before the panic
		ask   func(token string) answer
		want  *wire.Error
	}{
		{"body.Read", none, credentials, wire.ErrService},
		{"accounts.ByLoginID", none, login("alice"), wire.ErrService},
		{"accounts.ByID", pending, checkpassword, wire.ErrService},
		{"accounts.UpdateFailures", none, credentials, wire.ErrService},
		{"accounts.UpdateFailures.change", none, credentials, wire.ErrService}, // within a transaction of stores.SQLite
		{"sessions.Create", none, credentials, wire.ErrService},
		{"sessions.Get", authorized, get, wire.ErrService},
		{"sessions.Get", authorized, logout, wire.ErrService},
		{"sessions.Create", pending, checkpassword, wire.ErrService},
		{"sessions.Replace", asked, checkquestion, wire.ErrService},
		{"sessions.Delete", authorized, logout, wire.ErrService},
		{"sms.Send", none, login("+37060000003"), wire.ErrService},
		{"mail.Send", none, recover, wire.ErrService},
		{"captcha.Verify", none, recover, wire.ErrService},
		{"oauth.Exchange", none, oauth, wire.ErrService},
	}
	const times = 5
	settled := s.metric("go_goroutines")
	for _, c := range cases {
		s.run(c.point, func(t *testing.T) {
			var tokens []string
			for range times {
				tokens = append(tokens, c.token())
			}
			before := len(s.told())
			s.arm(c.point)
			answers := storetest.Together(times, func(i int) answer { return c.ask(tokens[i]) })
			s.arm()
			panics := outcomes(answers)[c.want.Code]
			for _, a := range answers {
				if panics > 0 && a.fails(wire.ErrUnavailable) {
					continue // the machine is too busy
				}
				if !a.fails(c.want) || a.str("status") != "error" || a.str("message") == "" {
					t.Errorf("got %d %s, want %d %s", a.Status, a.Body, c.want.Status, c.want.Code)
				}
			}
			storetest.Eventually(t, 10*time.Second, fmt.Sprintf("%d panics in the log", panics), func() bool {
				n := len(s.told()) - before
				if n > panics {
					t.Fatalf("%d panics are %d lines in the log", panics, n)
				}
				return n == panics
			})
			c.ask(c.token()).wantStatus(http.StatusOK)
		})
	}
	s.run("setting a password", func(t *testing.T) { // it uses up the token first
		token := s.credentials("dave", testPassword).wantState(record.SetPassword).token()
		s.arm("accounts.SetPassword")
		setpassword(token).want(wire.ErrService)
		s.arm()
		setpassword(token).want(wire.ErrTokenInvalid)
		setpassword(s.credentials("dave", testPassword).wantState(record.SetPassword).token()).wantState(record.Authorized)
	})
	s.run("the application", func(t *testing.T) { // its panics are not handled by mnemogate
		token := s.login("alice")
		s.arm("application")
		for range times {
			if a, err := s.try(client, s.getRequest("/x", token)); err == nil {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
		}
		s.arm()
		s.get("/x", token).wantStatus(http.StatusOK)
	})
	s.run("the admin API", func(t *testing.T) {
		for point, ask := range map[string]func() answer{
			"accounts.List":   func() answer { return s.admin("GET", "accounts", nil) },
			"accounts.Update": func() answer { return s.admin("PATCH", "accounts/alice", fields{"role": "tester"}) },
			"accounts.Create": func() answer {
				return s.admin("POST", "accounts", fields{"profile_mnemocode": "eve", "login_name": "eve"})
			},
		} {
			s.arm(point)
			a := ask().wantStatus(http.StatusInternalServerError)
			if a.str("error") == "" {
				t.Errorf("%s: got %s", point, a.Body)
			}
			s.arm()
			if a := ask(); a.Status/100 != 2 {
				t.Errorf("after %s: %d %s", point, a.Status, a.Body)
			}
		}
		s.arm("accounts.UpdateFailures")
		s.adminRaw("GET", "doctor", "").wantStatus(http.StatusOK).wantBody(`"failed"`)
		s.arm()
	})
	client.CloseIdleConnections()
	storetest.Eventually(t, 30*time.Second, "end of all goroutines", func() bool {
		return s.metric("go_goroutines") < settled+10 &&
			s.metric("mnemogate_hash_queue") == 0 && s.metric("mnemogate_background_messages") == 0
	})
	s.backgroundPanics()
	s.wellAfterAll()
}

// wellAfterAll checks that the process is still the one that was started, and that
// its log does not contain the values of the panics.
func (s bombSite) wellAfterAll() {
	s.t.Helper()
	select {
	case <-s.exited:
		s.t.Fatalf("caddy has ended:\n%s", s.warnings())
	default:
	}
	for _, line := range s.told() {
		// Go's HTTP server logs panics of the application.
		if strings.Contains(line, spilled) && !strings.Contains(line, "(*bomb).ServeHTTP") {
			s.t.Errorf("the log tells what was in a panic: %s", line)
		}
	}
	s.get("/x", s.login("alice")).wantStatus(http.StatusOK)
}

// backgroundPanics checks that a panic in background work ends nothing: it is logged, and
// the work continues.
func (s bombSite) backgroundPanics() {
	s.t.Helper()
	s.run("maintenance", func(*testing.T) {
		s.arm("accounts.PendingRevocations")
		s.toldOf("carrying out pending revocations")
		s.arm()
	})
	s.run("what ends elsewhere", func(t *testing.T) {
		token := s.login("alice")
		s.arm("store.Run")
		s.toldOf("receiving revocations")
		if trusted := s.metric("mnemogate_memory_trusted"); trusted != 0 {
			t.Errorf("what is remembered is believed, though nothing is heard")
		}
		if a := s.get("/x", token); a.Status != http.StatusOK { // the store confirms the session
			t.Errorf("got %d %s", a.Status, a.Body)
		}
		s.arm()
		storetest.Eventually(t, 20*time.Second, "trust again", func() bool { return s.metric("mnemogate_memory_trusted") == 1 })
	})
	s.run("a handler of events", func(t *testing.T) {
		s.arm("events.Handle")
		s.login("alice")
		s.toldOf("handling the event mnemogate.checkcredentials.success")
		s.arm()
	})
	s.run("a message behind an answer", func(t *testing.T) {
		token := s.credentials("gina", testPassword).wantState(record.SetPassword).token()
		s.arm("mail.Send")
		s.post("auth/setpassword", token, fields{"new_password": "a much better secret"}).wantState(record.Authorized)
		s.toldOf(`"mnemocode":"gina","type":"notice.password_changed"`)
		s.arm()
		storetest.Eventually(t, 20*time.Second, "end of the messages", func() bool { return s.metric("mnemogate_background_messages") == 0 })
	})
	s.run("an account that a config adds", func(t *testing.T) {
		s.config = strings.Replace(s.config, "#more", account("frank", "")+"#more", 1)
		s.arm("accounts.Create")
		must(t, s.load())
		s.arm()
		storetest.Eventually(t, seedAgainAfter+20*time.Second, "account", func() bool {
			return s.credentials("frank", testPassword).Status == http.StatusOK
		})
	})
	s.run("a store that is started", func(t *testing.T) {
		good := s.config
		s.config = strings.Replace(s.config, "/mnemogate.db", "/other.db", 1)
		s.arm("store.Start")
		if err := s.load(); err == nil {
			t.Error("a config was loaded whose store panics")
		}
		s.arm()
		s.config = good
		if err := s.load(); err != nil {
			t.Error(err)
		}
	})
}

// The modules below panic at the points that a file lists. A test writes that file.

const (
	bombsVar = "MNEMOGATE_TEST_BOMBS"
	spilled  = "hunter2-in-a-panic" // the value that they panic with
)

func explode(point string) {
	if armed, _ := os.ReadFile(os.Getenv(bombsVar)); slices.Contains(strings.Fields(string(armed)), point) {
		panic(spilled)
	}
}

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") == "" {
		return // only in the Caddy under test
	}
	caddy.RegisterModule(new(bombStore))
	handler := &bomb{id: "http.handlers.bomb"}
	for _, id := range []caddy.ModuleID{"mnemogate.sms.bomb", "mnemogate.mail.bomb", "mnemogate.captcha.bomb", "mnemogate.oauth.bomb", "events.handlers.bomb", handler.id} {
		caddy.RegisterModule(&bomb{id: id})
	}
	httpcaddyfile.RegisterHandlerDirective("bomb", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) { return handler, nil })
}

type noOptions struct{}

func (noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.NextArg(); return nil }

type bombStore struct {
	File string `json:"file"`
}

func (*bombStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.bomb", New: func() caddy.Module { return new(bombStore) }}
}

func (b *bombStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return guest.Text(&b.File)(d)
}

func (b *bombStore) Key() string { return "bomb " + b.File }

func (b *bombStore) Store() (guest.Store, error) {
	return explodingStore{sqlite.Open(b.File)}, nil
}

type explodingStore struct{ *sqlite.Store }

func (s explodingStore) Start(ctx context.Context) error {
	explode("store.Start")
	return s.Store.Start(ctx)
}

func (s explodingStore) Accounts() record.Accounts { return explodingAccounts{s.Store.Accounts()} }

func (s explodingStore) Sessions() record.Sessions { return explodingSessions{s.Store.Sessions()} }

func (s explodingStore) Run(ctx context.Context, feed record.Feed) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	defer func() { <-ended }()
	defer cancel()
	go func() {
		defer close(ended)
		s.Store.Run(ctx, feed)
	}()
	for ctx.Err() == nil {
		explode("store.Run")
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type explodingAccounts struct{ record.Accounts }

func (a explodingAccounts) Create(ctx context.Context, now time.Time, account record.Account) (int64, error) {
	explode("accounts.Create")
	return a.Accounts.Create(ctx, now, account)
}

func (a explodingAccounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	explode("accounts.ByLoginID")
	return a.Accounts.ByLoginID(ctx, company, loginID, loginIDHash)
}

func (a explodingAccounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	explode("accounts.ByID")
	return a.Accounts.ByID(ctx, company, id)
}

func (a explodingAccounts) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	explode("accounts.Update")
	return a.Accounts.Update(ctx, company, id, change)
}

func (e explodingAccounts) SetPassword(ctx context.Context, now time.Time, a record.Account, hash string, keep record.TokenHash, events ...record.OutboxEvent) error {
	explode("accounts.SetPassword")
	return e.Accounts.SetPassword(ctx, now, a, hash, keep, events...)
}

func (a explodingAccounts) UpdateFailures(ctx context.Context, now time.Time, subject record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error) error {
	explode("accounts.UpdateFailures")
	return a.Accounts.UpdateFailures(ctx, now, subject, kind, func(t *record.FailureCount) error {
		explode("accounts.UpdateFailures.change")
		return change(t)
	})
}

func (a explodingAccounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	explode("accounts.List")
	return a.Accounts.List(ctx, company, after, limit)
}

func (a explodingAccounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	explode("accounts.PendingRevocations")
	return a.Accounts.PendingRevocations(ctx, after, limit)
}

type explodingSessions struct{ record.Sessions }

func (s explodingSessions) Create(ctx context.Context, now time.Time, session record.Session, counters ...record.Counter) error {
	explode("sessions.Create")
	return s.Sessions.Create(ctx, now, session, counters...)
}

func (s explodingSessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	explode("sessions.Get")
	return s.Sessions.Get(ctx, hash)
}

func (s explodingSessions) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	explode("sessions.Replace")
	return s.Sessions.Replace(ctx, now, old, from, next, counters...)
}

func (s explodingSessions) Delete(ctx context.Context, hash record.TokenHash) error {
	explode("sessions.Delete")
	return s.Sessions.Delete(ctx, hash)
}

// A bomb is each of the other modules. That of HTTP runs before mnemogate, where it passes a
// body that may panic, and after it.
type bomb struct {
	noOptions
	id caddy.ModuleID
}

func (b *bomb) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: b.id, New: func() caddy.Module { return &bomb{id: b.id} }}
}

// Send sends an SMS or a mail.
func (b *bomb) Send(context.Context, message.Message) error {
	explode(strings.Split(string(b.id), ".")[1] + ".Send")
	return nil
}

func (*bomb) Verify(context.Context, string, string) (bool, error) {
	explode("captcha.Verify")
	return true, nil
}

func (*bomb) Reusable() {}

func (*bomb) Settings() tenant.OAuth {
	return tenant.OAuth{RedirectURIs: []string{"https://app.example.com/cb"}}
}

func (*bomb) Exchange(context.Context, tenant.OAuthGrant) (tenant.OAuthUser, error) {
	explode("oauth.Exchange")
	return tenant.OAuthUser{Subject: "alice"}, nil
}

func (*bomb) Handle(context.Context, caddy.Event) error { explode("events.Handle"); return nil }

func (*bomb) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Header.Get("X-Profile-Mnemocode") != "" {
		explode("application")
	}
	r.Body = bombBody{r.Body}
	return next.ServeHTTP(w, r)
}

type bombBody struct{ io.ReadCloser }

func (b bombBody) Read(p []byte) (int, error) {
	explode("body.Read")
	return b.ReadCloser.Read(p)
}
