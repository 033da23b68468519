package password

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// Spring Security's DelegatingPasswordEncoder puts the name of an encoder in braces
// before each hash. @SpringSecurity_v5_8 after the name means other parameters. All
// encoders but pbkdf2 also write the parameters into the hash.

// parseSpringBcrypt parses $2a$10$ and 53 characters.
func parseSpringBcrypt(_ string, fields []string) (digest, error) {
	if len(fields) != 4 || fields[0] != "" {
		return digest{}, hashForm("{bcrypt}$2a$<cost>$<53 characters>")
	}
	return parseBcrypt(fields[1], fields[2:])
}

// parseSpringArgon2 parses a hash in PHC form.
func parseSpringArgon2(_ string, fields []string) (digest, error) {
	if len(fields) < 2 || fields[0] != "" || fields[1] != "argon2id" && fields[1] != "argon2i" {
		return digest{}, hashForm("{argon2}$argon2id$v=19$m=<KiB>,t=<iterations>,p=<parallelism>$<salt>$<key>, salt and key in base64")
	}
	return parseArgon2(fields[1], fields[2:])
}

// parseSpringScrypt parses $e0801$salt$key, salt and key in base64. The number is
// hexadecimal: log2 of N, then r and p in one byte each.
func parseSpringScrypt(_ string, fields []string) (d digest, err error) {
	const form = "{scrypt}$<parameters in hex>$<salt>$<key>, salt and key in base64"
	if len(fields) != 4 || fields[0] != "" {
		return d, hashForm(form)
	}
	n, err := strconv.ParseUint(fields[1], 16, 32)
	if err != nil {
		return d, hashForm(form)
	}
	if d.salt, d.key, err = saltAndKey(fields[2:]); err != nil {
		return d, err
	}
	return d.scrypt(n>>16, n>>8&0xff, n&0xff)
}

// parseSpringPBKDF2 parses the hex digits of salt and key together. The parameters are
// not in the hash; they depend on the encoder's name.
func parseSpringPBKDF2(kind string, fields []string) (d digest, err error) {
	algorithm, iterations, salt := "pbkdf2-sha1", uint64(185_000), 8
	if strings.HasSuffix(kind, springV58) {
		algorithm, iterations, salt = "pbkdf2-sha256", 310_000, 16
	}
	both, err := hex.DecodeString(fields[0])
	if err != nil || len(fields) != 1 || len(both) != salt+32 {
		return d, hashForm("{pbkdf2} and 80 hexadecimal digits or {pbkdf2@SpringSecurity_v5_8} and 96, of an encoder with Spring's defaults")
	}
	d.salt, d.key = both[:salt], both[salt:]
	d.salted = kind + "$" + hex.EncodeToString(d.salt)
	return d.pbkdf2(algorithm, iterations)
}

const (
	// springPrefix replaces the opening brace of Spring's hashes to parse them.
	springPrefix = "$spring_"
	springV58    = "@SpringSecurity_v5_8"
)
