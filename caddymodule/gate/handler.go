// Package gate decides what happens to a request: it answers the request itself (an auth
// route, a page), refuses it, or passes it to the application. Start at
// Handler.ServeHTTP. File path.go finds out what a path asks for, guard.go
// decides which requests pass, and stream.go passes them on and cuts long answers when
// their session ends. Package identity has the identity headers, and package paths the
// rules for paths.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/bypass"
	"github.com/mnemogate/mnemogate/caddymodule/gate/identity"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func init() {
	caddy.RegisterModule(Handler{})
	httpcaddyfile.RegisterHandlerDirective("mnemogate", parseHandler)
	// mnemogate must run before any directive but redir that answers a request or proxies it.
	httpcaddyfile.RegisterDirectiveOrder("mnemogate", httpcaddyfile.Before, "basic_auth")
}

const (
	defaultMaxBody = 16 << 10
	apiKeyHeader   = "X-Api-Key"
)

// To add an option such as cookie, add:
//   - the field with its docstring, setDefaults and check here, for identity headers in
//     identity/, for paths in paths/
//   - caddyfile.go, and caddymodule/integration/mistakes_test.go
//
// An option of the app or a company, such as cache or api_key, is in app.go or company.go,
// and in caddyfile.go, of caddymodule/app.

// Handler is the gate in front of an application. It answers the routes of the auth
// API, `POST /{company_code}/v2/auth/…`, and serves their OpenAPI document at
// `GET /{company_code}/v2/openapi.json`. Any other request passes only with the Bearer
// token of an authorized session, or with its cookie. The application then finds the
// user in headers that no client can set. The handler answers a request without a
// valid token with JSON and status 400, 401 or 403, or 503 if a store does not
// answer. With `login_page`, it sends a browser to that page instead.
//
// Every request must pass this handler exactly once before it reaches the
// application. Routes can bypass it, with a matcher or by running reverse_proxy
// first, or can run it twice. mnemogate refuses a configuration that clearly does
// so. If it cannot tell, it logs a warning at each start, and
// `caddy mnemogate doctor` reports it.
//
// It sets these placeholders on requests that pass. They are empty if a
// request on a public path has no user.
//
// Placeholder | Description
// ------------|------------
// `{http.auth.user.id}` | The profile_mnemocode of the user
// `{http.auth.user.company}` | The code of the user's company
//
// The companies, and all that they share, are configured in the app `mnemogate`.
type Handler struct {
	identity.Headers
	paths.Rules

	// The path prefix of `/{company_code}` on this site, such as `/api`. Default: no
	// prefix.
	BasePath string `json:"base_path,omitempty"`

	// Whether to pass the Authorization header, which holds the session token, to
	// the application. Anyone with the token can act as the user, so enable this
	// only if the application needs it. Default: false.
	ForwardAuthorization bool `json:"forward_authorization,omitempty"`

	// Whether requests for the application need the company's API key in X-Api-Key,
	// as the auth routes do. Users of a company with `api_key off` can then reach
	// only paths that begin with its code. Default: false.
	RequireAPIKey bool `json:"require_api_key,omitempty"`

	// The largest body that mnemogate's own routes on this site read, in bytes: 1024 to
	// 1048576. Default: 16384.
	MaxBody int64 `json:"max_body,omitempty"`

	// The origins whose pages may call this site, such as `https://app.example.com`.
	// The handler answers their preflight requests and adds the CORS headers to
	// other answers. Default: none.
	CORS []string `json:"cors,omitempty"`

	// The codes of the companies that this site serves: it answers their auth routes
	// and accepts their tokens. It treats all other companies as unknown. Default:
	// all.
	Companies []string `json:"companies,omitempty"`

	// The path at which load balancers and monitors check this node, such as
	// `/health`. The answer is 200 if the node's stores answer and its logs take their
	// lines, else 503, and has no body. It is also 503 while Caddy's `shutdown_delay` keeps
	// a stopping server running. Use `/health?ready` to decide which nodes receive
	// requests: it does not check the stores, since the failure of a shared store would
	// take all nodes out of service. The path needs no token and never reaches the
	// application. Default: none.
	Health string `json:"health,omitempty"`

	// The path at which another proxy asks whether it may pass a request on, such as
	// `/check`: nginx with auth_request, Traefik and Caddy with forward_auth, Envoy with
	// ext_authz, or HAProxy. The proxy sends the request's headers, and describes its
	// method, host, and path with query in `X-Forwarded-Method`, `X-Forwarded-Host` and
	// `X-Forwarded-Uri`, each exactly once. The answer to a request that may pass is 204
	// with the identity headers. Any other answer is the refusal, which the proxy sends
	// to the client. For a path that mnemogate answers itself, such as an auth route,
	// it is 404. Only a proxy in `trusted_proxies` may ask. Caddy's access log has the
	// answer without the assertion, the email and the phone. Default: none.
	Check string `json:"check,omitempty"`

	// The name of the session cookie, such as `__Host-mnemogate`.
	// `POST /{company_code}/v2/session` sets the cookie and `DELETE` revokes its session.
	// Protected paths accept the cookie from requests whose Authorization, if they have
	// one, is of another scheme than Bearer, such as Basic. The application does not see
	// it. A request that may change something (any method but GET, HEAD and OPTIONS, or a
	// WebSocket handshake) must come from a page of this origin or of one in `cors`.
	// Otherwise the answer is `auth.header.invalid` with the reason `cross_site`. The
	// cookie is `Secure` even on plain http, where browsers keep it only for localhost.
	// Other hosts of the domain can set a cookie whose name does not begin with `__Host-`.
	// Default: none, so cookies are ignored; with a login page, `__Host-mnemogate`.
	Cookie string `json:"cookie,omitempty"`

	// Whether a WebSocket handshake may carry the token as one of its protocols, in
	// `Sec-WebSocket-Protocol: mnemogate.bearer.<token>, <protocol>`. Pages in a
	// browser need this, since they cannot set Authorization there. The handler
	// removes the token's protocol, and the application must accept the other one. A
	// token without another protocol gets `auth.header.invalid`. If the request has
	// Authorization, the handler removes the token and ignores it. With a token in
	// the protocols it ignores the cookie.
	//
	// Caddy's access log would show the token. The handler therefore logs these
	// handshakes with its own logger, and other requests with such a token in the
	// access log without it. The errors of such requests do not reach handle_errors.
	// Default: false.
	WebSocketToken bool `json:"websocket_token,omitempty"`

	// The login pages, `GET /{company_code}/login`, each for companies of its own; a
	// single one need not be a list. A page sets the cookie, by default
	// `__Host-mnemogate`. Anyone who can load it can call the auth routes of its
	// company on this site with the API key that the page contains. The key then
	// keeps nobody out. Default: none.
	LoginPages LoginPages `json:"login_page,omitempty"`

	// Lets users manage their own login with the routes below `/{company_code}/v2/me/`.
	// They see and revoke their sessions, change their password, and set up passkeys,
	// an authenticator app and backup codes. Together with `login_page`,
	// `GET /{company_code}/security` is a page for this. Changes need a login that is
	// not older than this, from 1s to 24h. If it is older, the answer is
	// `auth.session.invalid` with the reason `too_old`. In the Caddyfile, the default
	// is 10m. Default: none, and these paths belong to the application.
	SelfService caddy.Duration `json:"self_service,omitempty"`

	// Whether changes of password, phone, email, authenticator app, backup codes, passkeys
	// and `second_factor` also need two factors, if the account has another one than the
	// session was given. Otherwise the answer is `auth.session.invalid` with the reason
	// `mfa`. Without it, a recent login with one factor can set up a second one, and with
	// that open the paths of `mfa`. Default: false. It needs `self_service`.
	SelfServiceMFA bool `json:"self_service_mfa,omitempty"`

	// The positions of the options in the Caddyfile, for errors and warnings. The
	// Caddyfile adapter sets it. Leave it out of JSON that you write yourself.
	Source guest.Source `json:"source,omitempty"`

	app       *app.App
	log       *slog.Logger
	accessLog *zap.Logger // Caddy's
	document  []byte      // the OpenAPI document
	sender    *identity.Sender

	imagined *flows.Service // in place of the app's, for Explain; else nil
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.mnemogate",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision sets the defaults and finds the app.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	if h.app, err = app.Configured(ctx, "mnemogate", h.Source); err != nil {
		return err
	}
	if err := h.provision(ctx); err != nil {
		return h.Source.At(err)
	}
	return bypass.Check(ctx, h.app)
}

