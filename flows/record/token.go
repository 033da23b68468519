package record

import (
	"crypto/sha256"
	"strconv"
)

// A TokenHash is the SHA-256 of a token. Stores hold nothing else of a token.
type TokenHash [sha256.Size]byte

// Buckets is the number of parts into which a store on several machines may divide the
// sessions. It must never change: stored sessions would no longer be found.
const Buckets = 64

// Bucket returns the part that a session's hash falls into. All sessions of an account
// fall into its AccountBucket, so that a store can keep together what changes together.
func (h TokenHash) Bucket() int { return int(h[0]) % Buckets }

// AccountBucket returns the Bucket of all sessions of an account.
func AccountBucket(company string, account int64) int {
	return HashToken(company + "/" + strconv.FormatInt(account, 10)).Bucket()
}

// HashToken returns the hash under which a token is stored.
func HashToken(token string) TokenHash {
	return sha256.Sum256([]byte(token))
}

// Bytes returns the hash as it is stored. The zero hash is stored as nothing.
func (h TokenHash) Bytes() []byte {
	if h == (TokenHash{}) {
		return []byte{}
	}
	return h[:]
}
