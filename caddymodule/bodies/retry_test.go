package bodies

import (
	"net/http"
	"testing"
	"time"
)

// Clients that were refused together come back over some seconds, and none too early.
func TestRetryAfterIsSpread(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		header := http.Header{}
		SetRetryAfter(header, 1500*time.Millisecond)
		seen[header.Get("Retry-After")] = true
	}
	if len(seen) != 4 || !seen["2"] || !seen["5"] {
		t.Errorf("got %v, want 2 to 5", seen)
	}
}
