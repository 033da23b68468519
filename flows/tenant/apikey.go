package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
)

// PlaceOf returns a key's place among the company's, from 1, or 0 if it is none of
// them. It compares with each, in constant time. No company has none.
func (c *Company) PlaceOf(key string) int {
	hashes := [][sha256.Size]byte{{}} // what no key hashes to
	if c != nil {
		hashes = c.APIKeys
	}
	sent := sha256.Sum256([]byte(key))
	place := 0
	for i := range hashes {
		place = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sent[:], hashes[i][:]), i+1, place)
	}
	if c == nil {
		return 0
	}
	return place
}