func (h *Handler) provision(ctx caddy.Context) (err error) {
	h.log = logs.Slog(ctx)
	h.accessLog = logs.Of(ctx, new(caddyhttp.App)).Named("log.access")
	h.setDefaults()
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		h.app.RegisterServer(server)
	}
	for i, p := range h.LoginPages {
		if p.page, err = page.New(h.pageOptions(p)); err != nil {
			return guest.Inside(guest.Nth("login_page", i), err)
		}
	}
	if h.SelfService > 0 {
		h.app.RegisterSelfService(h.Serves)
	}
	h.document = openAPI(h.BasePath)
	h.noteWeak()
	h.sender, err = h.Headers.Provision(h.app, h.Source)
	return err
}

// noteWeak records settings that are valid but probably not meant.
func (h *Handler) noteWeak() {
	given := map[string][]string{"public": h.Public, "mfa": h.MFA}
	for i, f := range h.Fresh {
		given[guest.Nth("fresh", i)] = f.Paths
	}
	for i, r := range h.Role {
		given[guest.Nth("role", i)] = append([]string{r.Role}, r.Paths...)
	}
	for _, directive := range slices.Sorted(maps.Keys(given)) {
		for _, word := range given[directive] {
			if strings.Contains(word, ",") {
				h.app.Note([]app.Weakness{{Directive: directive, At: h.Source.Line(directive), Weakness: guest.Weakness{
					Message: word + " is one word with a comma in it",
					Advice:  "separate paths by spaces, and give each role a line of its own",
				}}})
			}
		}
	}
	for i, p := range h.LoginPages {
		option := guest.Nth("login_page", i)
		for _, weak := range p.Weaknesses() {
			h.app.Note([]app.Weakness{{Directive: option, At: h.Source.Line(option + " color"), Weakness: weak}})
		}
	}
	for _, p := range h.Public {
		if paths.Matches(p, "/") && paths.Matches(p, "/any/path") { // only a pattern for all paths matches both
			h.app.Note([]app.Weakness{{Directive: "public", At: h.Source.Line("public"), Weakness: guest.Weakness{
				Message: p + " is every path: nobody needs a token for the application",
				Advice:  "name the public paths, such as /health or /docs/*; leave it only if the application itself refuses requests without the identity headers",
			}}})
		}
	}
}

