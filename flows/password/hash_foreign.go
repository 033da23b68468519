package password

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/go-crypt/x/ldap"
)

// Some programs have their own form of hashes. mnemogate accepts them as the programs
// export them, so that operators can import a dump without converting it:
//
//	Django                  pbkdf2_sha256$…, pbkdf2_sha1$…, argon2$…, bcrypt$…, bcrypt_sha256$…, scrypt$…
//	Firebase, Supabase      $fbscrypt$v=1,n=14,r=8,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>
//	Keycloak                the credential, see KeycloakHash
//	Werkzeug (Flask)        pbkdf2:sha256:…$…, scrypt:…$…
//	ASP.NET Identity        base64 that begins with the byte 1
//	LDAP                    {SSHA}…, {SSHA256}…, {SSHA512}…
//	WordPress, phpBB        $P$…, $H$…, $wp$…: hash_wordpress.go
//	Drupal                  $S$…: hash_wordpress.go
//	Spring Security         {bcrypt}…, {argon2}…, {scrypt}…, {pbkdf2}…: hash_spring.go
//
// Supabase also stores bcrypt and argon2, in their usual forms. The first successful login
// replaces these hashes, unless the hash may not cover the whole password.

// These are put before hashes that begin without a dollar sign, to parse them.
const (
	djangoPrefix   = "$django_"
	werkzeugPrefix = "$werkzeug$"
	aspnetPrefix   = "$aspnet$"
)

// withDollar returns a hash in the form that hashKind and parseHash split.
func withDollar(hash string) string {
	if strings.HasPrefix(hash, "$") {
		return hash
	}
	if name, encoded, braces := strings.Cut(strings.TrimPrefix(hash, "{"), "}"); braces && strings.HasPrefix(hash, "{") {
		return springPrefix + name + "$" + encoded
	}
	if _, ok := decodeASPNET(hash); ok {
		return aspnetPrefix + hash
	}
	if method, _, closed := strings.Cut(hash, "$"); closed && (strings.HasPrefix(method, "pbkdf2:") || strings.HasPrefix(method, "scrypt:")) {
		return werkzeugPrefix + hash
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
	if d.salt, d.key, err = textSaltAndKey(fields[1], fields[2], fromBase64); err != nil {
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
	if d.salt, d.key, err = textSaltAndKey(fields[1], fields[4], fromBase64); err != nil {
		return d, err
	}
	return d.scrypt(uint64(bits.TrailingZeros64(n)), r, p)
}

// textSaltAndKey allows salts that are too short for other kinds, because Django and
// Werkzeug let their users choose them.
func textSaltAndKey(salt, encoded string, decode func(string) ([]byte, error)) ([]byte, []byte, error) {
	key, err := decode(encoded)
	if err != nil {
		return nil, nil, errors.New("the key of the hash is in another encoding than hashes of its kind")
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

// parseWerkzeug parses pbkdf2:sha256:600000$salt$key or scrypt:32768:8:1$salt$key. The
// salt is plain text, the key is in hex.
func parseWerkzeug(_ string, fields []string) (d digest, err error) {
	const form = "pbkdf2:<sha1, sha256 or sha512>:<iterations>$<salt>$<key> or scrypt:<N>:<r>:<p>$<salt>$<key>, the key in hex"
	if len(fields) != 3 {
		return d, hashForm(form)
	}
	method := strings.Split(fields[0], ":")
	if method[0] == "pbkdf2" && len(method) > 1 {
		method = append([]string{"pbkdf2-" + method[1]}, method[2:]...)
	}
	var n []uint64
	for _, s := range method[1:] {
		number, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return d, hashForm(form)
		}
		n = append(n, number)
	}
	if d.salt, d.key, err = textSaltAndKey(fields[1], fields[2], hex.DecodeString); err != nil {
		return d, err
	}
	switch {
	case len(n) == 1 && slices.Contains([]string{"pbkdf2-sha1", "pbkdf2-sha256", "pbkdf2-sha512"}, method[0]):
		return d.pbkdf2(method[0], n[0])
	case len(n) == 3 && method[0] == "scrypt" && bits.OnesCount64(n[0]) == 1:
		return d.scrypt(uint64(bits.TrailingZeros64(n[0])), n[1], n[2])
	}
	return d, hashForm(form)
}

// decodeASPNET decodes a hash of ASP.NET Identity: base64 of a version and what follows it.
// Version 3 is a 1, three numbers (the function, the iterations, the length of the salt),
// the salt and the key. Version 2 is a 0, a salt and a key of fixed length.
func decodeASPNET(hash string) (blob []byte, ok bool) {
	blob, err := base64.StdEncoding.Strict().DecodeString(hash)
	switch {
	case err != nil:
		return nil, false
	case len(blob) > 13 && blob[0] == 1:
		return blob, binary.BigEndian.Uint32(blob[1:]) <= 2 && uint64(binary.BigEndian.Uint32(blob[9:])) < uint64(len(blob)-13)
	default:
		return blob, len(blob) == 1+16+32 && blob[0] == 0
	}
}

func parseASPNET(_ string, fields []string) (d digest, err error) {
	blob, ok := decodeASPNET(fields[0])
	switch {
	case !ok:
		return d, errHashKind
	case blob[0] == 0:
		return d, errors.New("a hash of ASP.NET Identity version 2 has only 1000 iterations of SHA-1; leave the password out, and the user sets one by recovery")
	}
	end := 13 + binary.BigEndian.Uint32(blob[9:])
	if d.salt, d.key = blob[13:end], blob[end:]; len(d.salt) < 8 || len(d.salt) > 128 || len(d.key) < 8 || len(d.key) > 128 {
		return d, errHashLength
	}
	d.salted = fmt.Sprintf("aspnet$%x$%d", blob[:end], len(d.key))
	kind := [...]string{"pbkdf2-sha1", "pbkdf2-sha256", "pbkdf2-sha512"}[binary.BigEndian.Uint32(blob[1:])]
	return d.pbkdf2(kind, uint64(binary.BigEndian.Uint32(blob[5:])))
}

// parseSSHA parses base64 of a hash and the salt behind it.
func parseSSHA(kind string, fields []string) (d digest, err error) {
	function := map[string]func() hash.Hash{"spring_SSHA": sha1.New, "spring_SSHA256": sha256.New, "spring_SSHA512": sha512.New}[kind]
	size := function().Size()
	d.key, err = fromBase64(fields[0])
	if err != nil || len(fields) != 1 || len(d.key) <= size || len(d.key) > size+128 {
		return d, hashForm("{SSHA} and base64 of the hash and its salt; also {SSHA256} and {SSHA512}")
	}
	d.salt = d.key[size:]
	d.salted = kind + "$" + string(d.salt)
	d.derive = func(secret string) ([]byte, error) { return ldap.Key(function, []byte(secret), d.salt), nil }
	return d.costing(1, 1<<20, "SHA applied once")
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
