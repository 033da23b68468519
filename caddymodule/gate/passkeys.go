package gate

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

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
	if len(companies) == 0 {
		companies = slices.Collect(maps.Keys(a.Companies))
	}
	for _, code := range slices.Sorted(slices.Values(companies)) {
		c := a.Companies[code]
		if c == nil {
			continue
		}
		s := c.PasskeySettings(&a.Policy)
		if s != nil && !slices.ContainsFunc(hosts, func(host string) bool { return works(s, host) }) {
			return option, code, s.RPID
		}
	}
	return "", "", ""
}

// passkeyURLPath is where browsers look, at the domain of a passkey, for origins elsewhere that
// may use it (WebAuthn Level 3, section 5.11).
const passkeyURLPath = "/.well-known/webauthn"

func (h *Handler) servePasskeyURL(_ http.ResponseWriter, r *http.Request, _ target) (body any, err error) {
	return struct {
		Origins []string `json:"origins"`
	}{h.relatedOrigins(r)}, nil
}

// relatedOrigins returns the origins elsewhere that use passkeys of the request's host.
func (h *Handler) relatedOrigins(r *http.Request) (origins []string) {
	host := hostOf(r)
	for code, c := range h.app.Companies {
		if s := c.PasskeySettings(&h.app.Policy); s != nil && h.Serves(code) && s.RPID == host {
			origins = append(origins, s.Related()...)
		}
	}
	slices.Sort(origins)
	return slices.Compact(origins)
}

// hostOf returns the host that a request is for, in lower case and without a port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return strings.ToLower(host)
}