func (h *Handler) setDefaults() {
	h.MaxBody = cmp.Or(h.MaxBody, defaultMaxBody)
	if h.LoginPages != nil {
		h.Cookie = cmp.Or(h.Cookie, defaultCookie)
	}
}

var (
	basePath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
	origin   = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#]+$`)
)

// Validate refuses a configuration that cannot work.
func (h *Handler) Validate() error { return h.Source.At(h.validate()) }

func (h *Handler) validate() error {
	if h.RequireAPIKey {
		if shared := h.app.SharedKeys(); len(shared) > 0 {
			return fmt.Errorf("require_api_key: company %s shares an API key with another, so a key does not say whose users may pass; give each company keys of its own", shared[0].Company)
		}
	}
	if h.Companies != nil && len(h.Companies) == 0 {
		return errors.New("company: the list is empty; name a company, or leave it out to serve all")
	}
	for _, code := range h.Companies {
		if h.app.Companies[code] == nil {
			return fmt.Errorf("company: there is no company %q; name one that the global option mnemogate has", code)
		}
	}
	return guest.First(h.checkLoginPages, h.Headers.ValidateAssertion, h.check)
}

// check validates the handler's own options. Its errors begin with the directive.
func (h *Handler) check() error {
	if !basePath.MatchString(h.BasePath) || strings.Contains(h.BasePath+"/", "/./") || strings.Contains(h.BasePath+"/", "/../") {
		return fmt.Errorf("base_path: %q must begin with a slash, not end with one, and need no escapes", h.BasePath)
	}
	if h.MaxBody < 1024 || h.MaxBody > 1<<20 {
		return errors.New("max_body: it must be from 1KiB to 1MiB")
	}
	for _, o := range h.CORS {
		if strings.ContainsAny(o, "*{}") {
			return fmt.Errorf("cors: %q: wildcards and placeholders are not replaced here; write each origin, as in https://app.example.com", o)
		}
		if !origin.MatchString(o) || o != strings.ToLower(o) {
			return fmt.Errorf("cors: %q is not an origin; write it as browsers do: scheme and host in lower case, as in https://app.example.com", o)
		}
		if written := guest.BrowserOrigin(o); written != o {
			return fmt.Errorf("cors: %q: browsers write it as %s; write that", o, written)
		}
	}
	return guest.First(h.Headers.Validate, h.checkSelfService, h.checkHealth, h.checkCookie, h.Rules.Validate, h.checkCheck)
}

