package tenant

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// FuzzNewPassword checks passwords. A bad password is refused in upper and lower
// case, and also with a name or login id of the account added to it.
func FuzzNewPassword(f *testing.F) {
	for _, s := range []string{"", "password", "PassWord1", "correct horse battery", "alice@example.com", "Alice.Example-2026", "+370 600 12345", "acmeacme!", "60012345", "ﬀﬀﬀﬀﬀﬀﬀﬀ", "\u0130\u0130\u0130\u0130\u0130\u0130\u0130\u0130"} {
		f.Add(s)
	}
	policy := DefaultPolicy()
	company := &Company{Code: "acme", Policy: policy, Regex: regexp.MustCompile(`[^0]`)}
	alice := record.Account{Mnemocode: "alice-0001", Email: "alice@example.com", Phone: "+37060012345", LoginName: "Alice the First"}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || utf8.RuneCountInString(s) > 128 {
			return
		}
		wanted := password.Normalize(s)
		err := company.CheckPassword("new_password", s, alice)
		if err != nil {
			var refused *wire.Refusal
			if !errors.As(err, &refused) || refused.Err != wire.ErrQuality || len(s) > 16 && strings.Contains(refused.Message, s) {
				t.Errorf("%+q: got %v", s, err)
			}
		}
		if err == nil && min(utf8.RuneCountInString(s), utf8.RuneCountInString(wanted)) < policy.Password.MinLength {
			t.Errorf("%+q is taken", s)
		}
		upper := strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' {
				r -= 'a' - 'A'
			}
			return r
		}, s)
		if other := company.CheckPassword("new_password", upper, alice); (other == nil) != (err == nil) {
			t.Errorf("%+q: %v, in capitals %v", s, err, other)
		}
		if strings.Trim(s, "0123456789!") == "" && len(s) <= password.MaxExtra {
			for _, word := range []string{"alice@example.com", "37060012345", "Alice the First", "ALICE-0001"} {
				if company.CheckPassword("new_password", word+s, alice) == nil || company.CheckPassword("new_password", s+word, alice) == nil {
					t.Errorf("%q is taken with %q at an end", word, s)
				}
			}
		}
	})
}
