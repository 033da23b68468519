// Package policy is what a company may decide, or its app for all: how long
// sessions live, what passwords must be, how much may be guessed and sent. Start
// at Policy, whose fields are the options with their defaults; Check has their
// bounds, caddyfile.go their syntax.
package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Policy is what a company may decide. What the app sets is every company's
// default; a company overrides it option by option. What neither sets has the
// default that its comment names.
//
// Most bounds come from NIST SP 800-63B-4 and OWASP ASVS 5.0. An option beyond
// them is refused unless it is listed in `insecure`.
type Policy struct {
	// How long sessions live.
	Session Sessions `json:"session,omitzero"`

	// The one-time codes sent by SMS.
	OTP OTP `json:"otp,omitzero"`

	// What a new password must be, and how passwords are kept.
	Password Passwords `json:"password,omitzero"`

	// Whose password is followed by a one-time code: `per_account` (those whose
	// second_factor is on), `required` (everyone; needs `sms`), or `off`.
	// Default: `per_account`.
	SecondFactor tenant.SecondFactor `json:"second_factor,omitempty"`

	// What verifies captchas, or `off` for none. There is no default: a company
	// without a word on it, its own or the app's, is refused.
	CaptchaRaw json.RawMessage `json:"captcha,omitempty" caddy:"namespace=mnemogate.captcha inline_key=module"`

	// What sends SMS. Default: none, and then nobody logs in or recovers by
	// phone.
	SMSRaw json.RawMessage `json:"sms,omitempty" caddy:"namespace=mnemogate.sms inline_key=module"`

	// What sends mails. Default: none, and then nobody recovers by mail.
	MailRaw json.RawMessage `json:"mail,omitempty" caddy:"namespace=mnemogate.mail inline_key=module"`

	// What is told of changes to accounts, so that a backend need not ask, or
	// `off` for nothing. Default: nothing.
	EventsRaw json.RawMessage `json:"events,omitempty" caddy:"namespace=mnemogate.events inline_key=module"`

	// A directory with templates that replace the built-in texts of SMS and
	// mails. Directories in it that are named by language tags, such as `lt` or
	// `pt-BR`, hold the same for accounts of that `locale`. Default: the built-in
	// texts.
	Texts string `json:"texts,omitempty"`

	// The language tag of messages to accounts that have no `locale` of their own, or
	// one that `texts` has no directory of. Default: none, and such accounts are sent
	// what `texts` has for all.
	Locale string `json:"locale,omitempty"`

	// How users who lost access get it back.
	Recovery Recovery `json:"recovery,omitzero"`

	// How much can be guessed and sent.
	Limits Limits `json:"limits,omitzero"`

	// Tell strangers less than the interface document says: a login id that is
	// unknown is answered like a known one, emails are masked, QUESTION and
	// recovery by the phone of the second factor are refused, and passwords
	// without a second factor need 15 characters. Default: false.
	Hardened *bool `json:"hardened,omitempty"`

	// The options set here that may exceed what a standard allows, as in
	// `otp.length` or `limits.wrong_codes`. A warning at each start names them.
	// Default: none.
	Insecure []string `json:"insecure,omitempty"`

	captchaSet bool // captcha off leaves captcha nil
	captcha    tenant.Captcha
	captchaIs  string // its module's name, empty for off
	siteKey    string
	sms, mail  message.Sender
	events     *tenant.Events
	migrate    tenant.PasswordVerifier
	texts      *message.Texts
	locale     string
	regex      *regexp.Regexp
	blocklist  *password.Blocklist
}

// Sessions is how long sessions live.
type Sessions struct {
	// The life of the token of a step that is not the last. Nothing extends
	// it. At most 15m. Default: 10m.
	Temporary caddy.Duration `json:"temporary,omitempty"`

	// An authorized session ends after this long without a request. At most
	// 30d. Default: 1h.
	Idle caddy.Duration `json:"idle,omitempty"`

	// An authorized session ends after this long whatever happens. At most
	// 30d. Default: 24h.
	Lifetime caddy.Duration `json:"lifetime,omitempty"`

	// How often an open stream (WebSocket, SSE, a long download) is cut if its
	// session has ended; each time costs a read of the store. From 100ms to
	// 1h. Default: 10s.
	StreamRecheck caddy.Duration `json:"stream_recheck,omitempty"`
}

