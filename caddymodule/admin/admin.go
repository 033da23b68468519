// Package admin serves accounts, their sessions, import and export, and the
// doctor, on Caddy's admin endpoint. Start at API, whose comment lists the
// routes; package api has the JSON.
package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/caddymodule/admin/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/password"
)

func init() { caddy.RegisterModule(API{}) }

// API serves the accounts, their sessions, import and export on Caddy's
// admin endpoint, to whom that lets in:
//
//	GET  /mnemogate/                                            the companies
//	GET  /mnemogate/doctor                                      what is wrong, and what to do
//	POST /mnemogate/{company}/accounts                          create
//	GET  /mnemogate/{company}/accounts?login_id=&limit=&after=  look up, or page through
//	GET, PATCH, DELETE …/accounts/{mnemocode}                   PATCH is a JSON merge patch
//	POST …/accounts/{mnemocode}/backup-codes                    ten new ones, shown this once
//	POST …/accounts/{mnemocode}/unlock                          clear counts and locks
//	GET, DELETE …/accounts/{mnemocode}/sessions                 list, end all
//	POST /mnemogate/{company}/import?update=                    JSON lines
//	GET  /mnemogate/{company}/export                            JSON lines, with password hashes
//
// It always speaks to the configuration that is running. An error is a JSON
// object with error, a sentence, and field, where one is at fault. A mnemocode
// in a path is escaped: it may contain a slash.
type API struct{}

// CaddyModule returns the Caddy module information.
func (API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.mnemogate", New: func() caddy.Module { return new(API) }}
}

// Provision registers the metrics. Caddy takes these routers into use before it
// loads the apps of a config, and keeps them should that fail: without this,
// /metrics would then have nothing of the config that goes on running.
func (API) Provision(ctx caddy.Context) error { return app.RegisterMetrics(ctx) }

// Routes implements caddy.AdminRouter.
func (a API) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: api.Root, Handler: caddy.AdminHandlerFunc(a.serveHTTP)}}
}

// timeout bounds what one request asks of the stores, but for import
// and export.
const timeout = 30 * time.Second

// An apiError is an answer that is no success.
type apiError struct {
	status  int
	field   string
	message string
	cause   error // for the log
}

func (e *apiError) Error() string { return e.message }

// A call is one request.
type call struct {
	*http.Request
	w     http.ResponseWriter
	app   *app.App
	admin *flows.Admin // of the company in the path
	// mnemocode is the account's in the path.
	mnemocode string
}

// A route serves the methods of a path.
type route map[string]func(*call) error

// routes are by the path behind the company, * standing for a mnemocode.
var routes = map[string]route{
	"accounts":                {http.MethodGet: (*call).list, http.MethodPost: (*call).create},
	"accounts/*":              {http.MethodGet: (*call).show, http.MethodPatch: (*call).change, http.MethodDelete: (*call).delete},
	"accounts/*/backup-codes": {http.MethodPost: (*call).backupCodes},
	"accounts/*/unlock":       {http.MethodPost: (*call).unlock},
	"accounts/*/sessions":     {http.MethodGet: (*call).sessions, http.MethodDelete: (*call).endSessions},
	"import":                  {http.MethodPost: (*call).importLines},
	"export":                  {http.MethodGet: (*call).export},
}

// topRoutes are those without a company.
var topRoutes = map[string]route{
	"":       {http.MethodGet: (*call).companies},
	"doctor": {http.MethodGet: (*call).doctor},
}

// serveHTTP answers all itself, since what Caddy makes of an error has no field.
func (API) serveHTTP(w http.ResponseWriter, r *http.Request) error {
	c := &call{Request: r, w: w}
	if err := flows.Contain(c.serve); err != nil {
		c.refuse(err)
	}
	return nil
}

func (c *call) serve() error {
	route, err := c.route()
	if err != nil {
		return err
	}
	if c.app != nil {
		c.app.Enter()
		defer c.app.Leave()
	}
	serve := route[c.Method]
	if serve == nil && c.Method == http.MethodHead {
		serve = route[http.MethodGet]
	}
	if serve == nil {
		c.w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(route)), ", "))
		return &apiError{status: http.StatusMethodNotAllowed, message: "this path does not have the method " + c.Method}
	}
	return serve(c)
}

// route finds what the path names: the app that is running, the company and the
// mnemocode. It looks at the escaped path, whose slashes are no mnemocode's.
func (c *call) route() (route, error) {
	segments := strings.Split(strings.TrimPrefix(c.URL.EscapedPath(), api.Root), "/")
	for i, s := range segments {
		var err error
		if segments[i], err = url.PathUnescape(s); err != nil {
			return nil, errNoRoute
		}
	}
	route, found := topRoutes[segments[0]]
	if found = found && len(segments) == 1; !found && len(segments) > 1 {
		if len(segments) > 2 {
			c.mnemocode, segments[2] = segments[2], "*"
		}
		route, found = routes[strings.Join(segments[1:], "/")]
	}
	if !found || len(segments) > 2 && c.mnemocode == "" {
		return nil, errNoRoute
	}
	service, err := c.running()
	if err != nil || len(segments) == 1 {
		return route, err
	}
	company := service.Companies[segments[0]]
	if company == nil {
		return nil, &apiError{status: http.StatusNotFound, field: "company", message: "no such company is configured"}
	}
	c.admin = &flows.Admin{Service: service, Company: company, Address: c.RemoteAddr}
	return route, nil
}

