package bypass

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// A Trap is a mistake in routes: what happens, and what to do about it. Example is a Caddyfile
// with it, in one line, and Corrected one without.
type Trap struct {
	Refused            bool
	at                 func(facts, *visit) []way        // the ways to or from our handlers where it may be
	find               func(facts, *visit, way) [][]any // the values of its texts, for each time that it is there
	Message, Advice    string
	Example, Corrected string
}

const refused, warned = true, false

// safeCache keeps users and companies apart, whose headers it needs. No part of its key has a
// space.
const safeCache = "cache { key { template \"{method} {scheme} {hostport} {uri} {http.request.header.%s} {http.request.header.%s}\" } }"

// Traps are in the order in which they are looked for at each visit.
var Traps = []Trap{
	{refused, unvisited, unreached, "it comes after %s, which passes no request on to it",
		"write it before that, and both into a route block, since outside of one Caddy sorts directives",
		"http:// { route { reverse_proxy localhost:9000; mnemogate } }", "http:// { route { mnemogate; reverse_proxy localhost:9000 } }"},
	{refused, unvisited, skippedGate, "Caddy skips it, because the requests have taken another route of its group: Caddy gives groups of named routes and of sites the same names",
		"write the named route as a snippet instead: (name) { ... }, and import name in place of invoke name",
		"&(gate) { handle /x { respond ok }; handle { mnemogate } }; http:// { handle /acme/* { invoke gate }; handle { respond 404 } }",
		"(gate) { handle /x { respond ok }; handle { mnemogate } }; http:// { handle /x { respond 404 }; handle { import gate } }"},
	{refused, gates, twice, "the same requests pass it twice, and the second one finds no token",
		"remove one of the two",
		"http:// { mnemogate; handle /api/* { mnemogate }; reverse_proxy localhost:9000 }", "http:// { mnemogate; reverse_proxy localhost:9000 }"},
	{refused, gates, doubled, "base_path %s is never found: handle_path or uri strip_prefix removes %s first",
		"leave base_path out or, if the application needs the prefix, write handle instead",
		"http:// { handle_path /api/* { mnemogate { base_path /api }; reverse_proxy localhost:9000 } }",
		"http:// { handle /api/* { mnemogate { base_path /api }; reverse_proxy localhost:9000 } }"},
	{refused, gates, cachedFirst, "cache comes before it, and shows anybody what users have got",
		"write cache after it: route { mnemogate; " + safeCache + "; ... }; or write cache into a handle block of its own, for files that everybody may see",
		"http:// { route { cache; mnemogate; reverse_proxy localhost:9000 } }",
		"http:// { route { mnemogate; " + fmt.Sprintf(safeCache, "X-Profile-Mnemocode", "X-Company-Code") + "; reverse_proxy localhost:9000 } }"},
	{refused, behind, unmatched, "requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent",
		"write mnemogate without a matcher or, for a part of the site, into one block with reverse_proxy: handle /api/* { ... }",
		"http:// { mnemogate /api/*; reverse_proxy localhost:9000 }", "http:// { handle /api/* { mnemogate { base_path /api }; reverse_proxy localhost:9000 } }"},
	{refused, behind, changes, "%s comes after it and changes %s, which names the user to the application",
		"remove it: mnemogate removes what clients send and sets the header itself",
		"http:// { mnemogate; request_header -X-Profile-Mnemocode; reverse_proxy localhost:9000 }", "http:// { mnemogate; reverse_proxy localhost:9000 }"},

	{warned, companies, unserved, "no request for its auth routes reaches mnemogate: nobody can log in",
		"let /{company}/* reach a mnemogate, and name the company there if it has the option company, unless another Caddy serves it",
		"http:// { mnemogate { company acme } }", "http:// { mnemogate }"},
	{warned, gates, unreachable, "nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for %s do",
		"if the login belongs below that path, write base_path; otherwise let /{company}/* reach it, too, and write a rewrite into a block after it: handle { rewrite ...; reverse_proxy ... }",
		"http:// { handle /api/* { mnemogate; reverse_proxy localhost:9000 } }", "http:// { handle /api/* { mnemogate { base_path /api }; reverse_proxy localhost:9000 } }"},
	{warned, gates, replaced, "nobody can log in: try_files comes before it, and only paths of files reach it",
		"write try_files into a block after it: handle { try_files ...; file_server }",
		"http:// { try_files {path} /index.html; mnemogate; file_server }", "http:// { mnemogate; handle { try_files {path} /index.html; file_server } }"},
	{warned, gates, perhapsTwice, "some requests may pass it twice, and the second one finds no token",
		"put each into a handle block of its own, or keep only one",
		"http:// { mnemogate /api/*; mnemogate; reverse_proxy localhost:9000 }", "http:// { mnemogate; reverse_proxy localhost:9000 }"},
	{warned, gates, outside, "%s %s never matches: only requests for %s reach it",
		"write the path as it reaches mnemogate: handle and route leave the prefix in it",
		"http:// { handle /api/* { mnemogate { base_path /api; public /health } } }", "http:// { handle /api/* { mnemogate { base_path /api; public /api/health } } }"},
	{warned, gates, prefixed, "%s %s never matches: handle_path or uri strip_prefix removes %s first",
		"write the path as it reaches mnemogate, without that prefix",
		"http:// { handle_path /api/* { mnemogate { public /api/health } } }", "http:// { handle_path /api/* { mnemogate { public /health } } }"},
	{warned, gates, anyIssuer, "assertion has no issuer, and the site takes requests for any host, so clients choose the issuer of their own assertions",
		"add issuer <url>, or give the site a name",
		"http:// { mnemogate { assertion app } }", "http:// { mnemogate { assertion app { issuer https://id.example.com } } }"},
	{warned, ours, oneAddress, "its site is on a Unix socket, and trusted_proxies_unix is not set: all clients count as one, so a few wrong passwords or keys of anybody lock out all",
		"write trusted_proxies_unix into the global option servers if only your proxy can open the socket; ignore this if listener_wrappers has proxy_protocol, by which your proxy names them",
		"http:// { bind unix//run/caddy.sock; mnemogate }", "http:// { bind 127.0.0.1; mnemogate }"},
	{warned, gates, otherHosts, "other proxies ask it by check, but Caddy answers 200 for other hosts than %s, which most proxies take as a yes",
		"give the site no name, as in http://:8080, with bind; or add a site for all other hosts, http://:8080, with the same bind, and respond 404 in it",
		"http://example.com { mnemogate { check /check } }", "http://example.com { mnemogate { check /check } }; http:// { respond 404 }"},
	{warned, gates, otherProbes, "health is for requests to %s: Caddy answers 200 for other hosts, such as those of a load balancer that asks by address, even if the node is down",
		"let it ask with that name as Host; or add a site for all other hosts, http://:8080, with the same bind, and respond 404 in it",
		"http://example.com { mnemogate { health /health } }", "http://example.com { mnemogate { health /health } }; http:// { respond 404 }"},
	{warned, gates, uncovered, "header comes before it but waits for the answer, and replaces %s of users' answers and refusals, which caches may then show to others",
		"write it after mnemogate: handle { header ...; reverse_proxy ... }; or, if it waits only because it also removes a header, write that into a header of its own",
		"http:// { header { Cache-Control max-age=60; -Server }; mnemogate; reverse_proxy localhost:9000 }",
		"http:// { mnemogate; handle { header { Cache-Control max-age=60; -Server }; reverse_proxy localhost:9000 } }"},
	{warned, gates, unusablePasskeys, "%s: passkeys of company %s do not work on this site: its rp_id is %s, and its origins do not name the site",
		"correct rp_id or origins of passkeys, or give the site a name that they have",
		"example.org { mnemogate { self_service } }", "example.com { mnemogate { self_service } }"},
	{warned, accounts, plainAccounts, "a site of it is plain http: anyone on the network path can read the keys and the accounts",
		"give the site a name, so that it is https, or bind it to 127.0.0.1, or to a Unix socket with trusted_proxies_unix",
		"http:// { mnemogate_accounts { key shop {env.MNEMOGATE_TEST_KEY} } }", "http:// { bind 127.0.0.1; mnemogate_accounts { key shop {env.MNEMOGATE_TEST_KEY} } }"},
	{warned, accounts, openAccounts, "everyone who can reach its site can try keys",
		"bind the site to a private address, or let only your backends in: @others not remote_ip 10.0.0.0/24, then abort @others",
		"example.com { mnemogate_accounts { key shop {env.MNEMOGATE_TEST_KEY} } }",
		"example.com { @others not remote_ip 10.0.0.0/24; abort @others; mnemogate_accounts { key shop {env.MNEMOGATE_TEST_KEY} } }"},
	{warned, behind, shields, "%s with a matcher comes after it, so it does not protect the auth routes",
		"write both into a route block, in this order: route { %[1]s ...; mnemogate; ... }",
		"http:// { @bad remote_ip 192.0.2.1; mnemogate; abort @bad }", "http:// { @bad remote_ip 192.0.2.1; route { abort @bad; mnemogate } }"},
	{warned, behind, cachedForAll, "cache comes after it, and shows a user what others have got, unless the application sends Vary: %s, %s",
		"name the user and the company in its key, by a template, since headers are joined by - and may be those of another user: " + safeCache,
		"http:// { route { mnemogate; cache; reverse_proxy localhost:9000 } }",
		"http:// { route { mnemogate; " + fmt.Sprintf(safeCache, "X-Profile-Mnemocode", "X-Company-Code") + "; reverse_proxy localhost:9000 } }"},
	{warned, behind, basicAuth, "basic_auth comes after it, and no request passes both: each needs the Authorization header",
		"remove basic_auth, or write it into a handle block without mnemogate",
		"http:// { mnemogate; basic_auth { bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG } }", "http:// { mnemogate }"},
	{warned, upstreams, unproven, "%s is on another machine, and can't tell requests that passed mnemogate from others: they bring no assertion, secret header or client certificate",
		"add assertion <audience> and verify it there, or header_up X-Gateway-Key {env.GATEWAY_KEY} to reverse_proxy: see Trusting the headers in docs/backends.md",
		"http:// { mnemogate; reverse_proxy app:9000 }", "http:// { mnemogate; reverse_proxy app:9000 { header_up X-Gateway-Key {env.MNEMOGATE_TEST_KEY} } }"},
	{warned, upstreams, rewritten, "%s %s does not cover all requests that reach %s by this path: a later handle_path, uri or rewrite changes other paths to it",
		"write the path as clients send it, with the prefix that is removed, or write mnemogate after the rewrite, into the same block",
		"http:// { mnemogate { role admin /admin/* }; handle_path /v1/* { reverse_proxy localhost:9000 } }",
		"http:// { mnemogate { role admin /v1/admin/* }; handle_path /v1/* { reverse_proxy localhost:9000 } }"},
	{warned, exposed, unguarded, "requests may also reach %s without it, with whatever identity headers the client sent",
		"put it before every reverse_proxy to that address, in the same block; for paths that need no login, use its option public, which still removes identity headers",
		"http:// { handle /x { reverse_proxy localhost:9000 }; handle { mnemogate; reverse_proxy localhost:9000 } }", "http:// { mnemogate { public /x }; reverse_proxy localhost:9000 }"},
	{warned, upstreams, opens, "public %s also opens other paths of %s: a later handle_path, uri or rewrite changes the paths that it covers to them",
		"write mnemogate after the rewrite, into the same block, and the path as the application gets it; or give the public paths an application of their own",
		"http:// { mnemogate { public /docs/* }; handle_path /docs/* { reverse_proxy localhost:9000 }; handle { reverse_proxy localhost:9000 } }",
		"http:// { mnemogate { public /docs/* }; handle_path /docs/* { reverse_proxy localhost:9001 }; handle { reverse_proxy localhost:9000 } }"},
	{warned, bypassed, failing, "requests that fail before they reach it, such as those with an invalid Host, reach %s from handle_errors of %s, with whatever identity headers the client sent",
		"let handle_errors answer with respond, file_server or the error pages of another address, or write mnemogate into it, too, with the paths of the error pages in its option public",
		"http:// { mnemogate; reverse_proxy localhost:9000; handle_errors { reverse_proxy localhost:9000 } }",
		"http:// { mnemogate; reverse_proxy localhost:9000; handle_errors { mnemogate; reverse_proxy localhost:9000 } }"},
	{warned, bypassed, elsewhere, "requests also reach %s from %s, where it is missing, with whatever identity headers the client sent",
		"put it before that reverse_proxy, too; for paths that need no login, use its option public, which still removes identity headers",
		"a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { reverse_proxy localhost:9000 }",
		"a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { mnemogate; reverse_proxy localhost:9000 }"},
}

