package limits

import (
	"slices"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Traffic counts what this node recently saw from each address. It helps an operator
// to tell an address that many users share from one that guesses passwords. It may be
// used concurrently. The zero value is ready to use.
type Traffic struct {
	mu sync.Mutex
	// When recent is full, it replaces older, and the entries of older are dropped.
	// So the busiest addresses are always kept.
	recent, older map[windowKey]*window
}

// A windowKey identifies a counter of an address or an address range.
type windowKey struct{ company, counter, address string }

// maxWindows is the size of recent and of older, maxAccounts that of window.accounts.
const (
	maxWindows  = 5_000
	maxAccounts = 64
)

// A window is the window of a counter. The first attempt that is counted opens it.
type window struct {
	ends             time.Time
	accounts         []int64 // different ones
	failures, logins int
}

// find returns the open window of a counter, or nil.
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

// addressRates returns the limits per address, by the name of the counter.
func (at *Attempt) addressRates() map[string]tenant.Rate {
	l := &at.Company.Limits
	return map[string]tenant.Rate{addressFailures: l.FailuresPerAddress, addressLogins: l.LoginsPerAddress, addressSMS: l.SMSPerAddress}
}

// Names of the counters of an address.
const (
	addressFailures = "limit.address"
	addressLogins   = "limit.logins"
	addressSMS      = "limit.sms_address"
)

// RecordTraffic adds an attempt to Traffic: which account it concerned, 0 for none, and
// whether it completed a login. Do not call it for an attempt that a limit or lock refused.
func (at *Attempt) RecordTraffic(account int64, login bool) {
	if at.Traffic == nil || at.Company == nil || at.NoAddress || at.Device != "" {
		return
	}
	at.Traffic.mu.Lock()
	defer at.Traffic.mu.Unlock()
	for name, rate := range at.addressRates() {
		if rate == tenant.Unlimited {
			continue
		}
		for _, address := range addressRanges(at.Address) {
			key := windowKey{at.Company.Code, name, address}
			w := at.Traffic.find(key, at.Now)
			if w == nil {
				if !slices.Contains(at.counted, name) {
					continue
				}
				w = &window{ends: at.Now.Add(rate.Per)}
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

// fullEvent returns the event of a full counter. For a counter of an address, but not of a
// device in its place, it includes the address's traffic.
func (at *Attempt) fullEvent(limit, key string) record.Event {
	e := record.Event{Name: limit}
	if at.Device != "" {
		return e
	}
	for name, rate := range at.addressRates() {
		for i, c := range at.perAddress(name, rate) {
			if c.Key == key {
				e.Traffic = &record.Traffic{Attempts: c.Limit}
				at.Traffic.describe(e.Traffic, windowKey{at.Company.Code, name, addressRanges(at.Address)[i]}, at.Now)
				e.Reason = e.Traffic.Guess()
			}
		}
	}
	return e
}

func (t *Traffic) describe(told *record.Traffic, key windowKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.find(key, now); w != nil {
		told.Accounts, told.Failures, told.Logins = len(w.accounts), w.failures, w.logins
	}
}
