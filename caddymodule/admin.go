package caddymodule

import (
	"context"
	"encoding/json"
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

	"github.com/mnemogate/mnemogate/flows"
)

func init() { caddy.RegisterModule(Admin{}) }

// Admin serves the accounts, their sessions, import and export on Caddy's
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
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.mnemogate", New: func() caddy.Module { return new(Admin) }}
}

// Provision registers the metrics. Caddy takes these routers into use before it
// loads the apps of a config, and keeps them should that fail: without this,
// /metrics would then have nothing of the config that goes on running.
func (Admin) Provision(ctx caddy.Context) error { return registerCollectors(ctx) }

// Routes implements caddy.AdminRouter.
func (a Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: adminRoot, Handler: caddy.AdminHandlerFunc(a.serveHTTP)}}
}

const (
	adminRoot = "/mnemogate/"
	// maxAdminBody bounds the JSON of one account, in a body or in a line.
	maxAdminBody = 64 << 10
	// adminTimeout bounds what one request asks of the stores, but for import
	// and export.
	adminTimeout = 30 * time.Second
)

// An adminError is an answer that is no success.
type adminError struct {
	status  int
	field   string
	message string
	cause   error // for the log
}

func (e *adminError) Error() string { return e.message }

// An adminCall is one request.
type adminCall struct {
	*http.Request
	w     http.ResponseWriter
	app   *App
	admin *flows.Admin // of the company in the path
	// mnemocode is the account's in the path.
	mnemocode string
}

// An adminRoute serves the methods of a path.
type adminRoute map[string]func(*adminCall) error

// adminRoutes are by the path behind the company, * standing for a mnemocode.
var adminRoutes = map[string]adminRoute{
	"accounts":                {http.MethodGet: (*adminCall).list, http.MethodPost: (*adminCall).create},
	"accounts/*":              {http.MethodGet: (*adminCall).show, http.MethodPatch: (*adminCall).change, http.MethodDelete: (*adminCall).delete},
	"accounts/*/backup-codes": {http.MethodPost: (*adminCall).backupCodes},
	"accounts/*/unlock":       {http.MethodPost: (*adminCall).unlock},
	"accounts/*/sessions":     {http.MethodGet: (*adminCall).sessions, http.MethodDelete: (*adminCall).endSessions},
	"import":                  {http.MethodPost: (*adminCall).importLines},
	"export":                  {http.MethodGet: (*adminCall).export},
}

// adminTopRoutes are those without a company.
var adminTopRoutes = map[string]adminRoute{
	"":       {http.MethodGet: (*adminCall).companies},
	"doctor": {http.MethodGet: (*adminCall).doctor},
}

// serveHTTP answers all itself, since what Caddy makes of an error has no field.
func (Admin) serveHTTP(w http.ResponseWriter, r *http.Request) error {
	c := &adminCall{Request: r, w: w}
	if err := flows.Contain(c.serve); err != nil {
		c.refuse(err)
	}
	return nil
}

func (c *adminCall) serve() error {
	route, err := c.route()
	if err != nil {
		return err
	}
	if c.app != nil {
		c.app.enter()
		defer c.app.leave()
	}
	serve := route[c.Method]
	if serve == nil && c.Method == http.MethodHead {
		serve = route[http.MethodGet]
	}
	if serve == nil {
		c.w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(route)), ", "))
		return &adminError{status: http.StatusMethodNotAllowed, message: "this path does not have the method " + c.Method}
	}
	return serve(c)
}

// route finds what the path names: the app that is running, the company and the
// mnemocode. It looks at the escaped path, whose slashes are no mnemocode's.
func (c *adminCall) route() (adminRoute, error) {
	segments := strings.Split(strings.TrimPrefix(c.URL.EscapedPath(), adminRoot), "/")
	for i, s := range segments {
		var err error
		if segments[i], err = url.PathUnescape(s); err != nil {
			return nil, errNoAdminRoute
		}
	}
	route, found := adminTopRoutes[segments[0]]
	if found = found && len(segments) == 1; !found && len(segments) > 1 {
		if len(segments) > 2 {
			c.mnemocode, segments[2] = segments[2], "*"
		}
		route, found = adminRoutes[strings.Join(segments[1:], "/")]
	}
	if !found || len(segments) > 2 && c.mnemocode == "" {
		return nil, errNoAdminRoute
	}
	service, err := c.running()
	if err != nil || len(segments) == 1 {
		return route, err
	}
	company := service.Companies[segments[0]]
	if company == nil {
		return nil, &adminError{status: http.StatusNotFound, field: "company", message: "no such company is configured"}
	}
	c.admin = &flows.Admin{Service: service, Company: company, Address: c.RemoteAddr}
	return route, nil
}

