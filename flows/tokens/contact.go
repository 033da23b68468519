package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
)

// A code for a contact belongs to no session that a store keeps. The client's token holds
// it, encrypted, and the store only counts its guesses. A right code becomes a proof, which
// is such a token without a code.

// A Contact is what the token of a code or of a proof holds.
type Contact struct {
	ID      string    `json:"i"` // random, and the same for a code and its proof, which work once
	Name    string    `json:"n"` // of a record.Contact
	Value   string    `json:"v"`
	Code    string    `json:"c,omitempty"` // that was sent to Value; empty for a proof
	Expires time.Time `json:"e"`
}

// SpendHash returns what is spent with the token.
func (c Contact) SpendHash() [sha256.Size]byte { return sha256.Sum256([]byte("contact " + c.ID)) }

// MaxContact is the length of the longest token, whose Value is an email.
const MaxContact = 2048

// SealContact returns a token that OpenContact opens for the same owner.
func (k *Keys) SealContact(owner string, c Contact) string {
	text, _ := json.Marshal(c) // strings and a time: never fails
	return base64.RawURLEncoding.EncodeToString(encrypt(k.contacts[0], text, owner))
}

// OpenContact returns what a token holds, unless it was made for another owner or has
// expired.
func (k *Keys) OpenContact(owner, token string, now time.Time) (c Contact, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(token) != base64.RawURLEncoding.EncodedLen(len(raw)) { // the decoder skips line breaks
		return Contact{}, false
	}
	for _, key := range k.contacts {
		if text, err := decrypt(key, raw, owner); err == nil {
			err = json.Unmarshal(text, &c)
			return c, err == nil && now.Before(c.Expires)
		}
	}
	return Contact{}, false
}
