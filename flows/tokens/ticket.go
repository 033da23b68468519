package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A ticket is signed with a key that only the nodes of a deployment have. So every node
// can check it, and nothing is stored until it is used. It consists of random bytes, the
// time that it expires and a signature, with as many bytes as the fields say.
type ticket struct {
	random, signature int
	once              bool // its use is remembered for SpentMemory
}

const ticketTime = 8 // bytes

// SpentMemory is how long a use is remembered of what works once. Such a thing expires
// sooner, but perhaps by the clock of another machine, which may be ahead.
const SpentMemory = time.Hour

func (t ticket) size() int { return t.random + ticketTime + t.signature }

// issue returns a ticket of its owner that is valid until expires, signed with the first
// key.
func (t ticket) issue(keys [][]byte, owner string, expires time.Time) []byte {
	text := make([]byte, t.random, t.size())
	rand.Read(text)
	text = binary.BigEndian.AppendUint64(text, uint64(expires.UnixMicro()))
	return append(text, t.sign(keys[0], owner, text)...)
}

// sign returns the signature. text has a fixed length.
func (t ticket) sign(key []byte, owner string, text []byte) []byte {
	return mac(key, string(text)+owner)[:t.signature]
}

// open decodes a ticket. It reports whether the ticket is one of this owner, signed with any
// of the keys, and has not expired. A ticket that works once must expire before its use is
// forgotten, whoever has signed it.
func (t ticket) open(keys [][]byte, owner, encoded string, now time.Time) (raw []byte, ok bool) {
	if len(encoded) != base64.RawURLEncoding.EncodedLen(t.size()) {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != t.size() { // the decoder skips line breaks
		return nil, false
	}
	text, signature := raw[:t.random+ticketTime], raw[t.random+ticketTime:]
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text[t.random:])))
	signed := slices.ContainsFunc(keys, func(key []byte) bool { return hmac.Equal(t.sign(key, owner, text), signature) })
	return raw, signed && now.Before(expires) && !(t.once && expires.After(now.Add(SpentMemory)))
}

// Challenges of captcha pow

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

// Challenges of passkeys

// The challenge of a passkey is itself the token that the client sends back with the
// authenticator's answer.

var passkeyTicket = ticket{random: 16, signature: sha256.Size, once: true} // WebAuthn, section 13.4.3

// NewPasskeyChallenge returns a challenge that is valid until expires. If account is 0,
// it is for a login to the company, otherwise for the account. The handle tells what for: it
// is the user handle of a new passkey, or names the session of a step-up.
func (k *Keys) NewPasskeyChallenge(company string, account int64, handle []byte, expires time.Time) []byte {
	return passkeyTicket.issue(k.passkeys, passkeyOwner(company, account)+"/"+string(handle), expires)
}

// passkeyOwner returns the unique name of an account. A company's code has no slash.
func passkeyOwner(company string, account int64) string {
	return company + "/" + strconv.FormatInt(account, 10)
}

// FormatPasskeyChallenge returns the challenge as clients send it back.
func FormatPasskeyChallenge(challenge []byte) string {
	return base64.RawURLEncoding.EncodeToString(challenge)
}

// OpenPasskeyChallenge returns the challenge in a token if it is valid: made with the
// same company, account and handle, and not expired.
func (k *Keys) OpenPasskeyChallenge(company string, account int64, handle []byte, token string, now time.Time) (challenge []byte, ok bool) {
	return passkeyTicket.open(k.passkeys, passkeyOwner(company, account)+"/"+string(handle), token, now)
}

// PasskeyHandle returns the user handle of an account's first passkey. Later passkeys take
// the handle of an earlier one. It names the account to nobody else.
func (k *Keys) PasskeyHandle(company string, account int64) []byte {
	return mac(k.handles, passkeyOwner(company, account))
}

// Keys of login pages

// The login page has no API key, because anyone who sees the page could read it there.
// Instead, mnemogate creates a key with each page. It is valid for one company, for an
// hour, and on the routes that the pages use, not on paths of the application.

const pageKeyPrefix = "mgk_"

var pageTicket = ticket{signature: sha256.Size}

// NewPageKey returns a key for the login page of a company that is valid until expires.
func (k *Keys) NewPageKey(company string, expires time.Time) string {
	return pageKeyPrefix + base64.RawURLEncoding.EncodeToString(pageTicket.issue(k.pages, company, expires))
}

var pageKeyLength = len(pageKeyPrefix) + base64.RawURLEncoding.EncodedLen(pageTicket.size())

// IsPageKey reports whether a string has the form of a page key.
func IsPageKey(s string) bool {
	return len(s) == pageKeyLength && s[:len(pageKeyPrefix)] == pageKeyPrefix
}

// VerifyPageKey reports whether pageKey is a valid, unexpired key of the company. It must
// have the form that IsPageKey checks.
func (k *Keys) VerifyPageKey(company, pageKey string, now time.Time) bool {
	_, ok := pageTicket.open(k.pages, company, pageKey[len(pageKeyPrefix):], now)
	return ok
}

// Tokens of step-ups

// A StepUp is what the token of a step-up stands for. The token names Wanted and Factor, and
// is signed for the rest. It is StepUpPrefix, the ticket, a dot, Wanted, a dot and Factor.
type StepUp struct {
	Company string
	Session string // the ID of the session that it may raise
	Wanted  string // mfa or fresh
	Factor  record.AuthMethods
}

var stepUpTicket = ticket{random: 16, signature: sha256.Size}

// owner returns a name that no other StepUp has: none of its parts has a slash.
func (s StepUp) owner() string {
	return strings.Join([]string{s.Company, s.Session, s.Wanted, string(s.Factor)}, "/")
}

// NewStepUp returns the token of a step-up that is valid until expires.
func (k *Keys) NewStepUp(s StepUp, expires time.Time) string {
	ticket := base64.RawURLEncoding.EncodeToString(stepUpTicket.issue(k.stepUps, s.owner(), expires))
	return strings.Join([]string{StepUpPrefix + ticket, s.Wanted, string(s.Factor)}, ".")
}

// OpenStepUp returns what a token of the company and the session stands for. ok is false for
// any other token, and for one that has expired.
func (k *Keys) OpenStepUp(company, session, token string, now time.Time) (s StepUp, ok bool) {
	rest, ours := strings.CutPrefix(token, StepUpPrefix)
	parts := strings.Split(rest, ".")
	if !ours || len(parts) != 3 {
		return StepUp{}, false
	}
	s = StepUp{Company: company, Session: session, Wanted: parts[1], Factor: record.AuthMethods(parts[2])}
	_, ok = stepUpTicket.open(k.stepUps, s.owner(), parts[0], now)
	return s, ok
}
