package gate

import (
	"io"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// crossOrigin reports whether a page of a listed origin asks. Where origins
// are listed, answers differ by origin, which caches must know.
func (h *Handler) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	if len(h.CORS) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	origins := r.Header["Origin"]
	if len(origins) != 1 || !slices.Contains(h.CORS, origins[0]) {
		return false
	}
	w.Header().Set(allowOrigin, origins[0]) // for answers that Caddy itself gives to errors
	if h.Cookie != "" {
		w.Header().Set(allowCredentials, "true")
	}
	return true
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// servePreflight allows what the browser asks for: what may be done is decided
// when it is done, by the token.
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

// A corsWriter sets the headers by which a browser lets its page read the
// answer, at the last moment: an application's own would else stand beside them.
type corsWriter struct {
	*caddyhttp.ResponseWriterWrapper
	origin      string
	credentials bool // whether the page may read what the cookie brought
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
	header.Del(allowCredentials) // may have been meant for another origin
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

// FlushError implements what http.ResponseController flushes.
func (w *corsWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}
