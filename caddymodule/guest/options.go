package guest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// The bounds of a timeout for a call to another server. In JSON, a bare number is
// nanoseconds, which people take for seconds.
const (
	minTimeout = caddy.Duration(time.Millisecond)
	maxTimeout = caddy.Duration(time.Minute)
)

// CheckTimeout refuses a timeout that is not from 1ms to 1m, unless it is 0, which means that
// it is not set. Its error begins with what, the directive.
func CheckTimeout(what string, timeout caddy.Duration) error {
	if timeout != 0 && (timeout < minTimeout || timeout > maxTimeout) {
		return fmt.Errorf(`%s: timeout: choose 1ms to 1m; in JSON, write it with a unit, such as "5s"`, what)
	}
	return nil
}

// A Parser parses the arguments of what d is at, and its block if it can have one.
type Parser func(d *caddyfile.Dispenser) error

// Parsers has a Parser for each option by its syntax, such as "fresh <duration> <path>...",
// which begins with its name.
type Parsers map[string]Parser

// Options parses the optional block after a plugin's name and arguments. Each option may
// occur once, unless its name is listed as repeatable. Errors begin with the option's name.
func Options(d *caddyfile.Dispenser, options Parsers, repeatable ...string) error {
	return CheckedOptions(d, func() error { return nil }, options, repeatable...)
}

// Parse parses the arguments of a plugin by their syntax, such as "<url> [insecure]", and then
// its block with Options.
func Parse(d *caddyfile.Dispenser, syntax string, arguments Parser, options Parsers, repeatable ...string) error {
	d.Next()
	if err := Syntax(d, strings.TrimSpace(d.Val()+" "+syntax), arguments); err != nil {
		return err
	}
	return Options(d, options, repeatable...)
}

// NoArguments is Parse for a plugin that has none.
func NoArguments(d *caddyfile.Dispenser, options Parsers, repeatable ...string) error {
	return Parse(d, "", Flag(new(bool)), options, repeatable...)
}

// CheckedOptions is Options with a check after each option, so that the error of a check
// has the option's line. Errors of check begin with the whole directive.
func CheckedOptions(d *caddyfile.Dispenser, check func() error, options Parsers, repeatable ...string) error {
	syntaxes := map[string]string{}
	for syntax := range options {
		syntaxes[nameOf(syntax)] = syntax
	}
	given := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		syntax, known := syntaxes[name]
		if !known {
			return unknown(d, slices.Sorted(maps.Keys(syntaxes)))
		}
		if given[name] && !slices.Contains(repeatable, name) {
			return d.Errf("%s already specified; remove one", name)
		}
		given[name] = true
		if err := Syntax(d, syntax, options[syntax]); err != nil {
			if _, named := errors.AsType[namedError](err); named {
				return err
			}
			return Inside(name, err)
		}
		if err := check(); err != nil {
			return namedError{d.WrapErr(err)}
		}
	}
	return nil
}

func nameOf(syntax string) string {
	name, _, _ := strings.Cut(syntax, " ")
	return name
}

// An argError says what is wrong with the arguments of an option. Syntax says how to write
// it instead. Neither repeats an argument, since that may be a secret.
type argError string

func (e argError) Error() string { return string(e) }

const (
	// ErrArguments is the error of a parser that has the wrong number of arguments.
	ErrArguments argError = "wrong argument count"
	// ErrEmpty is the error of a parser with an empty argument.
	ErrEmpty argError = "the value is empty"
)

// Syntax calls the parser of what d is at. The syntax begins with its name.
func Syntax(d *caddyfile.Dispenser, syntax string, parse Parser) error {
	given, empty := 0, false
	for ; d.NextArg(); given++ {
		switch arg := d.Token(); {
		case arg.Text == "":
			empty = true
		case arg.Quoted():
		case arg.Text == "}":
			return d.Err("write the } on a line of its own")
		case strings.HasPrefix(arg.Text, "="), strings.HasPrefix(arg.Text, "'"):
			return d.Errf("remove the %.1s; write %s, and double quotes around a value that has spaces", arg.Text, syntax)
		}
	}
	for range given {
		d.Prev()
	}
	arguments, _, _ := strings.Cut(syntax, " {")
	words := strings.Fields(arguments)[1:]
	if given < len(words) && strings.HasPrefix(words[given], "[<") {
		line, _ := lineOf(d)
		whole := strings.Join(slices.DeleteFunc(strings.Fields(line), isPartly), " ")
		if advice := unset(whole); advice != "" { // the default would silently take the place of what it was to be
			return d.Errf("%s is missing; write %s%s", strings.Trim(words[given], "[.]"), syntax, advice)
		}
	}
	err := parse(d)
	wrong, ok := errors.AsType[argError](err)
	if !ok {
		return err
	}
	required := slices.DeleteFunc(words, func(word string) bool { return word[0] == '[' })
	advice := lost(d)
	if given < len(required) {
		missing, _, _ := strings.Cut(required[given], "...")
		wrong = argError(missing + " is missing")
	} else if empty {
		wrong = ErrEmpty
	} else if wrong == ErrArguments && len(required) > 0 {
		advice += ", with quotes around a value that has spaces"
	}
	return d.Errf("%s; write %s%s", wrong, syntax, advice)
}

