package tokens

import (
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Anyone can start a login for any account, any number of times. So no store keeps a
// session in state checkpassword. Its token holds the session, encrypted with a key that
// only the nodes of a deployment have. The store only keeps whether such a token was
// used: the step that uses it charges a counter with a limit of one.

// Every encrypted field has a fixed length, so that a decoy's token looks like any other.
const (
	tagBytes         = 8
	loginIDHashBytes = sha256.Size
	statelessBytes   = chacha20poly1305.NonceSizeX + 2*tagBytes + 3*8 + loginIDHashBytes + chacha20poly1305.Overhead
)

var statelessLength = len(Prefix) + base64.RawURLEncoding.EncodedLen(statelessBytes)

// IsStateless reports whether a token has the form of a stateless token, not of one from
// New.
func IsStateless(token string) bool {
	return len(token) == statelessLength && token[:len(Prefix)] == Prefix
}

// A Tag stands in a stateless token for a text of the configuration. Tokens have little room
// (contract, section 3), and nobody but us makes them.
type Tag [tagBytes]byte

// TagOf returns the tag of a text.
func TagOf(text string) Tag {
	sum := sha256.Sum256([]byte(text))
	return Tag(sum[:tagBytes])
}

// NewStateless returns the token of a session in state checkpassword. The answer with the
// token lists the disclaimers that listing stands for.
func (k *Keys) NewStateless(s record.Session, listing string) string {
	company, listed := TagOf(s.Company), TagOf(listing)
	text := append(company[:], listed[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Account))
	// Both may be seconds since 1970, and grow by one at a time.
	text = binary.BigEndian.AppendUint32(text, uint32(s.CompanyGeneration))
	text = binary.BigEndian.AppendUint32(text, uint32(s.Generation))
	text = binary.BigEndian.AppendUint64(text, uint64(s.Expires.UnixMicro()))
	var loginIDHash [loginIDHashBytes]byte
	hex.Decode(loginIDHash[:], []byte(s.LoginID)) // a login id hash is in hex
	text = append(text, loginIDHash[:]...)
	return Prefix + base64.RawURLEncoding.EncodeToString(encrypt(k.sessions[0], text, string(record.CheckPassword)))
}

// OpenStateless returns the session in a token, and the tags of its company's code and of the
// listing. The session's Company is empty.
func (k *Keys) OpenStateless(token string) (s record.Session, company, listing Tag, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token[len(Prefix):])
	if err != nil || len(raw) != statelessBytes { // the decoder skips line breaks
		return record.Session{}, company, listing, false
	}
	var text []byte
	if !slices.ContainsFunc(k.sessions, func(key cipher.AEAD) bool {
		text, err = decrypt(key, raw, string(record.CheckPassword))
		return err == nil
	}) {
		return record.Session{}, company, listing, false
	}
	numbers := text[2*tagBytes:]
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(numbers[8*i:])) }
	half := func(i int) int64 { return int64(binary.BigEndian.Uint32(numbers[4*i:])) }
	s = record.Session{
		Hash:              record.HashToken(token),
		ID:                StatelessID(token),
		Account:           number(0),
		CompanyGeneration: half(2),
		Generation:        half(3),
		State:             record.CheckPassword,
		Expires:           time.UnixMicro(number(2)),
	}
	s.Ends = s.Expires
	if loginIDHash := numbers[3*8:]; [loginIDHashBytes]byte(loginIDHash) != [loginIDHashBytes]byte{} {
		s.LoginID = hex.EncodeToString(loginIDHash)
	}
	return s, Tag(text), Tag(text[tagBytes:]), true
}

// StatelessID returns the ID of the session in a stateless token.
func StatelessID(token string) string {
	sum := sha256.Sum256([]byte("id of " + token))
	return hex.EncodeToString(sum[:16])
}
