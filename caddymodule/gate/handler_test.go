package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	_ "github.com/mnemogate/mnemogate/caddymodule/captcha"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/fake"
)

// liveSessions has one session, of which get tells.
type liveSessions struct {
	record.Sessions
	get func(context.Context) (record.Session, error)
}

func (s liveSessions) Get(ctx context.Context, _ record.TokenHash) (record.Session, error) {
	return s.get(ctx)
}

// A fakeStore keeps accounts in memory, and the sessions that a test gives it.
type fakeStore struct {
	accounts fake.Accounts
	sessions record.Sessions
}

func (*fakeStore) Start(context.Context) error { return nil }

func (*fakeStore) Close() error { return nil }

func (s *fakeStore) Accounts() record.Accounts { return s.accounts.Through(fake.Direct) }

func (s *fakeStore) Sessions() record.Sessions { return s.sessions }

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

var fakeStores = map[string]*fakeStore{}

// provision provisions an app with these sessions, until the test ends.
func provision(t testing.TB, configured *app.App, sessions record.Sessions) {
	t.Helper()
	name := fmt.Sprint(len(fakeStores))
	fakeStores[name] = &fakeStore{sessions: sessions}
	configured.StoreRaw = fmt.Appendf(nil, `{"module": "fake", "name": %q}`, name)
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(func() {
		cancel()
		must(t, configured.Cleanup())
	})
	must(t, configured.Provision(ctx))
}

// newHandler returns a handler in front of these sessions, and its log.
func newHandler(t testing.TB, recheck time.Duration, sessions record.Sessions) (*Handler, *bytes.Buffer) {
	t.Helper()
	configured := new(app.App)
	must(t, json.Unmarshal(fmt.Appendf(nil, `{"session": {"stream_recheck": %d}, "companies": {"acme": {"api_key_off": true, "captcha": {"module": "off"}}}}`, recheck), configured))
	provision(t, configured, sessions)
	log := new(bytes.Buffer)
	h := &Handler{app: configured, log: slog.New(slog.NewTextHandler(log, nil))}
	h.setDefaults()
	provisionHeaders(t, h)
	return h, log
}

func provisionHeaders(t testing.TB, h *Handler) {
	t.Helper()
	var err error
	h.sender, err = h.Headers.Provision(h.app, nil)
	must(t, err)
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
}

// What a store cancels by itself is an outage. The client waits, and gets no status for
// clients that have hung up.
func TestAStoreThatCancelsIsUnavailable(t *testing.T) {
	h, log := newHandler(t, time.Minute, liveSessions{get: func(context.Context) (record.Session, error) {
		return record.Session{}, context.Canceled
	}})
	w := handle(h, nil)
	if w.Code != 503 || !strings.Contains(w.Body.String(), "service.unavailable") || !strings.Contains(log.String(), "a service did not answer") {
		t.Errorf("got %d %s, and the log has %s", w.Code, w.Body, log)
	}
}

// The client shows the ref of its error to support, who searches the log for it.
func TestAWarningHasTheRefOfTheAnswer(t *testing.T) {
	h, log := newHandler(t, time.Minute, liveSessions{get: func(context.Context) (record.Session, error) {
		return record.Session{}, errors.New("connection refused")
	}})
	h.SelfService = defaultSelfService
	h.Cookie = defaultCookie
	service, err := h.app.Service(t.Context())
	must(t, err)
	service.Log = h.log
	for _, c := range []struct{ method, path string }{
		{"GET", "/x"}, {"GET", "/acme/v2/session"}, {"POST", "/acme/v2/session"}, {"DELETE", "/acme/v2/session"},
		{"GET", "/acme/v2/me/factors"}, {"POST", "/acme/v2/auth/logout"},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Authorization", "Bearer "+someToken)
		if c.method == "DELETE" {
			r.Header.Set("Cookie", defaultCookie+"="+someToken)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		w := httptest.NewRecorder()
		must(t, h.ServeHTTP(w, r, nil))
		var answer struct{ Ref string }
		must(t, json.Unmarshal(w.Body.Bytes(), &answer))
		if w.Code != 503 || answer.Ref == "" || !strings.Contains(log.String(), "ref="+answer.Ref) {
			t.Errorf("%s %s: got %d %s, and the log has %s", c.method, c.path, w.Code, w.Body, log)
		}
		log.Reset()
	}
}
