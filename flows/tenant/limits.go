package tenant

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// PasswordsLocked returns until when no password is looked at, zero if it is.
// From DisableAfter on that is until the account is unlocked or recovered: the
// time is then a guess.
func (l *Limits) PasswordsLocked(t record.FailureCount, now time.Time) time.Time {
	if t.Count >= l.DisableAfter {
		return now.Add(time.Duration(l.LockFor))
	}
	if now.Before(t.Until) {
		return t.Until
	}
	return time.Time{}
}

// WindowLock is the lock of a tally that counts within a window.
func WindowLock(kind record.Kind) string {
	if kind == record.WrongAnswers {
		return record.LockAnswers
	}
	return record.LockCodes
}

// LockAt is the lock that a tally has just reached, empty for none.
func (l *Limits) LockAt(kind record.Kind, t record.FailureCount) string {
	switch {
	case kind == record.WrongPasswords && t.Count >= l.DisableAfter:
		return record.LockDisabled
	case kind == record.WrongPasswords && t.Count >= l.LockAfter:
		return record.LockPassword
	case kind == record.WrongCodes && t.Count >= l.WrongCodes.N, kind == record.WrongAnswers && t.Count >= l.WrongAnswers.N:
		return WindowLock(kind)
	default:
		return ""
	}
}
