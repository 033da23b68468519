package bypass

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
)

// Found is where a request comes to a gate.
type Found struct {
	Gate
	Site    string        // its hosts, or else the addresses of its server
	Request *http.Request // as the gate gets it
}

// Find sends a request to a port through copies of the servers' routes, and returns where it
// comes to a gate. The copies have Caddy's own matchers, and of the handlers only those that
// change the request. Other handlers let it through, unless they would answer it. Servers
// that listen elsewhere are only asked if none listens at the port: it may be that of a
// proxy in front of them.
func Find(servers map[string]*caddyhttp.Server, r *http.Request, port uint) (Found, error) {
	all := slices.Sorted(maps.Keys(servers))
	there := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !mayListen(servers[name], port) })
	if len(there) == 0 {
		there = all
	}
	s := new(search)
	for _, name := range there {
		server := servers[name]
		routes := s.copies(server, server.Routes, "")
		prepared := caddyhttp.PrepareRequest(r.Clone(r.Context()), caddy.NewReplacer(), nil, server)
		if err := routes.Compile(s).ServeHTTP(new(bodies.Recorder), prepared); err != nil {
			return s.found, fmt.Errorf("a matcher of Caddy failed: %w; see its log", err)
		}
		if s.found.Gate != nil {
			return s.found, nil
		}
	}
	switch {
	case s.end != "":
		return s.found, fmt.Errorf("%s answers it before mnemogate is asked", s.end)
	case s.sites == nil:
		return s.found, errors.New("no server at this port has a site with mnemogate")
	default:
		return s.found, fmt.Errorf("it is for none of the sites with mnemogate: %s", strings.Join(slices.Compact(s.sites), "; "))
	}
}

// mayListen reports whether a server listens at a port, or at a socket that may have any.
func mayListen(server *caddyhttp.Server, port uint) bool {
	return slices.ContainsFunc(listens(server), func(a caddy.NetworkAddress) bool {
		return a.IsUnixNetwork() || a.IsFdNetwork() || a.StartPort <= port && port <= a.EndPort
	})
}

// A search follows a request.
type search struct {
	sites   []string // that have a gate
	invoked []string // the named routes around the present one
	found   Found
	end     string // the first handler that would answer
}

// copies returns a copy of routes that can be run.
func (s *search) copies(server *caddyhttp.Server, routes caddyhttp.RouteList, hosts string) (copied caddyhttp.RouteList) {
	for _, r := range routes {
		own, _, _ := hostsOf(matchersOf(r))
		c := caddyhttp.Route{Group: r.Group, MatcherSets: r.MatcherSets, Terminal: r.Terminal}
		for _, h := range r.Handlers {
			c.Handlers = append(c.Handlers, s.copy(server, h, cmp.Or(hosts, own)))
		}
		_ = c.ProvisionHandlers(caddy.Context{}, nil) // never fails: there are none in JSON
		copied = append(copied, c)
	}
	return copied
}

// copy returns what stands for a handler.
func (s *search) copy(server *caddyhttp.Server, h caddyhttp.MiddlewareHandler, hosts string) caddyhttp.MiddlewareHandler {
	switch h := h.(type) {
	case *caddyhttp.Subroute:
		return &caddyhttp.Subroute{Routes: s.copies(server, h.Routes, hosts)}
	case *caddyhttp.Invoke:
		named := server.NamedRoutes[h.Name]
		if named == nil || slices.Contains(s.invoked, h.Name) {
			return &caddyhttp.Subroute{}
		}
		s.invoked = append(s.invoked, h.Name)
		defer func() { s.invoked = s.invoked[:len(s.invoked)-1] }()
		return &caddyhttp.Subroute{Routes: s.copies(server, caddyhttp.RouteList{*named}, hosts)}
	case *rewrite.Rewrite, *headers.Handler:
		return h
	case caddyhttp.StaticResponse: // to https, by Caddy itself
		return s.copy(server, &h, hosts)
	case Gate:
		name := cmp.Or(hosts, strings.Join(server.Listen, ", "))
		s.sites = append(s.sites, name)
		return stop(func(r *http.Request) { s.found = Found{h, name, r} })
	}
	if module, ok := h.(caddy.Module); ok && slices.Contains([]string{"vars", "map"}, module.CaddyModule().ID.Name()) {
		return h
	}
	w := &walk{site: site{server: server}}
	if on := w.handler(h, []way{{}}, nil); len(on) > 0 && isOver(on) {
		return stop(func(*http.Request) { s.end = cmp.Or(s.end, on[0].end) })
	}
	return &caddyhttp.Subroute{} // lets it through
}

// ServeHTTP implements caddyhttp.Handler, for requests that no handler answers.
func (*search) ServeHTTP(http.ResponseWriter, *http.Request) error { return nil }

// A stop is called with a request, and passes it on to nobody.
type stop func(*http.Request)

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (f stop) ServeHTTP(_ http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	f(r)
	return nil
}
