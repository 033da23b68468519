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

	// The options of the page.
	page.Options
}

// pageOptions returns the options of the page, with the icons of all companies'
// providers.
func (h *Handler) pageOptions() page.Options {
	options := h.LoginPage.Options
	options.Icons = map[string]string{}
	for code, company := range h.app.Sorted() {
		for id, icon := range company.Icons() {
			options.Icons[page.IconName(code, id)] = icon
		}
	}
	return options
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
			return fmt.Errorf("login_page: this site serves several companies; name those that have the page, as in login_page %s (the first is for paths that name no company)", strings.Join(served, " "))
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
func (h *Handler) parseLoginPage(d *caddyfile.Dispenser) error {
	p := &LoginPage{Companies: d.RemainingArgs()}
	h.LoginPage = p
	return p.Options.Parse(d)
}
