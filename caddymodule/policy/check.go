package policy

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// Check refuses mistakes within the policy. Its errors begin with the name of the
// directive.
func (p *Policy) Check() error {
	return guest.First(
		p.checkInsecure,
		p.checkOptions,
		p.checkFixed,
		p.checkPasswords,
		p.checkSecondFactor,
		p.checkGateways,
		p.checkMailColor,
		func() error { return guest.Inside("texts", guest.CheckPath(p.Texts)) },
		func() error { return guest.Inside("password blocklist", guest.CheckPath(p.Password.Blocklist)) },
		p.checkLocale,
		p.checkNotices,
		p.checkSupport,
		p.checkPhoneRegion,
		p.checkSMSOrigin,
		p.checkRecovery,
		p.checkPasskeys,
		func() error { return guest.Inside("limits sms_countries", checkCountries(p.Limits.SMSCountries)) },
		p.checkDevices,
	)
}

func (p *Policy) checkInsecure() error {
	for _, option := range p.Insecure {
		if !slices.Contains(mayExceed(), option) {
			return fmt.Errorf("insecure: no standard bounds %q; it can be any of %s", option, strings.Join(mayExceed(), ", "))
		}
	}
	return nil
}

func (p *Policy) checkFixed() error {
	for _, fixed := range p.OTP.Fixed {
		if len(fixed.Phones) == 0 {
			return errors.New("otp fixed: a code has no phone; name those that get it")
		}
	}
	return nil
}

func (p *Policy) checkPasswords() error {
	if _, err := compile(p.Password.Regex); err != nil {
		return err
	}
	if err := guest.CheckNoSecret(p.Password.Regex+p.Password.RegexDescription, "write the expression and its description themselves"); err != nil {
		return guest.Inside("password regex", err)
	}
	if list := p.Password.Breached; list != nil {
		if err := list.Check(); err != nil {
			return fmt.Errorf("password breached: %w", err)
		}
	}
	if a := p.Password.Argon2id; a != (password.Argon2id{}) {
		if err := p.checkArgon2id(a); err != nil {
			return fmt.Errorf("password argon2id: %w", err)
		}
	}
	return nil
}

func (p *Policy) checkArgon2id(a password.Argon2id) error {
	err := a.Check()
	if err == nil || !slices.Contains(p.Insecure, argon2idKey) {
		return err
	}
	return a.Bounded()
}

func (p *Policy) checkSecondFactor() error {
	switch p.SecondFactor {
	case "", tenant.SecondFactorPerAccount, tenant.SecondFactorRequired, tenant.SecondFactorOff:
		return nil
	default:
		return fmt.Errorf("second_factor: %q is unknown; choose per_account, required or off", p.SecondFactor)
	}
}

func (p *Policy) checkLocale() error {
	if p.Locale == "" {
		return nil
	}
	_, err := message.ParseLocale(p.Locale)
	return guest.Inside("locale", err)
}

func (p *Policy) checkNotices() error {
	var known []string
	for _, notice := range message.Notices {
		known = append(known, message.NoticeName(notice))
	}
	for i, name := range p.Notices {
		switch {
		case !slices.Contains(known, name):
			return fmt.Errorf("notices: %q is unknown; choose from %s, or write notices off alone", name, strings.Join(known, ", "))
		case slices.Contains(p.Notices[:i], name):
			return fmt.Errorf("notices: %s appears twice; remove one", name)
		}
	}
	return nil
}

var hexColor = regexp.MustCompile(`^#[0-9A-Fa-f]{6}$`)

func (p *Policy) checkMailColor() error {
	if p.MailColor == "" || hexColor.MatchString(p.MailColor) {
		return nil
	}
	return fmt.Errorf(`mail_color: %q is not a color that all mail programs read; write it in quotes and six hex digits, as in "#336699"`, p.MailColor)
}

func (p *Policy) checkSupport() error {
	if utf8.RuneCountInString(p.Support) > 100 || strings.ContainsFunc(p.Support, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("support: write at most 100 characters in one line, such as a URL, an email or a phone")
	}
	return guest.Inside("support", guest.CheckNoPlaceholder(p.Support, "write it as users read it"))
}

func (p *Policy) checkPhoneRegion() error {
	if p.PhoneRegion == "" || p.PhoneRegion == off || typed.IsRegion(p.PhoneRegion) {
		return nil
	}
	return fmt.Errorf("phone_region: %q is not a region that has phone numbers; write the two letters of ISO 3166-1 in upper case, as in LT", p.PhoneRegion)
}

// hostName matches the name of a host with at least two labels, in lower case.
var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (p *Policy) checkSMSOrigin() error {
	if p.SMSOrigin == "" || p.SMSOrigin == off || len(p.SMSOrigin) <= 253 && hostName.MatchString(p.SMSOrigin) {
		return nil
	}
	return fmt.Errorf("sms_origin: %q is not the name of a host; write it without https://, port and path, in lower case and ASCII (xn--…), as in app.example.com", p.SMSOrigin)
}

func (p *Policy) checkRecovery() error {
	r := &p.Recovery
	for i, m := range r.Methods {
		switch {
		case m != tenant.ByPhone && m != tenant.ByMail && m != tenant.ByQuestion:
			return fmt.Errorf("recovery methods: %q is unknown; choose from PHONE, MAIL and QUESTION", m)
		case slices.Contains(r.Methods[:i], m):
			return fmt.Errorf("recovery methods: %s appears twice; remove one", m)
		}
	}
	if r.Link != "" {
		if _, err := parseLink(r.Link); err != nil {
			return fmt.Errorf("recovery link: %w", err)
		}
	}
	return nil
}

// linkToken replaces {token} while a link is parsed.
const linkToken = "mgl_token"

// parseLink parses a link after replacing {token} with linkToken.
func parseLink(link string) (*url.URL, error) {
	if !strings.Contains(link, "{token}") {
		return nil, errors.New("it has no {token}; write it as in https://app.example.com/recover#{token}")
	}
	u, err := guest.HTTPSURL(strings.ReplaceAll(link, "{token}", linkToken))
	if err != nil {
		return nil, err
	}
	if strings.Contains(u.Host, linkToken) {
		return nil, errors.New("the token is in the host's name; put it behind #")
	}
	return u, nil
}

// TokenIsLogged reports whether a link's token will appear in the logs of servers.
func TokenIsLogged(link string) bool {
	u, err := parseLink(link)
	return err == nil && !strings.Contains(u.Fragment, linkToken)
}

func (p *Policy) checkPasskeys() error {
	if p.Passkeys == nil || p.Passkeys.Off() {
		return nil
	}
	if err := p.Passkeys.Check(); err != nil {
		return fmt.Errorf("passkeys %w", err)
	}
	return nil
}

func (p *Policy) checkDevices() error {
	if p.Devices != nil && p.Devices.For == 0 && p.Devices.SkipSecondFactor {
		return errors.New("devices: skip_second_factor needs a duration; write it as in devices 90d skip_second_factor")
	}
	return nil
}
