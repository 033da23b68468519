package password

import (
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/scrypt"
)

// Argon2id holds the parameters of RFC 9106, the cost of one hash. All three are
// required.
type Argon2id struct {
	// Memory per hash, in KiB.
	MemoryKiB uint32 `json:"memory_kib"`

	// Passes over the memory.
	Iterations uint32 `json:"iterations"`

	// Lanes of the memory.
	Parallelism uint8 `json:"parallelism"`
}

// DefaultArgon2id is the first recommendation of OWASP's Password Storage Cheat Sheet.
// OWASP considers its minimum sets equally strong; this one balances memory and time.
var DefaultArgon2id = Argon2id{19456, 2, 1}

// owaspMinimum lists the cheat sheet's sets. With less memory than the smallest, 7 MiB,
// a graphics card can try too many passwords at once.
var owaspMinimum = []Argon2id{{47104, 1, 1}, {19456, 2, 1}, {12288, 3, 1}, {9216, 4, 1}, {7168, 5, 1}}

// Check refuses parameters below OWASP's minimum, and those that make a login too slow.
func (p Argon2id) Check() error {
	if !slices.ContainsFunc(owaspMinimum, p.covers) {
		return errors.New("argon2id is below OWASP's minimum; set memory in KiB, iterations and parallelism to 19456 2 1 or more" +
			" (also 47104 1 1, 12288 3 1, 9216 4 1 and 7168 5 1 are enough)")
	}
	return p.Bounded()
}

// covers reports whether every parameter of p is at least that of q.
func (p Argon2id) covers(q Argon2id) bool {
	return p.MemoryKiB >= q.MemoryKiB && p.Iterations >= q.Iterations && p.Parallelism >= q.Parallelism
}

var errArgon2 = errors.New("argon2 needs at least 1 iteration, a parallelism of 1 and 8 KiB of memory for each lane")

// isPossible reports whether the algorithm allows the parameters.
func (p Argon2id) isPossible() bool {
	return p.Iterations >= 1 && p.Parallelism >= 1 && p.MemoryKiB >= 8*uint32(p.Parallelism)
}

// Bounded refuses parameters that the algorithm does not allow, and those that would
// block all logins for seconds.
func (p Argon2id) Bounded() error {
	switch {
	case !p.isPossible():
		return errArgon2
	case p.MemoryKiB > 1<<20:
		return errors.New("argon2 memory is over 1 GiB (1048576 KiB); lower it")
	case p.Iterations > 64:
		return errors.New("argon2 iterations are over 64; lower them, and raise the memory instead")
	case p.Parallelism > 16:
		return errors.New("argon2 parallelism is over 16; lower it")
	case uint64(p.MemoryKiB)*uint64(p.Iterations) > 4<<20:
		return errors.New("argon2 memory times iterations is over 4 GiB, which takes seconds; lower one of them")
	}
	return nil
}

const (
	saltBytes = 16 // RFC 9106, section 3.1
	keyBytes  = 32
)

func (p Argon2id) encode(salt, key []byte) string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.MemoryKiB, p.Iterations, p.Parallelism,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(key))
}

// LooksLikeHash reports whether s is meant as a hash and not as a plain password. It
// looks for the name of a kind of hash: between dollar signs, before the first dollar
// sign (Django, Werkzeug) or in braces (Spring, LDAP). ASP.NET's has none, but a fixed
// form. The kind may be one that CheckHash refuses.
func LooksLikeHash(s string) bool {
	_, known := hashKinds[hashKind(s)]
	return known
}

const (
	// maxCost is the maximum CPU time of an attempt (contract, section 4).
	maxCost = time.Second
	// Verify accepts hashes that cost up to maxStored times maxCost, because operators may
	// set more expensive parameters for their own hashes.
	maxStored = 4
)

// leaveOut ends the errors of hashes that can't be imported and that nobody can change.
const leaveOut = "; leave it out, and let the user set a new one"

// CheckHash refuses a hash from another system that mnemogate can't verify, or that
// would need too much memory or time. It accepts argon2id up to own, the parameters that
// the company has chosen for its hashes: so its accounts can move to another store. Zero
// parameters accept no more than any company may import.
func CheckHash(hash string, own Argon2id) error {
	d, err := parseHash(hash)
	switch {
	case err != nil:
		return err
	case d.kind == "argon2id" && own.covers(d.argon2):
		return nil
	case d.argon2.MemoryKiB > 256<<10:
		return errors.New("the argon2 hash asks for more than 256 MiB of memory" + leaveOut)
	case d.cost > maxCost:
		return d.tooExpensive()
	}
	return nil
}

