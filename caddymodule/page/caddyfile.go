package page

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
)

func init() { guest.Belong("login_page { ... }", new(Options).options()) }

// Parse parses a block of options.
func (o *Options) Parse(d *caddyfile.Dispenser) error {
	return guest.Options(d, o.options(), "link", "signup")
}

func (o *Options) options() guest.Parsers {
	return guest.Parsers{
		"title <text>":       guest.Text(&o.Title),
		"logo <file>":        guest.Text(&o.Logo),
		"logo_dark <file>":   guest.Text(&o.LogoDark),
		"favicon <file>":     guest.Text(&o.Favicon),
		"color <color>":      guest.Text(&o.Color),
		"color_dark <color>": guest.Text(&o.ColorDark),
		"style <file>":       guest.Text(&o.Style),
		"texts <dir>":        guest.Text(&o.Texts),
		"link [<language>] <text> <url> [support]": parseLink(&o.Links, "support"),
		"signup [<language>] <text> <url>":         parseLink(&o.SignUp, ""),
		"remember":                                 guest.Flag(&o.Remember),
	}
}

// parseLink parses a link, which the word support may follow.
func parseLink(links *[]Link, support string) guest.Parser {
	return func(d *caddyfile.Dispenser) error {
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
