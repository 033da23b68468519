package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// minKey is the length, in characters, below which a key gets a warning.
const minKey = 12

// ShortKey is the weakness of a key that IsShortKey reports.
var ShortKey = Weakness{
	Message: fmt.Sprintf("it has fewer than %d characters, which a program can guess", minKey),
	Advice:  "generate a random one, for example with openssl rand -hex 16",
}

// IsShortKey reports whether a key is short enough to be guessed by a program.
func IsShortKey(key string) bool { return len(key) < minKey }

// hashedKey is the prefix of a key that is given as its SHA-256.
const hashedKey = "sha256:"

// IsHashedKey reports whether a key is given as its SHA-256.
func IsHashedKey(key string) bool {
	return len(key) >= len(hashedKey) && strings.EqualFold(key[:len(hashedKey)], hashedKey)
}

// HashKey returns the SHA-256 of a key, which may already be given as its SHA-256.
func HashKey(key string) (hash [sha256.Size]byte, err error) {
	if IsHashedKey(key) {
		raw, err := hex.DecodeString(key[len(hashedKey):])
		if err != nil || len(raw) != sha256.Size {
			return hash, errors.New("sha256: must be followed by 64 hex digits")
		}
		if hash = [sha256.Size]byte(raw); hash == sha256.Sum256(nil) { // of a variable that was not set
			return hash, errors.New("it is the SHA-256 of nothing; write that of a key")
		}
		return hash, nil
	}
	if key == "" {
		return hash, errors.New("it is empty; write a key")
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return hash, errors.New("it must be visible ASCII without spaces, because a header carries it")
	}
	return sha256.Sum256([]byte(key)), nil
}

// CheckKeys refuses keys that HashKey or CheckReplaced refuses, unless they are placeholders.
func CheckKeys(d *caddyfile.Dispenser, keys []string) error {
	for _, key := range keys {
		if key == "" {
			return ErrEmpty
		}
		if err := CheckReplaced(key); err != nil {
			return d.WrapErr(err)
		}
		if err := Literally(d, key, func(key string) error { _, err := HashKey(key); return err }); err != nil {
			return err
		}
	}
	return nil
}