var errNoAdminRoute = &adminError{status: http.StatusNotFound, message: "there is no such path"}

// running returns the service of the configuration that is running. The context
// that Caddy hands to admin modules can be that of a config that failed.
func (c *adminCall) running() (*flows.Service, error) {
	configured, err := caddy.ActiveContext().AppIfConfigured("mnemogate")
	if err != nil {
		return nil, &adminError{status: http.StatusServiceUnavailable, message: "the running configuration has no mnemogate: add the global option mnemogate"}
	}
	c.app = configured.(*App)
	service, err := c.app.Service(c.Context())
	if err != nil {
		return nil, &adminError{status: http.StatusServiceUnavailable, message: "a store can't be reached: " + err.Error(), cause: err}
	}
	return service, nil
}

// refuse answers an error.
func (c *adminCall) refuse(err error) {
	refusal := asAdminError(err)
	if p, ok := errors.AsType[*flows.Panic](err); ok && c.app != nil {
		p.Log(c.app.log, "method", c.Method, "path", c.URL.Path)
	} else if refusal.cause != nil && c.app != nil {
		c.app.log.Warn("an admin request failed", "method", c.Method, "path", c.URL.Path, "error", refusal.cause)
	}
	if refusal.status == http.StatusServiceUnavailable {
		c.w.Header().Set("Retry-After", "2")
	}
	writeJSON(c.w, refusal.status, struct {
		Error string `json:"error"`
		Field string `json:"field,omitempty"`
	}{refusal.message, refusal.field})
}

func asAdminError(err error) *adminError {
	if refusal, ok := errors.AsType[*adminError](err); ok {
		return refusal
	}
	if _, ok := errors.AsType[*flows.Panic](err); ok {
		return &adminError{status: http.StatusInternalServerError, message: "a defect of the server; see its log, and report it"}
	}
	if field, ok := errors.AsType[*flows.FieldError](err); ok {
		return &adminError{status: http.StatusBadRequest, field: field.Field, message: field.Error()}
	}
	if taken, ok := errors.AsType[*flows.TakenError](err); ok {
		return &adminError{status: http.StatusConflict, field: taken.Field, message: taken.Error()}
	}
	switch {
	case errors.Is(err, flows.ErrNotFound):
		return &adminError{status: http.StatusNotFound, message: "the company has no such account"}
	case errors.Is(err, flows.ErrOwed):
		return &adminError{status: http.StatusServiceUnavailable, message: err.Error()}
	case errors.Is(err, flows.ErrBusy):
		return &adminError{status: http.StatusServiceUnavailable, message: "too many passwords are being hashed; try again"}
	default:
		return &adminError{status: http.StatusServiceUnavailable, message: "a store did not answer; try again, and see the log", cause: err}
	}
}

// within bounds what a request asks of the stores. A change that has begun is
// seen through, also if the operator's connection breaks.
func (c *adminCall) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), adminTimeout)
}

// body reads a JSON body. What is no JSON is found by parsing it.
func (c *adminCall) body() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(c.Body, maxAdminBody+1))
	if err != nil {
		return nil, &adminError{status: http.StatusBadRequest, message: "the body could not be read"}
	}
	if len(data) > maxAdminBody {
		return nil, &adminError{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", maxAdminBody)}
	}
	return data, nil
}

// query returns a parameter of the query, and refuses those that are unknown.
func (c *adminCall) query(known ...string) (url.Values, error) {
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, &adminError{status: http.StatusBadRequest, message: "the query is malformed"}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			return nil, &adminError{status: http.StatusBadRequest, field: name, message: "there is no such parameter"}
		}
		if len(values[name]) > 1 {
			return nil, &adminError{status: http.StatusBadRequest, field: name, message: "it is given twice"}
		}
	}
	return values, nil
}

func (c *adminCall) companies() error {
	writeJSON(c.w, http.StatusOK, map[string][]string{"companies": slices.Sorted(maps.Keys(c.app.Companies))})
	return nil
}

