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

// Captcha pow asks no provider. A challenge is signed with a key that only the
// nodes of a deployment have, so that nothing is stored until it is used. The
// right response, <challenge>.<n>, is found by trying numbers n until its SHA-256
// begins with enough zero bits.

// A challenge is random, says when it ends, and is signed. With an n of up to ten
// digits it is hashed as one block.
const (
	challengeRandom = 9
	challengeText   = challengeRandom + 8
	challengeBytes  = challengeText + 16
)

// NewChallenge returns a challenge of a company, which is good until then.
func (k *Keys) NewChallenge(company string, expires time.Time) string {
	text := make([]byte, challengeRandom, challengeBytes)
	rand.Read(text) // never fails: it ends the process instead
	text = binary.BigEndian.AppendUint64(text, uint64(expires.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(text, k.workSignature(company, text)...))
}

// workSignature is that of a company's challenge, whose text has one length.
func (k *Keys) workSignature(company string, text []byte) []byte {
	mac := hmac.New(sha256.New, k.challenges)
	mac.Write(text)
	mac.Write([]byte(company))
	return mac.Sum(nil)[:challengeBytes-challengeText]
}

// Worked returns the challenge of the company that a response answers with enough
// zero bits in time, and whether it is such a response.
func (k *Keys) Worked(company string, zeros int, response string, now time.Time) (challenge string, ok bool) {
	challenge, n, _ := strings.Cut(response, ".")
	if n == "" || strings.Trim(n, "0123456789") != "" || len(challenge) != base64.RawURLEncoding.EncodedLen(challengeBytes) {
		return "", false
	}
	var raw [challengeBytes]byte
	length, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(challenge))
	if err != nil || length != challengeBytes { // it skips line breaks
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
