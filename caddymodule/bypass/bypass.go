// Package bypass finds requests that a server's routes let past mnemogate. Its tests are in
// package gate, in bypass_test.go and bypass_traps_test.go, because those of gate link all of
// Caddy anyway.
package bypass

import (
	"cmp"
	"maps"
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
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/intercept"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// A Handler is one of mnemogate's handlers in the routes: mnemogate or
// mnemogate_accounts. It may not be provisioned yet.
type Handler interface {
	caddy.Module
	// Line returns its position in the Caddyfile, or "" for JSON.
	Line() string
}

// A Gate is the handler mnemogate.
type Gate interface {
	Handler
	// Base returns its base_path.
	Base() string
	// Serves reports whether it answers the auth routes of a company.
	Serves(company string) bool
	// IdentityHeaders returns the names of the headers that it removes and sets.
	IdentityHeaders() []string
	// Patterns returns the paths of its options that have some, by the option's name.
	Patterns() map[string][]string
	// Asserts reports whether it sends assertions, and whether their issuer depends on
	// the host of the request.
	Asserts() (sends, byHost bool)
	// Asked reports whether other proxies ask it by check.
	Asked() bool
	// WithoutPasskeys returns login_page or self_service if a company's passkeys
	// don't work there on these hosts, else nothing.
	WithoutPasskeys(a *app.App, hosts []string) (option, company, rpID string)
}

// Check follows the requests of all servers through their routes, once. It refuses routes
// that certainly let requests past mnemogate to an application, since the application
// would trust identity headers from anyone. It reports as weaknesses what may be
// intended. It runs while the first of our handlers is provisioned, so some routes may
// already be modules and others still JSON. The context is that of the handler.
func Check(ctx caddy.Context, a *app.App) error {
	for _, module := range ctx.Modules() {
		if http, ok := module.(*caddyhttp.App); ok {
			return a.CheckRoutesOnce(func() ([]app.Weakness, error) { return find(http.Servers, a) })
		}
	}
	return nil
}

func find(servers map[string]*caddyhttp.Server, a *app.App) ([]app.Weakness, error) {
	f := &finder{app: a, companies: slices.Sorted(maps.Keys(a.Companies)), reached: map[string]bool{}, met: map[rule]bool{}}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		routes, failed := bySite(server.Routes), map[string]caddyhttp.RouteList{}
		if server.Errors != nil {
			failed = bySite(server.Errors.Routes)
		}
		sites := slices.AppendSeq(slices.Collect(maps.Keys(routes)), maps.Keys(failed))
		slices.Sort(sites)
		for _, site := range slices.Compact(sites) {
			w := &walk{finder: f, server: server, site: site}
			w.routes(routes[site], reach{open: true})
			w.errors(failed[site], true) // Caddy itself refuses some requests before any route
		}
	}
	if f.wrong != nil {
		return nil, f.wrong
	}
	f.compare()
	for _, r := range f.missed {
		if !f.met[r.rule] {
			f.found = append(f.found, r.Weakness)
		}
	}
	return append(f.without(), f.found...), nil
}

// without finds companies that nobody can log in to, if there is a gate at all.
func (f *finder) without() (found []app.Weakness) {
	for _, company := range f.companies {
		if f.reached[company] || len(f.reached)+len(f.unreached) == 0 {
			continue
		}
		gates := 0
		for _, u := range f.unreached {
			if slices.Contains(u.companies, company) {
				found = append(found, u.Weakness)
				gates++
			}
		}
		if gates == 0 {
			found = append(found, app.Weakness{Company: company, Directive: "company", At: f.app.Source.Line("company " + company), Weakness: unserved})
		}
	}
	return found
}

// A finder collects the findings of all sites.
type finder struct {
	app          *app.App
	companies    []string // the configured companies
	applications []*application
	reached      map[string]bool // the companies with auth routes that requests can reach
	unreached    []unreachedGate // the gates without
	missed       []missed        // rules that match nothing on one way
	met          map[rule]bool   // rules that may match something on one way
	found        []app.Weakness
	wrong        error // the error that refuses the configuration
}

// An unreachedGate is a gate that no request for an auth route reaches, whichever of its
// companies it is for.
type unreachedGate struct {
	companies []string
	app.Weakness
}

// A rule is a path of an option. The line is that of mnemogate: blocks that import the
// same lines share their rules.
type rule struct{ line, option, path string }

type missed struct {
	rule
	app.Weakness
}

// An application is an upstream of a site, with the requests that reach it from
// there.
type application struct {
	*walk
	reach
	address string  // normalized
	written string  // as first written
	visits  []reach // those with a gate
	scripts bool    // whether it uses FastCGI
	failed  bool    // whether the requests have failed, and come from the routes for errors
}

