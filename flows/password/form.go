package password

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
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

// Fold maps texts that look the same to people to one text. Folding can undo NFKC, so
// Fold applies NFKC again.
func Fold(s string) string {
	s = cases.Fold().String(norm.NFKC.String(s))
	s = norm.NFKC.String(strings.Map(foldCherokee, s))
	return strings.TrimSpace(s)
}

// foldCherokee corrects x/text, which swaps the case of Cherokee letters. Unicode folds
// both cases to capitals.
func foldCherokee(r rune) rune {
	switch {
	case 0xab70 <= r && r <= 0xabbf:
		return r - 0xab70 + 0x13a0
	case 0x13f8 <= r && r <= 0x13fd:
		return r - 8
	}
	return r
}