// IsQuick reports whether a hash is so cheap that a thief who has it tries thousands of
// passwords a second on one CPU: md5crypt, {SSHA}, or another with few iterations. It says
// no of argon2id, whose cost a company chooses.
func IsQuick(hash string) bool {
	d, err := parseHash(hash)
	return err == nil && d.kind != "argon2id" && d.cost < maxCost/2048
}

// CheckHashes refuses hashes that CheckHash refuses, and a set of hashes that takes too
// long in total. Checking a secret takes one hash for each different salt.
func CheckHashes(hashes []string, own Argon2id) error {
	costs := map[string]time.Duration{}
	var sum time.Duration
	for _, hash := range hashes {
		if err := CheckHash(hash, own); err != nil {
			return err
		}
		d, _ := parseHash(hash)
		sum += d.cost - costs[d.salted]
		costs[d.salted] = d.cost
	}
	if sum > maxCost && len(costs) > 1 { // CheckHash has judged a single salt
		return errors.New("together the hashes take too long to check, because each salt among them costs a hash;" +
			" use one salt for all, or leave them out and let the user get new ones")
	}
	return nil
}

// DeriveKey computes the key that the hash must have if it is a hash of secret. The hash
// may be of any kind that CheckHash allows, and secret is in the form that was hashed.
// Errors contain nothing of the hash or the secret.
func DeriveKey(hash, secret string) ([]byte, error) {
	d, err := parseHash(hash)
	if err != nil {
		return nil, err
	}
	return d.derive(secret)
}

// A digest is a parsed hash.
type digest struct {
	hash   string
	kind   string
	argon2 Argon2id // with argon2id and argon2i
	salt   []byte   // not with bcrypt
	key    []byte
	// sees is how many bytes of a secret the hash depends on; 0 for all.
	sees int
	// forms returns the forms of a secret that may have been hashed; nil if the
	// secret itself is the only one.
	forms func(secret string) []string
	// derive returns key for the right secret.
	derive func(secret string) ([]byte, error)
	// cost estimates how long a CPU takes to derive the key.
	cost time.Duration
	// bound describes, in words, the parameters that cost maxCost.
	bound string
	// salted is the hash without the key. Hashes with the same salted derive the same
	// key from a secret.
	salted string
}

// weaker reports whether the hash is of another kind than one made with p, or weaker.
func (d digest) weaker(p Argon2id) bool {
	return d.kind != "argon2id" || !d.argon2.covers(p) || len(d.salt) < saltBytes || len(d.key) < keyBytes
}

// hashed returns the forms of a secret that may have been hashed.
func (d digest) hashed(secret string) []string {
	if d.forms == nil {
		return []string{secret}
	}
	return d.forms(secret)
}

// costing sets the cost of n units, where most units cost maxCost.
func (d digest) costing(n, most uint64, bound string) (digest, error) {
	d.bound = bound
	if n > maxStored*most {
		return d, d.tooExpensive()
	}
	d.cost = maxCost * time.Duration(n) / time.Duration(most)
	return d, nil
}

func (d digest) tooExpensive() error {
	return errors.New("the hash takes too long to check: " + d.bound + " is the most" + leaveOut)
}

// eachRound returns a digest's derive for a function of n rounds that hashes the whole
// secret in each. Its time grows with the secret: 128 bytes in each of most rounds cost
// about maxCost. So no longer secret is right, unless there are fewer rounds.
func eachRound(n, most uint64, derive func(secret string) []byte) func(string) ([]byte, error) {
	longest := int(max(128, 128*most/n))
	return func(secret string) ([]byte, error) {
		if len(secret) > longest {
			derive(secret[:longest]) // a wrong secret takes as long as the right one
			return nil, nil
		}
		return derive(secret), nil
	}
}

// seesAll reports whether the hash certainly covers the whole secret, as it is. If the
// secret is as long as what the hash depends on, the hashed one may have been longer and
// cut. WordPress removes the space around it.
func (d digest) seesAll(secret string) bool {
	return (d.sees == 0 || len(secret) < d.sees) && slices.Contains(d.hashed(secret), secret)
}

