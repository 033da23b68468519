// Package stores has the built-in guests that configure stores, a file for each
// kind: sqlite, postgres and redis. The stores themselves are package store's. A
// new one is a guest.StoreModule, registered as mnemogate.accounts.<name> or
// mnemogate.sessions.<name>.
package stores

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// storeKey names a store without telling its secrets.
func storeKey(module string, config ...any) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q", config))
	return module + ":" + hex.EncodeToString(hash[:])
}
