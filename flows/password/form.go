package password

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Normalize returns the form of a password that is hashed.
func Normalize(s string) string { return norm.NFKC.String(s) }

// Forms returns the forms in which a password is compared with a hash: normalised, which
// is how mnemogate hashes, and as typed, which other systems may have hashed.
func Forms(typed string) []string {
	return slices.Compact([]string{Normalize(typed), typed})
}

// Length returns the length of a password in characters. NFKC can turn one character into
// many, which add nothing to guess.
func Length(typed string) int {
	return min(utf8.RuneCountInString(typed), utf8.RuneCountInString(Normalize(typed)))
}
