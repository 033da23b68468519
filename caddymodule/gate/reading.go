package gate

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
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
	ways, all := paths.Ways(u.EscapedPath())
	if !all || h.freshOf(ways, all) > 0 {
		return false
	}
	for _, way := range ways {
		if !slices.ContainsFunc(h.Public, func(pattern string) bool { return paths.Matches(pattern, way) }) {
			return false
		}
	}
	needsRole, _ := h.rolesOf(u)
	return !needsRole
}

// freshOf returns the maximum age of the login that any way to read a path requires,
// or 0 for any age. It takes the result of paths.Ways.
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
		return slices.ContainsFunc(ways, func(way string) bool { return paths.Covers(pattern, way) })
	})
}

// checkReadings refuses values of public, fresh and role that cannot be meant.
func (h *Handler) checkReadings() error {
	if h.Public != nil {
		if err := paths.Check(h.Public); err != nil {
			return guest.Inside("public", err)
		}
	}
	for _, f := range h.Fresh {
		if f.Within < caddy.Duration(time.Second) {
			return errors.New("fresh: give a duration of at least 1s, as in fresh 5m /account/*")
		}
		if err := paths.Check(f.Paths); err != nil {
			return guest.Inside("fresh", err)
		}
	}
	return h.checkRoles()
}
