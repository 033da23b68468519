package policy

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/breached"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/passkey"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() {
	p := &Policy{Passkeys: new(passkey.Settings), IssuedTokens: new(tenant.IssuedTokens)}
	guest.Belong("sms <module> { ... }", guest.Parsers{"countries": nil})
	guest.Belong("session { ... }", p.sessionOptions())
	guest.Belong("otp { ... }", p.otpOptions())
	guest.Belong("password { ... }", p.passwordOptions())
	guest.Belong("recovery { ... }", p.recoveryOptions())
	guest.Belong("passkeys { ... }", p.passkeyOptions())
	guest.Belong("limits { ... }", p.limitOptions())
	guest.Belong("issued_tokens { ... }", p.tokenOptions())
}

// Repeatable names the options of policies that may be given several times.
var Repeatable = []string{"sms", "mail"}

// Parsers returns the parsers of the policies, each of which may be given once, unless it is
// in Repeatable.
//
// The word insecure, as the last argument, allows what a standard forbids.
func (p *Policy) Parsers() guest.Parsers {
	return guest.Parsers{
		"session { ... }":                             p.block(p.sessionOptions()),
		"otp { ... }":                                 p.block(p.otpOptions(), "fixed"),
		"password { ... }":                            p.block(p.passwordOptions()),
		"second_factor per_account|required|off":      guest.Text((*string)(&p.SecondFactor)),
		"captcha <module>":                            moduleOrOff("mnemogate.captcha", &p.CaptchaRaw),
		"sms <module>":                                p.parseSMS,
		"mail <module>":                               p.parseMail,
		"events <module>":                             moduleOrOff("mnemogate.events", &p.EventsRaw),
		"texts <dir>":                                 guest.Text(&p.Texts),
		"mail_color <#rrggbb>":                        guest.Text(&p.MailColor),
		"locale <tag>":                                guest.Text(&p.Locale),
		"phone_region <region>|off":                   guest.Text(&p.PhoneRegion),
		"sms_origin <host>|off":                       guest.Text(&p.SMSOrigin),
		"notices <type>...|off":                       listOrOff(&p.Notices),
		"support <text>|off":                          guest.Text(&p.Support),
		"recovery { ... }":                            p.block(p.recoveryOptions()),
		"passkeys [off] { ... }":                      p.parsePasskeys,
		"limits { ... }":                              p.block(p.limitOptions()),
		"devices <duration>|off [skip_second_factor]": p.parseDevices,
		"issued_tokens [off] { ... }":                 p.parseTokens,
		"hardened [off]":                              unlessOff(&p.Hardened),
	}
}

// block parses an option that has a block and no arguments.
func (p *Policy) block(options guest.Parsers, repeatable ...string) guest.Parser {
	return func(d *caddyfile.Dispenser) error {
		if d.NextArg() {
			return guest.ErrArguments
		}
		return guest.CheckedOptions(d, p.Check, options, repeatable...)
	}
}

func (p *Policy) sessionOptions() guest.Parsers {
	return p.optionsOf("session", guest.Parsers{})
}

func (p *Policy) otpOptions() guest.Parsers {
	return p.optionsOf("otp", guest.Parsers{
		"fixed <code> <phone>...": p.parseFixed,
	})
}

func (p *Policy) parseFixed(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return guest.ErrArguments
	}
	p.OTP.Fixed = append(p.OTP.Fixed, tenant.FixedCode{Code: args[0], Phones: args[1:]})
	return nil
}

func (p *Policy) passwordOptions() guest.Parsers {
	return p.optionsOf("password", guest.Parsers{
		"regex <re2> [<description>]": p.Password.parseRegex,
		"blocklist <file>":            guest.Text(&p.Password.Blocklist),
		"breached <url>|<dir>|off [at_login] [require] [insecure]":    p.Password.parseBreached,
		"argon2id <memory_KiB> <iterations> <parallelism> [insecure]": p.parseArgon2id,
		"required [off]":   unlessOff(&p.Password.Required),
		"migrate <module>": guest.Module("mnemogate.migrate", &p.Password.MigrateRaw),
	})
}

func (p *Passwords) parseRegex(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 || args[0] == "" {
		return guest.ErrArguments
	}
	p.Regex = args[0]
	if len(args) == 2 {
		p.RegexDescription = args[1]
	}
	return nil
}

func (p *Passwords) parseBreached(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || args[0] == "" {
		return guest.ErrArguments
	}
	p.Breached = &breached.List{From: args[0]}
	for i, word := range args[1:] {
		if slices.Contains(args[1:i+1], word) {
			return d.Errf("it has %s twice; remove one", word)
		}
		switch word {
		case "at_login":
			p.Breached.AtLogin = true
		case "require":
			p.Breached.Require = true
		case guest.Insecure:
			p.Breached.Insecure = true
		default:
			return d.Errf("'%s' is not one of the words at_login, require and insecure", word)
		}
	}
	return nil
}

