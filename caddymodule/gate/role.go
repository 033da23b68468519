package gate

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// Role configures paths that need an account with a role.
type Role struct {
	// The role, exactly as the accounts have it.
	Role string `json:"role"`

	// The paths, in the syntax of `public`. They are not case-sensitive, and match
	// with or without a slash at the end.
	Paths []string `json:"paths"`
}

// parseRole parses a role and the paths that it may open.
func (h *Handler) parseRole(d *caddyfile.Dispenser) func() error {
	return func() error {
		args := d.RemainingArgs()
		if len(args) < 2 {
			return d.ArgErr()
		}
		h.Role = append(h.Role, Role{Role: args[0], Paths: args[1:]})
		return nil
	}
}

// requirement returns what a path requires of a session.
func (h *Handler) requirement(u *url.URL) session.Requirement {
	want := session.Requirement{Among: h.Companies, Whole: h.whole}
	if len(h.Fresh) > 0 {
		want.Fresh = h.freshOf(paths.Ways(u.EscapedPath()))
	}
	if len(h.Role) > 0 {
		want.Admits = func(role string) bool {
			needed, roles := h.rolesOf(u)
			return !needed || slices.Contains(roles, role)
		}
	}
	return want
}

// rolesOf returns whether a path needs a role, and the escaped roles that may open it
// in each way to read it that some rule is about.
func (h *Handler) rolesOf(u *url.URL) (needed bool, roles []string) {
	if len(h.Role) == 0 {
		return false, nil
	}
	// narrow removes the roles without a pattern that matches, unless no role has one.
	narrow := func(matches func(pattern string) bool) {
		var allowed []string
		for _, r := range h.Role {
			if slices.ContainsFunc(r.Paths, matches) {
				allowed = append(allowed, record.EscapeProfile(r.Role))
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
	ways, all := paths.EveryWay(u.EscapedPath())
	for _, way := range ways {
		narrow(func(pattern string) bool { return paths.Covers(pattern, way) })
	}
	if !all { // it may be any path of any rule
		for _, r := range h.Role {
			for _, p := range r.Paths {
				narrow(func(pattern string) bool { return paths.Includes(pattern, p) })
			}
		}
	}
	return needed, roles
}

// checkRoles refuses rules that cannot be meant.
func (h *Handler) checkRoles() error {
	for i, r := range h.Role {
		if r.Role == "" || strings.HasPrefix(r.Role, "/") || strings.HasPrefix(r.Role, "*") {
			return fmt.Errorf("role: %q is not a role; write the role before its paths, as in role admin /admin/*", r.Role)
		}
		if strings.ContainsAny(r.Role, "{}") {
			return errors.New("role: placeholders are not replaced here; write the role as the accounts have it")
		}
		if err := paths.Check(r.Paths); err != nil {
			return guest.Inside("role", err)
		}
		for j, p := range r.Paths {
			if slices.Contains(r.Paths[:j], p) || slices.ContainsFunc(h.Role[:i], func(other Role) bool { return other.Role == r.Role && slices.Contains(other.Paths, p) }) {
				return fmt.Errorf("role: %s has %s twice; remove one", r.Role, p)
			}
		}
	}
	return nil
}
