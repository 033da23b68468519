package password

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	cryptbase64 "github.com/go-crypt/x/base64"
)

// parsePHPass parses the characters after $P$: log2 of the number of MD5 iterations in
// the first, 8 of salt and 22 of key. WordPress before 6.8 made such hashes.
func parsePHPass(_ string, fields []string) (d digest, err error) {
	if len(fields) != 1 || len(fields[0]) != 31 || strings.Trim(fields[0], crypt64) != "" {
		return d, hashForm("$P$<31 characters>")
	}
	log2 := crypt64Number(fields[0][:1])
	if log2 < 7 || log2 > 18 {
		return d, errors.New("a $P$ hash must apply MD5 2^7 to 2^18 times, which the characters 5 to G behind the second $ stand for")
	}
	d.salt, d.key = []byte(fields[0][1:9]), []byte(fields[0][9:])
	d.salted = "$P$" + fields[0][:9]
	d.forms = wordPressForms
	d.derive = eachRound(1<<log2, 1<<22, func(secret string) []byte {
		sum := md5.Sum(append(d.salt[:8:8], secret...))
		text := append(sum[:], secret...)
		for range 1 << log2 {
			sum = md5.Sum(text)
			copy(text, sum[:])
		}
		return cryptbase64.EncodeCrypt(sum[:])
	})
	return d.costing(1<<log2, 1<<22, "MD5 applied 2^18 times")
}

// parseWordPress parses 2y$10$ and 53 characters: bcrypt of an HMAC of the password, so
// that bcrypt cuts no password. WordPress makes such hashes since 6.8.
func parseWordPress(_ string, fields []string) (d digest, err error) {
	if len(fields) == 0 || fields[0] != "2y" {
		return d, hashForm("$wp$2y$<cost>$<53 characters>")
	}
	if d, err = parseBcrypt(fields[0], fields[1:]); err != nil {
		return d, err
	}
	plain := d.derive
	d.sees = 0
	d.forms = wordPressForms
	d.derive = func(secret string) ([]byte, error) {
		mac := hmac.New(sha512.New384, []byte("wp-sha384"))
		mac.Write([]byte(secret))
		return plain(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return d, nil
}

// wordPressForms returns the forms of a password that WordPress may have hashed. It
// removes the space around a password. If the password was typed into a form, WordPress
// also adds a backslash before quotes and backslashes; a password that a program set has
// none.
func wordPressForms(secret string) []string {
	secret = strings.Trim(secret, " \t\n\r\x00\x0b")
	typed := strings.NewReplacer(`\`, `\\`, `'`, `\'`, `"`, `\"`).Replace(secret)
	return slices.Compact([]string{secret, typed})
}
