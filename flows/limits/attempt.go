// Package limits counts the attempts of clients and refuses them when there were too
// many. It counts wrong passwords, codes and answers per account, failures and logins
// per address, and SMS and mails.
//
// Attempts may race on any number of nodes; the result is as if they had come one after
// another. The checks before a secret is compared (Check…) only save work. The atomic
// step after it (Record…) decides: it refuses an attempt over the limit even if its
// secret was right.
//
// Start with Attempt. tenant.Limits has the limits.
package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Attempt is one request of a client for the purpose of counting: whom it concerns,
// and what happened so far.
type Attempt struct {
	Company   *tenant.Company
	Address   string // the client's
	NoAddress bool   // the address is unknown: a backend acts for a user and does not pass it on
	// Device is the ID of a device that the account remembers; empty for an unknown client. It
	// replaces the address: what would count for the address counts for the device, so
	// that others at the address can't lock it out.
	Device string
	Now    time.Time
	Keys   *tokens.Keys // of the store

	Counters      record.Counters
	FailureCounts record.FailureCounts
	Reported      *ReportedLimits // nil to emit no events for full counters
	Traffic       *Traffic        // of all attempts; nil only if Reported is nil

	Mnemocode string // of the account, once it is known: for outbox events
	// Events are what happened. Only their Name, Reason and Traffic are emitted; the other
	// fields come from the call.
	Events []record.Event

	counted    []string           // names of the address's counters that this attempt charges
	taken      [][]record.Counter // what GiveBack refunds, one element for each charge
	unanswered bool               // a plugin was asked and failed
	waited     time.Duration      // for its turns at hashing
}

// Key returns the key of a company's counter or, if company is empty, of a counter that
// all companies share. A company's code has no slash and is never empty, so keys are
// unique.
func Key(company, name, of string) string { return company + "/" + name + "/" + of }

// Counter returns a counter of the company. Do not use it for personal data, such as
// addresses and phones: see PerAddress and PhoneSMS.
func (at *Attempt) Counter(name, of string, rate tenant.Rate) record.Counter {
	return record.Counter{Key: Key(at.Company.Code, name, of), Limit: rate.N, Window: rate.Per}
}

// personalCounter is Counter for an address or a phone. The key does not reveal it.
func personalCounter(keys *tokens.Keys, company, name, of string, rate tenant.Rate) record.Counter {
	key := Key(company, name, keys.CounterName(Key(company, name, of)))
	return record.Counter{Key: key, Limit: rate.N, Window: rate.Per}
}

// budget returns the counter for a rate, or none if the rate is unlimited.
func (at *Attempt) budget(name, of string, rate tenant.Rate) []record.Counter {
	if rate == tenant.Unlimited {
		return nil
	}
	return []record.Counter{at.Counter(name, of, rate)}
}

// addressRanges returns the ranges that an address counts for, the widest last. An IPv6
// address counts for its /64, which usually belongs to one customer, and for its /48,
// the most that a provider gives to one (RFC 6177). Any other address counts for itself.
func addressRanges(address string) []string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return []string{address} // the peer of a Unix socket
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return []string{ip.String()}
	}
	prefix := func(bits int) string { p, _ := ip.Prefix(bits); return p.String() }
	return []string{prefix(64), prefix(48)}
}

// Turn returns the attempt's turn at hashing.
func (at *Attempt) Turn() password.Turn {
	turn := TurnOf(at.Company.Code, at.Address)
	turn.Known, turn.Waited = at.Device != "", &at.waited
	return turn
}

// TurnOf returns the turn of a client at hashing. A whole /48 counts as one client.
func TurnOf(company, address string) password.Turn {
	ranges := addressRanges(address)
	return password.Turn{Company: company, Address: ranges[len(ranges)-1]}
}

// wideFactor is how much higher the limit of a /48 is than that of an address.
const wideFactor = 10

// perAddress returns the counters of the attempt's address.
func (at *Attempt) perAddress(name string, rate tenant.Rate) []record.Counter {
	if rate == tenant.Unlimited {
		return nil
	}
	if at.Device != "" {
		return []record.Counter{at.Counter(name, "device/"+at.Device, rate)}
	}
	if at.NoAddress {
		return nil
	}
	return PerAddress(at.Keys, at.Company.Code, name, at.Address, rate)
}

// PerAddress returns an address's counters in a company or, if company is empty, across
// all companies.
func PerAddress(keys *tokens.Keys, company, name, address string, rate tenant.Rate) []record.Counter {
	var counters []record.Counter
	for _, addresses := range addressRanges(address) {
		counters = append(counters, personalCounter(keys, company, name, addresses, rate))
		rate.N *= wideFactor
	}
	return counters
}

func (at *Attempt) failureCounters() []record.Counter {
	return at.perAddress(addressFailures, at.Company.Limits.FailuresPerAddress)
}

