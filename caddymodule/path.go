package caddymodule

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/mnemogate/mnemogate/flows"
)

// A target is what a request's path asks for.
type target struct {
	kind    targetKind
	company string // as the path names it; on a protected path not necessarily one that exists
	route   *flows.Route
}

type targetKind int

const (
	protectedPath targetKind = iota
	authRoute
	noAuthRoute // below an auth prefix, and no route: 404
	twoCompanies
)

var (
	authPath   = regexp.MustCompile(`^/([A-Za-z0-9_-]{1,64})/v2/(auth/.+)$`)
	authPrefix = regexp.MustCompile(`^/([A-Za-z0-9_-]{1,64})/v2/auth/`)
)

// classify reads a path as it was sent, escapes and all, below base. A route
// has one spelling. What an upstream could take for an auth path is none for
// it to see; and a protected path that an upstream could take for another
// company's than the one it is written with is nobody's.
func classify(base, escaped string) target {
	below, ok := cutBase(base, escaped)
	if ok {
		if m := authPath.FindStringSubmatch(below); m != nil {
			if route := flows.RouteByPath(m[2]); route != nil {
				return target{kind: authRoute, company: m[1], route: route}
			}
		}
	}
	if plain(escaped) { // nothing to decode or clean: the common case
		if !ok {
			return target{}
		}
		return classifyClean(below)
	}
	cleaned, cleanOK := cutBase(base, clean(escaped))
	if !cleanOK {
		return target{company: firstSegment(below)}
	}
	t := classifyClean(cleaned)
	if written := firstSegment(below); ok && t.kind == protectedPath && written != t.company {
		t.kind = twoCompanies
	}
	return t
}

func classifyClean(below string) target {
	if m := authPrefix.FindStringSubmatch(below); m != nil {
		return target{kind: noAuthRoute, company: m[1]}
	}
	return target{company: firstSegment(below)}
}

// plain reports whether a path is its own decoded and cleaned form.
func plain(p string) bool {
	return !strings.ContainsAny(p, `%\`) && !strings.Contains(p, "//") && !strings.Contains(p, "/.")
}

// clean returns a path as an upstream may come to read it: decoded, with \ for
// /, without empty and dot segments; a trailing slash stays.
func clean(escaped string) string {
	p, err := url.PathUnescape(escaped)
	if err != nil {
		p = escaped
	}
	p = strings.ReplaceAll(p, `\`, "/")
	cleaned := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}

// cutBase returns what follows base, with its slash, if p lies below base.
func cutBase(base, p string) (string, bool) {
	below, ok := strings.CutPrefix(p, base)
	return below, ok && strings.HasPrefix(below, "/")
}

func firstSegment(below string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(below, "/"), "/")
	return segment
}