var errNoRoute = &apiError{status: http.StatusNotFound, message: "there is no such path"}

// running returns the service of the configuration that is running. The context
// that Caddy hands to admin modules can be that of a config that failed.
func (c *call) running() (*flows.Service, error) {
	configured, err := caddy.ActiveContext().AppIfConfigured("mnemogate")
	if err != nil {
		return nil, &apiError{status: http.StatusServiceUnavailable, message: "the running configuration has no mnemogate: add the global option mnemogate"}
	}
	c.app = configured.(*app.App)
	service, err := c.app.Service(c.Context())
	if err != nil {
		return nil, &apiError{status: http.StatusServiceUnavailable, message: "a store can't be reached: " + err.Error(), cause: err}
	}
	return service, nil
}

// refuse answers an error.
func (c *call) refuse(err error) {
	refusal := asAPIError(err)
	if p, ok := errors.AsType[*flows.Panic](err); ok && c.app != nil {
		p.Log(c.app.Log(), "method", c.Method, "path", c.URL.Path)
	} else if refusal.cause != nil && c.app != nil {
		c.app.Log().Warn("an admin request failed", "method", c.Method, "path", c.URL.Path, "error", refusal.cause)
	}
	if refusal.status == http.StatusServiceUnavailable {
		c.w.Header().Set("Retry-After", "2")
	}
	c.writeJSON(refusal.status, struct {
		Error string `json:"error"`
		Field string `json:"field,omitempty"`
	}{refusal.message, refusal.field})
}

func asAPIError(err error) *apiError {
	if refusal, ok := errors.AsType[*apiError](err); ok {
		return refusal
	}
	if _, ok := errors.AsType[*flows.Panic](err); ok {
		return &apiError{status: http.StatusInternalServerError, message: "a defect of the server; see its log, and report it"}
	}
	if field, ok := errors.AsType[*flows.FieldError](err); ok {
		return &apiError{status: http.StatusBadRequest, field: field.Field, message: field.Error()}
	}
	if taken, ok := errors.AsType[*flows.TakenError](err); ok {
		return &apiError{status: http.StatusConflict, field: taken.Field, message: taken.Error()}
	}
	switch {
	case errors.Is(err, flows.ErrNotFound):
		return &apiError{status: http.StatusNotFound, message: "the company has no such account"}
	case errors.Is(err, flows.ErrOwed):
		return &apiError{status: http.StatusServiceUnavailable, message: err.Error()}
	case errors.Is(err, password.ErrBusy):
		return &apiError{status: http.StatusServiceUnavailable, message: "too many passwords are being hashed; try again"}
	default:
		return &apiError{status: http.StatusServiceUnavailable, message: "a store did not answer; try again, and see the log", cause: err}
	}
}

// within bounds what a request asks of the stores. A change that has begun is
// seen through, also if the operator's connection breaks.
func (c *call) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), timeout)
}

// body reads a JSON body. What is no JSON is found by parsing it.
func (c *call) body() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(c.Body, api.MaxAccount+1))
	if err != nil {
		return nil, &apiError{status: http.StatusBadRequest, message: "the body could not be read"}
	}
	if len(data) > api.MaxAccount {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", api.MaxAccount)}
	}
	return data, nil
}

// query returns a parameter of the query, and refuses those that are unknown.
func (c *call) query(known ...string) (url.Values, error) {
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, &apiError{status: http.StatusBadRequest, message: "the query is malformed"}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			return nil, &apiError{status: http.StatusBadRequest, field: name, message: "there is no such parameter"}
		}
		if len(values[name]) > 1 {
			return nil, &apiError{status: http.StatusBadRequest, field: name, message: "it is given twice"}
		}
	}
	return values, nil
}

// loginID returns the login id that the query names. There a + stands for a
// space, which many a client forgets of the + in a phone or an email; within
// these no space can have been meant.
func (c *call) loginID() string {
	const plus = "\x00"
	query, _ := url.ParseQuery(strings.ReplaceAll(c.URL.RawQuery, "+", "%00")) // c.query has seen that it is well-formed
	id := query.Get("login_id")
	if digits, ok := strings.CutPrefix(id, plus); ok && strings.IndexAny(digits, "0123456789") == 0 {
		id = "+" + digits
	}
	if strings.Contains(id, "@") {
		id = strings.ReplaceAll(strings.Trim(id, plus), plus, "+")
	}
	return strings.ReplaceAll(id, plus, " ")
}

