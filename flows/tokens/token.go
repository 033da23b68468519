package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/mnemogate/mnemogate/flows/record"
)

// What a token begins with, by which it is known.
const (
	Prefix     = "mgs_" // of a session
	LinkPrefix = "mgl_" // of a mailed link, which no Authorization header can carry
	tokenBytes = 32
)

// New returns a token, 32 random bytes behind a prefix, and its hash. Its
// last 8 bytes are drawn until the token falls into the bucket, each time anew.
// So it is as likely as any other that begins with the same 24 bytes and falls
// into the bucket. Of those there are 2^58 for each beginning, give or take one
// in 2^29, so all tokens of the bucket are as good as equally likely: 250
// random bits.
func New(prefix string, bucket int) (string, record.TokenHash) {
	const drawn = 8 // bytes; the others are three by three, as base64 takes them
	var random [tokenBytes - drawn + record.Buckets*drawn]byte
	rand.Read(random[:]) // never fails: it ends the process instead
	encoding := base64.RawURLEncoding
	token := encoding.AppendEncode(append(make([]byte, 0, 64), prefix...), random[:tokenBytes-drawn])
	for tails := random[tokenBytes-drawn:]; ; tails = tails[drawn:] {
		if len(tails) == 0 {
			tails = random[tokenBytes-drawn:]
			rand.Read(tails)
		}
		all := encoding.AppendEncode(token, tails[:drawn]) // over the one before
		if hash := record.TokenHash(sha256.Sum256(all)); hash.Bucket() == bucket {
			return string(all), hash
		}
	}
}

// Shaped reports whether New could have made s: only then is a store
// asked for it. The last character of 32 bytes in base64url has two unused
// bits, which must be zero; the strict decoder sees to that. It skips line ends,
// with which there are fewer bytes.
func Shaped(prefix, s string) bool {
	if len(s) != len(prefix)+43 || s[:len(prefix)] != prefix {
		return false
	}
	var b [tokenBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(b[:], []byte(s[len(prefix):]))
	return err == nil && n == tokenBytes
}

// NewID returns 128 random bits in hex.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
