package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

const (
	day  = 24 * time.Hour
	year = 366 * day
)

// An Option is an option of a block with one value: a duration, a number or a rate. Its
// parser, its check and its row in docs/configuration.md derive from this. Its field, in
// package tenant, has its manual, and DefaultPolicy its default.
type Option struct {
	Block  string
	Syntax string            // a rate may be unlimited only if this ends in it
	Of     func(*Policy) any // a *tenant.Duration, a *int, a **int, whose value may be 0, or a *tenant.Rate
	Works  Span              // the values that work; of a rate, its numbers
	Source string            // the standard that bounds it and its section; empty for none
	Bound  Span              // what the standard allows: anything else needs the word insecure
}

// A Span is a range of numbers or nanoseconds, inclusive.
type Span struct{ Least, Most int64 }

// upTo begins with a millisecond. In JSON, a bare number is nanoseconds, which people take
// for seconds.
func upTo(most time.Duration) Span { return Span{int64(time.Millisecond), int64(most)} }

var (
	anyLife  = upTo(record.LongestSession) // that sessions and links can have
	anyCount = Span{1, tenant.MaxEvents}
	attempts = Span{1, 100}
)

const (
	nistSessions = "NIST SP 800-63B-4, section 2.1.3"
	nistAttempts = "NIST SP 800-63B-4, section 3.2.2"
)

