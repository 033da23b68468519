package bypass

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
)

// A way is how some requests come to a point of the routes. Those that passed the same gate
// last share a way, which has only the steps that all of them took.
type way struct {
	gate   *visit   // the gate that they passed last; nil if they are open, unknown if they failed
	steps           // from the beginning of the routes
	since  int      // how many of the steps come before the gate
	turns  []steps  // of some of them: the steps up to each change that came after the gate
	groups []string // of which they took a route: Caddy skips other routes of these groups
	some   []string // of which some of them did
	end    string   // the handler that answered them; empty if they go on
}

type steps []*step

// A step is a route that the requests come to, or a change by a handler.
type step struct {
	group    string                // of the route
	matchers caddyhttp.MatcherSets // of the route, if they may leave out other requests
	missed   bool                  // whether the requests don't match them
	paths    caddyhttp.MatchPath   // one of them matches from here on; nil for any path
	strip    string                // the prefix that is removed
	add      string                // the prefix that is added; paths are those with it
	lost     bool                  // the path may be any from here on, or any of paths if that is not nil
	file     bool                  // the path is that of a file
	remade   bool                  // all that matchers depend on may change
	marked   bool                  // headers and variables may change
}

// unknown is whichever gate a failed request may have passed.
var unknown = new(visit)

// tried is a change by try_files.
var tried = &step{lost: true, file: true, remade: true}

func (y way) isOpen() bool    { return y.gate == nil }
func (y way) isGuarded() bool { return y.gate != nil && y.gate != unknown }

func (y way) then(s *step) way {
	y.steps = append(slices.Clip(y.steps), s)
	if s.group != "" {
		y.groups = append(slices.Clip(y.groups), s.group)
		y.some = append(slices.Clip(y.some), s.group)
	}
	return y
}

// changed returns the ways after a change.
func changed(ways []way, s *step) (after []way) {
	for _, y := range ways {
		y = y.then(s)
		y.turns = append(slices.Clip(y.turns), y.steps)
		after = append(after, y)
	}
	return after
}

// ended returns the ways after a handler that passes nothing on.
func ended(ways []way, handler string) (after []way) {
	for _, y := range ways {
		y.end = handler
		after = append(after, y)
	}
	return after
}

// isOver reports whether no request goes on.
func isOver(ways []way) bool { return len(ways) == 0 || ways[0].end != "" }

// join merges the ways that have the same gate. It forgets those that ended if others go on.
func join(a, b []way) (joined []way) {
	switch {
	case isOver(a) && !isOver(b):
		return b
	case isOver(b) && !isOver(a):
		return a
	}
	for _, y := range slices.Concat(a, b) {
		if i := slices.IndexFunc(joined, func(z way) bool { return z.gate == y.gate && y.end == "" }); i >= 0 {
			joined[i] = joined[i].merge(y)
		} else {
			joined = append(joined, y)
		}
	}
	return joined
}

func (y way) merge(z way) way {
	y.steps = slices.DeleteFunc(slices.Clone(y.steps), func(s *step) bool { return !slices.Contains(z.steps, s) })
	y.groups = slices.DeleteFunc(slices.Clone(y.groups), func(g string) bool { return !slices.Contains(z.groups, g) })
	y.some = slices.Compact(slices.Sorted(slices.Values(slices.Concat(y.some, z.some))))
	y.turns = slices.Concat(y.turns, slices.DeleteFunc(slices.Clone(z.turns), func(t steps) bool {
		return slices.ContainsFunc(y.turns, func(u steps) bool { return slices.Equal(t, u) })
	}))
	return y
}

// sinceParting returns the steps after those with which both begin.
func (y steps) sinceParting(z steps) steps {
	for len(y) > 0 && len(z) > 0 && y[0] == z[0] {
		y, z = y[1:], z[1:]
	}
	return y
}

// matches reports whether the requests match a route's matchers. It is known if they came to
// the same ones before, or to their opposite or other paths, and no change since can matter.
func (y way) matches(sets caddyhttp.MatcherSets) (matches, known bool) {
	matters := func(s *step) bool { return s.remade || s.marked && !byLine(sets) }
	paths := pathsOf(sets)
	for _, s := range slices.Backward(y.steps) {
		if s.paths != nil && paths != nil && !slices.ContainsFunc(paths, steps{s}.makes) {
			return false, !y.turnsSince(s, matters)
		}
		if matters(s) {
			break
		}
		if isSame := same(s.matchers, sets); s.matchers != nil && (isSame || opposite(s.matchers, sets)) {
			return isSame != s.missed, !y.turnsSince(s, matters)
		}
	}
	return false, false
}

