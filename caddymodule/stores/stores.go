// Package stores contains the built-in plugins that configure stores: sqlite,
// postgres and redis, with one file each. The stores themselves are in package
// store. To add one, write a guest.StoreModule and register it as
// mnemogate.accounts.<name> or mnemogate.sessions.<name>.
package stores

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// storeKey returns a key for a store. It contains the configuration only as a hash.
func storeKey(module string, config ...any) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q", config))
	return module + ":" + hex.EncodeToString(hash[:])
}
