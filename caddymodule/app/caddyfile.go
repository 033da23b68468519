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
	"github.com/mnemogate/mnemogate/caddymodule/policy"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("mnemogate", parseGlobalOption)
	guest.Belong("the global option mnemogate, in the block at the top of the Caddyfile", new(App).options())
	guest.Belong("the block of a company, company <code> { ... }, in the global option mnemogate", new(Company).options())
	guest.Belong("account <profile_mnemocode> { ... }", new(Account).options())
}

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

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. See options for the syntax.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	a.Source = guest.SourceOf(d)
	d.Next()
	if d.NextArg() {
		return d.Errf("mnemogate: it takes no argument like %s; write company %[1]s { ... } into its block", d.Val())
	}
	a.Companies = map[string]*Company{}
	return guest.CheckedOptions(d, a.Policy.Check, a.options(), append(policy.Repeatable, "company")...)
}

func (a *App) options() guest.Parsers {
	options := a.Policy.Parsers()
	options["store <module>"] = guest.Module("mnemogate.accounts", &a.StoreRaw)
	options["sessions <module>"] = guest.Module("mnemogate.sessions", &a.SessionsRaw)
	options["cache <sessions>"] = guest.OneValue(guest.Int(&a.Cache))
	options["audit_keep <duration>"] = guest.OneValue(guest.Duration(&a.AuditKeep))
	options["company <code> { ... }"] = func(d *caddyfile.Dispenser) error { return parseNamed(d, a.Companies, (*Company).parse) }
	return options
}

// parseNamed parses an option that has a name as its only argument, followed by a
// block or arguments that parse reads. Each name may be given once.
func parseNamed[T any](d *caddyfile.Dispenser, all map[string]*T, parse func(*T, *caddyfile.Dispenser) error) error {
	option := d.Val()
	var name string
	if !d.AllArgs(&name) || name == "" {
		return guest.ErrArguments
	}
	if all[name] != nil {
		return guest.Named(option+" "+name, d.Err("already specified; remove one"))
	}
	all[name] = new(T)
	return guest.Named(option+" "+name, parse(all[name], d))
}

func (c *Company) parse(d *caddyfile.Dispenser) error {
	c.code = d.Val()
	if err := c.checkCode(); err != nil {
		return d.WrapErr(err)
	}
	c.OAuthRaw = map[string]json.RawMessage{}
	c.Accounts = map[string]*Account{}
	options := c.Policy.Parsers()
	maps.Copy(options, c.options())
	return guest.CheckedOptions(d, c.Policy.Check, options, append(policy.Repeatable, "disclaimer", "oauth", "account")...)
}

// options returns the parsers of the options that only a company has.
func (c *Company) options() guest.Parsers {
	return guest.Parsers{
		"name <text>":                           guest.CheckedText(&c.Name, checkName),
		"api_key <key>...|off":                  c.parseAPIKeys,
		"disclaimer <code> [<version>] { ... }": c.parseDisclaimer,
		"oauth <1-5> <module>":                  c.parseOAuth,
		"account <profile_mnemocode> { ... }":   func(d *caddyfile.Dispenser) error { return parseNamed(d, c.Accounts, (*Account).parse) },
	}
}

func (c *Company) parseAPIKeys(d *caddyfile.Dispenser) error {
	keys := d.RemainingArgs()
	switch {
	case len(keys) == 0:
		return guest.ErrArguments
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
		return guest.ErrArguments
	}
	disclaimer := Disclaimer{Code: args[0], Languages: map[string]*DisclaimerTexts{}}
	if len(args) == 2 {
		disclaimer.Version = args[1]
	}
	for _, other := range c.Disclaimers {
		if other.Code == disclaimer.Code {
			return guest.Named("disclaimer "+disclaimer.Code, d.Err("already specified; remove one"))
		}
	}
	err := guest.Complete(d, disclaimer.parse(d), disclaimer.check)
	c.Disclaimers = append(c.Disclaimers, disclaimer)
	return guest.Named("disclaimer "+disclaimer.Code, err)
}

func (c *Company) parseOAuth(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return guest.ErrArguments
	}
	id := d.Val()
	if _, ok := providerID(id); !ok {
		return d.Errf("'%s' is not a provider id; choose 1 to 5", id)
	}
	if c.OAuthRaw[id] != nil {
		return guest.Named("oauth "+id, d.Err("already specified; remove one"))
	}
	var raw json.RawMessage
	err := guest.ParseModule(d, "mnemogate.oauth", &raw)
	c.OAuthRaw[id] = raw
	return guest.Named("oauth "+id, err)
}

func (a *Account) parse(d *caddyfile.Dispenser) error {
	return guest.Options(d, a.options(), "identity")
}

func (a *Account) options() guest.Parsers {
	return guest.Parsers{
		"phone <e164>":             guest.Text(&a.Phone),
		"email <address>":          guest.Text(&a.Email),
		"login <name>":             guest.Text(&a.Login),
		"locale <tag>":             guest.Text(&a.Locale),
		"password <plain_or_hash>": guest.Text(&a.Password),
		"question <text> <answer>": a.parseQuestion,
		"second_factor":            guest.Flag(&a.SecondFactor),
		"must_set_password":        guest.Flag(&a.MustSetPassword),
		"identity <1-5> <subject>": a.parseIdentity,
	}
}

func (a *Account) parseQuestion(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&a.Question, &a.Answer) || a.Question == "" || a.Answer == "" {
		return guest.ErrArguments
	}
	return nil
}

func (a *Account) parseIdentity(d *caddyfile.Dispenser) error {
	var provider, subject string
	if !d.AllArgs(&provider, &subject) {
		return guest.ErrArguments
	}
	n, err := strconv.Atoi(provider)
	if err != nil {
		return d.Errf("'%s' is not a provider id; choose 1 to 5", provider)
	}
	a.Identities = append(a.Identities, Identity{Provider: n, Subject: subject})
	return nil
}