// facts are what the traps ask of all sites. There may be thousands, so it is found once.
type facts struct {
	upstreams map[string][]*visit // by address
	gates     map[string][]*visit // by line
	open      map[string]bool     // the companies that somebody can log in to
	useless   []*visit            // the gates where nobody can log in, though some requests have not failed
}

func factsOf(visits []*visit) facts {
	f := facts{upstreams: map[string][]*visit{}, gates: map[string][]*visit{}, open: map[string]bool{}}
	for _, v := range visits {
		if v.first != nil {
			f.upstreams[v.address] = append(f.upstreams[v.address], v)
		}
		if v.Gate == nil || v.wider {
			continue
		}
		f.gates[v.Line()] = append(f.gates[v.Line()], v)
		useless := !v.failed
		for company := range v.app.Companies {
			if v.logsInto(company) {
				f.open[company], useless = true, false
			}
		}
		if useless {
			f.useless = append(f.useless, v)
		}
	}
	return f
}

// before returns the visits before one, in its list of routes and those around it.
func (v *visit) before() []*visit {
	earlier := slices.Clone(v.visits[:slices.Index(v.visits, v)])
	return slices.DeleteFunc(earlier, func(u *visit) bool { return !v.block.isIn(u.block) })
}

// application returns how requests come to an upstream from the same site, either by the routes
// for errors or by the others.
func (v *visit) application() (guarded []way, open, scripts bool) {
	for _, u := range v.visits {
		if v.first != nil && v.first == u.first {
			guarded, open = append(guarded, u.guarded...), open || u.open != nil
			scripts = scripts || speaksFastCGI(u.handler.(*reverseproxy.Handler))
		}
	}
	return guarded, open, scripts
}