// Options are the options of blocks that have one value.
var Options = []Option{
	{"session", "temporary <duration>", func(p *Policy) any { return &p.Session.Temporary }, anyLife, "NIST SP 800-63B-4, section 3.1.3", upTo(15 * time.Minute)},
	{"session", "idle <duration>", func(p *Policy) any { return &p.Session.Idle }, anyLife, nistSessions, upTo(30 * day)},
	{"session", "lifetime <duration>", func(p *Policy) any { return &p.Session.Lifetime }, anyLife, nistSessions, upTo(30 * day)},
	{"session", "stream_recheck <duration>", func(p *Policy) any { return &p.Session.StreamRecheck }, Span{int64(100 * time.Millisecond), int64(time.Hour)}, "", Span{}},

	{"otp", "length <digits>", func(p *Policy) any { return &p.OTP.Length }, Span{4, 10}, "OWASP ASVS 5.0, 6.5.4", Span{6, 10}},
	{"otp", "ttl <duration>", func(p *Policy) any { return &p.OTP.TTL }, upTo(day), "OWASP ASVS 5.0, 6.5.5", upTo(10 * time.Minute)},
	{"otp", "renewals <n>", func(p *Policy) any { return &p.OTP.Renewals }, Span{0, 100}, "", Span{}},

	{"password", "min_length <characters>", func(p *Policy) any { return &p.Password.MinLength }, Span{1, 128}, "OWASP ASVS 5.0, 6.2.1", Span{8, 128}},

	{"recovery", "link_ttl <duration>", func(p *Policy) any { return &p.Recovery.LinkTTL }, anyLife, "NIST SP 800-63B-4, section 4.2.1.2", upTo(day)},
	{"recovery", "welcome_ttl <duration>", func(p *Policy) any { return &p.Recovery.WelcomeTTL }, upTo(30 * day), "", Span{}},

	{"limits", "captcha_after <n>", func(p *Policy) any { return &p.Limits.CaptchaAfter }, Span{0, tenant.MaxEvents}, nistAttempts, Span{0, 100}},
	{"limits", "lock_after <n>", func(p *Policy) any { return &p.Limits.LockAfter }, anyCount, nistAttempts, attempts},
	{"limits", "lock_for <duration>", func(p *Policy) any { return &p.Limits.LockFor }, upTo(year), "", Span{}},
	{"limits", "disable_after <n>", func(p *Policy) any { return &p.Limits.DisableAfter }, anyCount, nistAttempts, attempts},
	{"limits", "failures_per_address <n>/<duration>", func(p *Policy) any { return &p.Limits.FailuresPerAddress }, anyCount, "", Span{}},
	{"limits", "logins_per_address <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.LoginsPerAddress }, anyCount, "", Span{}},
	{"limits", "wrong_codes <n>/<duration>", func(p *Policy) any { return &p.Limits.WrongCodes }, anyCount, nistAttempts, attempts},
	{"limits", "wrong_answers <n>/<duration>", func(p *Policy) any { return &p.Limits.WrongAnswers }, anyCount, nistAttempts, attempts},
	{"limits", "sms_per_account <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.SMSPerAccount }, anyCount, "", Span{}},
	{"limits", "sms_per_phone <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.SMSPerPhone }, anyCount, "", Span{}},
	{"limits", "sms_per_address <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.SMSPerAddress }, anyCount, "", Span{}},
	{"limits", "sms_per_company <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.SMSPerCompany }, anyCount, "", Span{}},
	{"limits", "sms_per_country <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.SMSPerCountry }, anyCount, "", Span{}},
	{"limits", "mails_per_account <n>/<duration>|unlimited", func(p *Policy) any { return &p.Limits.MailsPerAccount }, anyCount, "", Span{}},
	{"limits", "sessions_per_account <n>", func(p *Policy) any { return &p.Limits.SessionsPerAccount }, Span{1, record.MaxSessions}, "", Span{}},

	{"devices", "", func(p *Policy) any { return &cmp.Or(p.Devices, new(tenant.Devices)).For }, upTo(year), "", Span{}},

	{"issued_tokens", "lifetime <duration>", func(p *Policy) any { return &p.issuedTokens().Lifetime }, upTo(year), "", Span{}},
	{"issued_tokens", "per_account <n>", func(p *Policy) any { return &p.issuedTokens().PerAccount }, Span{1, 1000}, "", Span{}},
	{"issued_tokens", "acting <duration>", func(p *Policy) any { return &p.issuedTokens().Acting }, upTo(day), "", Span{}},
}

func (p *Policy) issuedTokens() *tenant.IssuedTokens {
	return cmp.Or(p.IssuedTokens, new(tenant.IssuedTokens))
}

// Name is the option's name in its block.
func (o *Option) Name() string {
	name, _, _ := strings.Cut(o.Syntax, " ")
	return name
}

// Directive is the option in a Caddyfile, such as "session idle".
func (o *Option) Directive() string { return strings.TrimSpace(o.Block + " " + o.Name()) }

// key is the option's name in Policy.Insecure.
func (o *Option) key() string { return o.Block + "." + o.Name() }

// optionsOf adds the parsers of a block's Options to those of its others.
func (p *Policy) optionsOf(block string, parsers guest.Parsers) guest.Parsers {
	for _, o := range Options {
		switch {
		case o.Block != block || o.Syntax == "":
		case o.Source == "":
			parsers[o.Syntax] = guest.OneValue(o.value(p))
		default:
			parsers[o.Syntax+" [insecure]"] = p.insecure(o.key(), o.value(p))
		}
	}
	return parsers
}

// value reads the option's value.
func (o *Option) value(p *Policy) guest.Value {
	return func(arg string) string {
		switch to := o.Of(p).(type) {
		case *tenant.Duration:
			return guest.Duration(to)(arg)
		case *int:
			if arg == "unlimited" && o.Source == nistAttempts {
				return "not possible here, because it limits how much can be guessed; choose a number"
			}
			return guest.Int(to)(arg)
		case **int:
			n, err := strconv.Atoi(arg)
			if err != nil {
				return "not a number"
			}
			*to = &n
		case *tenant.Rate:
			if err := to.UnmarshalText([]byte(arg)); err != nil {
				return "not a rate; " + err.Error()
			}
		}
		return ""
	}
}

// checkOptions refuses values of Options that would not work or that a standard forbids.
func (p *Policy) checkOptions() error {
	for _, o := range Options {
		if err := o.check(p); err != nil {
			return fmt.Errorf("%s: %w", o.Directive(), err)
		}
	}
	return nil
}

func (o *Option) check(p *Policy) error {
	var n int64
	switch value := o.Of(p).(type) {
	case *tenant.Duration:
		n = int64(*value)
	case *int:
		n = int64(*value)
	case **int:
		n = int64(*cmp.Or(*value, new(int)))
	case *tenant.Rate:
		if *value == tenant.Unlimited && strings.HasSuffix(o.Syntax, "|unlimited") {
			return nil
		} else if *value == tenant.Unlimited {
			return fmt.Errorf("it can't be unlimited, because it limits how much can be guessed; %w", tenant.ErrRate)
		}
		n = int64(value.N)
	}
	switch {
	case n == 0: // it is not set, or 0 works
		return nil
	case !o.Works.has(n):
		return fmt.Errorf("%s is out of range; choose %s to %s", o.text(n), o.text(o.Works.Least), o.text(o.Works.Most))
	case o.Source != "" && !o.Bound.has(n) && !slices.Contains(p.Insecure, o.key()):
		return fmt.Errorf("%s is against %s; choose %s or, if you must, add the word insecure after it", o.text(n), o.Source, o.Rule())
	}
	return nil
}

// Beyond lists what Insecure names and a standard would refuse.
func (p *Policy) Beyond() []string {
	strict := *p
	strict.Insecure = nil
	return slices.DeleteFunc(slices.Clone(p.Insecure), func(name string) bool {
		if name == argon2idKey {
			return strict.checkArgon2id(p.Password.Argon2id) == nil
		}
		return !slices.ContainsFunc(Options, func(o Option) bool { return o.key() == name && o.check(&strict) != nil })
	})
}

func (s Span) has(n int64) bool { return s.Least <= n && n <= s.Most }

// Rule says what the standard demands, as in "at most 10m".
func (o *Option) Rule() string {
	if o.Bound.Least > o.Works.Least {
		return "at least " + o.text(o.Bound.Least)
	}
	return "at most " + o.text(o.Bound.Most)
}

func (o *Option) text(n int64) string {
	if _, ok := o.Of(new(Policy)).(*tenant.Duration); ok {
		return tenant.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// argon2idKey is the name of password argon2id in Policy.Insecure.
const argon2idKey = "password.argon2id"

// mayExceed lists what Policy.Insecure may name.
func mayExceed() (names []string) {
	for _, o := range Options {
		if o.Source != "" {
			names = append(names, o.key())
		}
	}
	return append(names, argon2idKey)
}
