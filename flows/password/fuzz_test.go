package password

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	cryptbase64 "github.com/go-crypt/x/base64"
)

// FuzzKeycloak converts credentials to hashes. CheckHash must be able to judge each
// result, and no error may quote the credential.
func FuzzKeycloak(f *testing.F) {
	for _, s := range []string{
		`{"credentialData":"{\"hashIterations\":27500,\"algorithm\":\"pbkdf2-sha256\"}","secretData":"{\"value\":\"MDEyMzQ1Njc4OTAx\",\"salt\":\"MDEyMzQ1Njc\"}"}`,
		`{"credentialData":{"hashIterations":5,"algorithm":"argon2","additionalParameters":{"type":["id"],"version":["1.3"],"memory":["7168"],"parallelism":["1"]}},"secretData":{"value":"MDEyMzQ1Njc4OTAx","salt":"MDEyMzQ1Njc"}}`,
		`{"credentialData":{"hashIterations":-1,"algorithm":"pbkdf2","additionalParameters":{"type":[]}},"secretData":{"value":"$","salt":"$$"}}`,
		`{}`, `[]`, `{"credentialData":"\"{}\"","secretData":null}`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, credential []byte) {
		hash, err := KeycloakHash(credential)
		if (err == nil) != (hash != "") {
			t.Fatalf("%q: got %q, %v", credential, hash, err)
		}
		if err == nil {
			err = CheckHash(hash, Argon2id{})
		}
		if err == nil && !LooksLikeHash(hash) {
			t.Errorf("%q is taken and does not look like a hash", hash)
		}
		if err != nil && len(credential) > 20 && strings.Contains(err.Error(), string(credential)) {
			t.Error("the error repeats the credential")
		}
	})
}

// FuzzVerify verifies secrets against cheap foreign hashes. A hash matches a secret
// exactly if the secret derives its key.
func FuzzVerify(f *testing.F) {
	for _, test := range foreignHashes {
		f.Add(test.hash, test.secret)
	}
	for _, test := range exportedHashes {
		f.Add(test.hash, test.secret)
	}
	f.Add("$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc", "")
	f.Add("$scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc", "\x00")
	f.Add("$pbkdf2-sha256$i=1,l=8$MDEyMzQ1Njc$MDEyMzQ1Njc", "b")
	f.Add("$fbscrypt$v=1,n=1,r=1,p=1,ss=Bw,sk=MDEyMzQ1Njc4OTAxMjM0NQ$MDEyMzQ1Njc$MDEyMzQ1Njc4OTAxMjM0NQ", "c")
	f.Add("pbkdf2_sha256$1$x$MDEyMzQ1Njc", "a")
	f.Add("{argon2}$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc", "d")
	f.Add("{scrypt@SpringSecurity_v5_8}$10101$MDEyMzQ1Njc=$MDEyMzQ1Njc=", "e")
	f.Add("$7$000...0....00000000$"+strings.Repeat("0", 43), "0")
	f.Add("$5$rounds=1000$s$"+strings.Repeat("a", 43), "")
	f.Add("$6$rounds=1000$s$"+strings.Repeat("a", 86), "f")
	f.Add("$P$5"+strings.Repeat("a", 30), " it's ")
	f.Add("$1$s$"+strings.Repeat("a", 22), "g")
	f.Add("$apr1$12345678$"+strings.Repeat("a", 22), "")
	f.Add("$H$5"+strings.Repeat("a", 30), "<&>")
	f.Add("$S$5"+strings.Repeat("a", 51), "h")
	f.Add("{SSHA}"+strings.Repeat("a", 32), "i")
	f.Add("pbkdf2:sha512:1$x$0123456789abcdef", "j")
	f.Add("scrypt:2:1:1$x$0123456789abcdef", "k")
	f.Add("AQAAAAEAAAABAAAACDAxMjM0NTY3MDEyMzQ1Njc=", "l")
	h := NewHasher(1)
	f.Fuzz(func(t *testing.T, hash, secret string) {
		d, err := parseHash(hash)
		bcrypt := len(d.salt) == 0 // derives nothing from a wrong secret
		if err != nil || bcrypt || d.cost > 4*time.Millisecond {
			return
		}
		var derived []byte
		var matches bool
		for _, hashed := range d.hashed(secret) {
			if derived, err = d.derive(hashed); err != nil || len(derived) != len(d.key) {
				t.Fatalf("%q: derived %d bytes, %v, want %d", hash, len(derived), err, len(d.key))
			}
			matches = matches || bytes.Equal(derived, d.key)
		}
		right := hash[:strings.LastIndexByte(hash, '$')+1] + base64.RawStdEncoding.EncodeToString(derived)
		switch d.kind {
		case "7":
			right = hash[:strings.LastIndexByte(hash, '$')+1] + string(cryptbase64.EncodeCrypt(derived))
		case "5", "6", "1", "apr1", "P", "H", "S":
			right = strings.TrimSuffix(hash, string(d.key)) + string(derived)
		case "werkzeug":
			right = hash[:strings.LastIndexByte(hash, '$')+1] + hex.EncodeToString(derived)
		case "aspnet", "spring_SSHA", "spring_SSHA256", "spring_SSHA512":
			prefix, encoded, _ := strings.Cut(withDollar(hash)[1:], "$")
			blob, err := fromBase64(encoded)
			must(t, err)
			right = "$" + prefix + "$" + base64.StdEncoding.EncodeToString(append(blob[:len(blob)-len(d.key)], derived...))
		}
		for hash, want := range map[string]bool{hash: matches, right: true} {
			ok, _, err := h.Verify(context.Background(), acme, quick, hash, secret)
			if err != nil || ok != want {
				t.Errorf("%q: got %v, %v, want %v", hash, ok, err, want)
			}
			match, err := h.Match(context.Background(), acme, quick, []string{hash}, secret)
			if err != nil || (match == hash) != want {
				t.Errorf("%q: matched %q, %v, want %v", hash, match, err, want)
			}
		}
	})
}