func only(v *visit, is bool) []way {
	if !is {
		return nil
	}
	return []way{{gate: v}}
}

func companies(_ facts, v *visit) []way { return only(v, v.company != "") }
func unvisited(_ facts, v *visit) []way { return only(v, v.end != "") }
func ours(_ facts, v *visit) []way      { _, is := v.handler.(Handler); return only(v, is && v.end == "") }
func accounts(f facts, v *visit) []way  { return only(v, v.Gate == nil && ours(f, v) != nil) }
func gates(_ facts, v *visit) []way     { return only(v, v.Gate != nil) }
func behind(_ facts, v *visit) []way    { return v.guarded }

func upstreams(_ facts, v *visit) []way {
	if v.first == nil {
		return nil
	}
	return v.guarded
}

// exposed is gates but, at an upstream that open requests reach, too, returns one way by which
// guarded requests come there.
func exposed(f facts, v *visit) []way {
	if guarded, open, _ := v.application(); open && guarded != nil {
		return guarded[:1]
	}
	return gates(f, v)
}

// bypassed returns a way by which guarded requests come to an upstream, if only others come to
// it here. It is one at the same site, if there is one. Sites with FastCGI at the same address
// have different applications.
func bypassed(f facts, v *visit) (found []way) {
	guarded, open, scripts := v.application()
	if guarded != nil || !open {
		return nil
	}
	for _, u := range f.upstreams[v.address] {
		switch {
		case u.guarded == nil:
		case u.site == v.site:
			return u.guarded[:1]
		case found == nil && !scripts:
			found = u.guarded[:1]
		}
	}
	return found
}

