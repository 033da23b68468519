package bypass

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/intercept"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/mnemogate/mnemogate/caddymodule/app"
)

// A visit is a route, a handler or an upstream in the routes of a site, and the ways that lead
// there.
type visit struct {
	*site
	block     *block
	handler   any    // or a caddyhttp.Route, before its handlers
	company   string // if it is no place in the routes: see judge
	open      []way  // of requests that have not passed a gate; at most one
	guarded   []way  // of those that have
	failed    bool   // whether the requests have failed, and passed no gate since
	addresses bool   // whether a matcher before it in the site depends on the client's address
	wider     bool   // whether its route is for more hosts than the site; these have a site of their own

	Gate        // if the handler is one, and requests come to it
	on   steps  // that all of them took
	end  string // of a gate that no requests come to: the handler that answered them, or skips

	asks     bool   // whether the proxy only asks for permission
	upstream string // the address of one of the proxy's, as written
	address  string // the same, in the one spelling for all
	first    *visit // of the upstream, from the same site and, if failed, the routes for errors; nil if its address is unknown
}

// A site is the hosts of a route, with all routes that requests for each of them come to.
type site struct {
	app    *app.App
	server *caddyhttp.Server
	hosts  string   // empty if it has all
	visits []*visit // in the order of its routes
}

// A block is a list of routes. One of those that exclude each other is a block of its own.
type block struct{ outer *block }

func (b *block) isIn(outer *block) bool {
	for b != nil && b != outer {
		b = b.outer
	}
	return b == outer
}

const skips = "a route of the same group"

// A walk follows the requests of one site.
type walk struct {
	site
	invoked   []string     // the named routes that led here
	addresses bool         // as in visit
	wide      map[int]bool // which of the site's routes are for more hosts
	wider     bool         // as in visit
}

// follow returns the visits of all sites, in the order of their routes.
func follow(servers map[string]*caddyhttp.Server, a *app.App) (visits []*visit) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		routes, failed := hostedIn(server.Routes), hosted{}
		if server.Errors != nil {
			failed = hostedIn(server.Errors.Routes)
		}
		sites := map[string]bool{}
		for _, r := range slices.Concat(routes.routes, failed.routes) {
			sites[r.hosts] = true
		}
		for _, hosts := range slices.Sorted(maps.Keys(sites)) {
			w := &walk{site: site{app: a, server: server, hosts: hosts}}
			var list caddyhttp.RouteList
			list, w.wide = routes.of(hosts)
			w.routes(list, []way{{}}, nil)
			list, w.wide = failed.of(hosts)
			w.errors(list, []way{{}}, nil) // Caddy itself refuses some requests before any route
			visits = append(visits, w.visits...)
		}
	}
	return visits
}

func (w *walk) visit(handler any, in []way, b *block) *visit {
	v := &visit{site: &w.site, block: b, handler: handler, addresses: w.addresses, wider: w.wider}
	for _, y := range in {
		switch {
		case y.isOpen():
			v.open = append(v.open, y)
		case y.isGuarded():
			v.guarded = append(v.guarded, y)
		}
	}
	v.failed = v.guarded == nil && len(in) > len(v.open)
	w.visits = append(w.visits, v)
	return v
}

// routes returns the ways through a list of routes.
func (w *walk) routes(list caddyhttp.RouteList, in []way, outer *block) []way {
	all, over := &block{outer}, isOver(in)
	var through, left []way // of a group: what passed one of its routes, and what is left for the others
	for i, r := range list {
		if outer == nil {
			w.wider = w.wide[i]
		}
		if r.Group == "" || i == 0 || list[i-1].Group != r.Group {
			through, left = nil, in
		}
		came, passedBy := w.route(r, left, all)
		through, left = join(through, came), passedBy
		in = join(through, left)
	}
	if isOver(in) && !slices.ContainsFunc(in, func(y way) bool { return !y.isGuarded() || !over && !y.gate.block.isIn(all) }) {
		return nil // a block with a gate that answers all is complete
	}
	return in
}

// route returns the ways through a route, and those past it.
func (w *walk) route(r caddyhttp.Route, in []way, b *block) (came, passedBy []way) {
	sets := matchersOf(r)
	if isOver(in) {
		if came = w.handlers(r, in, b); sets == nil {
			return came, nil
		}
		return nil, in
	}
	w.addresses = w.addresses || has(sets, "remote_ip", "client_ip")
	if files := triedBy(r, sets); files != nil {
		came = changed(in, tried)
		if strings.Contains(files[len(files)-1], "{") {
			return came, in
		}
		return came, nil // all others get the last file or, with =404, an error
	}
	came, passedBy, skipped := split(r, sets, in)
	if came == nil {
		came = ended(skipped, skips)
	}
	w.visit(r, came, b)
	if r.Group != "" {
		b = &block{b}
	}
	return w.handlers(r, came, b), join(passedBy, skipped)
}

