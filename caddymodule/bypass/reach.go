package bypass

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
)

// A reach describes the requests that come to one point of the routes.
type reach struct {
	open    bool                  // some have not passed mnemogate
	guarded bool                  // some have passed it
	matched caddyhttp.MatcherSets // the matchers that separated the guarded ones from the others
	sure    bool                  // the others certainly exist: no matchers came since
	gate    Gate                  // the gate of the guarded ones; nil for failed requests, which may have passed any
	way     way                   // the way to this point
	since   int                   // how many of its steps come before the gate
	bends   []way                 // the ways of some from the gate to a rewrite
	groups  []string              // the groups of which all have taken a route: Caddy skips other routes of the same name
	skipped bool                  // whether Caddy skips this point
	end     string                // if none come: the handler that answered them, if one did
	ended   bool                  // if none come: whether those that it answered had passed mnemogate
}

func (a reach) none() bool { return !a.open && !a.guarded }

func (a reach) mixed() bool { return a.open && a.guarded }

// failed reports whether the requests have failed, and no gate came since.
func (a reach) failed() bool { return a.guarded && a.gate == nil }

// endedBy returns the reach after a handler that passes nothing on.
func (a reach) endedBy(handler string) reach {
	if a.none() {
		return a
	}
	return reach{end: handler, ended: !a.open}
}

// bend follows a rewrite.
func (a *reach) bend(h *rewrite.Rewrite) {
	if y := a.way.rewritten(h); len(y) > len(a.way) {
		a.way, a.bends = y, append(slices.Clip(a.bends), y[a.since:])
	}
}

// join merges two reaches.
func join(a, b reach) reach {
	if a.none() && (a.end == "" || !b.none()) {
		return b
	}
	if b.none() {
		return a
	}
	joined := reach{
		open:    a.open || b.open,
		guarded: a.guarded || b.guarded,
		sure:    a.open && a.sure || b.open && b.sure,
		gate:    cmp.Or(a.gate, b.gate),
		way:     a.way.common(b.way),
		bends: append(slices.Clip(a.bends), slices.DeleteFunc(slices.Clone(b.bends), func(y way) bool {
			return slices.ContainsFunc(a.bends, func(z way) bool { return reflect.DeepEqual(y, z) })
		})...),
		groups:  slices.DeleteFunc(slices.Clone(a.groups), func(g string) bool { return !slices.Contains(b.groups, g) }),
		skipped: a.skipped && b.skipped,
	}
	joined.since = min(max(a.since, b.since), len(joined.way))
	switch {
	case !b.guarded, a.guarded && reflect.DeepEqual(a.matched, b.matched):
		joined.matched = a.matched
	case !a.guarded:
		joined.matched = b.matched
	}
	return joined
}
