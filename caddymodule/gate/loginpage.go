package gate

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/app"
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

	page *page.Page
}

// LoginPages are the login pages of a site.
type LoginPages []*LoginPage

// UnmarshalJSON reads a list of pages, or one.
func (all *LoginPages) UnmarshalJSON(content []byte) error {
	if bytes.HasPrefix(content, []byte("{")) {
		content = slices.Concat([]byte("["), content, []byte("]"))
	}
	var pages []*LoginPage
	err := caddy.StrictUnmarshalJSON(content, &pages)
	for _, p := range pages {
		if p != nil { // a null
			*all = append(*all, p)
		}
	}
	return err
}

// check refuses several pages for one company.
func (all LoginPages) check() error {
	named := all.companies()
	if slices.ContainsFunc(all, func(p *LoginPage) bool { return len(all) > 1 && len(p.Companies) == 0 }) {
		return errors.New("there are several; name the companies of each, as in login_page acme")
	}
	for i, code := range named {
		if slices.Contains(named[:i], code) {
			return fmt.Errorf("it names the company %q twice; remove one", code)
		}
	}
	return nil
}

// companies returns the codes of the companies that have a page, those of the first one
// first.
func (all LoginPages) companies() (codes []string) {
	for _, p := range all {
		codes = append(codes, p.Companies...)
	}
	return codes
}

// pageOptions returns the options of a page, with the icons of its companies' providers:
// with those of others, it would tell who else is there.
func (h *Handler) pageOptions(p *LoginPage) page.Options {
	options, codes := p.Options, p.Companies
	if len(codes) == 0 {
		codes = h.served()
	}
	options.Icons = map[string]string{}
	for _, code := range codes {
		if company := h.app.Companies[code]; company != nil { // checkLoginPages refuses others
			for id, provider := range company.Effective().OAuth {
				options.Icons[page.IconName(code, id)] = provider.Icon
			}
		}
	}
	return options
}

// served returns the codes of the companies that the site serves.
func (h *Handler) served() []string {
	if h.Companies != nil {
		return h.Companies
	}
	return slices.Sorted(maps.Keys(h.app.Companies))
}

// checkLoginPages sets the default company, the site's only one. It refuses a page without
// a company, or with a captcha that it can't show, and notes providers that can't work.
func (h *Handler) checkLoginPages() error {
	if len(h.LoginPages) == 0 {
		return nil
	}
	if err := h.LoginPages.check(); err != nil {
		return fmt.Errorf("login_page: %w", err)
	}
	served := h.served()
	if len(h.LoginPages.companies()) == 0 {
		if len(served) > 1 {
			return fmt.Errorf("login_page: this site serves several companies; name those that have the page, as in login_page %s (the first is for paths that name no company)", strings.Join(served[:min(len(served), 3)], " "))
		}
		h.LoginPages[0].Companies = slices.Clone(served)
	}
	for i, p := range h.LoginPages {
		option := guest.Nth("login_page", i)
		for _, code := range p.Companies {
			if !slices.Contains(served, code) {
				return fmt.Errorf("%s: this site serves no company %q; name one that it does", option, code)
			}
			if c := h.app.Companies[code].Effective(); page.HasWidget(c.CaptchaType) && c.SiteKey == "" {
				return fmt.Errorf("%s: the page can't show the captcha of company %s without a key; set site_key in the block of captcha %s", option, code, c.CaptchaType)
			}
			h.noteProviders(option, code)
		}
	}
	return nil
}

// noteProviders records the providers of a company whose button on the page can't work.
func (h *Handler) noteProviders(option, code string) {
	address := "/" + code + "/" + loginPath
	providers := h.app.Companies[code].Effective().OAuth
	for _, id := range slices.Sorted(maps.Keys(providers)) {
		if slices.ContainsFunc(providers[id].RedirectURIs, func(uri string) bool { return strings.HasSuffix(uri, address) }) {
			continue
		}
		h.app.Note([]app.Weakness{{Company: code, Directive: option, At: h.Source.Line(option), Weakness: guest.Weakness{
			Message: fmt.Sprintf("the button of provider %d fails, because the provider can't send the browser back to the page", id),
			Advice:  fmt.Sprintf("list https://<host>%s%s as a redirect_uri, here and at the provider", h.BasePath, address),
		}}})
	}
}

// parseLoginPage parses the companies, which are optional, and the page's options.
func (h *Handler) parseLoginPage(d *caddyfile.Dispenser) error {
	p := &LoginPage{Companies: d.RemainingArgs()}
	h.LoginPages = append(h.LoginPages, p)
	if err := h.LoginPages.check(); err != nil {
		return d.WrapErr(err)
	}
	return p.Options.Parse(d)
}
