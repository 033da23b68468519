// Package tokens makes and checks what clients hold of a login: the tokens of
// sessions, sealed ones that hold their session themselves, the keys of login
// pages, the challenges of captcha pow, and the codes of authenticator apps.
//
// Start with New, which makes a token of random bytes, of which a store keeps the hash. All else is
// signed or sealed with Keys, which every node of a deployment derives from the
// secret of their store, so that nothing is kept of it before it is used. Nothing
// here asks a store: whether a thing was used already is for the caller to ask.
package tokens

import (
	"cmp"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"golang.org/x/crypto/chacha20poly1305"
)

// Keys are what is derived from the secret of a store, which all nodes of a
// deployment share and nobody else knows.
type Keys struct {
	loginIDHash []byte // the secret itself
	sessions    cipher.AEAD
	apps        cipher.AEAD
	challenges  []byte
	counters    []byte
	pages       []byte
}

// NewKeys derives the keys (RFC 5869), each for one purpose.
func NewKeys(secret []byte) (*Keys, error) {
	k := &Keys{loginIDHash: secret}
	var err error
	derive := func(purpose string) []byte {
		key, failed := hkdf.Key(sha256.New, secret, nil, purpose, chacha20poly1305.KeySize)
		err = cmp.Or(err, failed)
		return key
	}
	sealer := func(purpose string) cipher.AEAD {
		aead, failed := chacha20poly1305.NewX(derive(purpose))
		err = cmp.Or(err, failed)
		return aead
	}
	k.sessions, k.apps = sealer("mnemogate sealed sessions"), sealer("mnemogate authenticator apps")
	k.challenges, k.pages = derive("mnemogate captcha challenges"), derive("mnemogate page keys")
	k.counters = derive("mnemogate counters")
	return k, err
}

// Alias stands for a login id that no account of the company has wherever something
// is kept of it: a user may have typed a password there. Strangers can't work it out.
func (k *Keys) LoginIDHash(company, loginID string) string {
	mac := hmac.New(sha256.New, k.loginIDHash)
	mac.Write([]byte(company + "/alias/" + loginID))
	return hex.EncodeToString(mac.Sum(nil))
}

// CounterName replaces an address or a phone in the key of a counter, so that
// neither can be read in a store.
func (k *Keys) CounterName(key string) string {
	mac := hmac.New(sha256.New, k.counters)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
