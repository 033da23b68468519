package caddymodule

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() { httpcaddyfile.RegisterGlobalOption("mnemogate", parseGlobalOption) }

func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		return nil, d.Err("mnemogate already specified")
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
//		<policies>
//
//		company <code> {
//			api_key <key>...|off
//			disclaimer <code> [<version>] {
//				title <text>
//				description <text>
//				link <url>
//			}
//			oauth <1-5> <module> ...
//			account <profile_mnemocode> {
//				phone <e164>
//				email <address>
//				login <name>
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
// The options company, disclaimer, oauth, account and identity may be repeated.
// The policies are written at Policy.options.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	a.Companies = map[string]*Company{}
	options := a.Policy.options(d)
	options["store"] = guestArg(d, "mnemogate.accounts", &a.StoreRaw)
	options["sessions"] = guestArg(d, "mnemogate.sessions", &a.SessionsRaw)
	options["cache"] = oneValue(d, intValue(&a.Cache))
	naming(options)
	options["company"] = func() error { return parseNamed(d, a.Companies, (*Company).parse) }
	return guestOptions(d, options, "company")
}

// naming makes the errors of all options begin with their names, as those of
// Provision and Validate do.
func naming(options map[string]func() error) map[string]func() error {
	for name, parse := range options {
		options[name] = func() error { return inside(name, parse()) }
	}
	return options
}

func inside(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// parseNamed parses an option whose one argument is a name that may be given
// once, and then what belongs to it.
func parseNamed[T any](d *caddyfile.Dispenser, all map[string]*T, parse func(*T, *caddyfile.Dispenser) error) error {
	option := d.Val()
	var name string
	if !d.AllArgs(&name) || name == "" {
		return inside(option, d.ArgErr())
	}
	if all[name] != nil {
		return d.Errf("%s %s already specified", option, name)
	}
	all[name] = new(T)
	return inside(option+" "+name, parse(all[name], d))
}

func (c *Company) parse(d *caddyfile.Dispenser) error {
	c.OAuthRaw = map[string]json.RawMessage{}
	c.Accounts = map[string]*Account{}
	options := c.Policy.options(d)
	options["api_key"] = func() error { return c.parseAPIKeys(d) }
	options["disclaimer"] = func() error { return c.parseDisclaimer(d) }
	options["oauth"] = func() error { return c.parseOAuth(d) }
	naming(options)
	options["account"] = func() error { return parseNamed(d, c.Accounts, (*Account).parse) }
	return guestOptions(d, options, "disclaimer", "oauth", "account")
}

// parseAPIKeys parses one of
//
//	api_key <key>...
//	api_key off
func (c *Company) parseAPIKeys(d *caddyfile.Dispenser) error {
	keys := d.RemainingArgs()
	switch {
	case len(keys) == 0:
		return d.ArgErr()
	case len(keys) == 1 && keys[0] == "off":
		c.APIKeyOff = true
	case slices.Contains(keys, "off"):
		return d.Err("off takes no keys besides")
	default:
		c.APIKeys = keys
	}
	return nil
}

// parseDisclaimer parses
//
//	disclaimer <code> [<version>] {
//		title <text>
//		description <text>
//		link <url>
//	}
func (c *Company) parseDisclaimer(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return d.ArgErr()
	}
	disclaimer := Disclaimer{Code: args[0]}
	if len(args) == 2 {
		disclaimer.Version = args[1]
	}
	for _, other := range c.Disclaimers {
		if other.Code == disclaimer.Code {
			return d.Errf("%s already specified", disclaimer.Code)
		}
	}
	err := guestOptions(d, naming(map[string]func() error{
		"title":       oneArg(d, &disclaimer.Title),
		"description": oneArg(d, &disclaimer.Description),
		"link":        oneArg(d, &disclaimer.Link),
	}))
	c.Disclaimers = append(c.Disclaimers, disclaimer)
	return err
}

// parseOAuth parses
//
//	oauth <1-5> <module> ...
func (c *Company) parseOAuth(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	id := d.Val()
	if n, err := strconv.Atoi(id); err != nil || n < 1 || n > 5 || id != strconv.Itoa(n) {
		return d.Errf("'%s' is no provider id; choose 1 to 5", id)
	}
	if c.OAuthRaw[id] != nil {
		return d.Errf("%s already specified", id)
	}
	var raw json.RawMessage
	err := parseGuest(d, "mnemogate.oauth", &raw)
	c.OAuthRaw[id] = raw
	return err
}

// parse parses the block of
//
//	account <profile_mnemocode> {
//		phone <e164>
//		email <address>
//		login <name>
//		password <plain or hash>
//		question <text> <answer>
//		second_factor
//		must_set_password
//		identity <1-5> <subject>
//	}
func (a *Account) parse(d *caddyfile.Dispenser) error {
	return guestOptions(d, naming(map[string]func() error{
		"phone":             oneArg(d, &a.Phone),
		"email":             oneArg(d, &a.Email),
		"login":             oneArg(d, &a.Login),
		"password":          oneArg(d, &a.Password),
		"question":          func() error { return a.parseQuestion(d) },
		"second_factor":     noArgs(d, &a.SecondFactor),
		"must_set_password": noArgs(d, &a.MustSetPassword),
		"identity":          func() error { return a.parseIdentity(d) },
	}), "identity")
}

func (a *Account) parseQuestion(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&a.Question, &a.Answer) || a.Question == "" || a.Answer == "" {
		return d.ArgErr()
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
		return d.Errf("'%s' is no provider id; choose 1 to 5", provider)
	}
	a.Identities = append(a.Identities, Identity{Provider: n, Subject: subject})
	return nil
}

// guestArg parses an option whose value is a guest module, which parses the
// arguments and the block behind its name.
func guestArg(d *caddyfile.Dispenser, namespace string, raw *json.RawMessage) func() error {
	return func() error { return parseGuest(d, namespace, raw) }
}

func parseGuest(d *caddyfile.Dispenser, namespace string, raw *json.RawMessage) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	name := d.Val()
	if _, err := caddy.GetModule(namespace + "." + name); err != nil {
		return d.Errf("there is no module '%s'; this Caddy has: %s", name, strings.Join(guestNames(namespace), ", "))
	}
	guest, err := caddyfile.UnmarshalModule(d, namespace+"."+name)
	if err != nil {
		return err
	}
	*raw = caddyconfig.JSONModuleObject(guest, "module", name, nil)
	return nil
}

func guestNames(namespace string) []string {
	names := map[string]bool{}
	for _, module := range caddy.GetModules(namespace) {
		names[module.ID.Name()] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Interface guards
var _ caddyfile.Unmarshaler = (*App)(nil)
