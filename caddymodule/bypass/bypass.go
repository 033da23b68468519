// Package bypass finds requests that the routes of a server let past mnemogate.
package bypass

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// Find follows the requests of a server through its routes. What would let
// some past mnemogate to an application, which takes an identity from whoever
// sends one, it refuses where the routes show it for sure; what may be meant is
// a weakness. A server is looked at once, while it is provisioned, so that some
// of its routes may be modules already and others still JSON.
func Find(server *caddyhttp.Server) (found []app.Weakness, err error) {
	routes, failed := bySite(server.Routes), map[string]caddyhttp.RouteList{}
	if server.Errors != nil {
		failed = bySite(server.Errors.Routes)
	}
	for _, site := range slices.Sorted(maps.Keys(routes)) {
		w := &walk{server: server, site: site, applications: map[string]arrivals{}, written: map[string]string{}}
		w.routes(routes[site], arrivals{open: true})
		w.errors(failed[site])
		if w.wrong != "" {
			return nil, fmt.Errorf("%s: %s", w.directive(), w.wrong)
		}
		found = append(found, w.weaknesses()...)
	}
	return found, nil
}

// bySite returns the routes by the hosts that they match, without these
// matchers.
func bySite(routes caddyhttp.RouteList) map[string]caddyhttp.RouteList {
	sites := map[string]caddyhttp.RouteList{}
	for _, r := range routes {
		hosts, only := hostsOf(r)
		if only {
			r.MatcherSets, r.MatcherSetsRaw = nil, nil
		}
		sites[hosts] = append(sites[hosts], r)
	}
	return sites
}

// Arrivals are the requests that come to one point of the routes.
type arrivals struct {
	open    bool   // some have not met mnemogate
	guarded bool   // some have
	matched any    // the matchers by which the guarded ones were told from the others
	sure    bool   // others are there for sure: no matchers came since
	end     string // if none come: the handler that took open ones, if one did
}

func (a arrivals) none() bool { return !a.open && !a.guarded }

func (a arrivals) mixed() bool { return a.open && a.guarded }

// taken is what is left behind a handler that lets none through.
func (a arrivals) taken(handler string) arrivals {
	switch {
	case a.none():
		return a
	case a.open:
		return arrivals{end: handler}
	}
	return arrivals{}
}

// join is the arrivals from two sides.
func join(a, b arrivals) arrivals {
	if a.none() && (a.end == "" || !b.none()) {
		return b
	}
	if b.none() {
		return a
	}
	matched := a.matched
	if !a.guarded {
		matched = b.matched
	} else if b.guarded && !reflect.DeepEqual(a.matched, b.matched) {
		matched = nil
	}
	return arrivals{
		open:    a.open || b.open,
		guarded: a.guarded || b.guarded,
		matched: matched,
		sure:    a.open && a.sure || b.open && b.sure,
	}
}

// A walk follows the requests of one site.
type walk struct {
	server       *caddyhttp.Server
	site         string              // its hosts, none: it has all
	applications map[string]arrivals // by the address of the upstream: the requests that come to it
	written      map[string]string   // that address as it was written first
	invoked      []string            // the named routes on the way
	failing      bool                // open requests may come to the routes for errors
	twice        bool                // some requests may meet mnemogate twice
	wrong        string              // what is to be refused
}

// routes returns the requests that come through the routes.
func (w *walk) routes(routes caddyhttp.RouteList, in arrivals) arrivals {
	var through, left arrivals // of a group: who came through one of its routes, and who is left for the others
	for i, r := range routes {
		if r.Group == "" || i == 0 || routes[i-1].Group != r.Group {
			through, left = arrivals{}, in
		}
		came, passedBy := w.route(r, left)
		through, left = join(through, came), passedBy
		in = join(through, left)
	}
	return in
}

// route returns the requests that come through a route, and those that its
// matchers leave out.
func (w *walk) route(r caddyhttp.Route, in arrivals) (came, passedBy arrivals) {
	matchers := matchersOf(r)
	if matchers == nil {
		return w.handlers(r, in), arrivals{}
	}
	taken, passedBy := in, in
	if in.mixed() && reflect.DeepEqual(matchers, in.matched) {
		taken.open, passedBy.guarded = false, false
	}
	taken.sure = false
	came = w.handlers(r, taken)
	if came.guarded && !in.guarded {
		passedBy.sure, came.matched = true, nil
		if !came.open {
			came.matched = matchers
		}
	}
	return came, passedBy
}

func (w *walk) handlers(r caddyhttp.Route, in arrivals) arrivals {
	for _, h := range handlersOf(r) {
		in = w.handler(h, in)
	}
	if r.Terminal && !in.none() {
		return arrivals{}
	}
	return in
}

func (w *walk) handler(h any, in arrivals) arrivals {
	if in.none() && in.end == "" {
		return in
	}
	switch h := h.(type) {
	case *caddyhttp.Subroute:
		through := w.routes(h.Routes, in)
		if h.Errors != nil {
			w.errors(h.Errors.Routes)
		}
		return through
	case *caddyhttp.Invoke:
		return w.invoke(h.Name, in)
	case *reverseproxy.Handler:
		w.failing = w.failing || in.open
		return w.proxy(h, in)
	case *caddyhttp.StaticResponse:
		return in.taken("respond or redir")
	case *caddyhttp.StaticError:
		w.failing = w.failing || in.open
		return in.taken("error")
	case *rewrite.Rewrite:
		in.matched = nil // what matches may differ from here on
	case caddy.Module:
		switch h.CaddyModule().ID {
		case "http.handlers.mnemogate":
			return w.guard(in)
		case "http.handlers.file_server":
			w.failing = w.failing || in.open
			if !passesThru(h) {
				return in.taken("file_server")
			}
		}
	}
	return in
}

