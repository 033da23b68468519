// Package policy holds the settings that a company may choose, or the app for all
// companies: how long sessions live, the rules for passwords, and the limits on
// attempts and messages. Start at Policy and its blocks in flows/tenant, whose
// fields document the options and their defaults. options.go has the options with one
// value and their bounds, caddyfile.go the syntax of the others, and check.go their checks.
package policy

import (
	"cmp"
	"encoding/json"
	"os"
	"reflect"
	"regexp"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/breached"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/passkey"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Policy holds the settings that a company may choose. The app's settings are the
// defaults of every company, and a company overrides them option by option. An
// option that neither of them sets has the default in its comment.
//
// Most bounds come from NIST SP 800-63B-4 and OWASP ASVS 5.0. A value beyond them is
// refused unless the option is listed in `insecure`.
type Policy struct {
	// How long sessions live.
	Session tenant.Sessions `json:"session,omitzero"`

	// The one-time codes that are sent by SMS.
	OTP tenant.OTP `json:"otp,omitzero"`

	// The rules for new passwords, and how passwords are stored.
	Password Passwords `json:"password,omitzero"`

	// When a one-time code must follow the password: `per_account` (if the account's
	// second_factor is on), `required` (always; needs `sms`), or `off`. Default:
	// `per_account`.
	SecondFactor tenant.SecondFactor `json:"second_factor,omitempty"`

	// The module that verifies captchas, or `off` for no captchas. Each company must
	// set it, or the app for it. There is no default.
	CaptchaRaw json.RawMessage `json:"captcha,omitempty" caddy:"namespace=mnemogate.captcha inline_key=module"`

	// The gateways for SMS, in the order in which they are asked. The next one is asked
	// if one can't be reached, does not answer in time, or answers 429 or 5xx; any other
	// answer is final. Several together take at most 10 s, and one that failed is asked last
	// for 30 s. Default: none; users then can't log in or recover access by phone.
	SMS []SMSGateway `json:"sms,omitempty"`

	// The gateways for mails, in the order in which they are asked, as those for SMS. Of
	// `smtp`, a reply of 5xx to the recipient or to the mail is final. Default: none; users
	// then can't recover access by mail.
	Mail []MailGateway `json:"mail,omitempty"`

	// The module that receives an event for each change of an account, so that a
	// backend need not poll, or `off`. Default: none.
	EventsRaw json.RawMessage `json:"events,omitempty" caddy:"namespace=mnemogate.events inline_key=module"`

	// A directory with templates that replace the built-in texts of SMS and mails.
	// Subdirectories named by language tags, such as `lt` or `pt-BR`, hold the
	// templates for accounts with that `locale`. Default: the built-in texts.
	Texts string `json:"texts,omitempty"`

	// The color of the button in mails, in the only form that all mail programs read:
	// `#336699`. Default: a blue.
	MailColor string `json:"mail_color,omitempty"`

	// The language tag of messages to accounts that have no `locale`, or one without
	// a directory in `texts`. Default: none; these accounts receive the templates of
	// `texts` itself.
	Locale string `json:"locale,omitempty"`

	// The notices that owners of accounts get, or none if it is empty:
	// `password_changed`, `email_changed` and `phone_changed` (also to the old one),
	// `totp_changed`, `backup_codes_made`, `passkey_added`, `passkey_removed`,
	// `second_factor_off`, `login_name_changed`, `question_changed`, `identity_bound`,
	// `identity_removed`, `new_device`, `second_factor_failed` (three wrong codes in a
	// row after a correct password), `acted` (somebody, such as support, may act as the
	// user for some time), `token_issued` (by the user). They go by mail or else by SMS.
	// Default: all.
	Notices []string `json:"notices,omitzero"`

	// Where users get help, such as `https://acme.example/help`, an email or a phone. At
	// most 100 characters. SMS and mails that ask users to contact you say it. `off` undoes
	// this for a company. Default: none.
	Support string `json:"support,omitempty"`

	// The region (ISO 3166-1 alpha-2, such as `LT`) of phones without `+` and `00`, in
	// login ids and in the accounts API: `8 600 12345` is then +37060012345, by the
	// rules of google/libphonenumber. If an account has such digits as its login name,
	// they find that account. `off` undoes this for a company. Default: none; phones
	// need the country's code.
	PhoneRegion string `json:"phone_region,omitempty"`

	// The host of the page where users enter codes, such as `app.example.com`. An SMS
	// with a code then ends in the line `@<host> #<code>`, also with a company's own
	// texts. Phones fill such a code in on pages of that host only, and not on a
	// fraudulent one. On Android, a page must ask for it with WebOTP, which the login page
	// does not. An iOS app gets it only if the host is one of its associated domains. The
	// line can make an SMS longer than one part, for which gateways charge more; each start
	// warns of that. `off` undoes this for a company. Default: none.
	SMSOrigin string `json:"sms_origin,omitempty"`

	// How users who lost access recover it.
	Recovery tenant.Recovery `json:"recovery,omitzero"`

	// Lets users log in with passkeys. An empty object turns this off for a company.
	// Default: none.
	Passkeys *passkey.Settings `json:"passkeys,omitempty"`

	// The limits on attempts and messages.
	Limits tenant.Limits `json:"limits,omitzero"`

	// For how long clients can be known devices of an account. What strangers do
	// does not lock out a known device. An empty object turns this off for a company.
	// Default: none are remembered.
	Devices *tenant.Devices `json:"devices,omitempty"`

	// Tokens that backends issue for machines, scripts and support. A company's block
	// replaces the app's; an empty one issues none. Default: none are issued.
	IssuedTokens *tenant.IssuedTokens `json:"issued_tokens,omitempty"`

	// Tell strangers less. An unknown login id gets the same answer as a known one, and
	// emails are masked. QUESTION and recovery by the phone of the second factor are
	// refused. Passwords without a second factor need 15 characters. Default: false.
	Hardened *bool `json:"hardened,omitempty"`

	// The options set here that may exceed the bounds of a standard, such as
	// `otp.length` or `limits.wrong_codes`. Each start warns of them. Default: none.
	Insecure []string `json:"insecure,omitempty"`

	captcha   tenant.Captcha // nil for captcha off
	sms, mail message.Gateways
	events    *tenant.Events
	passkeys  *passkey.Verifier
	migrate   tenant.PasswordVerifier
	breached  *tenant.Breached // nil if it is not set
	texts     *message.Texts
	regex     *regexp.Regexp
	blocklist *password.Blocklist
}

// Passwords holds the settings of passwords.
type Passwords struct {
	tenant.Passwords

	// A list of passwords that were found in data breaches. Nobody can set one of
	// them. Default: none.
	Breached *breached.List `json:"breached,omitempty"`

	// The module that verifies passwords of accounts that were imported with the
	// password_hash `$webhook$`, by asking the system that they came from. A correct
	// password is hashed and stored, and not asked about again. Not allowed with
	// `hardened`, because the response time would reveal such accounts. Default:
	// none.
	MigrateRaw json.RawMessage `json:"migrate,omitempty" caddy:"namespace=mnemogate.migrate inline_key=module"`
}

// Load loads what the policy names. Its errors begin with the name of the directive.
func (p *Policy) Load(ctx caddy.Context) (err error) {
	if err = p.loadGuests(ctx); err != nil {
		return err
	}
	if p.regex, err = compile(p.Password.Regex); err != nil {
		return err
	}
	if p.Passkeys != nil && !p.Passkeys.Off() {
		if p.passkeys, err = passkey.New(*p.Passkeys); err != nil {
			return guest.Inside("passkeys", err)
		}
	}
	if p.Password.Blocklist != "" {
		if p.blocklist, err = readBlocklist(p.Password.Blocklist); err != nil {
			return guest.Inside("password blocklist", err)
		}
	}
	if p.Password.Breached != nil {
		opened, err := p.Password.Breached.Open()
		if err != nil {
			return guest.Inside("password breached", err)
		}
		p.breached = &opened
	}
	if p.Texts != "" {
		p.texts, err = message.LoadTexts(p.Texts)
	}
	return guest.Inside("texts", err)
}

// compile compiles a regular expression for passwords. It returns nil for an empty
// one.
func compile(expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, nil
	}
	compiled, err := regexp.Compile(expression)
	return compiled, guest.Inside("password regex: RE2 can't compile it; correct it", err)
}

