package tenant

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// PasswordsLocked returns until when passwords are locked, or zero if they are not.
// From DisableAfter on, they are locked until the user recovers the account or an
// operator unlocks it; the returned time is then only an estimate.
func (l *Limits) PasswordsLocked(t record.FailureCount, now time.Time) time.Time {
	if t.Count >= l.DisableAfter {
		return now.Add(time.Duration(l.LockFor))
	}
	if now.Before(t.Until) {
		return t.Until
	}
	return time.Time{}
}

// ForgetsDevice reports whether a device with so many wrong passwords counts as unknown.
func (l *Limits) ForgetsDevice(wrong int) bool { return wrong >= min(l.LockAfter, l.DisableAfter) }

// WindowLocked returns until when a failure count with a window locks its kind, or zero if it
// does not.
func (l *Limits) WindowLocked(kind record.FailureKind, t record.FailureCount, now time.Time) time.Time {
	if t.Count >= l.Window(kind).N && now.Before(t.Until) {
		return t.Until
	}
	return time.Time{}
}

// CaptchaDue reports whether the next password needs a captcha.
func (c *Company) CaptchaDue(passwords record.FailureCount) bool {
	return c.Captcha != nil && passwords.Count >= *c.Limits.CaptchaAfter
}

// WindowLock returns the lock of a failure count with a window.
func WindowLock(kind record.FailureKind) string {
	if kind == record.WrongAnswers {
		return record.LockAnswers
	}
	return record.LockCodes
}

// Window returns the limit of a failure count with a window.
func (l *Limits) Window(kind record.FailureKind) Rate {
	if kind == record.WrongAnswers {
		return l.WrongAnswers
	}
	return l.WrongCodes
}

// LockAt returns the lock that a failure count has reached, now or before, or "".
func (l *Limits) LockAt(kind record.FailureKind, t record.FailureCount) string {
	switch {
	case kind == record.WrongPasswords && t.Count >= l.DisableAfter:
		return record.LockDisabled
	case kind == record.WrongPasswords && t.Count >= l.LockAfter:
		return record.LockPassword
	case (kind == record.WrongCodes || kind == record.WrongAnswers) && t.Count >= l.Window(kind).N:
		return WindowLock(kind)
	default:
		return ""
	}
}
