package tenant

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
)

// A Policy holds the settings that a company can choose. Its blocks are decoded straight
// from the configuration. A zero field is not set: it inherits the value of the app or
// of DefaultPolicy. A field for which zero is a valid choice is therefore a pointer.
// Package policy checks the bounds.
//
// To add an option, add:
//   - the field with its docstring (a pointer if 0 or false is a value), and its default in
//     DefaultPolicy
//   - for a duration, number or rate in a block, a row of Options in
//     caddymodule/policy/options.go
//   - for any other, caddymodule/policy/caddyfile.go, check.go beside it, and rows in
//     caddymodule/app/policy_test.go and caddymodule/integration/mistakes_global_test.go
//   - outside of a block, the field, and a line of Apply in caddymodule/policy/policy.go
type Policy struct {
	Session      Sessions
	OTP          OTP
	Password     Passwords
	SecondFactor SecondFactor
	Locale       string   // of messages to accounts without one, as message.Locale spells it; empty for none
	PhoneRegion  string   // of phones without + and 00; empty for none
	Notices      []string // those that are sent, as message.NoticeName writes them; nil: all
	MailColor    string   // of the company in mails, like #336699; empty for the built-in one
	Support      string   // where users get help, as messages say; empty if unknown
	SMSOrigin    string   // the host on whose pages phones fill in a code; empty for any
	Recovery     Recovery
	Limits       Limits
	Devices      Devices
	IssuedTokens IssuedTokens
	Hardened     bool
}

// Sessions sets how long sessions live.
type Sessions struct {
	// How long the token of an intermediate step is valid. Nothing extends it. At
	// most 15m. Default: 10m.
	Temporary Duration `json:"temporary,omitempty"`

	// An authorized session expires after this long without a request. At most
	// 30d. Default: 1h.
	Idle Duration `json:"idle,omitempty"`

	// An authorized session expires after this long, even if it is used. At most
	// 30d. Default: 24h.
	Lifetime Duration `json:"lifetime,omitempty"`

	// How often an open stream (WebSocket, SSE, a long download) checks its session.
	// A stream is cut within this time after its session ends. A check seldom asks the
	// store. From 100ms to 1h. Default: 10s.
	StreamRecheck Duration `json:"stream_recheck,omitempty"`
}

// OTP sets the one-time codes.
type OTP struct {
	// The number of digits of a code, 6 to 10. Default: 6.
	Length int `json:"length,omitempty"`

	// How long a code is valid. At most 10m. Default: 5m.
	TTL Duration `json:"ttl,omitempty"`

	// How many times a code can be renewed in one session, 0 to 100. Default: 5.
	Renewals *int `json:"renewals,omitempty"`

	// Phones that always get the same code and no SMS, for tests and for app store
	// reviewers. Anyone who knows the code can log in without the phone, so
	// mnemogate logs a warning at each start. Default: none.
	Fixed []FixedCode `json:"fixed,omitempty"`
}

// FixedCode is a fixed one-time code for some phones.
type FixedCode struct {
	// The code. It must have as many digits as other codes.
	Code string `json:"code"`

	// The phones, as international numbers. At least one.
	Phones []string `json:"phones"`
}

// Passwords sets the rules for passwords and their hashing.
type Passwords struct {
	// The minimum length of a new password in characters, 8 to 128. Default: 8.
	MinLength int `json:"min_length,omitempty"`

	// A regular expression in RE2 syntax that new passwords must match. It is not
	// anchored, and clients can see it. mnemogate logs a warning at each start if
	// JavaScript can't read it or reads it differently. Default: none.
	Regex string `json:"regex,omitempty"`

	// A description of the regular expression for users. Clients get it after the
	// other rules. A company with its own `regex` does not inherit the app's
	// description. Default: the expression itself.
	RegexDescription string `json:"regex_description,omitempty"`

	// A file of passwords that are not allowed, one per line, in addition to the
	// built-in list of common passwords. Default: the built-in list only.
	Blocklist string `json:"blocklist,omitempty"`

	// The cost of hashing a password. A weaker stored hash is replaced when its
	// user next logs in. At least OWASP's minimum. Default: 19456 KiB, 2
	// iterations, parallelism 1.
	Argon2id password.Argon2id `json:"argon2id,omitzero"`

	// Whether accounts without a password must set one when they log in.
	// Default: false.
	Required *bool `json:"required,omitempty"`
}

