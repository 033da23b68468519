package tenant

import (
	"cmp"
	"fmt"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A ClientConfig is what a client must know about a company before a login, as JSON.
// It contains no secrets.
type ClientConfig struct {
	Password    ClientPassword    `json:"password"`
	Captcha     ClientCaptcha     `json:"captcha"`
	Recovery    []Method          `json:"recovery"` // the default first
	OAuth       []ClientOAuth     `json:"oauth"`    // by provider_id
	Disclaimers []wire.Disclaimer `json:"disclaimers"`
	Name        string            `json:"name"` // what people call the company
	OTP         ClientOTP         `json:"otp"`
	Passkeys    bool              `json:"passkeys"` // whether users can log in with passkeys
	Devices     bool              `json:"devices"`  // whether the company remembers devices
	// SkipSecondFactor says whether users of a remembered device are asked for no code.
	SkipSecondFactor bool              `json:"skip_second_factor"`
	Session          ClientSessionLife `json:"session"`
}

// ClientOTP is what a client needs to read a code by SMS.
type ClientOTP struct {
	Length int `json:"length"` // in digits
	TTL    int `json:"ttl"`    // how long one is valid, in seconds
}

// ClientPassword holds the rules that apply to all new passwords.
type ClientPassword struct {
	MinLength   int     `json:"min_length"`
	Regex       *string `json:"regex"` // null for none
	Description string  `json:"description"`
	// RegexDescription is the operator's description of Regex alone. Clients that
	// describe the other rules in their own language use it.
	RegexDescription string `json:"regex_description,omitempty"`
}

// ClientCaptcha is what a client needs to create a captcha_response.
type ClientCaptcha struct {
	Type    string `json:"type"` // as configured, such as turnstile or off
	SiteKey string `json:"site_key,omitempty"`
	Bits    int    `json:"bits,omitempty"` // of a ProofOfWork
}

// ClientOAuth is what a client needs to start a login with a provider.
type ClientOAuth struct {
	ProviderID   int     `json:"provider_id"`
	Name         string  `json:"name"`
	AuthorizeURL *string `json:"authorize_url"` // null if it is unknown, or the provider did not answer
	ClientID     string  `json:"client_id"`
	Scope        string  `json:"scope"`
	PKCE         bool    `json:"pkce"`
	Prompt       string  `json:"prompt,omitempty"`
	Issuer       string  `json:"issuer,omitempty"`       // that an iss in the provider's answer must equal (RFC 9207)
	IssRequired  bool    `json:"iss_required,omitempty"` // whether the answer must have one
	Icon         string  `json:"icon,omitempty"`         // address of an image for its button, on this site
}

// ClientSessionLife is how long authorized sessions last, in seconds.
type ClientSessionLife struct {
	Idle     int `json:"idle"`
	Lifetime int `json:"lifetime"`
}

// ClientPassword returns the rules that apply to all new passwords.
func (c *Company) ClientPassword() ClientPassword {
	q := c.Quality(record.Account{SecondFactor: true})
	p := ClientPassword{c.Password.MinLength, q.Regex, q.Description, c.Password.RegexDescription}
	if c.Hardened && c.SecondFactor == SecondFactorPerAccount && p.MinLength < SoleMinLength {
		p.Description += fmt.Sprintf(" At least %d characters for an account without a second factor.", SoleMinLength)
	}
	if c.Hardened && c.SecondFactor == SecondFactorOff {
		p.MinLength = max(p.MinLength, SoleMinLength)
	}
	return p
}

// ClientCaptcha returns what a client needs to create a captcha_response.
func (c *Company) ClientCaptcha() ClientCaptcha {
	captcha := ClientCaptcha{Type: cmp.Or(c.CaptchaType, "off"), SiteKey: c.SiteKey}
	if work, ok := c.Captcha.(ProofOfWork); ok {
		captcha.Bits = work.Bits()
	}
	return captcha
}
