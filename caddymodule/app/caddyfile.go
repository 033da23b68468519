package app

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

func init() { httpcaddyfile.RegisterGlobalOption("mnemogate", parseGlobalOption) }

func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // so that the error has its line
		return nil, d.Err("mnemogate already specified; write all its options into one block")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "mnemogate", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Syntax:
//
//	mnemogate {
//		store <module> ...
//		sessions <module> ...
//		cache <sessions>
//		audit_keep <duration>
//		<policies>
//
//		company <code> {
//			name <text>
//			api_key <key>...|off
//			disclaimer <code> [<version>] {
//				title [<language>] <text>
//				description [<language>] <text>
//				link [<language>] <url>
//			}
//			oauth <1-5> <module> ...
//			account <profile_mnemocode> {
//				phone <e164>
//				email <address>
//				login <name>
//				locale <language tag>
//				password <plain or hash>
//				question <text> <answer>
//				second_factor
//				must_set_password
//				identity <1-5> <subject>
//			}
//			<policies>
//		}
//	}
//
// The options company, disclaimer, oauth, account and identity may be repeated, and
// each text of a disclaimer may be given again with a language tag.
// See policy.Policy.Options for the policies.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	a.Source = guest.SourceOf(d)
	d.Next()
	if d.NextArg() {
		return d.Errf("mnemogate: it takes no argument like %s; write company %[1]s { ... } into its block", d.Val())
	}
	a.Companies = map[string]*Company{}
	options := a.Policy.Options(d)
	options["store"] = guest.Module(d, "mnemogate.accounts", &a.StoreRaw)
	options["sessions"] = guest.Module(d, "mnemogate.sessions", &a.SessionsRaw)
	options["cache"] = guest.OneValue(d, guest.Int(&a.Cache))
	options["audit_keep"] = guest.OneValue(d, guest.Duration(&a.AuditKeep))
	guest.Misplaced(d, options, "into the block of a company: company <code> { ... }", companyOptions...)
	guest.Misplaced(d, options, inSite, SiteOptions...)
	guest.Naming(options)
	options["company"] = func() error { return parseNamed(d, a.Companies, (*Company).parse) }
	if err := guest.CheckedOptions(d, a.Policy.Check, options, "company"); err != nil {
		return err
	}
	return a.checkWhole(d)
}

var (
	// appOptions are the options that no company has.
	appOptions = []string{"store", "sessions", "cache", "audit_keep"}
	// companyOptions are the options that only a company has.
	companyOptions = []string{"name", "api_key", "disclaimer", "oauth", "account"}
	// SiteOptions are the options that only the directive mnemogate of a site has.
	SiteOptions = []string{
		"assertion", "base_path", "check", "company_header", "cookie", "cors", "forward", "forward_authorization", "fresh",
		"header", "health", "login_page", "max_body", "public", "require_api_key", "role", "self_service", "websocket_token",
	}
)

const inSite = "into the directive mnemogate, in the block of a site"

// GlobalOptions lists the options of the global option mnemogate and of a company's
// block in it.
func GlobalOptions() []string {
	return slices.Concat([]string{"company"}, appOptions, companyOptions, slices.Collect(maps.Keys(new(App).Policy.Options(nil))))
}

// checkWhole checks for missing options after the whole block was read.
func (a *App) checkWhole(d *caddyfile.Dispenser) error {
	if err := a.checkCompanies(); err != nil {
		return d.WrapErr(err)
	}
	for code, c := range a.Sorted() {
		if err := c.checkGiven(&a.Policy); err != nil {
			at := caddyfile.NewDispenser([]caddyfile.Token{c.at})
			at.Next()
			return at.WrapErr(guest.Inside("company "+code, err))
		}
	}
	return nil
}

// parseNamed parses an option that has a name as its only argument, followed by a
// block or arguments that parse reads. Each name may be given once.
func parseNamed[T any](d *caddyfile.Dispenser, all map[string]*T, parse func(*T, *caddyfile.Dispenser) error) error {
	option := d.Val()
	var name string
	if !d.AllArgs(&name) || name == "" {
		return guest.Inside(option, d.ArgErr())
	}
	if all[name] != nil {
		return d.Errf("%s %s already specified", option, name)
	}
	all[name] = new(T)
	return guest.Inside(option+" "+name, parse(all[name], d))
}

