package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// What follows a proof of the user: the "second factor required", "new password
// required" and "nothing further required" of the interface's transition table.

// afterPassword goes on behind a right password: to the second factor, if the account
// needs one.
func afterPassword(ctx context.Context, c *session.Call, st session.Step) (Reply, error) {
	if !c.Company.NeedsSecondFactor(st.Account) {
		return afterSecondFactor(ctx, c, st)
	}
	if err := c.CheckCodes(st.Account); err != nil {
		return Reply{}, err
	}
	st.State = record.CheckOTP
	return issued(c.Enter(ctx, st))
}

// afterSecondFactor goes on where no second factor is missing: to a new password, if the
// account needs one, or to authorized.
func afterSecondFactor(ctx context.Context, c *session.Call, st session.Step) (Reply, error) {
	st.State = record.Authorized
	if st.Account.MustSetPassword || st.Account.PasswordHash == "" && *c.Company.Password.Required {
		st.State = record.SetPassword
	}
	return issued(c.Enter(ctx, st))
}
