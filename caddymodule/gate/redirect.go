package gate

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A person whose browser comes to a protected path without a good session is sent to
// the login page, which sends it back. Programs are told what is wrong as ever.

// toLogin sends a browser to the login page, if that is what a request without a good
// session is in need of, and reports whether it has.
func (h *Handler) toLogin(w http.ResponseWriter, r *http.Request, t target, err error) bool {
	if h.LoginPage == nil || !isNavigation(r) || !needsLogin(err) {
		return false
	}
	company := h.loginCompany(r, t)
	if company == "" {
		return false
	}
	defer bodies.Limit(w, r)()
	header := w.Header()
	header.Add("Vary", h.vary())
	header.Set("Cache-Control", "no-store")
	header.Set("Location", h.loginURL(r, company, err))
	w.WriteHeader(http.StatusSeeOther)
	return true
}

// isNavigation reports whether a browser is to show the answer as a page. One with
// Authorization is a program's, and the cookie of a login would not be looked at.
func isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header["Upgrade"] != nil || r.Header["Authorization"] != nil {
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

// isWanted reports whether the parameters of a media range have no weight, or a
// positive one (RFC 9110, 12.4.2).
func isWanted(params map[string]string) bool {
	q, weighted := params["q"]
	weight, _ := strconv.ParseFloat(q, 64)
	return !weighted || weight > 0
}

// needsLogin reports whether a login mends what a request was refused for.
func needsLogin(err error) bool {
	for _, mended := range []*wire.Error{wire.ErrHeaderMissing, wire.ErrHeaderInvalid, wire.ErrTokenInvalid, wire.ErrTokenExpired, wire.ErrSessionInvalid} {
		if errors.Is(err, mended) {
			return true
		}
	}
	return false
}

// loginCompany is the company whose users pass at a path; empty if nobody does.
func (h *Handler) loginCompany(r *http.Request, t target) string {
	service, err := h.service(r.Context())
	if err != nil {
		return ""
	}
	switch company, ambiguous := named(service, t); {
	case ambiguous || company != "" && !h.hasPage(company):
		return ""
	case company != "":
		return company
	}
	return h.LoginPage.Companies[0]
}

// loginURL is where the page is, with what it must know: where to go behind the login
// and, if there is one that is too old, after how many seconds it is.
func (h *Handler) loginURL(r *http.Request, company string, err error) string {
	var query []string
	asked := asked(r)
	if to := asked.RequestURI(); isReturnTo(to) {
		query = append(query, "return_to="+url.QueryEscape(to))
	}
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok && refusal.MaxAge > 0 {
		query = append(query, fmt.Sprintf("fresh=%d", refusal.MaxAge/time.Second))
	}
	page := h.base(r) + "/" + company + "/" + loginPath
	if query != nil {
		page += "?" + strings.Join(query, "&")
	}
	return page
}

// base is what stands before /{company_code} in the URLs that the browser knows:
// base_path, and before it what other directives took off the path.
func (h *Handler) base(r *http.Request) string {
	off, ok := strings.CutSuffix(asked(r).EscapedPath(), r.URL.EscapedPath())
	if base := off + h.BasePath; ok && isReturnTo(base+"/") {
		return base
	}
	return h.BasePath
}

// asked is the URL that the browser asked for, whatever was made of it since.
func asked(r *http.Request) *url.URL {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		return original.URL
	}
	return r.URL
}

// maxReturnTo keeps the page's own URL short enough for anyone.
const maxReturnTo = 2048

// isReturnTo reports whether a login may go on to s: a path of this origin, with a
// query and a fragment, for each browser and for whoever decodes it once more or
// takes dots and slashes out of it. What it leaves out is safe, too, at worst. The
// page has the same rule (returnto.js).
func isReturnTo(s string) bool {
	if s == "" || len(s) > maxReturnTo || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return false // a browser drops some of these (WHATWG URL, 4.4)
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
