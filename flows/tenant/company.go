// Package tenant describes a configured company: its API keys, disclaimers and policy
// (policy.go is the manual of its options), and the systems it calls (outbound.go). It
// also decides what depends on these alone, such as the rules for a new password or
// when an account is locked.
//
// Start with Company. DefaultPolicy has the defaults. Nothing here calls a store or
// the network.
package tenant

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"regexp"
	"slices"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Company is a tenant. It owns its API keys, accounts, policies, disclaimers and
// providers; another company cannot use them. A flows.Service does not change it.
type Company struct {
	Code        string
	Name        string              // what people call it; empty for its code
	APIKeys     [][sha256.Size]byte // SHA-256 of each active key
	NoAPIKey    bool                // api_key off: clients need no key
	Disclaimers []wire.Disclaimer
	OAuth       map[int]OAuth   // by provider_id
	SMS, Mail   message.Sender  // nil for none
	Passkeys    PasskeyVerifier // nil for none
	Captcha     Captcha         // nil for captcha off
	CaptchaType string          // as clients see it; empty for captcha off
	SiteKey     string          // of the Captcha's widget; empty if unknown
	Events      Events          // the receiver of account events
	Texts       *message.Texts
	Regex       *regexp.Regexp      // Password.Regex, compiled; nil for none
	Blocklist   *password.Blocklist // the built-in list and Password.Blocklist; nil for the built-in list only
	Breached    Breached            // passwords that are not allowed, in addition to the Blocklist
	// Migrate verifies the passwords of accounts with record.ExternalPassword; nil for
	// none. It cannot be combined with Hardened, because its response time and its
	// outages would reveal these accounts.
	Migrate PasswordVerifier
	Policy
}

// PlaceOf returns the position of a key among the company's keys, starting at 1, or 0
// if it is not one of them. It compares with every key in constant time. A nil company
// has no keys.
func (c *Company) PlaceOf(key string) int {
	hashes := [][sha256.Size]byte{{}} // the hash of no key
	if c != nil {
		hashes = c.APIKeys
	}
	sent := sha256.Sum256([]byte(key))
	place := 0
	for i := range hashes {
		place = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sent[:], hashes[i][:]), i+1, place)
	}
	if c == nil {
		return 0
	}
	return place
}

// OAuth is a configured OAuth provider of a company.
type OAuth struct {
	Provider          OAuthProvider
	Authorizer        OAuthAuthorizer // where logins start; nil if unknown
	Name              string          // for users
	Icon              string          // file of an image for its button; empty for none
	ClientID          string
	Scopes            []string
	Prompt            string // that clients request; empty for none
	ResponseMode      string // that clients request: FormPost, or empty for the query
	RedirectURIs      []string
	RequirePKCE       bool
	LinkVerifiedEmail bool
}

// FormPost is the OAuth.ResponseMode of a provider that lets the browser post its answer
// (OAuth 2.0 Form Post Response Mode).
const FormPost = "form_post"

// DisplayName returns what people call the company.
func (c *Company) DisplayName() string { return cmp.Or(c.Name, c.Code) }

// Sender returns what sends messages to a phone or address; nil for none.
func (c *Company) Sender(to string) message.Sender {
	if message.ByMail(to) {
		return c.Mail
	}
	return c.SMS
}

// Sends reports whether the company sends a type of notice.
func (c *Company) Sends(notice string) bool {
	return c.Notices == nil || slices.Contains(c.Notices, message.NoticeName(notice))
}

// ReadPhone reads the phone of an account or the configuration and returns it as E.164. Without
// + and 00, it is a number of PhoneRegion. ReadPhone returns "" if s is not a phone, or could
// be two.
func (c *Company) ReadPhone(s string) string {
	if typed.IsAmbiguous(s, c.PhoneRegion) {
		return ""
	}
	return typed.Phone(s, c.PhoneRegion)
}

// ReadLoginID returns the normalised form of a login id. Without + and 00, a number of
// PhoneRegion is read as that phone, although it may be a login name, too. Then named is
// that login name.
func (c *Company) ReadLoginID(s string) (read, named string) {
	return typed.LoginID(s, c.PhoneRegion), typed.LoginName(s)
}

// FixedCode returns the fixed code of a phone in E.164, if it has one.
func (c *Company) FixedCode(phone string) (code string, ok bool) {
	is := func(other string) bool { return c.ReadPhone(other) == phone }
	for _, fixed := range c.OTP.Fixed {
		if slices.ContainsFunc(fixed.Phones, is) {
			return typed.OTP(fixed.Code, c.OTP.Length)
		}
	}
	return "", false
}