func when(found bool, values ...any) [][]any {
	if !found {
		return nil
	}
	return [][]any{values}
}

func unreached(_ facts, v *visit, _ way) [][]any    { return when(v.end != skips, v.end) }
func skippedGate(_ facts, v *visit, _ way) [][]any  { return when(v.end == skips) }
func twice(_ facts, v *visit, _ way) [][]any        { return when(v.open == nil) }
func perhapsTwice(_ facts, v *visit, _ way) [][]any { return when(v.guarded != nil) }

func doubled(_ facts, v *visit, _ way) [][]any {
	return when(v.on.hasLost(v.Base()), v.Base(), v.on.stripped())
}

// unmatched finds open requests that part from the guarded ones, and then come to no matcher
// that could leave them out.
func unmatched(_ facts, v *visit, y way) [][]any {
	_, ok := v.handler.(*reverseproxy.Handler)
	return when(ok && !y.gate.failed && slices.ContainsFunc(v.open, func(o way) bool {
		return !slices.ContainsFunc(o.sinceParting(y.steps), func(s *step) bool { return s.matchers != nil && !s.missed })
	}))
}

func changes(_ facts, v *visit, y way) (found [][]any) {
	changed := changedHeaders(v.handler)
	for _, change := range slices.Sorted(maps.Keys(changed)) {
		for _, header := range y.gate.IdentityHeaders() {
			same, err := path.Match(asVariable(changed[change]), asVariable(header))
			found = append(found, when(same && err == nil, change, header)...)
		}
	}
	return found
}

