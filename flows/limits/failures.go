package limits

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file counts the wrong passwords, codes and answers of accounts, devices and login ids.

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
		if at.Company.CaptchaDue(*t) && !solved {
			return &wire.Refusal{Err: wire.ErrCaptchaMissing, Captcha: true}
		}
		switch {
		case !ok:
			at.countWrongPassword(t)
		case key.LoginID == "": // otherwise strangers would see that somebody has logged in
			*t = record.FailureCount{}
		}
		captcha = at.Company.CaptchaDue(*t)
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
	if until := at.Company.Limits.WindowLocked(kind, t, at.Now); !until.IsZero() {
		return wire.Restricted(tenant.WindowLock(kind), at.Now, until)
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
				lock.Name, lock.Reason = record.AccountDeviceDistrusted, key.Device
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