// turnsSince reports whether some of the requests took such a change after a step.
func (y way) turnsSince(s *step, is func(*step) bool) bool {
	return slices.ContainsFunc(y.turns, func(t steps) bool { return t[len(t)-1] != s && slices.Contains(t, s) && is(t[len(t)-1]) })
}

// isNone reports whether there are no such requests, because routes have taken all those that
// another one let through. It looks at the request line alone, and may be wrong only in saying no.
func (y way) isNone() bool {
	var none caddyhttp.MatcherSets // that the requests match
	for _, s := range slices.Backward(y.steps) {
		if s.remade || y.turnsSince(s, func(s *step) bool { return s.remade }) {
			break
		}
		one, others := s.matchers, negated(s.matchers) // they match one of the first, and none of the others
		if s.missed {
			one, others = others, one
		}
		if byLine(others) {
			none = append(none, others...)
		}
		if one != nil && byLine(one) && !slices.ContainsFunc(one, func(set caddyhttp.MatcherSet) bool { return leaves(none, set) }) {
			return true
		}
	}
	return false
}

// rewrites returns the steps from the gate to each rewrite, which some of the requests took.
func (y way) rewrites() (found []steps) {
	for _, t := range y.turns {
		if s := t[len(t)-1]; s.strip+s.add != "" || s.lost && !s.file {
			found = append(found, t[y.since:])
		}
	}
	return found
}

// hasLost reports whether a path begins with the prefix that was removed.
func (y steps) hasLost(path string) bool {
	prefix := y.stripped()
	return prefix != "" && strings.HasPrefix(path+"/", prefix+"/")
}

// pathsOf returns the paths of matchers, or nil if some of them match any path.
func pathsOf(sets caddyhttp.MatcherSets) (all caddyhttp.MatchPath) {
	for _, set := range sets {
		i := slices.IndexFunc(set, func(m any) bool { _, ok := m.(*caddyhttp.MatchPath); return ok })
		if i < 0 {
			return nil
		}
		all = append(all, *set[i].(*caddyhttp.MatchPath)...)
	}
	_ = all.Provision(caddy.Context{}) // never fails
	return all
}

func rewriting(h *rewrite.Rewrite) *step {
	s := &step{remade: true}
	path, _, _ := strings.Cut(h.URI, "?")
	prefix := strings.TrimSuffix(strings.TrimSuffix(path, "{http.request.uri}"), "{http.request.uri.path}")
	switch others := h.StripPathSuffix != "" || h.URISubstring != nil || h.PathRegexp != nil; {
	case others || strings.Contains(prefix, "{"), path != "" && h.StripPathPrefix != "":
		s.lost = true
	case h.StripPathPrefix != "":
		s.strip = h.StripPathPrefix
	case prefix != path:
		s.add, s.paths = prefix, caddyhttp.MatchPath{strings.ToLower(prefix) + "*"}
	case path != "":
		s.lost, s.paths = true, caddyhttp.MatchPath{strings.ToLower(path)}
	}
	return s
}

// isUnknown reports whether nobody knows what the last step makes of a path.
func (y steps) isUnknown() bool { return y[len(y)-1].lost && y[len(y)-1].paths == nil }

// makes reports whether the last step makes paths that a pattern matches.
func (y steps) makes(pattern string) bool {
	return slices.ContainsFunc(y[len(y)-1].paths, func(made string) bool { return meet(made, pattern) })
}

// isWithin reports whether patterns cover all paths with which requests come to the gate, as far
// as steps before it show, or those after it up to a change.
func (y way) isWithin(patterns []string, after steps) bool {
	uncovered := func(path string) bool {
		return !slices.ContainsFunc(patterns, func(pattern string) bool { return includes(pattern, path) })
	}
	shows := func(s *step) bool { return s.paths != nil && !slices.ContainsFunc(s.paths, uncovered) }
	for _, s := range slices.Backward(y.steps[:y.since]) {
		if shows(s) {
			return true
		} else if s.changesPath() {
			break
		}
	}
	for _, s := range after {
		if s.changesPath() {
			break
		} else if shows(s) {
			return true
		}
	}
	return false
}

