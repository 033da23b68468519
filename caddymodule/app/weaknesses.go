package app

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Weakness is a weakness of the configuration.
type Weakness struct {
	Company   string // empty if it concerns all or several companies
	Directive string
	At        string // the line in the Caddyfile; empty if the configuration is JSON
	guest.Weakness
}

// Weaknesses lists the settings that are meant for tests or weaker than they should
// be. The log at each start and the doctor both use this list.
func (a *App) Weaknesses() []Weakness {
	found := slices.Concat(weakGuests(a.guests), under("password regex", a.WeakRegex()), a.SharedKeys())
	for code, c := range a.Sorted() {
		for _, w := range c.weaknesses(&a.Policy) {
			w.Company = code
			found = append(found, w)
		}
	}
	for i, w := range found {
		words := w.Directive
		if w.Company != "" {
			words = "company " + w.Company + " " + words
		}
		found[i].At = a.Source.Line(words)
	}
	a.notedMu.Lock()
	defer a.notedMu.Unlock()
	return append(a.merged(found), a.noted...)
}

// fewCompanies are told one by one of what is the same for them.
const fewCompanies = 5

// merged makes one of what is the same for many companies, such as the weakness of an option
// that a thousand companies inherit, or of a default.
func (a *App) merged(found []Weakness) (all []Weakness) {
	without := func(w Weakness) Weakness {
		if w.Company != "" && w.At == a.Source.Line("company "+w.Company) { // it has no line of its own
			w.At = ""
		}
		w.Company = ""
		return w
	}
	companies := map[Weakness][]string{}
	for _, w := range found {
		same := without(w)
		companies[same] = append(companies[same], w.Company)
	}
	for _, w := range found {
		same := without(w)
		switch of := companies[same]; {
		case len(of) <= fewCompanies:
			all = append(all, w)
		case w.Company == of[0]:
			same.Message += fmt.Sprintf(" (of %s and %d more)", of[0], len(of)-1)
			all = append(all, same)
		}
	}
	return all
}

// SharedKeys lists the companies that share an API key with another company.
func (a *App) SharedKeys() (found []Weakness) {
	owners := map[[sha256.Size]byte]string{}
	for code, c := range a.Sorted() {
		for _, key := range c.effective.APIKeys {
			if owner, taken := owners[key]; taken && owner != code {
				found = append(found, Weakness{Company: code, Directive: "api_key", Weakness: guest.Weakness{
					Message: "company " + owner + " has the same one: anybody who knows it can call both",
					Advice:  "give each company keys of its own",
				}})
			}
			owners[key] = code
		}
	}
	return found
}

// exampleKeys are the API keys that Caddyfile.example and docs/examples show.
var exampleKeys = []string{"try-this-key", "only-to-try-it-0001", "only-to-try-it-0002"}

// published reports whether an API key, as its SHA-256, is one of exampleKeys.
func published(key [sha256.Size]byte) bool {
	return slices.ContainsFunc(exampleKeys, func(known string) bool { return sha256.Sum256([]byte(known)) == key })
}

