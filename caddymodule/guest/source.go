package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// A Source maps a directive (the empty key) and each option in its block to the
// position in the Caddyfile, as `file:line`. A key lists the names of the options
// from the outside in, such as `company acme mail from`. It is nil for a
// configuration in JSON.
type Source map[string]string

// named lists the repeatable options whose first argument distinguishes them. Keys
// contain no other arguments, since these may be secrets. A key has a name only at the
// outermost level.
var named = map[string]bool{"company": true, "disclaimer": true, "oauth": true, "account": true, "key": true, "header": true}

// numbered lists the options that may stand several times and have no name. See Nth.
var numbered = map[string]bool{"fresh": true, "role": true, "login_page": true, "sms": true, "mail": true, "fixed": true}

// Nth names the option at index i of those with one name. From the second on, it has the
// number after the name, as in `role 2`.
func Nth(option string, i int) string {
	if i == 0 {
		return option
	}
	return fmt.Sprint(option, " ", i+1)
}

// SourceOf reads the positions of a directive. d must begin with its first token.
func SourceOf(d *caddyfile.Dispenser) Source {
	defer d.Reset()
	d.Next()
	s := Source{"": line(d)}
	d.RemainingArgs()
	s.read(d, "")
	return s
}

func line(d *caddyfile.Dispenser) string { return fmt.Sprintf("%s:%d", d.File(), d.Line()) }

func (s Source) read(d *caddyfile.Dispenser, outer string) {
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name, at := d.Val(), line(d)
		option := strings.TrimSpace(outer + " " + name)
		key := option
		for i := 1; numbered[name] && s[key] != ""; i++ {
			key = Nth(option, i)
		}
		s.add(key, at)
		if args := d.RemainingArgs(); named[name] && len(args) > 0 && !(name == "key" && outer != "") {
			key += " " + args[0]
			s.add(key, at)
		}
		s.read(d, key)
	}
}

// add keeps the first position of a repeated option.
func (s Source) add(key, at string) {
	if s[key] == "" {
		s[key] = at
	}
}

// Line returns the position of the option that a text is about. The text names the
// options from the outside in, as our errors do. Line skips other words.
func (s Source) Line(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" :;,", r) })
	key := s.descend(words)
	if strings.HasPrefix(key, "company ") && strings.Count(key, " ") == 1 {
		// The company inherits the option, if one is named.
		if inherited := s.descend(words[2:]); inherited != "" {
			key = inherited
		}
	}
	return s[key]
}

func (s Source) descend(words []string) (key string) {
	for i, word := range words {
		next := strings.TrimSpace(key + " " + word)
		if i+1 < len(words) && s[next+" "+words[i+1]] != "" {
			key = next + " " + words[i+1]
		} else if s[next] != "" {
			key = next
		}
	}
	return key
}

// At adds advice, and the position if it is known, to an error that begins with the names of options.
func (s Source) At(err error) error {
	if err == nil {
		return nil
	}
	advice := adviceOn(err)
	if at := s.Line(err.Error()); at != "" {
		advice += ", at " + at
	}
	return fmt.Errorf("%w%s", err, advice)
}

// adviceOn says what to do if err tells of a file that can't be read.
func adviceOn(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "; correct the path"
	case errors.Is(err, fs.ErrPermission):
		return "; let Caddy's user read it"
	}
	return ""
}

// ReadFile reads a file that an option names. Its error has the advice of Source.At, because
// of the error of a plugin Caddy keeps only the text.
func ReadFile(name string) ([]byte, error) {
	if err := CheckPath(name); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, errors.New(err.Error() + adviceOn(err))
	}
	return content, nil
}

// CheckPath refuses a path with placeholders.
func CheckPath(name string) error { return CheckNoSecret(name, "write the path itself") }
