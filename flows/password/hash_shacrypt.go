package password

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"slices"
	"strconv"
	"strings"

	cryptbase64 "github.com/go-crypt/x/base64"
	"github.com/go-crypt/x/crypt"
)

const shaCryptRounds = 5000 // the default of crypt(3)

// parseSHACrypt parses salt$key or rounds=656000$salt$key, the forms of crypt(3). It
// uses the salt as plain text and compares the key in its encoded form.
func parseSHACrypt(kind string, fields []string) (d digest, err error) {
	function, form, size := sha256.New, "$5$rounds=<rounds>$<salt>$<43 characters>, the rounds optional", 43
	if kind == "6" {
		function, form, size = sha512.New, "$6$rounds=<rounds>$<salt>$<86 characters>, the rounds optional", 86
	}
	rounds := uint64(shaCryptRounds)
	if digits, given := strings.CutPrefix(fields[0], "rounds="); given {
		// crypt(3) itself never writes less than 1000.
		if rounds, err = strconv.ParseUint(digits, 10, 32); err != nil || rounds < 1000 {
			return d, errors.New("the rounds of a sha256crypt or sha512crypt hash must be 1000 to 1000000")
		}
		fields = fields[1:]
	}
	if len(fields) != 2 || fields[0] == "" || len(fields[0]) > 16 || len(fields[1]) != size || strings.Trim(fields[1], crypt64) != "" {
		return d, hashForm(form)
	}
	d.salt, d.key = []byte(fields[0]), []byte(fields[1])
	d.derive = eachRound(rounds, 1_000_000, func(secret string) []byte {
		return crypt.KeySHACrypt(function, []byte(secret), d.salt, int(rounds))
	})
	return d.costing(rounds, 1_000_000, "sha256crypt or sha512crypt of 1000000 rounds")
}

// parseMD5Crypt parses salt$key, the form of crypt(3) ($1$) and of Apache ($apr1$).
func parseMD5Crypt(kind string, fields []string) (d digest, err error) {
	if len(fields) != 2 || fields[0] == "" || len(fields[0]) > 8 || len(fields[1]) != 22 || strings.Trim(fields[1], crypt64) != "" {
		return d, hashForm("$" + kind + "$<up to 8 characters of salt>$<22 characters>")
	}
	d.salt, d.key = []byte(fields[0]), []byte(fields[1])
	d.derive = eachRound(1000, 1<<22, func(secret string) []byte {
		return keyMD5Crypt("$"+kind+"$", d.salt, []byte(secret))
	})
	return d.costing(1000, 1<<22, "md5crypt")
}

// keyMD5Crypt computes the encoded key. Only the magic differs between $1$ and $apr1$;
// go-crypt has the first alone.
func keyMD5Crypt(magic string, salt, secret []byte) []byte {
	sum := md5.Sum(slices.Concat(secret, salt, secret))
	text := slices.Concat(secret, []byte(magic), salt)
	for n := len(secret); n > 0; n -= len(sum) {
		text = append(text, sum[:min(n, len(sum))]...)
	}
	for n := len(secret); n > 0; n >>= 1 {
		if n&1 == 1 {
			text = append(text, 0)
		} else {
			text = append(text, secret[0])
		}
	}
	sum = md5.Sum(text)
	for i := range 1000 {
		first, last := sum[:], secret
		if i%2 == 1 {
			first, last = last, first
		}
		text = append(text[:0], first...)
		if i%3 != 0 {
			text = append(text, salt...)
		}
		if i%7 != 0 {
			text = append(text, secret...)
		}
		text = append(text, last...)
		sum = md5.Sum(text)
	}
	var ordered []byte
	for _, i := range [...]int{12, 6, 0, 13, 7, 1, 14, 8, 2, 15, 9, 3, 5, 10, 4, 11} {
		ordered = append(ordered, sum[i])
	}
	return cryptbase64.EncodeCrypt(ordered)
}
