package password

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

// quick is for tests in which the cost does not matter.
var quick = Argon2id{64, 1, 1}

func TestArgon2idCheckRefusesLessThanOWASPAndWhatNoLoginShouldCost(t *testing.T) {
	for _, p := range []Argon2id{DefaultArgon2id, {47104, 1, 1}, {12288, 3, 1}, {9216, 4, 1}, {7168, 5, 1}, {7168, 64, 16}, {1 << 20, 4, 16}} {
		if err := p.Check(); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
	for p, want := range map[Argon2id]string{
		{}:                    "19456 2 1",
		{19456, 2, 0}:         "19456 2 1",
		{19456, 1, 1}:         "19456 2 1",
		{7167, 64, 1}:         "19456 2 1",
		{1<<20 + 1, 1, 1}:     "over 1 GiB",
		{7168, 65, 1}:         "over 64",
		{19456, 2, 17}:        "over 16",
		{1 << 20, 5, 1}:       "times iterations",
		{1<<32 - 1, 1, 255}:   "over 1 GiB",
		{19456, 1<<32 - 1, 1}: "over 64",
	} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", p, err, want)
		}
	}
}

const long = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// foreignHashes were made by other programs. The name says which.
var foreignHashes = []struct{ name, secret, hash string }{
	{"argon2's own test, 1 lane", "password", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"},
	{"argon2's own test, 2 lanes", "password", "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc"},
	{"argon2 command, 16 bytes", "pässwörd", "$argon2id$v=19$m=64,t=3,p=2$MDEyMzQ1Njc4OWFiY2RlZg$aPr5VAKtfxD2fwCbhtx4iw"},
	{"argon2 command, argon2i, 24 bytes", "password", "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG"},
	{"hash-wasm", "correct horse", "$argon2id$v=19$m=64,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$dPtrHTEawLtMiR9+/XloAkXZ+EtyrY+bvmHIbiufhk0"},

	{"Openwall's crypt_blowfish test", "U*U*", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK"},
	{"libxcrypt 2b", "correct horse", "$2b$05$CCCCCCCCCCCCCCCCCCCCC.WrAwgFxicHZ3kL7zMvXYXHKosDn8ot2"},
	{"libxcrypt 2y", "pässwörd", "$2y$05$abcdefghijklmnopqrstuuZVEMa1pjhlynBQ1qXmSvGBJpN9h1w8G"},
	{"libxcrypt, 72 bytes", long, "$2y$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui"},
	{"libxcrypt, cut at 72 bytes", long + "chars after 72 are ignored", "$2y$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui"},
	{"bcryptjs", "correct horse", "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"},

	{"RFC 7914, 64 bytes", "pleaseletmein", "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofLVQylVYT8Pz2LUlwUkKpr55h6F3A1lHkDfzwF7RVdYhw"},
	{"passlib's manual", "password", "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"},
	{"hashlib, r and p", "pässwörd", "$scrypt$ln=10,r=4,p=3$AAECAwQFBgcICQoLDA0ODw$rU71n1L1O4u1e+Xdhh1gKJ2beJsrSD5AfN9rhkrw5Wg"},
	{"libxcrypt 7, RFC 7914's input", "pleaseletmein", "$7$C6..../....SodiumChloride$kBGj9fHznVYFQMEn/qDCfrDevf9YDtcDdKvEqHJLV8D"},
	{"libxcrypt 7", "pässwörd", "$7$A6..../....abcdefghijklmnop$GhywLxg5PlcEkizJuCKwWrjzyDuwwW5syx/PPTZBRa7"},

	{"RFC 6070", "passwordPASSWORDpassword", "$pbkdf2-sha1$i=4096$c2FsdFNBTFRzYWx0U0FMVHNhbHRTQUxUc2FsdFNBTFRzYWx0$PS7sT+QchJuAyNg2YsDkSospGpZM8vBwOA"},
	{"passlib's manual, sha256", "password", "$pbkdf2-sha256$6400$0ZrzXitFSGltTQnBWOsdAw$Y11AchqV4b0sUisdZd0Xr97KWoymNE0LNNrnEgY4H9M"},
	{"passlib's manual, salt of 10 bytes", "password", "$pbkdf2-sha256$8000$XAuBMIYQQogxRg$tRRlz8hYn63B9LYiCd6PRo6FMiunY9ozmMMI3srxeRE"},
	{"hashlib, sha1 with dots", "pässwörd", "$pbkdf2$1000$.//7//v/.//7//v/.//7/w$v3m/Lc4ANYycMxpTjKlXwf.0ce0"},
	{"hashlib, sha256 as PHC", "pässwörd", "$pbkdf2-sha256$i=1000,l=32$+//7//v/+//7//v/+//7/w$sY5ypoDMvyA6D+BJe5TdItRBHRg96RqG4iZBrHoMO+M"},
	{"the same, padded", "pässwörd", "$pbkdf2-sha256$i=1000$+//7//v/+//7//v/+//7/w==$sY5ypoDMvyA6D+BJe5TdItRBHRg96RqG4iZBrHoMO+M="},
	{"hashlib, sha512 with dots", "pässwörd", "$pbkdf2-sha512$1000$.//7//v/.//7//v/.//7/w$SasqYl2QIJqCFmHssMNuy9CpQc5wEH0rWpOixp0OeUrQdB7QORKHt8UiUeAdwQyDCWI4BFeMz.pThIO.zr5e4w"},
}

func TestVerifyTellsWhatShouldBeReplaced(t *testing.T) {
	h := NewHasher(1)
	p := Argon2id{128, 2, 1}
	hash, err := h.Hash(t.Context(), acme, p, "a secret")
	must(t, err)
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=128,t=2,p=1$") {
		t.Error("the form of the hash has changed")
	}
	for _, test := range []struct {
		name     string
		now      Argon2id
		secret   string
		ok       bool
		outdated bool
	}{
		{"same", p, "a secret", true, false},
		{"stronger than needed", quick, "a secret", true, false},
		{"less memory than now", Argon2id{129, 2, 1}, "a secret", true, true},
		{"fewer iterations than now", Argon2id{128, 3, 1}, "a secret", true, true},
		{"less parallelism than now", Argon2id{128, 2, 2}, "a secret", true, true},
		{"wrong, weak or not", Argon2id{129, 2, 1}, "A secret", false, false},
		{"every byte counts", p, "a secret ", false, false},
	} {
		ok, outdated, err := h.Verify(t.Context(), acme, test.now, hash, test.secret)
		if ok != test.ok || outdated != test.outdated || err != nil {
			t.Errorf("%s: %v, %v, %v", test.name, ok, outdated, err)
		}
	}
	const shortSalt = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	if ok, outdated, err := h.Verify(t.Context(), acme, quick, shortSalt, "password"); !ok || !outdated || err != nil {
		t.Errorf("a salt of 8 bytes: %v, %v, %v", ok, outdated, err)
	}
}

func TestVerifyTakesAnyFormAndReplacesAllButTheFirst(t *testing.T) {
	h := NewHasher(1)
	hash, err := h.Hash(t.Context(), acme, quick, "a secret")
	must(t, err)
	for _, test := range []struct {
		forms        []string
		ok, outdated bool
	}{
		{[]string{"a secret", "another"}, true, false},
		{[]string{"another", "a secret"}, true, true},
		{[]string{"another", "wrong"}, false, false},
	} {
		if ok, outdated, err := h.Verify(t.Context(), acme, quick, hash, test.forms...); ok != test.ok || outdated != test.outdated || err != nil {
			t.Errorf("%q: %v, %v, %v", test.forms, ok, outdated, err)
		}
	}
}

func TestVerifyOfNoHashDoesTheSameWork(t *testing.T) {
	h := NewHasher(1)
	p := Argon2id{4096, 2, 1}
	hash, err := h.Hash(t.Context(), acme, p, "secret")
	must(t, err)
	for name, waste := range map[string]func() (bool, error){
		"Verify": func() (bool, error) { ok, _, err := h.Verify(t.Context(), acme, p, "", "wrong"); return ok, err },
		"Match": func() (bool, error) {
			match, err := h.Match(t.Context(), acme, p, nil, "wrong")
			return match != "", err
		},
	} {
		if ok, err := waste(); ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
		// An idle machine measures a ratio of 1.0 at once. The bounds leave much room,
		// but a call that computes nothing is far outside them, however often both
		// are timed. They take turns, because other tests may slow either.
		without, with := time.Hour, time.Hour
		for round := range 1000 {
			without = min(without, elapsed(func() { waste() }))
			with = min(with, elapsed(func() { h.Verify(t.Context(), acme, p, hash, "wrong") }))
			if round >= 20 && without > with/2 && without < with*2 {
				break
			}
		}
		if without < with/2 || without > with*2 {
			t.Errorf("%s takes %v without a hash, %v with one", name, without, with)
		}
	}
}

func elapsed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func TestMatchFindsTheHashOfASet(t *testing.T) {
	h := NewHasher(1)
	secrets := []string{"one", "two", "three"}
	hashes, err := h.HashSet(t.Context(), acme, quick, secrets)
	must(t, err)
	other, err := h.Hash(t.Context(), acme, quick, "alone")
	must(t, err)
	salted := func(hash string) string { return hash[:strings.LastIndexByte(hash, '$')] }
	if salted(hashes[0]) != salted(hashes[2]) || salted(hashes[0]) == salted(other) {
		t.Error("a set must have one salt of its own")
	}
	const bcrypt = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"
	const scrypt = "$scrypt$ln=10,r=4,p=3$AAECAwQFBgcICQoLDA0ODw$rU71n1L1O4u1e+Xdhh1gKJ2beJsrSD5AfN9rhkrw5Wg"
	all := append(slices.Clone(hashes), other, bcrypt, scrypt)
	for secret, want := range map[string]string{
		"one": hashes[0], "two": hashes[1], "three": hashes[2], "alone": other,
		"correct horse": bcrypt, "pässwörd": scrypt, "four": "", "": "",
	} {
		if match, err := h.Match(t.Context(), acme, quick, all, secret); match != want || err != nil {
			t.Errorf("%q: %q, %v", secret, match, err)
		}
		if ok, _, err := h.Verify(t.Context(), acme, quick, want, secret); ok != (want != "") || err != nil {
			t.Errorf("Verify %q: %v, %v", secret, ok, err)
		}
	}
	if _, err := h.Match(t.Context(), acme, quick, append(all, "rubbish"), "one"); err == nil {
		t.Error("what is no hash must be an error")
	}
}

// Hashes of a set share what they derive: digests with the same salt have the same
// salted, but keys of different lengths do not.
func TestHashesShareASaltOnlyIfTheyDeriveTheSame(t *testing.T) {
	salted := func(hash string) string {
		d, err := parseHash(hash)
		must(t, err)
		return d.salted
	}
	const argon = "$argon2id$v=19$m=64,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$dPtrHTEawLtMiR9+/XloAkXZ+EtyrY+bvmHIbiufhk0"
	distinct := []string{
		argon,
		strings.Replace(argon, "m=64", "m=65", 1),
		strings.Replace(argon, "MDEy", "MDEz", 1),
		strings.Replace(argon, "argon2id", "argon2i", 1),
		strings.TrimSuffix(argon, "hk0"),
		"$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
		"$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6f",
		"$P$5ZDzPE45C8.3TBRHYFfEPuJPeyBTAW1",
		"$P$5ZDzPE45D8.3TBRHYFfEPuJPeyBTAW1",
	}
	seen := map[string]bool{}
	for _, hash := range distinct {
		if seen[salted(hash)] {
			t.Error("taken for the same as another:", hash)
		}
		seen[salted(hash)] = true
	}
	if !seen[salted(strings.Replace(argon, "dPtr", "ePtr", 1))] {
		t.Error("the key alone must make no difference")
	}
}

func TestCheckHashRefuses(t *testing.T) {
	const salt, key = "MDEyMzQ1Njc4OWFiY2RlZg", "dPtrHTEawLtMiR9+/XloAkXZ+EtyrY+bvmHIbiufhk0"
	const tail = "$" + salt + "$" + key
	const bcrypt = "abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"
	for _, test := range []struct{ name, hash, want string }{
		{"nothing", "", "not supported"},
		{"a password", "hunter2hunter2", "not supported"},
		{"dollars", "$$$$", "not supported"},
		{"md5crypt cut off", "$1$abcdefgh$G//4keteveJp0qb8z2DxG", "form"},
		{"md5crypt with a salt of 9", "$1$abcdefghi$G//4keteveJp0qb8z2DxG/", "form"},
		{"apr1 without salt", "$apr1$$G//4keteveJp0qb8z2DxG/", "form"},
		{"yescrypt", "$y$j9T$abcdefgh$abcdefgh", "leave the password out"},
		{"sha512crypt cut off", "$6$abcdefgh$abcdefgh", "form"},
		{"sha512crypt of 999 rounds", "$6$rounds=999$saltsalt$" + strings.Repeat("a", 86), "1000 to 1000000"},
		{"sha512crypt of rounds beyond 32 bits", "$6$rounds=18446744073709551617$saltsalt$" + strings.Repeat("a", 86), "1000 to 1000000"},
		{"sha512crypt without salt", "$6$$" + strings.Repeat("a", 86), "form"},
		{"sha512crypt with a salt of 17", "$6$" + strings.Repeat("s", 17) + "$" + strings.Repeat("a", 86), "form"},
		{"sha512crypt with the key of sha256crypt", "$6$saltsalt$" + strings.Repeat("a", 43), "form"},
		{"sha256crypt with another character", "$5$saltsalt$" + strings.Repeat("a", 42) + "+", "form"},
		{"sha256crypt with rounds alone", "$5$rounds=5000", "form"},

		{"WordPress, MD5 2^19 times", "$P$H" + strings.Repeat("a", 30), "2^18"},
		{"WordPress, MD5 2^6 times", "$P$4" + strings.Repeat("a", 30), "2^18"},
		{"WordPress, cut off", "$P$B" + strings.Repeat("a", 29), "form"},
		{"phpBB, MD5 2^19 times", "$H$H" + strings.Repeat("a", 30), "5 to G"},
		{"phpBB, bcrypt of the hash", `$H\2y$zv1uIaq1$10\1ff4640409fb96a449c1fO$x`, "not supported"},
		{"Drupal, SHA-512 2^21 times", "$S$J" + strings.Repeat("a", 51), "2^20"},
		{"Drupal, cut off", "$S$D" + strings.Repeat("a", 50), "form"},
		{"Drupal, of an MD5", "U$S$D" + strings.Repeat("a", 51), "not supported"},

		{"LDAP, no salt", "{SSHA}AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "form"},
		{"LDAP, the key of SSHA256", "{SSHA512}83i2ED/UEozYASIUPLoa9YFqPt+XGkCdWk77I43+09HUWksppZQyRg==", "form"},
		{"LDAP, plain SHA", "{SHA}AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "not supported"},

		{"Werkzeug, plain", "sha256$salt$" + strings.Repeat("0", 64), "not supported"},
		{"Werkzeug, pbkdf2 of md5", "pbkdf2:md5:1000$salt$" + strings.Repeat("0", 32), "form"},
		{"Werkzeug, pbkdf2 without iterations", "pbkdf2:sha256$salt$" + strings.Repeat("0", 64), "form"},
		{"Werkzeug, base64", "pbkdf2:sha256:1000$salt$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w=", "encoding"},
		{"Werkzeug, N no power of two", "scrypt:32767:8:1$salt$" + strings.Repeat("0", 64), "form"},
		{"Werkzeug, scrypt of 512 MiB", "scrypt:524288:8:1$salt$" + strings.Repeat("0", 64), "256 MiB"},

		{"ASP.NET, version 2", "AAABAgMEBQYHCAkKCwwNDg+ukCEMDf0yyQ29NYubggHIVY0sdEUfdyeM+E1LtH1uJg==", "version 2 has only 1000"},
		{"ASP.NET, SHA-256 of 32 bits of iterations", "AQAAAAH/////AAAAEAABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw==", "3000000 iterations"},
		{"ASP.NET, another function", "AQAAAAMAACcQAAAAEAABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw==", "not supported"},
		{"ASP.NET, a salt beyond the end", "AQAAAAEAACcQAAAAMAABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw==", "not supported"},
		{"ASP.NET, a key of 7 bytes", "AQAAAAEAACcQAAAAKQABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw==", "8 to 128"},

		{"WordPress, another bcrypt", "$wp$2x$10$" + bcrypt, "form"},
		{"WordPress, bcrypt of cost 15", "$wp$2y$15$" + bcrypt, "cost 14 is the most"},
		{"WordPress, nothing", "$wp$", "form"},

		{"Spring, plain", "{noop}hunter2hunter2", "not supported"},
		{"Spring, SHA-256", "{SHA-256}{salt}0123456789abcdef", "not supported"},
		{"Spring, another name", "{rot13}uhagre2", "not supported"},
		{"Spring, another version", "{pbkdf2@SpringSecurity_v9_9}" + strings.Repeat("00", 48), "not supported"},
		{"Spring, bcrypt 2x", "{bcrypt}$2x$10$" + bcrypt, "not supported"},
		{"Spring, bcrypt of cost 15", "{bcrypt}$2a$15$" + bcrypt, "cost 14 is the most"},
		{"Spring, bcrypt without dollar", "{bcrypt}2a$10$" + bcrypt, "form"},
		{"Spring, argon2d", "{argon2}$argon2d$v=19$m=64,t=2,p=1" + tail, "form"},
		{"Spring, argon2 of 257 MiB", "{argon2@SpringSecurity_v5_8}$argon2id$v=19$m=263168,t=1,p=1" + tail, "256 MiB"},
		{"Spring, scrypt of 512 MiB", "{scrypt}$130801" + tail, "256 MiB"},
		{"Spring, scrypt of r=0", "{scrypt}$e0001" + tail, "range"},
		{"Spring, scrypt without hex", "{scrypt}$xyz" + tail, "form"},
		{"Spring, scrypt of a huge number", "{scrypt}$fffffffff" + tail, "form"},
		{"Spring, pbkdf2 in base64", "{pbkdf2}YSn" + strings.Repeat("A", 77), "defaults"},
		{"Spring, pbkdf2 with the other salt", "{pbkdf2}" + strings.Repeat("00", 48), "defaults"},
		{"Spring, nothing", "{bcrypt}x", "form"},
		{"Spring, no name", "{}" + tail, "not supported"},
		{"argon2d", "$argon2d$v=19$m=64,t=2,p=1" + tail, "not supported"},
		{"another case", "$Argon2id$v=19$m=64,t=2,p=1" + tail, "not supported"},

		{"argon2 1.0", "$argon2id$v=16$m=64,t=2,p=1" + tail, "v=19"},
		{"argon2 without version", "$argon2id$m=64,t=2,p=1" + tail, "v=19"},
		{"argon2 without parallelism", "$argon2id$v=19$m=64,t=2" + tail, "form"},
		{"argon2 with a parameter twice", "$argon2id$v=19$m=64,t=2,t=2" + tail, "form"},
		{"argon2 with another parameter", "$argon2id$v=19$m=64,t=2,p=1,data=1" + tail, "form"},
		{"argon2 with a sign", "$argon2id$v=19$m=+64,t=2,p=1" + tail, "form"},
		{"argon2 with a huge number", "$argon2id$v=19$m=99999999999999999999,t=2,p=1" + tail, "form"},
		{"argon2 with p beyond a byte", "$argon2id$v=19$m=64,t=2,p=257" + tail, "form"},
		{"argon2 without iterations", "$argon2id$v=19$m=64,t=0,p=1" + tail, "at least 1 iteration"},
		{"argon2 without lanes", "$argon2id$v=19$m=64,t=1,p=0" + tail, "at least 1 iteration"},
		{"argon2 without memory", "$argon2id$v=19$m=7,t=1,p=1" + tail, "at least 1 iteration"},
		{"argon2 of 257 MiB", "$argon2id$v=19$m=263168,t=1,p=1" + tail, "256 MiB"},
		{"argon2 of 4 TiB", "$argon2id$v=19$m=4294967295,t=1,p=1" + tail, "1048576"},
		{"argon2 of 256 MiB in 20 iterations", "$argon2id$v=19$m=262144,t=20,p=1" + tail, "1048576"},
		{"argon2 with a salt of 7 bytes", "$argon2id$v=19$m=64,t=2,p=1$MDEyMzQ1Ng$" + key, "8 to 128"},
		{"argon2 with a key of 4 bytes", "$argon2id$v=19$m=64,t=2,p=1$" + salt + "$dPtrHQ", "8 to 128"},
		{"argon2 with a key of 129 bytes", "$argon2id$v=19$m=64,t=2,p=1$" + salt + "$" + strings.Repeat("AAAA", 43), "8 to 128"},
		{"argon2 without key", "$argon2id$v=19$m=64,t=2,p=1$" + salt, "form"},
		{"argon2 with bits left over", "$argon2id$v=19$m=64,t=2,p=1$" + salt[:len(salt)-1] + "h$" + key, "base64"},
		{"argon2 with a line feed", "$argon2id$v=19$m=64,t=2,p=1$" + salt + "\n$" + key, "visible ASCII"},
		{"endless", "$argon2id$v=19$m=64,t=2,p=1" + tail + strings.Repeat("A", 1024), "1024"},

		{"bcrypt of cost 15", "$2b$15$" + bcrypt, "cost 14 is the most"},
		{"bcrypt of cost 32", "$2b$32$" + bcrypt, "04 to 14"},
		{"bcrypt of cost 31", "$2b$31$" + bcrypt, "cost 14 is the most"},
		{"bcrypt of cost 3", "$2b$03$" + bcrypt, "04 to 14; leave it out"},
		{"bcrypt with a short cost", "$2b$4$" + bcrypt, "form"},
		{"bcrypt with a sign", "$2b$+4$" + bcrypt, "04 to 14"},
		{"bcrypt cut off", "$2b$04$" + bcrypt[1:], "form"},
		{"bcrypt with something behind", "$2b$04$" + bcrypt + "x", "form"},
		{"bcrypt with another character", "$2b$04$" + bcrypt[1:] + "=", "form"},
		{"bcrypt 2x", "$2x$04$" + bcrypt, "not supported"},

		{"scrypt of 512 MiB", "$scrypt$ln=19,r=8,p=1" + tail, "256 MiB"},
		{"scrypt of many blocks", "$scrypt$ln=4,r=1024,p=1024" + tail, "2097152 as N times r times p is the most"},
		{"scrypt of ln=63", "$scrypt$ln=63,r=8,p=1" + tail, "range"},
		{"scrypt of ln=0", "$scrypt$ln=0,r=8,p=1" + tail, "range"},
		{"scrypt of r=0", "$scrypt$ln=4,r=0,p=1" + tail, "range"},
		{"scrypt of a huge r", "$scrypt$ln=4,r=4294967295,p=4294967295" + tail, "range"},
		{"scrypt without p", "$scrypt$ln=4,r=8" + tail, "form"},
		{"scrypt 7 of a huge N", "$7$z6..../....SodiumChloride$kBGj9fHznVYFQMEn/qDCfrDevf9YDtcDdKvEqHJLV8D", "range"},
		{"scrypt 7 without salt", "$7$C6..../....$kBGj9fHznVYFQMEn/qDCfrDevf9YDtcDdKvEqHJLV8D", "8 to 128"},
		{"scrypt 7 cut off", "$7$C6..../....SodiumChloride$kBGj9fHznVYFQMEn", "form"},

		{"pbkdf2 of two blocks", "$pbkdf2$i=2000001" + tail, "2000000 iterations and a key of 32 bytes is the most"},
		{"pbkdf2 of 32 bits of iterations", "$pbkdf2-sha512$4294967295" + tail, "1500000 iterations and"},
		{"pbkdf2 without iterations", "$pbkdf2-sha256$0" + tail, "at least 1 iteration"},
		{"pbkdf2 with another length", "$pbkdf2-sha256$i=1000,l=31" + tail, "form"},
		{"pbkdf2 with another parameter", "$pbkdf2-sha256$i=1000,x=32" + tail, "form"},
		{"pbkdf2 with a word", "$pbkdf2-sha256$many" + tail, "form"},
		{"pbkdf2 of md5", "$pbkdf2-md5$1000" + tail, "not supported"},
	} {
		err := CheckHash(test.hash, Argon2id{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
			continue
		}
		if len(test.hash) > 4 && strings.Contains(err.Error(), test.hash) || strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error repeats the hash", test.name)
		}
	}
}

// CheckHash accepts hashes that take up to about a second of CPU time. More
// expensive hashes that are stored can be verified.
func TestCheckHashTakesAboutASecond(t *testing.T) {
	const salt = "$MDEyMzQ1Njc4OWFiY2RlZg$"
	key := func(bytes int) string { return strings.Repeat("A", (bytes*8+5)/6) }
	bcrypt := strings.Repeat("a", 53)
	for _, test := range []struct{ form, most, more, stored string }{
		{"$2b$%s$" + bcrypt, "14", "15", "15"},
		{"$wp$2y$%s$" + bcrypt, "14", "15", "15"},
		{"bcrypt_sha256$$2b$%s$" + bcrypt, "14", "15", "15"},
		{"{bcrypt}$2a$%s$" + bcrypt, "14", "15", "15"},
		{"$pbkdf2$%s" + salt + key(20), "4000000", "4000001", "5000000"},
		{"$pbkdf2-sha1$i=%s" + salt + key(20), "4000000", "4000001", "5000000"},
		{"$pbkdf2-sha256$i=%s" + salt + key(32), "3000000", "3000001", "5000000"},
		{"$pbkdf2-sha256$i=%s" + salt + key(64), "1500000", "1500001", "2500000"},
		{"$pbkdf2-sha512$i=%s" + salt + key(64), "1500000", "1500001", "5000000"},
		{"pbkdf2_sha256$%s$salt$" + key(32), "3000000", "3000001", "5000000"},
		{"pbkdf2_sha1$%s$salt$" + key(20), "4000000", "4000001", "5000000"},
		{"pbkdf2:sha512:%s$salt$" + strings.Repeat("00", 64), "1500000", "1500001", "5000000"},
		{"scrypt:16384:8:%s$salt$" + strings.Repeat("00", 64), "16", "17", "64"},
		{"$scrypt$%s" + salt + key(32), "ln=18,r=8,p=1", "ln=18,r=8,p=2", "ln=18,r=8,p=4"},
		{"$scrypt$%s" + salt + key(32), "ln=14,r=8,p=16", "ln=14,r=8,p=17", "ln=14,r=8,p=64"},
		{"scrypt$16384$salt$8$%s$" + key(32), "16", "17", "64"},
		{"{scrypt}$%s" + salt + key(32), "120801", "120802", "120804"},
		{"$fbscrypt$v=1,n=14,r=8,p=%s,ss=Bw,sk=" + key(64) + salt + key(64), "16", "17", "64"},
		{"$argon2id$v=19$%s" + salt + key(32), "m=65536,t=16,p=1", "m=65536,t=17,p=1", "m=65536,t=64,p=1"},
		{"$argon2id$v=19$%s" + salt + key(32), "m=2040,t=514,p=255", "m=2040,t=515,p=255", "m=2040,t=2056,p=255"},
		{"$argon2i$v=19$%s" + salt + key(32), "m=262144,t=4,p=4", "m=262144,t=5,p=4", "m=262144,t=16,p=4"},
		{"$argon2id$v=19$%s" + salt + key(32), "m=16384,t=64,p=1", "m=262145,t=1,p=1", "m=1048576,t=4,p=1"},
		{"{argon2}$argon2id$v=19$%s" + salt + key(32), "m=262144,t=4,p=4", "m=262144,t=5,p=4", "m=262144,t=16,p=4"},
		{"$5$rounds=%s$salt$" + strings.Repeat("a", 43), "1000000", "1000001", "1000001"},
		{"$6$rounds=%s$salt$" + strings.Repeat("a", 86), "1000000", "1000001", "1000001"},
	} {
		if err := CheckHash(fmt.Sprintf(test.form, test.most), Argon2id{}); err != nil {
			t.Errorf(test.form+": %v", test.most, err)
		}
		if err := CheckHash(fmt.Sprintf(test.form, test.more), Argon2id{}); err == nil || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf(test.form+": %v, want one that says what to do", test.more, err)
		}
		if d, err := parseHash(fmt.Sprintf(test.form, test.stored)); err != nil || d.cost > maxStored*maxCost {
			t.Errorf("stored "+test.form+": %v, cost %v", test.stored, err, d.cost)
		}
	}
}

// A backup code is compared with one hash for each salt, so the costs of all salts
// add up.
func TestCheckHashesAddsUpTheSaltsOfASet(t *testing.T) {
	set := func(n, iterations int, salt string) (hashes []string) {
		for i := range n {
			if salt == "" {
				hashes = append(hashes, fmt.Sprintf("$pbkdf2-sha256$%d$MDEyMzQ1Nj%02d$%043d", iterations, i, 0))
			} else {
				hashes = append(hashes, fmt.Sprintf("$pbkdf2-sha256$%d$%s$%042d0", iterations, salt, i*10))
			}
		}
		return hashes
	}
	const one = "MDEyMzQ1Njc4OWFiY2RlZg"
	for name, test := range map[string]struct {
		hashes []string
		want   string
	}{
		"none":                              {nil, ""},
		"100 of one salt":                   {set(100, 3_000_000, one), ""},
		"10 salts":                          {set(10, 300_000, ""), ""},
		"10 salts that cost a little more":  {set(10, 300_001, ""), "together the hashes take too long"},
		"100 salts":                         {set(100, 600_000, ""), "together the hashes take too long"},
		"100 of one salt, and another":      {append(set(100, 2_999_999, one), set(1, 1, "")...), ""},
		"one that alone takes too long":     {set(1, 3_000_001, ""), "3000000 iterations"},
		"kinds of which each alone is fine": {append(set(1, 1_500_001, ""), "$2b$13$"+strings.Repeat("a", 53)), "together"},
		"what is none":                      {[]string{"rubbish"}, "not supported"},
	} {
		err := CheckHashes(test.hashes, Argon2id{})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// Thieves of these hashes find most passwords. bcrypt's lowest cost is not among them, nor
// what WordPress and Drupal make.
func TestQuickHashesAreKnown(t *testing.T) {
	for hash, want := range map[string]bool{
		"$1$nHcF7jTn$HmqoY10BsdvhgD2RQEpsz0":                    true,
		"$apr1$Zdxv4/C7$BKglgcBr74uOKbrbShwZo0":                 true,
		"{SSHA}6NELWzFYTjQUrMFCwTkwPwsv9Y8GIKS0":                true,
		"$pbkdf2-sha1$1000$MDEyMzQ1Njc$MDEyMzQ1Njc":             true,
		"$P$BAjRKiNGO0k5oMn46AhfMv4WChdjMq1":                    false,
		"$2b$04$" + strings.Repeat("a", 53):                     false,
		"pbkdf2_sha256$10000$salt$" + strings.Repeat("A", 43):   false,
		"$argon2id$v=19$m=7168,t=5,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc": false,
		"rubbish": false,
	} {
		if IsQuick(hash) != want {
			t.Errorf("%.10s: want %v", hash, want)
		}
	}
}

func TestLooksLikeHashKnowsAlsoWhatIsRefused(t *testing.T) {
	for _, s := range []string{"$argon2id$x", "$2y$10$x", "$7$x", "$pbkdf2-sha512$", "$6$salt$x", "$y$j9T$x", "{noop}x", "{bcrypt}$2a$10$x", "{SSHA}x", "pbkdf2:sha256:1000$salt$x",
		"AAABAgMEBQYHCAkKCwwNDg+ukCEMDf0yyQ29NYubggHIVY0sdEUfdyeM+E1LtH1uJg=="} {
		if !LooksLikeHash(s) {
			t.Errorf("%q does not look like a hash", s)
		}
	}
	for _, s := range []string{
		"", "$", "$$", "$$money$$", "argon2id$", "$argon2id", "$2a", "$cash$in$hand", " $2a$10$x", "$5.99", "{x}y", "{bcrypt", "{env.PASSWORD}",
		"pbkdf2", "pa$$word", "scrypt", "bcrypt_sha256", "md5$x$y", "django_scrypt", "pbkdf2:", "AQAAAA", "AQAAAAEAACcQAAAAEA==",
	} {
		if LooksLikeHash(s) {
			t.Errorf("%q looks like a hash", s)
		}
	}
}

func FuzzCheckHash(f *testing.F) {
	for _, test := range slices.Concat(foreignHashes, exportedHashes) {
		f.Add(test.hash)
	}
	for _, s := range []string{"", "$", "$$", "$7$$", "$2b$04$", "$argon2id$v=19$m=8,t=1,p=1$$", "$scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc",
		"$pbkdf2$1$MDEyMzQ1Njc$MDEyMzQ1Njc", "$pbkdf2-sha512$4294967295$MDEyMzQ1Njc$MDEyMzQ1Njc", "$scrypt$ln=30,r=1024,p=1024$MDEyMzQ1Njc$MDEyMzQ1Njc",
		"$2b$31$" + strings.Repeat("a", 53), "$6$rounds=4294967295$s$" + strings.Repeat("a", 86), "$argon2id$v=19$m=262144,t=64,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc", "$argon2id$v=19$m=16,t=1,p=2$MDEyMzQ1Njc$MDEyMzQ1Njc", "$7$..../..../0000MDEyMzQ1Njc$", "$pbkdf2$i=,l=$$", "{pbkdf2@SpringSecurity_v5_8}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, hash string) {
		watch := storetest.StartWatch()
		err := CheckHash(hash, Argon2id{})
		if took := watch.Took(); took > time.Second {
			t.Errorf("took %v", took)
		}
		if err != nil {
			if len(hash) > 20 && !strings.HasSuffix(hash, "}") && strings.Contains(err.Error(), hash) { // an error may name {its kind}
				t.Error("the error repeats the hash")
			}
			return
		}
		if !LooksLikeHash(hash) {
			t.Error("accepted, but does not look like a hash")
		}
		d, err := parseHash(hash)
		must(t, err)
		if d.cost <= 0 || d.cost > maxCost {
			t.Errorf("accepted at a cost of %v", d.cost)
		}
		if p := d.argon2; p.MemoryKiB*p.Iterations > 0 && p.MemoryKiB*p.Iterations < 4096 {
			if key, err := d.derive("secret"); err != nil || len(key) != len(d.key) {
				t.Errorf("derived %d bytes, %v, want %d", len(key), err, len(d.key))
			}
		}
	})
}

func TestHashRefusesParametersThatWouldPanic(t *testing.T) {
	h := NewHasher(1)
	for _, p := range []Argon2id{{}, {64, 0, 1}, {64, 1, 0}, {7, 1, 1}, {1<<20 + 1, 1, 1}} {
		if _, err := h.Hash(t.Context(), acme, p, "secret"); err == nil {
			t.Errorf("%v was accepted", p)
		}
		if _, _, err := h.Verify(t.Context(), acme, p, "", "secret"); err == nil {
			t.Errorf("%v was accepted for no hash", p)
		}
	}
}

func ExampleHasher_Match() {
	h := NewHasher(0)
	ctx := context.Background()
	hashes, _ := h.HashSet(ctx, acme, DefaultArgon2id, []string{"ABCDEFGHIJ", "KLMNOPQRST"})
	match, _ := h.Match(ctx, acme, DefaultArgon2id, hashes, "KLMNOPQRST")
	fmt.Println(match == hashes[1])
	// Output: true
}

// If each round hashes the whole secret, long secrets take longer. NFKC makes 33 bytes of
// one character, so 128 characters may have 4 KB.
func TestALongSecretTakesLittleLonger(t *testing.T) {
	long := Normalize(strings.Repeat("\ufdfa", 128))
	for n, most := range map[uint64]int{5_000: 25_600, 100_000: 1280, 1_000_000: 128, 4_000_000: 128} {
		var hashed int
		derive := eachRound(n, 1_000_000, func(secret string) []byte {
			hashed = len(secret)
			return []byte("key")
		})
		key, err := derive(long)
		if err != nil || hashed != min(most, len(long)) || (key != nil) != (most > len(long)) {
			t.Errorf("%d rounds hash %d bytes: %q, %v", n, hashed, key, err)
		}
	}
	for _, hash := range []string{"$6$rounds=200000$salt$" + strings.Repeat(".", 86), "$P$G12345678" + strings.Repeat(".", 22)} {
		d, err := parseHash(hash)
		must(t, err)
		if key, err := d.derive(long); err != nil || key != nil {
			t.Errorf("%.10s hashes all of a secret of %d bytes: %v", hash, len(long), err)
		}
	}
}
