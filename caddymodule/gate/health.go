package gate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
)

// isHealth reports whether a request asks for this node's health.
func (h *Handler) isHealth(r *http.Request) bool {
	return h.Health != "" && r.URL.Path == h.Health && r.URL.RawPath == ""
}

// serveHealth reports only whether this node can serve, since anyone may ask.
func (h *Handler) serveHealth(w http.ResponseWriter, r *http.Request, _ target) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.refuse(w, errGetOnly)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if leaves(r) || !h.app.Healthy(r) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// leaves reports whether the server is stopping and waits for shutdown_delay, so
// that load balancers can stop sending requests.
func leaves(r *http.Request) bool {
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return false
	}
	leaving, _ := repl.Get("http.shutting_down")
	return leaving == true
}

func (h *Handler) checkHealth() error {
	u := url.URL{Path: h.Health}
	switch {
	case h.Health == "":
		return nil
	case !isLiteral(h.Health):
		return fmt.Errorf("health: %q is not a path; begin with a slash, and write it without escapes, .. or // in it", h.Health)
	case targetOf(h.BasePath, &u).kind != protectedPath:
		return fmt.Errorf("health: %s is a path of the auth API; choose another", h.Health)
	}
	return nil
}

// isLiteral reports whether every server reads a path of the configuration as it is
// written.
func isLiteral(p string) bool {
	return strings.HasPrefix(p, "/") && (&url.URL{Path: p}).EscapedPath() == p && paths.Clean(p) == p
}
