// Package limits counts the attempts of clients, and refuses them once there were too
// many: wrong passwords, codes and answers by account, failures and logins by
// address, and what SMS and mails there may be.
//
// Attempts are counted so that any number of them that race, on any nodes, end
// as if they had come one after another: what is looked at before the secret
// (Check…) only spares work; what counts is the one atomic step after it (Settle…),
// in which an attempt that comes too late is refused even if its secret was right.
//
// Start with Attempt. How often what may happen is in tenant.Limits.
package limits

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Attempt is one request of a client, as it is counted: whose it is, and what has
// come of it so far.
type Attempt struct {
	Company *tenant.Company
	Address string // the client's
	Nowhere bool   // it comes from no address: of a backend's user who it does not tell
	Now     time.Time
	Keys    *tokens.Keys // name the counters of addresses and phones

	Counters      record.Counters
	FailureCounts record.FailureCounts
	Told          *Told    // nil: nobody is told of budgets that are used up
	Traffic       *Traffic // of all attempts; nil only if Told is

	// Whose the attempt is, once the account was found.
	Account   int64
	Mnemocode string
	// Events are what has happened, with a Name, a Reason and a Traffic. They are
	// emitted with all that is known of the attempt by then.
	Events []record.Event

	counted []string // the address's counters that it adds to
}

// Key makes the key of a company's counter or, with an empty code, of one
// that all share. A code has no slash and is never empty, so no two have the same.
func Key(company, name, of string) string { return company + "/" + name + "/" + of }

// Counter counts something of the company. What names a person, an address or a
// phone, has counters of its own: PerAddress, PhoneSMS.
func (at *Attempt) Counter(name, of string, rate tenant.Rate) record.Counter {
	return record.Counter{Key: Key(at.Company.Code, name, of), Limit: rate.N, Window: rate.Per}
}

// personalCounter is Counter for an address or a phone, which its key does not show.
func personalCounter(keys *tokens.Keys, company, name, of string, rate tenant.Rate) record.Counter {
	key := Key(company, name, keys.CounterName(Key(company, name, of)))
	return record.Counter{Key: key, Limit: rate.N, Window: rate.Per}
}

// Budget is the counter of something that may be unlimited: then there is none.
func (at *Attempt) Budget(name, of string, rate tenant.Rate) []record.Counter {
	if rate == tenant.Unlimited {
		return nil
	}
	return []record.Counter{at.Counter(name, of, rate)}
}

// addressRanges are what an address is counted as, the widest last: one of IPv6 as its
// /64, which one customer of a provider has whole, and as its /48, the most that a
// provider gives to one (RFC 6177). Any other is itself alone.
func addressRanges(address string) []string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return []string{address} // a Unix socket's peer
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return []string{ip.String()}
	}
	prefix := func(bits int) string { p, _ := ip.Prefix(bits); return p.String() }
	return []string{prefix(64), prefix(48)}
}

// Turn is the attempt's at hashing, where all of a /48 are one client.
func (at *Attempt) Turn() password.Turn {
	ranges := addressRanges(at.Address)
	return password.Turn{Company: at.Company.Code, Address: ranges[len(ranges)-1]}
}

// wideTimes is how many times an address's limit its /48 has.
const wideTimes = 10

// perAddress are the counters of the attempt's address.
func (at *Attempt) perAddress(name string, rate tenant.Rate) []record.Counter {
	if at.Nowhere || rate == tenant.Unlimited {
		return nil
	}
	return PerAddress(at.Keys, at.Company.Code, name, at.Address, rate)
}

// PerAddress are an address's counters in a company or, with an empty code, in
// all.
func PerAddress(keys *tokens.Keys, company, name, address string, rate tenant.Rate) []record.Counter {
	var counters []record.Counter
	for _, addresses := range addressRanges(address) {
		counters = append(counters, personalCounter(keys, company, name, addresses, rate))
		rate.N *= wideTimes
	}
	return counters
}

func (at *Attempt) addressFailures() []record.Counter {
	return at.perAddress(addressFailures, at.Company.Limits.FailuresPerAddress)
}

// AddressLook are what CheckAddress looks at, for a step that is to look itself.
func (at *Attempt) AddressLook() []record.Counter { return record.Look(at.addressFailures()...) }

// CheckAddress refuses an address that has failed too often.
func (at *Attempt) CheckAddress(ctx context.Context) error {
	return at.Charge(ctx, at.AddressLook()...)
}

