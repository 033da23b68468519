package gate

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
)

// crossOrigin reports whether the request comes from a page of a listed origin. If
// origins are listed, it sets Vary, since answers then differ by origin.
func (h *Handler) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	if len(h.CORS) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	origins := r.Header["Origin"]
	if len(origins) != 1 || !slices.Contains(h.CORS, origins[0]) {
		return false
	}
	w.Header().Set(allowOrigin, origins[0]) // for the answers that Caddy itself gives to errors
	if h.Cookie != "" {
		w.Header().Set(allowCredentials, "true")
	}
	return true
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// servePreflight allows everything that the browser asks for. The token decides
// later, when the actual request arrives.
func (h *Handler) servePreflight(w http.ResponseWriter, r *http.Request, _ target) (body any, err error) {
	header := w.Header()
	header.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	header.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		header.Set("Access-Control-Allow-Headers", wanted)
	}
	header.Set("Access-Control-Max-Age", "600")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil, nil
}

const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
)

// withCORS returns a writer that lets a page of the request's origin read the answer. It
// sets the headers at the last moment, so that they replace the application's own.
func (h *Handler) withCORS(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	from := r.Header.Get("Origin")
	return caddyhttp.NewResponseRecorder(w, nil, func(status int, header http.Header) bool {
		if status < http.StatusOK {
			return false
		}
		header.Set(allowOrigin, from)
		header.Add("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate, "+bodies.ReplayedHeader)
		header.Del(allowCredentials) // the application may have set it for another origin
		if h.Cookie != "" {
			header.Set(allowCredentials, "true")
		}
		return false // don't buffer
	})
}
