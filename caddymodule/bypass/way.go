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
	lost  bool                // the path may be any other from here on
	file  bool                // and it is that of a file
	apart bool                // and the same path from all, or the old one with a prefix
}

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
	if h.URI == "" && h.StripPathPrefix+h.StripPathSuffix == "" && h.URISubstring == nil && h.PathRegexp == nil {
		return y // the path stays
	}
	apart := !strings.Contains(h.URI, "{") || strings.HasSuffix(h.URI, "{http.request.uri}") || strings.HasSuffix(h.URI, "{http.request.uri.path}")
	return append(slices.Clip(y), step{strip: h.StripPathPrefix, lost: h.StripPathPrefix == "", apart: apart && h.URI != ""})
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

// last returns the paths that were matched last, for people to read.
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
		if s.lost {
			return true
		}
		meets := func(pattern string) bool {
			begin := literal(pattern)
			return strings.HasPrefix(begin, want) || strings.HasPrefix(want, begin)
		}
		if s.paths != nil && !slices.ContainsFunc(s.paths, meets) {
			return false
		}
		want = strings.ToLower(s.strip) + want
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
		if s.lost {
			return !s.file
		}
		r := (&http.Request{URL: &url.URL{Path: path}}).WithContext(ctx)
		if matches, err := s.paths.MatchWithError(r); s.paths != nil && err == nil && !matches {
			return false
		}
		path = s.strip + path
	}
	return true
}