// ServeHTTP answers an auth route, or passes a request with a valid token on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer logs.SkipAccessLog(r)
	asked := isAt(r, h.Check)
	if asked {
		came := *r // with the body, which the description lacks
		defer bodies.Limit(w, &came)()
		if log := h.logCheck(r); log != nil {
			recorder := caddyhttp.NewResponseRecorder(w, nil, nil)
			defer log.write(recorder, nil)
			w = recorder
		}
		if err := h.describe(r); err != nil {
			app.CountProtected(r.Context(), err, false)
			h.deny(w, r, err)
			return nil
		}
	}
	t := h.find(r)
	t.asked = asked
	if h.WebSocketToken && r.Header[socketProtocols] != nil {
		return h.serveSocket(w, r, t, next)
	}
	return h.serve(w, r, t, next)
}

// find returns what a request asks for.
func (h *Handler) find(r *http.Request) target {
	t := targetOf(h.BasePath, r.URL)
	if isAt(r, h.Health) {
		t.kind = health
	}
	if has := kinds[t.kind].has; has != nil && !has(h, r, t) {
		t.kind = protectedPath
	}
	return t
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, t target, next caddyhttp.Handler) error {
	if h.crossOrigin(w, r) {
		w = h.withCORS(w, r)
		if isPreflight(r) {
			t.kind = preflight
		}
	}
	if kinds[t.kind].serve == nil {
		return h.guard(w, r, t, next)
	}
	if t.asked {
		h.deny(w, r, errOwnPath)
		return nil
	}
	if t.kind != noAuthRoute && !h.Serves(t.company) {
		t.company = "" // answered like an unknown company
	}
	defer bodies.Limit(w, r)()
	switch {
	case bodies.IsEarly(r): // its address may be forged, and limits count for addresses
		h.refuse(w, r, wire.ErrEarlyData)
	case mayRepeat(r, t):
		h.serveOnce(w, r, t)
	default:
		h.respond(w, r, t)
	}
	return nil
}

// respond writes the answer of a target that is not guarded.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, t target) {
	var body any
	err := h.checkMethod(r, t)
	if err == nil {
		body, err = kinds[t.kind].serve(h, w, r, t)
	}
	switch {
	case err != nil:
		h.app.NoteProxy(r, err)
		h.refuse(w, r, err)
	case body != nil:
		bodies.WriteJSON(w, http.StatusOK, body)
	}
}

// stepsUp reports whether something on the site may ask for a step-up.
func (h *Handler) stepsUp() bool { return len(h.MFA) > 0 || len(h.Fresh) > 0 || h.SelfService > 0 }

// serveRoute answers an auth route.
func (h *Handler) serveRoute(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	began := time.Now()
	var reply flows.Reply
	if trace.SpanFromContext(r.Context()).IsRecording() {
		reply, err = h.runTraced(w, r, t)
	} else {
		reply, err = h.runRoute(w, r, t)
	}
	h.app.CountRequest(r.Context(), t.company, t.route, began, reply.SessionState, err)
	return success{Status: "success", Reply: reply}, err
}

// serveNoRoute refuses a path that could be mistaken for an auth route.
func (h *Handler) serveNoRoute(_ http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	h.app.CountRequest(r.Context(), t.company, nil, time.Now(), record.None, wire.ErrNoRoute)
	return nil, wire.ErrNoRoute
}

