package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"golang.org/x/crypto/chacha20poly1305"
)

// Anyone can begin a login of anyone, as often as they like. So a session in
// state checkpassword is kept by nobody: its token holds it, sealed with a key
// that only the nodes of a deployment have. What must be known of such a token
// is whether it was used: the step that uses it charges its claim, a counter
// that takes one.

// What is sealed, each field of a fixed length, so that a decoy's token looks
// like any other. A random nonce of 24 bytes is good for any number of tokens.
const (
	companyTagBytes = 16
	aliasBytes      = sha256.Size
	sealedBytes     = chacha20poly1305.NonceSizeX + companyTagBytes + 3*8 + aliasBytes + chacha20poly1305.Overhead
)

var sealedLength = len(Prefix) + base64.RawURLEncoding.EncodedLen(sealedBytes)

// IsSealed reports whether a token is not one of New.
func IsStateless(token string) bool {
	return len(token) == sealedLength && token[:len(Prefix)] == Prefix
}

// A CompanyTag stands for a company in a sealed token, whatever the length of its code.
type CompanyTag [companyTagBytes]byte

// TagOf returns the tag of a company.
func TagOf(code string) CompanyTag {
	sum := sha256.Sum256([]byte(code))
	return CompanyTag(sum[:companyTagBytes])
}

// Seal returns the token of a session in state checkpassword.
func (k *Keys) NewStateless(s record.Session) string {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, sealedBytes)
	rand.Read(nonce) // never fails: it ends the process instead
	tag := TagOf(s.Company)
	text := append(make([]byte, 0, sealedBytes), tag[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Account))
	text = binary.BigEndian.AppendUint32(text, uint32(s.CompanyGeneration))
	text = binary.BigEndian.AppendUint32(text, uint32(s.Generation))
	text = binary.BigEndian.AppendUint64(text, uint64(s.Expires.UnixMicro()))
	var loginIDHash [aliasBytes]byte
	hex.Decode(loginIDHash[:], []byte(s.LoginID)) // the alias is hex
	text = append(text, loginIDHash[:]...)
	token := append(make([]byte, 0, sealedLength), Prefix...)
	return string(base64.RawURLEncoding.AppendEncode(token, k.sessions.Seal(nonce, nonce, text, []byte(record.CheckPassword))))
}

// Unseal returns the session in a token, with nothing in Company, and the tag of
// its company.
func (k *Keys) OpenStateless(token string) (s record.Session, tag CompanyTag, ok bool) {
	var raw [sealedBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(token[len(Prefix):]))
	if err != nil || n != sealedBytes {
		return record.Session{}, tag, false
	}
	nonce, sealed := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
	text, err := k.sessions.Open(sealed[:0], nonce, sealed, []byte(record.CheckPassword))
	if err != nil {
		return record.Session{}, tag, false
	}
	tag = CompanyTag(text)
	numbers := text[companyTagBytes:]
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
	if loginIDHash := numbers[3*8:]; [aliasBytes]byte(loginIDHash) != [aliasBytes]byte{} {
		s.LoginID = hex.EncodeToString(loginIDHash)
	}
	return s, tag, true
}

// SealedID is the ID of the session that a sealed token holds.
func StatelessID(token string) string {
	sum := sha256.Sum256([]byte("id of " + token))
	return hex.EncodeToString(sum[:16])
}
