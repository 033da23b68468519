package password

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Some programs have their own form of hashes. mnemogate accepts them as the programs
// export them, so that operators can import a dump without converting it:
//
//	Django                  pbkdf2_sha256$…, pbkdf2_sha1$…, argon2$…, bcrypt$…, bcrypt_sha256$…, scrypt$…
//	Firebase, Supabase      $fbscrypt$v=1,n=14,r=8,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>
//	Keycloak                the credential, see KeycloakHash
//	WordPress               $P$…, $wp$…: hash_wordpress.go
//	Spring Security         {bcrypt}…, {argon2}…, {scrypt}…, {pbkdf2}…: hash_spring.go
//
// Supabase also stores bcrypt and argon2, in their usual forms. The first successful
// login replaces any of these hashes.

// djangoPrefix is put before Django's hashes to parse them. Only Django's and Spring's
// hashes begin without a dollar sign.
const djangoPrefix = "$django_"

// withDollar returns a hash in the form that hashKind and parseHash split.
func withDollar(hash string) string {
	if strings.HasPrefix(hash, "$") {
		return hash
	}
	if name, encoded, braces := strings.Cut(strings.TrimPrefix(hash, "{"), "}"); braces && strings.HasPrefix(hash, "{") {
		return springPrefix + name + "$" + encoded
	}
	return djangoPrefix + hash
}

// parseDjangoPBKDF2 parses 260000$salt$key. The salt is plain text, the key is in base64.
func parseDjangoPBKDF2(kind string, fields []string) (d digest, err error) {
	const form = "pbkdf2_sha256$<iterations>$<salt>$<key>, the key in base64"
	if len(fields) != 3 {
		return d, hashForm(form)
	}
	iterations, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil {
		return d, hashForm(form)
	}
	if d.salt, d.key, err = djangoSaltAndKey(fields[1], fields[2]); err != nil {
		return d, err
	}
	if kind == "django_pbkdf2_sha1" {
		return d.pbkdf2("pbkdf2-sha1", iterations)
	}
	return d.pbkdf2("pbkdf2-sha256", iterations)
}

// parseDjangoScrypt parses 16384$salt$8$5$key: N, the salt as plain text, r, p and the
// key in base64.
func parseDjangoScrypt(_ string, fields []string) (d digest, err error) {
	const form = "scrypt$<N>$<salt>$<r>$<p>$<key>, N a power of two, the key in base64"
	if len(fields) != 5 {
		return d, hashForm(form)
	}
	var numbers [3]uint64
	for i, s := range []string{fields[0], fields[2], fields[3]} {
		if numbers[i], err = strconv.ParseUint(s, 10, 32); err != nil {
			return d, hashForm(form)
		}
	}
	n, r, p := numbers[0], numbers[1], numbers[2]
	if bits.OnesCount64(n) != 1 {
		return d, hashForm(form)
	}
	if d.salt, d.key, err = djangoSaltAndKey(fields[1], fields[4]); err != nil {
		return d, err
	}
	return d.scrypt(uint64(bits.TrailingZeros64(n)), r, p)
}

// djangoSaltAndKey allows salts that are too short for other kinds, because Django lets
// its users choose them.
func djangoSaltAndKey(salt, encoded string) ([]byte, []byte, error) {
	key, err := fromBase64(encoded)
	if err != nil {
		return nil, nil, errors.New("the key of the hash is not in base64")
	}
	if salt == "" || len(salt) > 128 || len(key) < 8 || len(key) > 128 {
		return nil, nil, errors.New("the salt of the hash must have 1 to 128 characters, its key 8 to 128 bytes")
	}
	return []byte(salt), key, nil
}

// parseDjangoArgon2 parses a hash in PHC form without its first dollar sign.
func parseDjangoArgon2(_ string, fields []string) (digest, error) {
	if fields[0] != "argon2id" && fields[0] != "argon2i" {
		return digest{}, errHashKind
	}
	return parseArgon2(fields[0], fields[1:])
}

// parseDjangoBcrypt parses $2b$12$ and 53 characters. bcrypt_sha256 hashes the SHA-256
// of the password, in hex, so that bcrypt cuts no password.
func parseDjangoBcrypt(kind string, fields []string) (digest, error) {
	if len(fields) != 4 || fields[0] != "" {
		return digest{}, hashForm(strings.TrimPrefix(kind, "django_") + "$$2b$<cost>$<53 characters>")
	}
	d, err := parseBcrypt(fields[1], fields[2:])
	if err != nil || kind == "django_bcrypt" {
		return d, err
	}
	plain := d.derive
	d.sees = 0
	d.derive = func(secret string) ([]byte, error) {
		sum := sha256.Sum256([]byte(secret))
		return plain(hex.EncodeToString(sum[:]))
	}
	return d, nil
}

