package stores

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A store reads its certificates once. After they were renewed, a reload opens it anew; and
// otherwise it keeps the connections.
func TestAReloadReadsRenewedCertificates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a ca.pem")
	escaped := filepath.Join(filepath.Dir(file), "a%20ca.pem")
	for name, module := range map[string]guest.StoreModule{
		"redis":                      &Redis{URLs: []string{"rediss://a.example:6379?pool_size=5&ca=" + escaped, "rediss://b.example?ca=" + escaped}},
		"postgres":                   &Postgres{DSN: "postgres://mnemogate@db.example/mnemogate?sslmode=verify-full&sslrootcert=" + escaped},
		"postgres, in other words":   &Postgres{DSN: "host=db.example sslmode=verify-full sslrootcert='" + file + "' user=x"},
		"postgres, with its own key": &Postgres{DSN: "host=db.example sslmode=verify-full sslkey='" + file + "'"},
	} {
		var keys []string
		for _, content := range []string{"old", "old", "new"} {
			storetest.Must(t, os.WriteFile(file, []byte(content), 0o600))
			keys = append(keys, module.Key())
		}
		if keys[0] != keys[1] || keys[1] == keys[2] {
			t.Errorf("%s: got %s", name, keys)
		}
	}
}
