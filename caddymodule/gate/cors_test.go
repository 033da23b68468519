package gate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Without cors nothing is said of origins.
func TestWithoutCORSThereIsNone(t *testing.T) {
	h, _ := newHandler(t, time.Minute, nil)
	r, w := httptest.NewRequest("OPTIONS", "/acme/v2/auth/login", nil), httptest.NewRecorder()
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", "POST")
	must(t, h.ServeHTTP(w, r, nil))
	for name := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			t.Errorf("%s is set", name)
		}
	}
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("got %d", w.Code)
	}
}

// A flush begins the answer of an application, and its headers allow the origin.
func TestAFlushBeginsTheAnswer(t *testing.T) {
	h, _ := newHandler(t, time.Minute, nil)
	h.Public, h.CORS = []string{"/*"}, []string{"https://app.example.com"}
	r, w := httptest.NewRequest("GET", "/x", nil), httptest.NewRecorder()
	r.Header.Set("Origin", h.CORS[0])
	err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		return http.NewResponseController(w).Flush()
	}))
	if got := w.Header().Get("Access-Control-Allow-Origin"); err != nil || !w.Flushed || got != h.CORS[0] {
		t.Errorf("got %v, flushed %t, for %q", err, w.Flushed, got)
	}
}
