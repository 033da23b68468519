package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"time"
)

// The challenge of a passkey is itself the token that the client sends back with the
// authenticator's answer. It is signed with a key that only the nodes of a deployment
// have, so nothing is stored until it is used.

// A passkey challenge consists of random bytes, the time that it expires and a signature.
const (
	passkeyRandom = 16 // WebAuthn, section 13.4.3
	passkeyText   = passkeyRandom + 8
	passkeyBytes  = passkeyText + sha256.Size
)

// NewPasskeyChallenge returns a challenge that is valid until expires. If account is 0,
// it is for a login to the company, otherwise for a new passkey of the account with this
// user handle.
func (k *Keys) NewPasskeyChallenge(company string, account int64, handle []byte, expires time.Time) []byte {
	text := make([]byte, passkeyRandom, passkeyBytes)
	rand.Read(text) // never fails: it ends the process instead
	text = binary.BigEndian.AppendUint64(text, uint64(expires.UnixMicro()))
	return append(text, k.passkeySignature(company, account, handle, text)...)
}

// passkeySignature returns the signature of a challenge. text has a fixed length.
func (k *Keys) passkeySignature(company string, account int64, handle, text []byte) []byte {
	mac := hmac.New(sha256.New, k.passkeys)
	mac.Write(text)
	mac.Write(passkeyOwner(company, account))
	mac.Write([]byte{'/'})
	mac.Write(handle)
	return mac.Sum(nil)
}

// passkeyOwner returns the unique name of an account. A company's code has no slash.
func passkeyOwner(company string, account int64) []byte {
	return append([]byte(company+"/"), strconv.FormatInt(account, 10)...)
}

// FormatPasskeyChallenge returns the challenge as clients send it back.
func FormatPasskeyChallenge(challenge []byte) string {
	return base64.RawURLEncoding.EncodeToString(challenge)
}

// OpenPasskeyChallenge returns the challenge in a token if it is valid: made with the
// same company, account and user handle, and not expired.
func (k *Keys) OpenPasskeyChallenge(company string, account int64, handle []byte, token string, now time.Time) (challenge []byte, ok bool) {
	challenge, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(challenge) != passkeyBytes || FormatPasskeyChallenge(challenge) != token { // the decoder skips line breaks
		return nil, false
	}
	text := challenge[:passkeyText]
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text[passkeyRandom:])))
	return challenge, hmac.Equal(k.passkeySignature(company, account, handle, text), challenge[passkeyText:]) && now.Before(expires)
}

// PasskeyHandle returns the user handle of an account's first passkey. Later passkeys take
// the handle of an earlier one. It names the account to nobody else.
func (k *Keys) PasskeyHandle(company string, account int64) []byte {
	mac := hmac.New(sha256.New, k.handles)
	mac.Write(passkeyOwner(company, account))
	return mac.Sum(nil)
}
