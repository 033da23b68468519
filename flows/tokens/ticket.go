package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"
)

// A ticket is signed with a key that only the nodes of a deployment have. So every node
// can check it, and nothing is stored until it is used. It consists of random bytes, the
// time that it expires and a signature, with as many bytes as the fields say.
type ticket struct {
	random, signature int
	once              bool // its use is remembered for SpentMemory
}

const ticketTime = 8 // bytes

// SpentMemory is how long a use is remembered of what works once. Such a thing expires
// sooner, but perhaps by the clock of another machine, which may be ahead.
const SpentMemory = time.Hour

func (t ticket) size() int { return t.random + ticketTime + t.signature }

// issue returns a ticket of its owner that is valid until expires, signed with the first
// key.
func (t ticket) issue(keys [][]byte, owner string, expires time.Time) []byte {
	text := make([]byte, t.random, t.size())
	rand.Read(text)
	text = binary.BigEndian.AppendUint64(text, uint64(expires.UnixMicro()))
	return append(text, t.sign(keys[0], owner, text)...)
}

// sign returns the signature. text has a fixed length.
func (t ticket) sign(key []byte, owner string, text []byte) []byte {
	return mac(key, string(text)+owner)[:t.signature]
}

// open decodes a ticket. It reports whether the ticket is one of this owner, signed with any
// of the keys, and has not expired. A ticket that works once must expire before its use is
// forgotten, whoever has signed it.
func (t ticket) open(keys [][]byte, owner, encoded string, now time.Time) (raw []byte, ok bool) {
	if len(encoded) != base64.RawURLEncoding.EncodedLen(t.size()) {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != t.size() { // the decoder skips line breaks
		return nil, false
	}
	text, signature := raw[:t.random+ticketTime], raw[t.random+ticketTime:]
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text[t.random:])))
	signed := slices.ContainsFunc(keys, func(key []byte) bool { return hmac.Equal(t.sign(key, owner, text), signature) })
	return raw, signed && now.Before(expires) && !(t.once && expires.After(now.Add(SpentMemory)))
}
