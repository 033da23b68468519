package accounts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/caddymodule/routes"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// timeout is the time limit of a request, except for those of Long routes.
const timeout = 30 * time.Second

// An API serves the accounts API at one place: Caddy's admin endpoint, or a site for
// backends. Set its fields before the first call and do not change them afterwards. Its
// methods may be called concurrently.
type API struct {
	Root string // the prefix of all paths; ends in a slash
	// App returns the app whose accounts are managed, or an *Error.
	App func(context.Context) (*app.App, error)
	// Admit returns the key of a request, or an *Error. If Admit is nil, every
	// request has all rights.
	Admit func(*Call) (*Key, error)
	More  []Route // in addition to Routes
}

// A Call is a request with its response.
type Call struct {
	*http.Request
	W       http.ResponseWriter
	App     *app.App
	Service *flows.Service // nil on a Storeless route if a store can't be reached
	Address string         // the client's
	Admin   *manage.Admin  // of the company in the path

	root   string            // as the client sent it
	key    *Key              // the key of the request; nil on the admin endpoint
	hash   [sha256.Size]byte // of what was sent as the key
	path   []string          // the segments below API.Root, unescaped
	params map[string]string
	query  url.Values // checked against the route's
	form   []byte     // the body of introspect, if it was read for the key
}

// An Error is an error response.
type Error struct {
	Status     int
	Field      string
	Reason     wire.Reason
	Message    string
	RetryAfter time.Duration
	Cause      error // for the log
}

func (e *Error) Error() string { return e.Message }

// ErrBroken means that a response has begun but can't be completed. The connection
// is closed, so that the client does not take the response for complete.
var ErrBroken = errors.New("the answer was interrupted")

// Serve answers a request. The address is the client's, and prefix is what the client
// sent before the remaining path. Serve also writes the error responses, because those
// of Caddy have no field.
func (d *API) Serve(w http.ResponseWriter, r *http.Request, address, prefix string) {
	answered := bodies.Limit(w, r)
	c := &Call{Request: r, W: w, Address: address, root: prefix + d.Root}
	err := panics.Contain(func() error { return c.serve(d) })
	if err == ErrBroken {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		c.refuse(err)
	}
	answered()
}

func (c *Call) serve(d *API) (err error) {
	// A flood of calls must not keep users from logging in.
	c.Request = c.WithContext(record.Yielding(c.Context()))
	if c.App, err = d.App(c.Context()); err != nil {
		return err
	}
	if bodies.IsEarly(c.Request) {
		return &Error{Status: http.StatusTooEarly, Message: wire.ErrEarlyData.Message}
	}
	c.App.BeginCall()
	defer c.App.EndCall()
	if path, ok := strings.CutPrefix(c.URL.EscapedPath(), d.Root); ok {
		c.path = segmentsOf(path)
	}
	if d.Admit != nil { // without a key, nothing is said of what routes there are
		if c.key, err = d.Admit(c); err != nil {
			return err
		}
		logs.AddToAccessLog(c.Request, zap.String("actor", c.key.name)) // what it reads is in no other log
	}
	route, err := c.route(d)
	if err != nil {
		return err
	}
	if c.Service, err = c.App.Service(c.Context()); err != nil && !route.Is(Storeless) {
		return unreachable(err)
	}
	if err == nil {
		if err := c.permit(route); err != nil {
			return err
		}
	}
	if c.query, err = parseQuery(c.URL.RawQuery, route.Query); err != nil {
		return err
	}
	if lines := c.Header[flows.IdempotencyKeyHeader]; lines != nil && route.MayRepeat() {
		return c.serveOnce(route, lines)
	}
	return c.serveRoute(route)
}

func (c *Call) serveRoute(route *Route) error {
	if !route.Is(Long) {
		defer func(r *http.Request) { c.Request = r }(c.Request) // whose context says whether the client has hung up
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		c.Request = c.WithContext(ctx)
	}
	if route.Is(NoBody) {
		if err := c.noBody(); err != nil {
			return err
		}
	}
	return route.Serve(c)
}

