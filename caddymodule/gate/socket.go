package gate

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A browser can't set Authorization where it opens a WebSocket. Of what its pages can
// set, the list of protocols is the one place that is in no URL: so a token may come
// there, and is then taken as if it stood in Authorization.

const (
	socketProtocols = "Sec-Websocket-Protocol"
	socketToken     = "mnemogate.bearer."
)

// serveSocket is serve for a request with a list of protocols.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	tokens := takeSocketTokens(r.Header)
	if tokens == nil {
		return h.serve(w, r, next)
	}
	// Caddy has made a copy of the headers for its logs, and knows of no token there.
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	began := time.Now()
	var err error
	defer func() { h.logSocket(w, r, began, err) }() // also when it was cut
	if err = h.serveSocketTokens(w, r, next, tokens); err != nil {
		w.WriteHeader(statusOf(err)) // here, since Caddy would log it with that copy
	}
	return nil
}

func (h *Handler) serveSocketTokens(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, tokens []string) error {
	if r.Header["Authorization"] != nil || !opensWebSocket(r) {
		return h.serve(w, r, next) // the tokens are not looked at
	}
	if r.Header[socketProtocols] == nil && !h.isPublic(r.URL) {
		app.CountProtected(errSocketTokenAlone, false)
		h.deny(w, r, errSocketTokenAlone)
		return nil
	}
	for _, token := range tokens { // two are refused as two lines are
		r.Header["Authorization"] = append(r.Header["Authorization"], "Bearer "+token)
	}
	return h.serve(w, r, next)
}

// takeSocketTokens takes the tokens out of the list of protocols. The other protocols
// stay, byte for byte; if there is none, so does no header.
func takeSocketTokens(header http.Header) (tokens []string) {
	var lines []string
	others := false
	for _, line := range header[socketProtocols] {
		var kept []string
		taken := false
		for protocol := range strings.SplitSeq(line, ",") {
			if token, ours := strings.CutPrefix(strings.Trim(protocol, " \t"), socketToken); ours {
				tokens = append(tokens, token)
				taken = true
				continue
			}
			kept = append(kept, protocol)
			others = others || strings.Trim(protocol, " \t") != ""
		}
		if taken {
			line = strings.Trim(strings.Join(kept, ","), " \t")
		}
		if !taken || line != "" {
			lines = append(lines, line)
		}
	}
	switch {
	case tokens == nil:
	case others:
		header[socketProtocols] = lines
	default:
		delete(header, socketProtocols)
	}
	return tokens
}

// opensWebSocket reports whether a request is a WebSocket's handshake (RFC 6455, 4.1;
// RFC 8441; RFC 9220).
func opensWebSocket(r *http.Request) bool {
	upgrade := r.Header["Upgrade"]
	return r.Method == http.MethodGet && len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") || isExtendedWebSocket(r)
}

// logSocket writes a line in the place of Caddy's, where it logs requests.
func (h *Handler) logSocket(w http.ResponseWriter, r *http.Request, began time.Time, err error) {
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if err == nil && (server == nil || server.Logs == nil) {
		return
	}
	status := 0
	if recorder, ok := w.(caddyhttp.ResponseRecorder); ok {
		status = recorder.Status()
	}
	if err != nil {
		status = statusOf(err)
	}
	h.log.Info("a request with a token among its protocols, which is in no access log", "client_ip", clientAddress(r),
		"method", r.Method, "host", r.Host, "path", r.URL.Path, "duration", time.Since(began), "status", status, "error", err)
}

// statusOf is the status by which Caddy answers an error.
func statusOf(err error) int {
	if handlers, ok := errors.AsType[caddyhttp.HandlerError](err); ok && handlers.StatusCode != 0 {
		return handlers.StatusCode
	}
	return http.StatusInternalServerError
}

var errSocketTokenAlone = &wire.Refusal{
	Err:     wire.ErrHeaderInvalid,
	Message: "Offer a second protocol beside the token's: a browser closes the WebSocket if none of those that it offered comes back.",
}
