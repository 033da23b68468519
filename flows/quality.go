package flows

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hardenedMinLength is for passwords that are all that protects an account
// (NIST SP 800-63B-4, section 3.1.1.2).
const hardenedMinLength = 15

// checkQuality refuses a new password, normalised, with a sentence that says
// which rule it breaks.
func (c *Company) checkQuality(password string, a Account) error {
	weak := func(format string, args ...any) error {
		return &Refusal{Err: ErrQuality, Message: fmt.Sprintf(format, args...)}
	}
	policy := c.Password
	length := utf8.RuneCountInString(password)
	alone := c.SecondFactor != SecondFactorRequired && (c.SecondFactor != SecondFactorPerAccount || !a.SecondFactor)
	switch {
	case length < policy.MinLength:
		return weak("new_password is too short; use at least %d characters.", policy.MinLength)
	case c.Hardened && alone && length < hardenedMinLength:
		return weak("new_password is too short; use at least %d characters, since the account has no second factor.", hardenedMinLength)
	case policy.Blocklist.Contains(password):
		return weak("new_password is one that many people use, and so one of the first to be tried; choose another.")
	case madeOf(password, c.ownWords(a)):
		return weak("new_password is made of the account's own login ids or the company's name; choose something else.")
	case policy.Regex == nil || policy.Regex.MatchString(password):
		return nil
	case policy.RegexDescription != "":
		return weak("new_password does not match password_regex: %s", policy.RegexDescription)
	}
	return weak("new_password does not match password_regex; choose one that does.")
}

// ownWords are what a guesser who knows the account tries first.
func (c *Company) ownWords(a Account) []string {
	local, _, _ := strings.Cut(a.Email, "@")
	words := []string{c.Code, a.Mnemocode, a.Email, local, a.LoginName}
	// A phone is also known by its national number, which is shorter by a
	// country code of one to three digits, or by its last seven.
	phone := strings.TrimPrefix(a.Phone, "+")
	for ; len(phone) >= 7; phone = phone[1:] {
		words = append(words, phone)
	}
	return words
}

const (
	minOwnWord = 4 // shorter words occur in good passwords by chance
	maxExtra   = 6 // a year and two signs, say
)

// madeOf reports whether nothing but words, in any number and order, and up to
// maxExtra characters that are no letters make up the password. It overlooks
// case, and spaces and punctuation within the password.
func madeOf(password string, words []string) bool {
	for i, word := range words {
		words[i] = squeeze(fold(word))
	}
	// The first that matches is taken: an email address before its local part.
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	var removed []string
	for _, word := range words {
		if utf8.RuneCountInString(word) >= minOwnWord {
			removed = append(removed, word, "")
		}
	}
	password = fold(password)
	inner := strings.TrimFunc(password, isSeparator)
	extra := utf8.RuneCountInString(password) - utf8.RuneCountInString(inner)
	inner = squeeze(inner)
	rest := strings.NewReplacer(removed...).Replace(inner)
	return rest != inner && extra+utf8.RuneCountInString(rest) <= maxExtra && !strings.ContainsFunc(rest, unicode.IsLetter)
}

// squeeze leaves letters and digits.
func squeeze(s string) string { return strings.Join(strings.FieldsFunc(s, isSeparator), "") }

func isSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }
