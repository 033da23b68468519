package page

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
)

// Parse parses a block of options.
func (o *Options) Parse(d *caddyfile.Dispenser) error {
	return guest.Options(d, map[string]func() error{
		"title":     guest.Text(d, &o.Title),
		"logo":      guest.Text(d, &o.Logo),
		"logo_dark": guest.Text(d, &o.LogoDark),
		"favicon":   guest.Text(d, &o.Favicon),
		"color":     guest.Text(d, &o.Color),
		"style":     guest.Text(d, &o.Style),
		"texts":     guest.Text(d, &o.Texts),
		"link":      parseLink(d, &o.Links, "support"),
		"signup":    parseLink(d, &o.SignUp, ""),
		"remember":  guest.Flag(d, &o.Remember),
	}, "link", "signup")
}

// parseLink parses
//
//	[<language>] <text> <url> [support]
//
// where support is the word that may follow.
func parseLink(d *caddyfile.Dispenser, links *[]Link, support string) func() error {
	return func() error {
		var l Link
		args := d.RemainingArgs()
		if last := len(args) - 1; last > 1 && support != "" && args[last] == support {
			args, l.Support = args[:last], true
		}
		if len(args) == 3 {
			l.Language, args = message.Locale(args[0]), args[1:]
		}
		if len(args) != 2 {
			return d.ArgErr()
		}
		l.Text, l.URL = args[0], args[1]
		*links = append(*links, l)
		if err := l.Check(); err != nil {
			return d.WrapErr(err)
		}
		return nil
	}
}
