package bypass

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// A trap is a mistake in routes: what happens, and what to do about it.
type trap struct{ message, advice string }

// Traps that mnemogate refuses.
var (
	unmatched = trap{"requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent",
		"write mnemogate without a matcher or, for a part of the site, into one block with reverse_proxy: handle /api/* { ... }"}
	unreached = trap{"it comes after %s, which passes no request on to it",
		"write it before that"}
	skipped = trap{"Caddy skips it, because the requests have taken another route of its group: Caddy gives groups of named routes and of sites the same names",
		"write the named route as a snippet instead: (name) { ... }, and import name in place of invoke name"}
	twice = trap{"the same requests pass it twice, and the second one finds no token",
		"remove one of the two"}
	doubled = trap{"base_path %s is never found: handle_path or uri strip_prefix removes %s first",
		"leave base_path out or, if the application needs the prefix, write handle instead"}
	changed = trap{"%s comes after it and changes %s, which names the user to the application",
		"remove it: mnemogate removes what clients send and sets the header itself"}
)

// Traps that mnemogate warns about.
var (
	unguarded = trap{"requests may also reach %s without it, with whatever identity headers the client sent",
		"put it before every reverse_proxy to that address, in the same block; for paths that need no login, use its option public, which still removes identity headers"}
	elsewhere = trap{"requests also reach %s from %s, where it is missing, with whatever identity headers the client sent",
		"put it before that reverse_proxy, too; for paths that need no login, use its option public, which still removes identity headers"}
	failing = trap{"requests that fail before they reach it, such as those with an invalid Host, reach %s from handle_errors of %s, with whatever identity headers the client sent",
		"let handle_errors answer with respond, file_server or the error pages of another address, or write mnemogate into it, too, with the paths of the error pages in its option public"}
	perhapsTwice = trap{"some requests may pass it twice, and the second one finds no token",
		"put each into a handle block of its own, or keep only one"}
	unreachable = trap{"nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for %s do",
		"if the login belongs below that path, write base_path; otherwise let /{company}/* reach it, too, and write a rewrite into a block after it: handle { rewrite ...; reverse_proxy ... }"}
	replaced = trap{"nobody can log in: try_files comes before it, and only paths of files reach it",
		"write try_files into a block after it: handle { try_files ...; file_server }"}
	outside = trap{"%s %s never matches: only requests for %s reach it",
		"write the path as it reaches mnemogate: handle and route leave the prefix in it"}
	prefixed = trap{"%s %s never matches: handle_path or uri strip_prefix removes %s first",
		"write the path as it reaches mnemogate, without that prefix"}
	rewritten = trap{"%s %s does not cover all requests that reach %s by this path: a later handle_path, uri or rewrite changes other paths to it",
		"write the path as clients send it, with the prefix that is removed, or write mnemogate after the rewrite, into the same block"}
	opens = trap{"public %s also opens other paths of %s: a later handle_path, uri or rewrite changes the paths that it covers to them",
		"write mnemogate after the rewrite, into the same block, and the path as the application gets it; or give the public paths an application of their own"}
	shields = trap{"%s with a matcher comes after it, so it does not protect the auth routes",
		"write both into a route block, in this order: route { %[1]s ...; mnemogate; ... }"}
	basicAuth = trap{"basic_auth comes after it, and no request passes both: each needs the Authorization header",
		"remove basic_auth, or write it into a handle block without mnemogate"}
	unproven = trap{"%s is on another machine, and can't tell requests that passed mnemogate from others: they bring no assertion, secret header or client certificate",
		"add assertion <audience> and verify it there, or header_up X-Gateway-Key {env.GATEWAY_KEY} to reverse_proxy: see Trusting the headers in docs/backends.md"}
	anyIssuer = trap{"assertion has no issuer, and the site takes requests for any host, so clients choose the issuer of their own assertions",
		"add issuer <url>, or give the site a name"}
	otherHosts = trap{"other proxies ask it by check, but Caddy answers 200 for other hosts than %s, which most proxies take as a yes",
		"give the site no name, as in http://:8080, with bind; or add a site for all other hosts, http://:8080, with the same bind, and respond 404 in it"}
	otherProbes = trap{"health is for requests to %s: Caddy answers 200 for other hosts, such as those of a load balancer that asks by address, even if the node is down",
		"let it ask with that name as Host; or add a site for all other hosts, http://:8080, with the same bind, and respond 404 in it"}
	oneAddress = trap{"its site is on a Unix socket, and trusted_proxies_unix is not set: all clients count as one, so a few wrong passwords or keys of anybody lock out all",
		"write trusted_proxies_unix into the global option servers if only your proxy can open the socket"}
	unusablePasskeys = trap{"%s: passkeys of company %s do not work on this site: its rp_id is %s, and its origins do not name the site",
		"correct rp_id or origins of passkeys, or give the site a name that they have"}
	plainAccounts = trap{"a site of it is plain http: anyone on the network path can read the keys and the accounts",
		"give the site a name, so that it is https, or bind it to 127.0.0.1, or to a Unix socket with trusted_proxies_unix"}
	openAccounts = trap{"everyone who can reach its site can try keys",
		"bind the site to a private address, or let only your backends in: @others not remote_ip 10.0.0.0/24, then abort @others"}
)

// unserved is the trap of a company, not of a handler.
var unserved = guest.Weakness{
	Message: "no request for its auth routes reaches mnemogate: nobody can log in",
	Advice:  "let /{company}/* reach a mnemogate, and name the company there if it has the option company, unless another Caddy serves it",
}

func (w *walk) refuse(t trap, h Handler, values ...any) {
	weak := w.weakness(t, h, values...)
	err := fmt.Errorf("%s: %s; %s", weak.Directive, weak.Message, weak.Advice)
	if weak.At != "" {
		err = fmt.Errorf("%w, at %s", err, weak.At)
	}
	w.wrong = cmp.Or(w.wrong, err)
}

func (w *walk) add(t trap, h Handler, values ...any) {
	w.found = append(w.found, w.weakness(t, h, values...))
}

// weakness describes a trap at a handler.
func (w *walk) weakness(t trap, h Handler, values ...any) app.Weakness {
	directive := h.CaddyModule().ID.Name()
	if w.site != "" {
		directive += " in " + w.site
	}
	return app.Weakness{Directive: directive, At: h.Line(), Weakness: guest.Weakness{Message: fill(t.message, values), Advice: fill(t.advice, values)}}
}

// fill formats a text that may have no verbs.
func fill(text string, values []any) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return fmt.Sprintf(text, values...)
}
