package gate

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
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
	rest    string // what follows the company and a slash, on our own paths
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

// kinds is what the gate knows of each kind of target.
var kinds = [...]struct {
	// serve returns the body of its answer, or nil if it has written one. Targets without it
	// are guarded.
	serve   func(*Handler, http.ResponseWriter, *http.Request, target) (body any, err error)
	methods string                                     // as in the header Allow; "" if serve checks them
	more    func(*Handler, target) string              // methods that only some sites have, too, as ", POST"
	has     func(*Handler, *http.Request, target) bool // whether the site has the target; nil if all have it
	paths   []string                                   // below /{company_code}/
}{
	protectedPath: {},
	authRoute:     {serve: (*Handler).serveRoute, has: (*Handler).hasRoute},
	noAuthRoute:   {serve: (*Handler).serveNoRoute},
	apiDocument:   {serve: (*Handler).serveDocument, methods: "GET", paths: []string{documentPath}},
	challenge:     {serve: (*Handler).serveChallenge, methods: "GET", paths: []string{challengePath}},
	sessionRoute:  {serve: (*Handler).serveSession, methods: "GET", more: (*Handler).cookieMethods, paths: []string{sessionPath}},
	selfRoute:     {serve: (*Handler).serveSelf, has: (*Handler).hasSelf},
	clientConfig:  {serve: (*Handler).serveClientConfig, methods: "GET", paths: []string{clientPath}},
	clientModule:  {serve: (*Handler).serveModule, methods: "GET, HEAD", paths: []string{modulePath, typesPath}},
	keySet:        {serve: (*Handler).serveKeySet, methods: "GET, HEAD", has: (*Handler).hasKeySet, paths: []string{keySetPath}},
	loginPage:     {serve: (*Handler).servePage, methods: "GET, HEAD", more: (*Handler).formMethods, has: (*Handler).hasLoginPage, paths: []string{loginPath}},
	logoutPage:    {serve: (*Handler).servePage, methods: "GET, HEAD", has: (*Handler).hasLoginPage, paths: []string{logoutPath}},
	securityPage:  {serve: (*Handler).servePage, methods: "GET, HEAD", has: (*Handler).hasSecurityPage, paths: []string{securityPath}},
	pageFile:      {serve: (*Handler).servePage, methods: "GET, HEAD", has: (*Handler).hasLoginPage},
	passwordURL:   {serve: (*Handler).servePasswordURL, methods: "GET, HEAD", has: (*Handler).hasPasswordURL},
	passkeyURL:    {serve: (*Handler).servePasskeyURL, methods: "GET, HEAD", has: (*Handler).hasPasskeyURL},
	preflight:     {serve: (*Handler).servePreflight},
	health:        {serve: (*Handler).serveHealth, methods: "GET, HEAD"},
}

// The kinds that not all sites have.
func (h *Handler) hasRoute(_ *http.Request, t target) bool     { return !t.route.StepsUp || h.stepsUp() }
func (h *Handler) hasLoginPage(_ *http.Request, t target) bool { return h.hasPage(t.company) }
func (h *Handler) hasSecurityPage(_ *http.Request, t target) bool {
	return h.hasPage(t.company) && h.SelfService > 0
}
func (h *Handler) hasPasswordURL(*http.Request, target) bool {
	return h.LoginPages != nil && h.SelfService > 0
}
func (h *Handler) hasPasskeyURL(r *http.Request, _ target) bool { return h.relatedOrigins(r) != nil }
func (h *Handler) hasSelf(*http.Request, target) bool           { return h.SelfService > 0 }
func (h *Handler) hasKeySet(*http.Request, target) bool         { return h.Assertion != nil }

// checkMethod refuses a method that the target does not have, unless the target checks it
// itself.
func (h *Handler) checkMethod(r *http.Request, t target) error {
	kind := kinds[t.kind]
	allow := kind.methods
	if kind.more != nil {
		allow += kind.more(h, t)
	}
	if allow == "" || slices.Contains(strings.Split(allow, ", "), r.Method) {
		return nil
	}
	return wire.NotAllowed(allow, "Use a method that the header Allow lists.")
}

// ownPaths are the paths of kinds.
var ownPaths = func() map[string]targetKind {
	own := map[string]targetKind{}
	for kind, k := range kinds {
		for _, path := range k.paths {
			own[path] = targetKind(kind)
		}
	}
	return own
}()

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
			return target{kind: kind, company: company, rest: rest}
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

// isAt reports whether a request is for a path of the configuration, which may be empty.
func isAt(r *http.Request, path string) bool {
	return path != "" && r.URL.Path == path && r.URL.RawPath == ""
}

// isLiteral reports whether every server reads a path of the configuration as it is
// written.
func isLiteral(p string) bool {
	return strings.HasPrefix(p, "/") && (&url.URL{Path: p}).EscapedPath() == p && paths.Clean(p) == p
}
