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
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
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
	Keys   *tokens.Keys // for the names of the counters of addresses and phones

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

// Turn returns the attempt's turn at hashing. A whole /48 counts as one client.
func (at *Attempt) Turn() password.Turn {
	ranges := addressRanges(at.Address)
	return password.Turn{Company: at.Company.Code, Known: at.Device != "", Address: ranges[len(ranges)-1], Waited: &at.waited}
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

// Take is Charge before the work that the counters count. GiveBack refunds it.
func (at *Attempt) Take(ctx context.Context, counters ...record.Counter) error {
	err := at.Charge(ctx, counters...)
	if err == nil {
		at.Took(counters...)
	}
	return err
}

// Took says that counters were charged as by Take.
func (at *Attempt) Took(counters ...record.Counter) {
	at.taken = append(at.taken, slices.DeleteFunc(slices.Clone(counters), func(c record.Counter) bool { return c.CheckOnly }))
}

// Worked says that the work was done, so that GiveBack refunds nothing of it: a secret was
// compared, or a message was given to a gateway.
func (at *Attempt) Worked() { at.taken = nil }

// NotAnswered says that a plugin was asked and failed, so GiveBack refunds less: a provider
// that throttles must not get more requests for it.
func (at *Attempt) NotAnswered() { at.unanswered = true }

// GiveBack is GiveBackAll if err, the outcome of the attempt, says that the node was too
// busy for the work, or that a store or provider did not answer or has a defect.
func (at *Attempt) GiveBack(ctx context.Context, err error) {
	if wire.IsFailure(err) {
		at.GiveBackAll(ctx)
	}
}

// GiveBackAll refunds what the attempt took. A client that hangs up gets nothing back. An
// address gets back at most wideFactor times its limit, because what a try leaves in the
// store is bounded by that, and once its limit if a plugin failed.
func (at *Attempt) GiveBackAll(ctx context.Context) {
	if len(at.taken) == 0 || ctx.Err() != nil {
		return
	}
	if bound := at.Company.Limits.LoginsPerAddress; bound != tenant.Unlimited {
		if !at.unanswered {
			bound.N *= wideFactor
		}
		if at.Counters.Charge(ctx, at.Now, at.perAddress("given-back", bound)...) != nil {
			return
		}
	}
	for _, counters := range at.taken {
		_ = at.Counters.Refund(ctx, at.Now, counters...) // then they count, as without GiveBack
	}
	at.taken = nil
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

// FailureKey returns the key for the wrong attempts of an account or, if the account is
// empty, of the login id hash.
func (at *Attempt) FailureKey(a record.Account, loginIDHash string) record.FailureKey {
	if a.ID != 0 {
		return record.FailureKey{Company: at.Company.Code, Account: a.ID}
	}
	return record.FailureKey{Company: at.Company.Code, LoginID: loginIDHash}
}

// CheckPasswords returns an error while the failure count locks passwords.
func (at *Attempt) CheckPasswords(t record.FailureCount) error {
	until := at.Company.Limits.PasswordsLocked(t, at.Now)
	switch {
	case until.IsZero():
		return nil
	case t.Count >= at.Company.Limits.DisableAfter:
		return wire.Restricted(record.LockDisabled, at.Now, until)
	default:
		return wire.Restricted(record.LockPassword, at.Now, until)
	}
}

// CaptchaDue reports whether the next password needs a captcha.
func (at *Attempt) CaptchaDue(passwords record.FailureCount) bool {
	return at.Company.Captcha != nil && passwords.Count >= *at.Company.Limits.CaptchaAfter
}

// ErrDeviceUnknown means that a device has failed too often while its password was
// compared. The attempt then counts like that of an unknown device.
var ErrDeviceUnknown = errors.New("the device is no longer known")

// RecordPassword records the outcome of an attempt with a password, and returns whether
// the next one needs a captcha. solved means that this attempt solved a captcha. A right
// password resets the count, unless key is that of a login id. If key is that of a device,
// RecordPassword may fail with ErrDeviceUnknown.
func (at *Attempt) RecordPassword(ctx context.Context, key record.FailureKey, ok, solved bool) (captcha bool, err error) {
	if err := at.RecordAddress(ctx, ok); err != nil {
		return false, err
	}
	err = at.failureCount(ctx, key, record.WrongPasswords, func(t *record.FailureCount) error {
		if key.Device != "" && at.Company.Limits.ForgetsDevice(t.Count) {
			return ErrDeviceUnknown
		}
		if err := at.CheckPasswords(*t); err != nil {
			return err
		}
		if at.CaptchaDue(*t) && !solved {
			return &wire.Refusal{Err: wire.ErrCaptchaMissing, Captcha: true}
		}
		switch {
		case !ok:
			at.countWrongPassword(t)
		case key.LoginID == "": // otherwise strangers would see that somebody has logged in
			*t = record.FailureCount{}
		}
		captcha = at.CaptchaDue(*t)
		return nil
	})
	return captcha, err
}

func (at *Attempt) countWrongPassword(t *record.FailureCount) {
	t.Count++
	// A wrong password during a private lock does not extend it. Of a device, the count
	// alone matters.
	if t.Count >= at.Company.Limits.LockAfter && !at.Now.Before(t.Until) {
		t.Until = at.Now.Add(time.Duration(at.Company.Limits.LockFor))
	}
}

// checkWindow returns an error while a failure count with a window is full.
func (at *Attempt) checkWindow(kind record.FailureKind, t record.FailureCount) error {
	if t.Count >= at.Company.Limits.Window(kind).N && at.Now.Before(t.Until) {
		return wire.Restricted(tenant.WindowLock(kind), at.Now, t.Until)
	}
	return nil
}

// CheckCodes returns an error while an account's codes are locked.
func (at *Attempt) CheckCodes(counts record.Failures) error {
	return at.checkWindow(record.WrongCodes, counts[record.WrongCodes])
}

// CheckAnswers returns an error while an account's control answers are locked.
func (at *Attempt) CheckAnswers(counts record.Failures) error {
	return at.checkWindow(record.WrongAnswers, counts[record.WrongAnswers])
}

// RecordWindow records the outcome of an attempt whose failure count has a window. A
// success does not reset the count.
func (at *Attempt) RecordWindow(ctx context.Context, key record.FailureKey, kind record.FailureKind, ok bool) error {
	if err := at.RecordAddress(ctx, ok); err != nil {
		return err
	}
	return at.failureCount(ctx, key, kind, func(t *record.FailureCount) error {
		if err := at.checkWindow(kind, *t); err != nil || ok {
			return err
		}
		at.CountWithin(t, at.Company.Limits.Window(kind).Per)
		return nil
	})
}

// CountWithin adds one to a count with a window. The first event opens the window.
func (at *Attempt) CountWithin(t *record.FailureCount, window time.Duration) {
	if !at.Now.Before(t.Until) {
		*t = record.FailureCount{Until: at.Now.Add(window)}
	}
	t.Count++
}

func (at *Attempt) failureCount(ctx context.Context, key record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error) error {
	ctx = context.WithoutCancel(ctx) // it counts even if the client hangs up
	var lock record.Event            // Name is empty if no lock was reached
	err := at.FailureCounts.UpdateFailures(ctx, at.Now, key, kind, func(t *record.FailureCount) error {
		before := *t
		lock = record.Event{}
		if err := change(t); err != nil {
			return err
		}
		name := at.Company.Limits.LockAt(kind, *t)
		if name == at.Company.Limits.LockAt(kind, before) && t.Until.Equal(before.Until) {
			return nil
		}
		lock = record.Event{Name: name, Time: at.Now, Mnemocode: at.Mnemocode, Until: t.Until}
		if key.Device != "" {
			if lock.Name = ""; at.Company.Limits.ForgetsDevice(t.Count) {
				lock.Name = record.AccountDeviceDistrusted
			}
		} else if key.Account != 0 {
			t.Outbox = background.OutboxEvents(ctx, at.Company, lock)
		}
		return nil
	})
	_, expected := errors.AsType[*wire.Error](err)
	if err != nil && !expected && !errors.Is(err, ErrDeviceUnknown) {
		return wire.Unavailable("counting wrong attempts", err)
	}
	reported := func(e record.Event) bool { return e.Name == lock.Name } // of the other count of a hardened company
	if err == nil && lock.Name != "" && !slices.ContainsFunc(at.Events, reported) {
		at.Events = append(at.Events, lock)
	}
	return err
}

// RecordPrivate records an attempt with a password in the private count, and returns
// whether the password counts as right. While the account is locked, a right password
// gets the lock's error; a wrong one only counts. While the password is disabled, even
// the right one is wrong, so that guessing is useless.
func (at *Attempt) RecordPrivate(ctx context.Context, private record.FailureKey, ok bool) (bool, error) {
	var right bool
	err := at.failureCount(ctx, private, record.WrongPasswords, func(t *record.FailureCount) error {
		disabled := t.Count >= at.Company.Limits.DisableAfter
		right = ok && !disabled
		switch locked := at.CheckPasswords(*t); {
		case right && locked != nil:
			return locked
		case right:
			*t = record.FailureCount{}
		case !disabled:
			at.countWrongPassword(t)
		}
		return nil
	})
	return right, err
}

// CountWrongCode counts a wrong code in the private count. While the account's codes
// are locked, it counts nothing.
func (at *Attempt) CountWrongCode(ctx context.Context, private record.FailureKey) error {
	return at.failureCount(ctx, private, record.WrongCodes, func(t *record.FailureCount) error {
		if at.checkWindow(record.WrongCodes, *t) == nil {
			at.CountWithin(t, at.Company.Limits.WrongCodes.Per)
		}
		return nil
	})
}