// hashKinds maps each kind to the parser of what follows $kind$, split at each $. A nil
// parser means that the kind is known but not supported.
var hashKinds = map[string]func(kind string, fields []string) (digest, error){
	"argon2id":      parseArgon2,
	"argon2i":       parseArgon2,
	"2a":            parseBcrypt,
	"2b":            parseBcrypt,
	"2y":            parseBcrypt,
	"scrypt":        parseScrypt,
	"7":             parseCryptScrypt,
	"pbkdf2":        parsePBKDF2,
	"pbkdf2-sha1":   parsePBKDF2,
	"pbkdf2-sha256": parsePBKDF2,
	"pbkdf2-sha512": parsePBKDF2,

	"fbscrypt":             parseFirebase, // this and the following: hash_foreign.go
	"django_pbkdf2_sha256": parseDjangoPBKDF2,
	"django_pbkdf2_sha1":   parseDjangoPBKDF2,
	"django_scrypt":        parseDjangoScrypt,
	"django_argon2":        parseDjangoArgon2,
	"django_bcrypt":        parseDjangoBcrypt,
	"django_bcrypt_sha256": parseDjangoBcrypt,

	"werkzeug": parseWerkzeug,
	"aspnet":   parseASPNET,

	"5":    parseSHACrypt, // hash_shacrypt.go
	"6":    parseSHACrypt,
	"1":    parseMD5Crypt,
	"apr1": parseMD5Crypt,
	"P":    parsePHPass, // hash_wordpress.go
	"H":    parsePHPass,
	"S":    parsePHPass,
	"wp":   parseWordPress,

	"spring_bcrypt":             parseSpringBcrypt, // hash_spring.go
	"spring_argon2":             parseSpringArgon2,
	"spring_argon2" + springV58: parseSpringArgon2,
	"spring_scrypt":             parseSpringScrypt,
	"spring_scrypt" + springV58: parseSpringScrypt,
	"spring_pbkdf2":             parseSpringPBKDF2,
	"spring_pbkdf2" + springV58: parseSpringPBKDF2,
	"spring_SSHA":               parseSSHA, // not Spring's, but LDAP servers write braces, too
	"spring_SSHA256":            parseSSHA,
	"spring_SSHA512":            parseSSHA,

	"webhook": nil, // not a hash: record.ExternalPassword
	"argon2d": nil, // its time depends on the secret
	"2":       nil, // 2 and 2x mark early bugs of bcrypt
	"2x":      nil,
	"y":       nil, // yescrypt
	"gy":      nil,

	"spring_noop":    nil, // a plain password
	"spring_ldap":    nil,
	"spring_MD4":     nil,
	"spring_MD5":     nil,
	"spring_SHA-1":   nil,
	"spring_SHA-256": nil,
	"spring_sha256":  nil,
}

// hashKind returns the kind of a hash: the text between its first two dollar signs. The
// kind of a Django or Spring hash, which begins without one, gets their prefix.
func hashKind(s string) string {
	kind, _, closed := strings.Cut(withDollar(s)[1:], "$")
	if !closed {
		return ""
	}
	return kind
}

// These errors do not quote the hash, because it may be a password in the wrong place.
var (
	errHashKind = errors.New("this kind of hash is not supported; use argon2id, argon2i, bcrypt, scrypt, pbkdf2, sha256crypt, sha512crypt or md5crypt, in PHC or crypt form" +
		" or as ASP.NET, Django, Drupal, Firebase, Keycloak, LDAP, phpBB, Spring, Supabase, Werkzeug or WordPress keep it; or leave the password out, and the user sets one by recovery")
	errHashLength = errors.New("the salt and the key of a hash must have 8 to 128 bytes each")
)

func hashForm(form string) error {
	return errors.New("the hash is malformed; its form is " + form)
}

// parseHash parses a hash that Verify can verify within a few seconds.
func parseHash(hash string) (digest, error) {
	kind := hashKind(hash)
	parse := hashKinds[kind]
	if parse == nil {
		return digest{}, errHashKind
	}
	if len(hash) > 1024 || strings.ContainsFunc(hash, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return digest{}, errors.New("the hash is malformed; it has at most 1024 characters, visible ASCII without spaces")
	}
	d, err := parse(kind, strings.Split(withDollar(hash), "$")[2:])
	if err != nil {
		return digest{}, err
	}
	d.hash, d.kind = hash, kind
	if d.salted == "" {
		// The key of argon2 depends on its length.
		d.salted = hash[:strings.LastIndexByte(hash, '$')] + "$" + strconv.Itoa(len(d.key))
	}
	return d, nil
}