func (c *adminCall) create() error {
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
	c.w.Header().Set("Location", adminRoot+c.admin.Company.Code+"/accounts/"+url.PathEscape(a.Mnemocode))
	return c.answer(ctx, http.StatusCreated, a)
}

// answer writes an account.
func (c *adminCall) answer(ctx context.Context, status int, a flows.Account) error {
	until, err := c.admin.LockedUntil(ctx, a)
	if err != nil {
		return err
	}
	writeJSON(c.w, status, newAccountView(a, until))
	return nil
}

func (c *adminCall) show() error {
	ctx, cancel := c.within()
	defer cancel()
	a, err := c.admin.ByMnemocode(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	return c.answer(ctx, http.StatusOK, a)
}

func (c *adminCall) change() error {
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

func (c *adminCall) delete() error {
	ctx, cancel := c.within()
	defer cancel()
	if err := c.admin.Delete(ctx, c.mnemocode); err != nil {
		return err
	}
	c.noContent()
	return nil
}

func (c *adminCall) noContent() {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusNoContent)
}

func (c *adminCall) backupCodes() error {
	ctx, cancel := c.within()
	defer cancel()
	codes, err := c.admin.NewBackupCodes(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, map[string][]string{"backup_codes": codes})
	return nil
}

func (c *adminCall) unlock() error {
	ctx, cancel := c.within()
	defer cancel()
	a, err := c.admin.Unlock(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	return c.answer(ctx, http.StatusOK, a)
}

// A sessionView is a session as an operator sees it. The id is of no use as a
// token.
type sessionView struct {
	ID      string      `json:"session_id"`
	State   flows.State `json:"session_state"`
	Created time.Time   `json:"created_at"`
	Expires time.Time   `json:"expires_at"` // unless it is used
	Ends    time.Time   `json:"ends_at"`
}

func (c *adminCall) sessions() error {
	ctx, cancel := c.within()
	defer cancel()
	sessions, err := c.admin.LiveSessions(ctx, c.mnemocode)
	if err != nil {
		return err
	}
	views := make([]sessionView, len(sessions))
	for i, s := range sessions {
		views[i] = sessionView{s.ID, s.State, s.Created.UTC(), s.Expires.UTC(), s.Ends.UTC()}
	}
	writeJSON(c.w, http.StatusOK, map[string][]sessionView{"sessions": views})
	return nil
}

func (c *adminCall) endSessions() error {
	ctx, cancel := c.within()
	defer cancel()
	if err := c.admin.EndSessions(ctx, c.mnemocode); err != nil {
		return err
	}
	c.noContent()
	return nil
}

// A page is an answer to a search for accounts.
type page struct {
	Accounts []accountView `json:"accounts"`
	// Next is the after of the next page; empty if there is none.
	Next string `json:"next,omitempty"`
}

const (
	defaultPage = 100
	maxPage     = 1000
)

func (c *adminCall) list() error {
	ctx, cancel := c.within()
	defer cancel()
	query, err := c.query("login_id", "limit", "after")
	if err != nil {
		return err
	}
	limit := defaultPage
	if query.Has("limit") {
		if limit, err = strconv.Atoi(query.Get("limit")); err != nil || limit < 1 || limit > maxPage {
			return &adminError{status: http.StatusBadRequest, field: "limit", message: fmt.Sprintf("limit: it must be 1 to %d", maxPage)}
		}
	}
	var accounts []flows.Account
	if query.Has("login_id") {
		a, err := c.admin.ByLoginID(ctx, query.Get("login_id"))
		if err == nil {
			accounts = []flows.Account{a}
		} else if !errors.Is(err, flows.ErrNotFound) {
			return err
		}
	} else if accounts, err = c.admin.List(ctx, query.Get("after"), limit+1); err != nil {
		return err
	}
	var p page
	if len(accounts) > limit {
		accounts = accounts[:limit]
		p.Next = accounts[limit-1].Mnemocode
	}
	if p.Accounts, err = c.views(ctx, accounts); err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, p)
	return nil
}

// views asks for the locks of some accounts at once, since each is a question
// to the store.
func (c *adminCall) views(ctx context.Context, accounts []flows.Account) ([]accountView, error) {
	views := make([]accountView, len(accounts))
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

// writeLine writes v as one line of JSON.
func writeLine(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// Interface guards
var (
	_ caddy.AdminRouter = (*Admin)(nil)
	_ caddy.Provisioner = (*Admin)(nil)
)
