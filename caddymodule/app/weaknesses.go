package app

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Weakness is a weakness of the configuration.
type Weakness struct {
	Company   string // empty if it concerns all companies
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
	return append(found, a.noted...)
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

func (c *Company) weaknesses(app *policy.Policy) []Weakness {
	found := append(weakGuests(c.Guests()), under("password regex", c.WeakRegex())...)
	add := func(directive, message, advice string) {
		found = append(found, Weakness{Directive: directive, Weakness: guest.Weakness{Message: message, Advice: advice}})
	}
	e := &c.effective
	for _, mnemocode := range c.unusable {
		add("account "+mnemocode, "nobody can log in to it, since it has no phone, email, login or identity", "add one of them")
	}
	for _, prefix := range e.Limits.SMSCountries {
		if e.SMS != nil && prefix != tenant.AllCountries && !message.Reaches(e.SMS, prefix) {
			add("limits sms_countries", "no gateway serves "+prefix+", so its phones get no SMS", "add it to countries of an sms gateway, or leave it out")
		}
	}
	var fixed []string
	for _, code := range e.OTP.Fixed {
		for _, phone := range code.Phones {
			fixed = append(fixed, e.ReadPhone(phone))
		}
	}
	slices.Sort(fixed)
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
	beyond := slices.Compact(slices.Sorted(slices.Values(slices.Concat(app.Insecure, c.Insecure))))
	for _, w := range []struct {
		is                         bool
		directive, message, advice string
	}{
		{e.NoAPIKey, "api_key", "it is off: anyone may call the auth routes", "set one, unless something in front of Caddy keeps strangers out"},
		{c.shortKey, "api_key", guest.ShortKey.Message, guest.ShortKey.Advice},
		{e.Session.Idle > e.Session.Lifetime, "session idle", "it is longer than lifetime, which ends a session first", "shorten idle, or lengthen lifetime"},
		{e.SMS != nil && e.OTP.TTL > e.Session.Temporary, "otp ttl", "it is longer than session temporary, with which the code of a login ends", "shorten ttl, or lengthen temporary"},
		{e.Limits.LockAfter > e.Limits.DisableAfter, "limits lock_after", "it is above disable_after, so passwords are disabled before they are locked", "lower lock_after, or raise disable_after"},
		{e.Captcha == nil, "captcha", "it is off: only rate limits and locks slow down programs that guess", "choose turnstile, hcaptcha, recaptcha, siteverify or pow"},
		{len(fixed) > 0, "otp fixed", "anybody who knows the code needs no SMS to " + strings.Join(fixed, ", "), "take them out when the review or test is over"},
		{e.SMS != nil && e.Limits.SMSPerCompany == tenant.Unlimited, "limits sms_per_company", "it is unlimited: strangers who pump SMS can run up any bill", "set it to what your busiest day needs, such as 2000/24h"},
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

// A Guest is a plugin with the directive that configures it.
type Guest struct {
	Directive string
	Module    any // nil if there is none
}

// Guests lists the company's plugins.
func (c *Company) Guests() []Guest {
	e := &c.effective
	guests := []Guest{{"captcha", e.Captcha}}
	for _, channel := range []Guest{{"sms", e.SMS}, {"mail", e.Mail}} {
		gateways, _ := channel.Module.(message.Gateways)
		for i, g := range gateways {
			guests = append(guests, Guest{guest.Nth(channel.Directive, i), g.Sender})
		}
	}
	guests = append(guests, Guest{"events", e.Events.Receiver}, Guest{"password migrate", e.Migrate}, Guest{"password breached", e.Breached.List})
	for _, id := range slices.Sorted(maps.Keys(e.OAuth)) {
		guests = append(guests, Guest{fmt.Sprintf("oauth %d", id), e.OAuth[id].Provider})
	}
	return guests
}

// Captcha returns the kind of the captcha, or "" for captcha off, and the site key of its
// widget, or "" if it has none.
func (c *Company) Captcha() (kind, siteKey string) {
	return c.effective.CaptchaType, c.effective.SiteKey
}

// Icons returns the file of each provider's icon, by provider_id.
func (c *Company) Icons() map[int]string {
	icons := map[int]string{}
	for id, o := range c.effective.OAuth {
		if o.Icon != "" {
			icons[id] = o.Icon
		}
	}
	return icons
}

// ProvidersWithout returns, in order, the providers that send the browser back to no address
// with this end.
func (c *Company) ProvidersWithout(end string) (ids []int) {
	for _, id := range slices.Sorted(maps.Keys(c.effective.OAuth)) {
		if !slices.ContainsFunc(c.effective.OAuth[id].RedirectURIs, func(uri string) bool { return strings.HasSuffix(uri, end) }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// AnswersByForm reports whether a provider of the company lets the browser post its answer.
func (c *Company) AnswersByForm() bool {
	for _, o := range c.effective.OAuth {
		if o.ResponseMode == tenant.FormPost {
			return true
		}
	}
	return false
}

func weakGuests(guests []Guest) (found []Weakness) {
	for _, g := range guests {
		if weak, ok := g.Module.(guest.Weak); ok {
			found = append(found, under(g.Directive, weak.Weaknesses())...)
		}
	}
	return found
}

// under adds the directive to each weakness.
func under(directive string, weak []guest.Weakness) (found []Weakness) {
	for _, w := range weak {
		found = append(found, Weakness{Directive: directive, Weakness: w})
	}
	return found
}
