package gate

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A page in a browser can't set Authorization when it opens a WebSocket. Of what it
// can set, only the list of protocols is not part of the URL. The gate treats a
// token in that list as if it were in Authorization.

const (
	socketProtocols = "Sec-Websocket-Protocol"
	socketToken     = "mnemogate.bearer."
)

// serveSocket is serve for a request with a list of protocols.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request, t target, next caddyhttp.Handler) error {
	tokens := takeSocketTokens(r.Header)
	if tokens == nil {
		return h.serve(w, r, t, next)
	}
	log := h.logWithoutTokens(r)
	recorder := caddyhttp.NewResponseRecorder(w, nil, nil)
	var err error
	defer func() { log.write(recorder, err) }() // also if the request was cut
	if err = h.serveSocketTokens(recorder, r, t, next, tokens); err != nil {
		recorder.WriteHeader(statusOf(err)) // written here, since Caddy would log the error with the tokens
	}
	return nil
}

func (h *Handler) serveSocketTokens(w http.ResponseWriter, r *http.Request, t target, next caddyhttp.Handler, tokens []string) error {
	if r.Header["Authorization"] != nil || !isHandshake(r) {
		return h.serve(w, r, t, next) // ignores the tokens
	}
	if r.Header[socketProtocols] == nil && kinds[t.kind].serve == nil && !h.IsPublic(r.URL) {
		app.CountProtected(r.Context(), errSocketTokenAlone, false)
		h.deny(w, r, errSocketTokenAlone)
		return nil
	}
	for _, token := range tokens { // two tokens are refused, as two Authorization headers are
		r.Header["Authorization"] = append(r.Header["Authorization"], "Bearer "+token)
	}
	return h.serve(w, r, t, next)
}

// takeSocketTokens removes the tokens from the list of protocols and returns them. If
// there are no other protocols, it deletes the header.
func takeSocketTokens(header http.Header) (tokens []string) {
	left, others := without(header[socketProtocols], ",", func(protocol string) bool {
		token, ours := strings.CutPrefix(strings.Trim(protocol, " \t"), socketToken)
		if ours {
			tokens = append(tokens, token)
		}
		return ours
	})
	switch {
	case tokens == nil:
	case others:
		header[socketProtocols] = left
	default:
		delete(header, socketProtocols)
	}
	return tokens
}

// isExtendedWebSocket reports whether r opens a WebSocket over HTTP/2 or HTTP/3 (RFC
// 8441, RFC 9220). The reverse proxy turns such a request into a GET. An HTTP/1
// request cannot look like one, since a header name cannot contain a colon.
func isExtendedWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.Header.Get(":protocol") == "websocket" || r.ProtoMajor == 3 && r.Proto == "websocket"
}

// isHandshake reports whether a request is a WebSocket handshake (RFC 6455, section
// 4.1; RFC 8441; RFC 9220).
func isHandshake(r *http.Request) bool {
	upgrade := r.Header["Upgrade"]
	return isExtendedWebSocket(r) ||
		r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ProtoMinor >= 1 && len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") &&
			httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade")
}

var errSocketTokenAlone = &wire.Refusal{
	Err:     wire.ErrHeaderInvalid,
	Message: "Offer a second protocol besides the token. The browser closes the WebSocket if the answer selects none of its protocols.",
}
