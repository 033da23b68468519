package gate

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A browser that opens a protected path without a valid session is redirected to the
// login page, which redirects it back. Other clients get an error, as on any site.

// redirectToLogin redirects a browser to the login page if a login would help, and reports
// whether it did. found is the session that was not enough, if there is one.
func (h *Handler) redirectToLogin(w http.ResponseWriter, r *http.Request, t target, found record.Session, err error) bool {
	if len(h.LoginPages) == 0 || !isNavigation(r) || !needsLogin(err) {
		return false
	}
	company := h.loginCompany(t, found)
	if company == "" {
		return false
	}
	if t.asked { // the browser did not request the path of the question
		r = r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, *r))
	}
	defer bodies.Limit(w, r)()
	h.redirect(w, siteOf(r, t)+h.loginURL(r, company, err))
	return true
}

func (h *Handler) redirect(w http.ResponseWriter, to string) {
	header := w.Header()
	header.Add("Vary", h.vary())
	header.Set("Cache-Control", "no-store")
	header.Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// isNavigation reports whether a browser will show the answer as a page. A request
// with a token comes from a program, and the cookie of a login would be ignored.
func isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header["Upgrade"] != nil || bringsToken(r) {
		return false
	}
	if modes := r.Header["Sec-Fetch-Mode"]; modes != nil && (len(modes) > 1 || modes[0] != "navigate") {
		return false
	}
	for _, line := range r.Header["Accept"] {
		for accepted := range strings.SplitSeq(line, ",") {
			if media, params, err := mime.ParseMediaType(accepted); err == nil && media == "text/html" && isWanted(params) {
				return true
			}
		}
	}
	return false
}

// isWanted reports whether a media range has no weight or a positive one (RFC 9110,
// section 12.4.2).
func isWanted(params map[string]string) bool {
	q, weighted := params["q"]
	weight, _ := strconv.ParseFloat(q, 64)
	return !weighted || weight > 0
}

// needsLogin reports whether a login would fix the error.
func needsLogin(err error) bool {
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok && refusal.Reason == wire.WrongRole {
		return false
	}
	return slices.ContainsFunc(
		[]*wire.Error{wire.ErrHeaderMissing, wire.ErrHeaderInvalid, wire.ErrTokenInvalid, wire.ErrTokenExpired, wire.ErrSessionInvalid},
		func(mended *wire.Error) bool { return errors.Is(err, mended) })
}

// loginCompany returns the company whose users may open a path, or "" if there is
// none. A session that needs more is raised on the page of its own company.
func (h *Handler) loginCompany(t target, found record.Session) string {
	switch company, ambiguous := h.named(t); {
	case ambiguous || company != "" && !h.hasPage(company):
		return ""
	case company != "":
		return company
	case h.hasPage(found.Company):
		return found.Company
	}
	return h.LoginPages[0].Companies[0]
}

// loginURL returns the URL of the login page. Its query holds the path to return to, and
// what the session lacks: a second factor, or a login of this age in seconds.
func (h *Handler) loginURL(r *http.Request, company string, err error) string {
	var query []string
	asked := originalURL(r)
	if to := asked.RequestURI(); isReturnTo(to) {
		query = append(query, "return_to="+url.QueryEscape(to))
	}
	refusal, _ := errors.AsType[*wire.Refusal](err)
	switch {
	case refusal != nil && refusal.Reason == wire.OneFactor:
		query = append(query, "mfa=1")
	case refusal != nil && refusal.MaxAge > 0:
		query = append(query, fmt.Sprintf("fresh=%d", refusal.MaxAge/time.Second))
	}
	page := h.base(r) + "/" + company + "/" + loginPath
	if query != nil {
		page += "?" + strings.Join(query, "&")
	}
	return page
}

// siteOf returns the site of a request that another proxy asks about, if it says so.
// Traefik would take a path alone for one of mnemogate's own address.
func siteOf(r *http.Request, t target) string {
	if schemes := r.Header["X-Forwarded-Proto"]; t.asked && len(schemes) == 1 && (schemes[0] == "http" || schemes[0] == "https") {
		return schemes[0] + "://" + r.Host
	}
	return ""
}

// base returns the prefix of /{company_code} in the URLs that the browser uses: the
// prefix that other directives removed, followed by base_path.
func (h *Handler) base(r *http.Request) string {
	off, ok := strings.CutSuffix(originalURL(r).EscapedPath(), r.URL.EscapedPath())
	if base := off + h.BasePath; ok && isReturnTo(base+"/") {
		return base
	}
	return h.BasePath
}

// originalURL returns the URL that the browser requested, before any rewrite.
func originalURL(r *http.Request) *url.URL {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		return original.URL
	}
	return r.URL
}

// maxReturnTo is what proxies let through as the address of a request. Links with a signed
// request or a saved search can be so long.
const maxReturnTo = 8192

// isReturnTo reports whether a login may redirect to s. It accepts only a path of
// this origin, with a query and a fragment, that stays one for every browser, even
// if something decodes it once more or removes dots and slashes. It may refuse safe
// paths. The page applies the same rule (returnto.js).
func isReturnTo(s string) bool {
	if s == "" || len(s) > maxReturnTo || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return false // a browser drops some of these (WHATWG URL, section 4.4)
	}
	path := s
	if end := strings.IndexAny(s, "?#"); end >= 0 {
		path = s[:end]
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return false
	}
	return !strings.Contains(decoded, "//") && !strings.ContainsFunc(decoded, func(c rune) bool { return c < ' ' || c == '\\' || c == 0x7f })
}
