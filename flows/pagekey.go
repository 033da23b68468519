package flows

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The login page has no API key: whoever may see the page could read it there. It
// has a key of its own, which this program makes with each page. That is good for
// one company for an hour, where a client looks for a session and nowhere else. It
// is signed with a key that only the nodes of a deployment have, so that each of
// them knows it and none stores it.

// pageKeyLife is how long a page may be open before it must be loaded anew.
const pageKeyLife = time.Hour

// A page's key says when it ends, and is signed.
const (
	pageKeyPrefix = "mgp_"
	pageKeyText   = 8
	pageKeyBytes  = pageKeyText + sha256.Size
)

// PageKey returns a key for the login page of a company, which need not have one.
// The error is ErrUnavailable if the store can't be asked for its secret.
func (s *Service) PageKey(ctx context.Context, company string) (string, error) {
	secrets, err := s.storeSecrets(record.WithStoreTime(ctx))
	if err != nil {
		return "", err
	}
	return newPageKey(secrets.page, company, s.Now().Add(pageKeyLife)), nil
}

func newPageKey(key []byte, company string, expires time.Time) string {
	text := binary.BigEndian.AppendUint64(make([]byte, 0, pageKeyBytes), uint64(expires.UnixMicro()))
	return pageKeyPrefix + base64.RawURLEncoding.EncodeToString(append(text, pageSignature(key, company, text)...))
}

// pageSignature is that of a company's page key, whose text has one length.
func pageSignature(key []byte, company string, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	mac.Write([]byte(company))
	return mac.Sum(nil)
}

var pageKeyLength = len(pageKeyPrefix) + base64.RawURLEncoding.EncodedLen(pageKeyBytes)

// isPageKey reports whether a string has the shape of a page's key.
func isPageKey(s string) bool {
	return len(s) == pageKeyLength && s[:len(pageKeyPrefix)] == pageKeyPrefix
}

// pageKeyGood reports whether what has the shape of a page's key is one of the
// company that is still good.
func pageKeyGood(key []byte, company, pageKey string, now time.Time) bool {
	var raw [pageKeyBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(pageKey[len(pageKeyPrefix):]))
	if err != nil || n != pageKeyBytes { // it skips line breaks
		return false
	}
	text := raw[:pageKeyText]
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text)))
	return hmac.Equal(pageSignature(key, company, text), raw[pageKeyText:]) && now.Before(expires)
}

// clientOf is Company for what a login page calls as well: its key will do, too.
func (s *Service) clientOf(ctx context.Context, code string, keys []string) (company *tenant.Company, key string, err error) {
	company, key, err = s.Company(code, keys)
	if err != wire.ErrAPIKeyInvalid || len(keys) != 1 || !isPageKey(keys[0]) {
		return company, key, err
	}
	secrets, unanswered := s.storeSecrets(ctx)
	if unanswered != nil {
		return nil, "", unanswered
	}
	good := pageKeyGood(secrets.page, code, keys[0], s.Now()) // also of a company that there is not: it takes as long
	if company = s.Companies[code]; good && company != nil {
		return company, s.uses(company, KeyOfPage), nil
	}
	return nil, "", err
}