// OTP is about one-time codes.
type OTP struct {
	// The digits of a code, 6 to 10. Default: 6.
	Length int `json:"length,omitempty"`

	// How long a code is valid. At most 10m. Default: 5m.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// How often a code can be renewed in one session, 0 to 100. Default: 5.
	Renewals *int `json:"renewals,omitempty"`

	// Phones that always get the same code and no SMS: for the reviewers of app
	// stores and for tests. Whoever knows the code needs no phone; a warning at
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

// Passwords is about passwords.
type Passwords struct {
	// The fewest characters that a new password may have, 8 to 128. Default: 8.
	MinLength int `json:"min_length,omitempty"`

	// A regular expression, in RE2's syntax, that new passwords must match; it
	// is unanchored, and clients are shown it. A warning at each start says if
	// JavaScript can't read it, or reads it otherwise. Default: none.
	Regex string `json:"regex,omitempty"`

	// What the regular expression asks for, for users to read: clients are told
	// it behind the other rules. A company's own `regex` comes without the app's
	// description. Default: the expression itself.
	RegexDescription string `json:"regex_description,omitempty"`

	// A file of passwords that nobody may set, one a line, besides the built-in
	// list of the commonest. Default: the built-in list alone.
	Blocklist string `json:"blocklist,omitempty"`

	// What hashing a password costs. Stored hashes that are weaker are replaced
	// at their account's next login. At least OWASP's minimum. Default: 19456
	// KiB, 2 iterations, parallelism 1.
	Argon2id *Argon2id `json:"argon2id,omitempty"`

	// Whether accounts without a password must set one when they log in.
	// Default: false.
	Required *bool `json:"required,omitempty"`

	// What is asked about the passwords of accounts that were imported with the
	// password_hash `$webhook$`: the system that they came from. A right one is
	// kept as a hash, and not asked about again. Not with `hardened`, since the
	// time of the answer would tell of such accounts. Default: none.
	MigrateRaw json.RawMessage `json:"migrate,omitempty" caddy:"namespace=mnemogate.migrate inline_key=module"`
}

// Argon2id are the parameters of RFC 9106. All three are needed.
type Argon2id struct {
	// The memory that one hash takes, in KiB.
	MemoryKiB uint32 `json:"memory_kib"`

	// The passes over the memory.
	Iterations uint32 `json:"iterations"`

	// The lanes of the memory.
	Parallelism uint8 `json:"parallelism"`
}

// Recovery is about users who lost access.
type Recovery struct {
	// The methods that are allowed, the default first: `PHONE` (needs `sms`),
	// `MAIL` (needs `mail` and `link`), `QUESTION`. An empty list allows none.
	// Default: PHONE where there is `sms`, then MAIL where there are `mail` and
	// `link`.
	Methods []tenant.Method `json:"methods,omitzero"`

	// Where the mailed link leads: an https URL (http for this machine only)
	// with `{token}` where the token belongs. Put it into the fragment, as in
	// `https://app.example.com/recover#{token}`: no server's log sees it there.
	// Default: none, and then nobody recovers by mail.
	Link string `json:"link,omitempty"`

	// How long a mailed link is valid. At most 24h. Default: 30m.
	LinkTTL caddy.Duration `json:"link_ttl,omitempty"`
}

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
	LockFor caddy.Duration `json:"lock_for,omitempty"`

	// After this many wrong passwords in a row the password no longer works
	// until a recovery or an operator helps. 1 to 100. Default: 100.
	DisableAfter int `json:"disable_after,omitempty"`

	// What one address (of IPv6: its /64, and its /48 ten times as much) may get
	// wrong. Default: `30/5m`.
	FailuresPerAddress *Rate `json:"failures_per_address,omitempty"`

	// The passwords of one address (of IPv6 as above) that are compared, and its
	// codes that go to OAuth providers, right or wrong. One that is over it costs
	// no hash and asks no provider. Raise it where many users share an address.
	// `unlimited` is possible. Default: `60/1m`.
	LoginsPerAddress *Rate `json:"logins_per_address,omitempty"`

	// The wrong one-time and backup codes of an account, at most 100. Default:
	// `10/24h`.
	WrongCodes *Rate `json:"wrong_codes,omitempty"`

	// The wrong answers to an account's control question, at most 100. Default:
	// `3/24h`.
	WrongAnswers *Rate `json:"wrong_answers,omitempty"`

	// The SMS that an account causes, or `unlimited`. Default: `5/10m`.
	SMSPerAccount *Rate `json:"sms_per_account,omitempty"`

	// The SMS to one phone, or `unlimited`. Default: `10/24h`.
	SMSPerPhone *Rate `json:"sms_per_phone,omitempty"`

	// The SMS that one address (of IPv6 as above) causes, or `unlimited`. Default:
	// `30/1h`.
	SMSPerAddress *Rate `json:"sms_per_address,omitempty"`

	// The SMS of a company in all, or `unlimited`. Default: `unlimited`.
	SMSPerCompany *Rate `json:"sms_per_company,omitempty"`

	// What phones begin with that are sent SMS, such as `+370`: calling codes, or
	// longer where they have parts (`+1876`). Others get none: what needs a code is
	// `auth.restricted` for them. `all` is for a company whose app names some.
	// Default: all.
	SMSCountries []string `json:"sms_countries,omitempty"`

	// The SMS to one country, or `unlimited`. A country is what `sms_countries` names,
	// else a calling code. Default: `unlimited`.
	SMSPerCountry *Rate `json:"sms_per_country,omitempty"`

	// The recovery mails to an account, or `unlimited`. Default: `3/1h`.
	MailsPerAccount *Rate `json:"mails_per_account,omitempty"`

	// The authorized sessions that an account may have at once; one more ends
	// the oldest. 1 to 10000. Default: 100.
	SessionsPerAccount int `json:"sessions_per_account,omitempty"`
}