// parseArgon2 parses v=19$m=65536,t=2,p=1$salt$key. x/crypto does not support version
// 1.0 (v=16, or no v), which computes another key.
func parseArgon2(kind string, fields []string) (d digest, err error) {
	const form = "$argon2id$v=19$m=<KiB>,t=<iterations>,p=<parallelism>$<salt>$<key>, salt and key in base64"
	if len(fields) != 4 || fields[0] != "v=19" {
		return d, hashForm(form)
	}
	n, ok := parameters(fields[1])
	if !ok || len(n) != 3 || n["p"] > 255 {
		return d, hashForm(form)
	}
	d.argon2 = Argon2id{uint32(n["m"]), uint32(n["t"]), uint8(n["p"])}
	if !d.argon2.isPossible() { // also if a parameter is missing and thus zero
		return d, fmt.Errorf("%w; leave the hash out, and let the user set a new one", errArgon2)
	}
	if d, err = d.costing(n["m"]*n["t"], 1<<20, "argon2 with 1048576 as memory in KiB times iterations"); err != nil {
		return d, err
	}
	if d.salt, d.key, err = saltAndKey(fields[2:]); err != nil {
		return d, err
	}
	compute := argon2.IDKey
	if kind == "argon2i" {
		compute = argon2.Key
	}
	d.derive = func(secret string) ([]byte, error) {
		p := d.argon2
		return compute([]byte(secret), d.salt, p.Iterations, p.MemoryKiB, p.Parallelism, uint32(len(d.key))), nil
	}
	return d, nil
}

// bcryptBytes is how many bytes of a password bcrypt uses. Programs that make bcrypt
// hashes cut longer passwords.
const bcryptBytes = 72

// parseBcrypt parses 12$ and 53 characters: 22 of salt and 31 of key.
func parseBcrypt(kind string, fields []string) (d digest, err error) {
	if !slices.Contains([]string{"2a", "2b", "2y"}, kind) { // inside another program's hash
		return d, errHashKind
	}
	if len(fields) != 2 || len(fields[0]) != 2 || len(fields[1]) != 53 || strings.Trim(fields[1], crypt64) != "" {
		return d, hashForm("$2b$<cost>$<53 characters>")
	}
	cost, err := strconv.ParseUint(fields[0], 10, 8)
	if err != nil || cost < 4 || cost > 31 {
		return d, errors.New("the cost of a bcrypt hash must be 04 to 14" + leaveOut)
	}
	if d, err = d.costing(1<<cost, 1<<14, "bcrypt of cost 14"); err != nil {
		return d, err
	}
	// x/crypto can compare but not derive. So derive compares and, for the right
	// secret, returns the key of the hash.
	hash := "$" + kind + "$" + fields[0] + "$" + fields[1]
	d.salted = hash
	d.key = []byte(fields[1])
	d.sees = bcryptBytes
	d.derive = func(secret string) ([]byte, error) {
		err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(secret[:min(len(secret), bcryptBytes)]))
		switch {
		case errors.Is(err, bcrypt.ErrMismatchedHashAndPassword):
			return nil, nil
		case err != nil:
			return nil, errors.New("bcrypt can't read a hash") // its own error quotes it
		}
		return d.key, nil
	}
	return d, nil
}

// parseScrypt parses ln=15,r=8,p=1$salt$key, the form of PHC and passlib.
func parseScrypt(_ string, fields []string) (d digest, err error) {
	const form = "$scrypt$ln=<log2 of N>,r=<r>,p=<p>$<salt>$<key>, salt and key in base64"
	if len(fields) != 3 {
		return d, hashForm(form)
	}
	n, ok := parameters(fields[0])
	if !ok || len(n) != 3 {
		return d, hashForm(form)
	}
	if d.salt, d.key, err = saltAndKey(fields[1:]); err != nil {
		return d, err
	}
	return d.scrypt(n["ln"], n["r"], n["p"])
}

// parseCryptScrypt parses the scrypt form of crypt(3): log2 of N in one character of
// crypt64, r and p in five each, the salt as text, then $key.
func parseCryptScrypt(_ string, fields []string) (d digest, err error) {
	const form = "$7$<11 characters of parameters><salt>$<43 characters>"
	if len(fields) != 2 || len(fields[0]) < 11 || len(fields[1]) != 43 {
		return d, hashForm(form)
	}
	setting, encoded := fields[0], fields[1]
	if strings.Trim(setting[:11]+encoded, crypt64) != "" {
		return d, hashForm(form)
	}
	d.salt = []byte(setting[11:])
	for four := range slices.Chunk([]byte(encoded), 4) {
		n := crypt64Number(string(four))
		d.key = append(d.key, byte(n), byte(n>>8), byte(n>>16))
	}
	d.key = d.key[:32]
	if len(d.salt) < 8 || len(d.salt) > 128 {
		return d, errHashLength
	}
	return d.scrypt(crypt64Number(setting[:1]), crypt64Number(setting[1:6]), crypt64Number(setting[6:11]))
}

