package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"time"
)

// The login page has no API key, because anyone who sees the page could read it there.
// Instead, mnemogate creates a key with each page. It is valid for one company, for an
// hour, and on the routes that the pages use, not on paths of the application.

const pageKeyPrefix = "mgk_"

var pageTicket = ticket{signature: sha256.Size}

// NewPageKey returns a key for the login page of a company that is valid until expires.
func (k *Keys) NewPageKey(company string, expires time.Time) string {
	return pageKeyPrefix + base64.RawURLEncoding.EncodeToString(pageTicket.issue(k.pages, company, expires))
}

var pageKeyLength = len(pageKeyPrefix) + base64.RawURLEncoding.EncodedLen(pageTicket.size())

// IsPageKey reports whether a string has the form of a page key.
func IsPageKey(s string) bool {
	return len(s) == pageKeyLength && s[:len(pageKeyPrefix)] == pageKeyPrefix
}

// VerifyPageKey reports whether pageKey is a valid, unexpired key of the company. It must
// have the form that IsPageKey checks.
func (k *Keys) VerifyPageKey(company, pageKey string, now time.Time) bool {
	_, ok := pageTicket.open(k.pages, company, pageKey[len(pageKeyPrefix):], now)
	return ok
}