// SecondFactor says for which accounts a code follows the password.
type SecondFactor string

// The values of SecondFactor.
const (
	SecondFactorPerAccount SecondFactor = "per_account" // for those whose SecondFactor is on
	SecondFactorRequired   SecondFactor = "required"    // for all
	SecondFactorOff        SecondFactor = "off"         // for none
)

// Recovery sets how users recover lost access.
type Recovery struct {
	// The allowed methods, the default first: `PHONE` (needs `sms`), `MAIL` (needs
	// `mail` and `link`), `QUESTION`. An empty list allows none. Default: PHONE if
	// `sms` is set, then MAIL if `mail` and `link` are set.
	Methods []Method `json:"methods,omitzero"`

	// The URL of the mailed link: https (http only for this machine), with
	// `{token}` in place of the token. Put the token into the fragment, as in
	// `https://app.example.com/recover#{token}`, so that it appears in no server's
	// log. Default: none, which disables recovery by mail.
	Link string `json:"link,omitempty"`

	// How long a mailed link is valid. At most 24h. Default: 30m.
	LinkTTL Duration `json:"link_ttl,omitempty"`

	// How long a welcome link is valid. New users may not read the mail at once. At
	// most 30d. Default: 7d.
	WelcomeTTL Duration `json:"welcome_ttl,omitempty"`
}

// A Method is a method of recovery, as the protocol spells it.
type Method string

// The methods of recovery.
const (
	ByPhone    Method = "PHONE"    // a code by SMS
	ByMail     Method = "MAIL"     // a mailed link
	ByQuestion Method = "QUESTION" // the control question
)

// Limits bounds attempts to guess secrets, and messages sent. A rate such as `5/10m` is
// a number of events in a window that the first event opens. You can set the rates of logins,
// SMS and mails to `unlimited`; mnemogate then logs a warning at each start.
type Limits struct {
	// After this many wrong passwords in a row, the next attempt needs a captcha.
	// 0 requires one for each attempt. At most 100. Default: 3.
	CaptchaAfter *int `json:"captcha_after,omitempty"`

	// This many wrong passwords in a row lock the account for `lock_for`. So does
	// each further one. 1 to 100. Default: 10.
	LockAfter int `json:"lock_after,omitempty"`

	// How long such a lock lasts. Default: 15m.
	LockFor Duration `json:"lock_for,omitempty"`

	// This many wrong passwords in a row disable the password until the user
	// recovers the account or an operator unlocks it. 1 to 100. Default: 100.
	DisableAfter int `json:"disable_after,omitempty"`

	// Wrong attempts from one address. An IPv6 address counts as its /64; a /48 has
	// ten times the limit. Default: `30/5m`.
	FailuresPerAddress Rate `json:"failures_per_address,omitzero"`

	// Logins and recoveries from one address (of IPv6 as above): compared passwords,
	// wrong captchas, passkeys and codes for OAuth providers, right or wrong, and
	// recoveries. An attempt over the limit costs no hash and no call to a provider, and
	// stores nothing. Raise it if many users share an address. Can be `unlimited`.
	// Default: `60/1m`.
	LoginsPerAddress Rate `json:"logins_per_address,omitzero"`

	// Wrong one-time and backup codes per account, at most 100. Default: `10/24h`.
	WrongCodes Rate `json:"wrong_codes,omitzero"`

	// Wrong answers to the control question per account, at most 100. Default:
	// `3/24h`.
	WrongAnswers Rate `json:"wrong_answers,omitzero"`

	// SMS per account, or `unlimited`. Default: `5/10m`.
	SMSPerAccount Rate `json:"sms_per_account,omitzero"`

	// SMS to one phone, or `unlimited`. Default: `10/24h`.
	SMSPerPhone Rate `json:"sms_per_phone,omitzero"`

	// SMS that one address (of IPv6 as above) causes, or `unlimited`. Default:
	// `30/1h`.
	SMSPerAddress Rate `json:"sms_per_address,omitzero"`

	// SMS of the whole company, or `unlimited`. Default: `unlimited`.
	SMSPerCompany Rate `json:"sms_per_company,omitzero"`

	// The prefixes of the phones that can get SMS, such as `+370`: calling codes, or
	// longer prefixes for a part of a code (`+1876`). Steps that need a code fail
	// with `auth.restricted` for other phones. Use `all` in a company to lift a
	// restriction of its app. Default: all.
	SMSCountries []string `json:"sms_countries,omitempty"`

	// SMS to one country, or `unlimited`. A country is an entry of `sms_countries`
	// or, if that is not set, a calling code. Default: `unlimited`.
	SMSPerCountry Rate `json:"sms_per_country,omitzero"`

	// Mails of each kind (with a recovery link, a welcome link or a code) per account, or
	// `unlimited`. Default: `3/1h`.
	MailsPerAccount Rate `json:"mails_per_account,omitzero"`

	// Authorized sessions that an account can have at once. One more revokes the
	// oldest. 1 to 10000. Default: 100.
	SessionsPerAccount int `json:"sessions_per_account,omitempty"`
}

