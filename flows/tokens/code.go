package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/big"

	"github.com/mnemogate/mnemogate/flows/record"
)

// NewDigits returns n random digits, evenly distributed.
func NewDigits(n int) string {
	bound := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	x, _ := rand.Int(rand.Reader, bound) // never fails
	return fmt.Sprintf("%0*d", n, x)
}

// HashCode binds a code to its session, purpose and phone. The token is the key of the
// hash: without it, six digits could be found by trying all of them on a stolen store.
func HashCode(token string, purpose record.State, phone, digits string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "%s\x00%s\x00%s", purpose, phone, digits)
	return [sha256.Size]byte(mac.Sum(nil))
}
