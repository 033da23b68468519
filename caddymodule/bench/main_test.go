// Package bench measures whole processes of Caddy: the protected path and logins
// side by side with bare Caddy, memory, and growth to many sessions. Begin at
// bench_test.go; docs/performance.md has the commands and what they told.
package bench

import (
	"os"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/mnemogate/mnemogate/caddymodule"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// TestMain lets the test binary be each of the processes that are measured, and
// those that measure.
func TestMain(m *testing.M) {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" {
		caddycmd.Main()
		return
	}
	if help := helpers[os.Getenv("MNEMOGATE_TEST_HELPER")]; help != nil {
		help()
		return
	}
	code := storetest.Run(m)
	forgetSeeds()
	os.Exit(code)
}
