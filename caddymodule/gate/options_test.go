package gate

import (
	"maps"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/app"
)

// In the global option mnemogate, an option of the directive is told where it belongs.
func TestTheOptionsOfTheDirectiveAreKnownElsewhere(t *testing.T) {
	options := new(Handler).options(new(caddyfile.Dispenser))
	delete(options, "company") // is an option of both
	if got := slices.Sorted(maps.Keys(options)); !slices.Equal(got, app.SiteOptions) {
		t.Errorf("app.SiteOptions is %q, want %q", app.SiteOptions, got)
	}
}
