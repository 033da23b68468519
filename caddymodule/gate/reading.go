package gate

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// The options public and fresh name paths, and clients can write a path in several
// ways. So a path is public only if every way to read it is public, and fresh if any
// way is.

// Fresh configures paths that need a recent login.
type Fresh struct {
	// The maximum age of the login, at least 1s.
	Within caddy.Duration `json:"within"`

	// The paths, in the syntax of `public`. They are not case-sensitive, and match
	// with or without a slash at the end.
	Paths []string `json:"paths"`
}

// isPublic reports whether a path needs no token.
func (h *Handler) isPublic(u *url.URL) bool {
	if len(h.Public) == 0 {
		return false
	}
	ways, all := waysToRead(u.EscapedPath())
	if !all || h.freshOf(ways, all) > 0 {
		return false
	}
	for _, way := range ways {
		if !slices.ContainsFunc(h.Public, func(pattern string) bool { return matches(pattern, way) }) {
			return false
		}
	}
	return true
}

// freshness returns the maximum age of the login for a path, or 0 for any age.
func (h *Handler) freshness(u *url.URL) time.Duration {
	if len(h.Fresh) == 0 {
		return 0
	}
	return h.freshOf(waysToRead(u.EscapedPath()))
}

// freshOf returns the shortest time that any way to read the path requires.
func (h *Handler) freshOf(ways []string, all bool) time.Duration {
	var shortest caddy.Duration
	for _, f := range h.Fresh {
		if (shortest == 0 || f.Within < shortest) && (!all || f.has(ways)) {
			shortest = f.Within
		}
	}
	return time.Duration(shortest)
}

func (f *Fresh) has(ways []string) bool {
	for _, pattern := range f.Paths {
		pattern = strings.ToLower(pattern)
		for _, way := range ways {
			bare := strings.TrimRight(strings.ToLower(way), "/")
			if matches(pattern, bare) || matches(pattern, bare+"/") {
				return true
			}
		}
	}
	return false
}

// matches reports whether a pattern matches a path, as Caddy's path matcher does
// (caddyhttp.MatchPath). Unlike Caddy's it is case-sensitive, since some
// applications are.
func matches(pattern, p string) bool {
	first, last := strings.HasPrefix(pattern, "*"), strings.HasSuffix(pattern, "*")
	switch stars := strings.Count(pattern, "*"); {
	case pattern == "*":
		return true
	case stars == 2 && first && last:
		return strings.Contains(p, pattern[1:len(pattern)-1])
	case stars == 1 && first:
		return strings.HasSuffix(p, pattern[1:])
	case stars == 1 && last:
		return strings.HasPrefix(p, pattern[:len(pattern)-1])
	}
	matched, _ := path.Match(pattern, p) // checkPaths has validated the pattern
	return matched
}

// waysToRead returns the ways in which an application may read a path, and whether
// these are all of them. They are not if the path contains dot-dot segments or if an
// application might decode or normalize it once more.
func waysToRead(escaped string) (ways []string, all bool) {
	if plain(escaped) {
		return []string{escaped}, !leadsAnywhere(escaped)
	}
	decoded, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, false
	}
	if (&url.URL{Path: decoded}).EscapedPath() != escaped {
		ways = append(ways, escaped) // for servers that do not decode it: something in it needed no escape
	}
	all = !strings.Contains(escaped, "%") || !strings.Contains(decoded, ";") // servers cut parameters off before or after they decode
	for _, way := range append(readings(escaped), decoded) {
		ways = append(ways, way, clean(way))
		all = all && !leadsAnywhere(way)
	}
	return ways, all
}

// leadsAnywhere reports whether applications read a decoded path in ways that cannot
// be predicted.
func leadsAnywhere(p string) bool {
	if !strings.HasPrefix(p, "/") || !utf8.ValidString(p) || !norm.NFKC.IsNormalString(p) ||
		strings.ContainsAny(p, "%?#") || strings.ContainsFunc(p, unicode.IsControl) {
		return true
	}
	for segment := range strings.SplitSeq(p, "/") {
		// Windows removes dots and spaces there.
		if strings.HasSuffix(segment, ".") || strings.HasSuffix(segment, " ") {
			return true
		}
	}
	return false
}

// checkPaths refuses patterns that match nothing or not what they seem to match.
func checkPaths(patterns []string) error {
	if len(patterns) == 0 {
		return errors.New("name at least one path")
	}
	for _, pattern := range patterns {
		literal := strings.Map(func(r rune) rune {
			if strings.ContainsRune("*?[]^", r) {
				return 'x'
			}
			return r
		}, strings.TrimPrefix(pattern, "*"))
		if !strings.HasPrefix(pattern, "*") && !strings.HasPrefix(pattern, "/") || strings.ContainsAny(pattern, `\;{}`) ||
			strings.Contains(pattern, "//") || leadsAnywhere("/"+strings.TrimPrefix(literal, "/")) {
			return fmt.Errorf("%q is not a path to match; begin with / or *, and write letters as they are read, without escapes, placeholders, .. or // in them", pattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q: %w; close the bracket", pattern, err)
		}
	}
	return nil
}

// checkReadings refuses values of public and fresh that cannot be meant.
func (h *Handler) checkReadings() error {
	if h.Public != nil {
		if err := checkPaths(h.Public); err != nil {
			return guest.Inside("public", err)
		}
	}
	for _, f := range h.Fresh {
		if f.Within < caddy.Duration(time.Second) {
			return errors.New("fresh: give a duration of at least 1s, as in fresh 5m /account/*")
		}
		if err := checkPaths(f.Paths); err != nil {
			return guest.Inside("fresh", err)
		}
	}
	return nil
}
