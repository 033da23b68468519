package flows

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Attempts are counted so that any number of them that race, on any nodes, end
// as if they had come one after another: what is looked at before the secret
// only spares work; what counts is the one atomic step after it (settle…), in
// which an attempt that comes too late is refused even if its secret was right.

// counterKey makes the key of a company's counter or, with an empty code, of one
// that all share. A code has no slash and is never empty, so no two have the same.
func counterKey(company, name, of string) string { return company + "/" + name + "/" + of }

func (c *call) counter(name, of string, rate tenant.Rate) record.Counter {
	return record.Counter{Key: counterKey(c.company.Code, name, of), Limit: rate.N, Window: rate.Per}
}

// addressRanges are what an address is counted as: one of IPv6 as its /64, which
// one customer of a provider has whole, and as its /48, the most that a provider
// gives to one (RFC 6177). Any other is both itself.
func addressRanges(address string) (narrow, wide string) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address, address // a Unix socket's peer
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String(), ip.String()
	}
	prefix := func(bits int) string { p, _ := ip.Prefix(bits); return p.String() }
	return prefix(64), prefix(48)
}

// turn is the call's at hashing, where all of a /48 are one client.
func (c *call) turn() password.Turn {
	_, wide := addressRanges(c.address)
	return password.Turn{Company: c.company.Code, Address: wide}
}

// wideTimes is how many times an address's limit its /48 has.
const wideTimes = 10

// perAddress are the counters of the call's address.
func (c *call) perAddress(name string, rate tenant.Rate) []record.Counter {
	if c.nowhere {
		return nil
	}
	return perAddress(c.company.Code, name, c.address, rate)
}

// perAddress are an address's counters in a company or, with an empty code, in
// all.
func perAddress(company, name, address string, rate tenant.Rate) []record.Counter {
	narrow, wide := addressRanges(address)
	counters := []record.Counter{{Key: counterKey(company, name, narrow), Limit: rate.N, Window: rate.Per}}
	if wide != narrow {
		counters = append(counters, record.Counter{Key: counterKey(company, name, wide), Limit: wideTimes * rate.N, Window: rate.Per})
	}
	return counters
}

func (c *call) addressFailures() []record.Counter {
	return c.perAddress("failures-of-address", c.company.Limits.FailuresPerAddress)
}

// addressLook are what checkAddress looks at, for a step that is to look itself.
func (c *call) addressLook() []record.Counter { return record.Look(c.addressFailures()...) }

// checkAddress refuses an address that has failed too often.
func (s *Service) checkAddress(ctx context.Context, c *call) error {
	return s.charge(ctx, c, c.addressLook()...)
}

// addressLogins count the passwords of the address that were compared and the
// OAuth codes that went to a provider, right or wrong.
func (c *call) addressLogins() []record.Counter {
	return c.perAddress("logins-per-address", c.company.Limits.LoginsPerAddress)
}

// checkLogins is checkAddress before a password: it also refuses an address with
// too many of them.
func (s *Service) checkLogins(ctx context.Context, c *call) error {
	return s.charge(ctx, c, record.Look(append(c.addressFailures(), c.addressLogins()...)...)...)
}

// beginLogin is checkLogins, and counts a password that is about to be compared.
func (s *Service) beginLogin(ctx context.Context, c *call) error {
	return s.charge(ctx, c, append(c.addressLook(), c.addressLogins()...)...)
}

// addressFirst is for a refusal that came before the step which looks at the
// address: an address that has failed too often is told that alone.
func (s *Service) addressFirst(ctx context.Context, c *call, err error) error {
	return cmp.Or(s.checkAddress(ctx, c), err)
}

// failAddress counts a failure of the address; it is refused if there were too
// many before.
func (s *Service) failAddress(ctx context.Context, c *call) error {
	return s.charge(ctx, c, c.addressFailures()...)
}

func (s *Service) charge(ctx context.Context, c *call, counters ...record.Counter) error {
	return s.refused(c, s.Sessions.Charge(ctx, c.now, counters...))
}

// settleAddress ends an attempt: it counts a wrong one, and refuses any that
// comes after too many.
func (s *Service) settleAddress(ctx context.Context, c *call, ok bool) error {
	if ok {
		return s.checkAddress(ctx, c)
	}
	return s.failAddress(ctx, c)
}

// refused makes auth.restricted of a counter that is full.
func (s *Service) refused(c *call, err error) error {
	if full, ok := errors.AsType[*record.Full](err); ok {
		lock := lockOf(full.Key)
		if s.Observe != nil && s.told.first(c.now, full) {
			c.happened(lock, "")
		}
		return wire.Restricted(lock, c.now, full.Until)
	}
	if err != nil {
		return wire.Unavailable("counting", err)
	}
	return nil
}

// subject is whose attempts are counted where an account was looked for: its
// own or, with an empty one, those of the login id's alias.
func (c *call) subject(a record.Account, alias string) record.Subject {
	if a.ID != 0 {
		return record.Subject{Company: c.company.Code, Account: a.ID}
	}
	return record.Subject{Company: c.company.Code, LoginID: alias}
}

