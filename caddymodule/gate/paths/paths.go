// Package paths knows how servers read the path of a request, and which paths are public,
// and which need a fresh login, two factors or a role. Clients can write a path in several ways, and
// applications read it in several ways, so an option that names paths must hold in each
// of them. Start at Rules.
package paths

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Plain reports whether a path has nothing that servers decode, cut off or resolve. See
// leadsAnywhere for paths that some servers read differently all the same.
func Plain(p string) bool {
	for i := range len(p) {
		switch p[i] {
		case '%', '\\', ';':
			return false
		case '/':
			if i+1 < len(p) && (p[i+1] == '/' || p[i+1] == '.') {
				return false
			}
		}
	}
	return true
}

// Readings returns the ways in which an upstream may read a path. The first is decoded,
// with \ as a slash. The others lack what some servers cut off from a segment: its
// parameters (;x), or everything after a NUL.
func Readings(escaped string) []string {
	decoded, err := url.PathUnescape(escaped)
	if err != nil {
		decoded = escaped
	}
	decoded = strings.ReplaceAll(decoded, `\`, "/")
	if !strings.ContainsAny(decoded, ";\x00") {
		return []string{decoded}
	}
	segments := strings.Split(decoded, "/")
	for i, s := range segments {
		if cut := strings.IndexAny(s, ";\x00"); cut >= 0 {
			segments[i] = s[:cut]
		}
	}
	return []string{decoded, strings.Join(segments, "/")}
}

// Clean removes empty and dot segments. A path that ends in a slash or in dots ends
// in a slash afterwards (RFC 3986, section 5.2.4).
func Clean(p string) string {
	cleaned := path.Clean("/" + p)
	switch p[strings.LastIndexByte(p, '/')+1:] {
	case "", ".", "..":
		if cleaned != "/" {
			cleaned += "/"
		}
	}
	return cleaned
}

// covers is coversAsWritten in any case. It is for options that restrict a path.
func covers(pattern, p string) bool { return coversAsWritten(fold(pattern), fold(p)) }

// coversAsWritten reports whether a pattern matches a path with or without a slash at the
// end. A star at the end of the pattern is everything below, as in Caddy's matcher, but also
// if the pattern has other wildcards.
func coversAsWritten(pattern, p string) bool {
	bare := strings.TrimRight(p, "/")
	if Matches(pattern, bare) || Matches(pattern, bare+"/") {
		return true
	}
	if prefix, open := strings.CutSuffix(pattern, "*"); !open || !strings.ContainsAny(prefix, "*?[") {
		return false
	}
	segments := strings.Split(bare+"/", "/")
	above := segments[:min(len(segments), 1+strings.Count(pattern, "/"))]
	matched, _ := path.Match(pattern, strings.Join(above, "/"))
	return matched
}

// fold returns a path in lower case, with ß as ss, as file systems that ignore case compare it,
// and with a dot on each i: applications that compare upper case, as Java's equalsIgnoreCase
// does, take the dotless one for the same letter.
func fold(p string) string {
	if p = strings.ToLower(p); !strings.ContainsFunc(p, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return p
	}
	return strings.ReplaceAll(cases.Fold().String(p), "ı", "i")
}

// Matches reports whether a pattern matches a path, as Caddy's path matcher does
// (caddyhttp.MatchPath). Unlike Caddy's it is case-sensitive, since some
// applications are.
func Matches(pattern, p string) bool {
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
	matched, _ := path.Match(pattern, p) // CheckPatterns has validated the pattern
	return matched
}

// readAs returns the ways in which an application may read a path, and whether
// these are all of them. They are not if the path contains dot-dot segments or if an
// application might decode or normalize it once more.
func readAs(escaped string) (ways []string, all bool) {
	if Plain(escaped) {
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
	for _, way := range append(Readings(escaped), decoded) {
		ways = append(ways, way, Clean(way))
		all = all && !leadsAnywhere(way)
	}
	return ways, all
}

// leadsAnywhere reports whether applications read a decoded path in ways that
// readAs does not list.
func leadsAnywhere(p string) bool {
	return !norm.NFKC.IsNormalString(p) || strings.ContainsAny(p, "%?#") || isUnpredictable(p)
}

// cookieless matches ids of sessions and the like in a path, as in /(S(x)A(y))/orders. Some
// versions of ASP.NET remove them before they look at the path, also within a name.
var cookieless = regexp.MustCompile(`/\(([A-Z]\([^/)]*\))+\)`)

// isUnpredictable reports whether applications read a path in ways that nobody can
// list. The segments in dots may end in a dot.
func isUnpredictable(p string, dots ...string) bool {
	if !strings.HasPrefix(p, "/") || !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) || cookieless.MatchString(p) {
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

// These bound the work of everyWay for a path that is not plain.
const (
	maxWays    = 64
	maxOddPath = 1024
)

// everyWay is readAs for the options role and mfa, which must not refuse users a file
// because of the characters in its name. It lists what any sequence of the steps that
// applications take makes of a path. If all is false, there are other ways as well.
func everyWay(escaped string) (ways []string, all bool) {
	if Plain(escaped) && !leadsAnywhere(escaped) {
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
	// Unlike path.Clean, RFC 3986, section 5.2.4 lets /.. remove an empty segment.
	func(p string) string { return new(url.URL).ResolveReference(&url.URL{Path: p}).Path },
	norm.NFC.String,
	norm.NFKC.String,
}

// CheckPatterns refuses a list without patterns, and patterns that match nothing or not
// what they seem to match.
func CheckPatterns(patterns []string) error {
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
		if strings.Contains(pattern, "**") {
			return fmt.Errorf("%q: one star is enough; write /docs/* for everything below /docs", pattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q: %w; close the bracket", pattern, err)
		}
	}
	return nil
}

const (
	maxTokenPaths = 20
	maxPattern    = 256 // bytes
)

// CheckToken is CheckPatterns for the paths of an issued token, which the store keeps.
func CheckToken(patterns []string) error {
	if len(patterns) > maxTokenPaths || slices.ContainsFunc(patterns, func(p string) bool { return len(p) > maxPattern }) {
		return fmt.Errorf("name at most %d paths, each of at most %d bytes", maxTokenPaths, maxPattern)
	}
	return CheckPatterns(patterns)
}

// includes reports whether a pattern matches all paths that another one matches. It may
// be wrong only in saying no.
func includes(pattern, other string) bool {
	pattern, other = strings.ToLower(pattern), strings.ToLower(other)
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == other || open && !strings.ContainsAny(prefix, "*?[") && strings.HasPrefix(other, prefix)
}
