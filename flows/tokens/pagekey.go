package tokens

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// The login page has no API key, because anyone who sees the page could read it there.
// Instead, mnemogate creates a key with each page. It is valid for one company, for an
// hour, and only on the routes that clients need to get a session. It is signed with a
// key that only the nodes of a deployment have, so every node can check it and none
// stores it.

// A page key consists of the time that it expires and a signature.
const (
	pageKeyPrefix = "mgp_"
	pageKeyText   = 8
	pageKeyBytes  = pageKeyText + sha256.Size
)

// NewPageKey returns a key for the login page of a company that is valid until expires.
func (k *Keys) NewPageKey(company string, expires time.Time) string {
	text := binary.BigEndian.AppendUint64(make([]byte, 0, pageKeyBytes), uint64(expires.UnixMicro()))
	return pageKeyPrefix + base64.RawURLEncoding.EncodeToString(append(text, k.pageSignature(company, text)...))
}

// pageSignature returns the signature of a company's page key. text has a fixed length.
func (k *Keys) pageSignature(company string, text []byte) []byte {
	mac := hmac.New(sha256.New, k.pages)
	mac.Write(text)
	mac.Write([]byte(company))
	return mac.Sum(nil)
}

var pageKeyLength = len(pageKeyPrefix) + base64.RawURLEncoding.EncodedLen(pageKeyBytes)

// IsPageKey reports whether a string has the form of a page key.
func IsPageKey(s string) bool {
	return len(s) == pageKeyLength && s[:len(pageKeyPrefix)] == pageKeyPrefix
}

// GoodPageKey reports whether pageKey is a valid, unexpired key of the company. It must
// have the form that IsPageKey checks.
func (k *Keys) GoodPageKey(company, pageKey string, now time.Time) bool {
	var raw [pageKeyBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(pageKey[len(pageKeyPrefix):]))
	if err != nil || n != pageKeyBytes { // the decoder skips line breaks
		return false
	}
	text := raw[:pageKeyText]
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text)))
	return hmac.Equal(k.pageSignature(company, text), raw[pageKeyText:]) && now.Before(expires)
}
