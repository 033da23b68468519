package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mnemogate/mnemogate/"

// allowedImports lists the packages of this module that each package may import. Imports
// only lead downwards. An import that is not listed is forbidden.
var allowedImports = map[string][]string{
	"caddymodule":                  {"caddymodule/accounts", "caddymodule/admin", "caddymodule/captcha", "caddymodule/command", "caddymodule/gate", "caddymodule/oauth", "caddymodule/senders", "caddymodule/stores"},
	"caddymodule/command":          {"caddymodule/accounts/api", "caddymodule/gate", "caddymodule/guest", "caddymodule/page", "flows/manage", "flows/record", "store/causes", "store/sqlite"},
	"caddymodule/admin":            {"caddymodule/accounts", "caddymodule/accounts/api", "caddymodule/app", "caddymodule/bodies", "caddymodule/bypass", "caddymodule/captured", "caddymodule/gate", "caddymodule/guest", "caddymodule/logs", "flows", "flows/background", "flows/manage", "flows/message", "flows/panics", "flows/record", "flows/tenant", "flows/wire", "store/causes"},
	"caddymodule/accounts":         {"caddymodule/accounts/api", "caddymodule/app", "caddymodule/bodies", "caddymodule/bypass", "caddymodule/captured", "caddymodule/gate/paths", "caddymodule/guest", "caddymodule/logs", "caddymodule/passkey", "caddymodule/routes", "flows", "flows/manage", "flows/message", "flows/panics", "flows/password", "flows/record", "flows/session", "flows/tenant", "flows/tokens", "flows/typed", "flows/wire"},
	"caddymodule/accounts/api":     {"flows/record", "flows/tenant", "flows/wire"},
	"caddymodule/gate":             {"caddymodule/accounts/api", "caddymodule/app", "caddymodule/bodies", "caddymodule/bypass", "caddymodule/gate/identity", "caddymodule/gate/paths", "caddymodule/gate/selfservice", "caddymodule/guest", "caddymodule/logs", "caddymodule/page", "caddymodule/passkey", "flows", "flows/background", "flows/manage", "flows/panics", "flows/record", "flows/session", "flows/tenant", "flows/tokens", "flows/wire"},
	"caddymodule/gate/identity":    {"caddymodule/app", "caddymodule/guest", "flows/assertion", "flows/record", "flows/wire"},
	"caddymodule/gate/paths":       {"caddymodule/guest", "flows/record"},
	"caddymodule/gate/selfservice": {"caddymodule/accounts/api", "caddymodule/bodies", "caddymodule/gate/paths", "caddymodule/routes", "flows/manage", "flows/record", "flows/tenant", "flows/wire"},
	"caddymodule/bypass":           {"caddymodule/app", "caddymodule/bodies", "caddymodule/guest"},
	"caddymodule/page":             {"caddymodule/guest", "flows/message"},
	"caddymodule/captured":         {"flows/message", "flows/typed"},
	"caddymodule/bodies":           {"flows/panics", "flows/wire"},
	"caddymodule/routes":           nil,
	"caddymodule/policy":           {"caddymodule/breached", "caddymodule/guest", "caddymodule/passkey", "flows/message", "flows/password", "flows/record", "flows/tenant", "flows/typed"},
	"caddymodule/breached":         {"caddymodule/guest", "flows/panics", "flows/tenant"},
	"caddymodule/app":              {"caddymodule/guest", "caddymodule/hashing", "caddymodule/logs", "caddymodule/passkey", "caddymodule/policy", "flows", "flows/assertion", "flows/background", "flows/manage", "flows/message", "flows/panics", "flows/password", "flows/record", "flows/session", "flows/tenant", "flows/typed", "flows/wire", "store", "store/causes", "store/memory"},
	"caddymodule/passkey":          {"caddymodule/guest", "flows/record", "flows/tenant"},
	"caddymodule/passkey/keytest":  nil,
	"caddymodule/hashing":          {"flows/password"},
	"caddymodule/senders":          {"caddymodule/captured", "caddymodule/guest", "caddymodule/logs", "flows/message", "flows/record", "flows/tenant", "flows/typed", "store/causes"},
	"caddymodule/captcha":          {"caddymodule/guest", "caddymodule/logs", "flows/background", "flows/tenant", "store/causes"},
	"caddymodule/oauth":            {"caddymodule/guest", "flows/panics", "flows/record", "flows/tenant", "flows/wire", "store/causes"},
	"caddymodule/stores":           {"caddymodule/guest", "store/postgres", "store/redis", "store/sqlite"},
	"caddymodule/guest":            {"caddymodule/logs", "flows/message", "flows/record", "flows/tenant", "store/causes"},
	"caddymodule/logs":             {"flows/panics"},
	"caddymodule/guest/guesttest":  {"flows/message"},
	"caddymodule/bench":            nil,             // tests only
	"caddymodule/integration":      {"caddymodule"}, // tests only
	"caddymodule/openapi":          nil,             // tests only
	"store":                        {"flows/record"},
	"store/sqlite":                 {"flows/panics", "flows/record", "store/causes", "store/sqlstore"},
	"store/postgres":               {"flows/record", "store/causes", "store/sqlstore"},
	"store/redis":                  {"flows/panics", "flows/record", "store/causes"},
	"store/memory":                 {"flows/panics", "flows/record"},
	"store/sqlstore":               {"flows/record"},
	"store/causes":                 nil,
	"store/fake":                   {"flows/record"}, // for tests
	"store/storetest":              nil,
	"store/recordtest":             {"flows/record", "flows/typed", "store/storetest"},
	"flows/simulation":             nil, // tests only
	"flows/manage":                 {"flows/background", "flows/limits", "flows/message", "flows/panics", "flows/password", "flows/record", "flows/session", "flows/tenant", "flows/tokens", "flows/typed", "flows/wire"},
	"flows":                        {"flows/background", "flows/limits", "flows/message", "flows/panics", "flows/password", "flows/record", "flows/session", "flows/tenant", "flows/tokens", "flows/typed", "flows/wire"},
	"flows/session":                {"flows/background", "flows/limits", "flows/message", "flows/panics", "flows/password", "flows/record", "flows/tenant", "flows/tokens", "flows/typed", "flows/wire"},
	"flows/limits":                 {"flows/background", "flows/password", "flows/record", "flows/tenant", "flows/tokens", "flows/wire"},
	"flows/background":             {"flows/message", "flows/panics", "flows/record", "flows/tenant", "flows/tokens", "flows/wire"},
	"flows/assertion":              {"flows/panics", "flows/record", "flows/tokens", "flows/wire"},
	"flows/tenant":                 {"flows/message", "flows/password", "flows/record", "flows/typed", "flows/wire"},
	"flows/tokens":                 {"flows/record"},
	"flows/wire":                   {"flows/message", "flows/panics", "flows/record"},
	"flows/message":                {"flows/panics"},
	"flows/record":                 {"flows/typed"},
	"flows/panics":                 nil,
	"flows/password":               nil,
	"flows/typed":                  {"flows/password"},
}

