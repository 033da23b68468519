package password

import (
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Normalize is the form in which passwords are measured and hashed.
func Normalize(s string) string { return norm.NFKC.String(s) }

// Forms are those in which a password is compared: normalised, as hashes
// are made here, and as it was typed, since what was imported may have been made
// of that.
func Forms(typed string) []string {
	return slices.Compact([]string{Normalize(typed), typed})
}

// Fold makes texts equal that a person takes for the same. Folding can undo
// NFKC, so that is applied again.
func Fold(s string) string {
	s = cases.Fold().String(norm.NFKC.String(s))
	s = norm.NFKC.String(strings.Map(foldCherokee, s))
	return strings.TrimSpace(s)
}

// foldCherokee makes up for x/text, which folds Cherokee's capitals to small
// letters and its small letters to capitals. Unicode folds both to capitals.
func foldCherokee(r rune) rune {
	switch {
	case 0xab70 <= r && r <= 0xabbf:
		return r - 0xab70 + 0x13a0
	case 0x13f8 <= r && r <= 0x13fd:
		return r - 8
	}
	return r
}
