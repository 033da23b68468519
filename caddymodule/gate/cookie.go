package gate

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// A session can live in a cookie, which a browser hides from scripts and sends by
// itself. It also sends it when a page of another site triggers the request (see
// crossSite). The application must not see the cookie (see dropCookies).

// defaultCookie is a name that only this host can set (RFC 6265bis, section
// 4.1.3.2). Otherwise a sibling host could log its victim in as another user.
const defaultCookie = "__Host-mnemogate"

// deviceCookie is the cookie with the token of a known device. It outlives sessions.
const deviceCookie = defaultCookie + "-device"

// device returns the token in a request's device cookie, or "". It refuses a cookie if
// another site made the browser send it, and two of them.
func (h *Handler) device(r *http.Request) (string, error) {
	lines := cookies(r, deviceCookie)
	switch {
	case h.Cookie == "" || len(lines) == 0:
		return "", nil
	case mayChange(r) && crossSite(r, h.CORS):
		return "", errCrossSite
	case len(lines) > 1:
		return "", twoCookies(deviceCookie)
	}
	return strings.TrimPrefix(lines[0], bearerScheme), nil
}

// checkCookie refuses names that browsers would not accept as they are meant.
func (h *Handler) checkCookie() error {
	if slices.Contains([]string{"on", "off", "true", "false"}, h.Cookie) {
		return fmt.Errorf("cookie: '%s' would be its name; write cookie alone to have one, or leave it out", h.Cookie)
	}
	if h.Cookie == deviceCookie {
		return fmt.Errorf("cookie: %s is the cookie of known devices; use another name", deviceCookie)
	}
	if h.Cookie != "" && !httpguts.ValidHeaderFieldName(h.Cookie) { // both are tokens (RFC 6265, section 4.1.1)
		return fmt.Errorf("cookie: %q is not a name for a cookie; use letters, digits, dashes and underscores", h.Cookie)
	}
	for _, prefix := range []string{"__Host-", "__Secure-"} {
		if len(h.Cookie) >= len(prefix) && strings.EqualFold(h.Cookie[:len(prefix)], prefix) &&
			(h.Cookie[:len(prefix)] != prefix || len(h.Cookie) == len(prefix)) {
			return fmt.Errorf("cookie: %q: write the prefix as %s, followed by a name", h.Cookie, prefix)
		}
	}
	return nil
}

// setCookie makes the browser store a token, or delete the cookie if the token is
// empty. Without a duration, the browser deletes it when it is closed. The cookie is
// Secure even on plain http: browsers treat localhost as secure.
func setCookie(w http.ResponseWriter, name, token string, keep time.Duration) {
	cookie := &http.Cookie{Name: name, Value: token, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode}
	cookie.MaxAge = int(keep / time.Second)
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// credentials returns the credentials that the request brought, and whether in a cookie. It
// refuses two cookies, and one that another site made the browser send with a request that may
// change something.
func (h *Handler) credentials(r *http.Request) (lines []string, byCookie bool, err error) {
	lines, byCookie = h.sentCredentials(r)
	switch {
	case byCookie && mayChange(r) && crossSite(r, h.CORS):
		return nil, true, errCrossSite
	case byCookie && len(lines) > 1:
		return nil, true, twoCookies(h.Cookie)
	}
	return lines, byCookie, nil
}

// twoCookies refuses two cookies of a name, as a domain and its parent can set them.
func twoCookies(name string) error {
	return &wire.Refusal{Err: wire.ErrHeaderInvalid, Message: "There are two cookies " + name + ". Send one."}
}

// sentCredentials returns a request's Authorization headers or, if they bring no token, its
// cookies in the same form.
func (h *Handler) sentCredentials(r *http.Request) (lines []string, byCookie bool) {
	if !bringsToken(r) && h.Cookie != "" {
		lines = cookies(r, h.Cookie)
	}
	if lines == nil {
		return r.Header["Authorization"], false
	}
	return lines, true
}

// bringsToken reports whether a request's Authorization may be for this gate, however
// malformed. One of another scheme than Bearer is not: a browser or a proxy adds it, for the
// password of a whole site.
func bringsToken(r *http.Request) bool {
	const scheme = "Bearer"
	lines := r.Header["Authorization"]
	return len(lines) > 1 || len(lines) == 1 && len(lines[0]) >= len(scheme) && strings.EqualFold(lines[0][:len(scheme)], scheme)
}

const bearerScheme = "Bearer "

// cookies returns the values of the cookies with a name, each after bearerScheme.
func cookies(r *http.Request, name string) (lines []string) {
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			if of, value, _ := strings.Cut(pair, "="); isCookie(of, name) {
				lines = append(lines, bearerScheme+strings.Trim(value, " \t"))
			}
		}
	}
	return lines
}

