package password

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const minOwnWord = 2 // a single letter is no word

// MaxExtra is how many characters besides MadeOf's words leave a password easy to
// guess: for example a year and two signs.
const MaxExtra = 6

// MadeOf reports whether the password consists only of words and up to MaxExtra
// characters that are not letters. words are what a guesser who knows the account tries
// first; they may appear in any number and order. MadeOf ignores case, and spaces and
// punctuation inside the password.
func MadeOf(password string, words []string) bool {
	for i, word := range words {
		words[i] = squeeze(Fold(word))
	}
	// Replace tries longer words first: an email address before its local part.
	slices.SortFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var removed []string
	for _, word := range words {
		if utf8.RuneCountInString(word) >= minOwnWord {
			removed = append(removed, word, "")
		}
	}
	password = Fold(password)
	inner := strings.TrimFunc(password, isSeparator)
	extra := utf8.RuneCountInString(password) - utf8.RuneCountInString(inner)
	inner = squeeze(inner)
	rest := strings.NewReplacer(removed...).Replace(inner)
	return rest != inner && extra+utf8.RuneCountInString(rest) <= MaxExtra && !strings.ContainsFunc(rest, unicode.IsLetter)
}

// squeeze removes everything except letters and digits.
func squeeze(s string) string { return strings.Join(strings.FieldsFunc(s, isSeparator), "") }

func isSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }
