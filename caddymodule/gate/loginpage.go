package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/page"
)

// LoginPage is the page where users log in and out with a browser.
type LoginPage struct {
	// The companies that have the page on this site. Browsers that ask for a path
	// without a company are sent to the page of the first one. Default: the site's
	// only company. If the site has several companies, name those that have the
	// page.
	Companies []string `json:"companies,omitempty"`

	// The title of the page and of the browser's window. Default: the company's
	// `name`.
	Title string `json:"title,omitempty"`

	// The file of the image above the title: SVG, PNG, JPEG, WebP or GIF. It is read
	// when the configuration is loaded. Default: none.
	Logo string `json:"logo,omitempty"`

	// The file of the image that replaces the logo in dark mode. Default: the logo.
	LogoDark string `json:"logo_dark,omitempty"`

	// The file of the icon in the browser's tab: SVG, PNG or ICO. Default: the logo
	// or, without one, a lock.
	Favicon string `json:"favicon,omitempty"`

	// The color of buttons and links, as in CSS: `#336699`, `rgb(51, 102, 153)`,
	// `teal`. The page keeps text on it and next to it readable. Default: a blue.
	Color string `json:"color,omitempty"`

	// The file of a style sheet of your own, which the page loads after its own. It
	// may use fonts and images in files next to it, as `url(fonts/name.woff2)`.
	// docs/login-page.md lists the properties and classes that it can rely on.
	// Default: none.
	Style string `json:"style,omitempty"`

	// A directory of texts with one file per language: `lt.json`, `pt-BR.json`. They
	// replace the built-in texts or add a language. Default: the built-in texts, in
	// English, French, German, Lithuanian and Spanish.
	Texts string `json:"texts,omitempty"`

	// Links below the form, such as imprint, privacy policy and support. They stay
	// visible on each screen. Default: none.
	Links []page.Link `json:"links,omitempty"`

	// Where users without an account create one. With several languages, the page
	// shows the link of the user's language. Default: none; the page then does not
	// offer it.
	SignUp []page.Link `json:"signup,omitempty"`

	// Whether the page has a checkbox "Stay logged in". With it the cookie lasts for
	// the session's `lifetime`, and otherwise until the browser is closed. The
	// session ends after `idle` without a request in both cases. Default: false.
	Remember bool `json:"remember,omitempty"`
}

// Options returns the options of the page. icons has the file of each provider's icon
// by page.IconName.
func (p *LoginPage) Options(icons map[string]string) page.Options {
	return page.Options{
		Title: p.Title, Logo: p.Logo, LogoDark: p.LogoDark, Favicon: p.Favicon, Color: p.Color, Style: p.Style, Texts: p.Texts,
		Links: p.Links, SignUp: p.SignUp, Remember: p.Remember, Icons: icons,
	}
}

// icons returns the files of the icons of all companies' providers.
func (h *Handler) icons() map[string]string {
	icons := map[string]string{}
	for code, company := range h.app.Sorted() {
		for id, icon := range company.Icons() {
			icons[page.IconName(code, id)] = icon
		}
	}
	return icons
}

// checkLoginPage sets the default company, the site's only one, and refuses a page
// without a company.
func (h *Handler) checkLoginPage() error {
	p := h.LoginPage
	if p == nil {
		return nil
	}
	served := slices.Clone(h.Companies)
	if served == nil {
		for code := range h.app.Sorted() {
			served = append(served, code)
		}
	}
	if len(p.Companies) == 0 {
		if len(served) > 1 {
			return fmt.Errorf("login_page: this site serves several companies; name those that have the page, first the one for paths that name no company, as in login_page %s", strings.Join(served, " "))
		}
		p.Companies = served
	}
	for i, code := range p.Companies {
		if !slices.Contains(served, code) {
			return fmt.Errorf("login_page: this site serves no company %q; name one that it does", code)
		}
		if slices.Contains(p.Companies[:i], code) {
			return fmt.Errorf("login_page: it names the company %q twice; remove one", code)
		}
		for _, g := range h.app.Companies[code].Guests() {
			if kind := widgetWithoutKey(g.Module); kind != "" {
				return fmt.Errorf("login_page: the page can't show the captcha of company %s without a key; set site_key in the block of captcha %s", code, kind)
			}
		}
	}
	return nil
}

// widgetWithoutKey returns the kind of a captcha if the page has a widget for it but
// the captcha has no key for the widget.
func widgetWithoutKey(captcha any) string {
	widget, ok := captcha.(guest.Widget)
	if !ok || widget.WidgetKey() != "" {
		return ""
	}
	if module, ok := captcha.(caddy.Module); ok && page.HasWidget(module.CaddyModule().ID.Name()) {
		return module.CaddyModule().ID.Name()
	}
	return ""
}

// parseLoginPage parses the companies, which are optional, and the page's options.
func (h *Handler) parseLoginPage(d *caddyfile.Dispenser) func() error {
	return func() error {
		p := &LoginPage{Companies: d.RemainingArgs()}
		h.LoginPage = p
		return guest.Options(d, map[string]func() error{
			"title":     guest.Text(d, &p.Title),
			"logo":      guest.Text(d, &p.Logo),
			"logo_dark": guest.Text(d, &p.LogoDark),
			"favicon":   guest.Text(d, &p.Favicon),
			"color":     guest.Text(d, &p.Color),
			"style":     guest.Text(d, &p.Style),
			"texts":     guest.Text(d, &p.Texts),
			"link":      parseLink(d, &p.Links, "support"),
			"signup":    parseLink(d, &p.SignUp, ""),
			"remember":  guest.Flag(d, &p.Remember),
		}, "link", "signup")
	}
}

// parseLink parses
//
//	[<language>] <text> <url> [support]
//
// where support is the word that may follow.
func parseLink(d *caddyfile.Dispenser, links *[]page.Link, support string) func() error {
	return func() error {
		var l page.Link
		args := d.RemainingArgs()
		if last := len(args) - 1; last > 1 && support != "" && args[last] == support {
			args, l.Support = args[:last], true
		}
		if len(args) == 3 {
			l.Language, args = args[0], args[1:]
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
