// Package gate decides what a request meets: a route of the auth API, its OpenAPI
// document, a refusal, or the application behind. Start at Handler.ServeHTTP;
// path.go says which is meant, guard.go who passes, identity.go what the
// application is told, stream.go when a long answer is cut.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/bypass"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func init() {
	caddy.RegisterModule(Handler{})
	httpcaddyfile.RegisterHandlerDirective("mnemogate", parseHandler)
	// Whatever answers for or forwards to the application comes behind it.
	httpcaddyfile.RegisterDirectiveOrder("mnemogate", httpcaddyfile.Before, "basic_auth")
}

const (
	defaultHeader        = "X-Profile-Mnemocode"
	defaultCompanyHeader = "X-Company-Code"
	defaultMaxBody       = 16 << 10
	apiKeyHeader         = "X-Api-Key"
)

// Handler stands in front of an application. It answers the routes of the auth
// API, `POST /{company_code}/v2/auth/…`, and serves their OpenAPI document, `GET
// /{company_code}/v2/openapi.json`. It lets any other request pass only with the
// Bearer token of an authorized session, or its cookie, whose user it then tells the
// application in headers that nobody else can set. A request without one is
// answered here, with JSON and 400, 401, 403, or 503 where a store does not
// answer.
//
// Every request that comes to the application must meet it, once. Routes that
// let some past it, by a matcher or behind reverse_proxy, or that hold it twice,
// are refused as far as they show it, and else warned of: at each start, and by
// `caddy mnemogate doctor`.
//
// It sets these placeholders on requests that pass:
//
// Placeholder | Description
// ------------|------------
// `{http.auth.user.id}` | The profile_mnemocode of the user
// `{http.auth.user.company}` | The code of the user's company
//
// The companies and all that they share are configured in the app `mnemogate`.
type Handler struct {
	// The header in which the application finds the user's
	// profile_mnemocode. Default: `X-Profile-Mnemocode`.
	Header string `json:"header,omitempty"`

	// The header in which the application finds the user's company.
	// Default: `X-Company-Code`.
	CompanyHeader string `json:"company_header,omitempty"`

	// What stands in front of `/{company_code}` in the paths of this site,
	// such as `/api`. Default: nothing.
	BasePath string `json:"base_path,omitempty"`

	// Whether the application is sent the Authorization header, with the
	// session token in it. Whoever has the token is the user: leave it off
	// unless the application needs it. Default: false.
	ForwardAuthorization bool `json:"forward_authorization,omitempty"`

	// Whether requests that go to the application need the company's API key
	// in X-Api-Key, as the auth routes do. Users of a company with `api_key
	// off` then reach only the paths that begin with its code. Default: false.
	RequireAPIKey bool `json:"require_api_key,omitempty"`

	// The largest body that an auth route reads, in bytes.
	// Default: 16384.
	MaxBody int64 `json:"max_body,omitempty"`

	// The origins, such as `https://app.example.com`, whose pages may call
	// this site: their browsers' preflights are answered here, and answers to
	// them carry the headers that a browser asks for. Default: none.
	CORS []string `json:"cors,omitempty"`

	// The paths that need neither token nor API key, in the syntax of Caddy's
	// path matcher: `/health`, `/docs/*`, `*.css`. Identity headers are taken out
	// all the same; a good token sets them, and any other is as none. Upper and
	// lower case differ, and a path that an application could read as another is
	// public only if all that it could be read as are. Auth routes never are.
	// Default: none.
	Public []string `json:"public,omitempty"`

	// The companies whose auth routes this site answers and whose tokens it
	// takes, by their codes; the others are here as unknown. Default: all.
	Companies []string `json:"companies,omitempty"`

	// Paths that need a login not long ago, be they public or not. One whose
	// login is older is answered `auth.session.invalid` with the reason `too_old`
	// and, in `WWW-Authenticate`, the `max_age` of RFC 9470. Of several times the
	// shortest holds. Default: none.
	Fresh []Fresh `json:"fresh,omitempty"`

	// What the application is told of the user's account beside its mnemocode:
	// any of `role`, `email` and `phone`, in the headers `X-Profile-Role`,
	// `X-Profile-Email` and `X-Profile-Phone`, as they were at the login. A change
	// of one of them ends the account's sessions. Bytes that are no visible ASCII,
	// and `%`, are percent-encoded. What the account does not have has no header,
	// nor has a session that began before this was configured. Whatever is
	// configured, a client's headers of these names never reach the application.
	// Default: none.
	Forward []string `json:"forward,omitempty"`

	// The path at which load balancers and monitors find out about this node,
	// such as `/health`: 200 if its stores answer, else 503, without a body. While
	// Caddy's `shutdown_delay` lets a server go on that is about to end, it is 503.
	// `/health?ready` leaves the stores out, for what decides which node gets requests:
	// a store that all nodes share would take them all away. It needs no token and
	// never reaches the application. Default: none.
	Health string `json:"health,omitempty"`

	// The name of the cookie in which a session can go on, such as
	// `__Host-mnemogate`: `POST /{company_code}/v2/session` puts it there, `DELETE`
	// ends it. A protected path takes the cookie where a request has no
	// Authorization; the application does not see it. A request with it that may
	// change something (its method is not GET, HEAD or OPTIONS, or it opens a
	// WebSocket) must come from a page of this origin, or of one in `cors`, else it
	// is `auth.header.invalid` with the reason `cross_site`. The cookie is `Secure`
	// on plain http, too, where browsers keep it only for localhost. A name that
	// does not begin with `__Host-` can be set by other hosts of the domain.
	// Default: none, and no cookie is looked at.
	Cookie string `json:"cookie,omitempty"`

	// Whether the handshake of a WebSocket, for which a browser's pages can't set
	// Authorization, may bring the token as one of its protocols, in
	// `Sec-WebSocket-Protocol: mnemogate.bearer.<token>, <protocol>`. It is taken
	// out for the application, which must accept the other one; alone it is
	// `auth.header.invalid`. With Authorization it is taken out and not looked at.
	// A cookie is not looked at beside it. Caddy's access log would show the token: a
	// line of this handler's logger stands there for a handshake, and for any other
	// request an entry without the token. Errors of such requests do not come to
	// handle_errors. Default: false.
	WebSocketToken bool `json:"websocket_token,omitempty"`

	// The login page, `GET /{company_code}/login`. It sets the cookie, whose name is
	// `__Host-mnemogate` then unless `cookie` gives another. Anyone who can load the
	// page can call the auth routes of its company on this site with the key in it:
	// there an API key keeps nobody out any more. Default: none.
	LoginPage *LoginPage `json:"login_page,omitempty"`

	// Where the Caddyfile that this was adapted from has each option, for errors
	// and warnings. Leave it out of JSON that you write yourself.
	Source guest.Source `json:"source,omitempty"`

	app       *app.App
	log       *slog.Logger
	accessLog *zap.Logger // Caddy's
	document  []byte      // the OpenAPI document
	profile   []profileHeader
	page      *page.Page // nil for none
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.mnemogate",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision sets the defaults and finds the app.
func (h *Handler) Provision(ctx caddy.Context) error {
	configured, err := ctx.AppIfConfigured("mnemogate")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return h.Source.At(fmt.Errorf("mnemogate: configure the companies in the global option mnemogate: %w", err))
	}
	if err != nil {
		return err // with a line of its own
	}
	h.app = configured.(*app.App)
	if err := h.provision(ctx); err != nil {
		return h.Source.At(err)
	}
	return bypass.Look(ctx, h.app)
}

