package tokens

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// FuzzTokenShape checks that a token has one spelling. Other spellings of the same
// bytes are not tokens.
func FuzzTokenShape(f *testing.F) {
	token, _ := New(Prefix, 0)
	for _, s := range []string{token, token[:46] + "B", token + "=", "MGS_" + token[4:], "mgl_" + token[4:], "mgs_" + strings.Repeat("+", 43), "mgs_" + strings.Repeat("\n", 43), ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !IsWellFormed(Prefix, s) {
			return
		}
		b, err := base64.RawURLEncoding.DecodeString(s[len(Prefix):])
		if err != nil || Prefix+base64.RawURLEncoding.EncodeToString(b) != s {
			t.Errorf("%q is taken for a token", s)
		}
		if got, err := wire.ParseBearer([]string{"Bearer " + s}); err != nil || got != s {
			t.Errorf("%q is a token that no header can carry: %q, %v", s, got, err)
		}
	})
}
