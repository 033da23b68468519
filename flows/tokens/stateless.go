package tokens

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
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
// The nonce has 16 random bytes, so the key can encrypt any number of tokens. Its other 8 are
// a MAC of what the answer with the token lists: see Lists.
const (
	randomBytes      = 16
	companyTagBytes  = 16
	loginIDHashBytes = sha256.Size
	statelessBytes   = chacha20poly1305.NonceSizeX + companyTagBytes + 3*8 + loginIDHashBytes + chacha20poly1305.Overhead
)

var statelessLength = len(Prefix) + base64.RawURLEncoding.EncodedLen(statelessBytes)

// IsStateless reports whether a token has the form of a stateless token, not of one from
// New.
func IsStateless(token string) bool {
	return len(token) == statelessLength && token[:len(Prefix)] == Prefix
}

// A CompanyTag identifies a company in a stateless token. Its length is fixed.
type CompanyTag [companyTagBytes]byte

// TagOf returns the tag of the company with this code.
func TagOf(code string) CompanyTag {
	sum := sha256.Sum256([]byte(code))
	return CompanyTag(sum[:companyTagBytes])
}

// NewStateless returns the token of a session in state checkpassword. The answer with the
// token lists the disclaimers that listing stands for.
func (k *Keys) NewStateless(s record.Session, listing string) string {
	nonce := make([]byte, randomBytes, statelessBytes)
	rand.Read(nonce)
	nonce = append(nonce, listingMAC(k.listings[0], nonce, listing)...)
	tag := TagOf(s.Company)
	text := append(make([]byte, 0, statelessBytes), tag[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Account))
	text = binary.BigEndian.AppendUint32(text, uint32(s.CompanyGeneration))
	text = binary.BigEndian.AppendUint32(text, uint32(s.Generation))
	text = binary.BigEndian.AppendUint64(text, uint64(s.Expires.UnixMicro()))
	var loginIDHash [loginIDHashBytes]byte
	hex.Decode(loginIDHash[:], []byte(s.LoginID)) // a login id hash is in hex
	text = append(text, loginIDHash[:]...)
	token := append(make([]byte, 0, statelessLength), Prefix...)
	return string(base64.RawURLEncoding.AppendEncode(token, k.sessions[0].Seal(nonce, nonce, text, []byte(record.CheckPassword))))
}

func listingMAC(key, random []byte, listing string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(random)
	mac.Write([]byte(listing))
	return mac.Sum(nil)[:chacha20poly1305.NonceSizeX-randomBytes]
}

// Lists reports whether NewStateless made a token with this listing. OpenStateless must have
// opened the token.
func (k *Keys) Lists(token, listing string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(token[len(Prefix):])
	return err == nil && slices.ContainsFunc(k.listings, func(key []byte) bool {
		return hmac.Equal(raw[randomBytes:chacha20poly1305.NonceSizeX], listingMAC(key, raw[:randomBytes], listing))
	})
}

// OpenStateless returns the session in a token and the tag of its company. The session's
// Company is empty.
func (k *Keys) OpenStateless(token string) (s record.Session, tag CompanyTag, ok bool) {
	var raw [statelessBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(token[len(Prefix):]))
	if err != nil || n != statelessBytes {
		return record.Session{}, tag, false
	}
	nonce, sealed := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
	var text []byte
	if !slices.ContainsFunc(k.sessions, func(key cipher.AEAD) bool {
		text, err = key.Open(nil, nonce, sealed, []byte(record.CheckPassword))
		return err == nil
	}) {
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
	if loginIDHash := numbers[3*8:]; [loginIDHashBytes]byte(loginIDHash) != [loginIDHashBytes]byte{} {
		s.LoginID = hex.EncodeToString(loginIDHash)
	}
	return s, tag, true
}

// StatelessID returns the ID of the session in a stateless token.
func StatelessID(token string) string {
	sum := sha256.Sum256([]byte("id of " + token))
	return hex.EncodeToString(sum[:16])
}