// changedHeaders returns the names of the headers that a handler changes, by the lines that do so.
func changedHeaders(handler any) map[string]string {
	changed := map[string]string{}
	add := func(directive string, ops *headers.HeaderOps) {
		if ops == nil {
			return
		}
		names := slices.Concat(ops.Delete, slices.Collect(maps.Keys(ops.Set)), slices.Collect(maps.Keys(ops.Add)), slices.Collect(maps.Keys(ops.Replace)))
		for _, name := range names {
			changed[directive+" "+name] = name
		}
	}
	switch h := handler.(type) {
	case *headers.Handler:
		add("request_header", h.Request)
	case *reverseproxy.Handler:
		if h.Headers != nil {
			add("header_up", h.Headers.Request)
		}
		for name := range environmentOf(h) {
			if header, ok := strings.CutPrefix(name, "HTTP_"); ok {
				changed["php_fastcgi env "+name] = header
			}
		}
	}
	return changed
}

// changesHost reports whether a handler changes the host of requests.
func changesHost(h *headers.Handler) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(changedHeaders(h))), func(name string) bool {
		is, err := path.Match(strings.ToLower(name), "host")
		return is && err == nil
	})
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

// logsInto reports whether requests of the company's login come to a gate.
func (v *visit) logsInto(company string) bool {
	return !v.failed && v.Serves(company) && v.on.reaches(v.Base()+"/"+company+"/v2/auth/login")
}

// closes reports whether nobody can log in to a company of a useless gate.
func (f facts) closes(v *visit) bool {
	return slices.Contains(f.useless, v) && slices.ContainsFunc(slices.Collect(maps.Keys(v.app.Companies)), func(c string) bool { return v.Serves(c) && !f.open[c] })
}

func unserved(f facts, v *visit, _ way) [][]any {
	return when(!f.open[v.company] && len(f.open)+len(f.useless) > 0 && !slices.ContainsFunc(f.useless, func(u *visit) bool { return u.Serves(v.company) }))
}

func unreachable(f facts, v *visit, _ way) [][]any {
	return when(f.closes(v) && !v.on.tries(), v.on.last())
}

func replaced(f facts, v *visit, _ way) [][]any { return when(f.closes(v) && v.on.tries()) }
func outside(f facts, v *visit, _ way) [][]any  { return f.unmet(v, false, v.on.last()) }
func prefixed(f facts, v *visit, _ way) [][]any { return f.unmet(v, true, v.on.stripped()) }

// unmet finds paths of options that no request on the way to the gate has, nor where else its
// lines are imported.
func (f facts) unmet(v *visit, lost bool, why string) (found [][]any) {
	all := v.Patterns()
	for _, option := range slices.Sorted(maps.Keys(all)) {
		for _, path := range all[option] {
			met := slices.ContainsFunc(f.gates[v.Line()], func(u *visit) bool { return u.meets(option, path) })
			found = append(found, when(!met && v.on.hasLost(path) == lost, option, path, why)...)
		}
	}
	return found
}

func (v *visit) meets(option, path string) bool {
	return slices.Contains(v.Patterns()[option], path) && !v.on.hasLost(path) && v.on.brings(path)
}

func anyIssuer(_ facts, v *visit, _ way) [][]any {
	_, byHost := v.Asserts()
	return when(byHost && (v.hosts == "" || strings.Contains(v.hosts, "*")) && !v.on.nameHosts())
}

func oneAddress(_ facts, v *visit, _ way) [][]any {
	return when(!v.server.TrustedProxiesUnix && slices.ContainsFunc(listens(v.server), caddy.NetworkAddress.IsUnixNetwork))
}