// segmentsOf returns the unescaped segments of an escaped path, whose escapes are valid.
func segmentsOf(path string) (segments []string) {
	for segment := range strings.SplitSeq(path, "/") {
		segment, _ = url.PathUnescape(segment)
		segments = append(segments, segment)
	}
	return segments
}

// route returns the route of the request.
func (c *Call) route(d *API) (*Route, error) {
	method := c.Method
	if method == http.MethodHead {
		method = http.MethodGet // the server omits the body
	}
	route, params, allow := routes.Find(slices.Concat(Routes, d.More), (*Route).at, method, c.path)
	if allow != "" {
		c.W.Header().Set("Allow", allow)
		return nil, &Error{Status: http.StatusMethodNotAllowed, Message: "this path does not have the method " + c.Method + "; use one that the header Allow lists"}
	}
	if route == nil {
		return nil, &Error{Status: http.StatusNotFound, Message: "there is no such path; GET openapi.json lists all"}
	}
	c.params = params
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if value := params[name]; !utf8.ValidString(value) || strings.Contains(value, "\x00") { // not every store can look for it
			return nil, &Error{Status: http.StatusNotFound, Field: name, Message: name + ": nothing has this name, because it is not UTF-8 or has a NUL"}
		}
	}
	return route, nil
}

// keptAnswers is how long an answer is kept for a client that did not get it.
const keptAnswers = 24 * time.Hour

// serveOnce serves a request that may have been answered before.
func (c *Call) serveOnce(route *Route, lines []string) error {
	key, ok := flows.IdempotencyKey(lines)
	if !ok {
		return &Error{Status: http.StatusBadRequest, Field: flows.IdempotencyKeyHeader, Message: "send it once, with 1 to 255 visible ASCII characters"}
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	sent, answer := c.W, &bodies.Recorder{}
	kept, replayed, err := c.Service.Once(c.Context(), flows.Repeatable{
		Key: key, Route: "accounts " + c.Method + " " + c.root + c.URL.RequestURI(), Credentials: c.Header["Authorization"],
		Body: body, KeepFor: keptAnswers, Later: c.App.Later,
	}, func(ctx context.Context) []byte {
		c.W, c.Request = answer, c.WithContext(ctx)
		c.Body = io.NopCloser(bytes.NewReader(body))
		err := panics.Contain(func() error { return c.serveRoute(route) })
		if err != nil {
			c.refuse(err)
		}
		// After 412, a client repeats the change with another If-Match, and after ErrChanged the same.
		again := answer.Status == http.StatusBadRequest || answer.Status == http.StatusPreconditionFailed || errors.Is(err, manage.ErrChanged)
		return answer.Kept(!again)
	})
	c.W = sent
	if errors.Is(err, wire.ErrOtherBody) {
		return &Error{Status: http.StatusUnprocessableEntity, Field: flows.IdempotencyKeyHeader, Message: "it came with another body; send the same bytes again, or another key"}
	}
	if err == nil {
		app.CountReplay(replayed)
		answer.Send(c.W, kept, replayed)
	}
	return err
}

// noBody refuses a body that says something: otherwise a client that names one session in
// it would revoke all.
func (c *Call) noBody() error {
	data, err := c.body()
	if err == nil && !bodies.IsEmpty(data) {
		err = &Error{Status: http.StatusBadRequest, Message: "this route takes no body; leave it out"}
	}
	return err
}

func unreachable(err error) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: "a store can't be reached: " + err.Error(), Cause: err}
}

// permit refuses a request that its key does not allow, and finds the company. For a
// key without rights for the company, the answer is the same as for a company that
// does not exist.
func (c *Call) permit(route *Route) error {
	if code, ok := c.params["company"]; ok {
		company := c.Service.Companies[code]
		if company != nil && !c.key.has(code) {
			c.emitRefused("company")
			company = nil
		}
		if company == nil {
			return &Error{Status: http.StatusNotFound, Field: "company", Message: "no such company is configured"}
		}
		c.Admin = &manage.Admin{Manager: c.Service.Manager, Company: company, Address: c.Address, Actor: c.actor()}
	}
	if route.Rights == nil || slices.ContainsFunc(route.Rights, c.May) {
		return nil
	}
	return c.require(route.Rights[0])
}

