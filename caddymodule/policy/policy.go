// Package policy is what a company may decide, or its app for all: how long
// sessions live, what passwords must be, how much may be guessed and sent. Start
// at Policy and at its blocks in flows/tenant, whose fields are the options with their
// defaults; Check has their bounds, caddyfile.go their syntax.
package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
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
	Session tenant.Sessions `json:"session,omitzero"`

	// The one-time codes sent by SMS.
	OTP tenant.OTP `json:"otp,omitzero"`

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
	Recovery tenant.Recovery `json:"recovery,omitzero"`

	// How much can be guessed and sent.
	Limits tenant.Limits `json:"limits,omitzero"`

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
	regex      *regexp.Regexp
	blocklist  *password.Blocklist
}

// Passwords is about passwords.
type Passwords struct {
	tenant.Passwords

	// What is asked about the passwords of accounts that were imported with the
	// password_hash `$webhook$`: the system that they came from. A right one is
	// kept as a hash, and not asked about again. Not with `hardened`, since the
	// time of the answer would tell of such accounts. Default: none.
	MigrateRaw json.RawMessage `json:"migrate,omitempty" caddy:"namespace=mnemogate.migrate inline_key=module"`
}

// Load loads what the policy names. The errors begin with the directive.
func (p *Policy) Load(ctx caddy.Context) error {
	if err := p.loadGuests(ctx); err != nil {
		return err
	}
	var err error
	if p.regex, err = compile(p.Password.Regex); err != nil {
		return err
	}
	if p.Password.Blocklist != "" {
		if p.blocklist, err = readBlocklist(p.Password.Blocklist); err != nil {
			return fmt.Errorf("password blocklist: %w", err)
		}
	}
	if p.Texts != "" {
		if p.texts, err = message.LoadTexts(p.Texts); err != nil {
			return fmt.Errorf("texts: %w", err)
		}
	}
	return nil
}

// compile returns a regular expression for passwords, nil for none.
func compile(expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, nil
	}
	compiled, err := regexp.Compile(expression)
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
	override(&c.Blocklist, p.blocklist)
	override(&c.Migrate, p.migrate)
	if p.events != nil {
		c.Events = *p.events
	}
	if p.captchaSet {
		c.Captcha, c.CaptchaType, c.SiteKey = p.captcha, p.captchaIs, p.siteKey
	}
	if p.regex != nil {
		c.Regex, c.Password.RegexDescription = p.regex, ""
	}
	overrideFields(&c.Session, p.Session)
	overrideFields(&c.OTP, p.OTP)
	overrideFields(&c.Password, p.Password.Passwords)
	override(&c.SecondFactor, p.SecondFactor)
	override(&c.Locale, message.Locale(p.Locale))
	overrideFields(&c.Recovery, p.Recovery)
	overrideFields(&c.Limits, p.Limits)
	if p.Hardened != nil {
		c.Hardened = *p.Hardened
	}
}

// override replaces what was inherited, unless value is zero: not set.
func override[T comparable](inherited *T, value T) {
	var unset T
	if value != unset {
		*inherited = value
	}
}

// overrideFields is override for each field of a block.
func overrideFields[T any](inherited *T, block T) {
	to := reflect.ValueOf(inherited).Elem()
	for field, value := range reflect.ValueOf(block).Fields() {
		if !value.IsZero() {
			to.FieldByIndex(field.Index).Set(value)
		}
	}
}

// Unlimited names the rates that a company has set to unlimited, or its app for it, but
// for sms_per_company.
func Unlimited(app, company *tenant.Limits) (names []string) {
	own, inherited := reflect.ValueOf(*company), reflect.ValueOf(*app)
	for field, value := range own.Fields() {
		rate, ok := value.Interface().(tenant.Rate)
		if !ok {
			continue
		}
		rate = cmp.Or(rate, inherited.FieldByIndex(field.Index).Interface().(tenant.Rate))
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if rate == tenant.Unlimited && name != "sms_per_company" {
			names = append(names, name)
		}
	}
	return names
}
