package page

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
)

func init() { guest.Belong("login_page { ... }", new(Options).options(nil)) }

// Parse parses a block of options.
func (o *Options) Parse(d *caddyfile.Dispenser) error {
	return guest.Options(d, o.options(d), "link", "signup")
}

func (o *Options) options(d *caddyfile.Dispenser) map[string]func() error {
	return map[string]func() error{
		"title <text>":       guest.Text(d, &o.Title),
		"logo <file>":        guest.Text(d, &o.Logo),
		"logo_dark <file>":   guest.Text(d, &o.LogoDark),
		"favicon <file>":     guest.Text(d, &o.Favicon),
		"color <color>":      guest.Text(d, &o.Color),
		"color_dark <color>": guest.Text(d, &o.ColorDark),
		"style <file>":       guest.Text(d, &o.Style),
		"texts <dir>":        guest.Text(d, &o.Texts),
		"link [<language>] <text> <url> [support]": parseLink(d, &o.Links, "support"),
		"signup [<language>] <text> <url>":         parseLink(d, &o.SignUp, ""),
		"remember":                                 guest.Flag(d, &o.Remember),
	}
}

// parseLink parses a link, which the word support may follow.
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
			return guest.ErrArguments
		}
		l.Text, l.URL = args[0], args[1]
		*links = append(*links, l)
		if err := l.Check(); err != nil {
			return d.WrapErr(err)
		}
		return nil
	}
}
