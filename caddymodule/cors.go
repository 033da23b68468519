package caddymodule

import (
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
	return len(origins) == 1 && slices.Contains(h.CORS, origins[0])
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// answerPreflight allows what the browser asks for: what may be done is decided
// when it is done, by the token.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
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

// A corsWriter adds the headers by which a browser lets its page read the
// answer, at the last moment: an application's own would else stand beside them.
type corsWriter struct {
	*caddyhttp.ResponseWriterWrapper
	origin string
	done   bool
}

func (w *corsWriter) WriteHeader(status int) {
	if !w.done && status >= 200 {
		w.done = true
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", w.origin)
		header.Set("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate")
		header.Del("Access-Control-Allow-Credentials")
	}
	w.ResponseWriterWrapper.WriteHeader(status)
}

func (w *corsWriter) Write(b []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriterWrapper.Write(b)
}
