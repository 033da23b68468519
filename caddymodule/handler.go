package caddymodule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"

	"github.com/mnemogate/mnemogate/flows"
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
// Bearer token of an authorized session, whose user it then tells the
// application in headers that nobody else can set. A request without one is
// answered here, with JSON and 400, 401, 403, or 503 where a store does not
// answer.
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

	app      *App
	log      *slog.Logger
	document []byte // the OpenAPI document
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
	h.log = ctx.Slogger()
	h.Header = http.CanonicalHeaderKey(cmp.Or(h.Header, defaultHeader))
	h.CompanyHeader = http.CanonicalHeaderKey(cmp.Or(h.CompanyHeader, defaultCompanyHeader))
	h.MaxBody = cmp.Or(h.MaxBody, defaultMaxBody)
	app, err := ctx.AppIfConfigured("mnemogate")
	if err != nil {
		return fmt.Errorf("mnemogate: configure the companies in the global option mnemogate: %w", err)
	}
	h.app = app.(*App)
	h.document, err = openAPI(h.BasePath)
	return err
}

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)
	basePath   = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
	origin     = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#]+$`)
)

// otherHeaders have a meaning of their own, or are set or dropped by the proxy.
var otherHeaders = []string{
	"Authorization", apiKeyHeader, "Host", "Content-Length", "Content-Type", "Cookie", "Origin", "Expect",
	"Connection", "Close", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Keep-Alive",
	"Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// Validate refuses what could not work.
func (h *Handler) Validate() error {
	for directive, name := range map[string]string{"header": h.Header, "company_header": h.CompanyHeader} {
		if !headerName.MatchString(name) {
			return fmt.Errorf("%s: %q is no name for a header here; use letters, digits and dashes", directive, name)
		}
		if slices.Contains(otherHeaders, http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("%s: %s has another meaning; choose another name", directive, name)
		}
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
	return nil
}

// ServeHTTP answers an auth route, or lets a request with a good token pass.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.crossOrigin(w, r) {
		w = &corsWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, origin: r.Header.Get("Origin")}
		if isPreflight(r) {
			answerPreflight(w, r)
			return nil
		}
	}
	t := targetOf(h.BasePath, r.URL)
	switch t.kind {
	case protectedPath:
		return h.guard(w, r, t, next)
	case apiDocument:
		h.serveDocument(w, r, t)
		return nil
	}
	reply, err := h.answer(w, r, t)
	h.app.countRequest(t, reply.SessionState, err)
	if err != nil {
		h.refuse(w, t.company, err)
		return nil
	}
	writeJSON(w, http.StatusOK, success{Status: "success", Reply: reply})
	return nil
}

// answer runs an auth route.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, t target) (reply flows.Reply, err error) {
	h.app.enter()
	defer h.app.leave()
	bodyUntil, read := time.Now().Add(bodyWithin), false
	defer func() {
		if !read {
			leaveUnread(w, r, bodyUntil)
		}
	}()
	defer h.contain(&err)
	if t.kind == noAuthRoute {
		return flows.Reply{}, flows.ErrNoRoute
	}
	if r.Method != http.MethodPost {
		return flows.Reply{}, flows.ErrMethod
	}
	service, err := h.service(r.Context())
	if err != nil {
		return flows.Reply{}, err
	}
	return service.Serve(r.Context(), &flows.Request{
		Company:       t.company,
		Route:         t.route,
		APIKeys:       r.Header[apiKeyHeader],
		Authorization: r.Header["Authorization"],
		Address:       clientAddress(r),
		Body: func() ([]byte, error) {
			body, err := readBody(w, r, h.MaxBody, bodyUntil)
			read = err == nil
			return body, err
		},
	})
}

// service returns the service; none is as if a store did not answer.
func (h *Handler) service(ctx context.Context) (*flows.Service, error) {
	service, err := h.app.Service(ctx)
	if err != nil {
		return nil, &flows.Refusal{Err: flows.ErrUnavailable, RetryAfter: startAgainAfter, Cause: err}
	}
	return service, nil
}

// contain turns a panic into service.error.
func (h *Handler) contain(err *error) {
	if p := flows.Recovered(recover()); p != nil {
		p.Log(h.log)
		*err = flows.ErrService
	}
}

// clientAddress is the address that Caddy takes for the client's
// (trusted_proxies); no other header is looked at.
func clientAddress(r *http.Request) string {
	address, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return address
}

// bodyWithin is how long a client may take to send a body that goes no further
// than here. Caddy by itself lets it take any time, as long as a byte comes now
// and then, and each such client costs memory.
const bodyWithin = 10 * time.Second

// readUntil bounds the time for reading what is left of the body, unless the
// server has a stricter bound (timeouts read_body). The zero time lifts it.
func readUntil(w http.ResponseWriter, r *http.Request, until time.Time) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && 0 < s.ReadTimeout && s.ReadTimeout < bodyWithin {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // where a server can't, there is no bound
}