var (
	comment  = regexp.MustCompile(`\s#`)
	variable = regexp.MustCompile(`\{\$([^}:]+):?([^}]*)\}`)
)

// lost says why the line of an option can lack an argument that is in the Caddyfile: Caddy
// drops variables that are empty, and everything after a # that begins a word.
func lost(d *caddyfile.Dispenser) (why string) {
	line, after := lineOf(d)
	why = unset(line)
	if after != "" && !unicode.IsSpace(rune(after[0])) {
		why += ", with the value in quotes, because # begins a comment"
	}
	return why
}

// fileLines are the lines of a file.
type fileLines struct {
	modified time.Time
	lines    []string
}

// known has the lines of each file. Thousands of options may ask for one of them.
var known sync.Map

// lineOf returns the line that d is at as the Caddyfile has it, without its comment, and what
// is after the # of the comment.
func lineOf(d *caddyfile.Dispenser) (line, after string) {
	info, err := os.Stat(d.File())
	if err != nil {
		return "", ""
	}
	of, _ := known.Load(d.File())
	file, ok := of.(fileLines)
	if !ok || !file.modified.Equal(info.ModTime()) {
		text, _ := os.ReadFile(d.File())
		file = fileLines{info.ModTime(), strings.Split(string(text), "\n")}
		known.Store(d.File(), file)
	}
	if d.Line() > len(file.lines) {
		return "", ""
	}
	line = file.lines[d.Line()-1]
	if at := comment.FindStringIndex(line); at != nil {
		return line[:at[0]], line[at[1]:]
	}
	return line, ""
}

// isPartly reports whether a word has more than variables. If these are empty, Caddy keeps it.
func isPartly(word string) bool { return strings.Trim(variable.ReplaceAllString(word, ""), `"`) != "" }

// unset asks for the variables of a line that are empty.
func unset(line string) (why string) {
	for _, found := range variable.FindAllStringSubmatch(line, -1) {
		name, value := found[1], found[2]
		if set, ok := os.LookupEnv(name); ok {
			value = set
		}
		if value == "" {
			why += fmt.Sprintf(", and set the variable %s, which is empty", name)
		}
	}
	return why
}

// homes has the blocks in which each option may be written.
var homes = map[string][]string{}

// Belong records that options may be written into a block, so that the error about one of
// them elsewhere can say so.
func Belong(block string, options Parsers) {
	for syntax := range options {
		homes[nameOf(syntax)] = append(homes[nameOf(syntax)], block)
	}
}

// unknown is the error of an option that a block does not have.
func unknown(d *caddyfile.Dispenser, known []string) error {
	name, _, assigned := strings.Cut(d.Val(), "=") // what follows may be a secret
	if assigned {
		return Inside(name, d.Err("write a space in place of the ="))
	}
	if blocks := homes[name]; blocks != nil {
		return Inside(name, d.Errf("it does not belong here: write it into %s", strings.Join(blocks, ", or into ")))
	}
	for _, id := range caddy.Modules() {
		if option, found := strings.CutSuffix(id, "."+name); found && strings.HasPrefix(id, "mnemogate.") {
			option = strings.NewReplacer("mnemogate.accounts", "store", "mnemogate.", "").Replace(option)
			return Inside(name, d.Errf("it belongs to another option: write %s %s", option, name))
		}
		if id == "http.handlers."+name {
			return Inside(name, d.Err("it is a directive of Caddy: write it into a site, after the directive mnemogate"))
		}
	}
	if len(known) == 0 {
		return d.Errf("unrecognized subdirective '%s'; nothing can be set here, so remove the block", name)
	}
	distances := map[string]int{}
	for _, other := range known {
		distances[other] = distance(strings.ToLower(name), other)
	}
	near := slices.MinFunc(known, func(a, b string) int { return distances[a] - distances[b] })
	if distances[near] <= max(1, len(name)/3) {
		return d.Errf("unrecognized subdirective '%s': did you mean %s?", name, near)
	}
	return d.Errf("unrecognized subdirective '%s'; choose any of %s", name, strings.Join(known, ", "))
}

