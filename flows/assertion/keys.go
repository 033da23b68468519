// Package assertion signs assertions: short-lived JWTs that tell a backend who the user
// of a request is, and prove that the statement comes from mnemogate.
//
// Start with Signer, which signs for the sessions of a site and reuses what it signed. A
// Keyring keeps each company's keys in the store and rotates them. Keys given in the
// configuration come from ParseKey and Fixed instead.
package assertion

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// tokenType is the typ of an assertion. It keeps other JWTs apart, should a key ever sign
// some (RFC 8725, section 3.11).
const tokenType = "mnemogate+jwt"

// A Key signs assertions.
type Key struct {
	signer jose.Signer
	public jose.JSONWebKey
	begins time.Time // when it begins to sign
}

// ID returns the key's RFC 7638 thumbprint, the kid of its assertions.
func (k *Key) ID() string { return k.public.KeyID }

func newKey(private *ecdsa.PrivateKey) (*Key, error) {
	public := jose.JSONWebKey{Key: &private.PublicKey, Algorithm: string(jose.ES256), Use: "sig"}
	thumbprint, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, err
	}
	public.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: public.KeyID}},
		new(jose.SignerOptions).WithType(tokenType))
	return &Key{signer: signer, public: public}, err
}

// ParseKey parses a private key in PEM, as PKCS 8 or SEC 1. Its errors don't quote the
// text.
func ParseKey(text string) (*Key, error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return nil, errors.New("it is not a private key in PEM; make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256, and name its file as {file.PATH}")
		}
		switch block.Type {
		case "PRIVATE KEY":
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, errUnreadable
			}
			return onP256(parsed)
		case "EC PRIVATE KEY":
			if block.Headers["DEK-Info"] != "" {
				return nil, errEncrypted
			}
			parsed, err := x509.ParseECPrivateKey(block.Bytes)
			if err != nil {
				return nil, errUnreadable
			}
			return onP256(parsed)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errEncrypted
		}
	}
}

var (
	errUnreadable = errors.New("the private key can't be read: its PEM is damaged or holds another kind of key; use a key on the curve P-256")
	errEncrypted  = errors.New("the private key is encrypted with a passphrase; remove that with openssl pkey")
)

func onP256(parsed any) (*Key, error) {
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("the private key is not on the curve P-256, which ES256 needs; make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	}
	return newKey(private)
}

// Keys are a company's keys, oldest first.
type Keys struct {
	list     []*Key
	until    time.Time // when they are too old to sign, because there may be others
	document []byte
}

// Fixed returns keys that never change. The first one signs.
func Fixed(keys []*Key) (*Keys, error) { return newKeys(keys, time.Time{}) }

func newKeys(list []*Key, until time.Time) (*Keys, error) {
	var set jose.JSONWebKeySet
	for _, k := range list {
		set.Keys = append(set.Keys, k.public)
	}
	document, err := json.Marshal(set)
	return &Keys{list: list, until: until, document: document}, err
}

// JWKS returns the public keys as a JWK Set (RFC 7517).
func (k *Keys) JWKS() []byte { return k.document }

// signing returns the key that signs: the newest one that has begun to, or the first if
// none has.
func (k *Keys) signing(now time.Time) *Key {
	signs := k.list[0]
	for _, key := range k.list[1:] {
		if !key.begins.IsZero() && !now.Before(key.begins) {
			signs = key
		}
	}
	return signs
}