func (h *Handler) provision(ctx caddy.Context) error {
	h.log = ctx.Slogger()
	h.accessLog = ctx.Logger(new(caddyhttp.App)).Named("log.access")
	h.setDefaults()
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		h.app.StandIn(server)
	}
	if h.LoginPage != nil {
		var err error
		if h.page, err = page.New(h.LoginPage.options()); err != nil {
			return fmt.Errorf("login_page: %w", err)
		}
	}
	h.document = openAPI(h.BasePath)
	h.noteWeak()
	h.profile = profileOf(h.Forward)
	for _, p := range h.profile {
		h.app.Forward(p.field)
	}
	return nil
}

// noteWeak notes what is valid and hardly meant.
func (h *Handler) noteWeak() {
	for _, p := range h.Public {
		if p == "*" || p == "/*" {
			h.app.Note([]app.Weakness{{Directive: "public", At: h.Source.Line("public"), Weakness: guest.Weakness{
				Message: p + " is every path: nobody needs a token for the application",
				Advice:  "name the public paths, such as /health or /docs/*; leave it only if the application itself refuses requests without the identity headers",
			}}})
		}
	}
}

func (h *Handler) setDefaults() {
	h.Header = http.CanonicalHeaderKey(cmp.Or(h.Header, defaultHeader))
	h.CompanyHeader = http.CanonicalHeaderKey(cmp.Or(h.CompanyHeader, defaultCompanyHeader))
	h.MaxBody = cmp.Or(h.MaxBody, defaultMaxBody)
	if h.LoginPage != nil {
		h.Cookie = cmp.Or(h.Cookie, defaultCookie)
	}
}

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	basePath   = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
	origin     = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#]+$`)
)

