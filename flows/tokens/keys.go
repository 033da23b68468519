// Package tokens creates and checks what clients hold during a login: session tokens,
// stateless tokens that hold their session themselves, the keys of login pages, the
// challenges of captcha pow and passkeys, and the codes of authenticator apps.
//
// Start with New, which creates a token of random bytes; a store keeps its hash.
// Everything else is signed or encrypted with Keys, so nothing is stored until it is
// used. Every node of a deployment derives the same Keys from the secret of their store.
// This package calls no store: the caller must check whether something was already used.
package tokens

import (
	"cmp"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// Keys are derived from the secret of a store. Only the nodes of a deployment know it.
type Keys struct {
	loginIDs   []byte // the secret itself
	sessions   cipher.AEAD
	apps       cipher.AEAD
	signing    cipher.AEAD
	challenges []byte
	counters   []byte
	listings   []byte
	pages      []byte
	passkeys   []byte // of challenges
	handles    []byte // user handles
}

// NewKeys derives the keys (RFC 5869), one for each purpose.
func NewKeys(secret []byte) (*Keys, error) {
	k := &Keys{loginIDs: secret}
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
	k.signing = sealer("mnemogate signing keys")
	k.challenges, k.pages = derive("mnemogate captcha challenges"), derive("mnemogate page keys")
	k.counters, k.listings = derive("mnemogate counters"), derive("mnemogate listings of disclaimers")
	k.passkeys, k.handles = derive("mnemogate passkey challenges"), derive("mnemogate passkey user handles")
	return k, err
}

// SealSigningKey encrypts a private key that signs the assertions of a company.
func (k *Keys) SealSigningKey(company string, key []byte) string {
	return seal(k.signing, company, key)
}

// OpenSigningKey decrypts the result of SealSigningKey.
func (k *Keys) OpenSigningKey(company, sealed string) ([]byte, error) {
	key, err := open(k.signing, company, sealed)
	if err != nil {
		return nil, fmt.Errorf("opening a sealed signing key (was the store's own secret changed?): %w", err)
	}
	return key, nil
}

// seal encrypts a secret that a store keeps for a company.
func seal(with cipher.AEAD, company string, secret []byte) string {
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce)
	return base64.RawStdEncoding.EncodeToString(with.Seal(nonce, nonce, secret, []byte(company)))
}

// open decrypts the result of seal.
func open(with cipher.AEAD, company, sealed string) ([]byte, error) {
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, err
	}
	if len(raw) < chacha20poly1305.NonceSizeX {
		return nil, errors.New("it is cut")
	}
	return with.Open(nil, raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:], []byte(company))
}

// LoginIDHash returns the name under which data about a login id is stored if no account
// of the company has it. The login id itself is not stored, because a user may have typed
// a password there. The hash is keyed, so others can't compute it.
func (k *Keys) LoginIDHash(company, loginID string) string {
	mac := hmac.New(sha256.New, k.loginIDs)
	mac.Write([]byte(company + "/alias/" + loginID))
	return hex.EncodeToString(mac.Sum(nil))
}

// CounterName returns the name of an address or a phone in the key of a counter. A store
// never shows the address or phone itself.
func (k *Keys) CounterName(key string) string {
	mac := hmac.New(sha256.New, k.counters)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
