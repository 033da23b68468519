package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

const (
	day  = 24 * time.Hour
	year = 366 * day
)

// Check refuses mistakes within the policy. Its errors begin with the name of the
// directive.
func (p *Policy) Check() error {
	return guest.First(
		p.checkInsecure,
		p.checkSessions,
		p.checkOTP,
		p.checkPasswords,
		p.checkSecondFactor,
		p.checkGateways,
		p.checkMailColor,
		p.checkLocale,
		p.checkNotices,
		p.checkSupport,
		p.checkPhoneRegion,
		p.checkSMSOrigin,
		p.checkRecovery,
		p.checkPasskeys,
		p.checkLimits,
		p.checkDevices,
		p.checkTokens,
	)
}

// boundedOptions lists the options that `insecure` may name.
var boundedOptions = []string{
	"session.temporary", "session.idle", "session.lifetime",
	"otp.length", "otp.ttl",
	"password.min_length", "password.argon2id",
	"recovery.link_ttl",
	"limits.captcha_after", "limits.lock_after", "limits.disable_after", "limits.wrong_codes", "limits.wrong_answers",
}

func (p *Policy) checkInsecure() error {
	for _, option := range p.Insecure {
		if !slices.Contains(boundedOptions, option) {
			return fmt.Errorf("insecure: no standard bounds %q; it can be any of %s", option, strings.Join(boundedOptions, ", "))
		}
	}
	return nil
}

func (p *Policy) checkSessions() error {
	s := &p.Session
	const nist = "NIST SP 800-63B-4, section 2.1.3"
	return cmp.Or(
		bounded(p, "session.temporary", s.Temporary, anyLife, upTo(15*time.Minute), "NIST SP 800-63B-4, section 3.1.3"),
		bounded(p, "session.idle", s.Idle, anyLife, upTo(30*day), nist),
		bounded(p, "session.lifetime", s.Lifetime, anyLife, upTo(30*day), nist),
		within("session.stream_recheck", s.StreamRecheck, span[tenant.Duration]{tenant.Duration(100 * time.Millisecond), tenant.Duration(time.Hour)}),
	)
}

func (p *Policy) checkOTP() error {
	o := &p.OTP
	for _, fixed := range o.Fixed {
		if len(fixed.Phones) == 0 {
			return errors.New("otp fixed: a code has no phone; name those that get it")
		}
	}
	return cmp.Or(
		within("otp.renewals", value(o.Renewals), span[int]{0, 100}),
		bounded(p, "otp.length", o.Length, span[int]{4, 10}, span[int]{6, 10}, "OWASP ASVS 5.0, 6.5.4"),
		bounded(p, "otp.ttl", o.TTL, upTo(day), upTo(10*time.Minute), "OWASP ASVS 5.0, 6.5.5"),
	)
}

func (p *Policy) checkPasswords() error {
	if _, err := compile(p.Password.Regex); err != nil {
		return err
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
	return bounded(p, "password.min_length", p.Password.MinLength, span[int]{1, 128}, span[int]{8, 128}, "OWASP ASVS 5.0, 6.2.1")
}

func (p *Policy) checkArgon2id(a password.Argon2id) error {
	err := a.Check()
	if err == nil || !slices.Contains(p.Insecure, "password.argon2id") {
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
	return cmp.Or(
		bounded(p, "recovery.link_ttl", r.LinkTTL, anyLife, upTo(day), "NIST SP 800-63B-4, section 4.2.1.2"),
		within("recovery.welcome_ttl", r.WelcomeTTL, upTo(30*day)),
	)
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

func (p *Policy) checkLimits() error {
	l := &p.Limits
	const nist = "NIST SP 800-63B-4, section 3.2.2"
	attempts, works := span[int]{1, 100}, span[int]{1, tenant.MaxEvents}
	return cmp.Or(
		bounded(p, "limits.captcha_after", value(l.CaptchaAfter), span[int]{0, tenant.MaxEvents}, attempts, nist),
		bounded(p, "limits.lock_after", l.LockAfter, works, attempts, nist),
		bounded(p, "limits.disable_after", l.DisableAfter, works, attempts, nist),
		within("limits.lock_for", l.LockFor, upTo(year)),
		checkGuesses("wrong_codes", l.WrongCodes),
		bounded(p, "limits.wrong_codes", l.WrongCodes.N, works, attempts, nist),
		checkGuesses("wrong_answers", l.WrongAnswers),
		bounded(p, "limits.wrong_answers", l.WrongAnswers.N, works, attempts, nist),
		checkGuesses("failures_per_address", l.FailuresPerAddress),
		checkCountries("limits sms_countries", l.SMSCountries),
		within("limits.sessions_per_account", l.SessionsPerAccount, span[int]{1, record.MaxSessions}),
	)
}

func (p *Policy) checkDevices() error {
	if p.Devices == nil {
		return nil
	}
	if p.Devices.For == 0 && p.Devices.SkipSecondFactor {
		return errors.New("devices: skip_second_factor needs a duration; write it as in devices 90d skip_second_factor")
	}
	return within("devices", p.Devices.For, upTo(year))
}

func (p *Policy) checkTokens() error {
	if p.IssuedTokens == nil {
		return nil
	}
	t := p.IssuedTokens
	return cmp.Or(
		within("issued_tokens.lifetime", t.Lifetime, upTo(year)),
		within("issued_tokens.per_account", t.PerAccount, span[int]{1, 1000}),
		within("issued_tokens.acting", t.Acting, upTo(day)),
	)
}

// value returns the number that an option is set to, or 0 if it is not set.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// checkGuesses refuses an unlimited number of wrong guesses.
func checkGuesses(name string, rate tenant.Rate) error {
	if rate == tenant.Unlimited {
		return fmt.Errorf("limits %s: it can't be unlimited, because it limits how much can be guessed; %w", name, tenant.ErrRate)
	}
	return nil
}

// A span is the range from least to most, inclusive.
type span[T int | tenant.Duration] struct{ least, most T }

// upTo returns the span of durations above 0 and up to most.
func upTo(most time.Duration) span[tenant.Duration] {
	return span[tenant.Duration]{1, tenant.Duration(most)}
}

// anyLife is the range of lifetimes that sessions and links can have.
var anyLife = upTo(record.LongestSession)

func (s span[T]) has(value T) bool { return s.least <= value && value <= s.most }

// within refuses a value that would not work. Zero means not set.
func within[T int | tenant.Duration](option string, value T, works span[T]) error {
	if value == 0 || works.has(value) {
		return nil
	}
	if least := any(works.least); least == tenant.Duration(1) {
		return fmt.Errorf("%s: %v is out of range; choose one above 0 and at most %v", directive(option), value, works.most)
	}
	return fmt.Errorf("%s: %v is out of range; choose %v to %v", directive(option), value, works.least, works.most)
}

// bounded also refuses a value that a standard forbids, unless the option is listed
// in insecure.
func bounded[T int | tenant.Duration](p *Policy, option string, value T, works, standard span[T], source string) error {
	if err := within(option, value, works); err != nil {
		return err
	}
	if value == 0 || standard.has(value) || slices.Contains(p.Insecure, option) {
		return nil
	}
	bound, limit := "at most", standard.most
	if value < standard.least {
		bound, limit = "at least", standard.least
	}
	return fmt.Errorf("%s: %v is against %s; choose %s %v or, if you must, add the word insecure after it",
		directive(option), value, source, bound, limit)
}

// directive returns the option's name in a Caddyfile.
func directive(option string) string { return strings.Replace(option, ".", " ", 1) }
