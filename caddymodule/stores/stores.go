// Package stores contains the built-in plugins that configure stores: sqlite,
// postgres and redis, with one file each. The stores themselves are in the packages below
// store. To add one, write a guest.StoreModule and register it as
// mnemogate.accounts.<name> or mnemogate.sessions.<name>.
package stores

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// storeKey returns a key for a store at an address. It contains the configuration only as
// a hash. It changes with the files that the address names, such as certificates, which a store
// reads once, when it is opened.
func storeKey(module, address string, config ...any) string {
	var files []string
	for _, option := range fileOption.FindAllStringSubmatch(address, -1) {
		name, _ := url.PathUnescape(strings.Trim(option[1], "'"))
		content, _ := os.ReadFile(name) // opening the store reports an error
		files = append(files, string(content))
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%q", append(config, address, files)))
	return module + ":" + hex.EncodeToString(hash[:])
}

// fileOption matches the options of DSNs and Redis URLs that name files.
var fileOption = regexp.MustCompile(`[?&\s](?:ca|sslrootcert|sslcert|sslkey|passfile|servicefile)=('[^']*'|[^\s&]+)`)
