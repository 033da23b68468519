package integration

import (
	"slices"
	"strings"
)

// mistakable returns what a lenient backend may make of a header's name.
func mistakable(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// linesNamed returns the header and trailer lines of a raw request whose name a
// backend might mistake for one of names.
func linesNamed(raw string, names ...string) []string {
	guarded := map[string]bool{}
	for _, name := range names {
		guarded[mistakable(name)] = true
	}
	var found []string
	for line := range strings.SplitSeq(raw, "\r\n") {
		if name, _, ok := strings.Cut(line, ":"); ok && guarded[mistakable(name)] {
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return found
}

// spellings returns names that might be mistaken for a header's name. They have
// other characters in place of one or all dashes, and other letter cases.
func spellings(name string) []string {
	all := []string{name, strings.ToLower(name), strings.ToUpper(name)}
	for _, c := range "!#$%&'*+.^_`|~-" {
		all = append(all, strings.ReplaceAll(name, "-", string(c)), strings.Replace(name, "-", string(c), 1),
			strings.ToUpper(strings.ReplaceAll(name, "-", string(c))))
	}
	return all
}