// otherHeaders have a meaning of their own, or are set or dropped by the proxy.
var otherHeaders = []string{
	"Authorization", apiKeyHeader, "Host", "Content-Length", "Content-Type", "Content-Encoding", "Cookie", "Origin", "Expect",
	"Connection", "Close", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Keep-Alive",
	"Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Alt-Svc", "Early-Data",
	"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// Validate refuses what could not work.
func (h *Handler) Validate() error { return h.Source.At(h.validate()) }

func (h *Handler) validate() error {
	if shared := h.app.SharedKeys(); h.RequireAPIKey && len(shared) > 0 {
		return fmt.Errorf("require_api_key: company %s has an API key that another has, too, so it can't tell whose users may pass; give each company keys of its own", shared[0].Company)
	}
	for _, code := range h.Companies {
		if h.app.Companies[code] == nil {
			return fmt.Errorf("company: there is no company %q; name one that the global option mnemogate has", code)
		}
	}
	return cmp.Or(h.checkLoginPage(), h.check())
}

// check refuses what is wrong with the handler by itself. The errors begin with
// the directive.
func (h *Handler) check() error {
	if err := cmp.Or(checkHeader("header", h.Header), checkHeader("company_header", h.CompanyHeader)); err != nil {
		return err
	}
	if strings.EqualFold(h.Header, h.CompanyHeader) {
		return errors.New("company_header: it must differ from header")
	}
	if !basePath.MatchString(h.BasePath) || strings.Contains(h.BasePath+"/", "/./") || strings.Contains(h.BasePath+"/", "/../") {
		return fmt.Errorf("base_path: %q must begin with a slash, not end with one, and need no escapes", h.BasePath)
	}
	if h.MaxBody < 1024 || h.MaxBody > 1<<20 {
		return errors.New("max_body: it must be from 1KiB to 1MiB")
	}
	for _, o := range h.CORS {
		if !origin.MatchString(o) || o != strings.ToLower(o) {
			return fmt.Errorf("cors: %q is no origin; write it as browsers do: scheme and host in lower case, as in https://app.example.com", o)
		}
	}
	return cmp.Or(h.checkForward(), h.checkHealth(), h.checkCookie(), h.checkReadings())
}

func checkHeader(directive, name string) error {
	if !headerName.MatchString(name) {
		return fmt.Errorf("%s: %q is no name for a header here; use letters, digits and dashes", directive, name)
	}
	if isAmong(otherHeaders, name) || isAmong(rewriteHeaders, name) {
		return fmt.Errorf("%s: %s has another meaning; choose another name", directive, name)
	}
	return nil
}

// ServeHTTP answers an auth route, or lets a request with a good token pass.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.WebSocketToken && r.Header[socketProtocols] != nil {
		return h.serveSocket(w, r, next)
	}
	return h.serve(w, r, next)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	t := targetOf(h.BasePath, r.URL)
	if h.isHealth(r) {
		t.kind = health
	}
	if h.crossOrigin(w, r) {
		w = &corsWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, origin: r.Header.Get("Origin"), credentials: h.Cookie != ""}
		if isPreflight(r) {
			t.kind = preflight
		}
	}
	if t.kind.isPage() && !h.hasPage(t.company) {
		t.kind = protectedPath
	}
	answer := answers[t.kind]
	if answer == nil {
		return h.guard(w, r, t, next)
	}
	if t.kind != noAuthRoute && !h.serves(t.company) {
		t.company = "" // is answered like an unknown company
	}
	defer bodies.Limit(w, r)()
	answer(h, w, r, t)
	return nil
}

