package captcha

import (
	"cmp"
	"context"
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(Pow{}) }

const defaultBits = 18

// Pow is a captcha without a third party: the client's machine does some work, and
// its user does nothing. Clients get a challenge from
// `GET /{company_code}/v2/captcha`, with the API key, and have 5 minutes to answer it
// once. This makes guessing expensive, but does not stop a program that does the
// work.
type Pow struct {
	// The number of zero bits at the start of a response's SHA-256, 8 to 24. The
	// work is 2^bits hashes on average, so one bit more doubles it. The default
	// takes about 0.05 s of a CPU core in compiled code and ten times that in a
	// script. With 24 bits, a phone needs about a minute. Default: 18.
	ZeroBits int `json:"bits,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Pow) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.pow", New: func() caddy.Module { return new(Pow) }}
}

// UnmarshalCaddyfile takes the number of bits.
func (p *Pow) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "[<bits>]", guest.Optional(func(d *caddyfile.Dispenser) error {
		return guest.Complete(d, guest.OneValue(guest.Int(&p.ZeroBits))(d), p.Validate)
	}), nil)
}

// Provision sets the default.
func (p *Pow) Provision(caddy.Context) error {
	p.ZeroBits = cmp.Or(p.ZeroBits, defaultBits)
	return nil
}

// Validate refuses a number of bits that takes no work, or that phones often can't finish
// in the 5 minutes of a challenge.
func (p *Pow) Validate() error {
	if p.ZeroBits < 8 || p.ZeroBits > 24 {
		return errors.New("captcha pow: choose 8 to 24 bits")
	}
	return nil
}

// Bits implements tenant.ProofOfWork.
func (p *Pow) Bits() int { return p.ZeroBits }

// Verify implements tenant.Captcha. It is never called: see tenant.ProofOfWork.
func (*Pow) Verify(context.Context, string, string) (bool, error) {
	return false, errors.New("captcha pow: only the service can verify it")
}

// Interface guards
var (
	_ tenant.ProofOfWork    = (*Pow)(nil)
	_ caddy.Provisioner     = (*Pow)(nil)
	_ caddy.Validator       = (*Pow)(nil)
	_ caddyfile.Unmarshaler = (*Pow)(nil)
)