// scrypt completes a digest that has its salt and key.
func (d digest) scrypt(ln, r, p uint64) (digest, error) {
	if ln < 1 || ln > 30 || r < 1 || r > 1<<10 || p < 1 || p > 1<<10 {
		return d, errors.New("the parameters of a scrypt hash are out of range" + leaveOut)
	}
	n := uint64(1) << ln
	if 128*r*max(n, p) > 256<<20 {
		return d, errors.New("the scrypt hash asks for more than 256 MiB of memory" + leaveOut)
	}
	d.derive = func(secret string) ([]byte, error) {
		return scrypt.Key([]byte(secret), d.salt, int(n), int(r), int(p), len(d.key))
	}
	return d.costing(n*r*p, 1<<21, "scrypt with 2097152 as N times r times p")
}

// parsePBKDF2 parses i=600000,l=32$salt$key, the form of PHC in which l is optional, or
// 29000$salt$key, the form of passlib.
func parsePBKDF2(kind string, fields []string) (d digest, err error) {
	const form = "$pbkdf2-sha256$i=<iterations>,l=<bytes>$<salt>$<key> or $pbkdf2-sha256$<iterations>$<salt>$<key>, salt and key in base64"
	if len(fields) != 3 {
		return d, hashForm(form)
	}
	if !strings.Contains(fields[0], "=") {
		fields[0] = "i=" + fields[0]
	}
	n, ok := parameters(fields[0])
	if d.salt, d.key, err = saltAndKey(fields[1:]); err != nil {
		return d, err
	}
	length, given := n["l"]
	if !ok || given && (length != uint64(len(d.key)) || len(n) != 2) || !given && len(n) != 1 {
		return d, hashForm(form)
	}
	return d.pbkdf2(kind, n["i"])
}

// pbkdf2 completes a digest that has its salt and key.
func (d digest) pbkdf2(kind string, iterations uint64) (digest, error) {
	function, size, most := sha1.New, sha1.Size, uint64(4_000_000)
	switch kind {
	case "pbkdf2-sha256":
		function, size, most = sha256.New, sha256.Size, 3_000_000
	case "pbkdf2-sha512":
		function, size, most = sha512.New, sha512.Size, 1_500_000
	}
	if iterations < 1 {
		return d, errors.New("a pbkdf2 hash must have at least 1 iteration" + leaveOut)
	}
	d.derive = func(secret string) ([]byte, error) {
		return pbkdf2.Key[hash.Hash](function, secret, d.salt, int(iterations), len(d.key))
	}
	// Each further block of the key costs as much as the first.
	most /= uint64(len(d.key)+size-1) / uint64(size)
	return d.costing(iterations, most, fmt.Sprintf("%s with %d iterations and a key of %d bytes", kind, most, len(d.key)))
}

// parameters parses named numbers: m=65536,t=2,p=1.
func parameters(s string) (map[string]uint64, bool) {
	numbers := map[string]uint64{}
	for field := range strings.SplitSeq(s, ",") {
		name, digits, _ := strings.Cut(field, "=")
		n, err := strconv.ParseUint(digits, 10, 32)
		if _, twice := numbers[name]; err != nil || twice {
			return nil, false
		}
		numbers[name] = n
	}
	return numbers, true
}

// saltAndKey decodes base64, with or without padding, and passlib's variant, which uses
// a dot instead of the plus.
func saltAndKey(fields []string) (salt, key []byte, err error) {
	var decoded [2][]byte
	for i, s := range fields {
		s = strings.ReplaceAll(strings.TrimRight(s, "="), ".", "+")
		if decoded[i], err = base64.RawStdEncoding.Strict().DecodeString(s); err != nil {
			return nil, nil, errors.New("the salt or the key of the hash is not in base64")
		}
		if len(decoded[i]) < 8 || len(decoded[i]) > 128 {
			return nil, nil, errHashLength
		}
	}
	return decoded[0], decoded[1], nil
}

// crypt64 is the alphabet of crypt(3). bcrypt uses the same characters in another order.
const crypt64 = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// crypt64Number parses digits of crypt64, the lowest first.
func crypt64Number(digits string) (n uint64) {
	for i := len(digits) - 1; i >= 0; i-- {
		n = n<<6 | uint64(strings.IndexByte(crypt64, digits[i]))
	}
	return n
}
