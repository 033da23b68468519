package tokens

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// FuzzPageKey checks that only the key that was signed for the company is accepted,
// and only until it expires.
func FuzzPageKey(f *testing.F) {
	key, ends := []byte("0123456789abcdef0123456789abcdef"), time.Unix(1_800_000_000, 0)
	keys, others := &Keys{pages: [][]byte{key}, challenges: [][]byte{key}}, &Keys{pages: [][]byte{key[1:]}}
	good := keys.NewPageKey("acme", ends)
	last := ends.Add(-time.Microsecond)
	if !IsPageKey(good) || !keys.VerifyPageKey("acme", good, last) || keys.VerifyPageKey("acme", good, ends) {
		f.Fatalf("%s is no key, or has no end", good)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(good[len(pageKeyPrefix):])
	challenge := keys.NewChallenge("acme", ends)
	for _, s := range []string{
		good, good + " ", good + "\n", good[:len(good)-1], good[:len(good)-1] + "\n", good[:len(good)-1] + "=", strings.ToUpper(good), "", pageKeyPrefix,
		keys.NewPageKey("umbrella", ends), others.NewPageKey("acme", ends), keys.NewPageKey("acme", ends.Add(time.Hour))[:20] + good[20:],
		pageKeyPrefix + base64.StdEncoding.EncodeToString(raw), challenge, pageKeyPrefix + challenge, pageKeyPrefix + strings.Repeat("A", pageKeyLength-len(pageKeyPrefix)),
	} {
		f.Add(s, "acme")
	}
	f.Add(good, "")
	f.Add(good, "umbrella")
	f.Add(good, "acme\x00")
	f.Fuzz(func(t *testing.T, s, company string) {
		if IsPageKey(s) && keys.VerifyPageKey(company, s, last) && (s != good || company != "acme") {
			t.Errorf("%q is a key of %q", s, company)
		}
	})
}