// Load loads what the policy names. The errors begin with the directive.
func (p *Policy) Load(ctx caddy.Context) error {
	if err := p.loadGuests(ctx); err != nil {
		return err
	}
	var err error
	if p.regex, err = p.Password.compile(); err != nil {
		return err
	}
	if p.Password.Blocklist != "" {
		if p.blocklist, err = readBlocklist(p.Password.Blocklist); err != nil {
			return fmt.Errorf("password blocklist: %w", err)
		}
	}
	if p.Locale != "" {
		tag, err := message.ParseLocale(p.Locale)
		if err != nil {
			return fmt.Errorf("locale: %w", err)
		}
		p.locale = tag.String()
	}
	if p.Texts != "" {
		if p.texts, err = message.LoadTexts(p.Texts); err != nil {
			return fmt.Errorf("texts: %w", err)
		}
	}
	return nil
}

// compile returns the regular expression, nil if there is none.
func (p *Passwords) compile() (*regexp.Regexp, error) {
	if p.Regex == "" {
		return nil, nil
	}
	compiled, err := regexp.Compile(p.Regex)
	if err != nil {
		return nil, fmt.Errorf("password regex: RE2 can't compile it, correct it: %w", err)
	}
	return compiled, nil
}

// NamesCaptcha reports whether the policy has a word on captchas, if only off.
func (p *Policy) NamesCaptcha() bool { return p.captchaSet || p.CaptchaRaw != nil }

func (p *Policy) loadGuests(ctx caddy.Context) (err error) {
	if p.SMSRaw != nil {
		if p.sms, err = guest.Load[message.Sender](ctx, p, "SMSRaw"); err != nil {
			return fmt.Errorf("sms: %w", err)
		}
	}
	if p.MailRaw != nil {
		if p.mail, err = guest.Load[message.Sender](ctx, p, "MailRaw"); err != nil {
			return fmt.Errorf("mail: %w", err)
		}
	}
	if p.Password.MigrateRaw != nil {
		if p.migrate, err = guest.Load[tenant.PasswordVerifier](ctx, &p.Password, "MigrateRaw"); err != nil {
			return fmt.Errorf("password migrate: %w", err)
		}
	}
	if p.EventsRaw != nil {
		receiver, err := guest.Load[guest.EventsModule](ctx, p, "EventsRaw")
		if err != nil {
			return fmt.Errorf("events: %w", err)
		}
		p.events = new(receiver.Settings())
		if _, off := receiver.(guest.Absent); !off {
			p.events.Receiver = receiver
		}
	}
	if p.CaptchaRaw != nil {
		p.captchaSet = true
		if p.captcha, err = guest.Load[tenant.Captcha](ctx, p, "CaptchaRaw"); err != nil {
			return fmt.Errorf("captcha: %w", err)
		}
		if module, ok := p.captcha.(caddy.Module); ok {
			p.captchaIs = module.CaddyModule().ID.Name()
		}
		if widget, ok := p.captcha.(guest.Widget); ok {
			p.siteKey = widget.WidgetKey()
		}
		if _, off := p.captcha.(guest.Absent); off {
			p.captcha, p.captchaIs = nil, ""
		}
	}
	return nil
}