// AddressCounters returns the counters that CheckAddress reads, for a step that checks them
// itself.
func (at *Attempt) AddressCounters() []record.Counter {
	return record.CheckOnly(at.failureCounters()...)
}

// CheckAddress refuses an address that has failed too often.
func (at *Attempt) CheckAddress(ctx context.Context) error {
	return at.Charge(ctx, at.AddressCounters()...)
}

// CountLogin notes a login or recovery, and returns the counters to charge for it. They count
// compared passwords, OAuth codes and passkeys, right or wrong, recoveries, and other
// costly work.
func (at *Attempt) CountLogin() []record.Counter {
	at.counted = append(at.counted, addressLogins)
	return at.loginCounters()
}

func (at *Attempt) loginCounters() []record.Counter {
	return at.perAddress(addressLogins, at.Company.Limits.LoginsPerAddress)
}

// CheckLogins is CheckAddress before a password. It also refuses an address with too
// many logins.
func (at *Attempt) CheckLogins(ctx context.Context) error {
	return at.Charge(ctx, record.CheckOnly(append(at.failureCounters(), at.loginCounters()...)...)...)
}

// BeginLogin does what CheckLogins does, and counts a password that is about to be compared,
// or a recovery.
func (at *Attempt) BeginLogin(ctx context.Context) error {
	return at.Take(ctx, append(at.AddressCounters(), at.CountLogin()...)...)
}

// AddressFirst returns the error of CheckAddress or, if there is none, err. Call it if
// err came before the address was checked.
func (at *Attempt) AddressFirst(ctx context.Context, err error) error {
	if limited := at.CheckAddress(ctx); limited != nil {
		return limited
	}
	return err
}

// CountAddressFailure counts a failure of the address. It returns an error if there were
// already too many.
func (at *Attempt) CountAddressFailure(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // it counts even if the client hangs up
	at.counted = append(at.counted, addressFailures)
	return at.Charge(ctx, at.failureCounters()...)
}

// Charge adds one to each counter. If one is full, it adds to none and returns the lock
// of the first full one.
func (at *Attempt) Charge(ctx context.Context, counters ...record.Counter) error {
	return at.LimitError(at.Counters.Charge(ctx, at.Now, counters...))
}

// MarkUsed marks something as used, with a counter whose limit is how often that works:
// usually once. It charges the others in the same step. It returns false if the mark is full.
func (at *Attempt) MarkUsed(ctx context.Context, mark record.Counter, others ...record.Counter) (first bool, err error) {
	err = at.Counters.Charge(ctx, at.Now, append(others, mark)...)
	if full, ok := errors.AsType[*record.FullError](err); ok && full.Key == mark.Key {
		return false, nil
	}
	return err == nil, at.LimitError(err)
}

// IsUsed reports whether a mark is full. It does not mark it.
func (at *Attempt) IsUsed(ctx context.Context, mark record.Counter) (bool, error) {
	first, err := at.MarkUsed(ctx, record.CheckOnly(mark)[0])
	return err == nil && !first, err
}

// Spend marks a secret that a client sent as used, on all nodes. It returns false if the
// secret was used before. Each secret counts as a login of the address, so strangers
// can't fill the store with marks. GiveBack refunds that login, but not the secret.
func (at *Attempt) Spend(ctx context.Context, name string, secret []byte) (first bool, err error) {
	logins := at.CountLogin()
	first, err = at.MarkUsed(ctx, Mark(at.Company.Code, name, secret), append(at.AddressCounters(), logins...)...)
	if first {
		at.Took(logins...)
	}
	return first, err
}

// Mark returns the mark of a secret in a company or, if company is empty, in all of them, for
// MarkUsed.
func Mark(company, name string, secret []byte) record.Counter {
	hash := sha256.Sum256(secret)
	return record.Counter{Key: Key(company, name, hex.EncodeToString(hash[:])), Limit: 1, Window: tokens.SpentMemory}
}

// RecordAddress records the outcome of an attempt for its address. It counts a wrong
// attempt, and refuses any attempt after too many wrong ones.
func (at *Attempt) RecordAddress(ctx context.Context, ok bool) error {
	if ok {
		return at.CheckAddress(ctx)
	}
	return at.CountAddressFailure(ctx)
}

// LimitError converts the error of a full counter into auth.restricted.
func (at *Attempt) LimitError(err error) error {
	if full, ok := errors.AsType[*record.FullError](err); ok {
		limit := LimitOf(full.Key)
		if at.Reported != nil && at.Reported.FirstTime(at.Now, full) {
			at.Events = append(at.Events, at.fullEvent(limit, full.Key))
		}
		return wire.Restricted(limit, at.Now, full.Until)
	}
	if err != nil {
		return wire.Unavailable("counting", err)
	}
	return nil
}
