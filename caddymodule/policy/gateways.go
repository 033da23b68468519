package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// An SMSGateway is one `sms` of a policy.
type SMSGateway struct {
	// The name in metrics, the audit log and `doctor`. Default: the host that the module
	// calls, with the port if another gateway has this name, or else the module's name.
	Name string `json:"name,omitempty"`

	// The calling codes of the phones that this gateway serves, such as `+370`, or longer
	// prefixes. Default: all.
	Countries []string `json:"countries,omitempty"`

	// The module that sends the SMS.
	SenderRaw json.RawMessage `json:"sender,omitempty" caddy:"namespace=mnemogate.sms inline_key=module"`
}

// A MailGateway is one `mail` of a policy.
type MailGateway struct {
	// The name in metrics, the audit log and `doctor`. Default: the host that the module
	// calls, with the port if another gateway has this name, or else the module's name.
	Name string `json:"name,omitempty"`

	// The module that sends the mails.
	SenderRaw json.RawMessage `json:"sender,omitempty" caddy:"namespace=mnemogate.mail inline_key=module"`
}

func (p *Policy) parseSMS(d *caddyfile.Dispenser) error {
	var g SMSGateway
	block := d.NewFromNextSegment()
	err := parseGateway(block, "mnemogate.sms", &g.SenderRaw, guest.Parsers{
		"name <name>": guest.Text(&g.Name),
		"countries <prefix>...": func(d *caddyfile.Dispenser) error {
			return guest.Complete(d, guest.List(&g.Countries)(d), func() error { return checkCountries(g.Countries) })
		},
	})
	p.SMS = append(p.SMS, g)
	return err
}

func (p *Policy) parseMail(d *caddyfile.Dispenser) error {
	var g MailGateway
	block := d.NewFromNextSegment()
	err := parseGateway(block, "mnemogate.mail", &g.SenderRaw, guest.Parsers{
		"name <name>": guest.Text(&g.Name),
	})
	p.Mail = append(p.Mail, g)
	return err
}

// parseGateway parses a gateway. In its block, our options stand beside those of the module,
// which gets the block without them.
func parseGateway(d *caddyfile.Dispenser, namespace string, raw *json.RawMessage, options guest.Parsers) error {
	given := map[string]bool{}
	for d.Next(); d.NextArg(); {
	}
	for d.NextBlock(0) {
		for syntax, parse := range options {
			name, _, _ := strings.Cut(syntax, " ")
			if d.Val() != name || d.Nesting() > 1 {
				continue
			}
			if given[name] {
				return d.Errf("%s already specified; remove one", name)
			}
			given[name] = true
			words := 1 + d.CountRemainingArgs()
			if err := guest.Syntax(d, syntax, parse); err != nil {
				return guest.Inside(name, err)
			}
			d.DeleteN(words)
			break
		}
		for d.NextArg() {
		}
	}
	d.Reset()
	d.Next()
	return guest.ParseModule(d, namespace, raw)
}

// checkGateways refuses names with placeholders, and countries that no phone has.
func (p *Policy) checkGateways() error {
	const advice = "write the name as metrics and the log should have it"
	for i, g := range p.SMS {
		if err := cmp.Or(guest.Inside("name", guest.CheckNoPlaceholder(g.Name, advice)), guest.Inside("countries", checkCountries(g.Countries))); err != nil {
			return guest.Inside(guest.Nth("sms", i), err)
		}
	}
	for i, g := range p.Mail {
		if err := guest.CheckNoPlaceholder(g.Name, advice); err != nil {
			return guest.Inside(guest.Nth("mail", i)+": name", err)
		}
	}
	return nil
}

func (p *Policy) loadGateways(ctx caddy.Context) (err error) {
	for i := range p.SMS {
		g := &p.SMS[i]
		countries := readCountries(g.Countries)
		if slices.Contains(countries, tenant.AllCountries) {
			countries = nil
		}
		if p.sms, err = loadGateway(ctx, p.sms, g, "sms", g.Name, countries); err != nil {
			return err
		}
	}
	for i := range p.Mail {
		g := &p.Mail[i]
		if p.mail, err = loadGateway(ctx, p.mail, g, "mail", g.Name, nil); err != nil {
			return err
		}
	}
	return nil
}

// loadGateway appends the gateway whose module is in the field SenderRaw of host.
func loadGateway(ctx caddy.Context, before message.Gateways, host any, directive, name string, countries []string) (message.Gateways, error) {
	directive = guest.Nth(directive, len(before))
	sender, err := guest.Load[message.Sender](ctx, host, "SenderRaw")
	if err != nil {
		return nil, guest.Inside(directive, err)
	}
	taken := func() bool {
		return slices.ContainsFunc(before, func(g *message.Gateway) bool { return g.Name == name })
	}
	if remote, ok := sender.(guest.Remote); ok && name == "" {
		if name, _, _ = net.SplitHostPort(remote.Endpoint()); taken() {
			name = remote.Endpoint()
		}
	}
	if module, ok := sender.(caddy.Module); ok && name == "" {
		name = module.CaddyModule().ID.Name()
	}
	if taken() {
		return nil, fmt.Errorf("%s: two gateways have the name %s; write name and another one into the block of one", directive, name)
	}
	return append(before, &message.Gateway{Sender: sender, Name: name, Countries: countries}), nil
}
