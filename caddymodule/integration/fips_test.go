package integration

import (
	"os"
	"testing"
)

// With GODEBUG=fips140=only, Go panics where a program computes SHA-1 and the like. Nothing
// may do so while the program or a configuration is loaded.
func TestTheProgramStartsWithFIPSOnly(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir(), env: []string{"GODEBUG=fips140=only"}}
	config := siteConfig{company: people + passkeys, handler: selfService, stores: "store postgres postgres://localhost/db\nsessions redis redis://localhost"}
	must(t, os.WriteFile(s.dir+"/Caddyfile", []byte(config.caddyfile(s.dir, "http://127.0.0.1:1", "127.0.0.1:1")), 0o600))
	for _, args := range [][]string{{"version"}, {"validate", "--config", s.dir + "/Caddyfile"}} {
		if out, err := s.caddy(args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%.2000s", args, err, out)
		}
	}
}
