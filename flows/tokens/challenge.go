package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strings"
	"time"
)

// The captcha pow needs no provider. A challenge is signed with a key that only the nodes
// of a deployment have, so nothing is stored until a challenge is used. A client finds
// the response, <challenge>.<n>, by trying numbers n until the SHA-256 of the response
// begins with enough zero bits.

// A challenge consists of random bytes, the time that it expires and a signature. With an
// n of up to ten digits, the response fits into one block of SHA-256.
const (
	challengeRandom = 9
	challengeText   = challengeRandom + 8
	challengeBytes  = challengeText + 16
)

// NewChallenge returns a challenge of a company that is valid until expires.
func (k *Keys) NewChallenge(company string, expires time.Time) string {
	text := make([]byte, challengeRandom, challengeBytes)
	rand.Read(text) // never fails: it ends the process instead
	text = binary.BigEndian.AppendUint64(text, uint64(expires.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(text, k.workSignature(company, text)...))
}

// workSignature returns the signature of a company's challenge. text has a fixed length.
func (k *Keys) workSignature(company string, text []byte) []byte {
	mac := hmac.New(sha256.New, k.challenges)
	mac.Write(text)
	mac.Write([]byte(company))
	return mac.Sum(nil)[:challengeBytes-challengeText]
}

// Worked reports whether a response solves a challenge of the company with enough zero
// bits before it expires. It returns the challenge, for the check that it is used once.
func (k *Keys) Worked(company string, zeros int, response string, now time.Time) (challenge string, ok bool) {
	challenge, n, _ := strings.Cut(response, ".")
	if n == "" || strings.Trim(n, "0123456789") != "" || len(challenge) != base64.RawURLEncoding.EncodedLen(challengeBytes) {
		return "", false
	}
	var raw [challengeBytes]byte
	length, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(challenge))
	if err != nil || length != challengeBytes { // the decoder skips line breaks
		return "", false
	}
	text := raw[:challengeText]
	if !hmac.Equal(k.workSignature(company, text), raw[challengeText:]) {
		return "", false
	}
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text[challengeRandom:])))
	hash := sha256.Sum256([]byte(response))
	return challenge, now.Before(expires) && bits.LeadingZeros64(binary.BigEndian.Uint64(hash[:])) >= zeros
}
