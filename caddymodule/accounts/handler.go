// Package accounts is the accounts API: the HTTP API for operators and backends.
// Start at Routes, which lists all routes. See call.go for access and error
// responses, and Handler for the directive for backends. Package admin serves the
// API to operators.
package accounts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bypass"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
)

func init() {
	caddy.RegisterModule(Handler{})
	httpcaddyfile.RegisterHandlerDirective("mnemogate_accounts", parseHandler)
	// Directives that block requests or answer them come before it.
	httpcaddyfile.RegisterDirectiveOrder("mnemogate_accounts", httpcaddyfile.After, "respond")
}

// Handler serves the accounts API to backends on a site of its own. With a key, they
// can manage accounts and sessions without Caddy's admin endpoint. They send the key
// as `Authorization: Bearer <key>`. A request without a valid key gets 401, and a
// request that its key does not allow gets 403. Requests with an `Origin` are
// refused. The handler answers every request; `GET /openapi.json` describes the API.
//
// The companies are configured in the app `mnemogate`.
type Handler struct {
	// The keys by name. The audit log records the name as the actor. A name has 1 to
	// 64 letters, digits, dots, `_` and `-`. At least one key is required.
	Keys map[string]*Key `json:"keys,omitempty"`

	// The line of each option in the Caddyfile that this JSON was adapted from, for
	// errors and warnings. Leave it out of JSON that you write yourself.
	Source guest.Source `json:"source,omitempty"`

	app *app.App
	api API
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.mnemogate_accounts",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision finds the app and resolves the keys.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	if h.app, err = app.Configured(ctx, "mnemogate_accounts", h.Source); err != nil {
		return err
	}
	if err := h.provision(); err != nil {
		return h.Source.At(fmt.Errorf("mnemogate_accounts: %w", err))
	}
	return bypass.Check(ctx, h.app)
}

func (h *Handler) provision() error {
	if err := h.check(); err != nil {
		return err
	}
	names := map[[32]byte]string{}
	for _, name := range slices.Sorted(maps.Keys(h.Keys)) {
		k := h.Keys[name]
		if err := k.provision(name, h.app); err != nil {
			return err
		}
		for _, hash := range k.hashes {
			if other, taken := names[hash]; taken {
				return fmt.Errorf("key %s: key %s is the same; give each its own", name, other)
			}
			names[hash] = name
			k.weak = append(k.weak, h.app.RegisterKey(name, hash)...)
		}
		directive := "mnemogate_accounts key " + name
		for _, w := range k.weak {
			h.app.Note([]app.Weakness{{Directive: directive, At: h.Source.Line(directive), Weakness: w}})
		}
	}
	h.app.RegisterKeys(h.allows)
	h.api = API{Root: "/", App: func(context.Context) (*app.App, error) { return h.app, nil }, Admit: h.admit}
	return nil
}

// Line implements bypass.Handler.
func (h *Handler) Line() string { return h.Source.Line("") }

// check refuses mistakes within the handler.
func (h *Handler) check() error {
	if len(h.Keys) == 0 {
		return errors.New("key is missing: without one nobody, or everybody, could manage accounts; add at least one")
	}
	for _, name := range slices.Sorted(maps.Keys(h.Keys)) {
		if err := h.Keys[name].check(name); err != nil {
			return guest.Inside("key "+name, err)
		}
	}
	return nil
}

// ServeHTTP answers every request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	defer logs.SkipAccessLog(r)
	address, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	// handle_path has removed a prefix from r's path; the original request has it. After a
	// rewrite to another path, no prefix is known.
	prefix := ""
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		if removed, ok := strings.CutSuffix(original.URL.EscapedPath(), r.URL.EscapedPath()); ok {
			prefix = removed
		}
	}
	h.api.Serve(w, r, address, prefix)
	return nil
}

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	h.Source = guest.SourceOf(d)
	h.Keys = map[string]*Key{}
	err := guest.NoArguments(d, guest.Parsers{"key <name> <key>...": h.parseKey}, "key")
	return guest.Complete(d, err, h.check)
}

func (h *Handler) parseKey(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return guest.ErrArguments
	}
	name := args[0]
	if h.Keys[name] != nil {
		return guest.Named("key "+name, d.Err("already specified; remove one"))
	}
	k := &Key{Keys: args[1:]}
	h.Keys[name] = k
	if err := guest.CheckKeys(d, k.Keys); err != nil {
		return guest.Named("key "+name, err)
	}
	var may []string
	err := guest.Options(d, guest.Parsers{
		"company <code>...": guest.List(&k.Companies),
		"may read|write|create|sessions|introspect|import|export|messages|issue|act...": guest.List(&may),
	})
	for _, right := range may {
		k.May = append(k.May, Right(right))
	}
	return guest.Named("key "+name, guest.Complete(d, err, func() error { return k.check(name) }))
}

// Interface guards
var (
	_ bypass.Handler              = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
