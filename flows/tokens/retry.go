package tokens

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"golang.org/x/crypto/chacha20poly1305"
)

// A store may keep the answer to a request, for a client that repeats it. The answer has
// tokens, so it is sealed with a key that only a client can make that sends all of the
// request again. Both the name and the key also depend on the first secret of the
// deployment, which never changes: whoever reads the sessions alone can't guess them.

// RetryName returns the name of a request that has these parts, for record.Answers. It
// reveals none of them.
func (k *Keys) RetryName(parts ...string) string {
	return hex.EncodeToString(mac(k.retries, string(joined(parts))))
}

// SealAnswer encrypts an answer to the request that has these parts.
func (k *Keys) SealAnswer(answer []byte, parts ...string) ([]byte, error) {
	aead, err := k.retrySealer(parts)
	if err != nil {
		return nil, err
	}
	return encrypt(aead, answer, ""), nil
}

// OpenAnswer decrypts the result of SealAnswer. It fails if the request had other parts.
func (k *Keys) OpenAnswer(sealed []byte, parts ...string) ([]byte, error) {
	aead, err := k.retrySealer(parts)
	if err != nil {
		return nil, err
	}
	return decrypt(aead, sealed, "")
}

func (k *Keys) retrySealer(parts []string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, joined(parts), k.retries, "mnemogate answers", chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	return chacha20poly1305.NewX(key)
}

// joined is different for different parts.
func joined(parts []string) (all []byte) {
	for _, part := range parts {
		all = strconv.AppendInt(all, int64(len(part)), 10)
		all = append(append(all, ':'), part...)
	}
	return all
}
