package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// This file decides what follows after the user has proven something: "second factor
// required", "new password required" or "nothing further required" in the transition
// table of the interface.

// afterPassword continues after a right password. The next step is the second factor, if
// the account needs one.
func afterPassword(ctx context.Context, c *session.Call, st session.Step) (Reply, error) {
	due, err := c.SecondFactorDue(ctx, st.Account)
	if err != nil {
		return Reply{}, err
	}
	if !due {
		return afterSecondFactor(ctx, c, st)
	}
	if err := c.CheckCodes(st.Account.FailureCounts); err != nil {
		return Reply{}, err
	}
	st.State = record.CheckOTP
	return c.Enter(ctx, st)
}

// afterSecondFactor continues when no second factor is missing. The next step is a new
// password, if the account needs one, otherwise authorized.
func afterSecondFactor(ctx context.Context, c *session.Call, st session.Step) (Reply, error) {
	st.State = record.Authorized
	if c.Company.PasswordDue(st.Account) {
		st.State = record.SetPassword
	}
	return c.Enter(ctx, st)
}
