package gate

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// A session can go on in a cookie, which a browser keeps from scripts and sends by
// itself: also where another site's page has it send a request (crossSite), and to
// the application, which is to see nothing of it (dropCookies).

// defaultCookie can be set by this very host alone (RFC 6265bis, 4.1.3.2): a sibling
// could else log its victim in as someone else.
const defaultCookie = "__Host-mnemogate"

// checkCookie refuses names that browsers would take otherwise than they are meant.
func (h *Handler) checkCookie() error {
	isToken := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}
	if strings.ContainsFunc(h.Cookie, func(c rune) bool { return !isToken(c) }) {
		return fmt.Errorf("cookie: %q is no name for a cookie; use letters, digits, dashes and underscores", h.Cookie)
	}
	for _, prefix := range []string{"__Host-", "__Secure-"} {
		if len(h.Cookie) >= len(prefix) && strings.EqualFold(h.Cookie[:len(prefix)], prefix) &&
			(h.Cookie[:len(prefix)] != prefix || len(h.Cookie) == len(prefix)) {
			return fmt.Errorf("cookie: %q: write the prefix as %s, with a name behind it", h.Cookie, prefix)
		}
	}
	return nil
}

// setCookie has the browser keep a token, or forget an empty one. It is Secure also
// on a site of plain http, such as localhost, which browsers take for secure.
func (h *Handler) setCookie(w http.ResponseWriter, token string) {
	cookie := &http.Cookie{Name: h.Cookie, Value: token, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// credentials returns what brought does, unless it is a cookie that another site has
// the browser send, with a request that may change something.
func (h *Handler) credentials(r *http.Request, room []string) ([]string, error) {
	lines, byCookie := h.brought(r, room)
	if byCookie && changes(r) && crossSite(r, h.CORS) {
		return nil, errCrossSite
	}
	return lines, nil
}

// brought returns a request's lines of Authorization or, where it has none, its
// cookies as if they stood there: so two of them are refused as two lines are. The room,
// which may be nil, spares an allocation.
func (h *Handler) brought(r *http.Request, room []string) (lines []string, byCookie bool) {
	if lines = r.Header["Authorization"]; lines != nil || h.Cookie == "" {
		return lines, false
	}
	lines = h.cookies(r, room)
	return lines, len(lines) > 0
}

func (h *Handler) cookies(r *http.Request, lines []string) []string {
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			if name, value, _ := strings.Cut(pair, "="); h.isCookie(name) {
				lines = append(lines, "Bearer "+strings.Trim(value, " \t"))
			}
		}
	}
	return lines
}

// isCookie takes names as net/http does.
func (h *Handler) isCookie(name string) bool { return textproto.TrimString(name) == h.Cookie }

// dropCookies takes our cookie out of a request, however often it is there. The
// others stay, byte for byte.
func (h *Handler) dropCookies(r *http.Request) {
	var kept []string
	for _, line := range r.Header["Cookie"] {
		var pairs []string
		dropped := false
		for pair := range strings.SplitSeq(line, ";") {
			if name, _, _ := strings.Cut(pair, "="); h.isCookie(name) {
				dropped = true
			} else {
				pairs = append(pairs, pair)
			}
		}
		if dropped {
			line = strings.TrimLeft(strings.Join(pairs, ";"), " \t")
		}
		if !dropped || line != "" {
			kept = append(kept, line)
		}
	}
	if kept == nil {
		delete(r.Header, "Cookie")
		return
	}
	r.Header["Cookie"] = kept
}

// changes reports whether a request may change something: that it writes, or opens a
// WebSocket, which no origin policy of the browser holds back.
func changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Header["Upgrade"] != nil // strip has left no other than websocket
	}
	return true
}

// crossSite reports whether a page of another origin than this one and these has the
// browser send a request. Who does not say so is taken for one, too. Browsers let no
// page set these headers.
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

// isOwn reports whether an origin is that of the request's URL. Where Caddy does not
// end TLS itself, who stands before it may.
func isOwn(origin string, r *http.Request) bool {
	return origin == "https://"+r.Host || r.TLS == nil && origin == "http://"+r.Host
}

var errCrossSite = &wire.Refusal{
	Err:     wire.ErrHeaderInvalid,
	Reason:  wire.CrossSite,
	Message: "With the cookie, a page of another origin may not ask this; list the origin in cors, or send the token in Authorization.",
}

// vary is what answers for the application depend on.
func (h *Handler) vary() string {
	if h.Cookie != "" {
		return "Authorization, Cookie"
	}
	return "Authorization"
}