// Devices sets how long devices are remembered.
type Devices struct {
	// How long a device is remembered, at most 366 days. Without it, no devices are
	// remembered. Not allowed with `hardened`.
	For Duration `json:"for,omitempty"`

	// Don't ask for a second factor on a device until `for` has passed since one was
	// given there. Default: false.
	SkipSecondFactor bool `json:"skip_second_factor,omitempty"`
}

// IssuedTokens sets whether tokens are issued for machines, scripts and support, and for how
// long. They are no logins.
type IssuedTokens struct {
	// How long a token is valid, at most 366 days. Default: 90 days.
	Lifetime Duration `json:"lifetime,omitempty"`

	// How many tokens an account can have at once. 1 to 1000. Default: 20.
	PerAccount int `json:"per_account,omitempty"`

	// How long a token is valid with which somebody acts as the account's user. At most
	// 24h. Default: 1h.
	Acting Duration `json:"acting,omitempty"`

	// Whether users issue tokens for their own accounts, with `self_service`. Default:
	// false.
	ByUsers bool `json:"by_users,omitempty"`
}

// DefaultIssuedTokens has the defaults of a block that is there.
var DefaultIssuedTokens = IssuedTokens{Lifetime: Duration(90 * 24 * time.Hour), PerAccount: 20, Acting: Duration(time.Hour)}

// DefaultPolicy returns the defaults. They follow NIST SP 800-63B-4 (2.2.3, 3.1.2,
// 3.1.3, 3.2.2, 4.2.1.2; not 3.1.1.2, see SoleMinLength), OWASP ASVS 5.0 (6.2.1, 6.2.4, 6.4.2, 6.5.4, 6.5.5) and OWASP's
// Password Storage Cheat Sheet. Recovery.Methods and Recovery.Link have no default here
// because they depend on the configured senders.
func DefaultPolicy() Policy {
	return Policy{
		Session: Sessions{
			Temporary:     Duration(10 * time.Minute),
			Idle:          Duration(time.Hour),
			Lifetime:      Duration(24 * time.Hour),
			StreamRecheck: Duration(10 * time.Second),
		},
		OTP:          OTP{Length: 6, TTL: Duration(5 * time.Minute), Renewals: new(5)},
		Password:     Passwords{MinLength: 8, Argon2id: password.DefaultArgon2id, Required: new(false)},
		SecondFactor: SecondFactorPerAccount,
		Recovery:     Recovery{LinkTTL: Duration(30 * time.Minute), WelcomeTTL: Duration(7 * 24 * time.Hour)},
		Limits: Limits{
			CaptchaAfter:       new(3),
			LockAfter:          10,
			LockFor:            Duration(15 * time.Minute),
			DisableAfter:       100,
			FailuresPerAddress: Rate{30, 5 * time.Minute},
			LoginsPerAddress:   Rate{60, time.Minute},
			WrongCodes:         Rate{10, 24 * time.Hour},
			WrongAnswers:       Rate{3, 24 * time.Hour},
			SMSPerAccount:      Rate{5, 10 * time.Minute},
			SMSPerPhone:        Rate{10, 24 * time.Hour},
			SMSPerAddress:      Rate{30, time.Hour},
			SMSPerCompany:      Unlimited,
			SMSPerCountry:      Unlimited,
			MailsPerAccount:    Rate{3, time.Hour},
			SessionsPerAccount: 100,
		},
	}
}
