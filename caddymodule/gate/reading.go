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

// The options public and fresh name paths, and whoever asks chooses how to write
// one. So a path is public only if every way to read it is, and fresh if any is.

// Fresh is paths that need a login not long ago.
type Fresh struct {
	// How long ago the login may be, at least 1s.
	Within caddy.Duration `json:"within"`

	// The paths, written as those of `public`. Here upper and lower case are
	// alike, and with a slash at the end and without.
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

// freshness is how long ago the login may be for a path; 0: any time.
func (h *Handler) freshness(u *url.URL) time.Duration {
	if len(h.Fresh) == 0 {
		return 0
	}
	return h.freshOf(waysToRead(u.EscapedPath()))
}

// freshOf is the shortest time of those that a path needs in one way to read it.
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

// matches reports whether a path is one of a pattern's, as Caddy's path matcher
// has it (caddyhttp.MatchPath). But that takes upper case for lower, which not
// every application does.
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
	matched, _ := path.Match(pattern, p) // checkPaths has tried the pattern
	return matched
}

// waysToRead returns how an application may read a path, and whether that is
// all. It is not where the path may lead anywhere: it goes up, or would have to
// be decoded or normalised once more.
func waysToRead(escaped string) (ways []string, all bool) {
	if plain(escaped) {
		return []string{escaped}, !leadsAnywhere(escaped)
	}
	decoded, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, false
	}
	if (&url.URL{Path: decoded}).EscapedPath() != escaped {
		ways = append(ways, escaped) // by who does not decode it: something in it needed no escape
	}
	all = !strings.Contains(escaped, "%") || !strings.Contains(decoded, ";") // parameters may be cut off before it is decoded, and behind
	for _, way := range append(readings(escaped), decoded) {
		ways = append(ways, way, clean(way))
		all = all && !leadsAnywhere(way)
	}
	return ways, all
}

// leadsAnywhere reports whether a decoded path is one that applications read in
// ways of their own.
func leadsAnywhere(p string) bool {
	if !strings.HasPrefix(p, "/") || !utf8.ValidString(p) || !norm.NFKC.IsNormalString(p) ||
		strings.ContainsAny(p, "%?#") || strings.ContainsFunc(p, unicode.IsControl) {
		return true
	}
	for segment := range strings.SplitSeq(p, "/") {
		// Windows drops dots and spaces there.
		if strings.HasSuffix(segment, ".") || strings.HasSuffix(segment, " ") {
			return true
		}
	}
	return false
}

// checkPaths refuses patterns that match nothing, or other than they seem to.
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
			return fmt.Errorf("%q is no path to match; begin with / or *, and write letters as they are read, without escapes, placeholders, .. or // in them", pattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q: %w; close the bracket", pattern, err)
		}
	}
	return nil
}

// checkReadings refuses public and fresh where they can't be meant.
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