// AddressLogins count the passwords of the address that were compared and the
// OAuth codes that went to a provider, right or wrong. They are for charging.
func (at *Attempt) AddressLogins() []record.Counter {
	at.counted = append(at.counted, addressLogins)
	return at.addressLogins()
}

func (at *Attempt) addressLogins() []record.Counter {
	return at.perAddress(addressLogins, at.Company.Limits.LoginsPerAddress)
}

// CheckLogins is CheckAddress before a password: it also refuses an address with
// too many of them.
func (at *Attempt) CheckLogins(ctx context.Context) error {
	return at.Charge(ctx, record.Look(append(at.addressFailures(), at.addressLogins()...)...)...)
}

// BeginLogin is CheckLogins, and counts a password that is about to be compared.
func (at *Attempt) BeginLogin(ctx context.Context) error {
	return at.Charge(ctx, append(at.AddressLook(), at.AddressLogins()...)...)
}

// AddressFirst is for a refusal that came before the step which looks at the
// address: an address that has failed too often is told that alone.
func (at *Attempt) AddressFirst(ctx context.Context, err error) error {
	return cmp.Or(at.CheckAddress(ctx), err)
}

// FailAddress counts a failure of the address; it is refused if there were too
// many before.
func (at *Attempt) FailAddress(ctx context.Context) error {
	at.counted = append(at.counted, addressFailures)
	return at.Charge(ctx, at.addressFailures()...)
}

// Charge adds one to each counter, or refuses with the lock that the first full one
// is.
func (at *Attempt) Charge(ctx context.Context, counters ...record.Counter) error {
	return at.Refused(at.Counters.Charge(ctx, at.Now, counters...))
}

// SettleAddress ends an attempt: it counts a wrong one, and refuses any that
// comes after too many.
func (at *Attempt) RecordAddress(ctx context.Context, ok bool) error {
	if ok {
		return at.CheckAddress(ctx)
	}
	return at.FailAddress(ctx)
}

// Refused makes auth.restricted of a counter that is full.
func (at *Attempt) Refused(err error) error {
	if full, ok := errors.AsType[*record.Full](err); ok {
		lock := LockOf(full.Key)
		if at.Told != nil && at.Told.First(at.Now, full) {
			at.Events = append(at.Events, at.full(lock, full.Key))
		}
		return wire.Restricted(lock, at.Now, full.Until)
	}
	if err != nil {
		return wire.Unavailable("counting", err)
	}
	return nil
}

// Subject is whose attempts are counted where an account was looked for: its
// own or, with an empty one, those of the login id's alias.
func (at *Attempt) FailureKey(a record.Account, loginIDHash string) record.FailureKey {
	if a.ID != 0 {
		return record.FailureKey{Company: at.Company.Code, Account: a.ID}
	}
	return record.FailureKey{Company: at.Company.Code, LoginID: loginIDHash}
}

func (at *Attempt) failures(ctx context.Context, key record.FailureKey) (map[record.Kind]record.FailureCount, error) {
	failures, err := at.FailureCounts.FailureCounts(ctx, key)
	if err != nil {
		return nil, wire.Unavailable("loading the counts of wrong attempts", err)
	}
	return failures, nil
}

// CheckPasswords refuses while the passwords of the tally are locked.
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

// SettlePassword ends an attempt with a password and returns whether the next
// one needs a captcha. solved tells that this one brought one.
func (at *Attempt) RecordPassword(ctx context.Context, key record.FailureKey, ok, solved bool) (captcha bool, err error) {
	if err := at.RecordAddress(ctx, ok); err != nil {
		return false, err
	}
	err = at.failureCount(ctx, key, record.WrongPasswords, func(t *record.FailureCount) error {
		if err := at.CheckPasswords(*t); err != nil {
			return err
		}
		if at.CaptchaDue(*t) && !solved {
			return &wire.Refusal{Err: wire.ErrCaptchaMissing, Captcha: true}
		}
		if ok {
			*t = record.FailureCount{}
			return nil
		}
		at.countWrongPassword(t)
		captcha = at.CaptchaDue(*t)
		return nil
	})
	return captcha, err
}

func (at *Attempt) countWrongPassword(t *record.FailureCount) {
	t.Count++
	if t.Count >= at.Company.Limits.LockAfter {
		t.Until = at.Now.Add(time.Duration(at.Company.Limits.LockFor))
	}
}

