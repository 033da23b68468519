package paths

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// Rules are the options that name paths. An application may read a path in several ways.
// A path is public only if every reading is. It needs a fresh login or two factors if any
// reading does, and a role that may open every reading.
type Rules struct {
	// The paths that need no token and no API key, in the syntax of Caddy's path
	// matcher: `/health`, `/docs/*`, `*.css`. The handler still removes identity
	// headers from these requests. It sets them if the token is valid, and ignores a
	// token that is not. Paths are case-sensitive. If an application could read a
	// path in several ways, the path is public only if every reading is. Auth routes
	// are never public. Default: none.
	Public []string `json:"public,omitempty"`

	// Paths that need a recent login, even if they are public. If the login is too
	// old, the answer is `auth.session.invalid` with the reason `too_old`, and
	// `WWW-Authenticate` contains `max_age` (RFC 9470). If several entries match,
	// the shortest time applies. Default: none.
	Fresh []Fresh `json:"fresh,omitempty"`

	// Paths that need a session in which the user gave two factors, even if they are
	// public. With one factor the answer is `auth.session.invalid` with the reason `mfa`,
	// and `WWW-Authenticate` contains `acr_values="mfa"` (RFC 9470). The user gives the
	// missing factor with `POST /{company_code}/v2/stepup`, and the session goes on. A login
	// page asks browsers for it. The syntax is that of the paths of `role`. Default: none.
	MFA []string `json:"mfa,omitempty"`

	// Paths that only accounts with a role may open, even if the paths are public. If
	// several entries match a path, any of their roles is enough. Without a session
	// the answer is the same as on any protected path. With another role it is
	// `auth.session.invalid` with the reason `role`, also for a browser. If readings of
	// a path match different entries, the role must be enough for each. If nobody can
	// list the readings, it must be enough for all entries. A change of an account's
	// role revokes its sessions. Default: none.
	Role []Role `json:"role,omitempty"`
}

// Fresh configures paths that need a recent login.
type Fresh struct {
	// The maximum age of the login, at least 1s.
	Within caddy.Duration `json:"within"`

	// The paths, in the syntax of `public`. They are not case-sensitive, and match
	// with or without a slash at the end. A star at the end is everything below, even
	// if the path has another star.
	Paths []string `json:"paths"`
}

// ParseFresh parses a duration and the paths that it applies to.
func (r *Rules) ParseFresh(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return guest.ErrArguments
	}
	f := Fresh{Paths: args[1:]}
	if err := guest.Duration(&f.Within).Parse(d, args[0]); err != nil {
		return err
	}
	r.Fresh = append(r.Fresh, f)
	return nil
}

// IsPublic reports whether a path needs no token.
func (r *Rules) IsPublic(u *url.URL) bool {
	if len(r.Public) == 0 {
		return false
	}
	ways, all := readAs(u.EscapedPath())
	if !all || r.freshOf(ways, all) > 0 {
		return false
	}
	for _, way := range ways {
		if !slices.ContainsFunc(r.Public, func(pattern string) bool { return Matches(pattern, way) }) {
			return false
		}
	}
	needsRole, _ := r.rolesOf(u)
	return !needsRole && !r.needsMFA(u)
}

// Needs returns what a path needs of a session: the maximum age of its login, or 0 for any
// age, whether a role may open it, and whether it needs two factors. If admits is nil, every
// role may open it. If twice is nil, it does not need two factors.
func (r *Rules) Needs(u *url.URL) (fresh time.Duration, admits func(role string) bool, twice func() bool) {
	if len(r.Fresh) > 0 {
		fresh = r.freshOf(readAs(u.EscapedPath()))
	}
	if len(r.Role) > 0 {
		admits = func(role string) bool {
			needed, roles := r.rolesOf(u)
			return !needed || slices.Contains(roles, role)
		}
	}
	if len(r.MFA) > 0 {
		twice = func() bool { return r.needsMFA(u) }
	}
	return fresh, admits, twice
}

