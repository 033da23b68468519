package gate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	_ "github.com/mnemogate/mnemogate/caddymodule/captcha"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store"
)

// panickingSessions panic with what the log must not hold.
type panickingSessions struct{ record.Sessions }

func (panickingSessions) Get(context.Context, record.TokenHash) (record.Session, error) {
	panic(errors.New("the redis password"))
}

// liveSessions has one session, of which get tells.
type liveSessions struct {
	record.Sessions
	get func(context.Context) (record.Session, error)
}

func (s liveSessions) Get(ctx context.Context, _ record.TokenHash) (record.Session, error) {
	return s.get(ctx)
}

// A fakeStore keeps the sessions that a test gives it.
type fakeStore struct {
	accounts *store.SQLite
	sessions record.Sessions
	err      error // of its start
}

func (s fakeStore) Start(ctx context.Context) error { return cmp.Or(s.err, s.accounts.Start(ctx)) }

func (s fakeStore) Close() error { return s.accounts.Close() }

func (s fakeStore) Accounts() record.Accounts { return s.accounts.Accounts() }

func (s fakeStore) Sessions() record.Sessions { return s.sessions }

// A fakeGuest is the configuration of a fakeStore.
type fakeGuest struct {
	Name string `json:"name"`
}

func init() { caddy.RegisterModule(new(fakeGuest)) }

func (*fakeGuest) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.fake", New: func() caddy.Module { return new(fakeGuest) }}
}

func (g *fakeGuest) Key() string { return "fake:" + g.Name }

func (g *fakeGuest) Store() (guest.Store, error) { return fakeStores[g.Name], nil }

var fakeStores = map[string]fakeStore{}

// newHandler returns a handler in front of these sessions, and its log.
func newHandler(t testing.TB, recheck time.Duration, sessions record.Sessions) (*Handler, *bytes.Buffer) {
	t.Helper()
	return newHandlerOf(t, recheck, fakeStore{sessions: sessions})
}

func newHandlerOf(t testing.TB, recheck time.Duration, s fakeStore) (*Handler, *bytes.Buffer) {
	t.Helper()
	name := fmt.Sprint(len(fakeStores))
	s.accounts = store.OpenSQLite(filepath.Join(t.TempDir(), "accounts.db"))
	fakeStores[name] = s
	configured := new(app.App)
	err := json.Unmarshal(fmt.Appendf(nil, `{"store": {"module": "fake", "name": %q}, "session": {"stream_recheck": %d},
		"companies": {"acme": {"api_key_off": true, "captcha": {"module": "off"}}}}`, name, recheck), configured)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(func() {
		cancel()
		if err := configured.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	if err := configured.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	log := new(bytes.Buffer)
	return &Handler{
		Header: defaultHeader, CompanyHeader: defaultCompanyHeader, MaxBody: defaultMaxBody,
		app: configured, log: slog.New(slog.NewTextHandler(log, nil)),
	}, log
}

func handle(h *Handler, next caddyhttp.HandlerFunc) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header.Set("Authorization", "Bearer "+someToken)
	w := httptest.NewRecorder()
	if err := h.ServeHTTP(w, r, next); err != nil {
		panic(err)
	}
	return w
}

// Contract, 2: a panic answers service.error; its value reaches the log only
// without secrets.
func TestAPanicIsAnsweredAndTellsNoSecret(t *testing.T) {
	h, log := newHandler(t, time.Minute, panickingSessions{})
	w := handle(h, func(http.ResponseWriter, *http.Request) error {
		t.Error("it was let through")
		return nil
	})
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"service.error"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := log.String(); !strings.Contains(got, "panickingSessions") || strings.Contains(got, "redis password") || strings.Contains(got, someToken) {
		t.Errorf("the log holds %s", got)
	}
	log.Reset()
	var err error
	func() {
		defer h.contain(&err)
		var none []int
		_ = none[len(log.Bytes())]
	}()
	if !errors.Is(err, wire.ErrService) || !strings.Contains(log.String(), "index out of range") {
		t.Errorf("got %v, log %s", err, log)
	}
}

func TestAStoreThatDoesNotAnswerIsUnavailable(t *testing.T) {
	h, log := newHandler(t, time.Minute, liveSessions{get: func(context.Context) (record.Session, error) {
		return record.Session{}, errors.New("connection refused")
	}})
	w := handle(h, func(http.ResponseWriter, *http.Request) error {
		t.Error("it was let through")
		return nil
	})
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if !strings.Contains(log.String(), "connection refused") {
		t.Errorf("the log does not tell why: %s", log)
	}
	// Nor does a service that could not be started.
	h, _ = newHandlerOf(t, time.Minute, fakeStore{err: fmt.Errorf("%w: no such host", guest.ErrUnreachable)})
	w = handle(h, nil)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	r := httptest.NewRequest("POST", "/acme/v2/auth/login", nil)
	w = httptest.NewRecorder()
	if err := h.ServeHTTP(w, r, nil); err != nil || w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %v, %d %v %s", err, w.Code, w.Header(), w.Body)
	}
}

func TestHandlerRefusesABadConfiguration(t *testing.T) {
	for name, change := range map[string]func(*Handler){
		"header: \"X P":     func(h *Handler) { h.Header = "X Profile" },
		"header: \"x_p":     func(h *Handler) { h.Header = "x_p" },
		"another meaning":   func(h *Handler) { h.Header = "authorization" },
		"X-Forwarded-For":   func(h *Handler) { h.Header = "X-Forwarded-For" },
		"company_header: ":  func(h *Handler) { h.CompanyHeader = "te" },
		"header: Host":      func(h *Handler) { h.Header, h.CompanyHeader = "Host", "Te" }, // the first of two
		"forward: \"name\"": func(h *Handler) { h.Forward = []string{"role", "name"} },
		"forward: it has":   func(h *Handler) { h.Forward = []string{"role", "role"} },
		"forward: X-Pro":    func(h *Handler) { h.Forward, h.Header = []string{"role"}, "x-profile-role" },
		"must differ":       func(h *Handler) { h.CompanyHeader = strings.ToLower(h.Header) },
		"base_path: ":       func(h *Handler) { h.BasePath = "/api/" },
		"api":               func(h *Handler) { h.BasePath = "api" },
		"/a/../b":           func(h *Handler) { h.BasePath = "/a/../b" },
		"/%61":              func(h *Handler) { h.BasePath = "/%61" },
		"max_body: ":        func(h *Handler) { h.MaxBody = 1 },
		"cors: ":            func(h *Handler) { h.CORS = []string{"https://app.example.com/"} },
		"cors: \"*\"":       func(h *Handler) { h.CORS = []string{"*"} },
		"role: name at":     func(h *Handler) { h.Role = []Role{{Role: "admin"}} },
		"role: \"\" is no":  func(h *Handler) { h.Role = []Role{{Paths: []string{"/x"}}} },
		"lower case":        func(h *Handler) { h.CORS = []string{"https://App.example.com"} },
	} {
		h, _ := newHandler(t, time.Minute, nil)
		if err := h.Validate(); err != nil {
			t.Fatal(err)
		}
		change(h)
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
