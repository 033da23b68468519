package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"
)

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
