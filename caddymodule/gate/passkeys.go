package gate

import (
	"net/url"
	"slices"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/passkey"
)

// WithoutPasskeys implements bypass.Gate. Clients of self_service may be pages of the
// origins in cors, or apps, which use the passkeys of rp_id.
func (h *Handler) WithoutPasskeys(a *app.App, hosts []string) (option, company, rpID string) {
	option, works := "login_page", (*passkey.Settings).WorksOn
	companies := h.Companies
	switch {
	case len(h.LoginPages.companies()) > 0:
		companies = h.LoginPages.companies()
	case h.LoginPages == nil && h.SelfService > 0:
		option, works = "self_service", (*passkey.Settings).Owns
		hosts = slices.Clone(hosts)
		for _, origin := range h.CORS {
			if u, err := url.Parse(origin); err == nil {
				hosts = append(hosts, u.Hostname())
			}
		}
	case h.LoginPages == nil:
		return "", "", ""
	}
	for code, c := range a.Sorted() {
		s := c.PasskeySettings(&a.Policy)
		if s == nil || len(companies) > 0 && !slices.Contains(companies, code) {
			continue
		}
		if !slices.ContainsFunc(hosts, func(host string) bool { return works(s, host) }) {
			return option, code, s.RPID
		}
	}
	return "", "", ""
}
