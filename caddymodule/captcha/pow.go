package captcha

import (
	"context"
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(Pow{}) }

const defaultBits = 18

// Pow is a captcha without a third party: the client's machine has to work, and
// its user has nothing to do. Clients get a challenge from `GET
// /{company_code}/v2/captcha`, with the API key, and have 5 minutes to answer it,
// once. That makes guessing dear, but holds off no program that is ready to work.
type Pow struct {
	// With how many zero bits the SHA-256 of a response must begin, 8 to 30: one
	// more doubles the work, which is 2^bits hashes on average. The default takes
	// about 0.15 s of a core in compiled code, ten times that in a script.
	// Default: 18.
	ZeroBits int `json:"bits,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Pow) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.pow", New: func() caddy.Module { return new(Pow) }}
}

// UnmarshalCaddyfile takes the number of bits. Syntax:
//
//	pow [<bits>]
func (p *Pow) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.CountRemainingArgs() > 0 {
		if err := guest.OneValue(d, guest.Int(&p.ZeroBits))(); err != nil {
			return err
		}
		if err := p.Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	return guest.Options(d, nil)
}

// Provision sets the default.
func (p *Pow) Provision(caddy.Context) error {
	if p.ZeroBits == 0 {
		p.ZeroBits = defaultBits
	}
	return nil
}

// Validate refuses what is no work, and what takes minutes.
func (p *Pow) Validate() error {
	if p.ZeroBits < 8 || p.ZeroBits > 30 {
		return errors.New("captcha pow: choose 8 to 30 bits")
	}
	return nil
}

// Bits implements tenant.ProofOfWork.
func (p *Pow) Bits() int { return p.ZeroBits }

// Verify implements tenant.Captcha, and is not called: see tenant.ProofOfWork.
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
