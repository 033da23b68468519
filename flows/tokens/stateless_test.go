package tokens

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// FuzzUnseal checks that only our own tokens can be opened, and that they open as
// what was sealed.
func FuzzUnseal(f *testing.F) {
	keys, err := keysOf(string(make([]byte, 32)))
	must(f, err)
	sealed := record.Session{Company: "acme", Account: 7, Generation: 3, LoginID: strings.Repeat("ab", 32), Expires: time.UnixMicro(1234567)}
	token := keys.NewStateless(sealed, "listing")
	f.Add(token)
	f.Add(token + "=")
	f.Add(token[:len(token)-1] + "\n")
	f.Add(Prefix + strings.Repeat("A", len(token)-len(Prefix)))
	f.Fuzz(func(t *testing.T, s string) {
		if !IsStateless(s) {
			return
		}
		got, company, listing, ok := keys.OpenStateless(s)
		if !ok {
			if s == token {
				t.Fatal("our own token is not taken")
			}
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(s[len(Prefix):])
		if err != nil || base64.RawURLEncoding.EncodeToString(raw) != s[len(Prefix):] {
			t.Error("another spelling of a token is taken")
		}
		if company != TagOf(sealed.Company) || listing != TagOf("listing") || got.Account != sealed.Account || got.Generation != sealed.Generation ||
			got.LoginID != sealed.LoginID || !got.Expires.Equal(sealed.Expires) || got.State != record.CheckPassword {
			t.Errorf("got %+v", got)
		}
	})
}