// compare finds applications that open requests reach but that mnemogate guards
// elsewhere.
func (f *finder) compare() {
	for _, a := range f.applications {
		if a.gate != nil && a.mixed() {
			a.add(unguarded, a.gate, a.written)
		}
	}
	for _, a := range f.applications {
		for _, in := range a.visits {
			f.opened(a, in)
		}
		from := cmp.Or(a.site, strings.Join(a.server.Listen, ", "))
		switch g := f.guarded(a); {
		case a.gate != nil || !a.open || g == nil:
		case a.failed:
			g.add(failing, g.gate, a.written, from)
		default:
			g.add(elsewhere, g.gate, a.written, from)
		}
	}
}

// guarded returns where mnemogate guards an application: at the same site, if it does
// there. Sites with FastCGI at the same address have different applications.
func (f *finder) guarded(a *application) (found *application) {
	for _, g := range f.applications {
		switch {
		case g.gate == nil || g.address != a.address:
		case g.walk == a.walk:
			return g
		case found == nil && !a.scripts:
			found = g
		}
	}
	return found
}

// bySite groups the routes by the hosts that they match. It removes the matchers of
// routes that match only hosts.
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

// A walk follows the requests of one site.
type walk struct {
	*finder
	server    *caddyhttp.Server
	site      string   // the site's hosts; empty if it has all
	invoked   []string // the named routes that led here
	taken     []string // the upstreams that took open requests earlier in the routes that lead here
	addresses bool     // whether a matcher depends on the client's address
}

// routes returns the requests that pass through the routes.
func (w *walk) routes(routes caddyhttp.RouteList, in reach) reach {
	var through, left reach // of a group: what passed one of its routes, and what is left for the others
	met := in.guarded
	before := w.taken
	for i, r := range routes {
		if in.guarded && !met {
			w.shield(r, in)
		}
		if r.Group == "" || i == 0 || routes[i-1].Group != r.Group {
			through, left = reach{}, in
		}
		taken := w.taken
		came, passedBy := w.route(r, left)
		came.skipped = in.skipped
		if r.Group != "" {
			w.taken = taken // blocks beside one another are meant to differ
		}
		through, left = join(through, came), passedBy
		in = join(through, left)
	}
	w.taken = before
	if in.ended && !met {
		return reach{} // a block with mnemogate that answers all is complete
	}
	return in
}

// route returns the requests that pass through a route, and those that its matchers
// skip.
func (w *walk) route(r caddyhttp.Route, in reach) (came, passedBy reach) {
	taken, passedBy := in, in
	if r.Group != "" {
		taken.skipped = in.skipped || slices.Contains(in.groups, r.Group)
		taken.groups = append(slices.Clip(in.groups), r.Group)
	}
	matchers := matchersOf(r)
	if matchers == nil {
		return w.handlers(r, taken), reach{}
	}
	if in.mixed() && reflect.DeepEqual(matchers, in.matched) {
		taken.open, passedBy.guarded = false, false
	}
	taken.sure = in.sure && runsScripts(r)
	taken.way = in.way.through(matchers)
	w.addresses = w.addresses || has(matchers, "remote_ip", "client_ip")
	came = w.handlers(r, taken)
	if files := triedBy(r, matchers); files != nil {
		came.way, came.bends = append(slices.Clip(in.way), step{lost: true, file: true}), in.bends
		if !strings.Contains(files[len(files)-1], "{") {
			passedBy.way = came.way // there are none: all others get the last file or, with =404, an error
		}
	}
	if came.guarded && !in.guarded {
		passedBy.sure, came.matched = true, nil
		if !came.open {
			came.matched = matchers
		}
	}
	return came, passedBy
}

func (w *walk) handlers(r caddyhttp.Route, in reach) reach {
	for _, h := range handlersOf(r) {
		in = w.handler(h, in)
	}
	if r.Terminal && !in.none() {
		return reach{}
	}
	return in
}

func (w *walk) handler(h any, in reach) reach {
	if in.none() && in.end == "" {
		return in
	}
	switch h := h.(type) {
	case *caddyhttp.Subroute:
		through := w.routes(h.Routes, in)
		if h.Errors != nil {
			w.errors(h.Errors.Routes, in.open)
		}
		return through
	case *caddyhttp.Invoke:
		return w.invoke(h.Name, in)
	case *reverseproxy.Handler:
		return w.proxy(h, in)
	case *caddyhttp.StaticResponse:
		return in.endedBy("respond or redir")
	case *caddyhttp.StaticError:
		return in.endedBy("error")
	case *intercept.Intercept:
		for _, response := range h.HandleResponse {
			w.routes(response.Routes, in)
		}
	case *rewrite.Rewrite:
		in.matched = nil // what matches may differ from here on
		in.bend(h)
	case *headers.Handler:
		w.identity("request_header", h.Request, in)
		if h.Request != nil && !byLine(in.matched) {
			in.matched = nil
		}
	case Gate:
		return w.guard(h, in)
	case Handler:
		w.accounts(h, in)
		return in.endedBy("mnemogate_accounts")
	case *caddyauth.Authentication:
		if in.gate != nil && !in.open && asksForPasswords(h) {
			w.add(basicAuth, in.gate)
		}
	case caddy.Module:
		switch name := h.CaddyModule().ID.Name(); {
		case name == "copy_response":
			return in.endedBy(name)
		case name == "file_server" && !passesThru(h):
			return in.endedBy("file_server")
		case changesNothing[name]:
		case name != "vars" && name != "map" || !byLine(in.matched):
			in.matched = nil
		}
	}
	return in
}

