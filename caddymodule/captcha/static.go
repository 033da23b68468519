package captcha

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(Static{}) }

// Static accepts one configured response and refuses all others. Use it only for
// tests: anyone who knows the response passes, any number of times. Each start logs
// a warning.
type Static struct {
	// The response to accept. May contain placeholders like {env.NAME}.
	Token string `json:"token,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Static) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.static", New: func() caddy.Module { return new(Static) }}
}

// UnmarshalCaddyfile takes the right response.
func (s *Static) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "<response>", guest.Text(&s.Token), nil)
}

// Provision resolves the placeholders.
func (s *Static) Provision(caddy.Context) error {
	return guest.ResolveInto("captcha static", &s.Token)
}

// Validate refuses an empty response.
func (s *Static) Validate() error {
	if s.Token == "" {
		return errors.New("captcha static: the response is missing; add the one that passes")
	}
	return nil
}

// Verify implements tenant.Captcha.
func (s *Static) Verify(_ context.Context, response, _ string) (bool, error) {
	got, want := sha256.Sum256([]byte(response)), sha256.Sum256([]byte(s.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1, nil
}

// Reusable implements tenant.ReusableCaptcha.
func (*Static) Reusable() {}

// Weaknesses implements guest.Weak.
func (*Static) Weaknesses() []guest.Weakness {
	return []guest.Weakness{{
		Message: "it is static, for tests: anybody who knows the response passes",
		Advice:  "choose turnstile, hcaptcha, recaptcha, siteverify or pow",
	}}
}

// Interface guards
var (
	_ tenant.ReusableCaptcha = (*Static)(nil)
	_ guest.Weak             = (*Static)(nil)
	_ caddy.Provisioner      = (*Static)(nil)
	_ caddy.Validator        = (*Static)(nil)
	_ caddyfile.Unmarshaler  = (*Static)(nil)
)