func otherHosts(_ facts, v *visit, _ way) [][]any {
	return when(v.hosts != "" && v.Patterns()["check"] != nil && !refusesOthers(v.server), v.hosts)
}

func otherProbes(_ facts, v *visit, _ way) [][]any {
	return when(v.hosts != "" && v.Patterns()["health"] != nil && len(v.server.TLSConnPolicies) == 0 && !refusesOthers(v.server), v.hosts)
}

func unusablePasskeys(_ facts, v *visit, _ way) [][]any {
	option, company, rpID := v.WithoutPasskeys(v.app, strings.Split(v.hosts, ", "))
	return when(v.hosts != "" && option != "", option, company, rpID)
}

func plainAccounts(_ facts, v *visit, _ way) [][]any {
	return when(len(v.server.TLSConnPolicies) == 0 && listensBeyond(v.server, guest.Loopback))
}

func openAccounts(f facts, v *visit, y way) [][]any {
	return when(plainAccounts(f, v, y) == nil && !v.addresses && !asksForCertificates(v.server) && listensBeyond(v.server, private))
}

// shields finds a route that refuses some requests, perhaps of the auth routes, in the gate's list
// of routes or one around it.
func shields(_ facts, v *visit, y way) [][]any {
	r, ok := v.handler.(caddyhttp.Route)
	if !ok || matchersOf(r) == nil || !y.gate.block.isIn(v.block) || y.gate.failed || !y.gate.answers(pathsOf(matchersOf(r))) {
		return nil
	}
	switch h := onlyHandler(r).(type) {
	case *caddyhttp.StaticError:
		return when(true, "error")
	case *caddyhttp.StaticResponse:
		if h.Abort {
			return when(true, "abort")
		}
		status, err := strconv.Atoi(cmp.Or(string(h.StatusCode), "200"))
		return when(err != nil || status >= 400, "respond")
	}
	return nil
}

// answers reports whether some of the paths may be those of a gate's auth routes.
func (v *visit) answers(paths []string) bool {
	return paths == nil || slices.ContainsFunc(slices.Collect(maps.Keys(v.app.Companies)), func(company string) bool {
		return v.Serves(company) && slices.ContainsFunc(paths, func(path string) bool { return meet(path, v.Base()+"/"+company+"/v2/auth/*") })
	})
}

func basicAuth(_ facts, v *visit, _ way) [][]any {
	h, ok := v.handler.(*caddyauth.Authentication)
	return when(ok && asksForPasswords(h) && v.open == nil)
}

// cachedFirst finds a cache before a gate.
func cachedFirst(_ facts, v *visit, _ way) [][]any {
	names := v.IdentityHeaders()
	return when(!v.failed && slices.ContainsFunc(v.before(), func(u *visit) bool { return isCache(u.handler) && u.open != nil }), names[0], names[1])
}

// uncovered finds a header before a gate that replaces what it tells caches, for all of its
// requests. Once header has a removal, defer or >, Caddy applies it when the answer begins.
func uncovered(_ facts, v *visit, _ way) (found [][]any) {
	for _, u := range v.before() {
		h, ok := u.handler.(*headers.Handler)
		if !ok || u.open == nil || h.Response == nil || h.Response.HeaderOps == nil || !h.Response.Deferred && h.Response.Require == nil || len(u.open[0].sinceParting(v.on)) > 0 {
			continue
		}
		for _, name := range []string{"Cache-Control", "Vary"} {
			gone := slices.ContainsFunc(slices.AppendSeq(slices.Clone(h.Response.Delete), maps.Keys(h.Response.Replace)), func(field string) bool {
				is, err := path.Match(strings.ToLower(field), strings.ToLower(name))
				return is && err == nil
			})
			value := strings.Join(h.Response.Set[name], ",")
			instead := value != "" && !stillPrivate.MatchString(value) && !isDefault(h.Response.Require, name)
			found = append(found, when(gone || instead, name)...)
		}
	}
	return found
}

// isDefault reports whether a header with this condition is set only where there is none.
func isDefault(condition *caddyhttp.ResponseMatcher, name string) bool {
	if condition == nil {
		return false
	}
	values, named := condition.Headers[name]
	return named && values == nil
}

