package gate

import (
	"io"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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
func (h *Handler) servePreflight(w http.ResponseWriter, r *http.Request, _ target) {
	header := w.Header()
	header.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	header.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		header.Set("Access-Control-Allow-Headers", wanted)
	}
	header.Set("Access-Control-Max-Age", "600")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
)

// A corsWriter sets the headers that let a page read the answer. It sets them at the
// last moment, so that they replace the application's own.
type corsWriter struct {
	*caddyhttp.ResponseWriterWrapper
	origin      string
	credentials bool // whether a page may read answers to requests with the cookie
	done        bool
}

func (w *corsWriter) begin() {
	if w.done {
		return
	}
	w.done = true
	header := w.Header()
	header.Set(allowOrigin, w.origin)
	header.Add("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate")
	header.Del(allowCredentials) // the application may have set it for another origin
	if w.credentials {
		header.Set(allowCredentials, "true")
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *corsWriter) WriteHeader(status int) {
	if status >= 200 {
		w.begin()
	}
	w.ResponseWriterWrapper.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *corsWriter) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (w *corsWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin()
	return w.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError implements the method that http.ResponseController uses to flush.
func (w *corsWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}
