package gate

import (
	"math"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. See options for the syntax.
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
	return guest.CheckedOptions(d, check, h.options(), "fresh", "role", "login_page")
}

func init() {
	guest.Belong("the directive mnemogate, in the block of a site", new(Handler).options())
	guest.Belong("the global option servers { ... }, in the block at the top of the Caddyfile", guest.Parsers{
		"trusted_proxies": nil, "trusted_proxies_strict": nil, "trusted_proxies_unix": nil, "client_ip_headers": nil,
	})
}

func (h *Handler) options() guest.Parsers {
	return guest.Parsers{
		"header <name>":         guest.Text(&h.Header),
		"company_header <name>": guest.Text(&h.CompanyHeader),
		"forward role|email|phone|session|auth_time|auth_methods|token...": guest.List(&h.Forward),
		"assertion <audience> { ... }":                                     h.ParseAssertion,
		"health <path>":                                                    guest.Text(&h.Health),
		"check <path>":                                                     guest.Text(&h.Check),
		"base_path <path>":                                                 guest.Text(&h.BasePath),
		"forward_authorization":                                            guest.Flag(&h.ForwardAuthorization),
		"require_api_key":                                                  guest.Flag(&h.RequireAPIKey),
		"max_body <size>":                                                  guest.OneValue(sizeValue(&h.MaxBody)),
		"cors <origin>...":                                                 guest.List(&h.CORS),
		"public <path>...":                                                 guest.List(&h.Public),
		"company <code>...":                                                h.parseCompanies,
		"fresh <duration> <path>...":                                       h.ParseFresh,
		"role <role> <path>...":                                            h.ParseRole,
		"mfa <path>...":                                                    guest.List(&h.MFA),
		"cookie [<name>]":                                                  h.parseCookie,
		"websocket_token":                                                  guest.Flag(&h.WebSocketToken),
		"login_page [<company>...] { ... }":                                h.parseLoginPage,
		"self_service [<duration>] [mfa]":                                  h.parseSelfService,
	}
}

// parseCompanies parses the codes of the companies that the site serves.
func (h *Handler) parseCompanies(d *caddyfile.Dispenser) error {
	if err := guest.List(&h.Companies)(d); err != nil {
		return err
	}
	if d.NextBlock(d.Nesting()) {
		return d.Err("here it only names companies: write their blocks into the global option mnemogate, in the block at the top of the Caddyfile")
	}
	return nil
}

// parseCookie parses an optional name.
func (h *Handler) parseCookie(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) > 1 || len(args) == 1 && args[0] == "" {
		return guest.ErrArguments
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