// stillPrivate matches values of Cache-Control and Vary that keep answers apart, too.
var stillPrivate = regexp.MustCompile(`(?i)private|no-store|authorization`)

// cachedForAll finds a cache whose key has no template with the headers of the user and the
// company. Users of two companies may have the same mnemocode. Without a template, the cache
// joins path and headers by a hyphen, which all of them may have: /x of a-b is then /x-a of b.
func cachedForAll(_ facts, v *visit, y way) [][]any {
	if !isCache(v.handler) {
		return nil
	}
	raw, _ := json.Marshal(v.handler) // if that fails, nobody knows what its key is
	names := y.gate.IdentityHeaders()[:2]
	missing := slices.ContainsFunc(names, func(name string) bool {
		return !strings.Contains(strings.ToLower(string(raw)), "{http.request.header."+strings.ToLower(name)+"}")
	})
	return when(missing, names[0], names[1])
}

// isCache reports whether a handler is that of github.com/caddyserver/cache-handler, which keeps
// answers by their URLs.
func isCache(handler any) bool {
	m, ok := handler.(caddy.Module)
	return ok && m.CaddyModule().ID.Name() == "cache"
}

func unproven(_ facts, v *visit, y way) [][]any {
	return when(isElsewhere(v.upstream) && !authenticates(v.handler.(*reverseproxy.Handler), y.gate), v.upstream)
}

func rewritten(_ facts, v *visit, y way) (found [][]any) {
	all := y.gate.Patterns()
	for _, option := range []string{"fresh", "mfa", "role"} {
		for _, path := range all[option] {
			others := slices.ContainsFunc(y.rewrites(), func(s steps) bool {
				prefix := s.stripped()
				return s.isUnknown() || !strings.HasPrefix(path, prefix) && !slices.Contains(all[option], prefix+path) ||
					s.makes(path) && !y.isWithin(all[option], s)
			})
			found = append(found, when(others && path != "/*" && !v.hasOwn(path, y), option, path, v.first.upstream)...) // /* covers them, too
		}
	}
	return found
}

// hasOwn reports whether a path of an option is for all that another upstream than this one gets
// from the gate.
func (v *visit) hasOwn(path string, y way) bool {
	return slices.ContainsFunc(v.visits, func(u *visit) bool {
		return u.first != nil && u.address != v.address && slices.ContainsFunc(u.guarded, func(z way) bool {
			return z.gate == y.gate && z.isWithin([]string{path}, z.steps[z.since:])
		})
	})
}

// unguarded finds upstreams with guarded and open requests and, before a gate, those that take
// open requests in a block around it.
func unguarded(_ facts, v *visit, _ way) (found [][]any) {
	if v.Gate == nil {
		return when(true, v.first.upstream)
	}
	for _, u := range v.before() {
		found = append(found, when(u.first != nil && u.guarded == nil && !u.failed && !u.asks && !u.wider, u.upstream)...)
	}
	return found
}

// opens finds public paths by which requests come to an upstream as other paths, which also
// come to it from a gate that protects them.
func opens(f facts, v *visit, y way) (found [][]any) {
	public := y.gate.Patterns()["public"]
	for _, path := range public {
		opened := slices.ContainsFunc(y.rewrites(), func(s steps) bool {
			last, prefix := len(s)-1, s.stripped()
			bare, below := strings.CutPrefix(path, prefix)
			return s.isUnknown() && s[:last].brings(path) || s[last].strip != "" && below && !slices.Contains(public, bare) && f.protects(v, prefix)
		})
		found = append(found, when(opened, path, v.first.upstream)...)
	}
	return found
}

// protects reports whether guarded requests also come to an upstream without this prefix.
func (f facts) protects(v *visit, prefix string) bool {
	return slices.ContainsFunc(f.upstreams[v.address], func(u *visit) bool {
		return slices.ContainsFunc(u.guarded, func(y way) bool { return !y.steps[y.since:].confines(prefix) })
	})
}

func failing(_ facts, v *visit, _ way) [][]any   { return when(v.failed, v.first.upstream, v.from()) }
func elsewhere(_ facts, v *visit, _ way) [][]any { return when(!v.failed, v.first.upstream, v.from()) }

func (v *visit) from() string { return cmp.Or(v.hosts, strings.Join(v.server.Listen, ", ")) }
