package limits

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// LimitOf returns the event of a full counter with this key: the counters of limits have the
// names of their events.
func LimitOf(key string) string {
	_, name, _ := cutKey(key)
	return record.EventPrefix + name
}

// cutKey undoes Key.
func cutKey(key string) (company, name, of string) {
	company, name, _ = strings.Cut(key, "/")
	name, of, _ = strings.Cut(name, "/")
	return company, name, of
}

// ReportedLimits remembers the full counters that were already reported, so that a counter
// that refuses a thousand requests causes one event. It may be used concurrently. The zero
// value is ready to use.
type ReportedLimits struct {
	mu   sync.Mutex
	full map[string]record.FullError // by the counter's key
}

// A FullLimit is a counter that is full.
type FullLimit struct {
	Company, Of string // of what it is a limit, as of a country
	Until       time.Time
}

// Full returns the reported counters of a limit that are still full. One that had a lower limit
// than the present one is not.
func (t *ReportedLimits) Full(now time.Time, limit string, present func(company string) tenant.Rate) (full []FullLimit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, f := range t.full {
		company, name, of := cutKey(key)
		rate := present(company)
		if record.EventPrefix+name == limit && f.Until.After(now) && rate != tenant.Unlimited && f.Limit >= rate.N {
			full = append(full, FullLimit{company, of, f.Until})
		}
	}
	return full
}

const maxReported = 10_000

// FirstTime reports whether full has not been reported in this window yet, and remembers it as
// reported. A counter that fills again after its limit was raised has not.
func (t *ReportedLimits) FirstTime(now time.Time, full *record.FullError) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.full[full.Key]; now.Before(before.Until) && before.Limit == full.Limit {
		return false
	}
	if t.full == nil {
		t.full = map[string]record.FullError{}
	}
	if len(t.full) >= maxReported {
		maps.DeleteFunc(t.full, func(_ string, f record.FullError) bool { return !now.Before(f.Until) })
	}
	if len(t.full) >= maxReported {
		clear(t.full) // reporting twice is better than never
	}
	t.full[full.Key] = *full
	return true
}
