package tokens

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// The login page has no API key: whoever may see the page could read it there. It
// has a key of its own, which this program makes with each page. That is good for
// one company for an hour, where a client looks for a session and nowhere else. It
// is signed with a key that only the nodes of a deployment have, so that each of
// them knows it and none stores it.

// A page's key says when it ends, and is signed.
const (
	pageKeyPrefix = "mgp_"
	pageKeyText   = 8
	pageKeyBytes  = pageKeyText + sha256.Size
)

// NewPageKey returns a key for the login page of a company, which is good until then.
func (k *Keys) NewPageKey(company string, expires time.Time) string {
	text := binary.BigEndian.AppendUint64(make([]byte, 0, pageKeyBytes), uint64(expires.UnixMicro()))
	return pageKeyPrefix + base64.RawURLEncoding.EncodeToString(append(text, k.pageSignature(company, text)...))
}

// pageSignature is that of a company's page key, whose text has one length.
func (k *Keys) pageSignature(company string, text []byte) []byte {
	mac := hmac.New(sha256.New, k.pages)
	mac.Write(text)
	mac.Write([]byte(company))
	return mac.Sum(nil)
}

var pageKeyLength = len(pageKeyPrefix) + base64.RawURLEncoding.EncodedLen(pageKeyBytes)

// IsPageKey reports whether a string has the shape of a page's key.
func IsPageKey(s string) bool {
	return len(s) == pageKeyLength && s[:len(pageKeyPrefix)] == pageKeyPrefix
}

// GoodPageKey reports whether what has the shape of a page's key is one of the
// company that is still good.
func (k *Keys) GoodPageKey(company, pageKey string, now time.Time) bool {
	var raw [pageKeyBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(pageKey[len(pageKeyPrefix):]))
	if err != nil || n != pageKeyBytes { // it skips line breaks
		return false
	}
	text := raw[:pageKeyText]
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text)))
	return hmac.Equal(k.pageSignature(company, text), raw[pageKeyText:]) && now.Before(expires)
}