// distance returns how many letters must be inserted, deleted or replaced to turn one word
// into another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// A namedError already begins with its whole directive.
type namedError struct{ error }

func (e namedError) Unwrap() error { return e.error }

// First runs checks in their order, until one fails.
func First(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Complete calls check after a block or an option was parsed without an error, to find out
// whether something is missing or wrong.
func Complete(d *caddyfile.Dispenser, err error, check func() error) error {
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		backToOption(d, err)
		return d.WrapErr(err)
	}
	return nil
}

// backToOption moves d from the end of a block to the option that an error begins with, if
// the block has it.
func backToOption(d *caddyfile.Dispenser, err error) {
	if d.Val() != "}" {
		return
	}
	name := strings.TrimSuffix(strings.Fields(err.Error())[0], ":")
	steps := 0
	for depth := 0; depth >= 0 && d.Prev(); steps++ {
		switch {
		case d.Val() == "}":
			depth++
		case d.Val() == "{":
			depth--
		case d.Val() == name && depth == 0:
			return
		}
	}
	for range steps {
		d.Next()
	}
}

// Named is Inside for what has a name of its own, as in "company acme", so that its errors
// do not also begin with the option.
func Named(name string, err error) error {
	if err == nil {
		return nil
	}
	return namedError{Inside(name, err)}
}

// Inside makes an error begin with the name of the option or object that it is
// about.
func Inside(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Optional returns a parser that takes no arguments, too.
func Optional(parse Parser) Parser {
	return func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() == 0 {
			return nil
		}
		return parse(d)
	}
}

// Text returns a parser of exactly one argument, which must not be empty.
func Text(s *string) Parser {
	return func(d *caddyfile.Dispenser) error {
		if !d.AllArgs(s) {
			return ErrArguments
		}
		if *s == "" {
			return ErrEmpty
		}
		return nil
	}
}

// Address returns a parser of the URL of a server that receives codes or secrets (see
// RemoteURL). The word insecure may follow it, once for each address.
func Address(address *string, insecure *bool) Parser {
	return func(d *caddyfile.Dispenser) error {
		args, word := CutInsecure(d.RemainingArgs())
		if len(args) != 1 || args[0] == "" {
			return ErrArguments
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

// CheckNoSecret is CheckNoPlaceholder for values in which other braces have a meaning.
func CheckNoSecret(s, advice string) error {
	if strings.Contains(s, "{env.") || strings.Contains(s, "{file.") {
		return CheckNoPlaceholder(s, advice)
	}
	return nil
}

// CheckedText is Text with a check of the value by Literally.
func CheckedText(s *string, check func(string) error) Parser {
	return func(d *caddyfile.Dispenser) error {
		if err := Text(s)(d); err != nil {
			return err
		}
		return Literally(d, *s, check)
	}
}

// List returns a parser of one or more arguments.
func List(list *[]string) Parser {
	return func(d *caddyfile.Dispenser) error {
		if *list = d.RemainingArgs(); len(*list) == 0 {
			return ErrArguments
		}
		return nil
	}
}

// Flag returns a parser of an option without a value: if it occurs, it is on.
func Flag(on *bool) Parser {
	return func(d *caddyfile.Dispenser) error {
		if *on = true; d.NextArg() {
			return ErrArguments
		}
		return nil
	}
}

// A Value parses one argument. If it can't, it returns what the argument is instead, as in
// "not a number above 0".
type Value func(arg string) (complaint string)

// Parse parses an argument, and returns the complaint as an error.
func (read Value) Parse(d *caddyfile.Dispenser, arg string) error {
	if arg == "" {
		return ErrEmpty
	}
	if complaint := read(arg); complaint != "" {
		return d.Errf("'%s' is %s%s", arg, complaint, lost(d))
	}
	return nil
}

// OneValue returns a parser of an option with one value.
func OneValue(read Value) Parser {
	return func(d *caddyfile.Dispenser) error {
		var arg string
		if !d.AllArgs(&arg) {
			return ErrArguments
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