func (s *step) changesPath() bool { return s.strip+s.add != "" || s.lost }

// nameHosts reports whether the steps are only for hosts that are named in full.
func (y steps) nameHosts() bool {
	names := func(m any) bool {
		hosts, ok := m.(*caddyhttp.MatchHost)
		return ok && !slices.ContainsFunc(*hosts, func(host string) bool { return strings.ContainsAny(host, "*{") })
	}
	lacks := func(set caddyhttp.MatcherSet) bool { return !slices.ContainsFunc(set, names) }
	return slices.ContainsFunc(y, func(s *step) bool {
		return s.matchers != nil && !s.missed && !slices.ContainsFunc(s.matchers, lacks)
	})
}

// tries reports whether try_files replaces the paths on the way.
func (y steps) tries() bool {
	return slices.ContainsFunc(y, func(s *step) bool { return s.file })
}

// stripped returns all prefixes that were removed.
func (y steps) stripped() (prefix string) {
	for _, s := range y {
		prefix += s.strip
	}
	return prefix
}

// confines reports whether the steps are only for paths with the prefixes that they remove, and
// remove this one in all.
func (y steps) confines(prefix string) bool {
	var paths caddyhttp.MatchPath
	for _, s := range y {
		outside := func(pattern string) bool { return !strings.HasPrefix(literal(pattern), strings.ToLower(s.strip)) }
		if s.strip != "" && (paths == nil || slices.ContainsFunc(paths, outside)) {
			return false
		}
		if s.changesPath() || s.paths != nil {
			paths = s.paths
		}
	}
	return y.stripped() == prefix
}

// last returns the paths that were matched or made last, for people to read.
func (y steps) last() string {
	for _, s := range slices.Backward(y) {
		if s.paths != nil {
			return strings.Join(s.paths, " ")
		}
	}
	return ""
}

// brings reports whether the way can end at a path that a pattern matches. It compares what
// the patterns begin with, so it may be wrong only in saying yes.
func (y steps) brings(pattern string) bool {
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
// others, in lower case. For most patterns, Caddy takes two slashes as one.
func literal(pattern string) string {
	pattern, _, _ = strings.Cut(pattern, "//")
	if i := strings.IndexAny(pattern, `*?[\{%`); i >= 0 {
		pattern = pattern[:i]
	}
	return strings.ToLower(pattern)
}

// meet reports whether a path can match two patterns. As in brings, it may be wrong only in
// saying yes.
func meet(a, b string) bool {
	begins := func(pattern, other string) bool {
		begin := literal(other)
		return begin == literal(pattern) || len(begin) < len(other) && strings.HasPrefix(literal(pattern), begin)
	}
	return begins(a, b) || begins(b, a)
}

// includes reports whether a pattern matches all paths that another one matches. It may be
// wrong only in saying no.
func includes(pattern, other string) bool {
	begin, ok := strings.CutSuffix(strings.ToLower(pattern), "*")
	return strings.EqualFold(pattern, other) || ok && begin == literal(begin) && strings.HasPrefix(literal(other), begin)
}

// leaves reports whether a request may match a set and none of others. It may be wrong only in
// saying yes.
func leaves(none caddyhttp.MatcherSets, set caddyhttp.MatcherSet) bool {
	left := func(path string) bool {
		misses := func(m any) bool {
			if paths, ok := m.(*caddyhttp.MatchPath); ok {
				return !slices.ContainsFunc(*paths, func(pattern string) bool { return includes(pattern, path) })
			}
			return !slices.ContainsFunc(set, func(other any) bool { return sameMatcher(m, other) })
		}
		return !slices.ContainsFunc(none, func(other caddyhttp.MatcherSet) bool { return !slices.ContainsFunc(other, misses) })
	}
	if paths := pathsOf(caddyhttp.MatcherSets{set}); paths != nil {
		return slices.ContainsFunc(paths, left)
	}
	return left("")
}

// reaches reports whether a request can take the way and have this path at its end. It
// follows the way backwards.
func (y steps) reaches(path string) bool {
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
