package flows

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"time"
)

// Attempts are counted so that any number of them that race, on any nodes, end
// as if they had come one after another: what is looked at before the secret
// only spares work; what counts is the one atomic step after it (settle…), in
// which an attempt that comes too late is refused even if its secret was right.

// counterKey makes the key of a counter. A company's code has no slash, so no
// two companies share one.
func (c *call) counterKey(name, of string) string { return c.company.Code + "/" + name + "/" + of }

func (c *call) counter(name, of string, rate Rate) Counter {
	return Counter{Key: c.counterKey(name, of), Limit: rate.N, Window: rate.Per}
}

// addressKey is what an address is counted as: an IPv6 address by its /64,
// which one customer of a provider has whole.
func addressKey(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address // a Unix socket's peer
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.Prefix(64)
	return prefix.String()
}

func (c *call) addressFailures() Counter {
	return c.counter("failures-of-address", c.address, c.company.Limits.FailuresPerAddress)
}

// addressLook is what checkAddress looks at, for a step that is to look itself.
func (c *call) addressLook() Counter {
	counter := c.addressFailures()
	counter.Look = true
	return counter
}

// checkAddress refuses an address that has failed too often.
func (s *Service) checkAddress(ctx context.Context, c *call) error {
	return s.refused(c, s.Sessions.Peek(ctx, c.now, c.addressFailures()))
}

// addressFirst is for a refusal that came before the step which looks at the
// address: an address that has failed too often is told that alone.
func (s *Service) addressFirst(ctx context.Context, c *call, err error) error {
	return cmp.Or(s.checkAddress(ctx, c), err)
}

// failAddress counts a failure of the address; it is refused if there were too
// many before.
func (s *Service) failAddress(ctx context.Context, c *call) error {
	return s.charge(ctx, c, c.addressFailures())
}

func (s *Service) charge(ctx context.Context, c *call, counters ...Counter) error {
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
	if full, ok := errors.AsType[*Full](err); ok {
		lock := lockOf(full.Key)
		if s.Observe != nil && s.told.first(c.now, full) {
			c.happened(lock, "")
		}
		return restricted(lock, c.now, full.Until)
	}
	if err != nil {
		return unavailable("counting", err)
	}
	return nil
}

// subject is whose attempts are counted where an account was looked for: its
// own or, with an empty one, those of the login id's alias.
func (c *call) subject(a Account, alias string) Subject {
	if a.ID != 0 {
		return Subject{Company: c.company.Code, Account: a.ID}
	}
	return Subject{Company: c.company.Code, LoginID: alias}
}

// known is whose attempts are counted where an account was found or, with an
// empty one, the call's session is a decoy.
func (c *call) known(a Account) Subject {
	if a.ID == 0 {
		return c.subject(a, c.session.LoginID)
	}
	return c.subject(a, "")
}

