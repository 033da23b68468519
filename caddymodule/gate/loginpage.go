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

	// The color of buttons and links, as in CSS: `#336699`, `rgb(51, 102, 153)`,
	// `teal`. The page keeps text on it and next to it readable. Default: a blue.
	Color string `json:"color,omitempty"`

	// A directory of texts with one file per language: `lt.json`, `pt-BR.json`. They
	// replace the built-in texts or add a language. Default: the built-in texts, in
	// English, French, German, Lithuanian and Spanish.
	Texts string `json:"texts,omitempty"`
}

func (p *LoginPage) options() page.Options {
	return page.Options{Title: p.Title, Logo: p.Logo, Color: p.Color, Texts: p.Texts}
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

// parseLoginPage parses the companies, which are optional, and the page's
// appearance.
func (h *Handler) parseLoginPage(d *caddyfile.Dispenser) func() error {
	return func() error {
		p := &LoginPage{Companies: d.RemainingArgs()}
		h.LoginPage = p
		return guest.Options(d, map[string]func() error{
			"title": guest.Text(d, &p.Title),
			"logo":  guest.Text(d, &p.Logo),
			"color": guest.Text(d, &p.Color),
			"texts": guest.Text(d, &p.Texts),
		})
	}
}
