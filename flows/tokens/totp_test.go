package tokens

import (
	"bytes"
	"encoding/base64"
	"testing"
)

// FuzzSealedSecrets checks that a sealed secret of an app or a signing key shows
// nothing of it, that it opens only for the company it was sealed for, and that altered
// data never opens as another secret.
func FuzzSealedSecrets(f *testing.F) {
	keys, err := keysOf(string(make([]byte, 32)))
	must(f, err)
	other, err := keysOf("the secret of another deployment")
	must(f, err)
	f.Add("acme", []byte("12345678901234567890"), 3, byte(1))
	f.Add("", []byte{}, 40, byte(0x80))
	f.Fuzz(func(t *testing.T, company string, secret []byte, at int, flip byte) {
		for _, kind := range []struct {
			seal func(k *Keys, company string, secret []byte) string
			open func(k *Keys, company, sealed string) ([]byte, error)
		}{
			{(*Keys).SealTOTP, (*Keys).OpenTOTP},
			{(*Keys).SealSigningKey, func(k *Keys, company, sealed string) ([]byte, error) {
				key, _, err := k.OpenSigningKey(company, sealed)
				return key, err
			}},
		} {
			sealed := kind.seal(keys, company, secret)
			raw, err := base64.RawStdEncoding.DecodeString(sealed)
			if err != nil || len(secret) > 8 && bytes.Contains(raw, secret) { // fewer bytes may be there by chance
				t.Errorf("%q shows the secret, or is no base64: %v", sealed, err)
			}
			got, err := kind.open(keys, company, sealed)
			if err != nil || string(got) != string(secret) {
				t.Fatalf("got %q, %v", got, err)
			}
			if _, err := kind.open(keys, company+"x", sealed); err == nil {
				t.Error("it opened for another company")
			}
			if _, err := kind.open(other, company, sealed); err == nil {
				t.Error("it opened under another store's secret")
			}
			altered := []byte(sealed)
			altered[(at&0xffff)%len(altered)] ^= flip
			if string(altered) != sealed {
				if got, err := kind.open(keys, company, string(altered)); err == nil && string(got) != string(secret) {
					t.Error("something altered opened as something else")
				}
			}
			_, _ = kind.open(keys, company, string(secret)) // must not panic
		}
	})
}

func TestSecretsOfAppsHave16To64Bytes(t *testing.T) {
	for n, want := range map[int]bool{15: false, 16: true, 64: true, 65: false} {
		if _, err := ParseTOTPSecret(FormatTOTPSecret(make([]byte, n))); (err == nil) != want {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// FuzzParseTOTPSecret checks that a secret stays the same when it is formatted and
// parsed again, however it was spelled.
func FuzzParseTOTPSecret(f *testing.F) {
	for _, s := range []string{"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "gezd gnbv gy3t qojq gezd gnbv gy3t qojq", "GEZDGNBV====", "", "é", "AAAAAAAAAAAAAAAAAAAAAAAAAB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := ParseTOTPSecret(text)
		if err != nil {
			return
		}
		again, err := ParseTOTPSecret(FormatTOTPSecret(secret))
		if err != nil || string(again) != string(secret) || len(secret) < minTOTPSecret || len(secret) > maxTOTPSecret {
			t.Errorf("%q is read as %x, then %x, %v", text, secret, again, err)
		}
	})
}
