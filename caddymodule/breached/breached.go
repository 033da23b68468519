// Package breached asks whether a password was found in a data breach. It asks a server
// with the range API of Have I Been Pwned (server.go), or a directory of downloaded
// range files (directory.go). Both know ranges: the first five hex digits of a SHA-1
// name a range, which lists the other 35 digits of each hash, a colon and a count.
package breached

import (
	"crypto/fips140"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

const (
	prefixDigits = 5
	suffixDigits = 2*sha1.Size - prefixDigits
)

// List is the configuration of a list of breached passwords.
type List struct {
	// The server or the directory that has the list, or `off` for none. A server is
	// the URL before `/<first five hex digits of the SHA-1>`, such as
	// `https://api.pwnedpasswords.com/range`. It must be https, or http on this
	// machine. It receives those five digits and nothing else, and has 1s to answer.
	// A directory has a file for each range, `00000.txt` to `FFFFF.txt` (or without
	// `.txt`), as haveibeenpwned-downloader writes them. Required.
	From string `json:"from"`

	// Also look up the passwords of users who log in, each at most once in 30 days.
	// A user whose password is listed must set a new one after the login's other
	// steps. Default: false.
	AtLogin bool `json:"at_login,omitempty"`

	// Answer service.unavailable if the list can't be asked. Without it, a password
	// then passes, which mnemogate_breached_lookups_total counts. Default: false.
	Require bool `json:"require,omitempty"`

	// Whether the URL may be http on another machine. Anyone on the network path can
	// then read the five digits and forge answers. Each start logs a warning.
	// Default: false.
	Insecure bool `json:"insecure,omitempty"`
}

// off is the From of a company that does not inherit the list.
const off = "off"

// Open returns the list. It refuses a list that can't be asked.
func (l *List) Open() (tenant.Breached, error) {
	switch {
	case l.From == "":
		return tenant.Breached{}, errors.New("it has no list; write the URL of a server or a directory")
	case l.From == off && (l.AtLogin || l.Require || l.Insecure):
		return tenant.Breached{}, errors.New("it is off; remove the words after it")
	case l.From == off:
		return tenant.Breached{}, nil
	}
	opened := tenant.Breached{From: l.From, AtLogin: l.AtLogin, Require: l.Require}
	var err error
	if l.remote() {
		opened.List, err = newServer(l.From, l.Insecure)
	} else {
		opened.List, err = newDirectory(l.From)
	}
	return opened, err
}

// Check refuses the URL of a server that Open would refuse. Open refuses the rest.
func (l *List) Check() error {
	if !l.remote() {
		return nil
	}
	_, err := newServer(l.From, l.Insecure)
	return err
}

func (l *List) remote() bool { return strings.Contains(l.From, "://") }

// split returns the two parts of a password's SHA-1, in upper case. The list names passwords
// by it, and nothing relies on it for security.
func split(password string) (prefix, suffix string) {
	var sum [sha1.Size]byte
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(password)) })
	digits := strings.ToUpper(hex.EncodeToString(sum[:]))
	return digits[:prefixDigits], digits[prefixDigits:]
}

// search reports whether a range has a hash. A count of zero is padding, which hides the
// size of the range. search fails if the range has any other content, such as the page of
// a proxy.
func search(lines, wanted string) (listed bool, err error) {
	for line := range strings.Lines(lines) {
		suffix, digits, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		count, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || len(suffix) != suffixDigits || strings.Trim(suffix, "0123456789ABCDEFabcdef") != "" {
			return false, errors.New("a line is not the rest of a SHA-1, a colon and a count")
		}
		if strings.EqualFold(suffix, wanted) && count > 0 {
			listed = true
		}
	}
	return listed, nil
}

// Interface guards
var (
	_ tenant.BreachedList = (*server)(nil)
	_ tenant.BreachedList = (*directory)(nil)
	_ guest.Remote        = (*server)(nil)
	_ guest.Weak          = (*server)(nil)
)
