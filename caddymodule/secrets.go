package caddymodule

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"
)

// placeholderOnly matches a secret that is nothing but a placeholder, so that
// an error may name it.
var placeholderOnly = regexp.MustCompile(`^\{(env\.\w+|file\.[^{}]+)\}$`)

// resolveSecret replaces {env.NAME} and {file.PATH} in s, which the directive
// what was given. The error names the directive and never the value: even a
// part of it that only looks like a placeholder may be a part of a password.
func resolveSecret(what, s string) (string, error) {
	resolved, err := caddy.NewReplacer().ReplaceOrErr(s, true, true)
	switch {
	case err == nil:
		return resolved, nil
	case placeholderOnly.MatchString(s):
		return "", fmt.Errorf("%s: %s stands for nothing; set the variable or fill the file", what, s)
	default:
		return "", fmt.Errorf(`%s: a placeholder in it is unknown or stands for nothing; write a brace that is meant as such \{`, what)
	}
}

// resolveInto replaces a secret by what resolveSecret makes of it.
func resolveInto(what string, s *string) error {
	resolved, err := resolveSecret(what, *s)
	if err == nil {
		*s = resolved
	}
	return err
}

// maxQuoted bounds what a log line tells of a stranger's words.
const maxQuoted = 300

// scrub makes what a stranger said fit for a log line: without the secrets,
// on one line, and short.
func scrub(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "(removed)")
		}
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "…"
	}
	return text
}
