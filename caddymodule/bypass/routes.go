package bypass

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// What routes and servers say, be they provisioned or still JSON.

// hostsOf returns the hosts that a route matches, and whether nothing else
// matters.
func hostsOf(r caddyhttp.Route) (hosts string, only bool) {
	var all []string
	only = true
	for _, set := range setsOf(r) {
		for _, m := range set {
			if match, ok := m.(*caddyhttp.MatchHost); ok {
				all = append(all, *match...)
			} else {
				only = false
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", "), only
}

// setsOf returns a route's matchers.
func setsOf(r caddyhttp.Route) (sets [][]any) {
	for _, set := range r.MatcherSets {
		sets = append(sets, set)
	}
	return append(sets, loadedSets(r.MatcherSetsRaw)...)
}

func loadedSets(raw caddyhttp.RawMatcherSets) (sets [][]any) {
	for _, matchers := range raw {
		var set []any
		for name, raw := range matchers {
			set = append(set, loaded("http.matchers."+name, raw))
		}
		sets = append(sets, set)
	}
	return sets
}

// tellsAddresses reports whether matchers look at the client's address.
func tellsAddresses(sets [][]any) bool {
	return slices.ContainsFunc(slices.Concat(sets...), func(m any) bool {
		switch m := m.(type) {
		case *caddyhttp.MatchRemoteIP, *caddyhttp.MatchClientIP:
			return true
		case *caddyhttp.MatchNot:
			return tellsAddresses(append(loadedSets(m.MatcherSetsRaw), setsOf(caddyhttp.Route{MatcherSets: m.MatcherSets})...))
		}
		return false
	})
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

// runsScripts reports whether a route is that of php_fastcgi, which matches what
// it has made of the path before: it leaves out files only.
func runsScripts(r caddyhttp.Route) bool {
	handlers := handlersOf(r)
	if len(handlers) != 1 {
		return false
	}
	proxy, ok := handlers[0].(*reverseproxy.Handler)
	return ok && speaksFastCGI(proxy)
}

// speaksFastCGI looks at the transport's name, as its package imports the file server's.
func speaksFastCGI(h *reverseproxy.Handler) bool {
	transport, ok := h.Transport.(caddy.Module)
	if !ok && h.TransportRaw != nil {
		var named struct {
			Protocol string `json:"protocol"`
		}
		_ = json.Unmarshal(h.TransportRaw, &named) // Caddy says what is wrong
		return named.Protocol == "fastcgi"
	}
	return ok && transport.CaddyModule().ID.Name() == "fastcgi"
}

// listensBeyond reports whether the server listens at an address that is not local, as
// far as its configuration shows it.
func listensBeyond(server *caddyhttp.Server, local func(host string) bool) bool {
	return slices.ContainsFunc(server.Listen, func(listen string) bool {
		address, err := caddy.ParseNetworkAddress(listen)
		return err == nil && !address.IsUnixNetwork() && !address.IsFdNetwork() && !local(address.Host)
	})
}

// private reports whether a host is this machine or an address of a private network.
func private(host string) bool {
	ip, err := netip.ParseAddr(host)
	return guest.Loopback(host) || err == nil && (ip.Unmap().IsPrivate() || ip.IsLinkLocalUnicast())
}

func asksForCertificates(server *caddyhttp.Server) bool {
	return slices.ContainsFunc(server.TLSConnPolicies, func(p *caddytls.ConnectionPolicy) bool { return p.ClientAuthentication != nil })
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
