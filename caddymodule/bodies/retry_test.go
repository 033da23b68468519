package bodies

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// Clients that were refused together come back over some seconds, and none too early.
func TestRetryAfterIsSpread(t *testing.T) {
	for status, want := range map[int][]string{
		http.StatusServiceUnavailable: {"2", "3", "4", "5"},
		http.StatusTooManyRequests:    {"2"},
	} {
		seen := map[string]bool{}
		for range 1000 {
			header := http.Header{}
			SetRetryAfter(header, status, 1500*time.Millisecond)
			seen[header.Get("Retry-After")] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("%d: got %v, want %v", status, got, want)
		}
	}
}