// parseFirebase parses v=1,n=14,r=8,p=1,ss=…,sk=…$salt$key, Supabase's form of Firebase's
// scrypt: n is mem_cost, r is rounds, ss the salt separator, sk the signer key. All but
// the numbers are in base64. The key of the hash is the signer key, encrypted with a key
// that scrypt derives from the password.
func parseFirebase(_ string, fields []string) (d digest, err error) {
	const form = "$fbscrypt$v=1,n=<mem_cost>,r=<rounds>,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>, the last four in base64"
	if len(fields) != 3 {
		return d, hashForm(form)
	}
	var numeric []string
	texts := map[string]string{}
	for field := range strings.SplitSeq(fields[0], ",") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "ss", "sk":
			if _, twice := texts[name]; twice {
				return d, hashForm(form)
			}
			texts[name] = value
		default:
			numeric = append(numeric, field)
		}
	}
	n, ok := parameters(strings.Join(numeric, ","))
	if !ok || len(n) != 4 || n["v"] != 1 {
		return d, hashForm(form)
	}
	var decoded [4][]byte
	for i, s := range []string{texts["ss"], texts["sk"], fields[1], fields[2]} {
		if decoded[i], err = fromBase64(s); err != nil {
			return d, hashForm(form)
		}
	}
	separator, signer, salt, key := decoded[0], decoded[1], decoded[2], decoded[3]
	if len(salt) < 8 || len(salt) > 128 || len(separator) > 128 || len(key) < 16 || len(key) > 128 || len(key) != len(signer) {
		return d, errors.New("the salt of the hash must have 8 to 128 bytes, the signer key 16 to 128 and the hash as many")
	}
	d.salt = append(salt, separator...)
	d.key = make([]byte, 32) // derive a key of this length, for AES-256
	if d, err = d.scrypt(n["n"], n["r"], n["p"]); err != nil {
		return d, err
	}
	cipherKey := d.derive
	d.key = key
	d.derive = func(secret string) ([]byte, error) {
		derived, err := cipherKey(secret)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(derived)
		if err != nil {
			return nil, err
		}
		encrypted := make([]byte, len(signer))
		cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(encrypted, signer)
		return encrypted, nil
	}
	return d, nil
}

// fromBase64 decodes the standard or the URL alphabet, with or without padding.
func fromBase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	return base64.RawStdEncoding.Strict().DecodeString(s)
}

// KeycloakHash returns, in PHC form, the hash in a password credential that Keycloak
// exported. The credential is a JSON object whose credentialData and secretData are
// objects, or strings that contain them; other fields are ignored. CheckHash may still
// refuse the hash.
func KeycloakHash(credential []byte) (string, error) {
	var c struct {
		Data   nestedJSON `json:"credentialData"`
		Secret nestedJSON `json:"secretData"`
	}
	var data struct {
		Iterations int                 `json:"hashIterations"`
		Algorithm  string              `json:"algorithm"`
		More       map[string][]string `json:"additionalParameters"`
	}
	var secret struct {
		Value string `json:"value"`
		Salt  string `json:"salt"`
	}
	if json.Unmarshal(credential, &c) != nil || json.Unmarshal(c.Data, &data) != nil || json.Unmarshal(c.Secret, &secret) != nil {
		return "", errors.New("as an object it must be a password credential of Keycloak, with credentialData and secretData")
	}
	more := func(name string) string {
		if len(data.More[name]) == 0 {
			return ""
		}
		return data.More[name][0]
	}
	switch data.Algorithm {
	case "pbkdf2":
		return fmt.Sprintf("$pbkdf2-sha1$i=%d$%s$%s", data.Iterations, secret.Salt, secret.Value), nil
	case "pbkdf2-sha256", "pbkdf2-sha512":
		return fmt.Sprintf("$%s$i=%d$%s$%s", data.Algorithm, data.Iterations, secret.Salt, secret.Value), nil
	case "argon2":
		if more("version") != "1.3" {
			return "", errors.New("of Keycloak's argon2 hashes only version 1.3 is supported")
		}
		return fmt.Sprintf("$argon2%s$v=19$m=%s,t=%d,p=%s$%s$%s",
			more("type"), more("memory"), data.Iterations, more("parallelism"), secret.Salt, secret.Value), nil
	default:
		return "", errors.New("the algorithm of the Keycloak credential is not supported; pbkdf2, pbkdf2-sha256, pbkdf2-sha512 and argon2 are")
	}
}

// nestedJSON is a JSON value, or a string that contains one.
type nestedJSON []byte

func (n *nestedJSON) UnmarshalJSON(text []byte) error {
	var inner string
	if json.Unmarshal(text, &inner) == nil {
		text = []byte(inner)
	}
	*n = append((*n)[:0], text...)
	return nil
}
