package bypass

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// hosted are the routes of a server. There may be thousands of sites, so that not each can look at
// all routes.
type hosted struct {
	routes []hostedRoute
	places map[string][]int // the indexes of the routes for each pattern of hosts; "" is that of all hosts
	shapes map[string]bool  // of the patterns: each label is a star or nothing
}

type hostedRoute struct {
	caddyhttp.Route
	hosts string // as those of a site
	only  bool   // whether it has no other matchers
}

func hostedIn(list caddyhttp.RouteList) hosted {
	h := hosted{places: map[string][]int{}, shapes: map[string]bool{}}
	for _, r := range list {
		r.MatcherSets, r.MatcherSetsRaw = matchersOf(r), nil
		hosts, only, none := hostsOf(r.MatcherSets)
		if none {
			continue
		}
		for pattern := range strings.SplitSeq(hosts, ", ") {
			h.places[pattern] = append(h.places[pattern], len(h.routes))
			h.shapes[shapeOf(pattern)] = true
		}
		h.routes = append(h.routes, hostedRoute{r, hosts, only})
	}
	return h
}

// covering returns the indexes of the routes that all of these hosts match.
func (h hosted) covering(hosts []string) []int {
	matched := map[int]int{}
	for _, host := range hosts {
		found := slices.Clone(h.places[""])
		for shape := range h.shapes {
			if host != "" && strings.Count(host, ".") == strings.Count(shape, ".") {
				found = append(found, h.places[shaped(host, shape)]...)
			}
		}
		slices.Sort(found)
		for _, i := range slices.Compact(found) {
			matched[i]++
		}
	}
	maps.DeleteFunc(matched, func(_, n int) bool { return n < len(hosts) })
	return slices.Sorted(maps.Keys(matched))
}

// of returns the routes that all requests of a site come to, in their order, and which of them are
// for more hosts. It removes the matchers of the site's hosts, and what comes after the site's own
// routes and one that ends all.
func (h hosted) of(site string) (routes caddyhttp.RouteList, wider map[int]bool) {
	own, ended := 0, 0 // how many routes there are up to the site's last one, and to the one that ends all
	wider = map[int]bool{}
	hosts := strings.Split(site, ", ")
	for _, i := range h.covering(hosts) {
		r := h.routes[i]
		if r.only {
			r.MatcherSets = nil
		} else if site != "" {
			var none bool
			if r.MatcherSets, none = within(r.MatcherSets, hosts); none {
				continue
			}
		}
		wider[len(routes)] = r.hosts != site
		if routes = append(routes, r.Route); r.hosts == site {
			own = len(routes)
		}
		if ended == 0 && r.only && r.Terminal && r.Group == "" {
			ended = len(routes)
		}
	}
	return routes[:max(own, cmp.Or(ended, len(routes)))], wider
}

// hostsOf returns the hosts that matchers match, or nothing if these are all, whether there are no
// other matchers, and whether no request can match, because the lists of hosts are empty.
func hostsOf(sets caddyhttp.MatcherSets) (hosts string, only, none bool) {
	var named []string
	all := sets == nil
	only = true
	for _, set := range sets {
		i := slices.IndexFunc(set, isHost)
		if i < 0 {
			all, only = true, only && len(set) == 0
			continue
		}
		named, only = append(named, patternsOf(set[i].(*caddyhttp.MatchHost))...), only && len(set) == 1
	}
	if all {
		return "", only, false
	}
	slices.Sort(named)
	return strings.Join(slices.Compact(named), ", "), only, named == nil
}

// within returns what is left of matchers for requests to these hosts: nothing if all match. With
// none, no request can match.
func within(sets caddyhttp.MatcherSets, hosts []string) (left caddyhttp.MatcherSets, none bool) {
	for _, set := range sets {
		var unknown caddyhttp.MatcherSet
		never := false
		for _, m := range set {
			always, not := judged(m, hosts)
			if never = never || not; !always {
				unknown = append(unknown, m)
			}
		}
		switch {
		case never:
		case unknown == nil:
			return nil, false
		default:
			left = append(left, unknown)
		}
	}
	return left, left == nil
}

// judged reports whether a matcher matches all or none of the requests to these hosts.
func judged(matcher any, hosts []string) (all, none bool) {
	switch m := matcher.(type) {
	case *caddyhttp.MatchHost:
		all, none = true, true
		patterns := patternsOf(m)
		for _, host := range hosts {
			all = all && slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, host) })
			none = none && !slices.ContainsFunc(patterns, func(pattern string) bool { return overlap(pattern, host) })
		}
	case *caddyhttp.MatchNot:
		left, never := within(m.MatcherSets, hosts)
		all, none = never, left == nil && !never
	}
	return all, none
}

// overlap reports whether a host may match both patterns. Caddy replaces placeholders in them.
func overlap(a, b string) bool {
	if strings.Contains(a+b, "{") {
		return true
	}
	return slices.EqualFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) bool { return a == b || a == "*" || b == "*" })
}

// covers reports whether a pattern matches all hosts that another one matches.
func covers(pattern, host string) bool {
	return strings.Count(host, ".") == strings.Count(pattern, ".") && shaped(host, shapeOf(pattern)) == pattern
}

// patternsOf returns the patterns of a matcher, as those of a site.
func patternsOf(m *caddyhttp.MatchHost) []string {
	patterns := slices.Clone(*m)
	for i, pattern := range patterns {
		patterns[i] = strings.ToLower(pattern)
	}
	return patterns
}

func isHost(matcher any) bool { _, is := matcher.(*caddyhttp.MatchHost); return is }

func shapeOf(pattern string) string {
	labels := strings.Split(pattern, ".")
	for i, label := range labels {
		if label != "*" {
			labels[i] = ""
		}
	}
	return strings.Join(labels, ".")
}

// shaped returns the pattern of a shape that would match a host.
func shaped(host, shape string) string {
	labels := strings.Split(host, ".")
	for i, star := range strings.Split(shape, ".") {
		labels[i] = cmp.Or(star, labels[i])
	}
	return strings.Join(labels, ".")
}