// answers are what answers each kind of target here. Those without one are guarded.
var answers = [...]func(*Handler, http.ResponseWriter, *http.Request, target){
	protectedPath: nil,
	authRoute:     (*Handler).serveRoute,
	noAuthRoute:   (*Handler).serveRoute,
	apiDocument:   (*Handler).serveDocument,
	challenge:     (*Handler).serveChallenge,
	sessionRoute:  (*Handler).serveSession,
	clientConfig:  (*Handler).serveClientConfig,
	clientModule:  (*Handler).serveModule,
	loginPage:     (*Handler).servePage,
	logoutPage:    (*Handler).servePage,
	pageFile:      (*Handler).servePage,
	preflight:     (*Handler).servePreflight,
	health:        (*Handler).serveHealth,
}

// serveRoute answers an auth route, or a path that could be taken for one.
func (h *Handler) serveRoute(w http.ResponseWriter, r *http.Request, t target) {
	reply, err := h.answer(w, r, t)
	h.app.CountRequest(t.company, t.route, reply.SessionState, err)
	if err != nil {
		h.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, success{Status: "success", Reply: reply})
}

// serves reports whether a company is one of this site's.
func (h *Handler) serves(company string) bool {
	return len(h.Companies) == 0 || slices.Contains(h.Companies, company)
}

// answer runs an auth route.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, t target) (reply flows.Reply, err error) {
	if t.kind == noAuthRoute {
		return flows.Reply{}, wire.ErrNoRoute
	}
	if r.Method != http.MethodPost {
		return flows.Reply{}, wire.ErrMethod
	}
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		reply, err = service.Serve(r.Context(), &flows.Request{
			Company:       t.company,
			Route:         t.route,
			APIKeys:       r.Header[apiKeyHeader],
			PageKey:       h.hasPage(t.company),
			Authorization: r.Header["Authorization"],
			Address:       clientAddress(r),
			UserAgent:     r.UserAgent(),
			Languages:     languagesOf(r),
			Body:          func() ([]byte, error) { return readBody(w, r, h.MaxBody) },
		})
		return err
	})
	return reply, err
}

// withService calls f with the service, which stays until f returns. A panic of f
// becomes an error.
func (h *Handler) withService(ctx context.Context, f func(*flows.Service) error) (err error) {
	h.app.Enter()
	defer h.app.Leave()
	defer h.contain(&err)
	service, err := h.service(ctx)
	if err != nil {
		return err
	}
	return f(service)
}

// service returns the service; none is as if a store did not answer.
func (h *Handler) service(ctx context.Context) (*flows.Service, error) {
	service, err := h.app.Service(ctx)
	if err != nil {
		return nil, &wire.Refusal{Err: wire.ErrUnavailable, RetryAfter: app.StartAgainAfter, Cause: err}
	}
	return service, nil
}

// contain turns a panic into service.error.
func (h *Handler) contain(err *error) {
	if p := panics.Recovered(recover()); p != nil {
		p.Log(h.log)
		*err = wire.ErrService
	}
}