// guard handles mnemogate itself.
func (w *walk) guard(g Gate, in reach) reach {
	switch {
	case in.none():
		w.refuse(unreached, g, in.end)
	case in.skipped:
		w.refuse(skipped, g)
	case !in.open:
		w.refuse(twice, g)
	case in.guarded && !in.failed():
		w.add(perhapsTwice, g)
	}
	if prefix := in.way.stripped(); prefix != "" && strings.HasPrefix(g.Base()+"/", prefix+"/") {
		w.refuse(doubled, g, g.Base(), prefix)
	}
	for _, dial := range w.taken {
		w.add(unguarded, g, dial)
	}
	w.rules(g, in.way)
	if _, byHost := g.Asserts(); byHost && (w.site == "" || strings.Contains(w.site, "*")) {
		w.add(anyIssuer, g)
	}
	w.socket(g)
	if w.site != "" {
		if g.Asked() && !refusesOthers(w.server) {
			w.add(otherHosts, g, w.site)
		}
		if health := g.Patterns()["health"]; health != nil && len(w.server.TLSConnPolicies) == 0 && !refusesOthers(w.server) {
			w.add(otherProbes, g, w.site)
		}
		if option, company, rpID := g.WithoutPasskeys(w.app, strings.Split(w.site, ", ")); option != "" {
			w.add(unusablePasskeys, g, option, company, rpID)
		}
	}
	if !in.failed() {
		w.login(g, in.way)
	}
	return reach{guarded: true, gate: g, way: in.way, since: len(in.way), groups: in.groups}
}

// login finds out which companies have auth routes that reach the gate.
func (w *walk) login(g Gate, y way) {
	var served []string
	reached := false
	for _, company := range w.companies {
		if g.Serves(company) {
			served = append(served, company)
			if y.reaches(g.Base() + "/" + company + "/v2/auth/login") {
				w.reached[company], reached = true, true
			}
		}
	}
	switch {
	case reached:
	case y.tries():
		w.unreached = append(w.unreached, unreachedGate{served, w.weakness(replaced, g)})
	default:
		w.unreached = append(w.unreached, unreachedGate{served, w.weakness(unreachable, g, y.last())})
	}
}

// rules looks for paths of options that no request on the way to mnemogate has.
func (w *walk) rules(g Gate, y way) {
	all, prefix := g.Patterns(), y.stripped()
	for _, option := range slices.Sorted(maps.Keys(all)) {
		for _, path := range all[option] {
			switch r := (rule{g.Line(), option, path}); {
			case prefix != "" && strings.HasPrefix(path+"/", prefix+"/"):
				w.missed = append(w.missed, missed{r, w.weakness(prefixed, g, option, path, prefix)})
			case !y.brings(path):
				w.missed = append(w.missed, missed{r, w.weakness(outside, g, option, path, y.last())})
			default:
				w.met[r] = true
			}
		}
	}
}

// shield finds a directive after mnemogate that answers some requests.
func (w *walk) shield(r caddyhttp.Route, in reach) {
	if matchersOf(r) == nil {
		return
	}
	switch h := onlyHandler(r).(type) {
	case *caddyhttp.StaticError:
		w.add(shields, in.gate, "error")
	case *caddyhttp.StaticResponse:
		if h.Abort {
			w.add(shields, in.gate, "abort")
		} else if h.Headers.Get("Location") == "" { // Caddy itself adds redirects to https
			w.add(shields, in.gate, "respond")
		}
	}
}

// identity finds directives that change the headers that mnemogate sets.
func (w *walk) identity(directive string, ops *headers.HeaderOps, in reach) {
	if in.gate == nil || ops == nil {
		return
	}
	names := slices.Concat(ops.Delete, slices.Collect(maps.Keys(ops.Set)), slices.Collect(maps.Keys(ops.Add)), slices.Collect(maps.Keys(ops.Replace)))
	for _, name := range slices.Sorted(slices.Values(names)) {
		for _, header := range in.gate.IdentityHeaders() {
			if same, err := path.Match(asVariable(name), asVariable(header)); same && err == nil {
				w.refuse(changed, in.gate, directive+" "+name, header)
			}
		}
	}
}