// ClearAttempts forgets an account's wrong attempts, also those that strangers are
// told of, and with them their locks. Tell is told once they are forgotten.
func (s *Service) ClearAttempts(ctx context.Context, company *tenant.Company, a record.Account, kinds []record.Kind, tell ...record.Tell) error {
	err := s.clear(ctx, record.Subject{Company: a.Company, Account: a.ID}, kinds, tell...)
	return cmp.Or(err, s.clearShown(ctx, company, a, kinds...))
}

// clear forgets wrong attempts, and with them their locks. Once the last is
// forgotten it is told of.
func (s *Service) clear(ctx context.Context, subject record.Subject, kinds []record.Kind, tell ...record.Tell) error {
	for i, kind := range kinds {
		var last []record.Tell
		if i == len(kinds)-1 {
			last = tell
		}
		err := s.Accounts.Tally(ctx, s.Now(), subject, kind, func(t *record.Tally) error {
			*t = record.Tally{}
			return nil
		}, last...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) tallies(ctx context.Context, subject record.Subject) (map[record.Kind]record.Tally, error) {
	tallies, err := s.Accounts.Tallies(ctx, subject)
	if err != nil {
		return nil, wire.Unavailable("loading the counts of wrong attempts", err)
	}
	return tallies, nil
}

// checkPasswords refuses while the passwords of the tally are locked.
func (c *call) checkPasswords(t record.Tally) error {
	until := c.company.Limits.PasswordsLocked(t, c.now)
	switch {
	case until.IsZero():
		return nil
	case t.Count >= c.company.Limits.DisableAfter:
		return wire.Restricted(record.LockDisabled, c.now, until)
	default:
		return wire.Restricted(record.LockPassword, c.now, until)
	}
}

func (c *call) captchaDue(passwords record.Tally) bool {
	return c.company.Captcha != nil && passwords.Count >= c.company.Limits.CaptchaAfter
}

// settlePassword ends an attempt with a password and returns whether the next
// one needs a captcha. solved tells that this one brought one.
func (s *Service) settlePassword(ctx context.Context, c *call, subject record.Subject, ok, solved bool) (captcha bool, err error) {
	if err := s.settleAddress(ctx, c, ok); err != nil {
		return false, err
	}
	err = s.tally(ctx, c, subject, record.WrongPasswords, func(t *record.Tally) error {
		if err := c.checkPasswords(*t); err != nil {
			return err
		}
		if c.captchaDue(*t) && !solved {
			return &wire.Refusal{Err: wire.ErrCaptchaMissing, Captcha: true}
		}
		if ok {
			*t = record.Tally{}
			return nil
		}
		c.countWrongPassword(t)
		captcha = c.captchaDue(*t)
		return nil
	})
	return captcha, err
}

func (c *call) countWrongPassword(t *record.Tally) {
	t.Count++
	if t.Count >= c.company.Limits.LockAfter {
		t.Until = c.now.Add(c.company.Limits.LockFor)
	}
}

// checkWindow refuses while a tally that counts within a window is full.
func (c *call) checkWindow(kind record.Kind, t record.Tally, rate tenant.Rate) error {
	if t.Count >= rate.N && c.now.Before(t.Until) {
		return wire.Restricted(tenant.WindowLock(kind), c.now, t.Until)
	}
	return nil
}

// checkCodes refuses while an account's codes are locked.
func (c *call) checkCodes(a record.Account) error {
	return c.checkWindow(record.WrongCodes, a.Tallies[record.WrongCodes], c.company.Limits.WrongCodes)
}

// checkAnswers refuses while an account's control answers are locked.
func (c *call) checkAnswers(a record.Account) error {
	return c.checkWindow(record.WrongAnswers, a.Tallies[record.WrongAnswers], c.company.Limits.WrongAnswers)
}

// settleWindow ends an attempt whose tally counts within a window. A success
// does not clear it.
func (s *Service) settleWindow(ctx context.Context, c *call, subject record.Subject, kind record.Kind, rate tenant.Rate, ok bool) error {
	if err := s.settleAddress(ctx, c, ok); err != nil {
		return err
	}
	return s.tally(ctx, c, subject, kind, func(t *record.Tally) error {
		if err := c.checkWindow(kind, *t, rate); err != nil || ok {
			return err
		}
		c.countWithin(t, rate)
		return nil
	})
}

// countWithin counts within a window that the first event opens.
func (c *call) countWithin(t *record.Tally, rate tenant.Rate) {
	if !c.now.Before(t.Until) {
		*t = record.Tally{Until: c.now.Add(rate.Per)}
	}
	t.Count++
}

func (s *Service) tally(ctx context.Context, c *call, subject record.Subject, kind record.Kind, change func(*record.Tally) error) error {
	var after record.Tally
	var lock string
	told := s.Tell(c.company, func() []background.Fact {
		if lock == "" || subject.Account == 0 {
			return nil
		}
		return []background.Fact{background.LockFact(c.whose(), lock, after)}
	})
	err := s.Accounts.Tally(ctx, c.now, subject, kind, func(t *record.Tally) error {
		before := *t
		err := change(t)
		after, lock = *t, ""
		if after != before {
			lock = c.company.Limits.LockAt(kind, after)
		}
		return err
	}, told...)
	var code *wire.Error
	if err != nil && !errors.As(err, &code) {
		return wire.Unavailable("counting wrong attempts", err)
	}
	if err == nil && lock != "" {
		c.happened(lock, "")
	}
	return err
}
