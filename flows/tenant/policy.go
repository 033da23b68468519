package tenant

import (
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A Policy is what a company may decide. Its blocks are read from the configuration as
// they are: a field that is zero there is not set and keeps what it inherits, from the
// app or from DefaultPolicy. So a field for which zero is a choice is a pointer.
// Package policy has the bounds.
type Policy struct {
	Session      Sessions
	OTP          OTP
	Password     Passwords
	SecondFactor SecondFactor
	Locale       string // of messages to accounts that have none, as message.Locale spells it; empty for none
	Recovery     Recovery
	Limits       Limits
	Hardened     bool
}

// Sessions is how long sessions live.
type Sessions struct {
	// The life of the token of a step that is not the last. Nothing extends
	// it. At most 15m. Default: 10m.
	Temporary Duration `json:"temporary,omitempty"`

	// An authorized session expires after this long without a request. At most
	// 30d. Default: 1h.
	Idle Duration `json:"idle,omitempty"`

	// An authorized session expires after this long whatever happens. At most
	// 30d. Default: 24h.
	Lifetime Duration `json:"lifetime,omitempty"`

	// How soon an open stream (WebSocket, SSE, a long download) is cut once its
	// session has ended; each check costs a read of the store. From 100ms to
	// 1h. Default: 10s.
	StreamRecheck Duration `json:"stream_recheck,omitempty"`
}

// OTP is about one-time codes.
type OTP struct {
	// The digits of a code, 6 to 10. Default: 6.
	Length int `json:"length,omitempty"`

	// How long a code is valid. At most 10m. Default: 5m.
	TTL Duration `json:"ttl,omitempty"`

	// How often a code can be renewed in one session, 0 to 100. Default: 5.
	Renewals *int `json:"renewals,omitempty"`

	// Phones that always get the same code and no SMS: for the reviewers of app
	// stores and for tests. Anyone who knows the code needs no phone; a warning at
	// each start says so. Default: none.
	Fixed []FixedCode `json:"fixed,omitempty"`
}

// FixedCode is the one-time code of some phones.
type FixedCode struct {
	// The code: as many digits as codes have.
	Code string `json:"code"`

	// The phones, as international numbers; at least one.
	Phones []string `json:"phones"`
}

// FixedCode returns the code that a normalised phone always has.
func (o *OTP) FixedCode(phone string) (code string, ok bool) {
	is := func(other string) bool { return record.NormalizePhone(other) == phone }
	for _, fixed := range o.Fixed {
		if slices.ContainsFunc(fixed.Phones, is) {
			return fixed.Code, true
		}
	}
	return "", false
}

// Passwords is about passwords.
type Passwords struct {
	// The fewest characters that a new password may have, 8 to 128. Default: 8.
	MinLength int `json:"min_length,omitempty"`

	// A regular expression, in RE2's syntax, that new passwords must match; it
	// is unanchored, and clients are shown it. A warning at each start says if
	// JavaScript can't read it, or reads it otherwise. Default: none.
	Regex string `json:"regex,omitempty"`

	// What the regular expression asks for, for users to read: clients are told
	// it after the other rules. A company's own `regex` comes without the app's
	// description. Default: the expression itself.
	RegexDescription string `json:"regex_description,omitempty"`

	// A file of passwords that nobody may set, one a line, besides the built-in
	// list of the commonest. Default: the built-in list alone.
	Blocklist string `json:"blocklist,omitempty"`

	// What hashing a password costs. Stored hashes that are weaker are replaced
	// at their account's next login. At least OWASP's minimum. Default: 19456
	// KiB, 2 iterations, parallelism 1.
	Argon2id password.Argon2id `json:"argon2id,omitzero"`

	// Whether accounts without a password must set one when they log in.
	// Default: false.
	Required *bool `json:"required,omitempty"`
}

// SecondFactor says whose password is followed by a code.
type SecondFactor string

const (
	SecondFactorPerAccount SecondFactor = "per_account"
	SecondFactorRequired   SecondFactor = "required"
	SecondFactorOff        SecondFactor = "off"
)

// Recovery is about users who lost access.
type Recovery struct {
	// The methods that are allowed, the default first: `PHONE` (needs `sms`),
	// `MAIL` (needs `mail` and `link`), `QUESTION`. An empty list allows none.
	// Default: PHONE where there is `sms`, then MAIL where there are `mail` and
	// `link`.
	Methods []Method `json:"methods,omitzero"`

	// Where the mailed link leads: an https URL (http for this machine only)
	// with `{token}` where the token belongs. Put it into the fragment, as in
	// `https://app.example.com/recover#{token}`: no server's log sees it there.
	// Default: none, and then nobody recovers by mail.
	Link string `json:"link,omitempty"`

	// How long a mailed link is valid. At most 24h. Default: 30m.
	LinkTTL Duration `json:"link_ttl,omitempty"`
}

// A Method of recovery, as the interface spells it.
type Method string

const (
	ByPhone    Method = "PHONE"
	ByMail     Method = "MAIL"
	ByQuestion Method = "QUESTION"
)

// Limits bound what can be guessed and what can be sent. A rate such as
// `5/10m` is a number of events within a time that the first of them opens. Those of
// logins, SMS and mails may be `unlimited`, of which a warning at each start tells.
type Limits struct {
	// After this many wrong passwords in a row the next attempt needs a
	// captcha; with 0, each attempt does. At most 100. Default: 3.
	CaptchaAfter *int `json:"captcha_after,omitempty"`

	// From this many wrong passwords in a row on, each locks the account for
	// `lock_for`. 1 to 100. Default: 10.
	LockAfter int `json:"lock_after,omitempty"`

	// How long such a lock holds. Default: 15m.
	LockFor Duration `json:"lock_for,omitempty"`

	// After this many wrong passwords in a row the password no longer works
	// until a recovery or an operator helps. 1 to 100. Default: 100.
	DisableAfter int `json:"disable_after,omitempty"`

	// What one address (of IPv6: its /64, and its /48 ten times as much) may get
	// wrong. Default: `30/5m`.
	FailuresPerAddress Rate `json:"failures_per_address,omitzero"`

	// The passwords of one address (of IPv6 as above) that are compared, and its
	// codes that go to OAuth providers, right or wrong. One that is over it costs
	// no hash and asks no provider. Raise it where many users share an address.
	// `unlimited` is possible. Default: `60/1m`.
	LoginsPerAddress Rate `json:"logins_per_address,omitzero"`

	// The wrong one-time and backup codes of an account, at most 100. Default:
	// `10/24h`.
	WrongCodes Rate `json:"wrong_codes,omitzero"`

	// The wrong answers to an account's control question, at most 100. Default:
	// `3/24h`.
	WrongAnswers Rate `json:"wrong_answers,omitzero"`

	// The SMS that an account causes, or `unlimited`. Default: `5/10m`.
	SMSPerAccount Rate `json:"sms_per_account,omitzero"`

	// The SMS to one phone, or `unlimited`. Default: `10/24h`.
	SMSPerPhone Rate `json:"sms_per_phone,omitzero"`

	// The SMS that one address (of IPv6 as above) causes, or `unlimited`. Default:
	// `30/1h`.
	SMSPerAddress Rate `json:"sms_per_address,omitzero"`

	// The SMS of a company in all, or `unlimited`. Default: `unlimited`.
	SMSPerCompany Rate `json:"sms_per_company,omitzero"`

	// The beginnings of the phones that are sent SMS, such as `+370`: calling codes, or
	// longer where they have parts (`+1876`). Other phones get none: what needs a code
	// is `auth.restricted` for them. `all` is for a company whose app names some.
	// Default: all.
	SMSCountries []string `json:"sms_countries,omitempty"`

	// The SMS to one country, or `unlimited`. A country is what `sms_countries` names,
	// else a calling code. Default: `unlimited`.
	SMSPerCountry Rate `json:"sms_per_country,omitzero"`

	// The recovery mails to an account, or `unlimited`. Default: `3/1h`.
	MailsPerAccount Rate `json:"mails_per_account,omitzero"`

	// The authorized sessions that an account may have at once; one more revokes
	// the oldest. 1 to 10000. Default: 100.
	SessionsPerAccount int `json:"sessions_per_account,omitempty"`
}

// DefaultPolicy returns the defaults: NIST SP 800-63B-4 (2.2.3, 3.1.2, 3.1.3,
// 3.2.2, 4.2.1.2), OWASP ASVS 5.0 (6.2.1, 6.2.4, 6.4.2, 6.5.4, 6.5.5) and
// OWASP's Password Storage Cheat Sheet. The methods and the link of recovery have
// none here: they depend on the senders.
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
		Recovery:     Recovery{LinkTTL: Duration(30 * time.Minute)},
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