func (c *Company) weaknesses(app *policy.Policy) []Weakness {
	found := append(weakGuests(c.Guests()), under("password regex", c.WeakRegex())...)
	add := func(directive, message, advice string) {
		found = append(found, Weakness{Directive: directive, Weakness: guest.Weakness{Message: message, Advice: advice}})
	}
	e := &c.effective
	for _, mnemocode := range c.unusable {
		add("account "+mnemocode, "nobody can log in to it, since it has no phone, email, login or identity", "add one of them")
	}
	for _, prefix := range unservedCountries(e) {
		add("limits sms_countries", "no gateway serves "+prefix+", so its phones get no SMS", "add it to countries of an sms gateway, or leave it out")
	}
	fixed := fixedPhones(e)
	parts, origin := e.Texts.CodeParts(e.DisplayName(), e.SMSOrigin, e.OTP.Length), "sms"
	if e.SMSOrigin != "" {
		origin = "sms_origin"
	}
	notices := c.Notices
	if notices == nil {
		notices = app.Notices
	}
	methods := "configure sms, or mail and recovery link"
	if e.Recovery.Methods != nil { // the methods are not the default ones
		methods = "name PHONE or MAIL in methods of recovery"
	}
	free := policy.Unlimited(app, &c.Policy)
	beyond := slices.Compact(slices.Sorted(slices.Values(slices.Concat(app.Beyond(), c.Beyond()))))
	for _, w := range []struct {
		is                         bool
		directive, message, advice string
	}{
		{e.NoAPIKey, "api_key", "it is off: anyone may call the auth routes", "set one, unless something in front of Caddy keeps strangers out"},
		{c.shortKey, "api_key", guest.ShortKey.Message, guest.ShortKey.Advice},
		{slices.ContainsFunc(e.APIKeys, published), "api_key", "it is a key of the examples, which everybody knows", guest.ShortKey.Advice},
		{e.Session.Idle > e.Session.Lifetime, "session idle", "it is longer than lifetime, which ends a session first", "shorten idle, or lengthen lifetime"},
		{e.SMS != nil && e.OTP.TTL > e.Session.Temporary, "otp ttl", "it is longer than session temporary, with which the code of a login ends", "shorten ttl, or lengthen temporary"},
		{e.Limits.LockAfter > e.Limits.DisableAfter, "limits lock_after", "it is above disable_after, so passwords are disabled before they are locked", "lower lock_after, or raise disable_after"},
		{e.Captcha == nil, "captcha", "it is off: only rate limits and locks slow down programs that guess", "choose turnstile, hcaptcha, recaptcha, siteverify or pow"},
		{len(fixed) > 0, "otp fixed", "anybody who knows the code needs no SMS to " + strings.Join(fixed, ", "), "take them out when the review or test is over"},
		{e.SMS != nil && e.Limits.SMSPerCompany == tenant.Unlimited, "limits sms_per_company", "it is unlimited: strangers who pump SMS can run up any bill", "set it to what your busiest hour needs, such as 200/1h"},
		{
			e.SMS != nil && parts > 1, origin, fmt.Sprintf("with the company's name, the longest SMS with a code takes %d parts, and gateways charge for each", parts),
			"shorten the name or the texts, use only characters of the SMS alphabet, or leave sms_origin out",
		},
		{
			e.Password.MinLength < tenant.SoleMinLength && e.SecondFactor != tenant.SecondFactorRequired && !e.Hardened, "password min_length",
			fmt.Sprintf("passwords of %d characters can be all that protects an account: NIST SP 800-63B-4, section 3.1.1.2, demands %d without a second factor", e.Password.MinLength, tenant.SoleMinLength),
			fmt.Sprintf("set min_length %d, second_factor required or hardened", tenant.SoleMinLength),
		},
		{
			slices.Contains(e.Recovery.Methods, tenant.ByQuestion), "recovery methods",
			"QUESTION is among them: answers can be guessed or found out, and NIST SP 800-63B-4, section 3.1.1.2, forbids questions", "leave QUESTION out",
		},
		{len(e.Recovery.Methods) == 0, "recovery", "no method is possible: users who forget their password need an operator", methods},
		{policy.TokenIsLogged(e.Recovery.Link), "recovery link", "the token is not in the fragment, so the logs of servers hold it", "put {token} behind #"},
		{
			e.Devices.For == 0 && slices.Contains(notices, message.NoticeName(message.NoticeNewDevice)), "notices",
			"new_device is never sent, since no device is remembered", "add devices 90d, or leave new_device out",
		},
		{len(free) > 0, "limits", "unlimited: " + strings.Join(free, ", "), "give each a number, as high as your users need: see Shared addresses in docs/operators.md"},
		{len(beyond) > 0, "insecure", "beyond what standards allow: " + strings.Join(beyond, ", "), "remove the word insecure, and see what is refused"},
	} {
		if w.is {
			add(w.directive, w.message, w.advice)
		}
	}
	return found
}

// unservedCountries returns the prefixes of sms_countries that no gateway serves.
func unservedCountries(e *tenant.Company) (prefixes []string) {
	for _, prefix := range e.Limits.SMSCountries {
		if e.SMS != nil && prefix != tenant.AllCountries && !message.Reaches(e.SMS, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// fixedPhones returns the phones that have a fixed code, in order.
func fixedPhones(e *tenant.Company) (phones []string) {
	for _, code := range e.OTP.Fixed {
		for _, phone := range code.Phones {
			phones = append(phones, e.ReadPhone(phone))
		}
	}
	slices.Sort(phones)
	return phones
}
