package password

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"strconv"
	"strings"

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
