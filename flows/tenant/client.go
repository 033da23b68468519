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
	// The rules for a new password.
	Password ClientPassword `json:"password"`
	// Where a captcha_response comes from.
	Captcha ClientCaptcha `json:"captcha"`
	// Allowed recovery methods, the default first: `PHONE`, `QUESTION`, `MAIL`, or one of a later
	// version.
	Recovery []Method `json:"recovery"`
	// The company's OAuth providers.
	OAuth []ClientOAuth `json:"oauth"`
	// The legal texts that users must accept.
	Disclaimers []wire.Disclaimer `json:"disclaimers"`
	// What people call the company.
	Name string `json:"name"`
	// The codes by SMS.
	OTP ClientOTP `json:"otp"`
	// Whether users can log in with passkeys.
	Passkeys bool `json:"passkeys"`
	// Whether the company remembers devices: steps take remember_device.
	Devices bool `json:"devices"`
	// Whether users of a remembered device are asked for no code.
	SkipSecondFactor bool `json:"skip_second_factor"`
	// The tokens that users can issue for themselves; null if they can't.
	IssuedTokens *ClientTokens `json:"issued_tokens"`
	// Whether the company hides who has an account. A locked password then stays locked after
	// a recovery.
	Hardened bool `json:"hardened"`
	// How long authorized sessions last.
	Session ClientSessionLife `json:"session"`
}

// ClientOTP is what a client needs to read a code by SMS.
type ClientOTP struct {
	// How many digits they have.
	Length int `json:"length"`
	// How many seconds they are valid.
	TTL int `json:"ttl"`
}

// ClientTokens bounds the tokens that users issue.
type ClientTokens struct {
	// How many seconds they are valid at most.
	Lifetime int `json:"lifetime"`
}

// ClientPassword holds the rules that apply to all new passwords.
type ClientPassword struct {
	// Minimum number of characters.
	MinLength int `json:"min_length"`
	// What it must match, in RE2 syntax; null if there is no such rule.
	Regex *string `json:"regex"`
	// All rules in English, then the operator's text.
	Description string `json:"description"`
	// The operator's description of the regular expression, for clients that state the other
	// rules themselves.
	RegexDescription string `json:"regex_description,omitempty"`
}

// ClientCaptcha is what a client needs to create a captcha_response.
type ClientCaptcha struct {
	// turnstile, hcaptcha, recaptcha, siteverify, pow, static, off, or the name of a plugin.
	Type string `json:"type"`
	// The key for the captcha's widget, if the operator has set it.
	SiteKey string `json:"site_key,omitempty"`
	// For pow: the number of zero bits. GET captcha returns challenges.
	Bits int `json:"bits,omitempty"`
}

// ClientOAuth is what a client needs to start a login with a provider.
type ClientOAuth struct {
	// The provider_id for POST auth/oauth.
	ProviderID int `json:"provider_id"`
	// The name that users know.
	Name string `json:"name"`
	// Where the browser starts the login. null: the operator has not set it, or the provider
	// does not answer.
	AuthorizeURL *string `json:"authorize_url"`
	// The client_id parameter.
	ClientID string `json:"client_id"`
	// The scope parameter; empty for none.
	Scope string `json:"scope"`
	// Send a code_challenge with the method S256, and then code_verifier to POST auth/oauth.
	PKCE bool `json:"pkce"`
	// The prompt parameter, if the operator has set one.
	Prompt string `json:"prompt,omitempty"`
	// The response_mode parameter, if the operator has set it. With form_post, the browser
	// posts the answer to the redirect_uri.
	ResponseMode string `json:"response_mode,omitempty"`
	// If the provider's answer has an iss, it must equal this (RFC 9207); otherwise drop the
	// code.
	Issuer string `json:"issuer,omitempty"`
	// Whether an answer with a code must have an iss. Missing means false.
	IssRequired bool `json:"iss_required,omitempty"`
	// The path of an image for the provider's button, if the operator has set one and the site
	// has a login page.
	Icon string `json:"icon,omitempty"`
}

// ClientSessionLife is how long authorized sessions last, in seconds.
type ClientSessionLife struct {
	// Seconds without a request.
	Idle int `json:"idle"`
	// Seconds, in any case.
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
