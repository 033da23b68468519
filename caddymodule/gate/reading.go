package gate

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// The options public, fresh and role name paths, and clients can write a path in
// several ways. So a path is public only if every way to read it is public, fresh if
// any way is, and needs a role that may open it in whichever way it is read.

// Fresh configures paths that need a recent login.
type Fresh struct {
	// The maximum age of the login, at least 1s.
	Within caddy.Duration `json:"within"`

	// The paths, in the syntax of `public`. They are not case-sensitive, and match
	// with or without a slash at the end.
	Paths []string `json:"paths"`
}

// parseFresh parses a duration and the paths that it applies to.
func (h *Handler) parseFresh(d *caddyfile.Dispenser) func() error {
	return func() error {
		args := d.RemainingArgs()
		if len(args) < 2 {
			return d.ArgErr()
		}
		f := Fresh{Paths: args[1:]}
		if complaint := guest.Duration(&f.Within)(args[0]); complaint != "" {
			return d.Errf("'%s' is %s", args[0], complaint)
		}
		h.Fresh = append(h.Fresh, f)
		return nil
	}
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
	needsRole, _ := h.rolesOf(u)
	return !needsRole
}

// freshOf returns the maximum age of the login that any way to read a path requires,
// or 0 for any age. It takes the result of waysToRead.
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
	return slices.ContainsFunc(f.Paths, func(pattern string) bool {
		return slices.ContainsFunc(ways, func(way string) bool { return covers(pattern, way) })
	})
}

// covers reports whether a pattern matches a path in any case, and with or without a
// slash at the end.
func covers(pattern, p string) bool {
	pattern = strings.ToLower(pattern)
	bare := strings.TrimRight(strings.ToLower(p), "/")
	return matches(pattern, bare) || matches(pattern, bare+"/")
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

// leadsAnywhere reports whether applications read a decoded path in ways that
// waysToRead does not list.
func leadsAnywhere(p string) bool {
	return !norm.NFKC.IsNormalString(p) || strings.ContainsAny(p, "%?#") || isUnpredictable(p)
}

// isUnpredictable reports whether applications read a path in ways that nobody can
// list. The segments in dots may end in a dot.
func isUnpredictable(p string, dots ...string) bool {
	if !strings.HasPrefix(p, "/") || !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) {
		return true
	}
	for segment := range strings.SplitSeq(p, "/") {
		// Windows removes dots and spaces there.
		if (strings.HasSuffix(segment, ".") || strings.HasSuffix(segment, " ")) && !slices.Contains(dots, segment) {
			return true
		}
	}
	return false
}

// These bound the work of everyWayToRead for a path that is not plain.
const (
	maxWays    = 64
	maxOddPath = 1024
)

// everyWayToRead is waysToRead for the option role, which must not refuse users a file
// because of the characters in its name. It lists what any sequence of the steps that
// applications take makes of a path. If all is false, there are other ways as well.
func everyWayToRead(escaped string) (ways []string, all bool) {
	if plain(escaped) && !leadsAnywhere(escaped) {
		return []string{escaped}, true
	}
	if len(escaped) > maxOddPath {
		return nil, false
	}
	ways = []string{escaped}
	for i := 0; i < len(ways); i++ {
		if len(ways) > maxWays || isUnpredictable(ways[i], ".", "..") || strings.Contains(strings.ToLower(ways[i]), "%u") {
			return ways, false
		}
		for _, step := range readingSteps {
			if next := step(ways[i]); !slices.Contains(ways, next) {
				ways = append(ways, next)
			}
		}
	}
	return ways, true
}

var (
	escape     = regexp.MustCompile("%[0-9A-Fa-f]{2}")
	parameters = regexp.MustCompile(";[^/]*")
	ending     = regexp.MustCompile("[?#].*")
)

// readingSteps are what applications do to a path before they look at it.
var readingSteps = []func(string) string{
	func(p string) string { // decode it, even if something in it is no escape
		return escape.ReplaceAllStringFunc(p, func(e string) string { c, _ := url.PathUnescape(e); return c })
	},
	func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
	func(p string) string { return parameters.ReplaceAllString(p, "") },
	func(p string) string { return ending.ReplaceAllString(p, "") },
	func(p string) string { return strings.ReplaceAll(p, "//", "/") },
	func(p string) string { return path.Clean("/" + p) },
	// Unlike Clean, RFC 3986, section 5.2.4 lets /.. remove an empty segment.
	func(p string) string { return new(url.URL).ResolveReference(&url.URL{Path: p}).Path },
	norm.NFC.String,
	norm.NFKC.String,
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

// checkReadings refuses values of public, fresh and role that cannot be meant.
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
	return h.checkRoles()
}
