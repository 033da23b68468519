// Package tenant is a company as it is configured: its API keys, disclaimers and
// policy, whom it asks and tells (outbound.go), and what follows from these alone,
// such as the rules for a new password or when an account is locked.
//
// Start with Company. DefaultPolicy says what holds where nothing is configured.
// Nothing here asks a store or goes on the network.
package tenant

import (
	"crypto/sha256"
	"regexp"
	"time"

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

// A Policy is what a company may decide. DefaultPolicy has the defaults and
// says where they come from.
type Policy struct {
	Temporary time.Duration // life of the token of a step, at most
	Idle      time.Duration // an authorized session ends after this long without a request
	Lifetime  time.Duration // and after this long whatever happens

	OTPLength   int               // digits
	OTPTTL      time.Duration     //
	OTPRenewals int               // per session
	OTPFixed    map[string]string // phone to code: no SMS is sent

	Password     PasswordPolicy
	SecondFactor SecondFactor

	Methods []Method      // of recovery, the default first
	Link    string        // of recovery by mail, with {token}
	LinkTTL time.Duration //

	Locale string // of messages to accounts that have none, as message.ParseLocale spells it; empty for none

	Limits   Limits
	Hardened bool
}

// PasswordPolicy is what a new password must be and how it is kept.
type PasswordPolicy struct {
	MinLength        int            // characters after NFKC
	Regex            *regexp.Regexp // nil for none
	RegexSource      string         // as the client is told
	RegexDescription string         // of the Regex alone, for users; empty for none
	Blocklist        *password.Blocklist
	Argon2id         password.Argon2id
	Required         bool // accounts without a password must set one
	// Migrate is asked about the passwords of accounts with record.AskedElsewhere; nil
	// if there is nobody to ask. Not with Hardened: the time that it takes, and
	// its outages, would tell of such accounts.
	Migrate PasswordVerifier
}

// SecondFactor says whose password is followed by a code.
type SecondFactor string

const (
	SecondFactorPerAccount SecondFactor = "per_account"
	SecondFactorRequired   SecondFactor = "required"
	SecondFactorOff        SecondFactor = "off"
)

// A Method of recovery, as the interface spells it.
type Method string

const (
	ByPhone    Method = "PHONE"
	ByMail     Method = "MAIL"
	ByQuestion Method = "QUESTION"
)

// Limits bound what can be guessed and what can be sent. LoginsPerAddress, the rates of
// SMS and that of mails may be Unlimited.
type Limits struct {
	CaptchaAfter int           // wrong passwords in a row; 0: each password needs a captcha
	LockAfter    int           // wrong passwords in a row
	LockFor      time.Duration //
	DisableAfter int           // wrong passwords in a row, at most 100

	FailuresPerAddress Rate
	LoginsPerAddress   Rate // password checks and OAuth codes, right or wrong
	WrongCodes         Rate // per account
	WrongAnswers       Rate // per account
	SMSPerAccount      Rate
	SMSPerPhone        Rate
	SMSPerAddress      Rate
	SMSPerCompany      Rate
	SMSPerCountry      Rate
	SMSCountries       []string // what phones begin with that are sent SMS, as +370; empty: all
	MailsPerAccount    Rate

	SessionsPerAccount int // authorized at once, at most record.MaxSessions
}

// A Rate is a number of events in a window that the first of them opens.
type Rate struct {
	N   int
	Per time.Duration
}

// Unlimited is the Rate that refuses nothing and is not counted.
var Unlimited Rate

// DefaultPolicy returns the defaults: NIST SP 800-63B-4 (2.2.3, 3.1.2, 3.1.3,
// 3.2.2, 4.2.1.2), OWASP ASVS 5.0 (6.2.1, 6.2.4, 6.4.2, 6.5.4, 6.5.5) and
// OWASP's Password Storage Cheat Sheet. Methods and Link have none here: they
// depend on the senders.
func DefaultPolicy() Policy {
	return Policy{
		Temporary:    10 * time.Minute,
		Idle:         time.Hour,
		Lifetime:     24 * time.Hour,
		OTPLength:    6,
		OTPTTL:       5 * time.Minute,
		OTPRenewals:  5,
		Password:     PasswordPolicy{MinLength: 8, Blocklist: password.Common(), Argon2id: password.DefaultArgon2id},
		SecondFactor: SecondFactorPerAccount,
		LinkTTL:      30 * time.Minute,
		Limits: Limits{
			CaptchaAfter:       3,
			LockAfter:          10,
			LockFor:            15 * time.Minute,
			DisableAfter:       100,
			FailuresPerAddress: Rate{30, 5 * time.Minute},
			LoginsPerAddress:   Rate{60, time.Minute},
			WrongCodes:         Rate{10, 24 * time.Hour},
			WrongAnswers:       Rate{3, 24 * time.Hour},
			SMSPerAccount:      Rate{5, 10 * time.Minute},
			SMSPerPhone:        Rate{10, 24 * time.Hour},
			SMSPerAddress:      Rate{30, time.Hour},
			MailsPerAccount:    Rate{3, time.Hour},
			SessionsPerAccount: 100,
		},
	}
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
