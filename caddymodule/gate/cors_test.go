package gate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Without cors nothing is said of origins.
func TestWithoutCORSThereIsNone(t *testing.T) {
	h, _ := newHandler(t, time.Minute, nil)
	r, w := httptest.NewRequest("OPTIONS", "/acme/v2/auth/login", nil), httptest.NewRecorder()
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", "POST")
	if err := h.ServeHTTP(w, r, nil); err != nil {
		t.Fatal(err)
	}
	for name := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			t.Errorf("%s is set", name)
		}
	}
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("got %d", w.Code)
	}
}
