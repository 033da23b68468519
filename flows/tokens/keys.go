// Package tokens creates and checks what clients hold during a login: session tokens,
// stateless tokens that hold their session themselves, the keys of login pages, the
// challenges of captcha pow and passkeys, codes and proofs of contacts, and the codes of authenticator apps.
//
// Start with New, which creates a token of random bytes; a store keeps its hash.
// Everything else is signed or encrypted with Keys, so nothing is stored until it is
// used. Every node of a deployment derives the same Keys from the secrets of their store.
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
	"slices"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Keys are derived from the secrets of a store. Only the nodes of a deployment know them. Of
// several keys for a purpose, the first one is that of the current secret: it makes what
// the others may still open.
type Keys struct {
	loginIDs   []byte // the current secret itself
	sessions   []cipher.AEAD
	contacts   []cipher.AEAD
	apps       []sealer
	signing    []sealer
	challenges [][]byte
	counters   []byte
	pages      [][]byte
	passkeys   [][]byte // of challenges
	stepUps    [][]byte
	codes      [][]byte
	retries    []byte // of kept answers, of the first secret
	handles    []byte // user handles, of the first secret, so that they stay
}

// A sealer encrypts what a store keeps, with the secret of this number.
type sealer struct {
	cipher.AEAD
	secret int64
}

// Overlap is how long tokens and tickets of a secret are accepted after another began. None
// of them lives longer, unless session temporary or otp ttl is insecure.
const Overlap = time.Hour

// NewKeys derives the keys (RFC 5869), one for each purpose and secret. The current secret
// is the newest that has begun. What the store keeps can be opened with any secret. Tokens
// and tickets are those of the current secret, of the one before it until Overlap has
// passed, and of one that begins soon: another node's clock may be ahead.
func NewKeys(secrets []record.Secret, now time.Time) (*Keys, error) {
	err := record.CheckSecrets(secrets)
	if err != nil {
		return nil, err
	}
	k := &Keys{}
	current := len(secrets) - 1
	for current > 0 && now.Before(secrets[current].Begins) {
		current--
	}
	order := []int{current}
	for i := range secrets {
		if i != current {
			order = append(order, i)
		}
	}
	for _, i := range order {
		derive := func(purpose string) []byte {
			key, failed := hkdf.Key(sha256.New, secrets[i].Value, nil, purpose, chacha20poly1305.KeySize)
			err = cmp.Or(err, failed)
			return key
		}
		aead := func(purpose string) cipher.AEAD {
			aead, failed := chacha20poly1305.NewX(derive(purpose))
			err = cmp.Or(err, failed)
			return aead
		}
		k.apps = append(k.apps, sealer{aead("mnemogate authenticator apps"), secrets[i].Number})
		k.signing = append(k.signing, sealer{aead("mnemogate signing keys"), secrets[i].Number})
		if i == 0 {
			k.handles, k.retries = derive("mnemogate passkey user handles"), derive("mnemogate retries")
		}
		// Of the later secrets, one may begin long after the current one: a clock was ahead.
		if i < current && slices.ContainsFunc(secrets[i+1:current+1], func(s record.Secret) bool { return !now.Before(s.Begins.Add(Overlap)) }) {
			continue
		}
		k.sessions = append(k.sessions, aead("mnemogate sealed sessions"))
		k.contacts = append(k.contacts, aead("mnemogate contacts"))
		k.challenges = append(k.challenges, derive("mnemogate captcha challenges"))
		k.pages = append(k.pages, derive("mnemogate page keys"))
		k.passkeys = append(k.passkeys, derive("mnemogate passkey challenges"))
		k.stepUps = append(k.stepUps, derive("mnemogate step-ups"))
		k.codes = append(k.codes, derive("mnemogate codes"))
		if i == current {
			k.loginIDs, k.counters = secrets[i].Value, derive("mnemogate counters")
		}
	}
	return k, err
}

// SealSigningKey encrypts a private key that signs the assertions of a company.
func (k *Keys) SealSigningKey(company string, key []byte) string {
	return seal(k.signing[0], company, key)
}

// OpenSigningKey decrypts the result of SealSigningKey. It also returns the number of the
// secret that it was encrypted with: see Secret.
func (k *Keys) OpenSigningKey(company, sealed string) (key []byte, secret int64, err error) {
	key, secret, err = open(k.signing, company, sealed)
	if err != nil {
		err = fmt.Errorf("opening a sealed signing key (were the store's own secrets changed?): %w", err)
	}
	return key, secret, err
}

// Secret returns the number of the current secret.
func (k *Keys) Secret() int64 { return k.signing[0].secret }

// encrypt returns a random nonce and the text, encrypted for its owner.
func encrypt(with cipher.AEAD, text []byte, owner string) []byte {
	nonce := make([]byte, with.NonceSize(), with.NonceSize()+len(text)+with.Overhead())
	rand.Read(nonce)
	return with.Seal(nonce, nonce, text, []byte(owner))
}

// decrypt decrypts the result of encrypt.
func decrypt(with cipher.AEAD, sealed []byte, owner string) ([]byte, error) {
	if len(sealed) < with.NonceSize() {
		return nil, errors.New("it is cut")
	}
	return with.Open(nil, sealed[:with.NonceSize()], sealed[with.NonceSize():], []byte(owner))
}

// seal encrypts a secret that a store keeps for a company.
func seal(with sealer, company string, secret []byte) string {
	return base64.RawStdEncoding.EncodeToString(encrypt(with, secret, company))
}

// open decrypts the result of seal with any of the sealers, and returns the number of its
// secret.
func open(with []sealer, company, sealed string) (secret []byte, number int64, err error) {
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range with {
		if secret, err = decrypt(s, raw, company); err == nil {
			return secret, s.secret, nil
		}
	}
	return nil, 0, err
}

// LoginIDHash returns the name under which data about a login id is stored if no account
// of the company has it. The login id itself is not stored, because a user may have typed
// a password there. The hash is keyed, so others can't compute it.
func (k *Keys) LoginIDHash(company, loginID string) string {
	return hex.EncodeToString(mac(k.loginIDs, company+"/alias/"+loginID))
}

// CounterName returns the name of an address, phone or email in the key of a counter, which
// does not reveal it.
func (k *Keys) CounterName(key string) string {
	return hex.EncodeToString(mac(k.counters, key)[:16])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
