// Package admin serves the accounts API and the doctor to operators, on Caddy's
// admin endpoint. The API itself is in package accounts.
package admin

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
)

func init() { caddy.RegisterModule(API{}) }

// API serves the routes of accounts.Routes on Caddy's admin endpoint, below
// /mnemogate/, to clients that the endpoint admits. It adds those of accountsAPI, and
// GET /mnemogate/health: 200 if this node can serve, else 503; ?ready does not ask the stores.
//
// It always acts on the running configuration. An error is a JSON object with error,
// a sentence, and with field if a field is at fault. A mnemocode in a path must be
// escaped, because it may contain a slash.
type API struct{}

// CaddyModule returns the Caddy module information.
func (API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.mnemogate", New: func() caddy.Module { return new(API) }}
}

// Provision registers the metrics. Caddy installs these routers before it loads the
// apps of a config, and keeps them if the apps fail to load. Without this, /metrics
// would then lack the metrics of the config that continues to run.
func (API) Provision(ctx caddy.Context) error { return app.RegisterMetrics(ctx) }

// Routes implements caddy.AdminRouter.
func (API) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: api.Root, Handler: caddy.AdminHandlerFunc(serve)},
		{Pattern: api.Root + "health", Handler: caddy.AdminHandlerFunc(health)},
	}
}

func serve(w http.ResponseWriter, r *http.Request) error {
	address := "" // if the request came over a socket
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		address = from.Addr().String()
	}
	accountsAPI.Serve(w, r, address, "")
	return nil
}

var accountsAPI = accounts.API{
	Root: api.Root,
	App:  started,
	More: []accounts.Route{
		{Method: http.MethodGet, Pattern: "doctor", Traits: accounts.Storeless, Serve: examine, Summary: "What is wrong with the running configuration, and what to do."},
		{Method: http.MethodGet, Pattern: "backup", Traits: accounts.Long, Serve: backup, Summary: "A copy of the SQLite store, as it is at this moment."},
		{Method: http.MethodPost, Pattern: "rekey", Traits: accounts.NoBody | accounts.Long, Serve: rekey, Summary: "Gives the accounts store a new secret, and answers when all nodes use it."},
		{Method: http.MethodPost, Pattern: "explain", Serve: explain, Summary: "Says what would become of a request for a site."},
		{Method: http.MethodPost, Pattern: "{company}/send-test", Traits: accounts.Long, Serve: try, Summary: "Sends one message that says that it is a test, and tells what came back."},
		{Method: http.MethodGet, Pattern: "{company}/explain", Query: []string{"login_id", "address"}, Serve: explainLogin, Summary: "Says what would become of a login."},
		{Method: http.MethodPost, Pattern: "{company}/signing-key", Traits: accounts.NoBody, Serve: rotateSigningKey, Summary: "Gives a company a new key that signs assertions."},
		{Method: http.MethodPost, Pattern: "companies", Traits: accounts.Long, Serve: empty, Summary: "Erases a company or, with to, renames it: a part in each call, until done."},
	},
}

// health is not a route of accountsAPI, because those fail if the stores don't answer.
func health(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("use GET")}
	}
	if app, err := running(); err != nil || !app.Healthy(r) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	return nil
}

// running returns the app of the running configuration. The context that Caddy
// passes to admin modules may belong to a config that failed to load.
func running() (*app.App, error) {
	if caddy.ActiveContext().Context == nil {
		return nil, errStarting
	}
	a := app.Running()
	if a == nil {
		return nil, &accounts.Error{Status: http.StatusServiceUnavailable, Message: "the running configuration has no mnemogate: add the global option mnemogate"}
	}
	return a, nil
}

// startWithin is how long a request waits for Caddy to start.
const startWithin = 5 * time.Second

var errStarting = &accounts.Error{Status: http.StatusServiceUnavailable, Message: "Caddy is starting and has no configuration yet: try again, and see its log if this lasts"}

// started is like running, but waits until Caddy has started. Sites and this
// endpoint accept requests a moment before that.
func started(ctx context.Context) (*app.App, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		a, err := running()
		if err != errStarting {
			return a, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond): // Caddy does not notify
		}
	}
}

// Interface guards
var (
	_ caddy.AdminRouter = (*API)(nil)
	_ caddy.Provisioner = (*API)(nil)
)
