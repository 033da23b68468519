package tokens

import (
	"strings"
	"testing"
	"time"
)

// FuzzContactTokens checks that only our own tokens of codes and proofs can be opened, in
// one spelling, for one owner and until they expire, and that they show nothing.
func FuzzContactTokens(f *testing.F) {
	keys, err := keysOf(string(make([]byte, 32)))
	must(f, err)
	now := time.UnixMicro(1_000_000).UTC()
	sealed := Contact{ID: NewID(), Name: "email", Value: "alice@example.com", Code: "12345678", Expires: now.Add(time.Minute)}
	token := keys.SealContact("backend of acme", sealed)
	if longest := keys.SealContact("", Contact{ID: NewID(), Name: "email", Value: strings.Repeat("&", 64) + "@" + strings.Repeat("\u00e4", 189), Code: "12345678", Expires: now}); len(longest) > MaxContact {
		f.Errorf("a token has %d characters", len(longest))
	}
	if strings.Contains(token, sealed.Code) || strings.Contains(token, "alice") {
		f.Error("a token shows what it holds")
	}
	f.Add(token, "backend of acme")
	f.Add(token, "proof of acme")
	f.Add(token+"=", "backend of acme")
	f.Add(token[:len(token)-1]+"\n", "backend of acme")
	f.Add(strings.Repeat("A", len(token)), "backend of acme")
	f.Fuzz(func(t *testing.T, s, owner string) {
		got, ok := keys.OpenContact(owner, s, now)
		if want := s == token && owner == "backend of acme"; ok != want {
			t.Fatalf("opened: %v", ok)
		}
		if ok && got != sealed {
			t.Errorf("got %+v", got)
		}
		if _, ok := keys.OpenContact(owner, s, sealed.Expires); ok {
			t.Error("an expired token was opened")
		}
	})
}
