package password

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"slices"
	"strings"

	cryptbase64 "github.com/go-crypt/x/base64"
)

// phpass has what differs among the kinds of phpass: the hash function, how many
// characters of the encoded key are kept, the most iterations and those that cost maxCost
// (both as log2), and how a program changed the password before.
var phpass = map[string]struct {
	function       func() hash.Hash
	size           int
	most, costMost uint64
	forms          func(secret string) []string
}{
	"P": {md5.New, 22, 18, 22, wordPressForms}, // before WordPress 6.8
	"H": {md5.New, 22, 18, 22, phpBBForms},
	"S": {sha512.New, 43, 20, 21, nil}, // Drupal
}

// parsePHPass parses the characters after $P$: log2 of the number of iterations in the
// first, 8 of salt, then the key.
func parsePHPass(kind string, fields []string) (d digest, err error) {
	p := phpass[kind]
	if len(fields) != 1 || len(fields[0]) != 9+p.size || strings.Trim(fields[0], crypt64) != "" {
		return d, hashForm(fmt.Sprintf("$%s$<%d characters>", kind, 9+p.size))
	}
	log2 := crypt64Number(fields[0][:1])
	if log2 < 7 || log2 > p.most {
		return d, fmt.Errorf("a $%s$ hash must have 2^7 to 2^%d iterations, which the characters 5 to %c behind the second $ stand for", kind, p.most, crypt64[p.most])
	}
	d.salt, d.key = []byte(fields[0][1:9]), []byte(fields[0][9:])
	d.salted = "$" + kind + "$" + fields[0][:9]
	d.forms = p.forms
	d.derive = eachRound(1<<log2, 1<<p.costMost, func(secret string) []byte {
		h := p.function()
		sum := slices.Clone(d.salt)
		for range 1 + 1<<log2 {
			h.Reset()
			h.Write(sum)
			h.Write([]byte(secret))
			sum = h.Sum(sum[:0])
		}
		return cryptbase64.EncodeCrypt(sum)[:p.size]
	})
	return d.costing(1<<log2, 1<<p.costMost, fmt.Sprintf("2^%d iterations", p.most))
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

// phpBBForms returns the forms of a password that phpBB may have hashed: it escapes what
// comes from a form as HTML.
func phpBBForms(secret string) []string {
	escaped := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(secret)
	return slices.Compact([]string{secret, escaped})
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
