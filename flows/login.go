package flows

import (
	"cmp"
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

type loginRequest struct {
	LoginID     string `json:"login_id" max:"254" need:"y"`
	DeviceToken string `json:"device_token" max:"128"`
}

// login issues the first token of a login (interface, Endpoints 1).
func (s *Service) login(ctx context.Context, c *session.Call, req *loginRequest) (Reply, error) {
	found, loginIDHash, err := c.FindAccount(ctx, req.LoginID)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	if err := c.FindDevice(ctx, found, req.DeviceToken); err != nil {
		return Reply{}, err
	}
	a := c.Tells.StandIn(found)
	counts, err := c.PasswordCounts(ctx, a, loginIDHash)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	wrong := counts.Now[record.WrongPasswords]
	byCode := a.LogsInByCode()
	if err := loginLocked(c, a, wrong, byCode); err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	if err := c.Tells.Admit(ctx, a); err != nil {
		return Reply{}, err
	}
	st := session.Step{Account: a, LoginIDHash: loginIDHash, State: record.CheckPassword, Counters: c.AddressCounters()}
	if byCode {
		st.State = record.CheckOTP
		if a.Phone == "" {
			return Reply{}, c.AddressFirst(ctx, session.ErrNoSecondFactor)
		}
	}
	st.Lists = c.Tells.Pending(a, st.State)
	reply, err := c.Enter(ctx, st)
	reply.LoginID = c.Tells.Shown(req.LoginID, a).LoginID
	reply.CaptchaRequired = !byCode && c.Company.CaptchaDue(wrong)
	return reply, err
}

// loginLocked returns an error while the first step of a login is locked.
func loginLocked(c *session.Call, a record.Account, wrong record.FailureCount, byCode bool) error {
	if !byCode {
		return c.CheckPasswords(wrong)
	}
	wrong.Count = 0 // wrong passwords lock the account for a time, but there is no password to disable
	return cmp.Or(c.CheckPasswords(wrong), c.CheckCodes(a.FailureCounts))
}
