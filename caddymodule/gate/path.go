package gate

import (
	"net/url"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
)

// A target is what a request's path asks for.
type target struct {
	kind  targetKind
	route *flows.Route
	// company is the path's first segment. On a protected path it may be any word,
	// and others holds the segments that an upstream might read as the first one
	// instead.
	company string
	others  []string
	// asked is set if another proxy asks about the request instead of sending it.
	asked bool
	once  *attempt // of a request with an Idempotency-Key; else nil
}

type targetKind int

const (
	protectedPath targetKind = iota
	authRoute
	noAuthRoute // below an auth prefix but not a route: 404
	apiDocument // the OpenAPI document of the routes
	challenge   // of captcha pow
	sessionRoute
	selfRoute    // below selfPrefix; protectedPath without self_service
	clientConfig // the configuration for a company's clients
	clientModule // client.js and its types
	keySet       // the keys that verify assertions
	loginPage
	logoutPage
	securityPage // protectedPath without self_service, too
	pageFile
	passwordURL // leads password managers to the security page
	passkeyURL  // the other origins that use the passkeys of a domain
	preflight   // preflight and health depend on more than the path
	health
)

// targetOf classifies the path of a URL. A path that does not begin with a slash
// (`GET http:acme/v2/auth/login`, or the result of a rewrite) is refused: the proxy
// would send it as it is, and the application might read it in any way.
func targetOf(base string, u *url.URL) target {
	escaped := u.EscapedPath()
	if u.Opaque != "" || escaped != "" && escaped != "*" && escaped[0] != '/' {
		return target{kind: noAuthRoute}
	}
	if escaped == passwordURLPath {
		return target{kind: passwordURL}
	}
	if escaped == passkeyURLPath {
		return target{kind: passkeyURL}
	}
	return classify(base, escaped)
}

// classify reads a path below base as it was sent, with its escapes. A route has
// exactly one spelling. Any other path that an upstream could read as an auth path
// is refused.
func classify(base, escaped string) target {
	company, rest := split(base, escaped)
	if app.IsCompanyCode(company) {
		if name, ok := strings.CutPrefix(rest, "v2/"); ok {
			if route := flows.RouteByPath(name); route != nil {
				return target{kind: authRoute, company: company, route: route}
			}
		}
		if kind := ownPath(rest); kind != protectedPath {
			return target{kind: kind, company: company}
		}
	}
	if paths.Plain(escaped) { // the common case: there is only one way to read it
		return target{kind: kindOf(company, rest), company: company}
	}
	t, all := target{company: company}, paths.Readings(escaped)
	unsure := len(all) > 1 || strings.Count(all[0], "/") != strings.Count(escaped, "/")
	for _, reading := range all {
		cleaned := paths.Clean(reading)
		first, _ := split(base, reading)
		firstCleaned, rest := split(base, cleaned)
		segments := strings.Split(reading, "/")
		up := slices.Contains(segments, "..")
		if kindOf(firstCleaned, rest) == noAuthRoute || up && unsure && mayLeaveAuth(segments) {
			return target{kind: noAuthRoute, company: firstCleaned}
		}
		t.others = append(t.others, first, firstCleaned)
		if up {
			t.others = append(t.others, segments...) // the first segment depends on when the dots are resolved
		}
	}
	return t
}

// ownPaths are our own paths below /{company_code}/ that are not auth routes.
var ownPaths = map[string]targetKind{
	documentPath:  apiDocument,
	challengePath: challenge,
	sessionPath:   sessionRoute,
	clientPath:    clientConfig,
	modulePath:    clientModule,
	typesPath:     clientModule,
	keySetPath:    keySet,
	loginPath:     loginPage,
	logoutPath:    logoutPage,
	securityPath:  securityPage,
}

// ownPath returns the kind of one of ownPaths or of a path below one of ours.
func ownPath(rest string) targetKind {
	switch {
	case strings.HasPrefix(rest, page.Prefix) && paths.Plain(rest):
		return pageFile
	case strings.HasPrefix(rest, selfPrefix) && paths.Plain(rest):
		return selfRoute
	}
	return ownPaths[rest] // else protectedPath
}

// mayLeaveAuth reports whether an auth path can result from segments when it is
// unclear which ones the dots remove. /acme/v2/x\y/../auth/login is an auth path for
// a server that does not treat \ as a slash.
func mayLeaveAuth(segments []string) bool {
	v2 := slices.Index(segments, "v2")
	return v2 >= 0 && slices.Contains(segments[v2:len(segments)-1], "auth")
}

// split returns the first segment of the path below base, and the rest after it. It
// returns nothing if p is not below base.
func split(base, p string) (segment, rest string) {
	below, ok := strings.CutPrefix(p, base)
	if !ok || !strings.HasPrefix(below, "/") {
		return "", ""
	}
	segment, rest, _ = strings.Cut(below[1:], "/")
	return segment, rest
}

func kindOf(company, rest string) targetKind {
	if strings.HasPrefix(rest, "v2/auth/") && app.IsCompanyCode(company) {
		return noAuthRoute
	}
	return protectedPath
}