// split returns the ways into a route, those of requests that it leaves out, and those that
// Caddy lets skip it.
func split(r caddyhttp.Route, sets caddyhttp.MatcherSets, in []way) (came, leftOut, skipped []way) {
	match, miss := &step{group: r.Group, matchers: sets, paths: pathsOf(sets)}, &step{matchers: sets, missed: true, paths: pathsOf(negated(sets))}
	if runsScripts(r) {
		match.matchers = nil
	}
	for _, y := range in {
		if slices.Contains(y.groups, r.Group) {
			skipped = append(skipped, y)
			continue
		}
		if slices.Contains(y.some, r.Group) {
			skipped = append(skipped, y)
		}
		matches, known := y.matches(sets)
		if matches || !known {
			came = append(came, y.then(match))
		}
		if out := y.then(miss); sets != nil && !(matches && known) && !out.isNone() {
			leftOut = append(leftOut, out)
		}
	}
	return came, leftOut, skipped
}

func (w *walk) handlers(r caddyhttp.Route, in []way, b *block) []way {
	for _, h := range handlersOf(r) {
		in = w.handler(h, in, b)
	}
	if r.Terminal && !isOver(in) {
		return nil
	}
	return in
}

func (w *walk) handler(h any, in []way, b *block) []way {
	if len(in) == 0 {
		return nil
	}
	switch h := h.(type) {
	case *caddyhttp.Subroute:
		through := w.routes(h.Routes, in, b)
		if h.Errors != nil && !isOver(in) {
			failed := w.errors(h.Errors.Routes, in, b)
			// Only some requests fail, and nobody knows which.
			through = join(through, changed(failed, &step{matchers: caddyhttp.MatcherSets{nil}, remade: true}))
		}
		return through
	case *caddyhttp.Invoke:
		return w.invoke(h.Name, in, b)
	case *intercept.Intercept:
		later := changed(in, &step{remade: true}) // by handlers after it
		for _, response := range h.HandleResponse {
			w.routes(response.Routes, later, b)
		}
		return in
	case Gate:
		return w.pass(h, in, b)
	}
	if isOver(in) {
		return in
	}
	if proxy, ok := h.(*reverseproxy.Handler); ok {
		return w.proxy(proxy, in, b)
	}
	w.visit(h, in, b)
	return after(h, in)
}

// pass returns the way on from a gate.
func (w *walk) pass(g Gate, in []way, b *block) []way {
	if isOver(in) {
		w.visit(g, nil, b).end = in[0].end
		return in
	}
	v, on := w.visit(g, in, b), in[0]
	for _, y := range in[1:] {
		on = on.merge(y)
	}
	for _, t := range on.turns {
		if s := t[len(t)-1]; !slices.Contains(on.steps, s) { // some of the requests took it
			on = on.then(&step{remade: s.remade, marked: s.marked})
		}
	}
	v.Gate, v.on = g, on.steps
	on.gate, on.since, on.turns = v, len(on.steps), nil
	return []way{on}
}

func (w *walk) invoke(name string, in []way, b *block) []way {
	named := w.server.NamedRoutes[name]
	if named == nil || slices.Contains(w.invoked, name) {
		return in
	}
	w.invoked = append(w.invoked, name)
	in = w.routes(caddyhttp.RouteList{*named}, in, b)
	w.invoked = w.invoked[:len(w.invoked)-1]
	return in
}

// errors returns the ways of requests that failed through the routes for errors. Some of the
// requests are open if some were that came.
func (w *walk) errors(routes caddyhttp.RouteList, came []way, b *block) []way {
	in := []way{{gate: unknown}}
	if slices.ContainsFunc(came, way.isOpen) {
		in = append(in, way{})
	}
	return w.routes(routes, in, b)
}

// proxy visits the upstreams of a proxy. A proxy that passes requests on and sends GET instead
// only asks for permission, as forward_auth does. That matters if the application it asks trusts
// the headers of open requests.
func (w *walk) proxy(h *reverseproxy.Handler, in []way, b *block) []way {
	through := ended(in, "reverse_proxy")
	for _, response := range h.HandleResponse {
		if response.Routes != nil {
			through = join(through, w.routes(response.Routes, in, b))
		}
	}
	asks := h.Rewrite != nil && h.Rewrite.Method == http.MethodGet && !isOver(through)
	if h.Rewrite != nil {
		in = after(h.Rewrite, in)
	}
	for _, dial := range addressesOf(h) {
		v := w.visit(h, in, b)
		if v.asks = asks; asks {
			v.guarded = nil
		}
		if dial != "" {
			v.upstream, v.address = dial, sameAddress(dial)
			v.first = w.visits[slices.IndexFunc(w.visits, func(u *visit) bool { return u.address == v.address && u.failed == v.failed })]
		}
	}
	return through
}

// after returns the ways after a handler without routes.
func after(h any, in []way) []way {
	switch h := h.(type) {
	case *caddyhttp.StaticResponse:
		return ended(in, "respond or redir")
	case *caddyhttp.StaticError:
		return ended(in, "error")
	case *rewrite.Rewrite:
		return changed(in, rewriting(h))
	case *headers.Handler:
		if h.Request == nil {
			return in
		}
		return changed(in, &step{marked: true, remade: changesHost(h)})
	case caddy.Module:
		switch name := h.CaddyModule().ID.Name(); {
		case name == "copy_response", name == "metrics", name == "mnemogate_accounts", name == "file_server" && !passesThru(h):
			return ended(in, name)
		case name == "vars", name == "map", name == "authentication":
			return changed(in, &step{marked: true})
		case !changesNothing[name]:
			return changed(in, &step{remade: true})
		}
	}
	return in
}