func (c *call) companies() error {
	c.writeJSON(http.StatusOK, map[string][]string{"companies": slices.Sorted(maps.Keys(c.app.Companies))})
	return nil
}

func (c *call) create() error {
	ctx, cancel := c.within()
	defer cancel()
	data, err := c.body()
	if err != nil {
		return err
	}
	change, err := parseChange(data, changeNew)
	if err != nil {
		return err
	}
	a, err := c.admin.Create(ctx, change)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", api.Root+c.admin.Company.Code+"/accounts/"+url.PathEscape(a.Mnemocode))
	return c.answer(ctx, http.StatusCreated, a)
}

// answer writes an account.
func (c *call) answer(ctx context.Context, status int, a flows.Account) error {
	until, err := c.admin.LockedUntil(ctx, a)
	if err != nil {
		return err
	}
	c.writeJSON(status, newAccountView(a, until))
	return nil
}

func (c *call) show() error {
	ctx, cancel := c.within()
	defer cancel()
	a, err := c.admin.ByMnemocode(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	return c.answer(ctx, http.StatusOK, a)
}

func (c *call) change() error {
	ctx, cancel := c.within()
	defer cancel()
	data, err := c.body()
	if err != nil {
		return err
	}
	change, err := parseChange(data, changeOld)
	if err != nil {
		return err
	}
	a, _, err := c.admin.Change(ctx, c.mnemocode, change)
	if err != nil {
		return err
	}
	return c.answer(ctx, http.StatusOK, a)
}

func (c *call) delete() error {
	ctx, cancel := c.within()
	defer cancel()
	if err := c.admin.Delete(ctx, c.mnemocode); err != nil {
		return err
	}
	c.noContent()
	return nil
}

func (c *call) noContent() {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusNoContent)
}

func (c *call) backupCodes() error {
	ctx, cancel := c.within()
	defer cancel()
	codes, err := c.admin.NewBackupCodes(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	c.writeJSON(http.StatusOK, map[string][]string{"backup_codes": codes})
	return nil
}

func (c *call) unlock() error {
	ctx, cancel := c.within()
	defer cancel()
	a, err := c.admin.Unlock(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	return c.answer(ctx, http.StatusOK, a)
}

func (c *call) sessions() error {
	ctx, cancel := c.within()
	defer cancel()
	sessions, err := c.admin.LiveSessions(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	views := make([]api.Session, len(sessions))
	for i, s := range sessions {
		views[i] = api.Session{ID: s.ID, State: s.State, Created: s.Created.UTC(), Expires: s.Expires.UTC(), Ends: s.Ends.UTC()}
	}
	c.writeJSON(http.StatusOK, map[string][]api.Session{"sessions": views})
	return nil
}

func (c *call) endSessions() error {
	ctx, cancel := c.within()
	defer cancel()
	if err := c.admin.EndSessions(ctx, c.mnemocode); err != nil {
		return err
	}
	c.noContent()
	return nil
}

func (c *call) list() error {
	ctx, cancel := c.within()
	defer cancel()
	query, err := c.query("login_id", "limit", "after")
	if err != nil {
		return err
	}
	limit := api.DefaultPage
	if query.Has("limit") {
		if limit, err = strconv.Atoi(query.Get("limit")); err != nil || limit < 1 || limit > api.MaxPage {
			return &apiError{status: http.StatusBadRequest, field: "limit", message: fmt.Sprintf("limit: it must be 1 to %d", api.MaxPage)}
		}
	}
	var accounts []flows.Account
	if query.Has("login_id") {
		a, err := c.admin.ByLoginID(ctx, c.loginID())
		if err == nil {
			accounts = []flows.Account{a}
		} else if !errors.Is(err, flows.ErrNotFound) {
			return err
		}
	} else if accounts, err = c.admin.List(ctx, query.Get("after"), limit+1); err != nil {
		return err
	}
	var p api.Page
	if len(accounts) > limit {
		accounts = accounts[:limit]
		p.Next = accounts[limit-1].Mnemocode
	}
	if p.Accounts, err = c.views(ctx, accounts); err != nil {
		return err
	}
	c.writeJSON(http.StatusOK, p)
	return nil
}

// views asks for the locks of some accounts at once, since each is a question
// to the store.
func (c *call) views(ctx context.Context, accounts []flows.Account) ([]api.Account, error) {
	views := make([]api.Account, len(accounts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, a := range accounts {
		group.Go(func() error {
			return flows.Contain(func() error {
				until, err := c.admin.LockedUntil(ctx, a)
				views[i] = newAccountView(a, until)
				return err
			})
		})
	}
	return views, group.Wait()
}

// gate.writeJSON answers with JSON.
func (c *call) writeJSON(status int, body any) {
	var b bytes.Buffer
	_ = api.WriteLine(&b, body) // plain structs; a buffer takes all
	header := c.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(b.Len()))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b.Bytes()) // the client may be gone
}

// Interface guards
var (
	_ caddy.AdminRouter = (*API)(nil)
	_ caddy.Provisioner = (*API)(nil)
)
