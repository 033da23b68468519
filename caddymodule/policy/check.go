package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

const (
	day  = 24 * time.Hour
	year = 366 * day
)

// Check refuses what is wrong with the policy by itself. The errors begin with
// the directive.
func (p *Policy) Check() error {
	return cmp.Or(
		p.checkInsecure(),
		p.checkSessions(),
		p.checkOTP(),
		p.checkPasswords(),
		p.checkSecondFactor(),
		p.checkRecovery(),
		p.checkLimits(),
	)
}

// boundedOptions are those that `insecure` may name.
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
	const nist = "NIST SP 800-63B-4, section 2.2.3"
	return cmp.Or(
		bounded(p, "session.temporary", time.Duration(s.Temporary), span[time.Duration]{1, record.LongestSession}, span[time.Duration]{1, 15 * time.Minute}, "NIST SP 800-63B-4, section 3.1.3"),
		bounded(p, "session.idle", time.Duration(s.Idle), span[time.Duration]{1, record.LongestSession}, span[time.Duration]{1, 30 * day}, nist),
		bounded(p, "session.lifetime", time.Duration(s.Lifetime), span[time.Duration]{1, record.LongestSession}, span[time.Duration]{1, 30 * day}, nist),
		within("session.stream_recheck", time.Duration(s.StreamRecheck), span[time.Duration]{100 * time.Millisecond, time.Hour}),
	)
}

func (p *Policy) checkOTP() error {
	o := &p.OTP
	if o.Renewals != nil && (*o.Renewals < 0 || *o.Renewals > 100) {
		return fmt.Errorf("otp renewals: %d is out of range; choose 0 to 100", *o.Renewals)
	}
	phones := map[string]bool{}
	for _, fixed := range o.Fixed {
		if len(fixed.Phones) == 0 {
			return errors.New("otp fixed: a code has no phone; name those that get it")
		}
		for _, given := range fixed.Phones {
			phone := record.NormalizePhone(given)
			switch {
			case phone == "":
				return fmt.Errorf("otp fixed: %q is no international number; write it as in +37060012345", given)
			case phones[phone]:
				return fmt.Errorf("otp fixed: %s has two codes; leave one", phone)
			}
			phones[phone] = true
		}
	}
	return cmp.Or(
		bounded(p, "otp.length", o.Length, span[int]{4, 10}, span[int]{6, 10}, "OWASP ASVS 5.0, 6.5.4"),
		bounded(p, "otp.ttl", time.Duration(o.TTL), span[time.Duration]{1, day}, span[time.Duration]{1, 10 * time.Minute}, "OWASP ASVS 5.0, 6.5.5"),
	)
}

func (p *Policy) checkPasswords() error {
	if _, err := p.Password.compile(); err != nil {
		return err
	}
	if a := p.Password.Argon2id; a != nil {
		if err := p.checkArgon2id(password.Argon2id(*a)); err != nil {
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

func (p *Policy) checkRecovery() error {
	r := &p.Recovery
	for i, m := range r.Methods {
		switch {
		case m != tenant.ByPhone && m != tenant.ByMail && m != tenant.ByQuestion:
			return fmt.Errorf("recovery methods: %q is unknown; choose from PHONE, MAIL and QUESTION", m)
		case slices.Contains(r.Methods[:i], m):
			return fmt.Errorf("recovery methods: %s already specified", m)
		}
	}
	if r.Link != "" {
		if _, err := parseLink(r.Link); err != nil {
			return fmt.Errorf("recovery link: %w", err)
		}
	}
	return bounded(p, "recovery.link_ttl", time.Duration(r.LinkTTL), span[time.Duration]{1, record.LongestSession}, span[time.Duration]{1, day}, "NIST SP 800-63B-4, section 4.2.1.2")
}

// linkToken stands for a token where a link is parsed.
const linkToken = "mgl_token"

// parseLink parses a link with linkToken in place of {token}.
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

// TokenIsLogged reports whether the logs of servers will hold a link's token.
func TokenIsLogged(link string) bool {
	u, err := parseLink(link)
	return err == nil && !strings.Contains(u.Fragment, linkToken)
}

func (p *Policy) checkLimits() error {
	l := &p.Limits
	const nist = "NIST SP 800-63B-4, section 3.2.2"
	attempts, works := span[int]{1, 100}, span[int]{1, maxEvents}
	return cmp.Or(
		bounded(p, "limits.captcha_after", l.captchaAfter(), span[int]{0, maxEvents}, attempts, nist),
		bounded(p, "limits.lock_after", l.LockAfter, works, attempts, nist),
		bounded(p, "limits.disable_after", l.DisableAfter, works, attempts, nist),
		within("limits.lock_for", time.Duration(l.LockFor), span[time.Duration]{1, year}),
		l.WrongCodes.checkGuesses("wrong_codes"),
		bounded(p, "limits.wrong_codes", l.WrongCodes.n(), works, attempts, nist),
		l.WrongAnswers.checkGuesses("wrong_answers"),
		bounded(p, "limits.wrong_answers", l.WrongAnswers.n(), works, attempts, nist),
		l.FailuresPerAddress.checkGuesses("failures_per_address"),
		l.checkCountries(),
		within("limits.sessions_per_account", l.SessionsPerAccount, span[int]{1, record.MaxSessions}),
	)
}

func (l *Limits) captchaAfter() int {
	if l.CaptchaAfter == nil {
		return 0
	}
	return *l.CaptchaAfter
}

// A span is what lies from least to most.
type span[T int | time.Duration] struct{ least, most T }

func (s span[T]) has(value T) bool { return s.least <= value && value <= s.most }

// within refuses a value that would break something. Zero is not set.
func within[T int | time.Duration](option string, value T, works span[T]) error {
	if value == 0 || works.has(value) {
		return nil
	}
	if least := any(works.least); least == time.Nanosecond {
		return fmt.Errorf("%s: %s is out of range; choose one above 0 and at most %s", directive(option), text(value), text(works.most))
	}
	return fmt.Errorf("%s: %s is out of range; choose %s to %s", directive(option), text(value), text(works.least), text(works.most))
}

// bounded also refuses a value that a standard forbids, unless the policy
// says that it may be insecure.
func bounded[T int | time.Duration](p *Policy, option string, value T, works, standard span[T], source string) error {
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
	return fmt.Errorf("%s: %s is against %s; choose %s %s or, if you must, write insecure behind it",
		directive(option), text(value), source, bound, text(limit))
}

// directive names an option as it stands in a Caddyfile.
func directive(option string) string { return strings.Replace(option, ".", " ", 1) }

func text[T int | time.Duration](value T) string {
	if d, ok := any(value).(time.Duration); ok {
		return shortDuration(d)
	}
	return fmt.Sprint(value)
}
