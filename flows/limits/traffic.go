package limits

import (
	"slices"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Traffic counts what this node lately saw of each address, so that an operator can
// tell an address that many users share from one that guesses.
type Traffic struct {
	mu sync.Mutex
	// Once recent is full it becomes older, and what was older is forgotten, so the
	// busiest addresses are always there.
	recent, older map[windowKey]*window
}

// A windowKey names a counter of an address, or of a range of them.
type windowKey struct{ company, counter, address string }

// maxWindows bounds each generation, maxAccounts the accounts of a window.
const (
	maxWindows  = 5_000
	maxAccounts = 64
)

// A window is that of a counter: it begins with the first attempt that is counted.
type window struct {
	ends             time.Time
	accounts         []int64 // different ones
	failures, logins int
}

// find returns the window of a counter that has not ended; nil if there is none.
func (t *Traffic) find(key windowKey, now time.Time) *window {
	w := t.recent[key]
	if w == nil {
		if w = t.older[key]; w == nil {
			return nil
		}
		t.keep(key, w)
	}
	if !now.Before(w.ends) {
		return nil
	}
	return w
}

func (t *Traffic) keep(key windowKey, w *window) {
	if len(t.recent) >= maxWindows {
		t.older, t.recent = t.recent, nil
	}
	if t.recent == nil {
		t.recent = map[windowKey]*window{}
	}
	t.recent[key] = w
}

// addressLimits are the limits of an address.
func (at *Attempt) addressLimits() []addressLimit {
	l := &at.Company.Limits
	return []addressLimit{
		{addressFailures, record.LockAddress, l.FailuresPerAddress},
		{addressLogins, record.LockLogins, l.LoginsPerAddress},
		{addressSMS, record.LockSMSAddress, l.SMSPerAddress},
	}
}

type addressLimit struct {
	name, lock string
	rate       tenant.Rate
}

// The names of an address's counters.
const (
	addressFailures = "failures-of-address"
	addressLogins   = "logins-per-address"
	addressSMS      = "sms-per-address"
)

// Ended notes what came of an attempt: whose account it was about, 0 for none, and
// whether it was the last step of a login. One that was refused for a limit or lock
// does not count.
func (at *Attempt) Ended(account int64, login bool) {
	if at.Traffic == nil || at.Company == nil || at.Nowhere {
		return
	}
	at.Traffic.mu.Lock()
	defer at.Traffic.mu.Unlock()
	for _, limit := range at.addressLimits() {
		if limit.rate == tenant.Unlimited {
			continue
		}
		for _, address := range addressRanges(at.Address) {
			key := windowKey{at.Company.Code, limit.name, address}
			w := at.Traffic.find(key, at.Now)
			if w == nil {
				if !slices.Contains(at.counted, limit.name) {
					continue
				}
				w = &window{ends: at.Now.Add(limit.rate.Per)}
				at.Traffic.keep(key, w)
			}
			if account != 0 && len(w.accounts) < maxAccounts && !slices.Contains(w.accounts, account) {
				w.accounts = append(w.accounts, account)
			}
			if slices.Contains(at.counted, addressFailures) {
				w.failures++
			}
			if login {
				w.logins++
			}
		}
	}
}

// full is the event that a counter is full. If it is an address's, the event tells of
// the address's traffic.
func (at *Attempt) full(lock, key string) record.Event {
	e := record.Event{Name: lock}
	for _, limit := range at.addressLimits() {
		for i, c := range at.perAddress(limit.name, limit.rate) {
			if c.Key == key {
				e.Traffic = &record.Traffic{Attempts: c.Limit}
				at.Traffic.tell(e.Traffic, windowKey{at.Company.Code, limit.name, addressRanges(at.Address)[i]}, at.Now)
				e.Reason = e.Traffic.Kind()
			}
		}
	}
	return e
}

func (t *Traffic) tell(told *record.Traffic, key windowKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.find(key, now); w != nil {
		told.Accounts, told.Failures, told.Logins = len(w.accounts), w.failures, w.logins
	}
}