func (p *Policy) parseArgon2id(d *caddyfile.Dispenser) error {
	args, insecure := guest.CutInsecure(d.RemainingArgs())
	if insecure {
		p.Insecure = append(p.Insecure, argon2idKey)
	}
	if len(args) != 3 {
		return guest.ErrArguments
	}
	var n [3]uint64
	for i, bits := range []int{32, 32, 8} {
		var err error
		if n[i], err = strconv.ParseUint(args[i], 10, bits); err != nil || n[i] == 0 {
			return d.Errf("'%s' is not one of the numbers <memory_KiB> <iterations> <parallelism>", args[i])
		}
	}
	p.Password.Argon2id = password.Argon2id{MemoryKiB: uint32(n[0]), Iterations: uint32(n[1]), Parallelism: uint8(n[2])}
	return nil
}

func (p *Policy) recoveryOptions() guest.Parsers {
	return p.optionsOf("recovery", guest.Parsers{
		"methods PHONE|MAIL|QUESTION...|off": listOrOff(&p.Recovery.Methods),
		"link <url_with_{token}>":            guest.Text(&p.Recovery.Link),
	})
}

// listOrOff parses one or more values, or the word off for none.
func listOrOff[T ~string](list *[]T) guest.Parser {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) == 0 {
			return guest.ErrArguments
		}
		*list = []T{}
		if len(args) == 1 && args[0] == off {
			return nil
		}
		for _, arg := range args {
			*list = append(*list, T(arg))
		}
		return nil
	}
}

// parsePasskeys checks the whole block at its end, because origins depend on rp_id.
func (p *Policy) parsePasskeys(d *caddyfile.Dispenser) error {
	p.Passkeys = &passkey.Settings{}
	return orOff(d, func() error { return guest.Complete(d, guest.Options(d, p.passkeyOptions()), p.Passkeys.Check) })
}

// orOff parses the word off or, without it, a block.
func orOff(d *caddyfile.Dispenser, block func() error) error {
	if !d.NextArg() {
		return block()
	}
	if d.Val() != off || d.NextArg() || d.NextBlock(d.Nesting()) {
		return guest.ErrArguments
	}
	return nil
}

func (p *Policy) passkeyOptions() guest.Parsers {
	return guest.Parsers{
		"rp_id <domain>":      guest.Text(&p.Passkeys.RPID),
		"origins <origin>...": guest.List(&p.Passkeys.Origins),
		"name <text>":         guest.Text(&p.Passkeys.Name),
	}
}

func (p *Policy) limitOptions() guest.Parsers {
	return p.optionsOf("limits", guest.Parsers{
		"sms_countries <prefix>...|all": guest.List(&p.Limits.SMSCountries),
	})
}

func (p *Policy) parseDevices(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	p.Devices = &tenant.Devices{}
	if len(args) == 1 && args[0] == off {
		return nil
	}
	if len(args) == 2 && args[1] == "skip_second_factor" {
		p.Devices.SkipSecondFactor, args = true, args[:1]
	}
	if len(args) != 1 {
		return guest.ErrArguments
	}
	return guest.Duration(&p.Devices.For).Parse(d, args[0])
}

// parseTokens gives the options of the block that are left out their defaults.
func (p *Policy) parseTokens(d *caddyfile.Dispenser) error {
	p.IssuedTokens = &tenant.IssuedTokens{}
	return orOff(d, func() error {
		*p.IssuedTokens = tenant.DefaultIssuedTokens
		return guest.CheckedOptions(d, p.Check, p.tokenOptions())
	})
}

func (p *Policy) tokenOptions() guest.Parsers {
	return p.optionsOf("issued_tokens", guest.Parsers{
		"by_users": guest.Flag(&p.issuedTokens().ByUsers),
	})
}

// moduleOrOff is guest.Module for an option that a company can follow with the word off.
func moduleOrOff(namespace string, raw *json.RawMessage) guest.Parser {
	return func(d *caddyfile.Dispenser) error {
		if d.NextArg() {
			if d.Val() == off {
				if d.NextArg() {
					return guest.ErrArguments
				}
				*raw = json.RawMessage(`{"module":"off"}`)
				return guest.Options(d, nil)
			}
			d.Prev()
		}
		return guest.ParseModule(d, namespace, raw, "or "+off)
	}
}

// insecure parses an option that has one value, optionally followed by the word
// insecure.
func (p *Policy) insecure(option string, read guest.Value) guest.Parser {
	return func(d *caddyfile.Dispenser) error {
		args, insecure := guest.CutInsecure(d.RemainingArgs())
		if insecure {
			p.Insecure = append(p.Insecure, option)
		}
		if len(args) != 1 {
			return guest.ErrArguments
		}
		return read.Parse(d, args[0])
	}
}

// unlessOff parses an option that is switched on by its name alone. A company can
// follow it with the word off if the app has switched it on.
func unlessOff(to **bool) guest.Parser {
	return func(d *caddyfile.Dispenser) error {
		on := true
		if d.NextArg() {
			if on = false; d.Val() != off {
				return guest.ErrArguments
			}
		}
		if d.NextArg() {
			return guest.ErrArguments
		}
		*to = &on
		return nil
	}
}