func (c *Call) emitRefused(reason string) {
	c.Service.Emit(c.Context(), record.Event{Name: record.KeyRefused, Company: c.params["company"], Address: c.Address, Actor: c.actor(), Reason: reason})
}

// require refuses a request whose key does not have a right.
func (c *Call) require(right Right) error {
	if c.May(right) {
		return nil
	}
	c.emitRefused(string(right))
	c.W.Header().Set("WWW-Authenticate", bodies.Challenge+`, error="insufficient_scope"`)
	return &Error{Status: http.StatusForbidden, Message: fmt.Sprintf("the key does not have the right %s: give it in the configuration, or use another key", right)}
}

// May reports whether the request has a right. A request to the admin endpoint has
// all rights.
func (c *Call) May(right Right) bool { return c.key == nil || c.key.may(right) }

func (c *Call) actor() string {
	if c.key == nil {
		return record.ActorAdmin
	}
	return c.key.name
}

// Param returns a parameter of the route's pattern.
func (c *Call) Param(name string) string { return c.params[name] }

func (c *Call) mnemocode() string { return c.params["mnemocode"] }

func (c *Call) refuse(err error) {
	refusal := asError(err)
	status, hungUp := refusal.Status, wire.HungUp(c.Context(), refusal.Cause)
	if hungUp {
		status = wire.StatusCanceled
	}
	if p, ok := errors.AsType[*panics.Error](err); ok && c.App != nil {
		app.CountDefect()
		p.Log(c.App.Log(), "method", c.Method, "path", c.URL.Path)
	} else if refusal.Cause != nil && c.App != nil && !hungUp {
		c.App.Warn("a request for accounts failed", "method", c.Method, "path", c.URL.EscapedPath(), "error", refusal.Cause)
	}
	if refusal.Reason != "" {
		logs.AddToAccessLog(c.Request, zap.String("reason", string(refusal.Reason)))
	}
	wait := refusal.RetryAfter // the error may belong to several requests
	if refusal.Status == http.StatusServiceUnavailable {
		wait = cmp.Or(wait, wire.RetrySoon)
	}
	if wait > 0 {
		bodies.SetRetryAfter(c.W.Header(), refusal.Status, wait)
	}
	if refusal.Status == http.StatusUnauthorized && c.W.Header().Get("WWW-Authenticate") == "" {
		c.W.Header().Set("WWW-Authenticate", bodies.Challenge)
	}
	bodies.WriteJSON(c.W, status, api.Error{Error: refusal.Message, Field: refusal.Field, Reason: refusal.Reason})
}

func asError(err error) *Error {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal
	}
	if _, ok := errors.AsType[*panics.Error](err); ok {
		return &Error{Status: http.StatusInternalServerError, Message: "the server failed; see its log, and report it"}
	}
	if field, ok := errors.AsType[*manage.FieldError](err); ok {
		return &Error{Status: http.StatusBadRequest, Field: field.Field, Message: field.Error()}
	}
	if rule, ok := errors.AsType[*tenant.RuleError](err); ok {
		return &Error{Status: http.StatusUnprocessableEntity, Field: rule.Field, Reason: rule.Reason, Message: rule.Error()}
	}
	if refused, ok := errors.AsType[*manage.Error](err); ok {
		return &Error{Status: refused.Status, Field: refused.Field, Reason: refused.Reason, Message: refused.Message}
	}
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok && refusal.Err == wire.ErrRestricted {
		return &Error{Status: http.StatusTooManyRequests, Reason: refusal.Reason, RetryAfter: refusal.RetryAfter, Message: "too many attempts; wait for the number of seconds in Retry-After, then try again"}
	}
	if taken, ok := errors.AsType[*record.TakenError](err); ok {
		return &Error{Status: http.StatusConflict, Field: taken.Field, Message: taken.Error()}
	}
	if spent, ok := errors.AsType[*record.SpentError](err); ok {
		return &Error{Status: http.StatusBadRequest, Field: spent.Field, Message: spent.Error()}
	}
	switch {
	case errors.Is(err, record.ErrDamaged):
		return &Error{Status: http.StatusInternalServerError, Message: "the store is damaged, or its file was moved; 'caddy mnemogate doctor' says what is wrong", Cause: err}
	case errors.Is(err, record.ErrNotFound):
		return &Error{Status: http.StatusNotFound, Message: api.NoAccount}
	case errors.Is(err, wire.ErrPasswordSame):
		return asError(&tenant.RuleError{Field: "new_password", Text: "Not the current password."})
	case errors.Is(err, password.ErrBusy):
		return &Error{Status: http.StatusServiceUnavailable, Message: "too many passwords are being hashed; try again"}
	default:
		unanswered := &Error{Status: http.StatusServiceUnavailable, Message: "a store, gateway or other service did not answer; see the server's log, then try again", Cause: err}
		if refusal, ok := errors.AsType[*wire.Refusal](err); ok {
			unanswered.RetryAfter = refusal.RetryAfter
		}
		return unanswered
	}
}