// checkWindow refuses while a tally that counts within a window is full.
func (at *Attempt) checkWindow(kind record.Kind, t record.FailureCount, rate tenant.Rate) error {
	if t.Count >= rate.N && at.Now.Before(t.Until) {
		return wire.Restricted(tenant.WindowLock(kind), at.Now, t.Until)
	}
	return nil
}

// CheckCodes refuses while an account's codes are locked.
func (at *Attempt) CheckCodes(a record.Account) error {
	return at.checkWindow(record.WrongCodes, a.FailureCounts[record.WrongCodes], at.Company.Limits.WrongCodes)
}

// CheckAnswers refuses while an account's control answers are locked.
func (at *Attempt) CheckAnswers(a record.Account) error {
	return at.checkWindow(record.WrongAnswers, a.FailureCounts[record.WrongAnswers], at.Company.Limits.WrongAnswers)
}

// SettleWindow ends an attempt whose tally counts within a window. A success
// does not clear it.
func (at *Attempt) RecordWindow(ctx context.Context, key record.FailureKey, kind record.Kind, rate tenant.Rate, ok bool) error {
	if err := at.RecordAddress(ctx, ok); err != nil {
		return err
	}
	return at.failureCount(ctx, key, kind, func(t *record.FailureCount) error {
		if err := at.checkWindow(kind, *t, rate); err != nil || ok {
			return err
		}
		at.countWithin(t, rate)
		return nil
	})
}

// countWithin counts within a window that the first event opens.
func (at *Attempt) countWithin(t *record.FailureCount, rate tenant.Rate) {
	if !at.Now.Before(t.Until) {
		*t = record.FailureCount{Until: at.Now.Add(rate.Per)}
	}
	t.Count++
}

func (at *Attempt) failureCount(ctx context.Context, key record.FailureKey, kind record.Kind, change func(*record.FailureCount) error) error {
	var lock record.Event // of no name if there is none
	err := at.FailureCounts.UpdateFailures(ctx, at.Now, key, kind, func(t *record.FailureCount) error {
		before := *t
		lock = record.Event{}
		if err := change(t); err != nil || t.Count == before.Count && t.Until.Equal(before.Until) {
			return err
		}
		lock = record.Event{Name: at.Company.Limits.LockAt(kind, *t), Time: at.Now, Mnemocode: at.Mnemocode, Until: t.Until}
		if key.Account != 0 {
			t.Outbox = background.OutboxEvents(at.Company, lock)
		}
		return nil
	})
	var code *wire.Error
	if err != nil && !errors.As(err, &code) {
		return wire.Unavailable("counting wrong attempts", err)
	}
	if err == nil && lock.Name != "" {
		at.Events = append(at.Events, lock)
	}
	return err
}

// Shown returns whose wrong attempts strangers are told of, with the tallies: the
// account's or, in a hardened company, those of the login id's alias.
func (at *Attempt) PublicFailures(ctx context.Context, a record.Account, loginIDHash string) (record.FailureKey, map[record.Kind]record.FailureCount, error) {
	if !at.Company.Hardened {
		return at.FailureKey(a, loginIDHash), a.FailureCounts, nil
	}
	key := at.FailureKey(record.Account{}, loginIDHash)
	failures, err := at.failures(ctx, key)
	return key, failures, err
}

// Hidden returns whose wrong attempts are counted beside those that are shown:
// the account's. For an unknown login id it is somebody who nobody is: what takes
// no time would tell.
func (at *Attempt) PrivateFailureKey(a record.Account, loginIDHash string) record.FailureKey {
	return at.FailureKey(a, loginIDHash+"/hidden")
}

// SettleHidden ends an attempt with a password for the account itself. One that
// comes while the account is locked is refused only if it was right, and while
// its password is disabled it is wrong: else guessing could go on.
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

// CountWrongCode counts a wrong code for the account itself. While its codes are
// locked, more are not counted.
func (at *Attempt) CountWrongCode(ctx context.Context, private record.FailureKey) error {
	rate := at.Company.Limits.WrongCodes
	return at.failureCount(ctx, private, record.WrongCodes, func(t *record.FailureCount) error {
		if at.checkWindow(record.WrongCodes, *t, rate) == nil {
			at.countWithin(t, rate)
		}
		return nil
	})
}
