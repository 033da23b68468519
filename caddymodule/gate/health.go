package gate

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
)

// serveHealth reports only whether this node can serve, since anyone may ask.
func (h *Handler) serveHealth(w http.ResponseWriter, r *http.Request, _ target) (body any, err error) {
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if isStopping(r) || !h.app.Healthy(r) {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	return nil, nil
}

// isStopping reports whether the server is stopping and waits for shutdown_delay, so
// that load balancers can stop sending requests.
func isStopping(r *http.Request) bool {
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
