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
	_, name, _ := strings.Cut(key, "/")
	name, _, _ = strings.Cut(name, "/")
	return record.EventPrefix + name
}

// ReportedLimits remembers the full counters that were already reported, so that a counter
// that refuses a thousand requests causes one event. It may be used concurrently. The zero
// value is ready to use.
type ReportedLimits struct {
	mu   sync.Mutex
	full map[string]record.FullError // by the counter's key
}

// Full returns when the last reported counter of a limit has room again, by company. A counter
// that had a lower limit than the present one is not full any more.
func (t *ReportedLimits) Full(now time.Time, limit string, present func(company string) tenant.Rate) map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	ends := map[string]time.Time{}
	for key, f := range t.full {
		company, _, _ := strings.Cut(key, "/")
		if LimitOf(key) == limit && f.Until.After(now) && f.Until.After(ends[company]) && present(company) != tenant.Unlimited && f.Limit >= present(company).N {
			ends[company] = f.Until
		}
	}
	return ends
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
