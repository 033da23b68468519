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
	StepUpPrefix  = "mgu_" // of a step-up; it is no session
	IssuedPrefix  = "mgp_" // of a record.IssuedToken
	tokenBytes    = 32
)

// New returns a token and its hash, which falls into the bucket (see record.Buckets). The
// token is the prefix and 32 bytes in base64url, of which 250 bits are random.
func New(prefix string, bucket int) (string, record.TokenHash) {
	// Draw the last 8 bytes until the token falls into the bucket. The other 24 are a
	// multiple of three, as base64 encodes them. For each of their values, 2^58 tokens
	// fall into the bucket, give or take one in 2^29: all are practically equally likely.
	const drawn = 8
	var random [tokenBytes - drawn + record.Buckets*drawn]byte
	rand.Read(random[:])
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
	rand.Read(random[:])
	token := DevicePrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return token, record.HashToken(token)
}

// IsWellFormed reports whether s has the form of a token from New. If not, callers need not
// ask a store.
func IsWellFormed(prefix, s string) bool {
	if len(s) != len(prefix)+43 || s[:len(prefix)] != prefix {
		return false
	}
	// The strict decoder refuses a last character with other unused bits. It skips line
	// breaks, but then n is smaller.
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
