package limits

import (
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// LimitOf returns the event of a full counter with this key: the counters of limits have the
// names of their events.
func LimitOf(key string) string {
	_, name, _ := strings.Cut(key, "/")
	name, _, _ = strings.Cut(name, "/")
	return record.EventPrefix + name
}

// ReportedLimits remembers the full counters that were already reported, so that a counter
// that refuses a thousand requests causes one event. It may be used concurrently. The zero
// value is ready to use.
type ReportedLimits struct {
	mu    sync.Mutex
	until map[string]time.Time // by the counter's key
}

const maxReported = 10_000

// FirstTime reports whether full has not been reported in this window yet.
func (t *ReportedLimits) FirstTime(now time.Time, full *record.FullError) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.until[full.Key]) {
		return false
	}
	if t.until == nil {
		t.until = map[string]time.Time{}
	}
	if len(t.until) >= maxReported {
		for key, until := range t.until {
			if !now.Before(until) {
				delete(t.until, key)
			}
		}
	}
	if len(t.until) >= maxReported {
		clear(t.until) // reporting twice is better than never
	}
	t.until[full.Key] = full.Until
	return true
}