// clientAddress is the address that Caddy takes for the client's
// (trusted_proxies); no other header is looked at.
func clientAddress(r *http.Request) string {
	address, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return address
}

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens:
//
//	mnemogate {
//		header <name>
//		company_header <name>
//		base_path <path>
//		forward_authorization
//		require_api_key
//		max_body <size>
//		cors <origin>...
//		public <path>...
//		company <code>...
//		fresh <duration> <path>...
//		forward role|email|phone...
//		health <path>
//		cookie [<name>]
//		websocket_token
//		login_page [<company>...] {
//			title <text>
//			logo <file>
//			color <css color>
//			texts <dir>
//		}
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	h.Source = guest.SourceOf(d)
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	check := func() error {
		so := *h
		so.setDefaults()
		return so.check()
	}
	options := map[string]func() error{
		"header":                guest.Text(d, &h.Header),
		"company_header":        guest.Text(d, &h.CompanyHeader),
		"forward":               guest.List(d, &h.Forward),
		"health":                guest.Text(d, &h.Health),
		"base_path":             guest.Text(d, &h.BasePath),
		"forward_authorization": guest.Flag(d, &h.ForwardAuthorization),
		"require_api_key":       guest.Flag(d, &h.RequireAPIKey),
		"max_body":              guest.OneValue(d, sizeValue(&h.MaxBody)),
		"cors":                  guest.List(d, &h.CORS),
		"public":                guest.List(d, &h.Public),
		"company":               h.parseCompanies(d),
		"fresh":                 h.parseFresh(d),
		"cookie":                h.parseCookie(d),
		"websocket_token":       guest.Flag(d, &h.WebSocketToken),
		"login_page":            h.parseLoginPage(d),
	}
	guest.Misplaced(d, options, inGlobal, app.GlobalOptions()...)
	return guest.CheckedOptions(d, check, guest.Naming(options), "fresh")
}

const inGlobal = "into the global option mnemogate, in the block at the top of the Caddyfile"

// parseCompanies parses the companies that the site serves.
func (h *Handler) parseCompanies(d *caddyfile.Dispenser) func() error {
	return func() error {
		if err := guest.List(d, &h.Companies)(); err != nil {
			return err
		}
		if d.NextBlock(d.Nesting()) {
			return d.Err("here it only names companies: write their blocks " + inGlobal)
		}
		return nil
	}
}

// parseFresh parses a duration and the paths that it is for.
func (h *Handler) parseFresh(d *caddyfile.Dispenser) func() error {
	return func() error {
		args := d.RemainingArgs()
		if len(args) < 2 {
			return d.ArgErr()
		}
		f := Fresh{Paths: args[1:]}
		if complaint := guest.Duration(&f.Within)(args[0]); complaint != "" {
			return d.Errf("'%s' is %s", args[0], complaint)
		}
		h.Fresh = append(h.Fresh, f)
		return nil
	}
}

// parseCookie parses a name, or none for the default.
func (h *Handler) parseCookie(d *caddyfile.Dispenser) func() error {
	return func() error {
		args := d.RemainingArgs()
		if len(args) > 1 || len(args) == 1 && args[0] == "" {
			return d.ArgErr()
		}
		h.Cookie = append(args, defaultCookie)[0]
		return nil
	}
}

func sizeValue(to *int64) guest.Value {
	return func(arg string) string {
		n, err := humanize.ParseBytes(arg)
		if err != nil || n > math.MaxInt32 {
			return "no size like 16KiB"
		}
		*to = int64(n)
		return ""
	}
}

// What package bypass asks of a handler, which may not be provisioned.

// Line implements bypass.Handler.
func (h *Handler) Line() string { return h.Source.Line("") }

// Base implements bypass.Gate.
func (h *Handler) Base() string { return h.BasePath }

// IdentityHeaders implements bypass.Gate.
func (h *Handler) IdentityHeaders() []string {
	so := *h
	so.setDefaults()
	names := []string{so.Header, so.CompanyHeader, defaultHeader, defaultCompanyHeader}
	for _, p := range profileHeaders {
		names = append(names, p.name)
	}
	return names
}

// Interface guards
var (
	_ bypass.Gate                 = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
