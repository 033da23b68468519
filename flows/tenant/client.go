package tenant

import (
	"cmp"
	"fmt"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A ClientConfig is what a client must know of a company before a login, ready to be
// marshalled. Nothing of it is secret.
type ClientConfig struct {
	Password    ClientPassword    `json:"password"`
	Captcha     ClientCaptcha     `json:"captcha"`
	Recovery    []Method          `json:"recovery"` // the default first
	OAuth       []ClientOAuth     `json:"oauth"`    // by provider_id
	Disclaimers []wire.Disclaimer `json:"disclaimers"`
	Session     ClientSessionLife `json:"session"`
}

// ClientPassword is what new passwords must be, whosever they are.
type ClientPassword struct {
	MinLength   int     `json:"min_length"`
	Regex       *string `json:"regex"` // null for none
	Description string  `json:"description"`
	// RegexDescription is what the operator says of the Regex, for those who say the
	// rest in another language.
	RegexDescription string `json:"regex_description,omitempty"`
}

// ClientCaptcha is what a captcha_response is made with.
type ClientCaptcha struct {
	Type    string `json:"type"` // as the operator configures it, such as turnstile or off
	SiteKey string `json:"site_key,omitempty"`
	Bits    int    `json:"bits,omitempty"` // of a ProofOfWork
}

// ClientOAuth is where a login with a provider begins.
type ClientOAuth struct {
	ProviderID   int     `json:"provider_id"`
	Name         string  `json:"name"`
	AuthorizeURL *string `json:"authorize_url"` // null if it is not known, or not now
	ClientID     string  `json:"client_id"`
	Scope        string  `json:"scope"`
	PKCE         bool    `json:"pkce"`
}

// ClientSessionLife is how long authorized sessions last, in seconds.
type ClientSessionLife struct {
	Idle     int `json:"idle"`
	Lifetime int `json:"lifetime"`
}

// ClientPassword is what new passwords must be.
func (c *Company) ClientPassword() ClientPassword {
	q := c.Quality(record.Account{SecondFactor: true})
	p := ClientPassword{c.Password.MinLength, q.Regex, q.Description, c.Password.RegexDescription}
	if c.Hardened && c.SecondFactor == SecondFactorPerAccount && p.MinLength < hardenedMinLength {
		p.Description += fmt.Sprintf(" At least %d characters for an account without a second factor.", hardenedMinLength)
	}
	if c.Hardened && c.SecondFactor == SecondFactorOff {
		p.MinLength = max(p.MinLength, hardenedMinLength)
	}
	return p
}

// ClientCaptcha is what a captcha_response is made with.
func (c *Company) ClientCaptcha() ClientCaptcha {
	captcha := ClientCaptcha{Type: cmp.Or(c.CaptchaType, "off"), SiteKey: c.SiteKey}
	if work, ok := c.Captcha.(ProofOfWork); ok {
		captcha.Bits = work.Bits()
	}
	return captcha
}