// NamesCaptcha reports whether the policy sets captcha, even to off.
func (p *Policy) NamesCaptcha() bool { return p.captcha != nil || p.CaptchaRaw != nil }

func (p *Policy) loadGuests(ctx caddy.Context) error {
	var events guest.EventsModule
	err := guest.First(
		func() error { return p.loadGateways(ctx) },
		func() error {
			return load(ctx, &p.migrate, &p.Password, "password migrate", "MigrateRaw", p.Password.MigrateRaw)
		},
		func() error { return load(ctx, &events, p, "events", "EventsRaw", given(p.EventsRaw)) },
		func() error { return load(ctx, &p.captcha, p, "captcha", "CaptchaRaw", given(p.CaptchaRaw)) },
	)
	switch {
	case err != nil:
		return err
	case events != nil:
		p.events = new(events.Settings())
		p.events.Receiver = events
		return guest.Inside("events", p.events.Check())
	case p.EventsRaw != nil: // off
		p.events = new(tenant.Events)
	}
	return nil
}

// load loads the plugin in a field of host, unless the field is empty.
func load[T any](ctx caddy.Context, to *T, host any, directive, field string, raw json.RawMessage) (err error) {
	if raw != nil {
		*to, err = guest.Load[T](ctx, host, field)
	}
	return guest.Inside(directive, err)
}