func readBlocklist(name string) (*password.Blocklist, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return password.Common().With(file)
}

// Apply overrides in c what the policy sets.
func (p *Policy) Apply(c *tenant.Company) {
	override(&c.SMS, p.sms)
	override(&c.Mail, p.mail)
	override(&c.Texts, p.texts)
	override(&c.Locale, p.locale)
	overrideBy(&c.Events, p.events)
	if p.captchaSet {
		c.Captcha, c.CaptchaType, c.SiteKey = p.captcha, p.captchaIs, p.siteKey
	}
	override(&c.Temporary, time.Duration(p.Session.Temporary))
	override(&c.Idle, time.Duration(p.Session.Idle))
	override(&c.Lifetime, time.Duration(p.Session.Lifetime))
	override(&c.OTPLength, p.OTP.Length)
	override(&c.OTPTTL, time.Duration(p.OTP.TTL))
	overrideBy(&c.OTPRenewals, p.OTP.Renewals)
	if p.OTP.Fixed != nil {
		c.OTPFixed = p.OTP.fixedCodes()
	}
	p.Password.apply(&c.Password, p.regex)
	override(&c.Password.Blocklist, p.blocklist)
	override(&c.Password.Migrate, p.migrate)
	override(&c.SecondFactor, p.SecondFactor)
	if p.Recovery.Methods != nil {
		c.Methods = p.Recovery.Methods
	}
	override(&c.Link, p.Recovery.Link)
	override(&c.LinkTTL, time.Duration(p.Recovery.LinkTTL))
	p.Limits.apply(&c.Limits)
	overrideBy(&c.Hardened, p.Hardened)
}

func (p *Passwords) apply(to *tenant.PasswordPolicy, regex *regexp.Regexp) {
	override(&to.MinLength, p.MinLength)
	if regex != nil {
		to.Regex, to.RegexSource, to.RegexDescription = regex, p.Regex, ""
	}
	override(&to.RegexDescription, p.RegexDescription)
	if p.Argon2id != nil {
		to.Argon2id = password.Argon2id(*p.Argon2id)
	}
	overrideBy(&to.Required, p.Required)
}

func (l *Limits) apply(to *tenant.Limits) {
	overrideBy(&to.CaptchaAfter, l.CaptchaAfter)
	override(&to.LockAfter, l.LockAfter)
	override(&to.LockFor, time.Duration(l.LockFor))
	override(&to.DisableAfter, l.DisableAfter)
	overrideBy(&to.FailuresPerAddress, (*tenant.Rate)(l.FailuresPerAddress))
	overrideBy(&to.LoginsPerAddress, (*tenant.Rate)(l.LoginsPerAddress))
	overrideBy(&to.WrongCodes, (*tenant.Rate)(l.WrongCodes))
	overrideBy(&to.WrongAnswers, (*tenant.Rate)(l.WrongAnswers))
	overrideBy(&to.SMSPerAccount, (*tenant.Rate)(l.SMSPerAccount))
	overrideBy(&to.SMSPerPhone, (*tenant.Rate)(l.SMSPerPhone))
	overrideBy(&to.SMSPerAddress, (*tenant.Rate)(l.SMSPerAddress))
	overrideBy(&to.SMSPerCompany, (*tenant.Rate)(l.SMSPerCompany))
	overrideBy(&to.SMSPerCountry, (*tenant.Rate)(l.SMSPerCountry))
	if l.SMSCountries != nil {
		to.SMSCountries = slices.DeleteFunc(slices.Clone(l.SMSCountries), func(s string) bool { return s == allCountries })
	}
	overrideBy(&to.MailsPerAccount, (*tenant.Rate)(l.MailsPerAccount))
	override(&to.SessionsPerAccount, l.SessionsPerAccount)
}

// override replaces what was inherited, unless value is zero: not set.
func override[T comparable](inherited *T, value T) {
	var unset T
	if value != unset {
		*inherited = value
	}
}

// overrideBy is override for what may be set to zero.
func overrideBy[T any](inherited, value *T) {
	if value != nil {
		*inherited = *value
	}
}

// fixedCodes returns the codes by phone.
func (o *OTP) fixedCodes() map[string]string {
	codes := map[string]string{}
	for _, fixed := range o.Fixed {
		for _, phone := range fixed.Phones {
			codes[record.NormalizePhone(phone)] = fixed.Code
		}
	}
	return codes
}