// isCookie compares names as net/http does.
func isCookie(of, name string) bool { return textproto.TrimString(of) == name }

// dropCookies removes our cookies from a request, however often they occur. Browsers send
// them also after the option was removed, or got another name than the default.
func (h *Handler) dropCookies(r *http.Request) {
	lines := r.Header["Cookie"]
	if !slices.ContainsFunc(lines, h.mayHaveOurs) {
		return
	}
	left, _ := without(lines, ";", h.isOurs)
	if left == nil {
		delete(r.Header, "Cookie")
		return
	}
	r.Header["Cookie"] = left
}

// mayHaveOurs reports whether isOurs may be true for a pair of the line.
func (h *Handler) mayHaveOurs(line string) bool {
	return strings.Contains(line, defaultCookie) || h.Cookie != "" && strings.Contains(line, h.Cookie)
}

func (h *Handler) isOurs(pair string) bool {
	name, _, _ := strings.Cut(pair, "=")
	return isCookie(name, defaultCookie) || isCookie(name, deviceCookie) || h.Cookie != "" && isCookie(name, h.Cookie)
}

// without returns the lines of a header, which are lists of items, without our items, and
// whether there are others. The others stay, byte for byte.
func without(lines []string, separator string, isOurs func(item string) bool) (left []string, others bool) {
	for _, line := range lines {
		var kept []string
		dropped := false
		for item := range strings.SplitSeq(line, separator) {
			if isOurs(item) {
				dropped = true
				continue
			}
			kept = append(kept, item)
			others = others || strings.Trim(item, " \t") != ""
		}
		if dropped {
			line = strings.Trim(strings.Join(kept, separator), " \t")
		}
		if !dropped || line != "" {
			left = append(left, line)
		}
	}
	return left, others
}

// mayChange reports whether a request may change something: its method writes, or it
// opens a WebSocket, which browsers do not restrict to one origin.
func mayChange(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Header["Upgrade"] != nil // on protected paths only websocket: see Strip
	}
	return true
}

// crossSite reports whether a page of another origin than this one and the listed
// ones made the browser send the request. It assumes so if the request does not say.
// Browsers let no page set these headers.
func crossSite(r *http.Request, origins []string) bool {
	origin, sites := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	if len(origin) == 1 && slices.Contains(origins, origin[0]) {
		return false
	}
	if len(sites) > 0 {
		return len(sites) > 1 || sites[0] != "same-origin" && sites[0] != "none"
	}
	return len(origin) != 1 || !isOwn(origin[0], r)
}

// isOwn reports whether an origin is that of the request's URL. If Caddy itself does
// not terminate TLS, a proxy in front of it may.
func isOwn(origin string, r *http.Request) bool {
	return origin == "https://"+r.Host || r.TLS == nil && origin == "http://"+r.Host
}

var errCrossSite = &wire.Refusal{
	Err:     wire.ErrHeaderInvalid,
	Reason:  wire.CrossSite,
	Message: "A page of another origin may not send this request with the cookie. List the origin in cors, or send the token in Authorization.",
}

// vary returns the headers that answers of the application depend on.
func (h *Handler) vary() string {
	if h.Cookie != "" {
		return "Authorization, Cookie"
	}
	return "Authorization"
}
