// Package tenant is a company as it is configured: its API keys, disclaimers and
// policy (policy.go is the manual of its options), whom it asks and tells
// (outbound.go), and what follows from these alone, such as the rules for a new
// password or when an account is locked.
//
// Start with Company. DefaultPolicy says what holds where nothing is configured.
// Nothing here asks a store or goes on the network.
package tenant

import (
	"crypto/sha256"
	"regexp"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Company is a tenant: it owns its API keys, accounts, policies, disclaimers
// and providers, and nothing of one is of use in another. A flows.Service does not
// change it.
type Company struct {
	Code        string
	APIKeys     [][sha256.Size]byte // SHA-256 of each active key
	NoAPIKey    bool                // api_key off: no key is asked for
	Disclaimers []wire.Disclaimer
	OAuth       map[int]OAuth  // by provider_id
	SMS, Mail   message.Sender // nil for none
	Captcha     Captcha        // nil for captcha off
	CaptchaType string         // as clients are told of it; empty for captcha off
	SiteKey     string         // of the Captcha's widget; empty if it is not known
	Events      Events         // who is told of what happens to accounts
	Texts       *message.Texts
	Regex       *regexp.Regexp      // Password.Regex, compiled; nil for none
	Blocklist   *password.Blocklist // the built-in list and Password.Blocklist; nil for the first alone
	// Migrate is asked about the passwords of accounts with record.AskedElsewhere; nil
	// if there is nobody to ask. Not with Hardened: the time that it takes, and
	// its outages, would tell of such accounts.
	Migrate PasswordVerifier
	Policy
}

// OAuth is a company's provider.
type OAuth struct {
	Provider          OAuthProvider
	Authorizer        OAuthAuthorizer // where logins begin; nil if nobody knows
	Name              string          // for users
	ClientID          string
	Scopes            []string
	RedirectURIs      []string
	RequirePKCE       bool
	LinkVerifiedEmail bool
}

// NeedsSecondFactor reports whether a code follows the account's password.
func (c *Company) NeedsSecondFactor(a record.Account) bool {
	switch c.SecondFactor {
	case SecondFactorRequired:
		return true
	case SecondFactorOff:
		return false
	default:
		return a.SecondFactor
	}
}
