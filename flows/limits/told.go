package limits

import (
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// LockOf is the lock that a counter which refuses is: the second part of its key.
func LockOf(key string) string {
	_, name, _ := strings.Cut(key, "/")
	name, _, _ = strings.Cut(name, "/")
	switch name {
	case addressFailures:
		return record.LockAddress
	default:
		return record.LockPrefix + strings.ReplaceAll(name, "-", "_")
	}
}

// A Told remembers which full counters were told of, so that one that refuses
// a thousand requests is one event and not a thousand.
type Told struct {
	mu    sync.Mutex
	until map[string]time.Time // by the counter's key
}

const maxTold = 10_000

// First reports whether full was not told of in this window.
func (t *Told) First(now time.Time, full *record.Full) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.until[full.Key]) {
		return false
	}
	if t.until == nil {
		t.until = map[string]time.Time{}
	}
	if len(t.until) >= maxTold {
		for key, until := range t.until {
			if !now.Before(until) {
				delete(t.until, key)
			}
		}
	}
	if len(t.until) >= maxTold {
		clear(t.until) // rather twice than never
	}
	t.until[full.Key] = full.Until
	return true
}
