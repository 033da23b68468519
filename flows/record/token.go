package record

import (
	"crypto/sha256"
	"strconv"
)

// A TokenHash is the SHA-256 of a token: all that a store ever holds of it.
type TokenHash [sha256.Size]byte

// Buckets is how many parts a store that is spread over many machines can
// keep sessions in. It must not change: old tokens would be looked for in the
// wrong part.
const Buckets = 64

// Bucket is the part that a session's hash falls into. All of an account's
// sessions have the one that AccountBucket returns, so that a store can keep
// what changes together in one place.
func (h TokenHash) Bucket() int { return int(h[0]) % Buckets }

// AccountBucket is the Bucket of all sessions of an account.
func AccountBucket(company string, account int64) int {
	return HashToken(company + "/" + strconv.FormatInt(account, 10)).Bucket()
}

// HashToken returns the hash under which a token is kept.
func HashToken(token string) TokenHash {
	var b [64]byte // spares an allocation
	return sha256.Sum256(append(b[:0], token...))
}
