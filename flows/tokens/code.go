package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
)

// NewDigits returns n random digits, evenly distributed.
func NewDigits(n int) string {
	bound := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	x, _ := rand.Int(rand.Reader, bound) // never fails
	return fmt.Sprintf("%0*d", n, x)
}

// HashCode binds a code to its session, purpose and phone. The hash needs the token, without
// which a thief of the store's secrets could find six digits by trying all of them, and the
// store's secret. Otherwise whoever reads the sessions could find the codes of logins that
// they began themselves.
func (k *Keys) HashCode(token string, purpose record.State, phone, digits string) [sha256.Size]byte {
	return hashCode(k.codes[0], token, purpose, phone, digits)
}

// IsCode reports whether HashCode made a hash of these digits, with the same token, purpose and
// phone.
func (k *Keys) IsCode(hash [sha256.Size]byte, token string, purpose record.State, phone, digits string) bool {
	return slices.ContainsFunc(k.codes, func(key []byte) bool {
		want := hashCode(key, token, purpose, phone, digits)
		return hmac.Equal(want[:], hash[:])
	})
}

func hashCode(key []byte, token string, purpose record.State, phone, digits string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\x00%s\x00%s\x00%s", token, purpose, phone, digits)
	return [sha256.Size]byte(mac.Sum(nil))
}
