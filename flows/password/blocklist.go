package password

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// passwords.txt contains the passwords of zxcvbn-ts (package @zxcvbn-ts/language-common
// 4.1.3, by Dan Wheeler, Dropbox and the zxcvbn-ts contributors, MIT licence, see
// passwords.LICENSE) that have at least eight characters; no policy accepts shorter
// ones. zxcvbn-ts finds most repeated characters and keyboard rows with other code, so
// they are added here. The lines are folded and sorted by bytes.
//
//go:embed passwords.txt
var commonPasswords string

// A Blocklist is a set of passwords that are not allowed. It is immutable.
type Blocklist struct {
	lists []string // each with folded, sorted lines, so that a search allocates nothing
}

// Common returns the built-in list of about 18,000 common passwords.
var Common = sync.OnceValue(func() *Blocklist { return &Blocklist{[]string{commonPasswords}} })

// With returns a list that also has the passwords of r, one per line, in any case. A
// line that is not UTF-8 has no effect, because no password can equal it; old
// collections contain such lines.
func (b *Blocklist) With(r io.Reader) (*Blocklist, error) {
	var words []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if word := Fold(strings.TrimPrefix(lines.Text(), "\ufeff")); word != "" {
			words = append(words, word)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading passwords after line %d: %w", len(words), err)
	}
	slices.Sort(words)
	words = slices.Compact(words)
	list := strings.Join(append(words, ""), "\n") // each line ends with a newline, even the last
	return &Blocklist{append(slices.Clone(b.lists), list)}, nil
}

// Contains reports whether the password is in the list, ignoring case.
func (b *Blocklist) Contains(password string) bool {
	password = Fold(password)
	return slices.ContainsFunc(b.lists, func(lines string) bool { return hasLine(lines, password) })
}

// IsRepeated reports whether a password is one character again and again, ignoring case,
// or only white space.
func IsRepeated(password string) bool {
	password = Fold(password)
	first, _ := utf8.DecodeRuneInString(password)
	return strings.Trim(password, string(first)) == ""
}

// hasLine reports whether line is one of lines, which are sorted and end with a newline.
func hasLine(lines, line string) bool {
	for lines != "" {
		middle := len(lines) / 2
		start := strings.LastIndexByte(lines[:middle], '\n') + 1
		end := middle + strings.IndexByte(lines[middle:], '\n')
		switch strings.Compare(lines[start:end], line) {
		case 0:
			return true
		case -1:
			lines = lines[end+1:]
		case 1:
			lines = lines[:start]
		}
	}
	return false
}