// runTraced is runRoute with a span for the step.
func (h *Handler) runTraced(w http.ResponseWriter, r *http.Request, t target) (flows.Reply, error) {
	ctx, span := guest.StartSpan(r.Context(), t.route.Path, trace.SpanKindInternal)
	defer span.End()
	reply, err := h.runRoute(w, r.WithContext(ctx), t)
	outcome := string(reply.SessionState)
	if err != nil {
		err = wire.WithRef(err) // refusals by the gate have none yet
		var status int
		if outcome, status = wire.ResultOf(r.Context(), err); status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, outcome)
		}
		span.SetAttributes(refOf(err))
	}
	span.SetAttributes(attribute.String("mnemogate.route", t.route.Path), attribute.String("mnemogate.outcome", outcome))
	if h.app.Companies[t.company] != nil { // other names are a stranger's words
		span.SetAttributes(attribute.String("mnemogate.company", t.company))
	}
	return reply, err
}

// runRoute runs an auth route.
func (h *Handler) runRoute(w http.ResponseWriter, r *http.Request, t target) (reply flows.Reply, err error) {
	if r.Method != http.MethodPost {
		return flows.Reply{}, wire.ErrMethod
	}
	if t.route.StepsUp {
		w.Header().Add("Vary", h.vary())
	}
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		reply, err = service.Serve(r.Context(), h.request(w, r, t))
		return err
	})
	return reply, err
}

// request returns what the service must know of a request.
func (h *Handler) request(w http.ResponseWriter, r *http.Request, t target) *flows.Request {
	return &flows.Request{
		Company:       t.company,
		Route:         t.route,
		APIKeys:       r.Header[apiKeyHeader],
		PageKey:       h.hasPage(t.company),
		Authorization: r.Header["Authorization"],
		Credentials: func() ([]string, error) {
			lines, _, err := h.credentials(r)
			return lines, err
		},
		Client: session.Client{
			Address:   clientAddress(r),
			UserAgent: r.UserAgent(),
			Languages: languagesOf(r),
			Device:    func() (string, error) { return h.device(r) },
		},
		Body:     func() ([]byte, error) { return h.body(w, r, t) },
		Accepted: t.once.accept,
		Found:    func(found record.Session) { setUser(r, &found) },
	}
}

// withService calls f with the service, which stays open until f returns. A panic of
// f becomes an error. If the service has not started, the error is the same as if a store
// did not answer.
func (h *Handler) withService(ctx context.Context, f func(*flows.Service) error) error {
	if h.imagined != nil {
		return f(h.imagined)
	}
	return h.withServiceOf(ctx, h.app, f)
}

// withServiceOf is withService with the service of an app.
func (h *Handler) withServiceOf(ctx context.Context, a *app.App, f func(*flows.Service) error) (err error) {
	a.BeginCall()
	defer a.EndCall()
	defer h.contain(&err)
	service, err := a.Service(ctx)
	if err != nil {
		return &wire.Refusal{Err: wire.ErrUnavailable, RetryAfter: app.StartAgainAfter, Cause: err}
	}
	return f(service)
}

// contain turns a panic into service.error.
func (h *Handler) contain(err *error) {
	if p := panics.Recovered(recover()); p != nil {
		*err = wire.WithRef(wire.ErrService)
		p.Log(h.log, "ref", wire.RefOf(*err))
	}
}

// clientAddress returns the client's address as Caddy determines it
// (trusted_proxies). It reads no header itself.
func clientAddress(r *http.Request) string {
	address, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return address
}

// Methods that package bypass calls, beside those of identity.Headers. The handler may not
// be provisioned yet.

// Line implements bypass.Handler.
func (h *Handler) Line() string { return h.Source.Line("") }

// Base implements bypass.Gate.
func (h *Handler) Base() string { return h.BasePath }

// Serves implements bypass.Gate.
func (h *Handler) Serves(company string) bool {
	return len(h.Companies) == 0 || slices.Contains(h.Companies, company)
}

// Patterns implements bypass.Gate.
func (h *Handler) Patterns() map[string][]string {
	all := h.Rules.Patterns()
	for option, path := range map[string]string{"check": h.Check, "health": h.Health} {
		if path != "" {
			all[option] = []string{path}
		}
	}
	return all
}

// Interface guards
var (
	_ bypass.Gate                 = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
