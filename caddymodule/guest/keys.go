package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// minKey is how many characters a key has at least, without a warning.
const minKey = 12

// ShortKey is what is weak about a key that IsShortKey.
var ShortKey = Weakness{
	Message: fmt.Sprintf("it has fewer than %d characters, which a program can guess", minKey),
	Advice:  "make one up at random, as by openssl rand -hex 16",
}

// IsShortKey reports whether a program can guess a key.
func IsShortKey(key string) bool { return len(key) < minKey }

// hashedKey stands before the SHA-256 of a key.
const hashedKey = "sha256:"

// IsHashedKey reports whether a key is given as its SHA-256.
func IsHashedKey(key string) bool { return strings.HasPrefix(key, hashedKey) }

// HashKey returns the SHA-256 of a key, which may be given already.
func HashKey(key string) (hash [sha256.Size]byte, err error) {
	if err := CheckKey(key); err != nil {
		return hash, err
	}
	if digits, given := strings.CutPrefix(key, hashedKey); given {
		_, err = hex.Decode(hash[:], []byte(digits))
		return hash, err
	}
	return sha256.Sum256([]byte(key)), nil
}

// CheckKey refuses what no header can carry, and what is no SHA-256.
func CheckKey(key string) error {
	digits, given := strings.CutPrefix(key, hashedKey)
	hash, err := hex.DecodeString(digits)
	switch {
	case given && (err != nil || len(hash) != sha256.Size):
		return errors.New("behind sha256: must be 64 hex digits")
	case key == "":
		return errors.New("it is empty; write a key")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("it must be visible ASCII without spaces, since a header has to carry it")
	}
	return nil
}