// drawPauses are the packages that may import math/rand/v2, to spread pauses. Unlike math/rand,
// it has none of the functions of crypto/rand.
var drawPauses = []string{"caddymodule/bodies", "flows/session", "store/storetest"}

// Imports only lead downwards, and secrets can't be predicted. The protocol does not depend on Caddy, HTTP or a
// database.
func TestImportsRunDownwards(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out := get(cmd.Output())(t)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, ok := allowedImports[name]
		if !ok {
			t.Errorf("%s is not listed in allowedImports", name)
		}
		for _, path := range p.Imports {
			if other, ours := strings.CutPrefix(path, module); ours {
				if !slices.Contains(allowed, other) {
					t.Errorf("%s imports %s", name, other)
				}
			} else if path == "math/rand" || path == "math/rand/v2" && !slices.Contains(drawPauses, name) {
				t.Errorf("%s imports %s; secrets need crypto/rand", name, path)
			} else if strings.HasPrefix(name, "flows") && !protocolMayImport(path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// protocolMayImport reports whether flows may import an external package: packages
// of the standard library without sockets, and packages that only compute.
func protocolMayImport(path string) bool {
	if domain, _, _ := strings.Cut(path, "/"); strings.Contains(domain, ".") {
		for _, computing := range []string{"golang.org/x/crypto/", "golang.org/x/net/idna", "golang.org/x/text/", "golang.org/x/sync/", "github.com/go-crypt/x/", "github.com/go-jose/go-jose/", "github.com/nyaruka/phonenumbers", "github.com/go-json-experiment/json"} {
			if strings.HasPrefix(path, computing) {
				return true
			}
		}
		return false
	}
	return path != "net" && path != "database/sql" && !strings.HasPrefix(path, "net/http")
}