func readBlocklist(name string) (*password.Blocklist, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return password.Common().With(file)
}

// Apply overrides the settings of c that the policy sets.
func (p *Policy) Apply(c *tenant.Company) {
	if p.sms != nil {
		c.SMS = p.sms
	}
	if p.mail != nil {
		c.Mail = p.mail
	}
	c.Texts = cmp.Or(p.texts, c.Texts)
	c.Blocklist = cmp.Or(p.blocklist, c.Blocklist)
	c.Migrate = cmp.Or(p.migrate, c.Migrate)
	c.Breached = *cmp.Or(p.breached, &c.Breached)
	c.Events = *cmp.Or(p.events, &c.Events)
	if p.Passkeys != nil {
		c.Passkeys = nil
	}
	if p.passkeys != nil {
		c.Passkeys = p.passkeys.For(c.DisplayName())
	}
	if p.NamesCaptcha() {
		p.applyCaptcha(c)
	}
	if p.regex != nil {
		c.Regex, c.Password.RegexDescription = p.regex, ""
	}
	overrideFields(&c.Session, p.Session)
	overrideFields(&c.OTP, p.OTP)
	overrideFields(&c.Password, p.Password.Passwords)
	c.SecondFactor = cmp.Or(p.SecondFactor, c.SecondFactor)
	c.MailColor = cmp.Or(p.MailColor, c.MailColor)
	c.Locale = cmp.Or(message.Locale(p.Locale), c.Locale)
	overrideOrOff(&c.PhoneRegion, p.PhoneRegion)
	overrideOrOff(&c.SMSOrigin, p.SMSOrigin)
	overrideOrOff(&c.Support, p.Support)
	if p.Notices != nil {
		c.Notices = p.Notices
	}
	overrideFields(&c.Recovery, p.Recovery)
	overrideFields(&c.Limits, p.Limits)
	c.Limits.SMSCountries = readCountries(c.Limits.SMSCountries)
	c.Devices = *cmp.Or(p.Devices, &c.Devices)
	if p.IssuedTokens != nil {
		c.IssuedTokens = tenant.IssuedTokens{}
		if *p.IssuedTokens != c.IssuedTokens { // otherwise it says off
			c.IssuedTokens = tenant.DefaultIssuedTokens
			overrideFields(&c.IssuedTokens, *p.IssuedTokens)
		}
	}
	c.Hardened = *cmp.Or(p.Hardened, &c.Hardened)
}

func (p *Policy) applyCaptcha(c *tenant.Company) {
	c.Captcha, c.CaptchaType, c.SiteKey = p.captcha, "", ""
	if module, ok := p.captcha.(caddy.Module); ok {
		c.CaptchaType = module.CaddyModule().ID.Name()
	}
	if widget, ok := p.captcha.(guest.Widget); ok {
		c.SiteKey = widget.WidgetKey()
	}
}

// off, as a text or in place of a module, undoes a default.
const off = "off"

// given returns the JSON of a module, or nil for that of off.
func given(raw json.RawMessage) json.RawMessage {
	var module map[string]string
	if json.Unmarshal(raw, &module) == nil && len(module) == 1 && module["module"] == off {
		return nil
	}
	return raw
}

// overrideOrOff replaces an inherited text, unless value is empty, which means not set. off
// undoes it.
func overrideOrOff(inherited *string, value string) {
	if *inherited = cmp.Or(value, *inherited); *inherited == off {
		*inherited = ""
	}
}

// overrideFields replaces the inherited value of each field that the block sets.
func overrideFields[T any](inherited *T, block T) {
	to := reflect.ValueOf(inherited).Elem()
	for field, value := range reflect.ValueOf(block).Fields() {
		if !value.IsZero() {
			to.FieldByIndex(field.Index).Set(value)
		}
	}
}

// Unlimited lists the rates that the company or the app has set to unlimited, except
// sms_per_company.
func Unlimited(app, company *Policy) (names []string) {
	for _, o := range Options {
		own, ok := o.Of(company).(*tenant.Rate)
		if ok && cmp.Or(*own, *o.Of(app).(*tenant.Rate)) == tenant.Unlimited && o.Name() != "sms_per_company" {
			names = append(names, o.Name())
		}
	}
	return names
}
