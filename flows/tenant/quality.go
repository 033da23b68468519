package tenant

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// MaxPassword is the maximum length of a password in characters, as in the routes that
// accept one.
const MaxPassword = 128

// SoleMinLength is the minimum length of a password that is the only protection of an
// account (NIST SP 800-63B-4, section 3.1.1.2).
const SoleMinLength = 15

// PasswordQuality describes the rules for a new password.
type PasswordQuality struct {
	// What some part of a new password must match, in RE2 syntax; null if there is no such rule.
	Regex *string `json:"password_regex"`
	// All rules for a new password, in English, then the operator's text.
	Description string `json:"password_regex_description"`
}

// A rule is a condition on new passwords.
type rule struct {
	reason wire.Reason
	text   string                     // for the user
	broken func(password string) bool // whether a password, as it was typed, breaks it
}

// rules returns the rules for a new password of the account. The first text also tells the
// maximum length, which CheckPassword checks.
func (c *Company) rules(a record.Account) []rule {
	p := &c.Password
	least, because := p.MinLength, ""
	if c.Hardened && !c.NeedsSecondFactor(a) && least < SoleMinLength {
		least, because = SoleMinLength, ", because the account has no second factor"
	}
	rules := []rule{
		{
			wire.PasswordTooShort, fmt.Sprintf("%d to %d characters%s.", least, MaxPassword, because),
			func(wanted string) bool { return password.Length(wanted) < least },
		},
		{
			wire.PasswordCommon, "Not a commonly used password.",
			func(wanted string) bool {
				return password.IsRepeated(wanted) || cmp.Or(c.Blocklist, password.Common()).Contains(wanted)
			},
		},
		{
			wire.PasswordPersonal, "Not just the account's own login ids or the company's name.",
			func(wanted string) bool { return password.MadeOf(wanted, c.ownWords(a)) },
		},
	}
	if c.Regex == nil {
		return rules
	}
	text := strings.TrimSuffix(cmp.Or(p.RegexDescription, "Matches the pattern "+p.Regex), ".") + "."
	return append(rules, rule{wire.PasswordPattern, text, func(wanted string) bool { return !c.Regex.MatchString(password.Normalize(wanted)) }})
}

// breachedText is the rule that a new password must not be in the list of Breached.
const breachedText = "Not a password that is known from a data breach."

// BreachedRule is an error of CheckPassword for a password in the list of Breached.
func BreachedRule(field string) error {
	return &RuleError{field, wire.PasswordBreached, breachedText}
}

// A RuleError says which rule a new password breaks. Its text is for backends, and that of
// the wire.Refusal in it for the user's own client.
type RuleError struct {
	Field  string
	Reason wire.Reason
	Text   string
}

func (e *RuleError) Error() string { return e.Field + ": it does not meet a rule: " + e.Text }

// Unwrap returns a *wire.Refusal of wire.ErrQuality.
func (e *RuleError) Unwrap() error {
	return &wire.Refusal{Err: wire.ErrQuality, Message: e.Field + " does not meet a rule: " + e.Text, Reason: e.Reason}
}

// CheckPassword applies the rules to a new password of the account, as it was typed into
// field. The error is a *RuleError for the first rule that is broken. Also call
// session.Passwords.RefuseBreached.
func (c *Company) CheckPassword(field, typed string, a record.Account) error {
	if utf8.RuneCountInString(typed) > MaxPassword {
		return &RuleError{field, wire.PasswordTooLong, fmt.Sprintf("At most %d characters.", MaxPassword)}
	}
	for _, r := range c.rules(a) {
		if r.broken(typed) {
			return &RuleError{field, r.reason, r.text}
		}
	}
	return nil
}

// Quality describes the rules for a new password of the account.
func (c *Company) Quality(a record.Account) *PasswordQuality {
	quality := &PasswordQuality{}
	if c.Regex != nil {
		quality.Regex = &c.Password.Regex
	}
	var texts []string
	for _, r := range c.rules(a) {
		texts = append(texts, r.text)
	}
	if c.Breached.List != nil {
		texts = append(texts, breachedText)
	}
	quality.Description = strings.Join(texts, " ")
	return quality
}

// ownWords returns what a guesser who knows the account tries first.
func (c *Company) ownWords(a record.Account) []string {
	local, _, _ := strings.Cut(a.Email, "@")
	words := []string{c.Code, c.Name, a.Mnemocode, a.Email, local, a.LoginName}
	// People also use the national number, which lacks a country code of one to
	// three digits, or the last seven digits.
	phone := strings.TrimPrefix(a.Phone, "+")
	for ; len(phone) >= 7; phone = phone[1:] {
		words = append(words, phone)
	}
	return words
}