// guard is mnemogate.
func (w *walk) guard(in arrivals) arrivals {
	switch {
	case in.none():
		w.refuse("it stands behind " + in.end + ", which lets no request through to it; write it before that")
	case !in.open:
		w.refuse("the same requests meet it twice, and the second finds no token any more; leave one of the two")
	case in.guarded:
		w.twice = true
	}
	return arrivals{guarded: true}
}

// passesThru tells whether Caddy's file server hands on what it has no file for.
// Its package is not imported: the templates that it brings take most of the time
// in which a test's process starts.
func passesThru(fileServer caddy.Module) bool {
	var set struct {
		PassThru bool `json:"pass_thru"`
	}
	raw, err := json.Marshal(fileServer)
	if err == nil {
		err = json.Unmarshal(raw, &set)
	}
	return err == nil && set.PassThru
}

func (w *walk) invoke(name string, in arrivals) arrivals {
	named := w.server.NamedRoutes[name]
	if named == nil || slices.Contains(w.invoked, name) {
		return in
	}
	w.invoked = append(w.invoked, name)
	in = w.routes(caddyhttp.RouteList{*named}, in)
	w.invoked = w.invoked[:len(w.invoked)-1]
	return in
}

// errors follows the requests that failed.
func (w *walk) errors(routes caddyhttp.RouteList) {
	w.routes(routes, arrivals{open: w.failing, guarded: true})
}

// proxy notes who comes to an application. A proxy that lets requests through
// only asks whether it may, as forward_auth does.
func (w *walk) proxy(h *reverseproxy.Handler, in arrivals) arrivals {
	through := in.taken("reverse_proxy")
	for _, response := range h.HandleResponse {
		if response.Routes != nil {
			through = join(through, w.routes(response.Routes, in))
		}
	}
	if !through.none() {
		return through
	}
	if in.mixed() && in.sure {
		w.refuse("requests that its matcher leaves out come to reverse_proxy, with identity headers of their own making; " +
			"write mnemogate without a matcher or, for a part of the site, into one block with reverse_proxy: handle /api/* { ... }")
	}
	for _, u := range h.Upstreams {
		address := sameAddress(u.Dial)
		w.written[address] = cmp.Or(w.written[address], u.Dial)
		w.applications[address] = join(w.applications[address], in)
	}
	return through
}

// sameAddress has one spelling for this machine.
func sameAddress(dial string) string {
	host, port, err := net.SplitHostPort(dial)
	if err == nil && (host == "" || host == "localhost" || net.ParseIP(host).IsLoopback()) {
		return "localhost:" + port
	}
	return dial
}

func (w *walk) refuse(why string) {
	if w.wrong == "" {
		w.wrong = why
	}
}

func (w *walk) directive() string {
	if w.site == "" {
		return "mnemogate"
	}
	return "mnemogate in " + w.site
}

func (w *walk) weaknesses() (found []app.Weakness) {
	add := func(message, advice string) {
		found = append(found, app.Weakness{Directive: w.directive(), Weakness: guest.Weakness{Message: message, Advice: advice}})
	}
	for _, address := range slices.Sorted(maps.Keys(w.applications)) {
		if w.applications[address].mixed() {
			add("requests may also come to "+w.written[address]+" without it, and with identity headers of their own making",
				"put it before each reverse_proxy to there, in one block with it; paths where everybody may come are its option public, which takes identity headers out")
		}
	}
	if w.twice {
		add("some requests may meet it twice, and the second finds no token any more", "put each into a handle block of its own, or leave one")
	}
	return found
}

// hostsOf returns the hosts that a route matches, and whether nothing else
// matters.
func hostsOf(r caddyhttp.Route) (hosts string, only bool) {
	var all []string
	only = true
	add := func(m any) {
		if match, ok := m.(*caddyhttp.MatchHost); ok {
			all = append(all, *match...)
		} else {
			only = false
		}
	}
	for _, set := range r.MatcherSets {
		for _, m := range set {
			add(m)
		}
	}
	for _, set := range r.MatcherSetsRaw {
		for name, raw := range set {
			add(loaded("http.matchers."+name, raw))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", "), only
}

// matchersOf returns what can be compared of a route's matchers, nil if it has
// none.
func matchersOf(r caddyhttp.Route) any {
	switch {
	case len(r.MatcherSetsRaw) > 0:
		return r.MatcherSetsRaw
	case len(r.MatcherSets) > 0:
		return r.MatcherSets
	}
	return nil
}

// handlersOf returns a route's handlers.
func handlersOf(r caddyhttp.Route) (handlers []any) {
	for _, h := range r.Handlers {
		handlers = append(handlers, h)
	}
	for _, raw := range r.HandlersRaw {
		var named struct {
			Handler string `json:"handler"`
		}
		_ = json.Unmarshal(raw, &named) // Caddy says what is wrong
		handlers = append(handlers, loaded("http.handlers."+named.Handler, raw))
	}
	return handlers
}

// loaded returns a module with what its JSON says, nil if there is no such
// module.
func loaded(id string, raw json.RawMessage) any {
	info, err := caddy.GetModule(id)
	if err != nil {
		return nil
	}
	module := info.New()
	_ = json.Unmarshal(raw, module)
	return module
}