// readBody reads a JSON body, unless its headers say that it won't do. An empty
// one needs no Content-Type: whether it will do is the route's to say.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, until time.Time) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, flows.ErrTooLarge
	}
	if r.ContentLength > 0 && !isJSON(r.Header) {
		return nil, flows.ErrMediaType
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	readUntil(w, r, until)
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(len(body)) <= limit {
		readUntil(w, r, time.Time{}) // it would else end the request
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodySlow
	case err != nil:
		return nil, flows.ErrValidation // the client broke off
	case int64(len(body)) > limit:
		return nil, flows.ErrTooLarge
	case len(body) > 0 && !isJSON(r.Header):
		return nil, flows.ErrMediaType
	}
	return body, nil
}

var errBodySlow = &flows.Refusal{Err: flows.ErrValidation, Message: "The body did not come in time; send it at once."}

func isJSON(header http.Header) bool {
	types := header["Content-Type"]
	if len(types) != 1 || len(header["Content-Encoding"]) > 0 {
		return false
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	charset, given := params["charset"]
	return err == nil && mediaType == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}

type success struct {
	Status string `json:"status"`
	flows.Reply
}

type failure struct {
	Status              string             `json:"status"`
	ErrorCode           string             `json:"error_code"`
	Message             string             `json:"message"`
	CaptchaRequired     bool               `json:"captcha_required,omitempty"`
	DisclaimersRequired []flows.Disclaimer `json:"disclaimers_required,omitzero"`
}

// refuse is the one place that answers errors.
func (h *Handler) refuse(w http.ResponseWriter, company string, err error) {
	var code *flows.Error
	if !errors.As(err, &code) {
		h.log.Error("a defect of this program, please report it", "error", err)
		code = flows.ErrService
	}
	body := failure{Status: "error", ErrorCode: code.Code, Message: code.Message}
	header := w.Header()
	if refusal, ok := errors.AsType[*flows.Refusal](err); ok {
		if refusal.Message != "" {
			body.Message = refusal.Message
		}
		body.CaptchaRequired = refusal.Captcha
		body.DisclaimersRequired = refusal.Disclaimers
		if refusal.RetryAfter > 0 {
			header.Set("Retry-After", strconv.Itoa(int(math.Ceil(refusal.RetryAfter.Seconds()))))
		}
	}
	switch code {
	case flows.ErrMethod:
		header.Set("Allow", http.MethodPost)
	case errDocumentMethod:
		header.Set("Allow", http.MethodGet)
	case errMethodNotAllowed:
		header.Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
	if challenge := challengeFor(code, company); challenge != "" {
		header.Set("WWW-Authenticate", challenge)
	}
	writeJSON(w, code.Status, body)
}

// challengeFor is the WWW-Authenticate header (RFC 6750, 3): on every 401, and
// on the other answers about a token.
func challengeFor(code *flows.Error, company string) string {
	reason := ""
	switch code {
	case flows.ErrHeaderInvalid:
		reason = "invalid_request"
	case flows.ErrTokenInvalid, flows.ErrTokenExpired:
		reason = "invalid_token"
	case flows.ErrSessionInvalid:
		reason = "insufficient_scope"
	default:
		if code.Status != http.StatusUnauthorized {
			return ""
		}
	}
	if company == "" {
		company = "mnemogate"
	}
	challenge := `Bearer realm="` + company + `"`
	if reason != "" {
		challenge += `, error="` + reason + `"`
	}
	return challenge
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // it is no HTML, and people read it
	_ = encoder.Encode(body)     // plain structs; a buffer takes all
	writeBody(w, status, b.Bytes())
}

// writeBody answers with JSON.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
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
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := map[string]bool{}
	for d.NextBlock(0) {
		option := d.Val()
		if seen[option] {
			return d.Errf("%s is already specified", option)
		}
		seen[option] = true
		if err := h.unmarshalOption(d, option); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) unmarshalOption(d *caddyfile.Dispenser, option string) error {
	args := d.RemainingArgs()
	one := func(s *string) error {
		if len(args) != 1 || args[0] == "" {
			return d.ArgErr()
		}
		*s = args[0]
		return nil
	}
	flag := func(b *bool) error {
		if len(args) != 0 {
			return d.ArgErr()
		}
		*b = true
		return nil
	}
	switch option {
	case "header":
		return one(&h.Header)
	case "company_header":
		return one(&h.CompanyHeader)
	case "base_path":
		return one(&h.BasePath)
	case "forward_authorization":
		return flag(&h.ForwardAuthorization)
	case "require_api_key":
		return flag(&h.RequireAPIKey)
	case "max_body":
		var size string
		if err := one(&size); err != nil {
			return err
		}
		n, err := humanize.ParseBytes(size)
		if err != nil || n > math.MaxInt32 {
			return d.Errf("max_body: %q is no size; write it as 16KiB", size)
		}
		h.MaxBody = int64(n)
	case "cors":
		if len(args) == 0 {
			return d.ArgErr()
		}
		h.CORS = args
	default:
		return d.Errf("unrecognized subdirective %q of mnemogate", option)
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
