package bypass

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// These functions read routes and servers, whether they are provisioned or still
// JSON.

// matchersOf returns a route's matcher sets, or nil if it has none. They are sorted,
// so that two routes can be compared: Caddy keeps each set in random order.
func matchersOf(r caddyhttp.Route) (sets caddyhttp.MatcherSets) {
	for _, set := range r.MatcherSets {
		sets = append(sets, slices.Clone(set))
	}
	for _, matchers := range r.MatcherSetsRaw {
		var set caddyhttp.MatcherSet
		for name, raw := range matchers {
			m := loaded("http.matchers."+name, raw)
			switch m := m.(type) {
			case *caddyhttp.MatchHost, *caddyhttp.MatchMethod, *caddyhttp.MatchPath: // their spelling changes
				_ = m.(caddy.Provisioner).Provision(caddy.Context{}) // Caddy reports errors in it
			}
			set = append(set, m)
		}
		sets = append(sets, set)
	}
	for _, set := range sets {
		for i, m := range set {
			if m, ok := m.(*caddyhttp.MatchNot); ok {
				set[i] = &caddyhttp.MatchNot{MatcherSets: matchersOf(caddyhttp.Route{MatcherSets: m.MatcherSets, MatcherSetsRaw: m.MatcherSetsRaw})}
			}
		}
		slices.SortFunc(set, func(a, b any) int { return cmp.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b)) })
	}
	return sets
}

func same(a, b caddyhttp.MatcherSets) bool {
	return slices.EqualFunc(a, b, func(a, b caddyhttp.MatcherSet) bool { return slices.EqualFunc(a, b, sameMatcher) })
}

// sameMatcher compares the JSON of Caddy's own matchers, since some get more fields when they are
// provisioned. Others may lose modules of theirs then, so that their JSON does not tell all.
func sameMatcher(a, b any) bool {
	if not, ok := a.(*caddyhttp.MatchNot); ok {
		other, ok := b.(*caddyhttp.MatchNot)
		return ok && same(not.MatcherSets, other.MatcherSets)
	}
	if reflect.TypeOf(a) != reflect.TypeOf(b) || a == nil {
		return false
	}
	if has(caddyhttp.MatcherSets{{a}}, "file") {
		return reflect.DeepEqual(filesOf(a), filesOf(b))
	}
	if reflect.Indirect(reflect.ValueOf(a)).Type().PkgPath() != reflect.TypeFor[caddyhttp.MatchExpression]().PkgPath() {
		return reflect.DeepEqual(a, b)
	}
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}

// filesOf returns what a matcher of files looks for, with the defaults that Caddy fills in when it
// provisions it.
func filesOf(matcher any) map[string]any {
	files := map[string]any{"fs": "{http.vars.fs}", "root": "{http.vars.root}", "try_files": []any{"{http.request.uri.path}"}}
	raw, _ := json.Marshal(matcher) // it came from JSON
	_ = json.Unmarshal(raw, &files)
	return files
}

// opposite reports whether one of two routes has the matchers of the other, negated.
func opposite(a, b caddyhttp.MatcherSets) bool {
	negates := func(a, b caddyhttp.MatcherSets) bool { return b != nil && same(negated(a), b) }
	return negates(a, b) || negates(b, a)
}

// negated returns the matchers of which others are the opposite, or nil.
func negated(sets caddyhttp.MatcherSets) caddyhttp.MatcherSets {
	if len(sets) != 1 || len(sets[0]) != 1 {
		return nil
	}
	not, ok := sets[0][0].(*caddyhttp.MatchNot)
	if !ok {
		return nil
	}
	return not.MatcherSets
}

// has reports whether some of the matchers have one of the names.
func has(sets caddyhttp.MatcherSets, names ...string) bool {
	return slices.ContainsFunc(slices.Concat(sets...), func(m any) bool {
		if not, ok := m.(*caddyhttp.MatchNot); ok {
			return has(not.MatcherSets, names...)
		}
		module, ok := m.(caddy.Module)
		return ok && slices.Contains(names, module.CaddyModule().ID.Name())
	})
}