func (c *Company) parse(d *caddyfile.Dispenser) error {
	c.code, c.at = d.Val(), d.Token()
	if err := c.checkCode(); err != nil {
		return d.WrapErr(err)
	}
	c.OAuthRaw = map[string]json.RawMessage{}
	c.Accounts = map[string]*Account{}
	options := c.Policy.Options(d)
	options["name"] = guest.CheckedText(d, &c.Name, checkName)
	options["api_key"] = func() error { return c.parseAPIKeys(d) }
	guest.Misplaced(d, options, "next to the companies, one level up", appOptions...)
	guest.Misplaced(d, options, inSite, SiteOptions...)
	guest.Naming(options)
	options["disclaimer"] = func() error { return c.parseDisclaimer(d) }
	options["oauth"] = func() error { return c.parseOAuth(d) }
	options["account"] = func() error { return parseNamed(d, c.Accounts, (*Account).parse) }
	return guest.CheckedOptions(d, c.Policy.Check, options, "disclaimer", "oauth", "account")
}

func (c *Company) parseAPIKeys(d *caddyfile.Dispenser) error {
	keys := d.RemainingArgs()
	switch {
	case len(keys) == 0:
		return d.ArgErr()
	case len(keys) == 1 && keys[0] == "off":
		c.APIKeyOff = true
	case slices.Contains(keys, "off"):
		return d.Err("off takes no other keys; write it alone, or remove it")
	default:
		c.APIKeys = keys
	}
	return guest.CheckKeys(d, c.APIKeys)
}

func (c *Company) parseDisclaimer(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return guest.Inside("disclaimer", d.ArgErr())
	}
	disclaimer := Disclaimer{Code: args[0], Languages: map[string]*DisclaimerTexts{}}
	if len(args) == 2 {
		disclaimer.Version = args[1]
	}
	for _, other := range c.Disclaimers {
		if other.Code == disclaimer.Code {
			return d.Errf("disclaimer %s already specified", disclaimer.Code)
		}
	}
	err := guest.Complete(d, disclaimer.parse(d), disclaimer.check)
	c.Disclaimers = append(c.Disclaimers, disclaimer)
	return guest.Inside("disclaimer "+disclaimer.Code, err)
}

func (c *Company) parseOAuth(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return guest.Inside("oauth", d.ArgErr())
	}
	id := d.Val()
	if _, ok := providerID(id); !ok {
		return d.Errf("oauth: '%s' is not a provider id; choose 1 to 5", id)
	}
	if c.OAuthRaw[id] != nil {
		return d.Errf("oauth %s already specified", id)
	}
	var raw json.RawMessage
	err := guest.ParseModule(d, "mnemogate.oauth", &raw)
	c.OAuthRaw[id] = raw
	return guest.Inside("oauth "+id, err)
}

func (a *Account) parse(d *caddyfile.Dispenser) error {
	mnemocode := d.Val()
	check := func() error { return a.check(mnemocode) }
	err := guest.CheckedOptions(d, check, guest.Naming(map[string]func() error{
		"phone":             guest.Text(d, &a.Phone),
		"email":             guest.Text(d, &a.Email),
		"login":             guest.Text(d, &a.Login),
		"locale":            guest.Text(d, &a.Locale),
		"password":          guest.Secret(d, &a.Password),
		"question":          func() error { return a.parseQuestion(d) },
		"second_factor":     guest.Flag(d, &a.SecondFactor),
		"must_set_password": guest.Flag(d, &a.MustSetPassword),
		"identity":          func() error { return a.parseIdentity(d) },
	}), "identity")
	return guest.Complete(d, err, check)
}

func (a *Account) parseQuestion(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&a.Question, &a.Answer) || a.Question == "" || a.Answer == "" {
		return d.Err("wrong argument count: write the question and the answer, each in quotes") // ArgErr may repeat the answer
	}
	return nil
}

func (a *Account) parseIdentity(d *caddyfile.Dispenser) error {
	var provider, subject string
	if !d.AllArgs(&provider, &subject) {
		return d.ArgErr()
	}
	n, err := strconv.Atoi(provider)
	if err != nil {
		return d.Errf("'%s' is not a provider id; choose 1 to 5", provider)
	}
	a.Identities = append(a.Identities, Identity{Provider: n, Subject: subject})
	return nil
}