// asVariable returns a header's name as CGI and its descendants read it. Stars stay.
func asVariable(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '*' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// accounts handles mnemogate_accounts.
func (w *walk) accounts(h Handler, in reach) {
	if in.none() {
		return
	}
	w.socket(h)
	switch {
	case len(w.server.TLSConnPolicies) == 0 && listensBeyond(w.server, guest.Loopback):
		w.add(plainAccounts, h)
	case !w.addresses && !asksForCertificates(w.server) && listensBeyond(w.server, private):
		w.add(openAccounts, h)
	}
}

// socket finds a site on a Unix socket whose clients have no address of their own.
func (w *walk) socket(h Handler) {
	if !w.server.TrustedProxiesUnix && slices.ContainsFunc(w.server.Listen, func(listen string) bool {
		address, err := caddy.ParseNetworkAddress(listen)
		return err == nil && address.IsUnixNetwork()
	}) {
		w.add(oneAddress, h)
	}
}

func (w *walk) invoke(name string, in reach) reach {
	named := w.server.NamedRoutes[name]
	if named == nil || slices.Contains(w.invoked, name) {
		return in
	}
	w.invoked = append(w.invoked, name)
	in = w.routes(caddyhttp.RouteList{*named}, in)
	w.invoked = w.invoked[:len(w.invoked)-1]
	return in
}

// errors follows requests that failed, some of them before they passed mnemogate if open
// is true.
func (w *walk) errors(routes caddyhttp.RouteList, open bool) {
	w.routes(routes, reach{open: open, guarded: true})
}

// proxy records the requests that reach an application. A proxy that passes requests
// on and sends GET instead only asks for permission, as forward_auth does.
func (w *walk) proxy(h *reverseproxy.Handler, in reach) reach {
	if in.none() {
		return in
	}
	through := in.endedBy("reverse_proxy")
	for _, response := range h.HandleResponse {
		if response.Routes != nil {
			through = join(through, w.routes(response.Routes, in))
		}
	}
	if !through.none() && h.Rewrite != nil && h.Rewrite.Method == http.MethodGet {
		return through
	}
	if in.mixed() && in.sure {
		w.refuse(unmatched, in.gate)
	}
	if h.Headers != nil {
		w.identity("header_up", h.Headers.Request, in)
	}
	for _, dial := range addressesOf(h) {
		if in.gate != nil && isElsewhere(dial) && !authenticates(h, in.gate) {
			w.add(unproven, in.gate, dial)
		}
		a := w.application(dial, in.failed())
		w.moved(in, h.Rewrite, a)
		a.reach = join(a.reach, in)
		a.scripts = a.scripts || speaksFastCGI(h)
		if !in.guarded {
			w.taken = append(w.taken, dial)
		}
	}
	return through
}

// moved finds paths of options by which requests reach an application that came to the
// gate by others, because a rewrite follows. own is that of the proxy. What it finds of public
// depends on the other ways to the application (see opened).
func (w *walk) moved(in reach, own *rewrite.Rewrite, a *application) {
	if in.gate == nil {
		return
	}
	if own != nil {
		in.bend(own)
	}
	a.visits = append(a.visits, in)
	all := in.gate.Patterns()
	for _, option := range []string{"fresh", "role"} {
		for _, path := range all[option] {
			if path != "/*" && slices.ContainsFunc(in.bends, func(y way) bool { // /* covers what is rewritten, too
				prefix := y.stripped()
				return y[len(y)-1].isUnknown() || !strings.HasPrefix(path, prefix) && !slices.Contains(all[option], prefix+path)
			}) {
				w.add(rewritten, in.gate, option, path, a.written)
			}
		}
	}
}

// opened finds public paths by which requests reach an application as other paths, which
// also come to it from a gate that protects them.
func (f *finder) opened(a *application, in reach) {
	public := in.gate.Patterns()["public"]
	for _, path := range public {
		if slices.ContainsFunc(in.bends, func(y way) bool {
			last, prefix := len(y)-1, y.stripped()
			bare, below := strings.CutPrefix(path, prefix)
			return y[last].isUnknown() && y[:last].brings(path) ||
				y[last].strip != "" && below && !slices.Contains(public, bare) && slices.ContainsFunc(f.applications, func(b *application) bool {
					return b.address == a.address && slices.ContainsFunc(b.visits, func(v reach) bool { return !v.way[v.since:].confines(prefix) })
				})
		}) {
			a.add(opens, in.gate, path, a.written)
		}
	}
}

func (w *walk) application(dial string, failed bool) *application {
	address := sameAddress(dial)
	for _, a := range w.applications {
		if a.walk == w && a.address == address && a.failed == failed {
			return a
		}
	}
	a := &application{walk: w, address: address, written: dial, failed: failed}
	w.applications = append(w.applications, a)
	return a
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
