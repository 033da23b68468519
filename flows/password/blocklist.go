package password

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// passwords.txt holds those of the passwords of zxcvbn-ts (package
// @zxcvbn-ts/language-common 4.1.3, by Dan Wheeler, Dropbox and the zxcvbn-ts
// contributors, MIT licence, see passwords.LICENSE) that have at least eight
// characters: no policy accepts shorter ones. That list leaves many repeated
// characters and rows of keys to other code, so they are added here. The lines
// are folded and sorted by their bytes.
//
//go:embed passwords.txt
var commonPasswords string

// A Blocklist is a set of passwords that nobody should have. It does not
// change, and a nil one is empty.
type Blocklist struct {
	lists []string // each with folded, sorted lines, so that a search needs no memory
}

// Common returns the built-in list: about 18,000 of the passwords that
// people choose most.
var Common = sync.OnceValue(func() *Blocklist { return &Blocklist{[]string{commonPasswords}} })

// With returns a list that also has the passwords of r, one a line, without
// regard to case. A line that is not UTF-8 is as good as absent, since no
// password can equal it: old collections have such lines.
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
	list := strings.Join(append(words, ""), "\n") // each line ended, the last too
	if b == nil {
		return &Blocklist{[]string{list}}, nil
	}
	return &Blocklist{append(slices.Clone(b.lists), list)}, nil
}

// Contains reports whether the password is in the list, in whatever case.
func (b *Blocklist) Contains(password string) bool {
	if b == nil {
		return false
	}
	password = Fold(password)
	return slices.ContainsFunc(b.lists, func(lines string) bool { return hasLine(lines, password) })
}

// hasLine searches sorted lines, each ended, for one.
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