// body reads the request's body. It does not check whether it is JSON; the parser
// does.
func (c *Call) body() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(c.Body, api.MaxAccount+1))
	switch _, cut := errors.AsType[*http.MaxBytesError](err); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Status: http.StatusBadRequest, Message: "the body did not arrive in time; send it at once"}
	case cut:
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Message: "the body has more bytes than Caddy's request_body lets through; send less"}
	case err != nil:
		return nil, &Error{Status: http.StatusBadRequest, Message: "the body could not be read; send it again"}
	case len(data) > api.MaxAccount:
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body has more than %d bytes; send less", api.MaxAccount)}
	}
	bodies.Unlimit(c.W, c.Request)
	return data, nil
}

// Texts reads a body that is an object of strings with the given names. A name that
// ends in a question mark is optional and may be null. An address is a UserAddress.
func (c *Call) Texts(names ...string) (map[string]string, error) {
	data, err := c.body()
	if err != nil {
		return nil, err
	}
	values, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, name := range names {
		name, optional := strings.CutSuffix(name, "?")
		if value, given := values[name]; given {
			text, err := stringValue(value)
			if err == nil && utf8.RuneCountInString(text) > maxText {
				err = errors.New("it is too long")
			}
			if err == nil && name == "address" {
				text, err = UserAddress(text)
			}
			if err != nil {
				return nil, &manage.FieldError{Field: name, Message: err.Error()}
			}
			texts[name] = text
		}
		if texts[name] == "" && !optional {
			return nil, &manage.FieldError{Field: name, Message: "it is missing"}
		}
		delete(values, name)
	}
	if rest := slices.Sorted(maps.Keys(values)); len(rest) > 0 {
		return nil, noField(rest[0])
	}
	return texts, nil
}

// maxText limits the texts that are processed. The rules for passwords have their
// own limit.
const maxText = tokens.MaxContact

// parseQuery returns the parameters of a query. It refuses unknown ones: otherwise a
// client that names one session in the query would revoke all.
func parseQuery(raw string, known []string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Message: "the query is malformed; percent-encode its values"}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name):
			takes := cmp.Or(strings.Join(known, ", "), "none")
			return nil, &manage.FieldError{Field: printable(name), Message: "there is no such parameter; leave it out: this route takes " + takes}
		case len(values[name]) > 1:
			return nil, &manage.FieldError{Field: name, Message: "it is given more than once; send it once"}
		}
	}
	return values, nil
}

// boolean returns a parameter that must be true or false. The default is false.
func (c *Call) boolean(name string) (bool, error) {
	switch c.query.Get(name) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, &manage.FieldError{Field: name, Message: "it must be true or false"}
}

// Done answers with 204 No Content, unless err is an error.
func (c *Call) Done(err error) error {
	if err == nil {
		c.W.Header().Set("Cache-Control", "no-store")
		c.W.WriteHeader(http.StatusNoContent)
	}
	return err
}

// Reply answers with JSON, unless err is an error.
func (c *Call) Reply(status int, body any, err error) error {
	if err == nil {
		bodies.WriteJSON(c.W, status, body)
	}
	return err
}
