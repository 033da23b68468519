// Package routes finds the route of a request in a table.
package routes

import (
	"slices"
	"strings"
)

// Find returns the route of a method and of the segments of a path, and the path's
// parameters. If the path has only other methods, allow lists them as in the header Allow.
func Find[R any](table []R, of func(*R) (method, pattern string), method string, path []string) (route *R, params map[string]string, allow string) {
	var others []string
	for i := range table {
		has, pattern := of(&table[i])
		params, ok := Match(pattern, path)
		if ok && has == method {
			return &table[i], params, ""
		}
		if ok {
			others = append(others, has)
		}
	}
	slices.Sort(others)
	return nil, nil, strings.Join(others, ", ")
}

// Match reports whether a path fits a pattern, in which a name in braces stands for any one
// segment that is not empty. It returns these segments by their names.
func Match(pattern string, path []string) (params map[string]string, ok bool) {
	params = map[string]string{}
	return params, slices.EqualFunc(strings.Split(pattern, "/"), path, func(p, segment string) bool {
		name, braced := strings.CutPrefix(p, "{")
		if !braced {
			return p == segment
		}
		params[strings.TrimSuffix(name, "}")] = segment
		return segment != ""
	})
}
