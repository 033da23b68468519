package paths

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
)

// Role configures paths that need an account with a role.
type Role struct {
	// The role, exactly as the accounts have it.
	Role string `json:"role"`

	// The paths, in the syntax of `public`. They are not case-sensitive, and match
	// with or without a slash at the end. A star at the end is everything below, even
	// if the path has another star.
	Paths []string `json:"paths"`
}

// ParseRole parses a role and the paths that it may open.
func (r *Rules) ParseRole(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return guest.ErrArguments
	}
	r.Role = append(r.Role, Role{Role: args[0], Paths: args[1:]})
	return nil
}

// rolesOf returns whether a path needs a role, and the escaped roles that may open each
// reading of it that matches a rule.
func (r *Rules) rolesOf(u *url.URL) (needed bool, roles []string) {
	if len(r.Role) == 0 {
		return false, nil
	}
	// narrow removes the roles without a pattern that matches, unless no role has one.
	narrow := func(matches func(pattern string) bool) {
		var allowed []string
		for _, rule := range r.Role {
			if slices.ContainsFunc(rule.Paths, matches) {
				allowed = append(allowed, record.EscapeProfile(rule.Role))
			}
		}
		switch {
		case allowed == nil:
		case !needed:
			needed, roles = true, allowed
		default:
			roles = slices.DeleteFunc(roles, func(role string) bool { return !slices.Contains(allowed, role) })
		}
	}
	ways, all := everyWay(u.EscapedPath())
	for _, way := range ways {
		narrow(func(pattern string) bool { return covers(pattern, way) })
	}
	if !all { // it may be any path of any rule
		for _, rule := range r.Role {
			for _, p := range rule.Paths {
				narrow(func(pattern string) bool { return includes(pattern, p) })
			}
		}
	}
	return needed, roles
}

// checkRoles refuses rules that cannot be meant.
func (r *Rules) checkRoles() error {
	for i, rule := range r.Role {
		if rule.Role == "" || strings.HasPrefix(rule.Role, "/") || strings.HasPrefix(rule.Role, "*") {
			return fmt.Errorf("role: %q is not a role; write the role before its paths, as in role admin /admin/*", rule.Role)
		}
		if err := guest.CheckNoPlaceholder(rule.Role, "write the role as the accounts have it"); err != nil {
			return guest.Inside("role", err)
		}
		if err := CheckPatterns(rule.Paths); err != nil {
			return guest.Inside("role", err)
		}
		for j, p := range rule.Paths {
			if slices.Contains(rule.Paths[:j], p) || slices.ContainsFunc(r.Role[:i], func(other Role) bool { return other.Role == rule.Role && slices.Contains(other.Paths, p) }) {
				return fmt.Errorf("role: %s has %s twice; remove one", rule.Role, p)
			}
		}
	}
	return nil
}
