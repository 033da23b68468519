package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strings"
	"time"
)

// The captcha pow needs no provider. A client finds the response to a challenge,
// <challenge>.<n>, by trying numbers n until the SHA-256 of the response begins with
// enough zero bits.

// challengeTicket is so short that a response with an n of up to ten digits fits into one
// block of SHA-256.
var challengeTicket = ticket{random: 9, signature: 16, once: true}

// NewChallenge returns a challenge of a company that is valid until expires.
func (k *Keys) NewChallenge(company string, expires time.Time) string {
	return base64.RawURLEncoding.EncodeToString(challengeTicket.issue(k.challenges, company, expires))
}

// VerifyWork reports whether a response solves a challenge of the company with enough zero
// bits before it expires. It returns the challenge, for the check that it is used once.
func (k *Keys) VerifyWork(company string, zeros int, response string, now time.Time) (challenge string, ok bool) {
	challenge, n, _ := strings.Cut(response, ".")
	if n == "" || strings.Trim(n, "0123456789") != "" {
		return "", false
	}
	if _, ok := challengeTicket.open(k.challenges, company, challenge, now); !ok {
		return "", false
	}
	hash := sha256.Sum256([]byte(response))
	return challenge, bits.LeadingZeros64(binary.BigEndian.Uint64(hash[:])) >= zeros
}
