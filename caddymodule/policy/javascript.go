package policy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// unlikeJavaScript returns the first part of an RE2 expression that JavaScript
// refuses or reads differently, or "". It compares with `new RegExp(re)` without
// flags (ECMA-262, 22.2.1 and B.1.2). It ignores two differences: the dot of
// JavaScript matches no line end, and matches half of a character beyond U+FFFF.
// Most expressions have a dot, and these differences hardly ever matter for
// passwords.
func unlikeJavaScript(re string) string {
	inClass, assertion := false, ""
	for re != "" {
		tokens := re2Tokens
		if inClass {
			tokens = re2ClassTokens
		}
		token := tokens.FindString(re)
		if otherwise.MatchString(token) || !inClass && otherwiseOutside.MatchString(token) {
			return token
		}
		if assertion != "" && repetition.MatchString(token) {
			return assertion + token
		}
		assertion = ""
		switch {
		case inClass:
			inClass = token != "]"
		case token[0] == '[':
			inClass = true
		case token == "^", token == "$", token == `\b`, token == `\B`:
			assertion = token
		}
		re = re[len(token):]
	}
	return ""
}

const re2Escape = `\\[pP]\{.*?\}|\\[pP].|\\x\{.*?\}|\\x..|\\[0-7]{1,3}|\\.`

var (
	// re2Tokens matches the next token of an expression that RE2 takes.
	re2Tokens      = regexp.MustCompile(`^(?s:` + re2Escape + `|\[\^?\]?|\(\?P?<.*?>|\(\?[a-zA-Z-]*[:)]|\{[0-9]+,?[0-9]*\}|.)`)
	re2ClassTokens = regexp.MustCompile(`^(?s:` + re2Escape + `|\[:\^?[a-z]+:\]|.)`)

	// otherwise matches tokens that JavaScript reads differently: escapes (a digit
	// may refer to a group), POSIX classes, and characters that are two code units
	// in JavaScript.
	otherwise = regexp.MustCompile(`^(\\[1-9AaPpQsSz]|\\x\{|\[:|[\x{10000}-\x{10ffff}])`)
	// otherwiseOutside matches such tokens outside of classes: groups other than (?:
	// and (?<name>, and a ] at the beginning of a class, which is literal in RE2.
	otherwiseOutside = regexp.MustCompile(`^(\(\?[^:<]|\(\?<[0-9]|\[\^?\])`)
	repetition       = regexp.MustCompile(`^([*+?]|\{.+)$`)
)

// WeakRegex reports on the policy's own expression, which companies may inherit.
func (p *Policy) WeakRegex() (found []guest.Weakness) {
	if part := unlikeJavaScript(p.Password.Regex); part != "" {
		found = append(found, guest.Weakness{
			Message: fmt.Sprintf("JavaScript can't read %s or reads it differently, so clients that check new passwords with it are wrong", part),
			Advice:  `write what both read alike, as in [0-9] for \pN, [A-Za-z] for (?i)[a-z], [^ ] for \S, ^ and $ for \A and \z`,
		})
	}
	if re, err := compile(p.Password.Regex); err == nil && re != nil {
		for _, all := range [][2]string{{"small letters and spaces", "a passphrase "}, {"capital letters", "ABCDEFGH"}, {"digits", "0192837465"}, {"symbols", "~!@#$%^&*()_+"}} {
			if !re.MatchString(strings.Repeat(all[1], 8)[:64]) {
				return append(found, guest.Weakness{
					Message: "it refuses even 64 " + all[0] + ", but NIST SP 800-63B-4, section 3.1.1.2, forbids rules on what passwords are made of",
					Advice:  "remove it, and raise min_length instead",
				})
			}
		}
	}
	return found
}
