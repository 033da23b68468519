package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// After notifyAfter wrong codes in a row within secondFactorWindow, someone else may know
// the password.
const (
	notifyAfter        = 3
	secondFactorWindow = 24 * time.Hour
)

// RecordSecondFactor records the outcome of a code after a correct password. After three
// wrong codes in a row it notifies the account's owner. a is empty if no code was
// compared. RecordSecondFactor only logs its own failures.
func (c *Call) RecordSecondFactor(ctx context.Context, a record.Account, outcome error) {
	wrong := errors.Is(outcome, wire.ErrOTPInvalid) || errors.Is(outcome, wire.ErrBackupCodeInvalid)
	counted := a.FailureCounts[record.WrongSecondFactors].Count > 0
	gavePassword := slices.Contains(c.Session().Profile.Methods().Words(), string(record.ByPassword))
	if a.ID == 0 || !gavePassword || !wrong && (outcome != nil || !counted) || !c.Company.Sends(message.NoticeSecondFactorFailed) {
		return
	}
	ctx = context.WithoutCancel(ctx) // it counts even if the client hangs up
	var notify bool
	err := c.m.Accounts.UpdateFailures(ctx, c.Now, c.FailureKey(a, ""), record.WrongSecondFactors, func(t *record.FailureCount) error {
		c.CountWithin(t, secondFactorWindow)
		notify = wrong && t.Count == notifyAfter
		if notify || !wrong {
			*t = record.FailureCount{}
		}
		return nil
	})
	if err != nil {
		c.m.Warn("wrong codes after a correct password were not counted", "company", c.Company.Code, "mnemocode", a.Mnemocode, "error", err)
	} else if notify {
		c.Notify(ctx, a, message.NoticeSecondFactorFailed)
	}
}