// byLine reports whether matchers depend only on the request line, the host and the
// connection.
func byLine(sets caddyhttp.MatcherSets) bool {
	for _, m := range slices.Concat(sets...) {
		switch m := m.(type) {
		case *caddyhttp.MatchPath, *caddyhttp.MatchPathRE, *caddyhttp.MatchQuery, *caddyhttp.MatchMethod, *caddyhttp.MatchHost, *caddyhttp.MatchRemoteIP:
		case *caddyhttp.MatchProtocol:
			if *m == "grpc" {
				return false // it is a Content-Type
			}
		case *caddyhttp.MatchNot:
			if !byLine(m.MatcherSets) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// changesNothing has the names of handlers that change nothing that matchers depend on.
var changesNothing = map[string]bool{
	"copy_response_headers": true, "encode": true, "file_server": true, "log_append": true, "push": true, "request_body": true, "templates": true, "timeouts": true, "tracing": true,
	"cache": true, "crowdsec": true, "rate_limit": true, "replace_response": true, "waf": true, // of others
}

func handlersOf(r caddyhttp.Route) (handlers []any) {
	for _, h := range r.Handlers {
		handlers = append(handlers, h)
	}
	for _, raw := range r.HandlersRaw {
		handlers = append(handlers, loaded("http.handlers."+nameIn(raw, "handler"), raw))
	}
	return handlers
}

// onlyHandler returns a route's only handler but for headers, or nil if it has several.
func onlyHandler(r caddyhttp.Route) any {
	handlers := slices.DeleteFunc(handlersOf(r), func(h any) bool { _, is := h.(*headers.Handler); return is })
	if len(handlers) != 1 {
		return nil
	}
	if block, ok := handlers[0].(*caddyhttp.Subroute); ok && len(block.Routes) == 1 && matchersOf(block.Routes[0]) == nil {
		return onlyHandler(block.Routes[0]) // handle @blocked { abort }
	}
	return handlers[0]
}

// refusesOthers reports whether a server refuses all requests for hosts that it does not
// name.
func refusesOthers(server *caddyhttp.Server) bool {
	return slices.ContainsFunc(server.Routes, func(r caddyhttp.Route) bool {
		if matchersOf(r) != nil {
			return false
		}
		switch h := onlyHandler(r).(type) {
		case *caddyhttp.StaticError:
			return true
		case *caddyhttp.StaticResponse:
			status, err := strconv.Atoi(string(h.StatusCode))
			return h.Abort || err == nil && status >= 300
		}
		return false
	})
}

// triedBy returns the files of try_files, or nil if the route is another.
func triedBy(r caddyhttp.Route, matchers caddyhttp.MatcherSets) []string {
	handlers := handlersOf(r)
	if len(handlers) != 1 || len(matchers) != 1 || len(matchers[0]) != 1 || !has(matchers, "file") {
		return nil
	}
	if h, rewrites := handlers[0].(*rewrite.Rewrite); !rewrites || !strings.HasPrefix(h.URI, "{http.matchers.file.relative}") {
		return nil
	}
	return fieldsOf(matchers[0][0]).TryFiles
}

// nameIn returns the name of a module from its JSON.
func nameIn(raw json.RawMessage, key string) string {
	var fields map[string]any
	_ = json.Unmarshal(raw, &fields) // Caddy reports errors in it
	name, _ := fields[key].(string)
	return name
}

// loaded returns a module as its JSON describes it, or nil if there is no such
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

// asksForPasswords reports whether only basic_auth lets requests pass.
func asksForPasswords(h *caddyauth.Authentication) bool {
	const basic = "http_basic"
	return len(h.Providers)+len(h.ProvidersRaw) == 1 && (h.Providers[basic] != nil || h.ProvidersRaw[basic] != nil)
}

// runsScripts reports whether a route is that of php_fastcgi. It matches the path
// after its own rewrite, and skips only files.
func runsScripts(r caddyhttp.Route) bool {
	proxy, ok := onlyHandler(r).(*reverseproxy.Handler)
	return ok && speaksFastCGI(proxy)
}

// speaksFastCGI compares the transport's name, since its package imports the file
// server.
func speaksFastCGI(h *reverseproxy.Handler) bool {
	if transport, ok := h.Transport.(caddy.Module); ok {
		return transport.CaddyModule().ID.Name() == "fastcgi"
	}
	return nameIn(h.TransportRaw, "protocol") == "fastcgi"
}

// environmentOf returns the variables that a proxy sets for FastCGI. Caddy sets them after those
// of the headers, and so replaces these.
func environmentOf(h *reverseproxy.Handler) map[string]string {
	switch {
	case !speaksFastCGI(h):
		return nil
	case h.Transport != nil:
		return fieldsOf(h.Transport).Env
	default:
		return fieldsOf(h.TransportRaw).Env
	}
}

// addressesOf returns the addresses of a proxy's upstreams. A dynamic one is known by its
// name, or has none that is known.
func addressesOf(h *reverseproxy.Handler) (addresses []string) {
	for _, u := range h.Upstreams {
		addresses = append(addresses, u.Dial)
	}
	var dynamic any = h.DynamicUpstreams
	if h.DynamicUpstreams == nil {
		dynamic = loadedSource(h.DynamicUpstreamsRaw)
	}
	if addresses = append(addresses, namesIn(reflect.ValueOf(dynamic))...); addresses == nil {
		return []string{""}
	}
	return addresses
}

func loadedSource(raw json.RawMessage) any {
	return loaded("http.reverse_proxy.upstreams."+nameIn(raw, "source"), raw)
}

// namesIn returns the names of dynamic upstreams. It reflects, since Caddy hides the sources of
// multi once they are provisioned.
func namesIn(source reflect.Value) (names []string) {
	for source.Kind() == reflect.Pointer || source.Kind() == reflect.Interface {
		source = source.Elem()
	}
	if !source.IsValid() {
		return nil
	}
	text := func(field string) string { return source.FieldByName(field).String() }
	switch source.Type() {
	case reflect.TypeFor[reverseproxy.AUpstreams]():
		names = append(names, net.JoinHostPort(text("Name"), cmp.Or(text("Port"), "80")))
	case reflect.TypeFor[reverseproxy.SRVUpstreams]():
		names = append(names, strings.Trim(text("Service")+"."+text("Proto")+"."+text("Name"), "."))
	case reflect.TypeFor[reverseproxy.MultiUpstreams]():
		for _, raw := range source.FieldByName("SourcesRaw").Interface().([]json.RawMessage) {
			names = append(names, namesIn(reflect.ValueOf(loadedSource(raw)))...)
		}
		for _, provisioned := range source.FieldByName("sources").Seq2() {
			names = append(names, namesIn(provisioned)...)
		}
	}
	return names
}

// isElsewhere reports whether an upstream is on another machine, as far as its address
// shows.
func isElsewhere(dial string) bool {
	host, _, err := net.SplitHostPort(sameAddress(dial))
	return err == nil && !strings.ContainsAny(host, "{/") && host != "localhost"
}

// authenticates reports whether an upstream can tell the requests of a proxy from others.
func authenticates(h *reverseproxy.Handler, g Gate) bool {
	if sends, _ := g.Asserts(); sends {
		return true
	}
	transport, ok := h.Transport.(*reverseproxy.HTTPTransport)
	if !ok && nameIn(h.TransportRaw, "protocol") == "http" {
		transport, ok = loaded("http.reverse_proxy.transport.http", h.TransportRaw).(*reverseproxy.HTTPTransport)
	}
	if ok && transport.TLS != nil && cmp.Or(transport.TLS.ClientCertificateFile, transport.TLS.ClientCertificateAutomate) != "" {
		return true
	}
	if h.Headers == nil || h.Headers.Request == nil {
		return false
	}
	proves := func(sent http.Header) bool {
		for name, values := range sent {
			known := http.CanonicalHeaderKey(name) == "Host" || strings.HasPrefix(http.CanonicalHeaderKey(name), "X-Forwarded-")
			if !known && slices.ContainsFunc(values, maybeSecret) {
				return true
			}
		}
		return false
	}
	return proves(h.Headers.Request.Set) || proves(h.Headers.Request.Add)
}

// maybeSecret reports whether the value of a header can be a secret: one from outside the
// configuration, or a text that is too long to be guessed.
func maybeSecret(value string) bool {
	if strings.Contains(value, "{") {
		return strings.Contains(value, "{env.") || strings.Contains(value, "{file.")
	}
	return !guest.IsShortKey(value)
}

// listens returns the addresses at which the configuration makes the server listen.
func listens(server *caddyhttp.Server) (addresses []caddy.NetworkAddress) {
	for _, listen := range server.Listen {
		if address, err := caddy.ParseNetworkAddress(listen); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func listensBeyond(server *caddyhttp.Server, local func(host string) bool) bool {
	return slices.ContainsFunc(listens(server), func(address caddy.NetworkAddress) bool {
		return !address.IsUnixNetwork() && !address.IsFdNetwork() && !local(address.Host)
	})
}

// private reports whether a host is this machine or in a private network.
func private(host string) bool {
	ip, err := netip.ParseAddr(host)
	return guest.Loopback(host) || err == nil && (ip.Unmap().IsPrivate() || ip.IsLinkLocalUnicast())
}

func asksForCertificates(server *caddyhttp.Server) bool {
	return slices.ContainsFunc(server.TLSConnPolicies, func(p *caddytls.ConnectionPolicy) bool { return p.ClientAuthentication != nil })
}

// passesThru reports whether Caddy's file server passes on requests without a file.
func passesThru(fileServer caddy.Module) bool { return fieldsOf(fileServer).PassThru }

// fields are those of modules of Caddy's packages fileserver and fastcgi. We do not import these:
// the templates that come with them take most of the start time of a test process.
type fields struct {
	PassThru bool              `json:"pass_thru"` // of the file server
	TryFiles []string          `json:"try_files"` // of the matcher of files
	Env      map[string]string `json:"env"`       // of the transport by FastCGI
}

func fieldsOf(module any) (set fields) {
	raw, _ := json.Marshal(module) // it came from JSON
	_ = json.Unmarshal(raw, &set)
	return set
}

// sameAddress returns one spelling for all spellings of an address, and for all addresses of
// this machine.
func sameAddress(dial string) string {
	address, err := caddy.ParseNetworkAddress(caddy.NewReplacer().ReplaceKnown(dial, ""))
	host := strings.TrimSuffix(strings.ToLower(address.Host), ".")
	switch ip, _ := netip.ParseAddr(host); {
	case err != nil:
		return dial
	case address.IsUnixNetwork():
		return "unix/" + path.Clean(address.Host)
	case address.StartPort == 0:
		return host
	case host == "" || guest.Loopback(host) || ip.IsUnspecified():
		host = "localhost"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(address.StartPort)))
}
