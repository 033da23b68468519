package guest

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/store/causes"
)

// placeholderOnly matches a secret that consists of one placeholder. An error may
// then quote it.
var placeholderOnly = regexp.MustCompile(`^\{(env\.\w+|file\.[^{}]+)\}$`)

// shellVariable matches a variable that a shell would replace but Caddy does not.
var shellVariable = regexp.MustCompile(`^(\$\{\w+\}|\$[A-Z][A-Z0-9_]*|%\w+%)$`)

// CheckReplaced refuses a secret that is the name of a shell variable and not its
// value.
func CheckReplaced(s string) error {
	if shellVariable.MatchString(s) {
		return errors.New("it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME")
	}
	return nil
}

// CheckSecret refuses a secret with a control character or a byte order mark. These come
// from editors and commands, such as a line break at the end of a file or variable.
func CheckSecret(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\ufeff' }) {
		return errors.New("it has a line break, a byte order mark or another control character in it; remove that, for example by writing it with printf %s")
	}
	return nil
}

// pemBlock begins the only secrets that have lines.
const pemBlock = "-----BEGIN "

// ResolveInto replaces {env.NAME} and {file.PATH} in the secret s of the directive what, and
// calls CheckSecret. The error names the directive and contains nothing secret. It quotes s
// only if s is one placeholder: in anything else, a part that looks like a placeholder may
// be part of a password.
func ResolveInto(what string, s *string) error {
	if err := CheckReplaced(*s); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	resolved, err := caddy.NewReplacer().ReplaceOrErr(*s, true, true)
	switch {
	case err != nil && placeholderOnly.MatchString(*s):
		return fmt.Errorf("%s: %s %s", what, *s, emptiness(*s))
	case err != nil:
		return fmt.Errorf(`%s: a placeholder in it is unknown or is empty; write {env.NAME} or {file.PATH}, and \{ for a brace`, what)
	}
	if !strings.HasPrefix(resolved, pemBlock) {
		if err := CheckSecret(resolved); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	*s = resolved
	return nil
}

// emptiness says why a placeholder has no value.
func emptiness(placeholder string) string {
	kind, name, _ := strings.Cut(strings.Trim(placeholder, "{}"), ".")
	if kind == "env" {
		if _, set := os.LookupEnv(name); !set {
			return "is not set; set the variable, also for caddy validate"
		}
		return "is empty; give the variable its value"
	}
	if _, err := os.ReadFile(name); err != nil {
		return "can't be read (" + err.Error() + "); correct the path from the root, and let the user that Caddy runs as read the file"
	}
	return "is empty; write the secret into the file"
}

// maxQuoted limits how much of another server's text a log line contains.
const maxQuoted = 300

// Scrub makes another server's text safe for a log line: it removes the secrets, quotes what
// can't be shown and cuts the text after 300 bytes.
func Scrub(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "(removed)")
		}
	}
	text = causes.Printable(text)
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "…"
	}
	return text
}
