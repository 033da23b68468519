package bypass

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
)

// A way is a sequence of steps that requests take to a point of the routes, as far
// as their paths show it: the paths that they match and the prefixes that are
// removed.
type way []step

type step struct {
	paths caddyhttp.MatchPath // one of them matches; nil for any path
	strip string              // the prefix that is removed
	add   string              // the prefix that is added; paths are those with it
	lost  bool                // the path may be any other from here on, or any of paths
	file  bool                // and it is that of a file
}

// isUnknown reports whether a rewrite makes of a path nobody knows what.
func (s step) isUnknown() bool { return s.lost && s.paths == nil }

// through returns the way after matchers.
func (y way) through(sets caddyhttp.MatcherSets) way {
	var all caddyhttp.MatchPath
	for _, set := range sets {
		i := slices.IndexFunc(set, func(m any) bool { _, ok := m.(*caddyhttp.MatchPath); return ok })
		if i < 0 {
			return y
		}
		all = append(all, *set[i].(*caddyhttp.MatchPath)...)
	}
	_ = all.Provision(caddy.Context{}) // never fails
	return append(slices.Clip(y), step{paths: all})
}

// rewritten returns the way after a rewrite.
func (y way) rewritten(h *rewrite.Rewrite) way {
	var s step
	path, _, _ := strings.Cut(h.URI, "?")
	prefix := strings.TrimSuffix(strings.TrimSuffix(path, "{http.request.uri}"), "{http.request.uri.path}")
	switch others := h.StripPathSuffix != "" || h.URISubstring != nil || h.PathRegexp != nil; {
	case others || strings.Contains(prefix, "{"), path != "" && h.StripPathPrefix != "":
		s.lost = true
	case h.StripPathPrefix != "":
		s.strip = h.StripPathPrefix
	case prefix != path:
		s.add, s.paths = prefix, caddyhttp.MatchPath{strings.ToLower(prefix) + "*"}
	case path == "":
		return y // the path stays
	default:
		s.lost, s.paths = true, caddyhttp.MatchPath{strings.ToLower(path)}
	}
	return append(slices.Clip(y), s)
}

// common returns the common beginning of two ways.
func (y way) common(z way) way {
	n := 0
	for n < min(len(y), len(z)) && reflect.DeepEqual(y[n], z[n]) {
		n++
	}
	return y[:n]
}

// tries reports whether try_files replaces the paths on the way.
func (y way) tries() bool {
	return slices.ContainsFunc(y, func(s step) bool { return s.file })
}

// stripped returns all prefixes that were removed.
func (y way) stripped() (prefix string) {
	for _, s := range y {
		prefix += s.strip
	}
	return prefix
}

// confines reports whether the way is only for paths with the prefixes that it removes, and
// removes this one in all.
func (y way) confines(prefix string) bool {
	for i, s := range y {
		outside := func(pattern string) bool { return !strings.HasPrefix(literal(pattern), strings.ToLower(s.strip)) }
		if s.strip != "" && (i == 0 || y[i-1].paths == nil || slices.ContainsFunc(y[i-1].paths, outside)) {
			return false
		}
	}
	return y.stripped() == prefix
}

// last returns the paths that were matched or made last, for people to read.
func (y way) last() string {
	for _, s := range slices.Backward(y) {
		if s.paths != nil {
			return strings.Join(s.paths, " ")
		}
	}
	return ""
}

// brings reports whether the way can end at a path that a pattern matches. It compares what
// the patterns begin with, so it may be wrong only in saying yes.
func (y way) brings(pattern string) bool {
	want := literal(pattern)
	for _, s := range slices.Backward(y) {
		meets := func(pattern string) bool {
			begin := literal(pattern)
			return strings.HasPrefix(begin, want) || strings.HasPrefix(want, begin)
		}
		if s.paths != nil && !slices.ContainsFunc(s.paths, meets) {
			return false
		} else if s.lost {
			return true
		}
		want = strings.ToLower(s.strip) + want[min(len(want), len(s.add)):]
	}
	return true
}

// literal returns the beginning of a pattern, up to the first character that stands for
// others, in lower case.
func literal(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[\{%`); i >= 0 {
		pattern = pattern[:i]
	}
	return strings.ToLower(pattern)
}

// reaches reports whether a request can take the way and have this path at its end. It
// follows the way backwards.
func (y way) reaches(path string) bool {
	ctx := context.WithValue(context.Background(), caddy.ReplacerCtxKey, caddy.NewReplacer())
	for _, s := range slices.Backward(y) {
		r := (&http.Request{URL: &url.URL{Path: path}}).WithContext(ctx)
		if matches, err := s.paths.MatchWithError(r); s.paths != nil && err == nil && !matches {
			return false
		} else if s.lost {
			return !s.file
		}
		path = s.strip + strings.TrimPrefix(path, s.add)
	}
	return true
}