// alias stands for a login id that no account has wherever something is kept of
// it: a user may have typed a password there. Strangers can't work it out.
func (s *Service) alias(ctx context.Context, c *call, loginID string) (string, error) {
	secret := s.secret.Load()
	if secret == nil {
		loaded, err := s.Accounts.Secret(ctx)
		if err != nil {
			return "", unavailable("loading the secret of aliases", err)
		}
		secret = &loaded
		s.secret.Store(secret)
	}
	mac := hmac.New(sha256.New, *secret)
	mac.Write([]byte(c.counterKey("alias", loginID)))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

func (s *Service) tallies(ctx context.Context, subject Subject) (map[Kind]Tally, error) {
	tallies, err := s.Accounts.Tallies(ctx, subject)
	if err != nil {
		return nil, unavailable("loading the counts of wrong attempts", err)
	}
	return tallies, nil
}

// PasswordsLocked returns until when no password is looked at, zero if it is.
// From DisableAfter on that is until the account is unlocked or recovered: the
// time is then a guess.
func (l *Limits) PasswordsLocked(t Tally, now time.Time) time.Time {
	if t.Count >= l.DisableAfter {
		return now.Add(l.LockFor)
	}
	if now.Before(t.Until) {
		return t.Until
	}
	return time.Time{}
}

// checkPasswords refuses while the passwords of the tally are locked.
func (c *call) checkPasswords(t Tally) error {
	until := c.company.Limits.PasswordsLocked(t, c.now)
	switch {
	case until.IsZero():
		return nil
	case t.Count >= c.company.Limits.DisableAfter:
		return restricted(LockDisabled, c.now, until)
	default:
		return restricted(LockPassword, c.now, until)
	}
}

func (c *call) captchaDue(passwords Tally) bool {
	return c.company.Captcha != nil && passwords.Count >= c.company.Limits.CaptchaAfter
}

// settlePassword ends an attempt with a password and returns whether the next
// one needs a captcha. solved tells that this one brought one.
func (s *Service) settlePassword(ctx context.Context, c *call, subject Subject, ok, solved bool) (captcha bool, err error) {
	if err := s.settleAddress(ctx, c, ok); err != nil {
		return false, err
	}
	err = s.tally(ctx, c, subject, WrongPasswords, func(t *Tally) error {
		if err := c.checkPasswords(*t); err != nil {
			return err
		}
		if c.captchaDue(*t) && !solved {
			return &Refusal{Err: ErrCaptchaMissing, Captcha: true}
		}
		if ok {
			*t = Tally{}
			return nil
		}
		t.Count++
		if t.Count >= c.company.Limits.LockAfter {
			t.Until = c.now.Add(c.company.Limits.LockFor)
		}
		captcha = c.captchaDue(*t)
		return nil
	})
	return captcha, err
}

// checkWindow refuses while a tally that counts within a window is full.
func (c *call) checkWindow(kind Kind, t Tally, rate Rate) error {
	if t.Count >= rate.N && c.now.Before(t.Until) {
		return restricted(windowLock(kind), c.now, t.Until)
	}
	return nil
}

func windowLock(kind Kind) string {
	if kind == WrongAnswers {
		return LockAnswers
	}
	return LockCodes
}

// checkCodes refuses while an account's codes are locked.
func (c *call) checkCodes(a Account) error {
	return c.checkWindow(WrongCodes, a.Tallies[WrongCodes], c.company.Limits.WrongCodes)
}

// checkAnswers refuses while an account's control answers are locked.
func (c *call) checkAnswers(a Account) error {
	return c.checkWindow(WrongAnswers, a.Tallies[WrongAnswers], c.company.Limits.WrongAnswers)
}

// settleWindow ends an attempt whose tally counts within a window. A success
// does not clear it.
func (s *Service) settleWindow(ctx context.Context, c *call, subject Subject, kind Kind, rate Rate, ok bool) error {
	if err := s.settleAddress(ctx, c, ok); err != nil {
		return err
	}
	return s.tally(ctx, c, subject, kind, func(t *Tally) error {
		if err := c.checkWindow(kind, *t, rate); err != nil || ok {
			return err
		}
		if !c.now.Before(t.Until) {
			*t = Tally{Until: c.now.Add(rate.Per)}
		}
		t.Count++
		return nil
	})
}

func (s *Service) tally(ctx context.Context, c *call, subject Subject, kind Kind, change func(*Tally) error) error {
	var before, after Tally
	err := s.Accounts.Tally(ctx, c.now, subject, kind, func(t *Tally) error {
		before = *t
		err := change(t)
		after = *t
		return err
	})
	var code *Error
	if err != nil && !errors.As(err, &code) {
		return unavailable("counting wrong attempts", err)
	}
	if lock := c.company.Limits.lockAt(kind, after); err == nil && after != before && lock != "" {
		c.happened(lock, "")
	}
	return err
}

// lockAt is the lock that a tally has just reached, empty for none.
func (l *Limits) lockAt(kind Kind, t Tally) string {
	switch {
	case kind == WrongPasswords && t.Count >= l.DisableAfter:
		return LockDisabled
	case kind == WrongPasswords && t.Count >= l.LockAfter:
		return LockPassword
	case kind == WrongCodes && t.Count >= l.WrongCodes.N, kind == WrongAnswers && t.Count >= l.WrongAnswers.N:
		return windowLock(kind)
	default:
		return ""
	}
}
