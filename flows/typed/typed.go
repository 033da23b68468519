// Package typed reads what people type or paste: codes, phones, emails, login names,
// answers and the tokens of links. Each kind has one normal form, in which texts are
// stored, compared and counted, whichever way they come in.
//
// Passwords are not among them: package password normalises those.
package typed

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/flows/password"
)

// Answer folds the answer to a control question, and replaces each run of spaces with one
// space.
func Answer(s string) string { return strings.Join(strings.Fields(password.Fold(s)), " ") }

// visible removes default-ignorable characters, which nobody sees and nobody can type.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if isIgnorable(r) {
			return -1
		}
		return r
	}, s)
}

// isIgnorable reports whether a character has Unicode's derived property
// Default_Ignorable_Code_Point.
func isIgnorable(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Variation_Selector) &&
		!unicode.In(r, unicode.White_Space, unicode.Prepended_Concatenation_Mark) &&
		!(0xfff9 <= r && r <= 0xfffb) && !(0x13430 <= r && r <= 0x13440)
}

// plain returns a text without the spaces, dashes and invisible characters that people
// and programs put into it. Decimal digits of any script become 0 to 9.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case isIgnorable(r) || unicode.In(r, unicode.White_Space, unicode.Dash):
			return -1
		case unicode.Is(unicode.Nd, r):
			n := rune(0) // Unicode keeps the digits of a script together, from 0 to 9
			for unicode.Is(unicode.Nd, r-n-1) {
				n++
			}
			return '0' + n%10
		}
		return r
	}, norm.NFKC.String(visible(s)))
}

// OTP returns the digits of a one-time code. It reports whether they can be a code of that
// length.
func OTP(s string, length int) (digits string, ok bool) {
	digits = plain(s)
	return digits, len(digits) == length && strings.Trim(digits, "0123456789") == ""
}

var backupCode = regexp.MustCompile(`^[A-Z2-7]{10}$`)

// BackupCode returns a backup code in the form that is hashed. It reports whether that can
// be one: 10 characters of base32.
func BackupCode(s string) (code string, ok bool) {
	code = strings.ToUpper(plain(s))
	return code, backupCode.MatchString(code)
}

// Token returns the token of a link without the white space that mail programs put into
// it.
func Token(s string) string { return strings.Join(strings.Fields(s), "") }
