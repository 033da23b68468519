package guest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// maxTimeout is the longest timeout for a call to another server.
const maxTimeout = caddy.Duration(time.Minute)

// CheckTimeout refuses a timeout that is negative or above 1m. Its error begins with what,
// the directive.
func CheckTimeout(what string, timeout caddy.Duration) error {
	if timeout < 0 || timeout > maxTimeout {
		return fmt.Errorf("%s: timeout: choose one of at most 1m", what)
	}
	return nil
}

// Options parses the optional block after a plugin's name and arguments. The map has a
// parser for each option by name; Text, List, Flag and others return such parsers. Each
// option may occur once, unless it is listed as repeatable. Errors begin with the
// option's name.
func Options(d *caddyfile.Dispenser, options map[string]func() error, repeatable ...string) error {
	return CheckedOptions(d, func() error { return nil }, Naming(options), repeatable...)
}

// NoOptions parses a plugin that has neither arguments nor options.
func NoOptions(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return Options(d, nil)
}

// CheckedOptions is Options for parsers whose errors name their option. It calls check
// after each option, so that the error of a check has the option's line. Errors of check
// begin with the whole directive.
func CheckedOptions(
	d *caddyfile.Dispenser, check func() error, options map[string]func() error, repeatable ...string,
) error {
	given := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		parse, known := options[name]
		if !known {
			return d.Errf("unrecognized subdirective '%s'", name)
		}
		if given[name] && !slices.Contains(repeatable, name) {
			return d.Errf("%s already specified", name)
		}
		given[name] = true
		if err := parse(); err != nil {
			return err
		}
		if err := check(); err != nil {
			return checkError{d.WrapErr(err)}
		}
	}
	return nil
}

// Misplaced adds options that belong elsewhere to a map for Options, so that the error can
// say where.
func Misplaced(d *caddyfile.Dispenser, options map[string]func() error, where string, names ...string) {
	for _, name := range names {
		if options[name] == nil {
			options[name] = func() error { return d.Err("it does not belong here: write it " + where) }
		}
	}
}

// A checkError already begins with its whole directive.
type checkError struct{ error }

func (e checkError) Unwrap() error { return e.error }

// Complete calls check after a block was parsed without an error, to find out
// whether an option is missing.
func Complete(d *caddyfile.Dispenser, err error, check func() error) error {
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Naming makes the errors of all options begin with the option's name, as those of
// Provision and Validate must. It changes the map and returns it.
func Naming(options map[string]func() error) map[string]func() error {
	for name, parse := range options {
		options[name] = func() error {
			err := parse()
			if _, named := errors.AsType[checkError](err); named {
				return err
			}
			return Inside(name, err)
		}
	}
	return options
}

// Inside makes an error begin with the name of the option or object that it is
// about.
func Inside(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Text returns a parser of exactly one argument, which must not be empty.
func Text(d *caddyfile.Dispenser, s *string) func() error {
	return func() error {
		if !d.AllArgs(s) {
			return d.ArgErr()
		}
		if *s == "" {
			return d.Err("the value is empty; write one")
		}
		return nil
	}
}

// Secret is Text for a secret, which no error repeats.
func Secret(d *caddyfile.Dispenser, s *string) func() error {
	return func() error {
		if d.CountRemainingArgs() > 1 {
			return d.Err("wrong argument count: write one value, in quotes if it has spaces")
		}
		return Text(d, s)()
	}
}

// Address returns a parser of the URL of a server that receives codes or secrets (see
// RemoteURL). The word insecure may follow it, once for each address.
func Address(d *caddyfile.Dispenser, address *string, insecure *bool) func() error {
	return func() error {
		args, word := CutInsecure(d.RemainingArgs())
		if len(args) != 1 || args[0] == "" {
			return d.ArgErr()
		}
		*address = args[0]
		*insecure = *insecure || word
		return Literally(d, args[0], CheckAddress(word))
	}
}

// Insecure is the word that allows what a standard forbids.
const Insecure = "insecure"

// CutInsecure removes the word insecure from the end of an option's arguments.
func CutInsecure(args []string) (others []string, insecure bool) {
	if last := len(args) - 1; last > 0 && args[last] == Insecure {
		return args[:last], true
	}
	return args, false
}

// CheckAddress returns a function that returns the error of RemoteURL.
func CheckAddress(insecure bool) func(string) error {
	return func(s string) error {
		_, err := RemoteURL(s, insecure)
		return err
	}
}

// Literally validates a value while the Caddyfile is parsed, so that the error has
// the line. It skips values with placeholders, which are resolved later.
func Literally(d *caddyfile.Dispenser, s string, check func(string) error) error {
	if strings.Contains(s, "{") {
		return nil
	}
	if err := check(s); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// CheckNoPlaceholder refuses placeholders in a value that is taken as it is. The advice
// says how to write it.
func CheckNoPlaceholder(s, advice string) error {
	if strings.ContainsAny(s, "{}") {
		return errors.New("placeholders are not replaced here; " + advice)
	}
	return nil
}

// CheckedText is Text with a check of the value by Literally.
func CheckedText(d *caddyfile.Dispenser, s *string, check func(string) error) func() error {
	return func() error {
		if err := Text(d, s)(); err != nil {
			return err
		}
		return Literally(d, *s, check)
	}
}

// List returns a parser of one or more arguments.
func List(d *caddyfile.Dispenser, list *[]string) func() error {
	return func() error {
		if *list = d.RemainingArgs(); len(*list) == 0 {
			return d.ArgErr()
		}
		return nil
	}
}

// Flag returns a parser of an option without a value: if it occurs, it is on.
func Flag(d *caddyfile.Dispenser, on *bool) func() error {
	return func() error {
		if *on = true; d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// A Value parses one argument. If it can't, it returns what the argument is instead, as in
// "not a number above 0".
type Value func(arg string) (complaint string)

// Parse parses an argument, and returns the complaint as an error.
func (read Value) Parse(d *caddyfile.Dispenser, arg string) error {
	if complaint := read(arg); complaint != "" {
		return d.Errf("'%s' is %s", arg, complaint)
	}
	return nil
}

// OneValue returns a parser of an option with one value.
func OneValue(d *caddyfile.Dispenser, read Value) func() error {
	return func() error {
		var arg string
		if !d.AllArgs(&arg) {
			return d.ArgErr()
		}
		return read.Parse(d, arg)
	}
}

// Duration returns a Value that parses a duration above zero.
func Duration[D ~int64](to *D) Value {
	return func(arg string) string {
		duration, err := caddy.ParseDuration(arg)
		if err != nil || duration <= 0 {
			return "not a duration like 5m"
		}
		*to = D(duration)
		return ""
	}
}

// Timeout is Duration for a timeout, which is at most 1m.
func Timeout(to *caddy.Duration) Value {
	return func(arg string) string {
		complaint := Duration(to)(arg)
		if complaint == "" && *to > maxTimeout {
			return "too long; choose at most 1m"
		}
		return complaint
	}
}

// Int returns a Value that parses a number above zero. Zero would mean that the option is
// not set.
func Int(to *int) Value {
	return func(arg string) string {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 {
			return "not a number above 0"
		}
		*to = n
		return ""
	}
}
