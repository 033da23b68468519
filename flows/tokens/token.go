package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/mnemogate/mnemogate/flows/record"
)

// The prefixes that identify tokens.
const (
	Prefix        = "mgs_" // of a session
	LinkPrefix    = "mgl_" // of a mailed link; not accepted in an Authorization header
	WelcomePrefix = "mgw_" // of a mailed link that welcomes a user; otherwise like LinkPrefix
	DevicePrefix  = "mgd_" // of a device; it is no session
	tokenBytes    = 32
)

// New returns a token and its hash. The token is a prefix and 32 random bytes. New draws
// the last 8 bytes again until the token falls into the bucket. So the token is as likely
// as any other that begins with the same 24 bytes and falls into the bucket. For each
// beginning there are 2^58 of those, give or take one in 2^29, so all tokens of the
// bucket are practically equally likely: 250 random bits.
func New(prefix string, bucket int) (string, record.TokenHash) {
	const drawn = 8 // the other 24 bytes are a multiple of three, as base64 encodes them
	var random [tokenBytes - drawn + record.Buckets*drawn]byte
	rand.Read(random[:]) // never fails: it ends the process instead
	encoding := base64.RawURLEncoding
	token := encoding.AppendEncode(append(make([]byte, 0, 64), prefix...), random[:tokenBytes-drawn])
	for tails := random[tokenBytes-drawn:]; ; tails = tails[drawn:] {
		if len(tails) == 0 {
			tails = random[tokenBytes-drawn:]
			rand.Read(tails)
		}
		all := encoding.AppendEncode(token, tails[:drawn]) // overwrites the previous attempt
		if hash := record.TokenHash(sha256.Sum256(all)); hash.Bucket() == bucket {
			return string(all), hash
		}
	}
}

// NewDevice returns the token of a device, with 256 random bits, and its hash.
func NewDevice() (string, record.TokenHash) {
	var random [tokenBytes]byte
	rand.Read(random[:]) // never fails: it ends the process instead
	token := DevicePrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return token, record.HashToken(token)
}

// IsWellFormed reports whether New could have created s. Otherwise callers need not ask a
// store. In base64url the last character of 32 bytes has two unused bits, which the
// strict decoder requires to be zero. The decoder skips line breaks, but then there are
// fewer bytes.
func IsWellFormed(prefix, s string) bool {
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
