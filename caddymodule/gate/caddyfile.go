package gate

import (
	"math"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens:
//
//	mnemogate {
//		header <name>
//		company_header <name>
//		base_path <path>
//		forward_authorization
//		require_api_key
//		max_body <size>
//		cors <origin>...
//		public <path>...
//		company <code>...
//		fresh <duration> <path>...
//		role <role> <path>...
//		forward role|email|phone|session|auth_time|auth_methods...
//		assertion <audience> {
//			issuer <url>
//			ttl <duration>
//			header <name>
//			key <PEM>...
//		}
//		health <path>
//		check <path>
//		cookie [<name>]
//		websocket_token
//		login_page [<company>...] {
//			title <text>
//			logo <file>
//			logo_dark <file>
//			favicon <file>
//			color <css color>
//			style <file>
//			texts <dir>
//			link [<language>] <text> <url> [support]
//			signup [<language>] <text> <url>
//			remember
//		}
//		self_service [<duration>]
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	h.Source = guest.SourceOf(d)
	d.Next()
	if d.NextArg() {
		return d.Errf("mnemogate: it takes no argument like %s; to serve only some companies, write the option company into its block", d.Val())
	}
	check := func() error {
		so := *h
		so.setDefaults()
		return so.check()
	}
	options := h.options(d)
	guest.Misplaced(d, options, inGlobal, app.GlobalOptions()...)
	return guest.CheckedOptions(d, check, guest.Naming(options), "fresh", "role")
}

// options returns the parsers of the options. app.SiteOptions names them, too.
func (h *Handler) options(d *caddyfile.Dispenser) map[string]func() error {
	return map[string]func() error{
		"header":                guest.Text(d, &h.Header),
		"company_header":        guest.Text(d, &h.CompanyHeader),
		"forward":               guest.List(d, &h.Forward),
		"assertion":             func() error { return h.ParseAssertion(d) },
		"health":                guest.Text(d, &h.Health),
		"check":                 guest.Text(d, &h.Check),
		"base_path":             guest.Text(d, &h.BasePath),
		"forward_authorization": guest.Flag(d, &h.ForwardAuthorization),
		"require_api_key":       guest.Flag(d, &h.RequireAPIKey),
		"max_body":              guest.OneValue(d, sizeValue(&h.MaxBody)),
		"cors":                  guest.List(d, &h.CORS),
		"public":                guest.List(d, &h.Public),
		"company":               func() error { return h.parseCompanies(d) },
		"fresh":                 func() error { return h.ParseFresh(d) },
		"role":                  func() error { return h.ParseRole(d) },
		"cookie":                func() error { return h.parseCookie(d) },
		"websocket_token":       guest.Flag(d, &h.WebSocketToken),
		"login_page":            func() error { return h.parseLoginPage(d) },
		"self_service":          func() error { return h.parseSelfService(d) },
	}
}

const inGlobal = "into the global option mnemogate, in the block at the top of the Caddyfile"

// parseCompanies parses the codes of the companies that the site serves.
func (h *Handler) parseCompanies(d *caddyfile.Dispenser) error {
	if err := guest.List(d, &h.Companies)(); err != nil {
		return err
	}
	if d.NextBlock(d.Nesting()) {
		return d.Err("here it only names companies: write their blocks " + inGlobal)
	}
	return nil
}

// parseCookie parses an optional name.
func (h *Handler) parseCookie(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) > 1 || len(args) == 1 && args[0] == "" {
		return d.ArgErr()
	}
	h.Cookie = append(args, defaultCookie)[0]
	return nil
}

func sizeValue(to *int64) guest.Value {
	return func(arg string) string {
		n, err := humanize.ParseBytes(arg)
		if err != nil || n < 1 || n > math.MaxInt32 { // 0 would mean the default
			return "not a size like 16KiB"
		}
		*to = int64(n)
		return ""
	}
}
