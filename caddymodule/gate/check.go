package gate

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Another proxy can ask whether it may pass a request on (nginx calls this
// auth_request, Traefik and Caddy forward_auth, Envoy ext_authz). It sends the
// request's headers to the path of the option check, and describes its method, host
// and URI in three more headers. The described request then takes the same way as any
// other, but if it may pass, its answer is for the proxy.

// descriptionHeaders describe the request.
var descriptionHeaders = [...]string{"X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri"}

// describe turns another proxy's question into the request that it describes. It
// refuses a description that an application might read as another request.
func (h *Handler) describe(r *http.Request) error {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, 0, nil, nil
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); !trusted {
		return errNotTrusted
	}
	var values [len(descriptionHeaders)]string
	for i, name := range descriptionHeaders {
		if len(r.Header[name]) != 1 {
			return wire.Invalid("Describe the request: send exactly one %s header.", name)
		}
		values[i] = r.Header[name][0]
	}
	method, host, uri := values[0], values[1], values[2]
	switch {
	case !httpguts.ValidHeaderFieldName(method): // both are tokens
		return errMethod
	case !isHost(host):
		return errHost
	}
	u, err := parseTarget(uri)
	if err != nil {
		return err
	}
	if u.Path == h.Check {
		return errOwnPath
	}
	r.Method, r.URL, r.RequestURI, r.Host = method, u, uri, host
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	for _, name := range handshakeHeaders { // a proxy sends these on, but not the next two
		if r.Header[name] != nil {
			r.Header["Upgrade"], r.Header["Connection"] = []string{"websocket"}, append(r.Header["Connection"], "Upgrade")
			break
		}
	}
	return nil
}

// handshakeHeaders are headers that only a WebSocket handshake has.
var handshakeHeaders = [...]string{"Sec-Websocket-Key", "Sec-Websocket-Version", socketProtocols}

// parseTarget parses the path and query of a request. It refuses what a proxy and an
// application could split in different ways.
func parseTarget(uri string) (*url.URL, error) {
	path, _, _ := strings.Cut(uri, "?")
	if !strings.HasPrefix(uri, "/") || strings.Contains(path, `\`) || strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '#' }) {
		return nil, errTarget
	}
	// The other proxy sends the path as it is. With a byte in it that needs an escape, url.URL
	// would not keep its other escapes, which an application may read in other ways.
	u, err := url.ParseRequestURI(escapeBytes(path) + uri[len(path):])
	if err != nil {
		return nil, errTarget
	}
	return u, nil
}

// escapeBytes escapes the bytes that a URL can't have.
func escapeBytes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] < utf8.RuneSelf && !strings.Contains("\"<>^`{|}", s[i:i+1]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// isHost reports whether s is a host with an optional port.
func isHost(s string) bool {
	return s != "" && httpguts.ValidHostHeader(s) && !strings.ContainsAny(s, `,/\?#@ `)
}

// answerCheck tells another proxy that a request may pass, and who the user is.
func (h *Handler) answerCheck(w http.ResponseWriter, r *http.Request, v visitor) {
	header := w.Header()
	if !v.isNobody() {
		h.setIdentity(header, r, &v)
	}
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

var (
	errNotTrusted = &wire.Error{
		Code:    wire.ErrValidation.Code,
		Status:  http.StatusForbidden,
		Message: "Only a proxy that trusted_proxies lists may ask here or, on a Unix socket, one that trusted_proxies_unix lets in.",
	}
	errOwnPath = &wire.Error{
		Code:    wire.ErrNoRoute.Code,
		Status:  http.StatusNotFound,
		Message: "mnemogate answers this path itself: the proxy must send such requests here instead of asking about them.",
	}
	errMethod   = wire.Invalid("X-Forwarded-Method is not a method: the proxy must set it to that of the request.")
	errHost     = wire.Invalid("X-Forwarded-Host is not a host: the proxy must set it to that of the request.")
	errTarget   = wire.Invalid("X-Forwarded-Uri is not the path and query of a request: it begins with a slash, and is escaped as in a URL.")
	errSpelling = wire.Invalid("A header has a name that some applications mistake for an identity header. Leave it out.")
)

// checkCheck refuses a path at which not every request would be a question.
func (h *Handler) checkCheck() error {
	u := url.URL{Path: h.Check}
	switch {
	case h.Check == "":
		return nil
	case !isLiteral(h.Check):
		return fmt.Errorf("check: %q is not a path; begin with a slash, and write it without escapes, .. or // in it", h.Check)
	case targetOf(h.BasePath, &u).kind != protectedPath:
		return fmt.Errorf("check: mnemogate answers %s already; choose another path", h.Check)
	case h.Check == h.Health:
		return fmt.Errorf("check: %s is the path of health; choose another", h.Check)
	case slices.ContainsFunc(h.Public, func(pattern string) bool { return paths.Matches(pattern, h.Check) }):
		return fmt.Errorf("check: public covers %s; choose a path that is not public", h.Check)
	}
	return nil
}