// needsMFA reports whether a path needs two factors in any way to read it, or in one that
// nobody can list.
func (r *Rules) needsMFA(u *url.URL) bool {
	if len(r.MFA) == 0 {
		return false
	}
	ways, all := everyWay(u.EscapedPath())
	return !all || matchAny(r.MFA, ways)
}

// freshOf returns the maximum age of the login that any way to read a path requires,
// or 0 for any age. It takes the result of readAs.
func (r *Rules) freshOf(ways []string, all bool) time.Duration {
	var shortest caddy.Duration
	for _, f := range r.Fresh {
		if (shortest == 0 || f.Within < shortest) && f.appliesTo(ways, all) {
			shortest = f.Within
		}
	}
	return time.Duration(shortest)
}

func (f *Fresh) appliesTo(ways []string, all bool) bool { return !all || matchAny(f.Paths, ways) }

// matchAny reports whether a pattern covers any way to read a path.
func matchAny(patterns, ways []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(ways, func(way string) bool { return covers(pattern, way) })
	})
}

// Cover reports whether each way to read a path is covered by one of the patterns, in exactly
// this case. It says no if nobody can list the ways.
func Cover(patterns []string, u *url.URL) bool {
	ways, all := readAs(u.EscapedPath())
	return all && !slices.ContainsFunc(ways, func(way string) bool {
		return !slices.ContainsFunc(patterns, func(pattern string) bool { return coversAsWritten(pattern, way) })
	})
}

// A Match is an option that matters for a path.
type Match struct {
	Option string
	Nth    int    // which one of this name, from 0
	Value  string // what stands after the name
}

// Matching returns the options that matter for a path.
func (r *Rules) Matching(u *url.URL) (found []Match) {
	add := func(option string, nth int, first string, others []string) {
		found = append(found, Match{option, nth, strings.TrimSpace(first + " " + strings.Join(others, " "))})
	}
	if r.IsPublic(u) {
		add("public", 0, "", r.Public)
	}
	ways, all := readAs(u.EscapedPath())
	for i, f := range r.Fresh {
		if f.appliesTo(ways, all) {
			add("fresh", i, time.Duration(f.Within).String(), f.Paths)
		}
	}
	if r.needsMFA(u) {
		add("mfa", 0, "", r.MFA)
	}
	ways, all = everyWay(u.EscapedPath())
	for i, rule := range r.Role {
		if !all || matchAny(rule.Paths, ways) {
			add("role", i, rule.Role, rule.Paths)
		}
	}
	return found
}

// Patterns returns the paths by option.
func (r *Rules) Patterns() map[string][]string {
	all := map[string][]string{"public": r.Public, "mfa": r.MFA}
	for _, f := range r.Fresh {
		all["fresh"] = append(all["fresh"], f.Paths...)
	}
	for _, rule := range r.Role {
		all["role"] = append(all["role"], rule.Paths...)
	}
	return all
}

// Pattern returns the first pattern of an option that covers a path, however it is read, or "".
func (r *Rules) Pattern(option string, u *url.URL) string {
	ways, _ := everyWay(u.EscapedPath())
	for _, pattern := range r.Patterns()[option] {
		if matchAny([]string{pattern}, ways) {
			return pattern
		}
	}
	return ""
}

// Validate refuses values of public, fresh, mfa and role that cannot be meant.
func (r *Rules) Validate() error {
	for _, given := range []struct {
		option   string
		patterns []string
	}{{"public", r.Public}, {"mfa", r.MFA}} {
		if given.patterns == nil {
			continue
		}
		if err := CheckPatterns(given.patterns); err != nil {
			return guest.Inside(given.option, err)
		}
	}
	for _, f := range r.Fresh {
		if f.Within < caddy.Duration(time.Second) {
			return errors.New("fresh: give a duration of at least 1s, as in fresh 5m /account/*")
		}
		if err := CheckPatterns(f.Paths); err != nil {
			return guest.Inside("fresh", err)
		}
	}
	return r.checkRoles()
}
