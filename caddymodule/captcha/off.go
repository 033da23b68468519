package captcha

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(Off{}) }

// Off disables the captcha. Only the locks then protect against guessing.
type Off struct{}

// CaddyModule returns the Caddy module information.
func (Off) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.off", New: func() caddy.Module { return new(Off) }}
}

// UnmarshalCaddyfile takes no arguments. Syntax:
//
//	off
func (*Off) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return guest.NoArguments(d, nil) }

// Verify implements tenant.Captcha. It is never called.
func (*Off) Verify(context.Context, string, string) (bool, error) { return true, nil }

// Absent implements guest.Absent.
func (*Off) Absent() {}

// Interface guards
var (
	_ tenant.Captcha        = (*Off)(nil)
	_ guest.Absent          = (*Off)(nil)
	_ caddyfile.Unmarshaler = (*Off)(nil)
)
